// Sums, means and maxima of rows of a table, of those that each bag of indices names. They are made
// of the rules for looking up rows and for adding them up; lists of indices are no large tensors,
// and every device sees all of them.

#include <ATen/ATen.h>

#include "cohort/spmd/partition.h"
#include "cohort/spmd/rules/selection.h"

namespace cohort::spmd {
namespace {

using Optional = c10::optional<Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

/// LibTorch's numbers for them.
enum class BagMode : std::int64_t { SUM = 0, MEAN = 1, MAX = 2 };

/// The bag of each index. All bags begin with index 0 or later ones, in order.
Tensor bag_of_each(const Tensor& offsets, std::int64_t indices) {
  const Tensor numbers = at::arange(indices, at::TensorOptions(offsets.scalar_type()));
  return at::bucketize(numbers, gather(offsets), /*out_int32=*/false, /*right=*/true).sub_(1);
}

/// The indices of all bags, without padding.
struct Bags {
  std::int64_t count;
  Tensor indices, bag_of, weights;  // of each index; weights may be undefined
  Tensor sizes;                     // of each bag

  Bags(const Tensor& given, const Tensor& own_bag_of, const Tensor& own_weights, std::int64_t bags,
       std::int64_t padding)
      : count(bags), indices(given), bag_of(own_bag_of), weights(own_weights) {
    if (padding >= 0) {
      const Tensor kept = at::nonzero(gather(given).ne(padding)).squeeze(1);
      indices = gather(given).index_select(0, kept);
      bag_of = bag_of.index_select(0, kept);
      if (weights.defined()) weights = gather(weights).index_select(0, kept);
    }
    sizes = at::bincount(bag_of, {}, bags);
  }

  /// The number of the first index of each bag.
  Tensor offsets() const { return at::sub(at::cumsum(sizes, 0), sizes); }
};

/// The rows of the bags, added up.
Tensor sum_of_bags(const char* name, const Bags& bags, const Tensor& rows) {
  const Tensor weighted = bags.weights.defined() ? at::mul(rows, bags.weights.unsqueeze(1)) : rows;
  const Tensor zeros = at::zeros({bags.count, rows.size(1)}, at::TensorOptions(rows.dtype()));
  return write_elements(name, zeros, along_dimension(zeros.sizes(), 0, bags.bag_of), weighted,
                        true);
}

/// The largest number of each column, and the index of the row that it is from.
std::tuple<Tensor, Tensor> maxima_of_bags(const char* name, const Bags& bags, const Tensor& rows) {
  const Tensor numbers = at::arange(rows.size(0)), offsets = bags.offsets();
  Partition parts(name);
  parts.take(rows, "*d");
  const auto results = parts.give_all({"*d", "*d"}, [&](const Partition::Task& t) {
    auto [largest, bag_of, sizes, places] = at::_embedding_bag(
        t[0].contiguous(), numbers, offsets, false, static_cast<std::int64_t>(BagMode::MAX));
    return std::vector<Tensor>{largest, places};
  });
  if (bags.indices.numel() == 0) return {results[0], at::zeros_like(results[1])};
  return {results[0], at::take(gather(bags.indices), results[1])};
}

Four embedding_bag_tiles(const char* name, const Tensor& table, const Tensor& indices,
                         const Tensor& offsets, BagMode mode, const Tensor& weights, bool has_end,
                         std::int64_t padding) {
  const Operation operation(name);
  const BelowAutograd below;
  const std::int64_t count = offsets.size(0) - (has_end ? 1 : 0);
  const Tensor bag_of = bag_of_each(offsets.narrow(0, 0, count), indices.size(0));
  const Bags bags(indices, bag_of, weights, count, padding);
  const Tensor rows = at::embedding(table, bags.indices);
  if (mode == BagMode::MAX) {
    auto [largest, places] = maxima_of_bags(name, bags, rows);
    return {largest, bag_of, bags.sizes, places};
  }
  const Tensor sum = sum_of_bags(name, bags, rows);
  const Tensor none = at::zeros({0}, at::TensorOptions(at::kLong));
  if (mode == BagMode::SUM) return {sum, bag_of, bags.sizes, none};
  return {at::div(sum, bags.sizes.clamp_min(1).unsqueeze(1)), bag_of, bags.sizes, none};
}

/// (table, indices, offsets, scale_grad_by_freq, mode, sparse, weights, has_end, padding).
void embedding_bag_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto arguments = BoxedCall(op, stack).take();
  const Tensor weights = arguments[6].isNone() ? Tensor() : arguments[6].toTensor();
  auto [result, bag_of, sizes, places] = embedding_bag_tiles(
      op.schema().name().c_str(), arguments[0].toTensor(), arguments[1].toTensor(),
      arguments[2].toTensor(), BagMode{arguments[4].toInt()}, weights, arguments[7].toBool(),
      arguments[8].toInt());
  for (const Tensor& each : {result, bag_of, sizes, places}) stack->emplace_back(each);
}

// Derivatives.

Tensor embedding_bag_backward_tiles(const Tensor& gradient, const Tensor& indices,
                                    const Tensor& bag_of, const Tensor& sizes, const Tensor& places,
                                    std::int64_t rows, bool scale_by_frequency, std::int64_t mode,
                                    const Optional& weights, std::int64_t padding) {
  const Operation operation("aten::_embedding_bag_dense_backward");
  const BelowAutograd below;
  if (BagMode{mode} == BagMode::MAX) {
    const Tensor zeros = at::zeros({rows, gradient.size(1)}, at::TensorOptions(gradient.dtype()));
    const Tensor own = at::mul(gradient, at::gt(sizes, 0).unsqueeze(1));
    return at::scatter_add(zeros, 0, places, own);
  }
  Tensor own = gradient;
  if (BagMode{mode} == BagMode::MEAN) own = at::div(own, sizes.clamp_min(1).unsqueeze(1));
  own = at::index_select(own, 0, bag_of);
  if (weights.has_value() && weights->defined()) own = at::mul(own, weights->unsqueeze(1));
  return at::embedding_dense_backward(own, indices, rows, padding, scale_by_frequency);
}

/// (gradient, indices, offsets, bag_of, sizes, places, rows, scale_grad_by_freq, mode, sparse,
/// weights, padding): LibTorch 2 has it as one operation, 1.13 takes it apart.
void whole_backward_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  BoxedCall call(op, stack);
  if (call[9].toBool()) return gather_and_run(op, stack, "its result is sparse");
  const auto arguments = call.take();
  stack->emplace_back(embedding_bag_backward_tiles(
      arguments[0].toTensor(), arguments[1].toTensor(), arguments[3].toTensor(),
      arguments[4].toTensor(), arguments[5].toTensor(), arguments[6].toInt(), arguments[7].toBool(),
      arguments[8].toInt(), arguments[10].toOptional<Tensor>(), arguments[11].toInt()));
}

Tensor weights_of_bag_backward_tiles(const Tensor& gradient, const Tensor& table,
                                     const Tensor& indices, const Tensor& offsets,
                                     const Tensor& bag_of, std::int64_t, std::int64_t padding) {
  const Operation operation("aten::_embedding_bag_per_sample_weights_backward");
  const BelowAutograd below;
  const bool is_known = bag_of.size(0) == indices.size(0);
  const Tensor bags = is_known ? bag_of : bag_of_each(offsets, indices.size(0));
  const Tensor products =
      at::mul(at::index_select(gradient, 0, bags), at::embedding(table, indices));
  const Tensor sum = at::sum(products, 1);
  return padding < 0 ? sum : at::mul(sum, at::ne(indices, padding));
}

}  // namespace

void register_embedding_bag(torch::Library& library) {
  library.impl("_embedding_bag", boxed<&embedding_bag_boxed>());
  library.impl("_embedding_bag_forward_only", boxed<&embedding_bag_boxed>());
  library.impl("_embedding_bag_backward", boxed<&whole_backward_boxed>());
  library.impl("_embedding_bag_dense_backward", embedding_bag_backward_tiles);
  library.impl("_embedding_bag_per_sample_weights_backward", weights_of_bag_backward_tiles);
}

}  // namespace cohort::spmd
