#include "cohort/data/auto_shard.h"

#include <algorithm>

#include "cohort/base/log.h"

namespace cohort::data {
namespace {

using Role = Node::Role;

bool is_shuffle(const Node& node) { return node.name().rfind("shuffle", 0) == 0; }

/// The dealing goes below a shuffle, so that each shard's files come in random order.
NodePtr shard_names(const NodePtr& names, const ShardOf& shard) {
  if (is_shuffle(*names)) return names->with_inputs({shard_names(names->inputs()[0], shard)});
  return std::make_shared<Shard<std::string>>(typed<std::string>(names), shard);
}

std::string why_not_dealt(const Node& obstacle) {
  if (obstacle.role() == Role::SOURCE) {
    return cat("the pipeline reads something that is no file: ", obstacle.name());
  }
  return cat("the elements of ", obstacle.name(), " depend on those before, in all files");
}

template <class Apply>
NodePtr with_each_input(const NodePtr& node, Apply apply) {
  std::vector<NodePtr> inputs = node->inputs();
  for (NodePtr& input : inputs) input = apply(input);
  return node->with_inputs(std::move(inputs));
}

}  // namespace

NodePtr rewrite(const NodePtr& node, const std::function<NodePtr(const NodePtr&)>& replace) {
  if (NodePtr replaced = replace(node)) return replaced;
  if (node->inputs().empty()) return node;
  return with_each_input(node, [&](const NodePtr& input) { return rewrite(input, replace); });
}

const Node* obstacle_to_file_shards(const Node& node) {
  if (node.role() == Role::READER) return nullptr;
  if (node.role() == Role::SOURCE || node.depends_on_earlier_elements()) return &node;
  for (const NodePtr& input : node.inputs()) {
    if (const Node* obstacle = obstacle_to_file_shards(*input)) return obstacle;
  }
  return nullptr;
}

NodePtr shard_files(const NodePtr& node, const ShardOf& shard) {
  if (const Node* obstacle = obstacle_to_file_shards(*node)) {
    throw NotFound("auto_shard", cat(why_not_dealt(*obstacle), "; use the policy DATA"));
  }
  if (node->role() == Role::READER) {
    return node->with_inputs({shard_names(node->inputs()[0], shard)});
  }
  if (node->checks_cardinality()) {
    if (log::first("auto-shard-cardinality")) {
      log::warning("auto_shard: ", node->name(),
                   " is left out, as each worker reads a part of the files");
    }
    return shard_files(node->inputs()[0], shard);
  }
  return with_each_input(node, [&](const NodePtr& input) { return shard_files(input, shard); });
}

NodePtr shard_hints(const NodePtr& node, const ShardOf& shard) {
  return rewrite(node, [&](const NodePtr& stage) { return stage->with_shard(shard); });
}

std::optional<std::int64_t> full_batch_of(const Node& node) {
  if (node.batch_size()) return node.batch_size();
  const Role role = node.role();
  if (role != Role::KEEPS && role != Role::FILTERS && role != Role::MAPS && role != Role::ZIPS) {
    return std::nullopt;
  }
  std::optional<std::int64_t> common;
  for (const NodePtr& input : node.inputs()) {
    const auto size = full_batch_of(*input);
    if (!size || (common && *common != *size)) return std::nullopt;
    common = size;
  }
  return common;
}

NodePtr with_batch_size(const NodePtr& node, std::int64_t size) {
  if (!full_batch_of(*node)) return nullptr;
  return rewrite(node, [&](const NodePtr& stage) -> NodePtr {
    return stage->batch_size() ? stage->with_batch_size(size) : nullptr;
  });
}

NodePtr with_wanted_rows(const NodePtr& node, const WantedRows& rows) {
  if (node->role() == Role::BATCHES) return node->with_wanted_rows(rows);
  if (node->role() != Role::KEEPS) return nullptr;
  std::vector<NodePtr> inputs = node->inputs();
  for (NodePtr& input : inputs) {
    input = with_wanted_rows(input, rows);
    if (!input) return nullptr;
  }
  return node->with_inputs(std::move(inputs));
}

std::vector<std::string> files_of(const Node& node, std::size_t most) {
  std::vector<std::string> files;
  if (node.role() == Role::READER) {
    const auto names = typed<std::string>(node.inputs()[0])->iterate({});
    std::string name;
    while (files.size() < most && names->next(name)) files.push_back(name);
    return files;
  }
  for (const NodePtr& input : node.inputs()) {
    for (std::string& file : files_of(*input, most - files.size())) {
      files.push_back(std::move(file));
    }
  }
  return files;
}

bool has_unordered_stage(const Node& node) {
  const auto inputs = node.inputs();
  return node.is_unordered() || std::any_of(inputs.begin(), inputs.end(), [](const NodePtr& input) {
           return has_unordered_stage(*input);
         });
}

/// Below the prefetches at the end, so that they make elements ahead that are wanted.
NodePtr detail::shard_elements(const NodePtr& node, const ShardOf& shard,
                               const std::function<NodePtr(const NodePtr&)>& append) {
  if (node->name().rfind("prefetch", 0) != 0) return append(node);
  return node->with_inputs({shard_elements(node->inputs()[0], shard, append)});
}

}  // namespace cohort::data
