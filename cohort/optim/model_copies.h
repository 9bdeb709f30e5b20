#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/distribute/replica_context.h"
#include "cohort/optim/module_watch.h"

namespace cohort {

class ReplicatedModule;

/// Keeps the copies of a model alike when the program writes to its tensors.
///
/// Outside of replicas the program sees replica 0's module. What it does there is *settled* before
/// anybody looks at the other replicas' modules: values, memory, modes and new parts are spread to
/// all. LibTorch counts most writes; those that it does not (`.data()`) are found by comparing
/// values, after tensors were handed out.
///
/// Inside of a run the replicas of a device share its parameters' memory, so only an optimizer or
/// `Model::update` may write to them, between `begin_writing` and `end_writing`. Another write that
/// LibTorch counts is an error, in the next `begin_writing` or at the end of the run. Buffers
/// belong to the replicas: what these have written to them by the end of a run, however it ends, is
/// their own, and stays.
///
/// In a job of several workers, what was changed outside of a run then becomes the chief's, before
/// the next run, or when the model's state is read: a collective, which a worker that has changed
/// nothing does not take part in. A run that fails may stop some workers in the middle of a change,
/// or of that collective, so all take part once after it.
///
/// A model of the default strategy is a plain module: nothing is watched there.
class ModelCopies {
 public:
  explicit ModelCopies(ReplicatedModule& model);

  /// Before a run of several workers: settles what was done outside, and takes the chief's values
  /// of it. Here, since in a run the workers may use models in different orders, or not all of
  /// them.
  void prepare_run(std::uint64_t run_serial);

  /// A replica uses the model: settles what was done outside, on the first use in a run.
  void enter_run(ReplicaContext& replica);

  /// The run of a replica that has used the model ends. Throws RuntimeError if the replica has
  /// written to a parameter.
  void leave_run(int replica);

  /// It has ended by an exception: the parameters may be half written, and some replicas may have
  /// switched to evaluation before others. Both are made like replica 0's.
  void leave_failed_run(int replica) noexcept;

  /// Tensors were handed out outside of replicas.
  void hand_out_parameters();
  void hand_out_buffers();

  /// Outside of replicas: makes all replicas' modules like replica 0's, if that was changed. Throws
  /// ValueError if they can't be.
  void settle();
  void settle_buffers();

  /// At the end of a statement: settles what LibTorch has counted, and clears the gradients that it
  /// has cleared. What fails is left to `settle`.
  void settle_counted() noexcept;

  /// Takes the chief's values of what was changed outside of replicas since the last time: found by
  /// `settle`, or noted. `where` is the user's call.
  void follow_chief(std::string_view where);

  /// All parameters and buffers are the chief's now, on every worker.
  void note_chiefs();

  /// Outside of replicas: what `end_writing` has accepted, and a buffer's value.
  void note_changed_parameters();
  void note_changed_buffer(int buffer);

  /// Accepts replica 0's buffers as they are: what was written to them until now is its own.
  void note_buffers();

  /// Around a change to the parameters of a copy. Throws RuntimeError if they were written before,
  /// in the same run; the second one if they have got other memory.
  void begin_writing(int copy);
  void end_writing(int copy);

  /// While alive, nothing is settled: the copies are changed one after the other.
  class Apart {
   public:
    explicit Apart(ModelCopies& copies) : copies_(copies) { ++copies_.apart_; }
    ~Apart() { --copies_.apart_; }
    Apart(const Apart&) = delete;
    Apart& operator=(const Apart&) = delete;

   private:
    ModelCopies& copies_;
  };

  /// The parameters of a replica, and of a copy: of its first replica. See ModuleWatch.
  const ModuleWatch& replica(int replica) const { return watches_[replica]; }
  const ModuleWatch& copy(int copy) const;

 private:
  void note_half_written() { may_differ_.store(true, std::memory_order_relaxed); }
  void settle_locked() COHORT_REQUIRES(mutex_);
  void follow_chief_locked(std::string_view where) COHORT_REQUIRES(mutex_);
  void agree_on_changes(std::string_view where) COHORT_REQUIRES(mutex_);
  std::uint64_t hash_of_parameters() const COHORT_REQUIRES(mutex_);
  void settle_buffers_locked() COHORT_REQUIRES(mutex_);
  void follow_structure() COHORT_REQUIRES(mutex_);
  void note_other_buffers(const std::vector<at::Tensor>& before) COHORT_REQUIRES(mutex_);
  bool follow_parameter(int replica, int parameter, bool compare) COHORT_REQUIRES(mutex_);
  void follow_buffer(int buffer) COHORT_REQUIRES(mutex_);
  bool is_buffer_changed(int buffer) const COHORT_REQUIRES(mutex_);
  [[noreturn]] void refuse_write(int replica, int parameter);

  ReplicatedModule& model_;
  const bool is_watched_;

  // Replica 0's is changed under mutex_ too; each other one by its replica's thread, by whoever
  // writes to its copy, or while no replica uses the model.
  std::vector<ModuleWatch> watches_;

  std::atomic<bool> may_differ_{false};        // values are to be compared
  std::atomic<bool> modes_may_differ_{false};  // modules are to be switched as replica 0's
  std::atomic<std::uint64_t> run_{0};          // the last one that has settled
  std::atomic<int> apart_{0};
  Mutex mutex_;
  std::vector<at::Tensor> handed_out_ COHORT_GUARDED_BY(mutex_);  // values of buffers, or none

  // Of several workers: what to take from the chief.
  const bool has_chief_;
  std::uint64_t handed_out_hash_ COHORT_GUARDED_BY(mutex_) = 0;  // of the parameters, or 0
  bool parameters_changed_ COHORT_GUARDED_BY(mutex_) = false;
  std::set<int> buffers_changed_ COHORT_GUARDED_BY(mutex_);
  std::uint32_t epoch_ COHORT_GUARDED_BY(mutex_);  // of the world, when all agreed on the above
};

}  // namespace cohort
