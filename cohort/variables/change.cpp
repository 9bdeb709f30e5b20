#include "cohort/variables/change.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "cohort/base/error.h"
#include "cohort/collectives/tensor_reduction.h"
#include "cohort/collectives/world_tensors.h"

namespace cohort::detail {
namespace {

void change_row(Change::Op op, const at::Tensor& row, const at::Tensor& value) {
  switch (op) {
    case Change::SCATTER_MUL:
      row.mul_(value);
      break;
    case Change::SCATTER_DIV:
      if (c10::isIntegralType(row.scalar_type(), /*includeBool=*/false)) {
        row.div_(value, "trunc");
      } else {
        row.div_(value);
      }
      break;
    case Change::SCATTER_MIN:
      row.copy_(at::minimum(row, value));
      break;
    case Change::SCATTER_MAX:
      row.copy_(at::maximum(row, value));
      break;
    default:
      row.copy_(value);
  }
}

void change_rows(Change::Op op, const at::Tensor& copy, const at::Tensor& indices,
                 const at::Tensor& values) {
  const auto rows = indices.accessor<std::int64_t, 1>();
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    change_row(op, copy.select(0, rows[i]), values.select(0, i));
  }
}

/// The rows of all replicas of the job, one after the other.
Change concatenate(const VariableState& variable, std::span<const Change* const> changes,
                   bool mean) {
  std::vector<at::Tensor> rows;  // values and indices of each replica
  for (const Change* change : changes) {
    rows.push_back(change->values);
    rows.push_back(change->indices);
  }
  const World& world = variable.owner->world();
  rows = all_of_world(variable.owner->world().replicas_lane(),
                      cat("variable.", changes[0]->name(), " of ", variable.describe()), rows);
  std::vector<at::Tensor> values, indices;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    values.push_back(rows[i]);
    indices.push_back(rows[i + 1]);
  }
  at::Tensor all = at::cat(values);
  if (mean) all = collectives::quotient(all, world.replicas());
  return {changes[0]->op, all, at::cat(indices)};
}

/// The change of the job's first replica.
Change first_of_all(const VariableState& variable, const Change& first) {
  const std::string call = cat("variable.", first.name(), " of ", variable.describe());
  Change result = first;
  result.values = variable.owner->of_first_replica(first.values, call);
  if (first.is_scatter()) {
    result.indices = variable.owner->of_first_replica(first.indices, call + " (indices)");
  }
  return result;
}

}  // namespace

const char* Change::name() const {
  static constexpr const char* kNames[] = {
      "assign",      "assign_add",  "assign_sub",  "scatter_sub", "scatter_add",
      "scatter_mul", "scatter_div", "scatter_min", "scatter_max", "scatter_update"};
  return kNames[op];
}

void Change::apply_to(const at::Tensor& copy) const {
  const at::NoGradGuard no_grad;
  const at::Tensor here = values.to(copy.device());
  switch (op) {
    case ASSIGN:
      copy.copy_(here);
      break;
    case ASSIGN_ADD:
      copy.add_(here);
      break;
    case ASSIGN_SUB:
      copy.sub_(here);
      break;
    case SCATTER_ADD:
      copy.index_add_(0, indices.to(copy.device()), here);
      break;
    case SCATTER_SUB:
      copy.index_add_(0, indices.to(copy.device()), here, -1);
      break;
    default:
      change_rows(op, copy, indices, here);
  }
}

Change combine(const VariableState& variable, std::span<const Change* const> of_each_replica) {
  const at::NoGradGuard no_grad;
  const Change& first = *of_each_replica[0];
  const Aggregation aggregation = variable.options.aggregation;
  const bool mean = aggregation == Aggregation::MEAN;
  // A variable that is stored once takes the slices of every replica, one after the other.
  const bool stored_once = variable.kind == VariableState::Kind::AGGREGATING;
  if (first.is_scatter() && stored_once) {
    return concatenate(variable, of_each_replica, /*mean=*/false);
  }
  if (aggregation == Aggregation::ONLY_FIRST_REPLICA) return first_of_all(variable, first);
  if (first.is_scatter()) return concatenate(variable, of_each_replica, mean);
  Reducible values{Reducible::PER_REPLICA, {}, nullptr};
  for (const Change* change : of_each_replica) values.values.push_back(change->values);
  const std::string call = variable.owner->world().holds_root()
                               ? cat("variable.", first.name())
                               : cat("variable.", first.name(), " of ", variable.describe());
  const auto sum =
      variable.owner->reduce_leaf_to(mean ? ReduceOp::MEAN : ReduceOp::SUM, values,
                                     Destinations(variable.placement.copies[0]), {}, call.c_str());
  return {first.op, sum.values()[0]};
}

}  // namespace cohort::detail
