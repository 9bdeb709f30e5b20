#include "cohort/collectives/world_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/collectives/world_sum.h"

namespace cohort {

using collectives::Node;

namespace {

/// What the others must know of a tensor before its bytes come.
struct Shape {
  c10::ScalarType dtype;
  std::vector<std::int64_t> sizes;
};

bool is_addable_in_place(const at::Tensor& value) { return value.layout() == at::kStrided; }

MutableBytes memory_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

/// As bytes of the CPU.
at::Tensor on_host(const at::Tensor& tensor) { return collectives::as_read(tensor.detach().cpu()); }

void put(WorldLane::Bytes& bytes, std::int64_t number) {
  const auto* const first = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), first, first + sizeof number);
}

std::int64_t get(ConstBytes& bytes) {
  std::int64_t number = 0;
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes = bytes.subspan(sizeof number);
  return number;
}

WorldLane::Bytes shapes_of(std::span<const at::Tensor> tensors) {
  WorldLane::Bytes bytes;
  put(bytes, static_cast<std::int64_t>(tensors.size()));
  for (const at::Tensor& tensor : tensors) {
    put(bytes, static_cast<std::int64_t>(tensor.scalar_type()));
    put(bytes, tensor.dim());
    for (const std::int64_t size : tensor.sizes()) put(bytes, size);
  }
  return bytes;
}

std::vector<Shape> shapes_in(ConstBytes bytes) {
  std::vector<Shape> shapes(get(bytes));
  for (Shape& shape : shapes) {
    shape.dtype = static_cast<c10::ScalarType>(get(bytes));
    shape.sizes.resize(get(bytes));
    for (std::int64_t& size : shape.sizes) size = get(bytes);
  }
  return shapes;
}

std::vector<at::Tensor> rows_of_world(WorldLane& lane, std::string_view call,
                                      std::span<const at::Tensor> dense) {
  const World& world = lane.world();
  std::vector<at::Tensor> own;
  for (const at::Tensor& value : dense) own.push_back(on_host(value));
  const auto shapes = lane.all_gather(call, shapes_of(own));
  std::vector<at::Tensor> all;
  WorldLane::Round round(lane, cat(call, " (values)"));
  std::vector<ConstBytes> mine;
  for (const at::Tensor& each : own) mine.push_back(memory_of(each));
  for (int w = 0; w < world.workers(); ++w) {
    if (w == world.index()) {
      all.insert(all.end(), own.begin(), own.end());
      continue;
    }
    std::vector<MutableBytes> into;
    for (const Shape& shape : shapes_in(shapes[w])) {
      all.push_back(at::empty(shape.sizes, at::TensorOptions(shape.dtype)));
      into.push_back(memory_of(all.back()));
    }
    round.send(w, mine);
    round.expect(w, std::move(into));
  }
  round.finish();
  return all;
}

}  // namespace

std::string call_with_tensors(std::string_view call, std::span<const at::Tensor> tensors) {
  std::string text(call);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    text += cat(i ? ", " : " of ", collectives::describe(tensors[i]));
  }
  return text;
}

/// Sparse tensors travel as their indices and their values.
std::vector<at::Tensor> all_of_world(WorldLane& lane, std::string_view call,
                                     std::span<const at::Tensor> values) {
  if (lane.world().workers() == 1) return {values.begin(), values.end()};
  const bool sparse = std::any_of(values.begin(), values.end(),
                                  [](const at::Tensor& value) { return value.is_sparse(); });
  if (!sparse) return rows_of_world(lane, call, values);
  std::vector<at::Tensor> indices, entries;
  for (const at::Tensor& value : values) {
    indices.push_back(value._indices());
    entries.push_back(value._values());
  }
  const auto all_indices = rows_of_world(lane, cat(call, " (indices)"), indices);
  const auto all_entries = rows_of_world(lane, call, entries);
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < all_indices.size(); ++i) {
    all.push_back(at::_sparse_coo_tensor_unsafe(
        all_indices[i], all_entries[i], values[0].sizes(),
        values[0].options().device(at::kCPU).dtype(all_entries[i].scalar_type())));
  }
  return all;
}

at::Tensor reduce_over_world(WorldLane& lane, std::string_view call, ReduceOp op,
                             std::span<const at::Tensor> values,
                             const collectives::Accumulation& accumulation) {
  const World& world = lane.world();
  if (world.workers() == 1) return collectives::reduce_tensors(op, values, accumulation);
  const at::Tensor& first = values[0];
  if (accumulation || !is_addable_in_place(first)) {
    const auto all = all_of_world(lane, call_with_tensors(call, values.first(1)), values);
    return collectives::reduce_tensors(op, all, accumulation).to(first.device());
  }
  collectives::check_reducible("reduce", values, world.first());
  std::vector<at::Tensor> sums;
  std::vector<std::vector<void*>> nodes;
  for (const Node node : world.nodes()) {
    const auto in_node = values.subspan(node.lo - world.first(), node.size());
    sums.push_back(on_host(collectives::sum_in_tree(in_node, node)));
    nodes.push_back({sums.back().data_ptr()});
  }
  const at::Tensor result = at::empty(first.sizes(), first.options().device(at::kCPU));
  void* const output = result.data_ptr();
  const collectives::Division division(op, result, world.replicas());
  WorldSum(world, {{first.scalar_type(), first.numel()}})
      .run(lane, call_with_tensors(cat(call, '(', op, ')'), values.first(1)), nodes, {&output, 1},
           division.in_kernel);
  return division.finish(result).to(first.device());
}

void broadcast_over_world(WorldLane& lane, std::string_view call,
                          std::span<const at::Tensor> tensors) {
  if (lane.world().workers() == 1) return;
  std::vector<at::Tensor> memory;
  std::vector<MutableBytes> parts;
  for (const at::Tensor& tensor : tensors) {
    memory.push_back(on_host(tensor));
    parts.push_back(memory_of(memory.back()));
  }
  lane.broadcast(call_with_tensors(call, tensors), parts);
  if (lane.world().is_chief()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (memory[i].data_ptr() != tensors[i].data_ptr()) tensors[i].detach().copy_(memory[i]);
  }
}

}  // namespace cohort
