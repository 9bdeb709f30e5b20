#include "cohort/distribute/scope.h"

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/distribute/strategy.h"

namespace cohort {
namespace {

bool is_default(const StrategyExtended& strategy) { return strategy.name() == "DefaultStrategy"; }

}  // namespace

Scope::Scope(std::shared_ptr<StrategyExtended> strategy)
    : strategy_(std::move(strategy)), tag_(std::make_unique<char>()) {
  enter();
}

Scope::Scope(Scope&& other) noexcept
    : strategy_(std::move(other.strategy_)),
      tag_(std::move(other.tag_)),
      depth_(std::exchange(other.depth_, 0)),
      pushed_(std::exchange(other.pushed_, false)) {}

Scope::~Scope() {
  while (depth_ > 0) {
    try {
      exit();
    } catch (const Error& e) {
      log::error(e.what(), "; the scope of ", strategy_->name(), " was ended all the same");
      auto& guards = detail::thread_context().guards;
      const auto own = std::find_if(guards.rbegin(), guards.rend(),
                                    [&](const auto& guard) { return guard.tag == tag_.get(); });
      if (own != guards.rend()) guards.erase(std::next(own).base());
      leave();
    }
  }
}

Strategy Scope::enter() {
  check_may_enter();
  auto& context = detail::thread_context();
  if (is_default(*strategy_)) {
    ++context.default_scopes;
  } else if (depth_ == 0 && context.modes.empty()) {
    context.modes.push_back({strategy_.get(), nullptr});
    pushed_ = true;
  }
  context.guards.push_back({tag_.get(), "Variable"});
  ++depth_;
  return Strategy(strategy_);
}

void Scope::check_may_enter() const {
  if (is_default(*strategy_)) {
    if (!has_strategy()) return;
    throw RuntimeError("strategy.scope", cat("Must not nest the default strategy's scope inside "
                                             "the scope of ",
                                             get_strategy().extended().name()));
  }
  detail::require_cross_replica(*strategy_, "strategy.scope",
                                "a scope can't be entered inside strategy.run()");
}

void Scope::exit() {
  if (depth_ == 0) throw RuntimeError("scope.exit", "Variable scope nesting error: not entered");
  detail::close_guard(tag_.get(), "scope.exit");
  leave();
}

void Scope::leave() {
  auto& context = detail::thread_context();
  --depth_;
  if (is_default(*strategy_)) {
    --context.default_scopes;
  } else if (depth_ == 0 && pushed_) {
    pushed_ = false;
    auto& modes = context.modes;
    const auto own = std::find_if(modes.begin(), modes.end(), [&](const detail::Mode& mode) {
      return mode.strategy == strategy_.get() && !mode.replica;
    });
    if (own != modes.end()) modes.erase(own);
  }
}

}  // namespace cohort
