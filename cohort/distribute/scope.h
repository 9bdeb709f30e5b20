#pragma once

#include <memory>

#include "cohort/distribute/context.h"

namespace cohort {

/// The guard that `strategy.scope()` returns: while it lives, its strategy is current in this
/// thread, in cross-replica context, and makes the variables.
///
///     auto scope = strategy.scope();       // until the end of the block
///
/// May be entered again, while active (which nests) and after it was left. Scopes end in the
/// reverse order of their beginnings. Belongs to the thread that made it.
class Scope {
 public:
  /// Enters. Throws RuntimeError when another strategy is current, or inside a replica.
  explicit Scope(std::shared_ptr<StrategyExtended> strategy);

  /// Leaves as often as it was entered. A guard that still lies inside is logged as an error.
  ~Scope();
  Scope(Scope&& other) noexcept;
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  Scope& operator=(Scope&&) = delete;

  /// Enters once more.
  Strategy enter();

  /// Leaves once. Throws RuntimeError, and stays entered, when a guard inside is still open.
  void exit();

  /// How often it is entered now.
  int depth() const { return depth_; }

 private:
  void check_may_enter() const;
  void leave();

  std::shared_ptr<StrategyExtended> strategy_;
  std::unique_ptr<char> tag_;  // its address is this guard's name on the thread's stack
  int depth_ = 0;
  bool pushed_ = false;  // whether it made the strategy current, or found it so
};

}  // namespace cohort
