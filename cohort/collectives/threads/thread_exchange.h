#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/collectives/exchange.h"
#include "cohort/collectives/threads/mailbox.h"

namespace cohort::threads {

/// One worker of a ThreadNetwork: its own mailbox, and the way to those of the others. Messages are
/// copied when they are sent and when they are received, so that no transfer is ever under way.
class ThreadExchange final : public Exchange {
 public:
  using All = std::vector<std::unique_ptr<ThreadExchange>>;

  /// `all` are the exchanges of the network, which has them.
  ThreadExchange(const All& all, int index, int workers, const NetworkOptions& options);

  int workers() const override { return workers_; }
  int index() const override { return index_; }
  std::string name(int worker) const override;
  void send(Transfer& transfer, int to, Lane lane, const MessageHead& head,
            std::span<const ConstBytes> body) override;
  std::optional<Arrival> peek(int from, Lane lane) override;
  void receive(Transfer& transfer, int from, Lane lane,
               std::span<const MutableBytes> into) override;
  std::uint64_t events() const override { return mailbox_.events(); }
  bool wait(std::uint64_t seen, const Deadline& deadline) override;
  void wake() override { mailbox_.wake(); }
  void cancel(Transfer&) override {}
  std::optional<std::string> lost(int worker) const override;
  void say_goodbye(const std::string& reason) override;
  Traffic traffic() const override;

  // Faults: see ThreadNetwork.
  void lose(const std::string& why);
  void stop();
  void resume();

 private:
  /// What a stopped worker has sent.
  struct Held {
    int to;
    Lane lane;
    Messages message;
  };

  void check_other(const char* where, int worker) const;
  Mailbox& mailbox_of(int worker) const { return (*all_)[worker]->mailbox_; }
  Mailbox::Time now() const;
  void post(int to, Lane lane, Messages message, Mailbox::Time sent);
  void leave(const std::string& why) COHORT_REQUIRES(mutex_);

  const All* const all_;
  const int index_;
  const int workers_;
  Mailbox mailbox_;

  std::atomic<std::uint64_t> messages_{0};
  std::atomic<std::uint64_t> bytes_{0};

  Mutex mutex_;
  std::atomic<bool> is_stopped_{false};  // changes with the lock held
  std::vector<Held> held_ COHORT_GUARDED_BY(mutex_);
  std::optional<std::string> held_goodbye_ COHORT_GUARDED_BY(mutex_);
  bool has_left_ COHORT_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::threads
