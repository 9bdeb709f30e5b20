#include "cohort/variables/moving_average.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "cohort/base/error.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/variables/update.h"

namespace cohort {
namespace {

struct MoveTowards {
  double decay;
  void operator()(at::Tensor& copy, const at::Tensor& value) const {
    copy.sub_((copy - value.to(copy.device())) * (1 - decay));
  }
};

}  // namespace

at::Tensor assign_moving_average(const Variable& variable, const at::Tensor& value, double decay) {
  const detail::Access access = detail::access(*variable.state(), "assign_moving_average");
  const MoveTowards move{decay};
  StrategyExtended& strategy = variable.owner() ? *variable.owner() : default_strategy().extended();
  switch (access.where) {
    case detail::Access::UPDATE: {
      const at::NoGradGuard no_grad;
      at::Tensor copy = variable.handle();
      move(copy, value);
      return copy;
    }
    case detail::Access::CROSS_REPLICA:
      strategy.update(variable, move, value.detach());
      return variable;
    case detail::Access::REPLICA:
      access.replica->merge_call(
          [&](Strategy& merged, const PerReplica<at::Tensor>& values) {
            auto& extended = merged.extended();
            extended.update(variable, move, extended.reduce_to(ReduceOp::MEAN, values, variable));
          },
          value.detach());
      return variable.handle();
  }
  return {};
}

const Variable* ExponentialMovingAverage::find(const Variable& variable) const {
  for (const auto& [key, average] : averages_) {
    if (key == variable) return &average;
  }
  return nullptr;
}

void ExponentialMovingAverage::apply(const std::vector<Variable>& variables) {
  for (const Variable& variable : variables) {
    if (const Variable* average = find(variable)) {
      assign_moving_average(*average, variable, decay_);
      continue;
    }
    const auto where = detail::access(*variable.state(), "ExponentialMovingAverage.apply").where;
    if (where == detail::Access::REPLICA) {
      throw RuntimeError("ExponentialMovingAverage.apply",
                         cat(variable.name(),
                             " has no average yet: call apply() once outside of "
                             "strategy.run(), which makes it"));
    }
    std::optional<Scope> scope;
    if (variable.owner() && !has_strategy()) scope.emplace(variable.owner()->shared_from_this());
    const Variable average(variable, {.name = cat(variable.name(), "/ExponentialMovingAverage"),
                                      .trainable = false,
                                      .aggregation = Aggregation::MEAN});
    averages_.emplace_back(variable, average);
  }
}

Variable ExponentialMovingAverage::average(const Variable& variable) const {
  if (const Variable* average = find(variable)) return *average;
  throw KeyError("ExponentialMovingAverage.average",
                 cat(variable.name(), " has no average: call apply() with it first"));
}

}  // namespace cohort
