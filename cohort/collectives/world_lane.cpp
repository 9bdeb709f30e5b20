#include "cohort/collectives/world_lane.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>

#include "cohort/base/error.h"
#include "cohort/base/exception_note.h"
#include "cohort/base/log.h"
#include "cohort/collectives/world_message.h"

// How a collective stays the same one on all workers. Its messages carry its number, and the first
// one between each two workers its text. In the first step everybody sends to the chief, and the
// chief waits for all: so a worker that is in another collective is noticed by somebody, who tells
// everybody (ERROR) before it throws. A worker that can't do its part sends an ERROR instead of it,
// which the chief passes on to those who wait for the chief alone. Nobody completes a collective
// that another one fails, since the chief's part of the last step comes after it has heard all. So
// the numbers stay the same.

namespace cohort {

using namespace world_message;

namespace {

std::string text_of(const WorldLane::Bytes& bytes, std::uint64_t count) {
  return {reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(count, bytes.size())};
}

std::uint64_t hash_of_text(std::string_view text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace

WorldLane::WorldLane(World& world, Lane lane, bool is_beside_runs)
    : world_(world), lane_(lane), is_beside_runs_(is_beside_runs) {
  world.enter_lane(*this);
}

WorldLane::~WorldLane() { world_.leave_lane(*this); }

std::vector<WorldLane::Bytes> WorldLane::all_gather(std::string_view call, ConstBytes mine) {
  const int workers = world_.workers();
  std::vector<Bytes> all(workers);
  all[world_.index()].assign(mine.begin(), mine.end());
  if (workers == 1) return all;
  Bytes joined;  // what is under way must outlive the round
  std::vector<std::uint64_t> sizes(workers);
  Round round(*this, call);
  if (!world_.is_chief()) {
    round.send(0, {&mine, 1});
    round.expect(0, joined);
    round.finish();
    ConstBytes rest(joined);
    for (Bytes& each : all) {
      std::uint64_t size = 0;
      std::memcpy(&size, rest.data(), sizeof size);
      each.assign(rest.begin() + sizeof size, rest.begin() + sizeof size + size);
      rest = rest.subspan(sizeof size + size);
    }
    return all;
  }
  for (int w = 1; w < workers; ++w) round.expect(w, all[w]);
  round.finish();
  std::vector<ConstBytes> parts;
  for (int w = 0; w < workers; ++w) {
    sizes[w] = all[w].size();
    parts.push_back(std::as_bytes(std::span(&sizes[w], 1)));
    parts.push_back(all[w]);
  }
  for (int w = 1; w < workers; ++w) round.send(w, parts);
  round.finish();
  return all;
}

WorldLane::Bytes WorldLane::of_chief(std::string_view call, std::span<const ConstBytes> mine) {
  Bytes chiefs;
  if (world_.is_chief()) {
    for (const ConstBytes part : mine) chiefs.insert(chiefs.end(), part.begin(), part.end());
  }
  if (world_.workers() == 1) return chiefs;
  Round round(*this, call);
  if (!world_.is_chief()) {
    round.send(0, {});
    round.expect(0, chiefs);
    round.finish();
    return chiefs;
  }
  for (int w = 1; w < world_.workers(); ++w) round.expect(w, std::vector<MutableBytes>());
  round.finish();
  for (int w = 1; w < world_.workers(); ++w) round.send(w, mine);
  round.finish();
  return chiefs;
}

void WorldLane::broadcast(std::string_view call, std::span<const MutableBytes> memory) {
  if (world_.workers() == 1) return;
  Round round(*this, call);
  if (!world_.is_chief()) {
    round.send(0, {});
    round.expect(0, {memory.begin(), memory.end()});
    return round.finish();
  }
  for (int w = 1; w < world_.workers(); ++w) round.expect(w, std::vector<MutableBytes>());
  round.finish();
  const std::vector<ConstBytes> parts(memory.begin(), memory.end());
  for (int w = 1; w < world_.workers(); ++w) round.send(w, parts);
  round.finish();
}

std::uint64_t WorldLane::next_in_epoch() {
  const std::uint32_t now = only_in_ ? *only_in_ : epoch();
  if (std::exchange(epoch_, now) != now) sequence_ = 0;
  broken_off_.reset();
  return sequence_++;
}

void WorldLane::note_completed(std::uint32_t epoch, std::uint64_t sequence) {
  completed_.store(std::uint64_t{epoch} << 32 | (sequence + 1), std::memory_order_release);
}

std::uint64_t WorldLane::completed_in(std::uint32_t epoch) const {
  const std::uint64_t completed = completed_.load(std::memory_order_acquire);
  return completed >> 32 == epoch ? completed & 0xffffffff : 0;
}

void WorldLane::refuse_mismatch(std::string_view call, const std::string& why) {
  if (world_.workers() == 1) return;
  world_.note_alike(World::Failure::MISMATCH, why);
  refuse(World::Failure::MISMATCH, cat(world_.name(world_.index()), ", in ", call, ": ", why));
}

void WorldLane::refuse(std::string_view call, const std::exception_ptr& error) {
  if (world_.workers() == 1) return;
  refuse(World::Failure::RUN,
         cat(world_.name(world_.index()), " has failed in ", call, ": ", text_of(error)));
}

/// One that it is in the middle of, or the next one.
void WorldLane::refuse(std::uint64_t kind, const std::string& why) {
  const std::uint64_t sequence = broken_off_ ? *broken_off_ : next_in_epoch();
  broken_off_.reset();
  if (world_.is_over(*this, sequence)) return;
  world_.post_to_all(lane_, {ERROR | why.size() << 8, epoch_, run(), sequence, 0, kind}, why);
  ++failures_;
}

void WorldLane::abandon() {
  abandoned_.store(true, std::memory_order_release);
  world_.exchange()->wake();
}

// One collective.

/// What fails here counts as the collective too, so that the next one has the same number on all.
WorldLane::Round::Round(WorldLane& lane, std::string_view call)
    : lane_(lane),
      world_(lane.world_),
      exchange_(*lane.world_.exchange()),
      call_(call),
      call_hash_(hash_of_text(call)),
      run_(lane.run()),
      sequence_(lane.next_in_epoch()),
      introduced_(lane.world_.workers(), false),
      waits_(lane.world_.workers(), false) {
  epoch_ = lane.epoch_;
  try {
    if (!lane.is_beside_runs_ && epoch_ != lane.epoch()) throw_abandoned();
    world_.check(call, lane, sequence_);
  } catch (...) {
    ++lane.failures_;
    throw;
  }
}

WorldLane::Round::~Round() {
  for (Outgoing& each : outgoing_) exchange_.cancel(each.transfer);
  for (Expected& each : expected_) exchange_.cancel(each.transfer);
  if (std::uncaught_exceptions() == exceptions_) {
    lane_.note_completed(epoch_, sequence_);
  } else if (!has_failed_) {
    lane_.broken_off_ = sequence_;
  }
}

MessageHead WorldLane::Round::head(std::uint64_t kind, std::size_t text_bytes) const {
  return {kind | text_bytes << 8, epoch_, run_, sequence_, call_hash_, 0};
}

bool WorldLane::Round::is_of_this(const MessageHead& head) const {
  return epoch_of(head) == epoch_ && sequence_of(head) == sequence_;
}

bool WorldLane::Round::is_old(const MessageHead& head) const {
  if (kind_of(head) == BYE) return false;
  return epoch_of(head) < epoch_ || (epoch_of(head) == epoch_ && sequence_of(head) < sequence_);
}

void WorldLane::Round::send(int to, std::span<const ConstBytes> body) {
  const bool introduces = !introduced_[to];
  introduced_[to] = true;
  Outgoing& message = outgoing_.emplace_back();
  if (introduces) message.body.push_back(std::as_bytes(std::span(call_)));
  message.body.insert(message.body.end(), body.begin(), body.end());
  exchange_.send(message.transfer, to, lane_.lane_, head(DATA, introduces ? call_.size() : 0),
                 message.body);
}

void WorldLane::Round::expect(int from, std::vector<MutableBytes> into) {
  Expected& expected = expected_.emplace_back();
  expected.from = from;
  expected.into = std::move(into);
}

void WorldLane::Round::expect(int from, Bytes& into) {
  Expected& expected = expected_.emplace_back();
  expected.from = from;
  expected.bytes = &into;
}

namespace {

/// The chief waits for all, and so knows who is missing. The others, who may wait for the chief
/// alone, give it the time to say so.
WaitLimits with_patience(WaitLimits limits, bool is_chief) {
  if (limits.timeout && !is_chief) *limits.timeout *= 1.25;
  return limits;
}

}  // namespace

void WorldLane::Round::finish() {
  try {
    wait_for_all();
  } catch (...) {
    has_failed_ = true;
    ++lane_.failures_;
    throw;
  }
  outgoing_.clear();
  expected_.clear();
}

/// What ends the epoch is looked at after the messages: an error of this collective came first.
void WorldLane::Round::wait_for_all() {
  using Clock = std::chrono::steady_clock;
  const WaitLimits& limits = lane_.limits_ ? *lane_.limits_ : world_.limits();
  WaitClock clock(with_patience(limits, world_.is_chief()));
  Exchange::Deadline half;  // of the time that is left to wait
  if (limits.timeout) {
    half = Clock::now() + std::chrono::duration_cast<Clock::duration>(*limits.timeout / 2);
  }
  for (;;) {
    const auto seen = exchange_.events();
    const bool is_over = world_.is_over(lane_, sequence_);
    if (is_complete()) return;
    if (is_over) world_.check(call_, lane_, sequence_);
    if (!lane_.is_beside_runs_ && epoch_ != lane_.epoch()) throw_abandoned();
    if (lane_.abandoned_.load(std::memory_order_acquire)) throw_abandoned();
    listen_for_waiting();
    if (half && Clock::now() >= *half) {
      say_that_i_wait();
      half.reset();
    }
    const auto due = clock.due();
    if (due == WaitClock::TIMEOUT) throw_late(*clock.limits().timeout);
    if (due == WaitClock::WARNING) warn(clock.waited());
    const Exchange::Deadline next = clock.next();
    exchange_.wait(seen, half && (!next || *half < *next) ? half : next);
  }
}

/// Once half of the time is over, so that an error can tell who has come from who has not: a worker
/// expects messages from some of the others only.
void WorldLane::Round::say_that_i_wait() {
  if (std::exchange(has_said_that_it_waits_, true)) return;
  world_.post_to_all(lane_.lane_, head(HERE, 0), "");
}

/// Who comes later, but is here by now, says so too. Who is further has been here.
void WorldLane::Round::listen_for_waiting() {
  for (int w = 0; w < world_.workers(); ++w) {
    if (w == world_.index() || waits_[w]) continue;
    auto arrival = exchange_.peek(w, lane_.lane_);
    for (; arrival && is_old(arrival->head); arrival = exchange_.peek(w, lane_.lane_)) {
      take_all(w, *arrival);
    }
    if (!arrival || epoch_of(arrival->head) != epoch_) continue;
    waits_[w] = kind_of(arrival->head) != BYE;
    if (waits_[w] && kind_of(arrival->head) == HERE) say_that_i_wait();
  }
}

bool WorldLane::Round::is_complete() {
  bool complete = true;
  for (Expected& each : expected_) complete = advance(each) && complete;
  for (Outgoing& each : outgoing_) complete = each.transfer.done() && complete;
  return complete;
}

/// True when its message is here.
bool WorldLane::Round::advance(Expected& expected) {
  if (expected.state == Expected::HERE) return true;
  if (expected.state == Expected::AWAITED) {
    const auto lost = exchange_.lost(expected.from);
    const auto arrival = exchange_.peek(expected.from, lane_.lane_);
    if (!arrival && lost) throw_gone(expected.from, *lost);
    if (!arrival) return false;
    if (kind_of(arrival->head) == BYE) throw_left(expected.from);
    // Its sender knows already that this epoch is over, and this worker is about to be told.
    if (epoch_of(arrival->head) > epoch_) return false;
    take(expected, *arrival);
    if (expected.state == Expected::AWAITED) return advance(expected);  // that was an old one
  }
  if (!expected.transfer.done()) return false;
  if (expected.transfer.failed()) {
    throw_gone(expected.from, exchange_.lost(expected.from).value_or("its message broke off"));
  }
  expected.state = Expected::HERE;
  return true;
}

void WorldLane::Round::take(Expected& expected, const Exchange::Arrival& arrival) {
  const MessageHead& head = arrival.head;
  const int from = expected.from;
  if (kind_of(head) == HERE) {
    waits_[from] = waits_[from] || is_of_this(head);
    if (waits_[from]) say_that_i_wait();
  }
  if (is_old(head) || kind_of(head) == HERE) {
    take_all(from, arrival);
    return;
  }
  if (kind_of(head) == ERROR) throw_error(from, arrival);
  const bool is_same = is_of_this(head) && hash_of(head) == call_hash_ && run_of(head) == run_;
  if (!is_same) throw_mismatch(from, arrival);
  const std::uint64_t text = text_bytes_of(head);
  expected.call.resize(text);
  std::vector<MutableBytes> parts;
  if (text > 0) parts.emplace_back(expected.call);
  if (expected.bytes) {
    expected.bytes->resize(arrival.body_bytes - text);
    if (!expected.bytes->empty()) parts.emplace_back(*expected.bytes);
  }
  parts.insert(parts.end(), expected.into.begin(), expected.into.end());
  expected.state = Expected::COMING;
  exchange_.receive(expected.transfer, from, lane_.lane_, parts);
}

WorldLane::Bytes WorldLane::Round::take_all(int from, const Exchange::Arrival& arrival) {
  Bytes body(arrival.body_bytes);
  const MutableBytes part(body);
  Exchange::Transfer transfer;
  exchange_.receive(transfer, from, lane_.lane_, {&part, body.empty() ? 0U : 1U});
  if (!world_.arrives(transfer)) throw_gone(from, "its message broke off");
  return body;
}

void WorldLane::Round::throw_error(int from, const Exchange::Arrival& arrival) {
  const Bytes body = take_all(from, arrival);
  const std::string why = text_of(body, body.size());
  if (world_.is_chief()) world_.post_to_all(lane_.lane_, arrival.head, why, from);
  const auto kind = static_cast<World::Failure::Kind>(arrival.head[5]);
  if (kind == World::Failure::RUN) throw Cancelled(call_, why);
  world_.throw_alike(kind, call_, why);
}

namespace {

std::string in_run(std::string_view call, std::uint64_t run) {
  return cat(call, run > 0 ? cat(" in run ", run - 1) : std::string());
}

}  // namespace

void WorldLane::Round::throw_mismatch(int from, const Exchange::Arrival& arrival) {
  const Bytes body = take_all(from, arrival);
  const std::uint64_t text = text_bytes_of(arrival.head);
  const std::string theirs = text > 0 ? text_of(body, text) : "the rest of another call";
  const std::string why =
      cat(world_.name(from), " calls ", in_run(theirs, run_of(arrival.head)), " where ",
          world_.name(world_.index()), " calls ", in_run(call_, run_),
          ": the workers must begin the same runs and collectives, with the same sizes, in the "
          "same order");
  MessageHead error = head(ERROR, why.size());
  error[5] = World::Failure::MISMATCH;
  world_.post_to_all(lane_.lane_, error, why);
  world_.throw_alike(World::Failure::MISMATCH, call_, why);
}

/// On this lane only: its other lanes, and the runs, go on. Unless it has said before why.
void WorldLane::Round::throw_left(int from) {
  world_.check(call_, lane_, sequence_);
  const std::string why =
      cat(world_.name(from), " has ended its strategy, optimizer or dataset, which ",
          world_.name(world_.index()), " still uses in ", call_);
  MessageHead error = head(ERROR, why.size());
  error[5] = World::Failure::LEFT;
  world_.post_to_all(lane_.lane_, error, why);
  world_.throw_alike(World::Failure::LEFT, call_, why);
}

void WorldLane::Round::throw_abandoned() const {
  throw Cancelled(call_, "given up by this worker");
}

void WorldLane::Round::throw_gone(int worker, const std::string& why) {
  world_.check(call_, lane_, sequence_);
  world_.end_epoch(World::Failure::GONE, cat(world_.name(worker), " is gone: ", why,
                                             "; this worker waited for it in ", call_));
  world_.check(call_, lane_, sequence_);
}

/// Of those whose messages this worker expects, or of all.
std::string WorldLane::Round::missing(Of of) const {
  std::vector<bool> is_missing(world_.workers(), of == Of::ALL);
  for (const Expected& each : expected_) is_missing[each.from] = each.state != Expected::HERE;
  std::string names;
  for (int w = 0; w < world_.workers(); ++w) {
    if (!is_missing[w] || waits_[w] || w == world_.index()) continue;
    names += cat(names.empty() ? "" : ", ", world_.name(w));
  }
  return names.empty() ? "what was sent to arrive" : names;
}

void WorldLane::Round::throw_late(WaitLimits::Seconds timeout) {
  world_.end_epoch(World::Failure::LATE,
                   cat(world_.name(world_.index()), " has waited ", timeout.count(), " s for ",
                       missing(Of::ALL), " in ", call_,
                       ": every worker must make this call; look at what they do, or raise "
                       ".timeout"));
  world_.check(call_, lane_, sequence_);
}

void WorldLane::Round::warn(WaitLimits::Seconds waited) const {
  log::warning('[', call_, "] ", world_.name(world_.index()), " has waited ",
               std::round(waited.count() * 1000) / 1000, " s for ", missing(Of::EXPECTED),
               ": every worker must make this call; look at what they do");
}

}  // namespace cohort
