#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace cohort {

/// The process that an object was made in.
///
/// `fork` copies every object into the child, but of all threads only the one that calls it. An
/// object that needs other threads notes its process, and asks before it waits for them:
///
///     process_.require("strategy.run", "strategy");  // throws RuntimeError in a child
///
/// Asking costs one load. Thread-safe.
class HomeProcess {
 public:
  HomeProcess();

  /// False in a child that was forked after the object was made.
  bool is_current() const { return forks_ == forks_so_far.load(std::memory_order_relaxed); }

  /// Throws RuntimeError in such a child: the object, a `what`, has its threads in the parent.
  void require(std::string_view where, std::string_view what) const {
    if (!is_current()) refuse(where, what);
  }

 private:
  [[noreturn]] static void refuse(std::string_view where, std::string_view what);

  static inline std::atomic<std::uint32_t> forks_so_far{0};  // on the way from the first process
  const std::uint32_t forks_;
};

/// Keeps an object until the process ends, for what can't be destroyed in a child: threads that are
/// not there, and what they may have been changing at the time of the fork.
void keep_for_ever(std::shared_ptr<const void> object);

/// The threads of an object. Whoever has them ends their work before it calls `join`; in a child,
/// where they do not exist, they are forgotten.
class OwnThreads {
 public:
  OwnThreads() = default;
  ~OwnThreads() { join(); }
  OwnThreads(const OwnThreads&) = delete;
  OwnThreads& operator=(const OwnThreads&) = delete;

  template <class F>
  void start(F&& work) {
    threads_.emplace_back(std::forward<F>(work));
  }

  bool empty() const { return threads_.empty(); }
  int size() const { return static_cast<int>(threads_.size()); }

  /// Where they were started, if they were.
  const HomeProcess& process() const { return process_; }

  void join();

 private:
  const HomeProcess process_;
  std::vector<std::thread> threads_;
};

/// Holds an object that threads of its own use. In a child it is kept as it was found: to destroy
/// it could wait for ever, or meet a change that was half done.
template <class T>
class UsedByThreads {
 public:
  template <class... Args>
  explicit UsedByThreads(Args&&... args) : object_(new T(std::forward<Args>(args)...)) {}
  ~UsedByThreads() {
    if (!process_.is_current()) keep_for_ever(std::move(object_));
  }
  UsedByThreads(const UsedByThreads&) = delete;
  UsedByThreads& operator=(const UsedByThreads&) = delete;

  T* operator->() { return object_.get(); }
  const T* operator->() const { return object_.get(); }

 private:
  const HomeProcess process_;
  std::shared_ptr<T> object_;
};

}  // namespace cohort
