#include "cohort/strategies/tpu_strategy.h"

#include <algorithm>
#include <set>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/device/logical_devices.h"
#include "cohort/strategies/local_devices.h"
#include "cohort/strategies/spread.h"
#include "cohort/tpu/tpu_system.h"

namespace cohort {

class TPUStrategy::Extended : public StrategyExtended {
 public:
  Extended(Settings settings, const cluster::TPUClusterResolver& resolver,
           tpu::DeviceAssignment assignment)
      : StrategyExtended(std::move(settings)),
        resolver(std::make_shared<cluster::TPUClusterResolver>(resolver)),
        assignment(std::move(assignment)),
        losses_(tpu::losses_of(resolver)),
        losses_before_(losses_->load()),
        why_lost_(cat("the TPU system ", resolver.tpu(),
                      " was started again or stopped after its TPUStrategy was made; make the "
                      "strategy and its variables anew")) {}

  std::vector<Device> worker_devices() const override { return *layout().replica_devices(); }
  std::vector<Device> parameter_devices() const override { return worker_devices(); }
  std::shared_ptr<ClusterResolver> cluster_resolver() const override { return resolver; }
  bool require_static_shapes() const override { return true; }

  /// All cores are in one task, whose CPU is the first slot.
  std::optional<Device> non_slot_host() const override { return layout().device(0); }

  const std::string* variables_lost() const override {
    return losses_->load(std::memory_order_relaxed) == losses_before_ ? nullptr : &why_lost_;
  }

  std::optional<int> replica_on_core_of(const StrategyExtended& other, int replica) const override {
    const auto* const tpu = dynamic_cast<const Extended*>(&other);
    if (!tpu || tpu->resolver->tpu() != resolver->tpu()) return std::nullopt;
    const tpu::Coordinates& core = tpu->assignment.coordinates(replica, 0);
    for (int own = 0; own < assignment.num_replicas(); ++own) {
      if (assignment.coordinates(own, 0) == core) return own;
    }
    return std::nullopt;
  }

  const std::shared_ptr<cluster::TPUClusterResolver> resolver;
  const tpu::DeviceAssignment assignment;

 private:
  const std::shared_ptr<const std::atomic<std::uint64_t>> losses_;
  const std::uint64_t losses_before_;
  const std::string why_lost_;
};

namespace {

/// A replica for each core, by task and device.
tpu::DeviceAssignment every_core(const tpu::Topology& topology) {
  std::vector<std::vector<tpu::Coordinates>> cores;
  for (const auto& task : topology.device_coordinates()) {
    for (const tpu::Coordinates& each : task) cores.push_back({each});
  }
  return tpu::DeviceAssignment(topology, cores);
}

/// Throws ValueError for an assignment that is not for the system, for nothing, or on nothing.
void check_assignment(const tpu::DeviceAssignment& assignment,
                      const cluster::TPUClusterResolver& resolver) {
  constexpr const char* kInstead = "; build it from what initialize_system(resolver) returns";
  if (assignment.num_replicas() == 0) {
    throw ValueError("TPUStrategy",
                     "the device assignment has no replicas: expected at least 1, got 0; build it "
                     "with num_replicas");
  }
  const std::vector<int>& mesh = assignment.topology().mesh_shape();
  if (mesh != resolver.mesh_shape()) {
    throw ValueError("TPUStrategy",
                     cat("the device assignment is for another mesh than that of ", resolver.tpu(),
                         ": expected ", tpu::describe(resolver.mesh_shape()), ", got ",
                         tpu::describe(mesh), kInstead));
  }
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    for (int core = 0; core < assignment.num_cores_per_replica(); ++core) {
      if (assignment.tpu_ordinal(replica, core) >= 0) continue;
      throw ValueError("TPUStrategy", cat("logical core ", core, " of replica ", replica,
                                          " of the device assignment is at ",
                                          tpu::describe(assignment.coordinates(replica, core)),
                                          ", where the device is missing", kInstead));
    }
  }
}

}  // namespace

TPUStrategy::TPUStrategy(const cluster::TPUClusterResolver& resolver,
                         const std::optional<tpu::DeviceAssignment>& device_assignment,
                         const Options& options)
    : Strategy([&] {
        prepare_process();
        const auto topology = tpu::topology_of(resolver);
        auto assignment = device_assignment ? *device_assignment : every_core(topology);
        check_assignment(assignment, resolver);
        std::vector<Device> slots = list_logical_devices(DeviceType::CPU);
        const int cores = assignment.num_replicas() * assignment.num_cores_per_replica();
        if (static_cast<int>(slots.size()) > cores) slots.resize(cores);
        Spread places = spread("TPUStrategy", std::move(slots), assignment.num_replicas(),
                               assignment.num_cores_per_replica());
        log::info("Using TPUStrategy with ", assignment.num_replicas(), " replicas of ",
                  assignment.num_cores_per_replica(), " logical devices, simulated on ",
                  names_of(places.layout.devices()));
        return std::make_shared<Extended>(
            StrategyExtended::Settings{
                .name = "TPUStrategy",
                .layout = std::move(places.layout),
                .variables = StrategyExtended::VariableKind::MIRRORED,
                .intra_op_threads = 1,
                .logical_devices = std::move(places.logical_devices),
                .use_spmd_partitioning = options.spmd_xla_partitioning,
                .metrics_must_be_own = true,
                .communication = {.timeout = options.timeout, .warn_after = options.warn_after},
            },
            resolver, std::move(assignment));
      }()) {}

TPUStrategy::TPUStrategy() : TPUStrategy(cluster::TPUClusterResolver()) {}
TPUStrategy::TPUStrategy(const cluster::TPUClusterResolver& resolver)
    : TPUStrategy(resolver, std::nullopt, Options{}) {}
TPUStrategy::TPUStrategy(const cluster::TPUClusterResolver& resolver,
                         const tpu::DeviceAssignment& device_assignment)
    : TPUStrategy(resolver, device_assignment, Options{}) {}

const TPUStrategy::Extended& TPUStrategy::own() const {
  return static_cast<const Extended&>(extended());
}

const cluster::TPUClusterResolver& TPUStrategy::tpu_cluster_resolver() const {
  return *own().resolver;
}
const tpu::DeviceAssignment& TPUStrategy::device_assignment() const { return own().assignment; }

int TPUStrategy::num_hosts() const {
  std::set<std::string> hosts;
  for (int replica = 0; replica < own().assignment.num_replicas(); ++replica) {
    hosts.insert(own().assignment.host_device(replica));
  }
  return static_cast<int>(hosts.size());
}

int TPUStrategy::num_replicas_per_host() const {
  const tpu::DeviceAssignment& assignment = own().assignment;
  return std::min(assignment.num_replicas(),
                  assignment.topology().num_tpus_per_task() / assignment.num_cores_per_replica());
}

std::vector<std::string> TPUStrategy::tpu_devices() const {
  const tpu::DeviceAssignment& assignment = own().assignment;
  // "/job:localhost/replica:0", before the task.
  const std::string system = own().resolver->get_tpu_system_metadata().devices[0];
  const std::string job = system.substr(0, system.find("/task:"));
  std::vector<std::string> names;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    names.push_back(job + assignment.tpu_device(replica));
  }
  return names;
}

}  // namespace cohort
