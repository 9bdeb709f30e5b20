// Arguments of a wrong type are refused in one line that says what to give.

#include <ATen/ATen.h>

#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/strategies/multi_worker_mirrored_strategy.h"
#include "cohort/strategies/one_device_strategy.h"
#include "cohort/strategies/tpu_strategy.h"
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
}

void strategies(const std::vector<cohort::Device>& devices, const std::string& device,
                const std::optional<cohort::Worker>& worker) {
  using namespace cohort;  // NOLINT(build/namespaces)
  const auto ring = std::make_shared<ReductionToOneDevice>();
  MirroredStrategy{};
  MirroredStrategy({});
  MirroredStrategy({"cpu:0"});
  MirroredStrategy({"cpu:0", "/device:CPU:1"});
  MirroredStrategy({device, device});
  MirroredStrategy({Device("cpu:0")});
  MirroredStrategy({Device("cpu:0"), Device("cpu:1")});
  MirroredStrategy({Device(DeviceType::CPU, 0), Device(DeviceType::CPU, 1)});
  MirroredStrategy{"cpu:0", "cpu:1"};
  MirroredStrategy{devices};
  MirroredStrategy(std::vector<Device>{"cpu:0"});
  MirroredStrategy(MirroredStrategy::Options{.devices = {"cpu:0"}});
  MirroredStrategy({.replicas = 8});
  MirroredStrategy({.logical_devices_per_replica = 2});
  MirroredStrategy({.cross_device_ops = ring});
  MirroredStrategy({.timeout = std::chrono::seconds(1)});
  MirroredStrategy({.devices = {"cpu:0", "cpu:1"}, .replicas = 8});
  MirroredStrategy({.replicas = 8, .cross_device_ops = nullptr});
  CentralStorageStrategy({.compute_devices = {"cpu:0"}});
  CentralStorageStrategy({.compute_devices = devices});
  CentralStorageStrategy({.parameter_device = "cpu:0"});
  MultiWorkerMirroredStrategy({.worker = worker});
  MultiWorkerMirroredStrategy({.devices = {"cpu:0"}});
  MultiWorkerMirroredStrategy({.devices = devices});
  MultiWorkerMirroredStrategy({.replicas = 8});
  MultiWorkerMirroredStrategy({.cross_device_ops = ring});
  OneDeviceStrategy("cpu:0", {.logical_devices_per_replica = 2});
  TPUStrategy(cluster::TPUClusterResolver("local"), {}, {.spmd_xla_partitioning = true});

  // Copies.
  MirroredStrategy made;
  const MirroredStrategy constant(made), moved(std::move(made));
  std::vector<MirroredStrategy> all{constant, MirroredStrategy()};
  all.push_back(constant);
  all[0] = constant;
  const Strategy base = constant;
  static_assert(std::copyable<MirroredStrategy>);
  const std::function<void()> closure = [moved] { moved.num_replicas_in_sync(); };
  struct Holder {
    MirroredStrategy strategy;
  };
  static_assert(std::copyable<Holder>);
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
