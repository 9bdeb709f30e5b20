#include "cohort/collectives/threads/thread_exchange.h"

#include <cstring>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::threads {
namespace {

template <class Parts>
std::size_t bytes_of(const Parts& parts) {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  return bytes;
}

void copy_from(std::span<const ConstBytes> parts, std::byte* to) {
  for (const ConstBytes part : parts) {
    if (!part.empty()) std::memcpy(to, part.data(), part.size());
    to += part.size();
  }
}

void copy_to(std::span<const MutableBytes> parts, const std::byte* from) {
  for (const MutableBytes part : parts) {
    if (!part.empty()) std::memcpy(part.data(), from, part.size());
    from += part.size();
  }
}

}  // namespace

ThreadExchange::ThreadExchange(const All& all, int index, int workers,
                               const NetworkOptions& options)
    : all_(&all), index_(index), workers_(workers), mailbox_(workers, options) {}

std::string ThreadExchange::name(int worker) const { return cat("worker ", worker); }

void ThreadExchange::check_other(const char* where, int worker) const {
  if (worker >= 0 && worker < workers_ && worker != index_) return;
  throw ValueError(where, cat("expected another worker than ", index_, ", from 0 to ", workers_ - 1,
                              ", got ", worker));
}

Mailbox::Time ThreadExchange::now() const {
  return mailbox_.is_instant() ? Mailbox::Time() : std::chrono::steady_clock::now();
}

/// The body is copied before anything is locked, and the copy takes no time of the network's.
void ThreadExchange::send(Transfer& transfer, int to, Lane lane, const MessageHead& head,
                          std::span<const ConstBytes> body) {
  check_other("exchange.send", to);
  if (mailbox_.lost(to)) return transfer.set(Transfer::FAILED);
  const auto sent = now();
  const std::size_t bytes = bytes_of(body);
  Messages message = mailbox_of(to).pool().take(bytes);
  message.front().head = head;
  copy_from(body, message.front().body.get());
  messages_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(sizeof(head) + bytes, std::memory_order_relaxed);
  post(to, lane, std::move(message), sent);
  transfer.set(Transfer::DONE);
}

/// What is sent while `resume` sends what was held waits for it, and so comes behind it.
void ThreadExchange::post(int to, Lane lane, Messages message, Mailbox::Time sent) {
  if (is_stopped_.load(std::memory_order_acquire)) {
    const MutexLock lock(mutex_);
    if (is_stopped_.load(std::memory_order_relaxed)) {
      held_.push_back({to, lane, std::move(message)});
      return;
    }
    sent = now();
  }
  mailbox_of(to).post(index_, lane, std::move(message), sent);
}

std::optional<Exchange::Arrival> ThreadExchange::peek(int from, Lane lane) {
  check_other("exchange.peek", from);
  return mailbox_.peek(from, lane);
}

void ThreadExchange::receive(Transfer& transfer, int from, Lane lane,
                             std::span<const MutableBytes> into) {
  check_other("exchange.receive", from);
  Messages message = mailbox_.take(from, lane, bytes_of(into));
  copy_to(into, message.front().body.get());
  mailbox_.pool().give_back(std::move(message));
  transfer.set(Transfer::DONE);
}

bool ThreadExchange::wait(std::uint64_t seen, const Deadline& deadline) {
  return mailbox_.wait(seen, deadline);
}

std::optional<std::string> ThreadExchange::lost(int worker) const {
  check_other("exchange.lost", worker);
  return mailbox_.lost(worker);
}

void ThreadExchange::say_goodbye(const std::string& reason) {
  const MutexLock lock(mutex_);
  if (is_stopped_.load(std::memory_order_relaxed)) {
    if (!held_goodbye_) held_goodbye_ = reason;
  } else {
    leave(reason);
  }
}

void ThreadExchange::leave(const std::string& why) {
  if (std::exchange(has_left_, true)) return;
  for (int worker = 0; worker < workers_; ++worker) {
    if (worker != index_) mailbox_of(worker).post_end(index_, why, now());
  }
  mailbox_.close(cat("this worker has left: ", why));
}

Exchange::Traffic ThreadExchange::traffic() const {
  return {messages_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
}

void ThreadExchange::lose(const std::string& why) {
  const MutexLock lock(mutex_);
  held_.clear();
  held_goodbye_.reset();
  leave(why);
}

void ThreadExchange::stop() {
  const MutexLock lock(mutex_);
  is_stopped_.store(true, std::memory_order_release);
}

void ThreadExchange::resume() {
  const MutexLock lock(mutex_);
  for (Held& each : held_) {
    mailbox_of(each.to).post(index_, each.lane, std::move(each.message), now());
  }
  held_.clear();
  if (held_goodbye_) leave(*held_goodbye_);
  is_stopped_.store(false, std::memory_order_release);
}

}  // namespace cohort::threads
