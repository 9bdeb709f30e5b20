#include "cohort/distribute/context.h"

#include <utility>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/distribute/strategy.h"

namespace cohort {
namespace detail {

ThreadContext::ThreadContext() = default;
ThreadContext::~ThreadContext() = default;

ThreadContext& thread_context() {
  thread_local ThreadContext context;
  return context;
}

struct CallerContext::Guard::Settings {
  std::vector<std::shared_ptr<const InstalledCreator>> creators;
  SharedInRun* shared_in_run;
  std::map<std::string, std::size_t> taken_in_run;
  bool sync_on_read;
  std::vector<Device> devices = {};  // replicas run on their own, whatever the caller's scope says
  int default_scopes = 0;
  std::optional<int> updating = {};  // a run inside of an update is no part of it

  void swap_with(ThreadContext& context) {
    std::swap(devices, context.devices);
    std::swap(default_scopes, context.default_scopes);
    std::swap(updating, context.updating);
    std::swap(creators, context.creators);
    std::swap(shared_in_run, context.shared_in_run);
    std::swap(taken_in_run, context.taken_in_run);
    std::swap(sync_on_read, context.sync_on_read);
  }
};

CallerContext::CallerContext(SharedInRun& shared)
    : shared_(shared),
      creators_(thread_context().creators),
      sync_on_read_(thread_context().sync_on_read) {}

CallerContext::Guard::Guard(const CallerContext& caller)
    : before_(new Settings{caller.creators_, &caller.shared_, {}, caller.sync_on_read_}) {
  before_->swap_with(thread_context());
}

CallerContext::Guard::~Guard() { before_->swap_with(thread_context()); }

StrategyExtended& current_strategy() {
  const auto& modes = thread_context().modes;
  return modes.empty() ? default_strategy().extended() : *modes.back().strategy;
}

void close_guard(const void* tag, const char* where) {
  auto& guards = thread_context().guards;
  if (!guards.empty() && guards.back().tag == tag) {
    guards.pop_back();
    return;
  }
  const char* kind = guards.empty() ? "Variable" : guards.back().kind;
  throw RuntimeError(where, cat(kind,
                                " scope nesting error: a guard that was opened inside is "
                                "still open; end guards in the reverse order of their beginnings, "
                                "in the thread that began them"));
}

void require_cross_replica(const StrategyExtended& strategy, const char* where,
                           const char* instead) {
  const auto& modes = thread_context().modes;
  if (modes.empty()) return;
  const Mode& mode = modes.back();
  if (mode.strategy != &strategy) {
    throw RuntimeError(where, cat("Mixing different tf.distribute.Strategy objects: called on a ",
                                  strategy.name(), " while another ", mode.strategy->name(),
                                  " is current; leave its scope or its run first, and make models "
                                  "and variables after `auto scope = strategy.scope()` of the "
                                  "strategy that uses them"));
  }
  if (mode.replica) {
    throw RuntimeError(where, cat("Method requires being in cross-replica context: called in "
                                  "replica ",
                                  mode.replica->replica_id_in_sync_group(), " of ", strategy.name(),
                                  "; ", instead));
  }
}

void refuse_in_replica(const char* where) {
  const auto& modes = thread_context().modes;
  if (modes.empty() || !modes.back().replica) return;
  throw RuntimeError(
      where,
      cat("Method requires being in cross-replica context: called in replica ",
          modes.back().replica->replica_id_in_sync_group(), " of ", modes.back().strategy->name(),
          "; call it once, outside of strategy.run(), for all replicas"));
}

void require_inside(const StrategyExtended& strategy, const char* where) {
  const auto& modes = thread_context().modes;
  if (modes.empty()) {
    throw RuntimeError(where, cat("Need to be inside \"with strategy.scope()\": enter the scope of "
                                  "the ",
                                  strategy.name(), " first"));
  }
  if (modes.back().strategy != &strategy) {
    throw RuntimeError(
        where, cat("Mixing different tf.distribute.Strategy objects: called on a ", strategy.name(),
                   " while another ", modes.back().strategy->name(),
                   " is current; call it after `auto scope = strategy.scope()` of the same "
                   "strategy"));
  }
}

std::size_t component_of_current_context() {
  if (const auto copy = thread_context().updating) return *copy;
  const ReplicaContext* replica = replica_context_or_null();
  return replica ? replica->local_id() : 0;
}

std::size_t component_of_current_replica(const char* where) {
  const auto& modes = thread_context().modes;
  if (modes.empty() || !modes.back().replica) {
    throw ValueError(where,
                     "not inside a replica context: a value that differs between replicas "
                     "has an own component only inside strategy.run()");
  }
  return modes.back().replica->local_id();
}

}  // namespace detail

Strategy get_strategy() { return Strategy(detail::current_strategy().shared_from_this()); }

bool has_strategy() { return &detail::current_strategy() != &default_strategy().extended(); }

bool in_cross_replica_context() {
  const auto& modes = detail::thread_context().modes;
  return !modes.empty() && modes.back().replica == nullptr;
}

ReplicaContext* replica_context_or_null() {
  const auto& modes = detail::thread_context().modes;
  if (modes.empty()) return default_strategy().extended().standing_context();
  return modes.back().replica;
}

ReplicaContext& get_replica_context() {
  ReplicaContext* replica = replica_context_or_null();
  if (replica) return *replica;
  throw RuntimeError("get_replica_context",
                     "there is no replica in cross-replica context: call it inside the function "
                     "given to strategy.run(), or ask replica_context_or_null()");
}

void require_replica_context(const ReplicaContext& context, const char* where) {
  const ReplicaContext* current = replica_context_or_null();
  if (current == &context) return;
  if (!current) {
    throw RuntimeError(where,
                       "Need to be inside `replica_fn`: called in cross-replica context; call it "
                       "in the function given to strategy.run()");
  }
  const bool same = &current->extended() == &context.extended();
  throw RuntimeError(
      where, same ? "Mismatching ReplicaContext: this is another replica's context; each replica "
                    "calls get_replica_context() for its own"
                  : "Mismatching tf.distribute.Strategy objects: this context belongs to another "
                    "strategy than the current one; call get_replica_context() inside of run");
}

void set_strategy(std::nullopt_t) {
  auto& context = detail::thread_context();
  context.set_by_user.reset();
  if (has_strategy()) {
    throw RuntimeError("set_strategy", "Must not be called inside a `strategy.scope()`");
  }
}

void set_strategy(const Strategy& strategy) {
  set_strategy(std::nullopt);
  if (strategy == default_strategy()) return;
  detail::thread_context().set_by_user =
      std::make_unique<Scope>(strategy.extended().shared_from_this());
}

std::optional<int> update_replica_id() { return detail::thread_context().updating; }

int failed_replica() { return detail::thread_context().failed_replica; }

DeviceScope::DeviceScope(Device device) {
  detail::thread_context().devices.push_back(std::move(device));
}

DeviceScope::~DeviceScope() { detail::thread_context().devices.pop_back(); }

}  // namespace cohort
