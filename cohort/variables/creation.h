#pragma once

#include <functional>
#include <memory>

#include "cohort/base/function_ref.h"
#include "cohort/distribute/context.h"
#include "cohort/variables/variable.h"

namespace cohort {

/// A variable to be made.
struct VariableRequest {
  /// Called once for each variable that is made of the request.
  std::function<at::Tensor()> initial_value;
  VariableOptions options;
};

/// Makes the variable that a hook was asked for, after the hooks around it have had their say.
using NextCreator = std::function<Variable(VariableRequest)>;

/// A hook: returns `next` of the request, changed or not, or a variable of its own.
using VariableCreator = std::function<Variable(const NextCreator& next, VariableRequest request)>;

/// While it lives, variables of this thread are made through a hook.
///
///     std::vector<Variable> made;
///     VariableCreatorScope collect([&](const NextCreator& next, VariableRequest request) {
///       made.push_back(next(std::move(request)));
///       return made.back();
///     });
///
/// A hook around a strategy's scope is called once for each copy, named `w`, `w/replica_1`, …; a
/// hook inside the scope once, with the whole variable; a hook inside of `run` on each replica.
/// Threads of replicas start with the hooks of the thread that called `run`.
///
/// Ends in the reverse order of its beginning, before the scope around it; otherwise an error is
/// logged, and the hook ends all the same.
class VariableCreatorScope {
 public:
  explicit VariableCreatorScope(VariableCreator creator);
  ~VariableCreatorScope();
  VariableCreatorScope(const VariableCreatorScope&) = delete;
  VariableCreatorScope& operator=(const VariableCreatorScope&) = delete;

 private:
  std::shared_ptr<const detail::InstalledCreator> installed_;
};

namespace detail {

struct InstalledCreator {
  VariableCreator creator;
  const StrategyExtended* strategy;  ///< Current when it was installed; null for none.
  bool in_replica;
};

/// Makes a variable as the current context wants it: the way of every `Variable(…)`.
Variable create_variable(VariableRequest request);

/// In replica 0: calls `make`, and lets the other replicas know. In another replica: the variable
/// that replica 0 has made, or will make, as its n-th of this name, for this replica's n-th.
/// Throws RuntimeError when replica 0 makes none.
Variable share_in_run(ReplicaContext& replica, const std::string& name,
                      FunctionRef<Variable()> make);

/// Without what only tells equal names apart: "layer_1/w_2" is "layer/w", nothing is "Variable".
std::string canonical_name(const std::string& name);

/// Ends a guard that its destructor can't let throw: logs what is wrong and repairs the stack.
void close_guard_or_log(const void* tag, const char* where);

}  // namespace detail
}  // namespace cohort
