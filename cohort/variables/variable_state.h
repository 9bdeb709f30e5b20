#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/distribute/strategy_extended.h"
#include "cohort/variables/variable_options.h"

namespace cohort::detail {

/// Where the copies of a variable go, and which replicas use which.
struct Placement {
  std::vector<Device> copies;  ///< The device of each copy.
  std::vector<int> copy_of;    ///< For each component, the copy that it is over.
  std::vector<int> first_of;   ///< For each copy, the first component over it.
  DeviceList devices;          ///< What the variable says of itself.

  /// One copy and one component.
  static Placement single(const Device& device);

  /// As the strategy keeps variables. ON_READ has a copy for each replica, everything else one for
  /// each device that holds variables.
  static Placement by(const StrategyExtended& strategy, Synchronization synchronization);
};

/// What all handles of a variable share.
///
/// Memory belongs to copies; code sees components: leaf tensors over a copy, one for each replica.
/// A change is made once to each copy, never once to each component. Constant after it was made,
/// but for what is in the copies.
struct VariableState {
  using Kind = StrategyExtended::VariableKind;

  /// Takes tensors that hold the values, one for each copy of the placement.
  static std::shared_ptr<VariableState> make(Kind kind, std::shared_ptr<StrategyExtended> owner,
                                             const VariableOptions& options, Placement placement,
                                             std::vector<at::Tensor> copies);

  Kind kind = Kind::PLAIN;
  std::shared_ptr<StrategyExtended> owner;
  VariableOptions options;  // as resolved: trainable is given, AUTO only where it means nothing
  Placement placement;
  std::vector<at::Tensor> copies;
  std::vector<at::Tensor> components;

  bool on_read() const {
    return kind == Kind::MIRRORED && options.synchronization == Synchronization::ON_READ;
  }
  const std::string& name() const { return options.name; }
  c10::ScalarType dtype() const { return copies[0].scalar_type(); }
  bool trainable() const { return options.trainable.value_or(false); }
  const char* kind_name() const;

  /// "MirroredVariable 'weight'", for errors.
  std::string describe() const;
};

/// Where the calling thread stands towards a variable.
struct Access {
  enum Where { REPLICA, UPDATE, CROSS_REPLICA } where = CROSS_REPLICA;
  int component = 0;                  ///< The one that is read: own, updated, or the first.
  ReplicaContext* replica = nullptr;  ///< In a replica.
};

/// Throws RuntimeError when another strategy than the variable's is current, and for a variable
/// that is lost.
Access access(const VariableState& variable, const char* where);

/// The same for code that only reads, which replicas of another TPUStrategy may do: they see the
/// component on their own core.
Access read_access(const VariableState& variable, const char* where);

/// Throws RuntimeError if the variable is lost, as those of a TPU system that was started again.
void check_not_lost(const VariableState& variable, const char* where);

/// The variable whose component or copy the tensor is; null if none.
///
/// The memory of each copy carries a weak reference to its variable, so nothing is kept in a table.
std::shared_ptr<VariableState> variable_of(const at::Tensor& tensor);

}  // namespace cohort::detail
