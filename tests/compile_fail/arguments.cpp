// Arguments of a wrong type are refused in one line that says what to give.

#include <ATen/ATen.h>

#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/variables/update.h"

using cohort::PerReplica;
using cohort::ReduceOp;
using cohort::Strategy;

enum class Aggregation { SUM };

void right(const Strategy& strategy, const PerReplica<at::Tensor>& x,
           const std::vector<cohort::Device>& devices) {
  strategy.run([](const at::Tensor& own) { return own + 1; }, x);
  strategy.reduce(ReduceOp::SUM, x);
  strategy.reduce("mean", x, 0);
  strategy.reduce(std::string("mean"), x, {0, 1});
  strategy.extended().reduce_to("SUM", x, "cpu:0");
  strategy.extended().reduce_to("SUM", x, x);
  cohort::MirroredStrategy{};
  cohort::MirroredStrategy({"cpu:0"});
  cohort::MirroredStrategy({.replicas = 8});
  cohort::MirroredStrategy({.cross_device_ops = std::make_shared<cohort::ReductionToOneDevice>()});
  cohort::MirroredStrategy({.replicas = 8, .cross_device_ops = nullptr});
  cohort::MirroredStrategy{devices};
}

void right(const Strategy& strategy, const cohort::Variable& v, const cohort::Mirrored<int>& x) {
  strategy.extended().update(
      v, [](at::Tensor& copy, int number) { copy.add_(number); }, x);
}

// case: the function of run must take the components
// error: fn can't be called with these arguments
#if CASE == 1
void f(const Strategy& strategy, const PerReplica<at::Tensor>& x) {
  strategy.run([](const PerReplica<at::Tensor>&) {}, x);
}
#endif

// case: the function of run must take as many arguments as there are
// error: fn can't be called with these arguments
#if CASE == 2
void f(const Strategy& strategy) {
  strategy.run([](int) {});
}
#endif

// case: the function of merge_call must take the strategy first
// error: fn must take (Strategy&, PerReplica<Arg>...)
#if CASE == 3
void f(cohort::ReplicaContext& replica) {
  replica.merge_call([](const PerReplica<int>&) {}, 1);
}
#endif

// case: the function of merge_call gets PerReplica arguments
// error: fn must take (Strategy&, PerReplica<Arg>...)
#if CASE == 4
void f(cohort::ReplicaContext& replica) {
  replica.merge_call([](Strategy&, std::string) {}, 1);
}
#endif

// case: text can't be reduced
// error: only tensors, numbers, variables and nests of them can be reduced
#if CASE == 5
auto f(const Strategy& strategy, const PerReplica<std::string>& x) {
  return strategy.reduce("SUM", x);
}
#endif

// case: an aggregation is no reduce op
// error: a reduce op is ReduceOp::SUM, ReduceOp::MEAN, or one of their names
#if CASE == 6
auto f(const Strategy& strategy, const PerReplica<at::Tensor>& x) {
  return strategy.reduce(Aggregation::SUM, x);
}
#endif

// case: there is no null reduce op
// error: a reduce op is ReduceOp::SUM, ReduceOp::MEAN, or one of their names
#if CASE == 7
auto f(const Strategy& strategy, const PerReplica<at::Tensor>& x) {
  return strategy.reduce(nullptr, x);
}
#endif

// case: an axis is no fraction
// error: an axis is an integer
#if CASE == 8
auto f(const Strategy& strategy, const PerReplica<at::Tensor>& x) {
  return strategy.reduce("SUM", x, 0.5);
}
#endif

// case: an axis is no name
// error: an axis is an integer
#if CASE == 9
auto f(const Strategy& strategy, const PerReplica<at::Tensor>& x) {
  return strategy.reduce("SUM", x, "batch");
}
#endif

// case: a list of devices is no destination
// error: a destination is a device
#if CASE == 10
auto f(const Strategy& strategy, const PerReplica<at::Tensor>& x,
       const std::vector<cohort::Device>& devices) {
  return strategy.extended().reduce_to("SUM", x, devices);
}
#endif

// case: there is no null destination
// error: a destination is a device
#if CASE == 11
auto f(const Strategy& strategy, const PerReplica<at::Tensor>& x) {
  return strategy.extended().reduce_to("SUM", x, nullptr);
}
#endif

// case: a name is no list of devices
// error: the devices are a list
#if CASE == 12
void f() { cohort::MirroredStrategy("cpu:0"); }
#endif

// case: the name of an algorithm is none
// error: .cross_device_ops is an algorithm, not its name: std::make_shared
#if CASE == 13
void f() { cohort::MirroredStrategy({.replicas = 8, .cross_device_ops = "ring"}); }
#endif

// case: the copies of a variable are not updated with different numbers
// error: extended.update(variable, fn, args...): the copies of a variable must be given the same
#if CASE == 14
void f(const Strategy& strategy, const cohort::Variable& v, const PerReplica<int>& x) {
  strategy.extended().update(
      v, [](at::Tensor& copy, int number) { copy.add_(number); }, x);
}
#endif
