#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cohort/distribute/reducible.h"
#include "cohort/variables/assign_value.h"
#include "cohort/variables/indexed_slices.h"
#include "cohort/variables/variable_options.h"

namespace cohort {

class StrategyExtended;

namespace detail {
struct Change;
struct VariableState;
}  // namespace detail

/// A tensor that keeps its identity while its value changes, with a copy wherever the strategy in
/// whose scope it was made needs one.
///
///     auto scope = strategy.scope();
///     cohort::Variable weight(torch::zeros({3}), {.name = "weight"});
///     cohort::Variable seen(0.0f, {.synchronization = Synchronization::ON_READ,
///                                  .aggregation = Aggregation::SUM});
///     strategy.run([&] { seen.assign_add(1); });        // each replica's own
///     seen.value();                                     // the sum over all replicas
///
/// What reading and assigning mean depends on where the call is made:
///
///                  in a replica                     elsewhere
///     ON_WRITE     reads its copy; assigning meets  reads the copy of the current device, else the
///                  all replicas, combines by the    first; assigning goes to all copies
///                  aggregation, goes to all copies
///     ON_READ      reads and assigns its own value  reads the aggregate; `assign` makes it x
///
/// Inside of `update`, both mean the copy that is updated. Outside of any scope a variable enters
/// its strategy by itself; in another strategy's scope every use throws RuntimeError.
///
/// A small handle: copies are the same variable, and `==` asks just that. Handles may be used from
/// several threads; who assigns outside of replicas must see to it that nobody else reads. A member
/// that refers to what the variable holds gives a copy when the handle is a temporary.
///
/// Operators read the variable as a tensor; `v += x` and its relatives assign (`operators.h`).
class Variable {
 public:
  /// Made by the current strategy; outside of any scope one plain copy without an owner. Inside of
  /// `run`, replica 0 makes the variable and the others get the same one, by name and order.
  ///
  /// Throws ValueError for options that do not fit together, RuntimeError when a replica makes a
  /// variable that replica 0 does not.
  explicit Variable(const at::Tensor& initial_value, VariableOptions options = {});
  template <Number T>
  explicit Variable(T initial_value, VariableOptions options = {})
      : Variable(to_tensor(initial_value), std::move(options)) {}

  /// The function is called once, also where there are several copies.
  template <std::invocable F>
  explicit Variable(F initial_value, VariableOptions options = {})
      : Variable(std::function<at::Tensor()>(std::move(initial_value)), std::move(options)) {}
  explicit Variable(std::function<at::Tensor()> initial_value, VariableOptions options = {});

  // Reading.

  /// The current context's value. Where that is a copy, the tensor shares its memory, so that it
  /// shows later assigns, and is the leaf that gradients arrive at. Throws ValueError for ON_READ
  /// with aggregation NONE outside of replicas, NotImplementedError for ON_READ inside of
  /// `variable_sync_on_read_context` (convert there).
  at::Tensor value() const;

  /// The same, copied: later assigns do not show. Outside of any scope it heeds a DeviceScope,
  /// which `value` does only inside.
  at::Tensor read_value() const;

  /// The variable as a tensor, for everything that takes one. As `value`, but aggregates inside of
  /// `variable_sync_on_read_context`.
  operator at::Tensor() const;  // NOLINT(google-explicit-constructor)

  /// The variable as a number, of which it must have one.
  explicit operator bool() const;
  explicit operator float() const;
  explicit operator double() const;
  explicit operator std::int64_t() const;

  /// Part of the value. Nothing can be assigned to `v[i]`, which would change one copy of all: use
  /// `scatter_update`.
  const at::Tensor operator[](std::int64_t index) const;       // NOLINT(readability-const-*)
  const at::Tensor operator[](const at::Tensor& index) const;  // NOLINT(readability-const-*)

  // Assigning. All return the new value, as `value` does.

  /// Throws ValueError for a tensor of another dtype, for assign of another shape, in a replica for
  /// aggregation NONE, and for assign_add and assign_sub to an ON_READ variable outside of
  /// replicas; InvalidArgument where assign_add and assign_sub get another shape or truth values,
  /// and where the shapes differ between replicas whose values are combined; TypeError for a number
  /// that the dtype can't hold, and for a PerReplica outside of replicas.
  at::Tensor assign(const AssignValue& value, AssignOptions options = {}) const;
  at::Tensor assign_add(const AssignValue& value, AssignOptions options = {}) const;
  at::Tensor assign_sub(const AssignValue& value, AssignOptions options = {}) const;

  /// Change some rows, in the order of the slices. In a replica, SUM concatenates the slices of
  /// all replicas in order, MEAN also divides their values by the number of replicas; a variable
  /// that is stored once takes the slices of all as they are. Throw NotImplementedError for
  /// ON_READ; min, max and update of a mirrored variable for SUM and MEAN; InvalidArgument for
  /// slices that do not fit.
  at::Tensor scatter_sub(const IndexedSlices& slices, AssignOptions options = {}) const;
  at::Tensor scatter_add(const IndexedSlices& slices, AssignOptions options = {}) const;
  at::Tensor scatter_mul(const IndexedSlices& slices, AssignOptions options = {}) const;
  at::Tensor scatter_div(const IndexedSlices& slices, AssignOptions options = {}) const;
  at::Tensor scatter_min(const IndexedSlices& slices, AssignOptions options = {}) const;
  at::Tensor scatter_max(const IndexedSlices& slices, AssignOptions options = {}) const;
  at::Tensor scatter_update(const IndexedSlices& slices, AssignOptions options = {}) const;

  // Properties.

  const std::string& name() const&;
  std::string name() const&& { return name(); }
  c10::ScalarType dtype() const;
  at::IntArrayRef sizes() const&;
  std::vector<std::int64_t> sizes() const&& { return shape(); }
  std::vector<std::int64_t> shape() const { return sizes().vec(); }
  bool trainable() const;
  Synchronization synchronization() const;
  Aggregation aggregation() const;
  const std::function<at::Tensor(const at::Tensor&)>& constraint() const&;
  std::function<at::Tensor(const at::Tensor&)> constraint() const&& { return constraint(); }
  bool is_initialized() const { return true; }

  /// "MirroredVariable", "SyncOnReadVariable", "AggregatingVariable", or "Variable" for a plain
  /// one.
  const char* kind_name() const;

  // Copies.

  /// The leaf tensor of the current context, never an aggregate: the replica's own, that of an
  /// update, else the first. `handle().grad()` is where a gradient arrives.
  at::Tensor handle() const;

  /// One tensor for each local replica. Those of one device share memory, but each is a leaf of its
  /// own, so that gradients never mix.
  const std::vector<at::Tensor>& components() const&;
  std::vector<at::Tensor> components() const&& { return components(); }
  const at::Tensor& primary() const& { return components()[0]; }
  at::Tensor primary() const&& { return primary(); }

  /// "weight", "weight/replica_1", …
  std::string component_name(std::size_t i) const;

  /// Where `handle()` is, and where all of them are: one device for each component, or the only
  /// one of a variable that is stored once.
  Device device() const;
  const DeviceList& devices() const&;
  DeviceList devices() const&& { return devices(); }

  /// The strategy in whose scope it was made; null for none.
  StrategyExtended* owner() const;

  /// Another variable with the same options and values. Throws RuntimeError in another strategy's
  /// scope.
  Variable deep_copy() const;

  // For the layers around.

  explicit Variable(std::shared_ptr<detail::VariableState> state) : state_(std::move(state)) {}
  const std::shared_ptr<detail::VariableState>& state() const& { return state_; }
  std::shared_ptr<detail::VariableState> state() const&& { return state_; }

  /// As a reduction sees it: ON_READ is one value per replica, a variable that is stored once one
  /// value.
  Reducible reducible() const;

  friend bool operator==(const Variable& a, const Variable& b) { return a.state_ == b.state_; }
  friend std::ostream& operator<<(std::ostream& out, const Variable& variable);

 private:
  at::Tensor change(const detail::Change& change, AssignOptions options) const;

  std::shared_ptr<detail::VariableState> state_;
};

template <>
inline constexpr bool nest::kSharedHandle<Variable> = true;

}  // namespace cohort

#include "cohort/variables/operators.h"
