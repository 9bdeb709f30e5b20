#include "cohort/collectives/threads/mailbox.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/device/allowed_cores.h"

namespace cohort::threads {
namespace {

using Clock = std::chrono::steady_clock;

/// To wake a thread on a virtual machine costs some thirty microseconds, fifty times as much as a
/// message between two that poll. With more workers than cores polling would win as long as nobody
/// computes; when they do, it delays them by more than it saves.
constexpr auto kPolling = std::chrono::microseconds(50);

/// The clock counts 292 years; more than one of them for a message is for ever.
Clock::duration rounded(std::chrono::duration<double> time) {
  constexpr std::chrono::duration<double> kYear = std::chrono::hours(24 * 365);
  return std::chrono::duration_cast<Clock::duration>(time < kYear ? time : kYear);
}

}  // namespace

Mailbox::Mailbox(int workers, const NetworkOptions& options)
    : seconds_per_byte_(options.bytes_per_second > 0 ? 1 / options.bytes_per_second : 0),
      latency_(rounded(options.latency)),
      is_instant_(seconds_per_byte_.count() == 0 && latency_.count() == 0),
      polls_(is_instant_ && workers <= allowed_cores()),
      links_(workers) {}

/// A link sends one after the other; the latency of one does not keep the next one from its way.
Mailbox::Time Mailbox::visible_at(Link& link, std::size_t bytes, Time sent) const {
  if (is_instant_) return {};
  link.free = std::max(sent, link.free) + rounded(seconds_per_byte_ * static_cast<double>(bytes));
  return link.free + latency_;
}

bool Mailbox::is_visible(Time time) { return time == Time() || time <= Clock::now(); }

void Mailbox::post(int from, Lane lane, Messages message, Time sent) {
  Wake wake = NOBODY;
  {
    const MutexLock lock(mutex_);
    Link& link = links_[from];
    if (!link.end) {
      Message& posted = message.front();
      posted.visible = visible_at(link, sizeof(MessageHead) + posted.body_bytes, sent);
      wake = announce(posted.visible, sent);
      Messages& queue = link.lanes[lane];
      queue.splice(queue.end(), message);
    }
  }
  notify(wake);
}

void Mailbox::post_end(int from, const std::string& why, Time sent) {
  Wake wake = NOBODY;
  {
    const MutexLock lock(mutex_);
    Link& link = links_[from];
    if (link.end) return;
    link.end = {why, visible_at(link, 0, sent)};
    wake = announce(link.end->visible, sent);
  }
  notify(wake);
}

void Mailbox::close(const std::string& why) {
  {
    const MutexLock lock(mutex_);
    for (Link& link : links_) {
      if (!link.end || !is_visible(link.end->visible)) link.end = {why, Time()};
    }
    add_event();
  }
  notify(ALL);
}

/// Counts what has become visible meanwhile, as it may be that nobody waits.
Mailbox::Wake Mailbox::announce(Time visible, Time now) {
  if (is_instant_) {
    add_event();
    return ALL;
  }
  const bool is_any_visible = count_arrivals(now);
  const bool is_first = due_.empty() || visible < due_.top();
  due_.push(visible);
  if (is_any_visible) return ALL;
  return is_first ? ONE : NOBODY;
}

/// Without the lock: who wakes up takes it.
void Mailbox::notify(Wake wake) {
  if (wake == ALL) changed_.notify_all();
  if (wake == ONE) changed_.notify_one();
}

bool Mailbox::count_arrivals(Time now) {
  const bool any = !due_.empty() && due_.top() <= now;
  while (!due_.empty() && due_.top() <= now) {
    due_.pop();
    add_event();
  }
  return any;
}

const Message* Mailbox::next_of(int from, Lane lane) const {
  const auto& lanes = links_[from].lanes;
  const auto found = lanes.find(lane);
  if (found == lanes.end() || found->second.empty()) return nullptr;
  const Message& next = found->second.front();
  return is_visible(next.visible) ? &next : nullptr;
}

std::optional<Exchange::Arrival> Mailbox::peek(int from, Lane lane) const {
  const MutexLock lock(mutex_);
  const Message* const next = next_of(from, lane);
  if (!next) return std::nullopt;
  return Exchange::Arrival{next->head, next->body_bytes};
}

Messages Mailbox::take(int from, Lane lane, std::size_t bytes) {
  Messages message;
  const MutexLock lock(mutex_);
  const Message* const next = next_of(from, lane);
  if (!next || next->body_bytes != bytes) {
    const std::string got = next ? cat("one of ", next->body_bytes) : "none";
    throw RuntimeError("exchange.receive", cat("expected a message of ", bytes, " bytes, got ", got,
                                               "; ask peek for its size"));
  }
  Messages& queue = links_[from].lanes[lane];
  message.splice(message.end(), queue, queue.begin());
  return message;
}

std::optional<std::string> Mailbox::lost(int worker) const {
  const MutexLock lock(mutex_);
  const auto& end = links_[worker].end;
  if (!end || !is_visible(end->visible)) return std::nullopt;
  return end->why;
}

/// Looks again and again whether something has happened, and yields its core in between.
bool Mailbox::poll(std::uint64_t seen) const {
  if (!polls_) return events() != seen;
  const Time end = Clock::now() + kPolling;
  for (;;) {
    if (events() != seen) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::yield();
  }
}

bool Mailbox::wait(std::uint64_t seen, const Exchange::Deadline& deadline) {
  if (poll(seen)) return true;
  const MutexLock lock(mutex_);
  for (;;) {
    const Time now = Clock::now();
    if (count_arrivals(now)) changed_.notify_all();
    if (events() != seen) return true;
    if (deadline && now >= *deadline) {
      if (!due_.empty()) changed_.notify_one();
      return false;
    }
    Exchange::Deadline end = deadline;
    if (!due_.empty() && (!end || due_.top() < *end)) end = due_.top();
    if (end) {
      changed_.wait_until(mutex_, *end);
    } else {
      changed_.wait(mutex_);
    }
  }
}

void Mailbox::wake() {
  {
    const MutexLock lock(mutex_);
    add_event();
  }
  notify(ALL);
}

}  // namespace cohort::threads
