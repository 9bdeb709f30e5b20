#pragma once

#include <torch/nn/module.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/base/function_ref.h"
#include "cohort/base/mutex.h"
#include "cohort/distribute/strategy.h"
#include "cohort/optim/foreign_use.h"
#include "cohort/optim/split_table.h"

namespace cohort {

class GradientReducer;
class ModelCopies;
class ModelUpdate;
class ModuleWatch;

/// Named tensors: a model's parameters and buffers, by the names that LibTorch and Python use.
using StateDict = std::map<std::string, at::Tensor>;

struct ModelOptions {
  /// Parameters that are spread over logical devices, and their optimizer's state with them: each
  /// device holds its part. `tensor_parallel` makes tables for the usual layers.
  SplitTable split_parameters = {};

  /// Large parameters are made in parts from the start, each on its device, with the same values as
  /// otherwise. For a model that is larger than what one device can hold. The constructors may do
  /// with parameters what LibTorch's operations do, such as initializing them, but not ask for
  /// their memory: no `data_ptr`, no `accessor`. Needs `split_parameters` and a module that `Model`
  /// makes.
  bool make_in_parts = false;

  /// Keeps four-dimensional parameters (and gives the model's inputs) in channels-last memory,
  /// in which convolutions are often faster.
  bool channels_last = false;
};

/// One module for each local replica, kept as one: the part of `Model` that does not depend on
/// the module's type.
///
/// Parameters are mirrored. Each replica has leaf tensors of its own, so gradients never mix, over
/// a storage that the replicas of one device share, so memory grows with devices. Buffers belong to
/// each replica; read from outside of replicas they are the mean over replicas where they are
/// floating point (moving averages), and replica 0's elsewhere (counters). What is the same on all
/// replicas (constants) is read as it is, to the bit.
///
/// What the program writes to replica 0's module outside of replicas reaches the others: see
/// ModelCopies.
class ReplicatedModule : public std::enable_shared_from_this<ReplicatedModule>,
                         public StrategyExtended::Preparation {
 public:
  using Factory = std::function<std::shared_ptr<torch::nn::Module>()>;

  /// `make` makes the module of each replica; the values of the others are then taken from replica
  /// 0's. Throws ValueError when it gives a module with other parameters.
  ReplicatedModule(const Factory& make, const ModelOptions& options);

  /// The same with `first` as replica 0's module.
  ReplicatedModule(std::shared_ptr<torch::nn::Module> first, const Factory& make,
                   const ModelOptions& options);
  ~ReplicatedModule() override;

  /// Over several workers, has the chief's values taken before each run. Once, when a shared
  /// pointer has it.
  void enlist();
  void prepare_run(std::uint64_t run_serial) override;

  StrategyExtended& strategy() const { return *strategy_; }
  const ModelOptions& options() const { return options_; }

  /// The calling replica, if it is one of this model's strategy in a run; else null.
  ReplicaContext* running_replica() const;

  /// The module of the calling replica; replica 0's outside of replicas.
  torch::nn::Module& current() const { return *replicas_[index_of_current()]; }
  const std::shared_ptr<torch::nn::Module>& replica(int local_id) const;
  int replicas() const { return static_cast<int>(replicas_.size()); }

  /// How many distinct copies of the parameters there are, and which of them a replica uses.
  int copies() const { return copies_; }
  int copy_of(int replica) const { return copies_ == 1 ? 0 : strategy_->layout().copy_of(replica); }
  /// The first replica of a copy.
  int owner_of(int copy) const { return copies_ == 1 ? 0 : strategy_->layout().owner_of(copy); }

  /// Parameters and buffers as one value each: what a checkpoint holds. `where` is the user's call.
  StateDict state_dict(const char* where = "model.state_dict") const;

  /// Sets all of them on all replicas, to the chief's. Throws ValueError for names that are missing
  /// or unknown and for other shapes, before anything is changed; RuntimeError inside of replicas.
  void load_state_dict(const StateDict& state);
  /// The same with what the chief reads; the other workers read nothing.
  void load(const char* where, FunctionRef<StateDict()> read);

  /// Calls fn(name, parameter, other's parameter of that name, or an undefined tensor) for each
  /// parameter of each copy: see Model::update.
  using Change = FunctionRef<void(const std::string&, at::Tensor&, const at::Tensor&)>;
  void update(Change fn, const ReplicatedModule* other = nullptr);

  /// Converts all parameters and buffers. Throws RuntimeError inside of replicas.
  void to(at::ScalarType type);

  /// Of the calling replica, or of all replicas outside of them.
  void train(bool on);

  /// Makes parameters whose name begins with `prefix` trainable, or not, on all replicas. Throws
  /// ValueError when none does, RuntimeError inside of replicas.
  void set_trainable(const std::string& prefix, bool trainable);

  /// Throws RuntimeError inside of replicas, for what concerns all of them at once.
  void require_outside_of_replicas(const char* where) const;

  /// True inside of another strategy's run. There a model can be evaluated, but throws RuntimeError
  /// where a forward pass would train it: with gradients, or with running statistics. What is
  /// written to it otherwise is an error at the end of the run.
  bool is_in_foreign_run() const;
  void require_evaluation() const;
  std::shared_ptr<ForeignUse> foreign_use(const ReplicaContext& replica) const;

  /// Makes `reducer` the one that sums this model's gradients, or none if it is empty, and retires
  /// the reducer before it.
  void hand_to(std::weak_ptr<GradientReducer> reducer);
  /// True while a reducer that is alive and not retired sums this model's gradients.
  bool has_reducer() const;
  /// Outside of replicas: gradients that were cleared in replica 0's module are cleared in all.
  void clear_gradients_as_first() const;

  /// What the program does to the tensors, and what the copies make of it.
  ModelCopies& model_copies() const { return *model_copies_; }

  /// While alive, replica 0's buffers hold the value aggregated over replicas. What is written to
  /// them meanwhile goes to all replicas in the end. For forward passes outside of replicas.
  class AggregatedBuffers {
   public:
    /// `where` is the user's call: one of all workers, if the module has buffers.
    AggregatedBuffers(const ReplicatedModule& model, const char* where);
    ~AggregatedBuffers();
    AggregatedBuffers(const AggregatedBuffers&) = delete;
    AggregatedBuffers& operator=(const AggregatedBuffers&) = delete;

   private:
    const ReplicatedModule& model_;
  };
  bool has_aggregated_buffers() const { return aggregated_users_ > 0; }

 private:
  friend class ModelCopies;
  struct Aggregated {
    std::string name;
    at::Tensor buffer, own, aggregated;
  };

  ReplicatedModule(std::shared_ptr<StrategyExtended> strategy, const ModelOptions& options);

  int index_of_current() const;
  std::shared_ptr<torch::nn::Module> make_module(const Factory& make, int replica) const;
  void add_replicas(std::shared_ptr<torch::nn::Module> first, const Factory& make);
  void lay_out_first();
  at::Tensor split_parameter(const std::string& name, const at::Tensor& parameter,
                             const std::vector<std::int64_t>& parts) const;
  enum class Which { ALL, SPLIT };
  void share_parameters(int replica, Which which);
  int source_of(int replica) const;
  at::Tensor shared_data(const at::Tensor& parameter, int replica) const;
  void copy_buffers(int replica);
  void copy_parameters(int replica);
  void check_state(const StateDict& state) const;
  void take_state(const char* where, const StateDict& state);
  void take_chiefs_parameters(std::string_view where);
  void take_chiefs_buffers(std::string_view where);
  void place_gradients(int replica, const ModuleWatch& done);
  void apply_memory_format(torch::nn::Module& module) const;
  std::vector<bool> averaged_buffers(const char* where,
                                     const std::vector<std::vector<at::Tensor>>& buffers) const;
  std::vector<at::Tensor> aggregated_buffers(const char* where) const;
  void show_aggregated_buffers(const char* where) const;
  void hide_aggregated_buffers() const;

  std::shared_ptr<StrategyExtended> strategy_;
  ModelOptions options_;
  std::vector<std::shared_ptr<torch::nn::Module>> replicas_;
  int copies_ = 1;
  std::weak_ptr<GradientReducer> reducer_;
  std::unique_ptr<ModelCopies> model_copies_;
  std::unique_ptr<ModelUpdate> model_update_;
  mutable ForeignUses foreign_uses_;

  mutable Mutex aggregated_mutex_;
  mutable std::vector<Aggregated> aggregated_ COHORT_GUARDED_BY(aggregated_mutex_);
  mutable std::atomic<int> aggregated_users_{0};  // changed under aggregated_mutex_
};

}  // namespace cohort
