#include "cohort/collectives/world_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"
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
at::Tensor on_host(const at::Tensor& tensor) { return as_read(tensor.detach().cpu()); }

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

bool is_sparse(const at::Tensor& tensor) { return tensor.is_sparse(); }

/// Sparse tensors count as dense ones beside a dense one, as in `reduce_tensors`.
std::vector<at::Tensor> in_one_layout(std::span<const at::Tensor> values) {
  std::vector<at::Tensor> all(values.begin(), values.end());
  if (std::all_of(all.begin(), all.end(), is_sparse)) return all;
  for (at::Tensor& value : all) {
    if (value.is_sparse()) value = value.to_dense();
  }
  return all;
}

/// The dense tensors that each worker gives.
std::vector<std::vector<at::Tensor>> of_each_worker(WorldLane& lane, std::string_view call,
                                                    std::span<const at::Tensor> dense) {
  const World& world = lane.world();
  std::vector<at::Tensor> own;
  for (const at::Tensor& value : dense) own.push_back(on_host(value));
  const auto shapes = lane.all_gather(call, shapes_of(own));
  std::vector<std::vector<at::Tensor>> all(world.workers());
  WorldLane::Round round(lane, cat(call, " (values)"));
  std::vector<ConstBytes> mine;
  for (const at::Tensor& each : own) mine.push_back(memory_of(each));
  for (int w = 0; w < world.workers(); ++w) {
    if (w == world.index()) {
      all[w] = own;
      continue;
    }
    std::vector<MutableBytes> into;
    for (const Shape& shape : shapes_in(shapes[w])) {
      all[w].push_back(at::empty(shape.sizes, at::TensorOptions(shape.dtype)));
      into.push_back(memory_of(all[w].back()));
    }
    round.send(w, mine);
    round.expect(w, std::move(into));
  }
  round.finish();
  return all;
}

/// Indices, values and sizes of sparse tensors: all indices come first.
std::vector<at::Tensor> taken_apart(std::span<const at::Tensor> sparse) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& value : sparse) parts.push_back(value._indices());
  for (const at::Tensor& value : sparse) parts.push_back(value._values());
  for (const at::Tensor& value : sparse) parts.push_back(at::tensor(value.sizes(), at::kLong));
  return parts;
}

std::vector<at::Tensor> put_together(std::span<const at::Tensor> parts) {
  const std::size_t count = parts.size() / 3;
  std::vector<at::Tensor> sparse;
  for (std::size_t i = 0; i < count; ++i) {
    const at::Tensor& sizes = parts[2 * count + i];
    sparse.push_back(at::_sparse_coo_tensor_unsafe(
        parts[i], parts[count + i], at::IntArrayRef(sizes.data_ptr<std::int64_t>(), sizes.numel()),
        parts[count + i].options().layout(at::kSparse)));
  }
  return sparse;
}

}  // namespace

std::vector<at::Tensor> in_one_layout_of_world(WorldLane& lane, std::string_view call,
                                               std::span<const at::Tensor> values) {
  if (lane.world().workers() == 1) return {values.begin(), values.end()};
  auto own = in_one_layout(values);
  const std::byte are_sparse{is_sparse(own[0])};
  for (const auto& each : lane.all_gather(cat(call, " (layout)"), {&are_sparse, 1})) {
    if (is_sparse(own[0]) && each[0] == std::byte{0}) {
      for (at::Tensor& value : own) value = value.to_dense();
    }
  }
  return own;
}

std::string call_with_tensors(std::string_view call, std::span<const at::Tensor> tensors) {
  std::string text(call);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    text += cat(i ? ", " : " of ", collectives::describe(tensors[i]));
  }
  return text;
}

std::vector<at::Tensor> all_of_world(WorldLane& lane, std::string_view call,
                                     std::span<const at::Tensor> values) {
  if (lane.world().workers() == 1) return {values.begin(), values.end()};
  const auto own = in_one_layout(values);
  const bool are_sparse = is_sparse(own[0]);
  const auto parts = are_sparse ? of_each_worker(lane, cat(call, " (sparse)"), taken_apart(own))
                                : of_each_worker(lane, call, own);
  std::vector<at::Tensor> all;
  for (const auto& each : parts) {
    const auto tensors = are_sparse ? put_together(each) : each;
    all.insert(all.end(), tensors.begin(), tensors.end());
  }
  return all;
}

at::Tensor of_chief(WorldLane& lane, std::string_view call, const at::Tensor& own) {
  if (lane.world().workers() == 1) return own;
  const at::Tensor mine = on_host(own);
  const auto shape = shapes_of({&mine, 1});
  const ConstBytes parts[] = {shape, memory_of(mine)};
  const WorldLane::Bytes chiefs = lane.of_chief(call, parts);
  ConstBytes rest(chiefs);
  const Shape theirs = shapes_in(rest).front();
  const at::Tensor result = at::empty(theirs.sizes, at::TensorOptions(theirs.dtype));
  const ConstBytes values = rest.last(result.nbytes());
  if (!values.empty()) std::memcpy(result.data_ptr(), values.data(), values.size());
  return result.to(own.device());
}

at::Tensor reduce_over_world(WorldLane& lane, std::string_view call, ReduceOp op,
                             std::span<const at::Tensor> values,
                             const collectives::Accumulation& accumulation) {
  const World& world = lane.world();
  if (world.workers() == 1) return collectives::reduce_tensors(op, values, accumulation);
  const auto own = in_one_layout(values);
  const at::Tensor& first = own[0];
  const std::string text = call_with_tensors(cat(call, '(', op, ')'), {&first, 1});
  if (accumulation || !is_addable_in_place(first)) {
    const auto all = all_of_world(lane, text, own);
    return collectives::reduce_tensors(op, all, accumulation).to(first.device());
  }
  collectives::check_reducible("reduce", own, world.first());
  collectives::check_addable("reduce", first.scalar_type());
  std::vector<at::Tensor> sums;
  std::vector<std::vector<void*>> nodes;
  for (const Node node : world.nodes()) {
    const auto in_node = std::span(own).subspan(world.place_of(node.lo), node.size());
    sums.push_back(on_host(collectives::sum_in_tree(in_node, node)));
    nodes.push_back({sums.back().data_ptr()});
  }
  const at::Tensor result = at::empty(first.sizes(), first.options().device(at::kCPU));
  void* const output = result.data_ptr();
  const collectives::Division division(op, result, world.replicas());
  WorldSum(world, {{first.scalar_type(), first.numel()}})
      .run(lane, text, nodes, {&output, 1}, division.in_kernel);
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
