#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/collectives/exchange.h"

namespace cohort {

/// An engine whose transfers take as long as those of a real network: each is under way until a
/// thread of the worker is in `wait`, which completes the oldest one. Only then a message leaves,
/// and the body of one that has arrived gets to where it was asked for.
///
/// Around an engine whose transfers are done at once, such as a ThreadNetwork's:
///
///     Worker worker(std::make_shared<DeferredExchange>(network.exchange(0)));
class DeferredExchange final : public Exchange {
 public:
  /// What becomes of a message that is cancelled on its way out.
  enum class OnCancel { SENT, LOST };

  explicit DeferredExchange(std::shared_ptr<Exchange> inner, OnCancel on_cancel = OnCancel::SENT)
      : inner_(std::move(inner)), on_cancel_(on_cancel) {}

  int workers() const override { return inner_->workers(); }
  int index() const override { return inner_->index(); }
  std::string name(int worker) const override { return inner_->name(worker); }

  void send(Transfer& transfer, int to, Lane lane, const MessageHead& head,
            std::span<const ConstBytes> body) override {
    const auto complete = [this, to, lane, head, parts = std::vector(body.begin(), body.end())] {
      Transfer sent;
      inner_->send(sent, to, lane, head, parts);
      return sent.failed() ? Transfer::FAILED : Transfer::DONE;
    };
    begin({&transfer, /*is_message=*/true, complete});
  }

  std::optional<Arrival> peek(int from, Lane lane) override { return inner_->peek(from, lane); }

  void receive(Transfer& transfer, int from, Lane lane,
               std::span<const MutableBytes> into) override {
    std::size_t size = 0;
    for (const MutableBytes part : into) size += part.size();
    std::vector<std::byte> body(size);
    const MutableBytes whole(body);
    Transfer taken;
    inner_->receive(taken, from, lane, {&whole, body.empty() ? 0U : 1U});
    if (!taken.done()) throw RuntimeError("DeferredExchange", "the inner engine defers itself");
    const auto complete = [body, parts = std::vector(into.begin(), into.end())] {
      const std::byte* next = body.data();
      for (const MutableBytes part : parts) {
        if (!part.empty()) std::memcpy(part.data(), next, part.size());
        next += part.size();
      }
      return Transfer::DONE;
    };
    begin({&transfer, /*is_message=*/false, complete});
  }

  std::uint64_t events() const override { return inner_->events(); }

  bool wait(std::uint64_t seen, const Deadline& deadline) override {
    if (!complete_oldest()) {
      inner_->wait(seen, deadline);
      complete_oldest();  // what was begun meanwhile
    }
    return events() != seen;
  }

  void wake() override { inner_->wake(); }

  void cancel(Transfer& transfer) override {
    const std::lock_guard lock(mutex_);
    const auto own = std::find_if(under_way_.begin(), under_way_.end(),
                                  [&](const UnderWay& each) { return each.transfer == &transfer; });
    if (own == under_way_.end()) return;
    if (!own->is_message || on_cancel_ == OnCancel::LOST) {
      under_way_.erase(own);
      transfer.set(Transfer::DONE);
    } else {
      while (!transfer.done()) complete_oldest_locked();  // those before it stay before it
    }
    inner_->wake();
  }

  std::optional<std::string> lost(int worker) const override { return inner_->lost(worker); }

  void say_goodbye(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    while (!under_way_.empty()) complete_oldest_locked();
    inner_->say_goodbye(reason);
  }

  Traffic traffic() const override { return inner_->traffic(); }

 private:
  struct UnderWay {
    Transfer* transfer;
    bool is_message;
    std::function<Transfer::State()> complete;
  };

  /// Who waits already has something to do.
  void begin(UnderWay transfer) {
    transfer.transfer->set(Transfer::UNDER_WAY);
    const std::lock_guard lock(mutex_);
    under_way_.push_back(std::move(transfer));
    inner_->wake();
  }

  bool complete_oldest() {
    const std::lock_guard lock(mutex_);
    if (under_way_.empty()) return false;
    complete_oldest_locked();
    inner_->wake();
    return true;
  }

  /// In order, so that messages of a lane stay in theirs. Its owner may destroy it when it is done.
  void complete_oldest_locked() {
    const UnderWay oldest = std::move(under_way_.front());
    under_way_.pop_front();
    oldest.transfer->set(oldest.complete());
  }

  const std::shared_ptr<Exchange> inner_;
  const OnCancel on_cancel_;
  std::mutex mutex_;
  std::list<UnderWay> under_way_;
};

}  // namespace cohort
