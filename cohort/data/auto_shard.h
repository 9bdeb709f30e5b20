#pragma once

#include <functional>
#include <optional>

#include "cohort/data/dataset.h"

/// How a pipeline is looked at and rewritten, so that each worker reads its part.
namespace cohort::data {

/// The pipeline with every stage replaced for which `replace` gives another one. A replaced stage's
/// inputs are not looked at.
NodePtr rewrite(const NodePtr& node, const std::function<NodePtr(const NodePtr&)>& replace);

/// The first stage for which a pipeline's files can't be dealt out: one that makes elements of no
/// file, or one whose elements depend on those before, in whichever file. Null where there is none.
const Node* obstacle_to_file_shards(const Node& node);

/// The pipeline with each reader's files dealt: file j to shard j mod count. A shuffle of the names
/// comes after the dealing. Throws NotFound where there is an obstacle, and InvalidArgument, in the
/// pass, where there are fewer files than shards.
NodePtr shard_files(const NodePtr& node, const ShardOf& shard);

/// The pipeline with `shard(SHARD_HINT)` stages put into effect.
NodePtr shard_hints(const NodePtr& node, const ShardOf& shard);

/// The rows of full batches, where all batches come from stages that make batches of one size.
std::optional<std::int64_t> full_batch_of(const Node& node);

/// The pipeline with batches of another size, or none where it has no batch stage of one size.
NodePtr with_batch_size(const NodePtr& node, std::int64_t size);

/// The pipeline with some rows of each batch only, or none where that would save no reading.
NodePtr with_wanted_rows(const NodePtr& node, const WantedRows& rows);

/// The names of the files that the pipeline reads, in the order of their list; at most `most`.
std::vector<std::string> files_of(const Node& node, std::size_t most);

/// True where a stage may give elements in another order from run to run.
bool has_unordered_stage(const Node& node);

namespace detail {
NodePtr shard_elements(const NodePtr& node, const ShardOf& shard,
                       const std::function<NodePtr(const NodePtr&)>& append);
}

/// A worker's part of a dataset: of its files where it reads files, else of its elements; or by the
/// policy in the dataset's options. Throws InvalidArgument unless 0 <= index < workers.
template <class T>
Dataset<T> auto_shard(const Dataset<T>& dataset, std::int64_t workers, std::int64_t index) {
  check_shard(workers, index, "data::auto_shard");
  const ShardOf shard{workers, index, /*strict=*/true};
  const auto append = [&](const NodePtr& node) -> NodePtr {
    return std::make_shared<Shard<T>>(typed<T>(node), shard);
  };
  NodePtr node = dataset.node();
  switch (dataset.options().auto_shard) {
    case AutoShardPolicy::OFF:
      break;
    case AutoShardPolicy::HINT:
      node = shard_hints(node, shard);
      break;
    case AutoShardPolicy::FILE:
    case AutoShardPolicy::FILE_BY_REPLICA:
      if (workers > 1) node = shard_files(node, shard);
      break;
    case AutoShardPolicy::DATA:
      node = detail::shard_elements(node, shard, append);
      break;
    case AutoShardPolicy::AUTO:
      if (workers == 1) break;
      node = obstacle_to_file_shards(*node) ? detail::shard_elements(node, shard, append)
                                            : shard_files(node, shard);
  }
  return Dataset<T>(typed<T>(node), dataset.options());
}

}  // namespace cohort::data
