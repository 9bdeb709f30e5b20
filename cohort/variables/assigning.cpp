#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
#include "cohort/collectives/meeting.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/distribute/differentiable_collectives.h"
#include "cohort/distribute/strategy.h"
#include "cohort/variables/change.h"
#include "cohort/variables/reading.h"
#include "cohort/variables/variable.h"

// How a change gets to the copies of a variable. First the change is brought into the variable's
// dtype and shape; then the context decides: one copy, all copies, or a meeting of all replicas.

namespace cohort {
namespace detail {
namespace {

std::string call_of(const Change& change) { return cat("variable.", change.name()); }

/// Numbers fit where no part of them is lost.
at::Tensor number_in_dtype_of(const VariableState& variable, const at::Tensor& number,
                              const std::string& call) {
  const c10::ScalarType dtype = variable.dtype();
  if (c10::canCast(number.scalar_type(), dtype)) return number.to(dtype);
  throw TypeError(call, cat("the number's dtype does not fit ", variable.describe(), ": expected ",
                            c10::toString(dtype), ", got ", c10::toString(number.scalar_type())));
}

at::Tensor in_dtype_of(const VariableState& variable, const at::Tensor& value,
                       const std::string& call) {
  if (!value.defined()) throw ValueError(call, "the value is an undefined tensor");
  const c10::ScalarType dtype = variable.dtype();
  if (value.scalar_type() != dtype) {
    throw ValueError(call,
                     cat("the value's dtype does not fit ", variable.describe(), ": expected ",
                         c10::toString(dtype), ", got ", c10::toString(value.scalar_type()),
                         "; convert it with .to() first"));
  }
  const at::Tensor own = whole(value).detach();
  if (!own.has_storage()) return own;
  const auto overlaps = [&](const at::Tensor& copy) { return copy.is_alias_of(own); };
  // The variable's own memory changes on the way from one copy to the next.
  const bool overlap = std::any_of(variable.copies.begin(), variable.copies.end(), overlaps);
  return overlap ? own.clone() : own;
}

/// Truth values have no sums, differences, products and quotients.
void check_arithmetic(const VariableState& variable, Change::Op op, const std::string& call) {
  const bool sets = op == Change::ASSIGN || op >= Change::SCATTER_MIN;
  if (sets || variable.dtype() != at::kBool) return;
  throw InvalidArgument(call, cat("not defined for values of type Bool: ", variable.describe()));
}

void check_shape(const VariableState& variable, const Change& change) {
  const auto shape = variable.copies[0].sizes();
  const at::Tensor& value = change.values;
  if (!value.is_nested() && value.sizes() == shape && !value.is_sparse()) return;
  const std::string text =
      cat("Cannot assign value to variable '", variable.name(), "': Shape mismatch. Expected ",
          shape, ", got ", value.is_sparse() ? "sparse " : "",
          value.is_nested() ? "a nested tensor" : cat(value.sizes()),
          value.dim() == 0 ? ": to fill the variable, assign torch::full() of its shape" : "");
  if (change.op == Change::ASSIGN) throw ValueError(call_of(change), text);
  throw InvalidArgument(call_of(change), text);
}

/// True where the replicas meet to change a variable, so that what counts is their combined value.
bool is_shared(const VariableState& variable, const Access& access) {
  return access.where == Access::REPLICA && variable.kind != VariableState::Kind::PLAIN &&
         !variable.on_read();
}

Change assignment(const VariableState& variable, Change::Op op, const AssignValue& value) {
  const std::string call = call_of({op, {}});
  const Access access = detail::access(variable, call.c_str());
  if (value.is_per_replica() && access.where != Access::REPLICA) {
    throw TypeError(call,
                    cat("Expected value to be mirrored across replicas: got a PerReplica for ",
                        variable.describe(),
                        "; reduce it first with strategy.reduce() or extended.reduce_to()"));
  }
  check_arithmetic(variable, op, call);
  const auto fitted = value.is_number() ? number_in_dtype_of : in_dtype_of;
  const Change change{op, fitted(variable, value.tensor(), call)};
  if (change.values.is_sparse() || !is_shared(variable, access)) check_shape(variable, change);
  return change;
}

void check_rows(const VariableState& variable, const at::Tensor& indices, const std::string& call) {
  const std::int64_t rows = variable.copies[0].size(0);
  const auto each = indices.accessor<std::int64_t, 1>();
  for (std::int64_t i = 0; i < each.size(0); ++i) {
    if (each[i] >= 0 && each[i] < rows) continue;
    throw InvalidArgument(call, cat("indices[", i, "] is out of range of ", variable.describe(),
                                    ": expected 0 to ", rows - 1, ", got ", each[i]));
  }
}

Change scatter(const VariableState& variable, Change::Op op, const IndexedSlices& slices) {
  const std::string call = call_of({op, {}});
  const at::Tensor& copy = variable.copies[0];
  check_arithmetic(variable, op, call);
  const at::Tensor values = in_dtype_of(variable, slices.values, call);
  auto expected = copy.sizes().vec();
  const bool fits_rank = copy.dim() > 0 && slices.indices.defined() && slices.indices.dim() == 1 &&
                         c10::isIntegralType(slices.indices.scalar_type(), false);
  if (fits_rank) expected[0] = slices.indices.size(0);
  const bool fits_rows = !values.is_nested() && values.sizes() == expected;
  if (!fits_rank || !fits_rows ||
      (!slices.dense_shape.empty() && copy.sizes() != slices.dense_shape)) {
    throw InvalidArgument(
        call,
        cat("Shape mismatch: the slices do not fit ", variable.describe(), " of shape ",
            copy.sizes(),
            ": expected indices of rank 1 and one row of values for each, got values ",
            collectives::describe(values), " and indices ", collectives::describe(slices.indices)));
  }
  const at::Tensor indices = whole(slices.indices).detach().to(at::kCPU, at::kLong).contiguous();
  check_rows(variable, indices, call);
  return {op, values, indices};
}

/// Scatters are for mirrored memory; and "the minimum of the sum" means nothing.
void check_scatter(const VariableState& variable, const Change& change) {
  if (variable.kind != VariableState::Kind::MIRRORED) return;
  if (variable.on_read()) {
    throw NotImplementedError(
        call_of(change),
        cat("Variables with `synchronization=ON_READ` doesn't support `", change.name(), "`: got ",
            variable.describe(), "; make it ON_WRITE, or assign() the whole"));
  }
  const Aggregation aggregation = variable.options.aggregation;
  const bool meaningless = aggregation == Aggregation::SUM || aggregation == Aggregation::MEAN;
  if (change.op < Change::SCATTER_MIN || !meaningless) return;
  throw NotImplementedError(call_of(change),
                            cat(change.name(),
                                " is only supported for mirrored variable with NONE or "
                                "`ONLY_FIRST_REPLICA` aggregation, got: ",
                                aggregation, " of ", variable.describe()));
}

/// What a replica brings when it changes a variable that all replicas share. The last one to come
/// combines the changes and makes the result, once for each copy.
class SharedChange : public collectives::Contribution {
 public:
  SharedChange(const VariableState& variable, const Change& change)
      : variable_(variable), change_(change) {}

  std::string describe() const override {
    return cat("variable.", change_.name(), " of ", variable_.describe(), " with ",
               collectives::describe(change_.values));
  }
  std::optional<std::string> mismatch(const Contribution& contribution) const override {
    const auto& other = static_cast<const SharedChange&>(contribution);
    const bool same = &other.variable_ == &variable_ && other.change_.op == change_.op;
    if (same) return std::nullopt;
    return "all replicas must change the same variable in the same way";
  }
  std::int64_t plan(std::span<Contribution* const> all) override {
    for (Contribution* each : all) {
      changes_.push_back(&static_cast<SharedChange*>(each)->change_);
    }
    return 1;
  }
  void work(std::int64_t) override {
    const Change combined = combine(variable_, changes_);
    if (!combined.is_scatter()) check_shape(variable_, combined);
    for (const at::Tensor& copy : variable_.copies) combined.apply_to(copy);
  }

 private:
  const VariableState& variable_;
  const Change& change_;
  std::vector<const Change*> changes_;  // of replica 0's
};

void change_in_replica(const VariableState& variable, const Change& change,
                       ReplicaContext& replica) {
  const Aggregation aggregation = variable.options.aggregation;
  if (aggregation == Aggregation::NONE) {
    throw ValueError(call_of(change),
                     cat("You must specify an aggregation method to update a ", variable.describe(),
                         " in Replica Context: expected SUM, MEAN or "
                         "ONLY_FIRST_REPLICA in VariableOptions, got NONE"));
  }
  const c10::ScalarType dtype = variable.dtype();
  if (aggregation == Aggregation::MEAN && c10::isIntegralType(dtype, /*includeBool=*/true)) {
    throw ValueError(call_of(change), cat("the mean over replicas of an integer is no integer: ",
                                          variable.describe(), " has aggregation MEAN and dtype ",
                                          c10::toString(dtype),
                                          "; use SUM, ONLY_FIRST_REPLICA or a floating dtype"));
  }
  SharedChange mine(variable, change);
  attend_meeting(replica, mine);
}

/// Each replica's part of x when the parts are to add up to x: x/n; what integers leave over goes
/// to the first replica.
Change part_of(const Change& whole, int replica, int replicas) {
  const at::Tensor& x = whole.values;
  if (!c10::isIntegralType(x.scalar_type(), /*includeBool=*/false)) {
    return {whole.op, x.div(static_cast<double>(replicas))};
  }
  const at::Tensor part = x.div(replicas, "trunc");
  return {whole.op, replica == 0 ? x - part * (replicas - 1) : part};
}

void set_on_read(const VariableState& variable, const Change& change) {
  if (change.op != Change::ASSIGN) {
    throw ValueError(call_of(change),
                     cat("SyncOnReadVariable does not support `", change.name(),
                         "` in cross-replica context: ", variable.describe(),
                         " has one value per replica; call it inside strategy.run(), or assign()"));
  }
  const ReplicaLayout& layout = variable.owner->layout();
  const bool sum = variable.options.aggregation == Aggregation::SUM;
  for (int i = 0; i < layout.local(); ++i) {
    (sum ? part_of(change, layout.id_of(i), layout.global()) : change).apply_to(variable.copies[i]);
  }
}

/// Brings a change to where the context says, and tells what that is.
Access dispatch(const VariableState& variable, const Change& change) {
  const Access access = detail::access(variable, call_of(change).c_str());
  const bool everywhere = access.where == Access::CROSS_REPLICA;
  if (is_shared(variable, access)) {
    change_in_replica(variable, change, *access.replica);
  } else if (everywhere && variable.on_read()) {
    set_on_read(variable, change);
  } else if (everywhere) {
    for (const at::Tensor& copy : variable.copies) change.apply_to(copy);
  } else {
    change.apply_to(variable.copies[variable.placement.copy_of[access.component]]);
  }
  return access;
}

}  // namespace
}  // namespace detail

AssignValue::AssignValue(const Variable& variable) : tensor_(variable) {}

AssignValue AssignValue::broadcast_to(at::IntArrayRef sizes) const {
  const auto repeated = [&](const at::Tensor& tensor) {
    const bool fits = tensor.defined() && at::is_expandable_to(tensor.sizes(), sizes);
    return fits ? tensor.expand(sizes) : tensor;
  };
  AssignValue result = *this;
  result.tensor_ = repeated(tensor_);
  if (!per_replica_) return result;
  std::vector<at::Tensor> components;
  for (const at::Tensor& component : per_replica_->values()) {
    components.push_back(repeated(component));
  }
  result.per_replica_.emplace(std::move(components), per_replica_->devices());
  return result;
}

at::Tensor Variable::change(const detail::Change& change, AssignOptions options) const {
  if (change.is_scatter()) detail::check_scatter(*state_, change);
  const detail::Access access = detail::dispatch(*state_, change);
  if (!options.read_value) return {};
  return access.where == detail::Access::CROSS_REPLICA
             ? detail::read(*state_, detail::Reader::CONVERSION)
             : state_->components[access.component];
}

using detail::assignment;
using detail::Change;
using detail::scatter;

at::Tensor Variable::assign(const AssignValue& value, AssignOptions options) const {
  return change(assignment(*state_, Change::ASSIGN, value), options);
}
at::Tensor Variable::assign_add(const AssignValue& value, AssignOptions options) const {
  return change(assignment(*state_, Change::ASSIGN_ADD, value), options);
}
at::Tensor Variable::assign_sub(const AssignValue& value, AssignOptions options) const {
  return change(assignment(*state_, Change::ASSIGN_SUB, value), options);
}
at::Tensor Variable::scatter_sub(const IndexedSlices& slices, AssignOptions options) const {
  return change(scatter(*state_, Change::SCATTER_SUB, slices), options);
}
at::Tensor Variable::scatter_add(const IndexedSlices& slices, AssignOptions options) const {
  return change(scatter(*state_, Change::SCATTER_ADD, slices), options);
}
at::Tensor Variable::scatter_mul(const IndexedSlices& slices, AssignOptions options) const {
  return change(scatter(*state_, Change::SCATTER_MUL, slices), options);
}
at::Tensor Variable::scatter_div(const IndexedSlices& slices, AssignOptions options) const {
  return change(scatter(*state_, Change::SCATTER_DIV, slices), options);
}
at::Tensor Variable::scatter_min(const IndexedSlices& slices, AssignOptions options) const {
  return change(scatter(*state_, Change::SCATTER_MIN, slices), options);
}
at::Tensor Variable::scatter_max(const IndexedSlices& slices, AssignOptions options) const {
  return change(scatter(*state_, Change::SCATTER_MAX, slices), options);
}
at::Tensor Variable::scatter_update(const IndexedSlices& slices, AssignOptions options) const {
  return change(scatter(*state_, Change::SCATTER_UPDATE, slices), options);
}

}  // namespace cohort
