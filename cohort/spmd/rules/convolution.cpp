// Convolutions: each task has a part of the batch, of the groups, of the channels on both sides and
// of each dimension of the result. It reads what its windows reach, which may lie in neighbouring
// tiles (the halo); gradients of the input are added where windows overlap.

#include <ATen/ATen.h>

#include "cohort/base/error.h"
#include "cohort/spmd/rules/windows.h"

namespace cohort::spmd {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return (a - (a % b + b) % b) / b; }
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

/// The same as reach_of for a transposed convolution, where input i adds to the outputs from
/// i * stride - padding on. It computes more than [begin, end), and cuts off as much at the front
/// as at the end, but for less than a stride; inputs are added where that is not so yet.
Reach transposed_reach_of(const Window& window, std::int64_t begin, std::int64_t end) {
  const std::int64_t s = window.stride, more = window.extent() - 1;
  const std::int64_t front = begin + window.padding, back = end - 1 + window.padding;
  std::int64_t first = std::min(ceil_div(front - more, s), floor_div(front, s));
  std::int64_t last = std::max(floor_div(back, s), ceil_div(back - more, s));
  const std::int64_t before = front - first * s, after = last * s + more - back;
  if (after > before) first -= ceil_div(after - before, s);
  if (before > after) last += (before - after) / s;
  const std::int64_t padding = front - first * s;
  return {first, last + 1, padding, padding - (last * s + more - back)};
}

/// The sizes and options of a call.
struct Convolution {
  Convolution(const Tensor& x, const Tensor& weight, at::IntArrayRef stride,
              at::IntArrayRef padding, at::IntArrayRef dilation, bool is_transposed,
              at::IntArrayRef out_padding, std::int64_t group_count);

  int spatial_dims() const { return static_cast<int>(windows.size()); }
  int in_dim() const { return transposed ? 0 : 1; }  // of the weight
  int out_dim() const { return transposed ? 1 : 0; }
  Dims output_sizes() const;

  std::vector<Window> windows;
  Dims stride, padding, dilation, output_padding;
  bool transposed;
  std::int64_t batch, groups, in_channels, out_channels;  // channels of one group
  Dims in, out;                                           // of the other dimensions
};

Convolution::Convolution(const Tensor& x, const Tensor& weight, at::IntArrayRef own_stride,
                         at::IntArrayRef own_padding, at::IntArrayRef own_dilation,
                         bool is_transposed, at::IntArrayRef out_padding, std::int64_t group_count)
    : stride(for_each_dim(own_stride, x.dim() - 2)),
      padding(for_each_dim(own_padding, x.dim() - 2)),
      dilation(for_each_dim(own_dilation, x.dim() - 2)),
      output_padding(for_each_dim(out_padding, x.dim() - 2)),
      transposed(is_transposed),
      batch(x.size(0)),
      groups(group_count) {
  if (x.dim() != weight.dim() || x.dim() < 3) {
    throw InvalidArgument(
        "convolution", cat("an input of sizes ", x.sizes(), " does not go with a weight of sizes ",
                           weight.sizes()));
  }
  in_channels = weight.size(in_dim()) / (transposed ? groups : 1);
  out_channels = weight.size(out_dim()) / (transposed ? 1 : groups);
  if (x.size(1) != in_channels * groups) {
    throw InvalidArgument("convolution", cat("given ", groups, " groups and a weight of sizes ",
                                             weight.sizes(), ", expected an input with ",
                                             in_channels * groups, " channels, got ", x.sizes()));
  }
  for (int d = 0; d < x.dim() - 2; ++d) {
    windows.push_back({weight.size(d + 2), stride[d], padding[d], dilation[d]});
    const std::int64_t size = x.size(d + 2), extent = windows[d].extent();
    in.push_back(size);
    out.push_back(transposed ? (size - 1) * stride[d] - 2 * padding[d] + extent + output_padding[d]
                             : floor_div(size + 2 * padding[d] - extent, stride[d]) + 1);
    if (out[d] <= 0) {
      throw InvalidArgument("convolution", cat("the kernel of sizes ", weight.sizes().slice(2),
                                               " does not fit into an input of sizes ", x.sizes()));
    }
  }
}

Dims Convolution::output_sizes() const {
  Dims sizes{batch, groups * out_channels};
  sizes.append(out.begin(), out.end());
  return sizes;
}

// The dimensions of the grid of tasks. Channels are those of one group: they are cut only where
// tasks have one group each.
enum Dim : int { kBatch, kGroups, kOut, kIn, kSpatial };

const Cuts* cuts_along(const Tensor& tensor, int dim) {
  if (!is_sharded(tensor) || layout_of(tensor).parts(dim) == 1) return nullptr;
  return &layout_of(tensor).cuts(dim);
}
int parts_along(const Tensor& tensor, int dim) {
  return is_sharded(tensor) ? layout_of(tensor).parts(dim) : 1;
}

/// How a convolution, or its gradient, is cut into tasks.
class Tasks {
 public:
  /// `gradient` is that of the result; undefined in the forward direction.
  Tasks(Operation& operation, const Convolution& convolution, const MeshPtr& mesh, const Tensor& x,
        const Tensor& weight, const Tensor& bias, const Tensor& gradient);

  const Layout& layout() const { return layout_; }
  bool has_partial_sums() const { return layout_.parts(kIn) > 1; }
  /// That of the result, if no task computes only a part of its sums.
  LayoutPtr result_layout() const;

  /// A task's part of everything.
  struct Task {
    Region input, weight, bias, output;
    Dims padding, output_padding;
    std::int64_t groups;
    bool is_first_sum;  // of those that are added for one result
  };
  Task task(int number) const;

 private:
  Layout solve(Operation& operation) const;
  void cut_channels(TaskGrid& grid) const;
  void cut_groups(TaskGrid& grid) const;

  const Convolution& of_;
  const MeshPtr& mesh_;
  const Tensor &x_, &weight_, &bias_, &gradient_;
  const Layout layout_;
};

Tasks::Tasks(Operation& operation, const Convolution& convolution, const MeshPtr& mesh,
             const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& gradient)
    : of_(convolution),
      mesh_(mesh),
      x_(x),
      weight_(weight),
      bias_(bias),
      gradient_(gradient),
      layout_(solve(operation)) {}

Layout Tasks::solve(Operation& operation) const {
  Dims sizes{of_.batch, of_.groups, of_.out_channels, of_.in_channels};
  sizes.append(of_.out.begin(), of_.out.end());
  TaskGrid grid(*mesh_, sizes);
  std::vector<int> dim_of{0, 1, 1, 1}, others{kBatch, kGroups};
  if (of_.groups == 1) others.push_back(kOut);
  for (int d = 0; d < of_.spatial_dims(); ++d) {
    dim_of.push_back(d + 2);
    others.push_back(kSpatial + d);
  }
  for (const Tensor& tensor : {x_, gradient_}) {
    if (!is_sharded(tensor)) continue;
    grid.cut(kBatch, layout_of(tensor).cuts(0));
    for (int d = 0; d < of_.spatial_dims(); ++d) {
      grid.cut_like(kSpatial + d, layout_of(tensor).cuts(d + 2));
    }
  }
  of_.groups == 1 ? cut_channels(grid) : cut_groups(grid);
  const std::vector<Tensor> tensors{x_, gradient_, weight_, bias_};
  if (is_any_cut(tensors)) {
    grid.cut_longest(others);
    grid.cut_longest(std::vector<int>{kIn});
    if (grid.tasks() == 1) {
      operation.gathers("no dimension that could be split is left", describe(tensors));
    }
  }
  return grid.with_devices(tensors, dim_of);
}

/// The gradient of an input is best computed where the input lies. In the forward direction each
/// task computes whole sums, of some channels, unless the weight is cut along the sums too.
void Tasks::cut_channels(TaskGrid& grid) const {
  const Cuts* of_input = cuts_along(x_, 1);
  const Cuts* of_sums = cuts_along(weight_, of_.in_dim());
  if (gradient_.defined() ? of_input || of_sums : of_input && of_sums) {
    grid.cut(kIn, of_input ? *of_input : *of_sums);
  }
  for (const Cuts* cuts :
       {cuts_along(gradient_, 1), cuts_along(weight_, of_.out_dim()), cuts_along(bias_, 0)}) {
    if (cuts) grid.cut(kOut, *cuts);
  }
  if (grid.parts(kIn) == 1 && (of_input || of_sums)) {
    grid.cut_evenly(kOut, static_cast<std::int64_t>((of_input ? of_input : of_sums)->size()) - 1);
  }
}

void Tasks::cut_groups(TaskGrid& grid) const {
  int parts = std::max(parts_along(x_, 1), parts_along(gradient_, 1));
  parts = std::max({parts, parts_along(weight_, 0), parts_along(bias_, 0)});
  grid.cut_evenly(kGroups, parts);
  if (grid.parts(kGroups) == of_.groups) grid.cut_evenly(kOut, parts / of_.groups);
}

LayoutPtr Tasks::result_layout() const {
  std::vector<Cuts> cuts{layout_.cuts(kBatch), {0}};
  const Cuts &groups = layout_.cuts(kGroups), &channels = layout_.cuts(kOut);
  for (std::size_t g = 1; g < groups.size(); ++g) {
    for (std::size_t c = 1; c < channels.size(); ++c) {
      cuts[1].push_back((groups[g] - 1) * of_.out_channels + channels[c]);
    }
  }
  cuts.insert(cuts.end(), layout_.cuts().begin() + kSpatial, layout_.cuts().end());
  return std::make_shared<Layout>(of_.output_sizes(), std::move(cuts), layout_.devices());
}

Tasks::Task Tasks::task(int number) const {
  const Region own = layout_.region(number);
  const auto channels = [&](Dim dim, std::int64_t of_group) {
    return std::pair(own.begin[kGroups] * of_group + own.begin[dim],
                     (own.end[kGroups] - 1) * of_group + own.end[dim]);
  };
  const auto [in_begin, in_end] = channels(kIn, of_.in_channels);
  const auto [out_begin, out_end] = channels(kOut, of_.out_channels);
  Task task;
  task.input = {{own.begin[kBatch], in_begin}, {own.end[kBatch], in_end}};
  task.output = {{own.begin[kBatch], out_begin}, {own.end[kBatch], out_end}};
  task.bias = {{out_begin}, {out_end}};
  task.weight = of_.transposed ? Region{{in_begin, own.begin[kOut]}, {in_end, own.end[kOut]}}
                               : Region{{out_begin, own.begin[kIn]}, {out_end, own.end[kIn]}};
  task.groups = own.end[kGroups] - own.begin[kGroups];
  task.is_first_sum = own.begin[kIn] == 0;
  for (int d = 0; d < of_.spatial_dims(); ++d) {
    const std::int64_t begin = own.begin[kSpatial + d], end = own.end[kSpatial + d];
    Reach reach = reach_of(of_.windows[d], of_.in[d], of_.out[d], begin, end);
    if (of_.transposed) {
      reach = begin == 0 && end == of_.out[d]
                  ? Reach{0, of_.in[d], of_.padding[d], of_.output_padding[d]}
                  : transposed_reach_of(of_.windows[d], begin, end);
    }
    task.input.begin.push_back(reach.begin);
    task.input.end.push_back(reach.end);
    task.padding.push_back(reach.padding);
    task.output_padding.push_back(reach.output_padding);
    task.output.begin.push_back(begin);
    task.output.end.push_back(end);
    task.weight.begin.push_back(0);
    task.weight.end.push_back(of_.windows[d].kernel);
  }
  return task;
}

Tensor convolution_tiles(const Tensor& x, const Tensor& weight, const c10::optional<Tensor>& bias,
                         at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                         bool transposed, at::IntArrayRef output_padding, std::int64_t groups) {
  Operation operation("aten::convolution");
  const Tensor b = bias.value_or(Tensor());
  const MeshPtr mesh = common_mesh("aten::convolution", std::vector<Tensor>{x, weight, b});
  const Convolution of(x, weight, stride, padding, dilation, transposed, output_padding, groups);
  const Tasks tasks(operation, of, mesh, x, weight, b, Tensor());
  auto results = make_tiles(*mesh, tasks.layout(), [&](int i) {
    const Tasks::Task task = tasks.task(i);
    const bool adds_bias = b.defined() && task.is_first_sum;
    return at::convolution(fetch(x, task.input), fetch(weight, task.weight),
                           adds_bias ? fetch(b, task.bias) : Tensor(), of.stride, task.padding,
                           of.dilation, transposed, task.output_padding, task.groups);
  });
  if (!tasks.has_partial_sums()) return wrap(mesh, tasks.result_layout(), std::move(results));
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < results.size(); ++i) {
    pieces.push_back({tasks.task(static_cast<int>(i)).output, results[i]});
  }
  return sum_of_own_pieces(mesh, spread(*mesh, of.output_sizes()), std::move(pieces));
}

/// With settings for other machines.
Tensor convolution_with_settings_tiles(const Tensor& x, const Tensor& weight,
                                       const c10::optional<Tensor>& bias, at::IntArrayRef stride,
                                       at::IntArrayRef padding, at::IntArrayRef dilation,
                                       bool transposed, at::IntArrayRef output_padding,
                                       std::int64_t groups, bool, bool, bool, bool) {
  return convolution_tiles(x, weight, bias, stride, padding, dilation, transposed, output_padding,
                           groups);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward_tiles(
    const Tensor& gradient, const Tensor& x, const Tensor& weight, at::OptionalIntArrayRef,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> wanted) {
  Operation operation("aten::convolution_backward");
  const MeshPtr mesh =
      common_mesh("aten::convolution_backward", std::vector<Tensor>{gradient, x, weight});
  const Convolution of(x, weight, stride, padding, dilation, transposed, output_padding, groups);
  const Tasks tasks(operation, of, mesh, x, weight, Tensor(), gradient);
  const int count = tasks.layout().tiles();
  std::vector<Piece> of_input(count), of_weight(count), of_bias(count);
  mesh->run(tasks.layout().devices(), [&](int i) {
    const Tasks::Task task = tasks.task(i);
    of_input[i].region = task.input;
    of_weight[i].region = task.weight;
    of_bias[i].region = task.bias;
    const Dims bias_sizes = task.bias.sizes();
    std::tie(of_input[i].values, of_weight[i].values, of_bias[i].values) = at::convolution_backward(
        fetch(gradient, task.output), fetch(x, task.input), fetch(weight, task.weight),
        at::IntArrayRef(bias_sizes), of.stride, task.padding, of.dilation, transposed,
        task.output_padding, task.groups, {wanted[0], wanted[1], wanted[2] && task.is_first_sum});
  });
  std::erase_if(of_bias, [](const Piece& piece) { return !piece.values.defined(); });
  const BelowAutograd below;
  Tensor input_gradient, weight_gradient, bias_gradient;
  if (wanted[0]) input_gradient = gradient_of(x, mesh, tasks.layout(), std::move(of_input));
  if (wanted[1]) {
    weight_gradient = is_sharded(weight)
                          ? sum_of_own_pieces(mesh, impl(weight)->layout(), std::move(of_weight))
                          : plain_sum(weight.sizes(), of_weight);
  }
  if (wanted[2]) bias_gradient = plain_sum({of.groups * of.out_channels}, of_bias);
  return {input_gradient, weight_gradient, bias_gradient};
}

}  // namespace

void register_convolution(torch::Library& library) {
  library.impl("convolution", convolution_tiles);
  library.impl("_convolution", convolution_with_settings_tiles);
  library.impl("convolution_backward", convolution_backward_tiles);
}

}  // namespace cohort::spmd
