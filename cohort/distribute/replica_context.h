#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "cohort/collectives/communication_options.h"
#include "cohort/collectives/reduce_op.h"
#include "cohort/device/device.h"
#include "cohort/distribute/context.h"

namespace cohort {

class Crew;

/// One replica of a run, as the code inside sees it.
///
/// Got from `get_replica_context()` inside the function given to `strategy.run`; valid until that
/// function returns, and only in its thread. Collectives must be called by every replica in the
/// same order; they throw InvalidArgument on all replicas when what these bring does not fit.
class ReplicaContext {
 public:
  ReplicaContext(StrategyExtended& strategy, int local_id);
  ~ReplicaContext();
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  Strategy strategy() const;

  /// How many replicas the job has, on all workers.
  int num_replicas_in_sync() const;

  /// Which of them this one is: 0 … num_replicas_in_sync() - 1.
  int replica_id_in_sync_group() const;

  /// The replica's own device.
  std::vector<Device> devices() const;

  /// Pauses all replicas, calls fn(Strategy&, PerReplica<Arg>...) once in cross-replica context,
  /// and gives each replica its part of the result. Every replica must call it; the function of
  /// replica 0 is the one that runs. What it throws ends the run, and can't be caught here.
  template <class F, class... Args>
  auto merge_call(F&& fn, const Args&... args);

  /// The sum or mean over all replicas of each tensor or number in a nest; the same on all
  /// replicas. Numbers come back as tensors. Differentiable: the gradient is the same collective
  /// of the gradients. Sparse tensors are concatenated, not added. Throws ValueError for int32
  /// among leaves of other types, where variables are mirrored.
  template <class Nest>
  auto all_reduce(ReduceOp op, const Nest& value, const CommunicationOptions& options = {});

  /// The tensors of all replicas, concatenated along `axis` in replica order. Their shapes may
  /// differ in that axis only. Differentiable.
  template <class Nest>
  auto all_gather(const Nest& value, std::int64_t axis, const CommunicationOptions& options = {});

  /// Waits until every replica has called it. A barrier of the program's own (std::barrier) may
  /// wait for ever: a replica keeps its device's slot there, which another one may need to come.
  void barrier(const CommunicationOptions& options = {});

  /// The source of this replica's random numbers: a function of the seed, the number of the run
  /// and the replica's id. LibTorch's own random functions use it inside of `run`. Outside, what
  /// they use there.
  const at::Generator& generator();

  // For the layers above: this replica's index in the process, and the run it belongs to.
  int local_id() const { return local_id_; }
  StrategyExtended& extended() const { return strategy_; }
  bool in_run() const { return crew_ != nullptr; }
  Crew& crew() const { return *crew_; }
  std::uint64_t run_serial() const { return run_serial_; }  // 1, 2, … in the life of the strategy
  std::uint64_t run() const { return run_; }                // the number that random numbers go by

  /// After an error a replica goes on without its device's slot. Before something that only one
  /// replica of a device may do at a time, this waits until the slot is its own again.
  void take_turn(const char* where);

  /// What a layer above keeps for this replica, from run to run.
  class Attachment {
   public:
    virtual ~Attachment() = default;
    /// Before the replica's function is called.
    virtual void begin_run() = 0;
    /// After it has returned. What this throws fails the run as if the function had thrown it.
    virtual void end_run() = 0;
    /// After it, or `end_run`, has thrown.
    virtual void fail_run() noexcept = 0;
    /// Around the function of a merge_call, in replica 0's thread while all replicas wait. The
    /// second one only if the function has not thrown.
    virtual void pause_run() = 0;
    virtual void resume_run() = 0;
  };
  Attachment* attachment() const { return attachment_.get(); }
  void attach(std::unique_ptr<Attachment> attachment) { attachment_ = std::move(attachment); }

  /// Makes the replica part of a run for a block.
  class Running {
   public:
    Running(ReplicaContext& replica, Crew& crew, std::uint64_t run, std::uint64_t serial);
    ~Running() { replica_.crew_ = nullptr; }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    ReplicaContext& replica_;
  };

 private:
  std::vector<at::Tensor> all_reduce_tensors(ReduceOp op, std::vector<at::Tensor> values,
                                             const CommunicationOptions& options);
  std::vector<at::Tensor> all_gather_tensors(std::vector<at::Tensor> values, std::int64_t axis,
                                             const CommunicationOptions& options);

  StrategyExtended& strategy_;
  const int local_id_;
  Crew* crew_ = nullptr;
  std::uint64_t run_ = 0;  // the place of the random numbers
  std::uint64_t run_serial_ = 0;
  bool seeded_ = false;
  at::Generator generator_;
  std::unique_ptr<Attachment> attachment_;
};

}  // namespace cohort
