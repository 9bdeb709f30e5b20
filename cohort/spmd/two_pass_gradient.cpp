#include "cohort/spmd/two_pass_gradient.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace cohort::spmd {

using at::Tensor;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::Node;
using torch::autograd::variable_list;
using torch_compat::NodePtr;

namespace {

Edge edge_of(const Tensor& tensor) { return torch::autograd::impl::gradient_edge(tensor); }

/// The nodes of a graph, each before all that it leads to.
std::vector<NodePtr> nodes_from(const NodePtr& root) {
  std::vector<NodePtr> nodes{root};
  std::unordered_set<const Node*> seen{root.get()};
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const edge_list edges = nodes[i]->next_edges();  // a copy: `nodes` grows
    for (const Edge& edge : edges) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second) {
        nodes.push_back(edge.function);
      }
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const NodePtr& a, const NodePtr& b) {
    return a->topological_nr() > b->topological_nr();
  });
  return nodes;
}

/// Those of `nodes` that lead to `target`.
std::unordered_set<const Node*> leading_to(const Node* target, const std::vector<NodePtr>& nodes) {
  std::unordered_set<const Node*> result{target};
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    for (const Edge& edge : (*node)->next_edges()) {
      if (edge.is_valid() && result.contains(edge.function.get())) result.insert(node->get());
    }
  }
  return result;
}

/// Whether a node may be run twice, each time for some of its results: not with hooks, which would
/// be called twice, nor if a user wrote it, as such a function computes all of them each time.
bool can_run_twice(Node& node) {
  return !torch_compat::has_hooks(node) && node.name().find("CppNode") == std::string::npos;
}

variable_list run(const edge_list& from, const variable_list& gradients, bool keep_graph,
                  const edge_list& to) {
  const at::AutoGradMode on(true);
  return torch::autograd::Engine::get_default_engine().execute(
      from, gradients, keep_graph, /*create_graph=*/false, /*accumulate_grad=*/false, to);
}

}  // namespace

TwoPassGradient::TwoPassGradient(Tensor output, Tensor input, const variable_list& parameters)
    : output_(std::move(output)), input_(std::move(input)), gradients_(parameters.size()) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].requires_grad()) trained_.push_back({i, edge_of(parameters[i])});
  }
}

bool TwoPassGradient::find_forks() {
  const std::vector<NodePtr> nodes = nodes_from(output_.grad_fn());
  const auto to_input = leading_to(edge_of(input_).function.get(), nodes);
  if (!to_input.contains(nodes.front().get())) return false;
  std::unordered_map<const Node*, std::size_t> forks;  // their numbers
  std::unordered_map<const Node*, const Node*> owner;  // the fork before a node beside the way
  for (const NodePtr& node : nodes) {
    const bool is_on_the_way = to_input.contains(node.get());
    const Node* const fork = is_on_the_way ? node.get() : owner[node.get()];
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid() || to_input.contains(edge.function.get())) continue;
      if (owner.try_emplace(edge.function.get(), fork).first->second != fork) return false;
      if (!is_on_the_way || !forks.try_emplace(fork, forks_.size()).second) continue;
      if (!can_run_twice(*node)) return false;
      forks_.push_back({node, {}, {}});
    }
  }
  for (const Trained& each : trained_) {
    const auto found = owner.find(each.edge.function.get());
    if (found != owner.end()) forks_[forks.at(found->second)].parameters.push_back(each);
  }
  return true;
}

void TwoPassGradient::take_one_pass(const Tensor& gradient) {
  edge_list to;
  for (const Trained& each : trained_) to.push_back(each.edge);
  if (input_.requires_grad()) to.push_back(edge_of(input_));
  if (to.empty()) return;
  variable_list found = run({edge_of(output_)}, {gradient}, false, to);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    gradients_[trained_[i].number] = std::move(found[i]);
  }
  if (input_.requires_grad()) of_input_ = std::move(found.back());
}

void TwoPassGradient::take_first_pass(const Tensor& gradient) {
  edge_list to{edge_of(input_)};
  for (const Fork& fork : forks_) {
    for (std::uint32_t i = 0; i < fork.node->num_inputs(); ++i) to.emplace_back(fork.node, i);
  }
  variable_list found = run({edge_of(output_)}, {gradient}, true, to);
  of_input_ = std::move(found[0]);
  auto next = found.begin() + 1;
  for (Fork& fork : forks_) {
    for (std::uint32_t i = 0; i < fork.node->num_inputs(); ++i) {
      fork.gradients.push_back(std::move(*next++));
    }
  }
}

void TwoPassGradient::take_second_pass(Fork& fork) {
  edge_list from, to;
  variable_list gradients;
  for (std::uint32_t i = 0; i < fork.gradients.size(); ++i) {
    if (!fork.gradients[i].defined()) continue;
    from.emplace_back(fork.node, i);
    gradients.push_back(std::move(fork.gradients[i]));
  }
  for (const Trained& each : fork.parameters) to.push_back(each.edge);
  if (from.empty() || to.empty()) return;
  variable_list found = run(from, gradients, false, to);
  for (std::size_t i = 0; i < to.size(); ++i) {
    gradients_[fork.parameters[i].number] = std::move(found[i]);
  }
}

Tensor TwoPassGradient::of_input(const Tensor& gradient) {
  if (!output_.requires_grad()) return zeros_of_input();
  if (!input_.requires_grad()) {
    gradient_ = gradient;  // for later
  } else if (find_forks()) {
    take_first_pass(gradient);
  } else {
    forks_.clear();
    take_one_pass(gradient);
  }
  return of_input_.defined() ? std::move(of_input_) : zeros_of_input();
}

variable_list TwoPassGradient::of_parameters() {
  if (gradient_.defined()) take_one_pass(std::exchange(gradient_, Tensor()));
  for (Fork& fork : forks_) take_second_pass(fork);
  forks_.clear();
  output_ = Tensor();
  input_ = Tensor();
  return std::move(gradients_);
}

Tensor TwoPassGradient::zeros_of_input() const {
  return input_.requires_grad() ? at::zeros_like(input_) : Tensor();
}

}  // namespace cohort::spmd
