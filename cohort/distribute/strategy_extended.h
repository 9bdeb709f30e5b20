#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/home_process.h"
#include "cohort/base/mutex.h"
#include "cohort/collectives/communication_options.h"
#include "cohort/collectives/cross_device_ops.h"
#include "cohort/collectives/reduce_op.h"
#include "cohort/distribute/axis.h"
#include "cohort/distribute/crew.h"
#include "cohort/distribute/destinations.h"
#include "cohort/distribute/failed_runs.h"
#include "cohort/distribute/reducible.h"
#include "cohort/distribute/replica_context.h"
#include "cohort/distribute/replica_layout.h"

namespace cohort {

class ClusterResolver;
class LogicalDeviceScope;
namespace spmd {
class Mesh;
}
class Variable;
class VariableColocation;
struct VariableOptions;

/// What a strategy decides, and what libraries that know of distribution call. Users of a training
/// loop need only `Strategy`, which holds one of these.
///
/// Methods that combine values belong into cross-replica context: inside a scope, outside of
/// everything, or in the function of a merge_call; in a replica they throw RuntimeError.
class StrategyExtended : public std::enable_shared_from_this<StrategyExtended> {
 public:
  /// What a variable made in the strategy's scope is.
  enum class VariableKind {
    PLAIN,        ///< One copy, no synchronization.
    MIRRORED,     ///< A copy on each device, kept the same or aggregated when read.
    AGGREGATING,  ///< One copy on the parameter device; what replicas assign is aggregated first.
  };

  struct Settings {
    std::string name;  ///< "MirroredStrategy", for texts.
    ReplicaLayout layout;
    VariableKind variables = VariableKind::PLAIN;
    /// Where variables are kept; empty means on the devices of the layout.
    std::vector<Device> parameter_devices;
    /// Intra-op threads of each replica's thread; 0 leaves LibTorch's own setting alone.
    int intra_op_threads = 0;
    /// How values are combined over devices; null takes the default for the devices.
    std::shared_ptr<CrossDeviceOps> cross_device_ops;
    /// Where the logical devices of a replica lie, for each device of the layout; empty: a replica
    /// has one, its own device.
    std::vector<std::vector<Device>> logical_devices;
    /// Every tensor is partitioned, none assigned to one device.
    bool use_spmd_partitioning = false;
    /// Replicas update only metrics that were made in the strategy's scope.
    bool metrics_must_be_own = false;
    /// Holds for every collective; its times for every wait of a replica for others. A call may say
    /// otherwise for itself.
    CommunicationOptions communication;
  };

  explicit StrategyExtended(Settings settings);
  virtual ~StrategyExtended();
  StrategyExtended(const StrategyExtended&) = delete;
  StrategyExtended& operator=(const StrategyExtended&) = delete;

  const std::string& name() const { return settings_.name; }
  const ReplicaLayout& layout() const { return settings_.layout; }
  int num_replicas_in_sync() const { return settings_.layout.global(); }

  /// The job.
  World& world() const { return settings_.layout.world(); }
  /// Holds the world for a cross-replica call that the workers make together; of no effect inside
  /// of a run, which holds it. See World::take_turn.
  [[nodiscard]] World::Turn take_turn() const;
  VariableKind variable_kind() const { return settings_.variables; }
  const CrossDeviceOps& cross_device_ops() const { return *settings_.cross_device_ops; }
  const CommunicationOptions& communication() const { return settings_.communication; }

  // Properties.

  /// The devices that replicas compute on, each once. A TPUStrategy has an entry for each replica.
  virtual std::vector<Device> worker_devices() const;
  /// The devices that hold variables.
  virtual std::vector<Device> parameter_devices() const;
  virtual std::shared_ptr<ClusterResolver> cluster_resolver() const { return nullptr; }
  virtual bool between_graph() const { return false; }
  virtual bool should_init() const { return true; }
  virtual bool should_checkpoint() const { return true; }
  virtual bool should_save_summary() const { return true; }
  virtual bool require_static_shapes() const { return false; }

  // Logical devices.

  int logical_devices_per_replica() const;
  /// Where those of the replicas of a device lie, by its index in the layout. Replicas that share a
  /// device take turns, and share its logical devices.
  std::vector<Device> logical_devices(int copy) const;
  bool use_spmd_partitioning() const { return settings_.use_spmd_partitioning; }
  bool metrics_must_be_own() const { return settings_.metrics_must_be_own; }
  /// While the result lives, variables of this thread are placed on a logical device of each
  /// replica. Throws ValueError for one that there is not. Defined in `variables/`.
  [[nodiscard]] LogicalDeviceScope logical_device(int logical_device_id) const;
  /// Their threads; `make` makes them when first asked.
  std::shared_ptr<spmd::Mesh> logical_mesh(int copy,
                                           FunctionRef<std::shared_ptr<spmd::Mesh>()> make);

  // Running.

  /// Calls fn once on each replica, all at the same time: `Strategy::run` without its scope.
  template <class F, class... Args>
  auto call_for_each_replica(F&& fn, const Args&... args);

  // Combining values.

  /// Combines the components of each distributed leaf; the result is mirrored on `destinations`.
  /// The destinations only say where: a variable there is not changed.
  template <class Nest>
  auto reduce_to(ReduceOp op, const Nest& value, const Destinations& destinations,
                 const CommunicationOptions& options = {});

  /// Many `reduce_to` at once, which is faster. The results come in the order of the pairs, each
  /// mirrored on all worker devices. Throws ValueError for int32 among values of other types, and
  /// where variables are not plain for no values at all.
  template <class Value>
  std::vector<Mirrored<at::Tensor>> batch_reduce_to(
      ReduceOp op, const std::vector<std::pair<Value, Destinations>>& value_destination_pairs,
      const CommunicationOptions& options = {});

  /// A copy of the tensor or number on each of the destinations.
  template <class T>
  Mirrored<at::Tensor> broadcast_to(const T& tensor, const Destinations& destinations);

  // Variables. Defined in `variables/`.

  /// Calls fn(Tensor& copy, args…) for each copy of the variable, in update context; distributed
  /// arguments are given by their component. Mirrored leaf by leaf.
  template <class F, class... Args>
  auto update(const Variable& variable, F&& fn, const Args&... args);
  /// The same, with the results of each replica in a vector, leaf by leaf.
  template <class F, class... Args>
  auto update_ungrouped(const Variable& variable, F&& fn, const Args&... args);

  /// Calls fn(args…) once for each of the `non_slot_devices`; on the host of a TPUStrategy without
  /// an `update_replica_id`.
  template <class F, class... Args>
  auto update_non_slot(const std::vector<Device>& colocate_with, F&& fn, const Args&... args);

  /// Where variables that belong to no other variable are kept and updated.
  std::vector<Device> non_slot_devices(const std::vector<Variable>& variables) const;

  /// Variables made while the result lives are placed where `variable` is.
  VariableColocation colocate_vars_with(const Variable& variable);

  /// The value of a variable, aggregated over replicas where it is not the same on all; in a
  /// replica all of them must call it then.
  at::Tensor read_var(const Variable& variable) const;

  /// The variable that a tensor is a component of.
  std::optional<Variable> value_container(const at::Tensor& value) const;

  /// True if the variable was made in this strategy's scope.
  bool variable_created_in_scope(const Variable& variable) const;

  // For the layers above.

  /// Runs body on every replica's own thread, in replica context.
  void run_replicas(FunctionRef<void(ReplicaContext&)> body);

  /// One leaf of `Strategy::reduce`.
  at::Tensor reduce_leaf(ReduceOp op, const Reducible& value, const Axis& axis) const;

  /// One leaf of `Strategy::gather`.
  at::Tensor gather_leaf(const Reducible& value, std::int64_t axis) const;

  /// One leaf of `reduce_to`. `where` is the call that errors name.
  Mirrored<at::Tensor> reduce_leaf_to(ReduceOp op, const Reducible& value,
                                      const Destinations& destinations,
                                      const CommunicationOptions& options,
                                      const char* where = "extended.reduce_to") const;

  /// The leaves of `batch_reduce_to`.
  std::vector<Mirrored<at::Tensor>> batch_reduce_leaves(
      ReduceOp op, const std::vector<Reducible>& values,
      const std::vector<Destinations>& destinations, const CommunicationOptions& options) const;

  /// Throws ValueError for a batch of which only some values are int32, where variables are
  /// mirrored: int32 is added on the host, other values on the devices.
  void check_one_algorithm(const char* where, std::span<const at::Tensor> values) const;

  /// The value of the job's first replica, on every worker; `own` is this worker's first one's.
  /// `call` is what the workers compare.
  at::Tensor of_first_replica(const at::Tensor& own, const std::string& call) const;

  /// The tensor of `broadcast_to`.
  virtual Mirrored<at::Tensor> broadcast_tensor(const at::Tensor& tensor,
                                                const Destinations& destinations) const;

  /// The place of the random numbers: how many runs there were. Part of a checkpoint.
  std::uint64_t runs() const { return runs_.load(std::memory_order_relaxed); }
  void set_runs(std::uint64_t runs) { runs_.store(runs, std::memory_order_relaxed); }

  /// True if that run (`ReplicaContext::run_serial`) has thrown: what was half done in it is to be
  /// forgotten.
  bool has_failed(std::uint64_t run_serial) { return failed_runs_.contains(run_serial); }

  /// What must be settled before the replicas of a run start: the models of a job of several
  /// workers, whose values all workers then take from the chief.
  class Preparation {
   public:
    virtual ~Preparation() = default;
    /// A collective, which the workers call in the same order. `run_serial` is that of the run.
    virtual void prepare_run(std::uint64_t run_serial) = 0;
  };

  /// Calls it before each run, in the order of these calls, while it lives.
  void prepare_before_runs(std::weak_ptr<Preparation> preparation);

  /// Returns when no run is in flight; at once inside of one.
  void wait_until_idle();

  /// The handle that users hold; the same control block for all of them.
  std::shared_ptr<StrategyExtended> handle();

  /// The replica context that the default strategy is always in; null for all others.
  virtual ReplicaContext* standing_context() { return nullptr; }

  /// The host that does `update_non_slot`, once and as no replica; nothing where the devices of
  /// variables do it.
  virtual std::optional<Device> non_slot_host() const { return std::nullopt; }

  /// Why the variables of this strategy are lost, and what to do; null while they are there.
  virtual const std::string* variables_lost() const { return nullptr; }

  /// The replica of this strategy that is on the core of another strategy's replica, whose code may
  /// read this one's variables; nothing if there is none.
  virtual std::optional<int> replica_on_core_of(const StrategyExtended& /*other*/,
                                                int /*replica*/) const {
    return std::nullopt;
  }

 private:
  struct Team;  // a crew and the contexts of its replicas

  class TeamInUse;  // for a run

  Team& take_team();
  void give_back(Team& team);
  Device default_destination() const;
  /// What takes part in a reduction without axis: one component of each local replica, or one value
  /// that counts for all replicas.
  struct Components {
    std::vector<at::Tensor> values;
    bool is_one_for_all = false;
  };
  Components components_for_reduction(ReduceOp op, const Reducible& value, const char* where) const;
  std::vector<at::Tensor> reduce_components(ReduceOp op, const std::vector<at::Tensor>& components,
                                            std::span<const Device> destinations,
                                            const char* where) const;
  at::Tensor reduce_over_replicas(ReduceOp op, const Reducible& value) const;
  at::Tensor reduce_along(ReduceOp op, const Reducible& value, const Axis& axis) const;
  std::vector<Mirrored<at::Tensor>> batch_reduce(
      ReduceOp op, const std::vector<Reducible>& values,
      const std::vector<Destinations>& destinations) const;
  template <class Part>
  auto with_workers(const char* where, Part&& part, const CommunicationOptions& options = {}) const;
  bool is_in_own_run() const;
  std::uint64_t begin_run();
  void prepare_run(std::uint64_t run_serial);

  const Settings settings_;
  const HomeProcess process_;
  std::atomic<std::uint64_t> runs_{0};
  std::atomic<std::uint64_t> serial_{0};

  detail::FailedRuns failed_runs_;

  Mutex teams_mutex_;
  std::vector<std::unique_ptr<Team>> teams_ COHORT_GUARDED_BY(teams_mutex_);
  std::vector<Team*> free_teams_ COHORT_GUARDED_BY(teams_mutex_);
  std::atomic<int> runs_in_flight_{0};

  Mutex preparations_mutex_;
  std::vector<std::weak_ptr<Preparation>> preparations_ COHORT_GUARDED_BY(preparations_mutex_);

  Mutex meshes_mutex_;
  std::vector<std::shared_ptr<spmd::Mesh>> meshes_ COHORT_GUARDED_BY(meshes_mutex_);

  Mutex handle_mutex_;
  std::weak_ptr<StrategyExtended> handle_ COHORT_GUARDED_BY(handle_mutex_);
};

}  // namespace cohort
