#pragma once

#include <string>
#include <vector>

#include "cohort/optim/split_table.h"

namespace cohort {

/// Layers whose parameters lie in parts on the logical devices of a replica, by the kind of layer
/// and the way it is split. Each list has patterns of the layers' names, with `*` for anything:
/// "*.query" is `query` of any module inside of the model, "token" the model's own `token`.
struct TensorParallel {
  /// Linear: each device computes some of the results, its bias is split along. What follows, up to
  /// a layer of `rows`, stays on the devices: activations, and attention if heads do not straddle
  /// two devices.
  std::vector<std::string> columns = {};

  /// Linear: each device takes the inputs that it has from a layer of `columns`; the products are
  /// added, and all devices see the result. The bias is whole.
  std::vector<std::string> rows = {};

  /// Embedding: each device has the rows of some symbols.
  std::vector<std::string> embedding_rows = {};

  /// Embedding: each device has some columns of all symbols.
  std::vector<std::string> embedding_columns = {};

  /// MultiheadAttention: its projections as `columns`, `out_proj` as `rows`. LibTorch keeps the
  /// three projections in one matrix, and heads beside the batch in one dimension, so that a split
  /// one moves more than three Linear layers of your own would.
  std::vector<std::string> attention = {};
};

/// The layouts of the layers' parameters, for `ModelOptions::split_parameters`:
///
///     Model<Net> model(ModelOptions{.split_parameters = tensor_parallel(
///         {.columns = {"*.query", "*.key", "*.value", "*.up"}, .rows = {"*.out", "*.down"}})});
///
/// Over `devices`, or over the logical devices that a replica of the current strategy has. Values
/// are those of the whole layers, up to the order in which products are added.
///
/// Throws ValueError if there is no layer, if a pattern is there twice or names a parameter instead
/// of a layer, and for less than one device. Whether layers fit the model, `Model` checks.
SplitTable tensor_parallel(const TensorParallel& layers);
SplitTable tensor_parallel(const TensorParallel& layers, int devices);

}  // namespace cohort
