#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/device/device.h"

namespace cohort {

class ReplicaContext;
class Scope;
class Strategy;
class StrategyExtended;

// Where the calling thread is. A thread is in one of three contexts:
//
//   default         outside of everything: the default strategy with one replica
//   cross-replica   inside a scope, or in the function of a merge_call: one view of all replicas
//   replica         inside a function that `strategy.run` runs: one of the replicas
//
// `update` adds to the cross-replica context which copy is being updated.

/// The current strategy; the default strategy outside of everything.
Strategy get_strategy();

/// True unless the current strategy is the default one.
bool has_strategy();

/// True in a scope, in a merge_call's function and in an update; false in replicas and outside.
bool in_cross_replica_context();

/// The replica that this code runs in. Throws RuntimeError in cross-replica context, where there
/// is none: `replica_context_or_null` may be asked anywhere.
ReplicaContext& get_replica_context();
ReplicaContext* replica_context_or_null();

/// Throws RuntimeError unless the calling thread runs as this very replica; `where` is the call
/// that needs it.
void require_replica_context(const ReplicaContext& context,
                             const char* where = "require_replica_context");

/// Makes a strategy current until the next call, like a scope without an end. `nullopt` goes back
/// to the default. Throws RuntimeError inside a scope.
void set_strategy(const Strategy& strategy);
void set_strategy(std::nullopt_t);

/// Which copy is being updated, inside of `update`; nothing elsewhere.
std::optional<int> update_replica_id();

/// The replica whose exception the last failed `run` of this thread threw; -1 if none failed yet.
int failed_replica();

/// While alive, values are placed on (and read from) this device where a call names none.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
};

namespace detail {

/// One entry of a thread's stack of contexts. `replica` null means cross-replica.
struct Mode {
  StrategyExtended* strategy = nullptr;
  ReplicaContext* replica = nullptr;
};

/// An open guard of a thread: a scope, or something that must end before the scope around it.
struct OpenGuard {
  const void* tag;   // the guard's own name
  const char* kind;  // "Variable", "Variable creator", …: begins the text of a nesting error
};

struct InstalledCreator;  // a hook that variables are made through
struct VariableState;     // what the handles of a variable share

/// What the replicas of one run share beside their collectives.
struct SharedInRun {
  Mutex mutex;
  /// The variables that replica 0 has made so far, by canonical name, for the others to find.
  std::map<std::string, std::vector<std::shared_ptr<VariableState>>> variables
      COHORT_GUARDED_BY(mutex);
};

/// What a thread knows of strategies: which one is current, and in which context. (Guards of single
/// parts, such as `LogicalDeviceScope`, keep a thread-local pointer of their own.)
struct ThreadContext {
  ThreadContext();
  ~ThreadContext();

  std::vector<Mode> modes;
  std::optional<int> updating;
  std::vector<Device> devices;
  std::vector<OpenGuard> guards;  // innermost last
  int default_scopes = 0;         // open scopes of the default strategy
  std::unique_ptr<Scope> set_by_user;
  bool sync_on_read = false;
  int failed_replica = -1;

  std::vector<std::shared_ptr<const InstalledCreator>> creators;  // innermost last
  SharedInRun* shared_in_run = nullptr;                           // inside of a run
  std::map<std::string, std::size_t> taken_in_run;  // how many of replica 0's variables, by name
};

ThreadContext& thread_context();

/// Enters a context for a block.
class ModeGuard {
 public:
  ModeGuard(StrategyExtended& strategy, ReplicaContext* replica) {
    thread_context().modes.push_back({&strategy, replica});
  }
  ~ModeGuard() { thread_context().modes.pop_back(); }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;
};

/// Says for a block which copy is updated, nothing for none; restores what was before.
class UpdateGuard {
 public:
  explicit UpdateGuard(std::optional<int> copy) : before_(thread_context().updating) {
    thread_context().updating = copy;
  }
  ~UpdateGuard() { thread_context().updating = before_; }
  UpdateGuard(const UpdateGuard&) = delete;
  UpdateGuard& operator=(const UpdateGuard&) = delete;

 private:
  std::optional<int> before_;
};

/// What a thread of a replica starts with: the settings of the thread that called `run`, as they
/// were then. In a replica they go their own way.
class CallerContext {
 public:
  /// In the thread that calls `run`.
  explicit CallerContext(SharedInRun& shared);

  /// In a replica's thread, for a block.
  class Guard {
   public:
    explicit Guard(const CallerContext& caller);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    struct Settings;
    std::unique_ptr<Settings> before_;
  };

 private:
  SharedInRun& shared_;
  const std::vector<std::shared_ptr<const InstalledCreator>> creators_;
  const bool sync_on_read_;
};

/// Ends an open guard, which must be the innermost. Throws RuntimeError otherwise.
void close_guard(const void* tag, const char* where);

/// The current mode's strategy, never null.
StrategyExtended& current_strategy();

/// Passes when the thread is in cross-replica context of `strategy`, or in default context.
/// Throws RuntimeError otherwise; `instead` says what to call in a replica.
void require_cross_replica(const StrategyExtended& strategy, const char* where,
                           const char* instead = "use replica_context.merge_call() there");

/// Throws RuntimeError in a replica of any strategy, for what is made once for all replicas.
void refuse_in_replica(const char* where);

/// Passes inside the strategy's scope only, in either context. Throws RuntimeError otherwise.
void require_inside(const StrategyExtended& strategy, const char* where);

}  // namespace detail
}  // namespace cohort
