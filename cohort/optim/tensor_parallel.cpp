#include "cohort/optim/tensor_parallel.h"

#include <set>

#include "cohort/base/error.h"
#include "cohort/distribute/context.h"
#include "cohort/distribute/strategy.h"

namespace cohort {
namespace {

/// A parameter of a kind of layer, and how it is split over k devices.
struct ParameterOfLayer {
  std::string name;
  std::vector<std::int64_t> parts;
  bool is_always_there = true;
};

/// Entries for the parameters of layers; each pattern once.
class TableOfLayers {
 public:
  void add(const std::vector<std::string>& patterns,
           const std::vector<ParameterOfLayer>& parameters) {
    for (const std::string& pattern : patterns) {
      check(pattern);
      for (const auto& [name, parts, is_always_there] : parameters) {
        table_.push_back({pattern + "." + name, parts, !is_always_there});
      }
    }
  }

  SplitTable take() {
    if (table_.empty()) throw ValueError("tensor_parallel", "no layer: name one at least");
    return std::move(table_);
  }

 private:
  void check(const std::string& pattern) {
    if (pattern.empty() || pattern.ends_with(".weight") || pattern.ends_with(".bias")) {
      throw ValueError("tensor_parallel", cat("expected the name of a layer, such as \"*.query\", "
                                              "got \"",
                                              pattern, '"'));
    }
    if (seen_.insert(pattern).second) return;
    throw ValueError("tensor_parallel",
                     cat("\"", pattern, "\" is there twice: a layer is split in one way"));
  }

  SplitTable table_;
  std::set<std::string> seen_;
};

}  // namespace

SplitTable tensor_parallel(const TensorParallel& layers, int devices) {
  if (devices < 1) {
    throw ValueError("tensor_parallel", cat("expected one device at least, got ", devices));
  }
  const std::int64_t k = devices;
  TableOfLayers table;
  table.add(layers.columns, {{"weight", {k, 1}}, {"bias", {k}, false}});
  table.add(layers.rows, {{"weight", {1, k}}});
  table.add(layers.embedding_rows, {{"weight", {k, 1}}});
  table.add(layers.embedding_columns, {{"weight", {1, k}}});
  table.add(layers.attention, {{"in_proj_weight", {k, 1}, false},
                               {"in_proj_bias", {k}, false},
                               {"q_proj_weight", {k, 1}, false},
                               {"k_proj_weight", {k, 1}, false},
                               {"v_proj_weight", {k, 1}, false},
                               {"out_proj.weight", {1, k}}});
  return table.take();
}

SplitTable tensor_parallel(const TensorParallel& layers) {
  return tensor_parallel(layers, get_strategy().extended().logical_devices_per_replica());
}

}  // namespace cohort
