#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "cohort/base/home_process.h"
#include "cohort/data/iterator.h"

namespace cohort::data {

struct ReadAheadOptions {
  int threads = 1;
  /// How many elements may be ready or in the making, ahead of the consumer.
  std::int64_t capacity = 2;
  /// Lets the capacity grow while the consumer has to wait although the threads had room to work.
  bool autotune = false;
  /// False gives elements as they become ready.
  bool ordered = true;
};

namespace detail {

/// What threads that make elements need of LibTorch: one intra-op thread each, so that they do not
/// fight with replicas for cores.
void run_as_pipeline_thread(const std::function<void()>& work);

}  // namespace detail

/// Makes elements on threads of its own, ahead of the consumer: each thread takes an input, one at
/// a time, and turns it into an element at the same time as the others. The one mechanism behind
/// `prefetch`, parallel `map` and parallel `interleave`.
///
/// The order of elements, and what an error comes after, is that of the inputs. The destructor
/// stops the threads; it must not be called in the child of a `fork`: hold it as
/// UsedByThreads<ReadAhead>.
template <class In, class Out>
class ReadAhead {
 public:
  using Transform = std::function<Out(In&&, std::int64_t number)>;

  ReadAhead(IteratorPtr<In> input, Transform transform, ReadAheadOptions options)
      : transform_(std::move(transform)), input_(std::move(input)), options_(options) {}
  ~ReadAhead() { stop(); }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  bool next(Out& element) {
    threads_.process().require("iterator.next", "pipeline");
    start();
    std::optional<Slot> slot = take_ready();
    if (!slot) return false;
    if (slot->error) std::rethrow_exception(slot->error);
    element = *std::move(slot->element);
    return true;
  }

  /// Passes over elements. Nobody wants to know of an input what could not be made of it: an error
  /// is only one of the input itself, whether its elements are made yet or not.
  Passed skip(std::int64_t count) {
    threads_.process().require("iterator.next", "pipeline");
    Passed passed;
    if (threads_.empty()) {
      passed = input_->skip(count);
      taken_ = given_ += passed.count;
      return passed;
    }
    while (passed.count < count && !passed.error) {
      std::optional<Slot> slot = take_ready();
      if (!slot) break;
      ++passed.count;
      if (slot->has_no_input) passed.error = slot->error;
    }
    return passed;
  }

  /// How many elements it gave.
  std::int64_t given() const {
    threads_.process().require("iterator.position", "pipeline");
    const std::lock_guard lock(mutex_);
    return given_;
  }

  /// Where the input stood behind the element given last, whatever lies ready: the same numbers as
  /// the input itself would put.
  void save_input(PositionWriter& position) const {
    threads_.process().require("iterator.position", "pipeline");
    const std::lock_guard lock(mutex_);
    position.append(threads_.empty() ? input_->position() : delivered_.get());
  }
  void restore_input(PositionReader& position, std::int64_t given = 0) {
    taken_ = given_ = given;
    input_->restore(position);
  }

  bool ordered() const { return options_.ordered; }

 private:
  struct Slot {
    std::int64_t number;
    KeptPosition behind;  // the input's, after it gave what this is made of
    std::optional<Out> element;
    std::exception_ptr error;
    bool has_no_input = false;  // the error is of the input
    bool ready() const { return element || error; }
  };
  using Slots = std::deque<std::unique_ptr<Slot>>;

  void start() {
    if (!threads_.empty()) return;
    delivered_ = keeper_.of(*input_);
    for (int i = 0; i < options_.threads; ++i) {
      threads_.start([this] { detail::run_as_pipeline_thread([this] { work(); }); });
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    threads_.join();
  }

  /// Waits for the next element, or an error in its place; nothing at the end.
  std::optional<Slot> take_ready() {
    std::unique_lock lock(mutex_);
    if (!has_ready()) wait_for_element(lock);
    const auto ready = find_ready();
    if (ready == slots_.end()) return std::nullopt;
    Slot slot = std::move(**ready);
    slots_.erase(ready);
    delivered_ = std::move(slot.behind);
    ++given_;
    lock.unlock();
    room_.notify_one();
    return slot;
  }

  typename Slots::iterator find_ready() {
    if (options_.ordered) {
      return !slots_.empty() && slots_.front()->ready() ? slots_.begin() : slots_.end();
    }
    return std::find_if(slots_.begin(), slots_.end(),
                        [](const auto& slot) { return slot->ready(); });
  }
  bool has_ready() { return find_ready() != slots_.end(); }

  void wait_for_element(std::unique_lock<std::mutex>& lock) {
    if (options_.autotune && was_full_ && options_.capacity < kMostAutotuned) {
      options_.capacity *= 2;
      was_full_ = false;
      room_.notify_all();
    }
    made_.wait(lock, [this] { return has_ready() || (ended_ && slots_.empty()); });
  }

  void work() {
    std::unique_lock taking(input_mutex_, std::defer_lock);
    for (;;) {
      taking.lock();
      if (!wait_for_room()) return;
      In input{};
      Slot* slot = take(input);
      taking.unlock();
      if (!slot) continue;
      make(*slot, std::move(input));
    }
  }

  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    const auto full = [this] {
      return static_cast<std::int64_t>(slots_.size()) >= options_.capacity;
    };
    was_full_ = was_full_ || full();
    room_.wait(lock, [&] { return stopping_ || ended_ || !full(); });
    return !stopping_ && !ended_;
  }

  /// Takes the next input, in order; null if there was none that could be used.
  Slot* take(In& input) {
    auto slot = std::make_unique<Slot>();
    bool ended = false;
    try {
      ended = !input_->next(input);
    } catch (...) {
      slot->error = std::current_exception();
      slot->has_no_input = true;
    }
    if (!ended) slot->behind = keeper_.of(*input_);
    const bool failed = slot->has_no_input;
    const std::lock_guard lock(mutex_);
    if (ended) {
      ended_ = true;
      made_.notify_all();
      room_.notify_all();
      return nullptr;
    }
    slot->number = taken_++;
    slots_.push_back(std::move(slot));
    if (failed) made_.notify_one();
    return failed ? nullptr : slots_.back().get();
  }

  void make(Slot& slot, In&& input) {
    std::optional<Out> element;
    std::exception_ptr error;
    try {
      element.emplace(transform_(std::move(input), slot.number));
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      slot.element = std::move(element);
      slot.error = std::move(error);
    }
    made_.notify_one();
  }

  static constexpr std::int64_t kMostAutotuned = 64;

  const Transform transform_;

  std::mutex input_mutex_;  // one thread takes an input at a time
  const IteratorPtr<In> input_;
  PositionKeeper keeper_;  // as input_: of the thread that takes

  mutable std::mutex mutex_;
  std::condition_variable made_, room_;
  ReadAheadOptions options_;
  Slots slots_;  // in the order of their inputs
  KeptPosition delivered_;
  std::int64_t taken_ = 0, given_ = 0;
  bool was_full_ = false, ended_ = false, stopping_ = false;

  OwnThreads threads_;  // last: they use all of the above
};

}  // namespace cohort::data
