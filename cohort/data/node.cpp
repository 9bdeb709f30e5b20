#include "cohort/data/node.h"

#include <algorithm>

#include "cohort/base/random.h"

namespace cohort::data {

Iteration Iteration::inner(std::uint64_t n) const {
  Iteration result = *this;
  result.epoch = mix(epoch, n + 1);
  return result;
}

std::uint64_t Node::depth() const {
  std::uint64_t deepest = 0;
  for (const NodePtr& input : inputs()) deepest = std::max(deepest, input->depth() + 1);
  return deepest;
}

std::string Node::kind() const {
  const std::string full = name();
  return full.substr(0, full.find('('));
}

std::optional<int> Node::times_batched() const {
  if (role() == Role::SOURCE || role() == Role::READER) return 0;
  std::optional<int> least;
  for (const NodePtr& input : inputs()) {
    const std::optional<int> times = input->times_batched();
    if (!times) return std::nullopt;
    least = least ? std::min(*least, *times) : *times;
  }
  if (least && role() == Role::BATCHES) ++*least;
  return least;
}

std::string describe_stages(const Node& node, const std::function<std::string(const Node&)>& text) {
  std::string before;
  const std::vector<NodePtr> inputs = node.inputs();
  for (const NodePtr& input : inputs) {
    before += describe_stages(*input, text) + (inputs.size() > 1 ? "; " : ".");
  }
  return before + text(node);
}

std::string position_stages(const Node& node) {
  return describe_stages(node, [](const Node& stage) { return stage.position_kind(); });
}

std::string position_kinds(const Node& node) {
  return describe_stages(node, [](const Node& stage) { return stage.kind(); });
}

}  // namespace cohort::data
