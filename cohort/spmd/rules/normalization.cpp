// Normalization of batches, layers and groups. Where what has one mean is split, each task finds
// the mean and the variance of its part, these are combined in the order of the tasks, and each
// task normalizes its part.

#include <ATen/ATen.h>

#include <numeric>

#include "cohort/spmd/partition.h"

namespace cohort::spmd {
namespace {

using Task = Partition::Task;
using Optional = c10::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

Three three(std::vector<Tensor> all) { return {all[0], all[1], all[2]}; }

/// "abcd" for four dimensions, from 'a' on.
std::string letters_from(char first, std::int64_t dims) {
  std::string letters(dims, ' ');
  std::iota(letters.begin(), letters.end(), first);
  return letters;
}
std::string stars(std::int64_t dims) { return std::string(dims, '*'); }

/// Whether one of the dimensions [begin, end) has several parts.
bool is_cut_along(const Tensor& x, std::int64_t begin, std::int64_t end) {
  if (!is_sharded(x)) return false;
  for (std::int64_t d = begin; d < end; ++d) {
    if (layout_of(x).parts(static_cast<int>(d)) > 1) return true;
  }
  return false;
}

// Means and variances.

struct Moments {
  Tensor mean, var;  // not corrected: divided by the count
};

/// Combines the counts, means and variances of two parts, which are the rows of a tensor.
void combine_moments(Tensor& all, const Tensor& more) {
  const Tensor count = all[0] + more[0], apart = more[1] - all[1], share = more[0] / count;
  all[1].addcmul_(apart, share);
  all[2].addcmul_(more[2] - all[2], share).addcmul_(apart.square(), share * (1 - share));
  all[0].copy_(count);
}

/// Of every channel, over all else. Narrow types are added up in a wider one.
Tensor moments_of_channels(const Tensor& part) {
  const bool is_narrow = part.element_size() < 4;
  auto [mean, var] = at::batch_norm_update_stats(is_narrow ? part.to(at::kFloat) : part, {}, {}, 0);
  const auto count = static_cast<double>(part.numel() / part.size(1));
  return at::stack({at::full_like(mean, count), mean, var});
}

/// Of x, with the dimensions whose letters are in `kept`: these come first, or are the channels.
Moments moments_of(const char* name, const Tensor& x, const std::string& letters,
                   const std::string& kept) {
  const auto find = [&](const Tensor& part) {
    if (kept == "c") return moments_of_channels(part);
    std::vector<std::int64_t> sizes = part.sizes().slice(0, kept.size()).vec();
    const Tensor rows = part.reshape({1, c10::multiply_integers(sizes),
                                      c10::multiply_integers(part.sizes().slice(kept.size()))});
    sizes.insert(sizes.begin(), 3);
    return moments_of_channels(rows).reshape(sizes);
  };
  Partition parts(name);
  parts.take(x, letters);
  const Tensor all = parts.give(
      "*" + kept, [&](const Task& t) { return find(t[0]); }, combine_moments);
  return {all.select(0, 1), all.select(0, 2)};
}

// Batches: of [n, channels, …], over all but the channels.

/// n, c, and one for each further dimension.
std::string batch_letters(const Tensor& x) { return "nc" + letters_from('p', x.dim() - 2); }

/// A number for each channel, to go with the dimensions of a tensor.
Tensor along_channels(const Tensor& values, const Tensor& x) {
  Dims sizes(x.dim(), 1);
  sizes[1] = values.numel();
  return values.view(sizes);
}

void update_running(const Tensor& running, const Tensor& value, double momentum) {
  if (running.defined()) running.mul_(1 - momentum).add_(value, momentum);
}

Tensor normalized_batch(const char* name, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Moments& moments, double eps) {
  Partition parts(name);
  const std::string letters = batch_letters(x);
  parts.take(x, letters).take(weight, "c").take(bias, "c");
  parts.take(moments.mean, "c").take(moments.var, "c");
  return parts.give(letters, [&](const Task& t) {
    return std::get<0>(at::native_batch_norm(t[0], t[1], t[2], t[3], t[4], false, 0, eps));
  });
}

Three batch_norm_tiles(const Tensor& x, const Optional& weight, const Optional& bias,
                       const Optional& running_mean, const Optional& running_var, bool training,
                       double momentum, double eps) {
  const char* name = "aten::native_batch_norm";
  const Operation operation(name);
  const BelowAutograd below;
  const Tensor w = weight.value_or(Tensor()), b = bias.value_or(Tensor());
  const Tensor mean = running_mean.value_or(Tensor()), var = running_var.value_or(Tensor());
  const auto type = w.defined() ? w.options() : mean.defined() ? mean.options() : x.options();
  if (!training) {
    const Tensor none = at::empty({0}, at::TensorOptions(type.dtype()));
    return {normalized_batch(name, x, w, b, {mean, var}, eps), none, none};
  }
  const std::int64_t count = x.numel() / std::max<std::int64_t>(x.size(1), 1);
  const Moments own = moments_of(name, x, batch_letters(x), "c");
  update_running(mean, own.mean, momentum);
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  update_running(var, at::mul(own.var, unbiased), momentum);
  const Moments cast{own.mean.to(type.dtype()), own.var.to(type.dtype())};
  const Tensor inverse = at::rsqrt(at::add(own.var, eps)).to(type.dtype());
  return {normalized_batch(name, x, w, b, cast, eps), cast.mean, inverse};
}

/// a * gradient + b * x + c, where the latter have size 1 in some dimensions.
Tensor linear_in_both(const Tensor& gradient, const Tensor& x, const Tensor& a, const Tensor& b,
                      const Tensor& c) {
  return at::addcmul(c, x, b).addcmul_(gradient, a).to(x.scalar_type());
}

/// The gradient of the input, from those of weight and bias. With x' = (x - mean) * inverse it is
/// weight * inverse * (gradient - mean of gradient - x' * mean of (gradient * x')).
Tensor batch_gradient(const char* name, const Tensor& gradient, const Tensor& x, const Tensor& w,
                      const Tensor& mean, const Tensor& inverse, const Three& sums) {
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  const Tensor scale = w.defined() ? at::mul(inverse, w) : inverse;
  const Tensor slope = at::mul(at::mul(scale, inverse), at::div(std::get<1>(sums), -count));
  const Tensor shift =
      at::sub(at::mul(scale, at::div(std::get<2>(sums), -count)), at::mul(slope, mean));
  Partition parts(name);
  const std::string letters = batch_letters(x);
  parts.take(gradient, letters).take(x, letters);
  for (const Tensor& each : {scale, slope, shift}) parts.take(each, "c");
  return parts.give(letters, [&](const Task& t) {
    return linear_in_both(t[0], t[1], along_channels(t[2], x), along_channels(t[3], x),
                          along_channels(t[4], x));
  });
}

Three batch_norm_backward_tiles(const Tensor& gradient, const Tensor& x, const Optional& weight,
                                const Optional& running_mean, const Optional& running_var,
                                const Optional& mean, const Optional& inverse, bool training,
                                double eps, std::array<bool, 3> wanted) {
  const char* name = "aten::native_batch_norm_backward";
  const Operation operation(name);
  const BelowAutograd below;
  const Tensor w = weight.value_or(Tensor());
  const Tensor first = (training ? mean : running_mean).value_or(Tensor());
  const Tensor second = (training ? inverse : running_var).value_or(Tensor());
  // In training the gradient of the input needs the other two, which are sums over all.
  std::array<bool, 3> now = wanted;
  if (training) now = {false, wanted[0] || wanted[1], wanted[0] || wanted[2]};
  Partition parts(name);
  const std::string letters = batch_letters(x);
  parts.take(gradient, letters).take(x, letters).take(w, "c").take(first, "c").take(second, "c");
  Three sums = three(parts.give_all({letters, "c", "c"}, [&](const Task& t) {
    // LibTorch takes two orders in memory for one where dimensions of size 1 hide the difference.
    const bool is_alike = t[0].strides() == t[1].strides();
    const Tensor none, own = is_alike ? t[0] : t[0].contiguous();
    const Tensor in = is_alike ? t[1] : t[1].contiguous();
    auto [gx, gw, gb] = training ? at::native_batch_norm_backward(own, in, t[2], none, none, t[3],
                                                                  t[4], true, eps, now)
                                 : at::native_batch_norm_backward(own, in, t[2], t[3], t[4], none,
                                                                  none, false, eps, now);
    return std::vector<Tensor>{gx, gw, gb};
  }));
  if (training && wanted[0]) {
    std::get<0>(sums) = batch_gradient(name, gradient, x, w, first, second, sums);
  }
  return sums;
}

// How LibTorch 2 spells the same.

Three batch_norm_legit_tiles(const Tensor& x, const Optional& weight, const Optional& bias,
                             Tensor& running_mean, Tensor& running_var, bool training,
                             double momentum, double eps) {
  return batch_norm_tiles(x, weight, bias, running_mean, running_var, training, momentum, eps);
}
Three batch_norm_no_stats_tiles(const Tensor& x, const Optional& weight, const Optional& bias,
                                bool training, double momentum, double eps) {
  return batch_norm_tiles(x, weight, bias, {}, {}, training, momentum, eps);
}
std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_with_update_tiles(
    const Tensor& x, const Optional& weight, const Optional& bias, Tensor& running_mean,
    Tensor& running_var, double momentum, double eps) {
  auto [y, mean, inverse] =
      batch_norm_tiles(x, weight, bias, running_mean, running_var, true, momentum, eps);
  return {y, mean, inverse, at::empty({0}, at::TensorOptions(at::kByte))};
}
Three batch_norm_backward_of_update_tiles(const Tensor& gradient, const Tensor& x,
                                          const Tensor& weight, const Optional& running_mean,
                                          const Optional& running_var, const Optional& mean,
                                          const Optional& inverse, bool training, double eps,
                                          std::array<bool, 3> wanted, const Tensor&) {
  return batch_norm_backward_tiles(gradient, x, weight, running_mean, running_var, mean, inverse,
                                   training, eps, wanted);
}

// Layers: over the last dimensions.

/// The letters of a call: those before are kept, the others share a mean.
struct LayerLetters {
  std::string kept, shared;

  LayerLetters(const Tensor& x, at::IntArrayRef shape)
      : kept(letters_from('a', x.dim() - static_cast<std::int64_t>(shape.size()))),
        shared(letters_from('p', static_cast<std::int64_t>(shape.size()))) {}
  std::string all() const { return kept + shared; }
  /// If what shares a mean is needed whole.
  std::string with_whole() const { return kept + stars(static_cast<std::int64_t>(shared.size())); }
};

/// Whether tasks have parts of what shares a mean; also if there is nothing else to split.
bool is_layer_cut(const Tensor& x, at::IntArrayRef shape) {
  const std::int64_t kept = x.dim() - static_cast<std::int64_t>(shape.size());
  return is_cut_along(x, kept, x.dim()) || c10::multiply_integers(x.sizes().slice(0, kept)) == 1;
}

Three layer_norm_of_parts(const char* name, const Tensor& x, at::IntArrayRef shape, const Tensor& w,
                          const Tensor& b, double eps) {
  const LayerLetters letters(x, shape);
  const Moments moments = moments_of(name, x, letters.all(), letters.kept);
  Dims sizes(x.sizes().begin(), x.sizes().begin() + letters.kept.size());
  sizes.resize(x.dim(), 1);
  const Tensor mean = moments.mean.reshape(sizes).to(x.scalar_type());
  const Tensor inverse = at::rsqrt(at::add(moments.var.reshape(sizes), eps)).to(x.scalar_type());
  Partition parts(name);
  for (const Tensor& each : {x, mean, inverse}) parts.take(each, letters.all());
  for (const Tensor& each : {w, b}) parts.take(each, letters.shared);
  const Tensor y = parts.give(letters.all(), [&](const Task& t) {
    Tensor part = at::sub(t[0], t[1]).mul_(t[2]);
    if (w.defined()) part.mul_(t[3]);
    return b.defined() ? part.add_(t[4]) : part;
  });
  return {y, mean, inverse};
}

Three layer_norm_tiles(const Tensor& x, at::IntArrayRef shape, const Optional& weight,
                       const Optional& bias, double eps) {
  const char* name = "aten::native_layer_norm";
  const Operation operation(name);
  const BelowAutograd below;
  const Tensor w = weight.value_or(Tensor()), b = bias.value_or(Tensor());
  if (is_layer_cut(x, shape)) return layer_norm_of_parts(name, x, shape, w, b, eps);
  const LayerLetters letters(x, shape);
  const std::string whole = stars(static_cast<std::int64_t>(shape.size()));
  Partition parts(name);
  parts.take(x, letters.with_whole()).take(w, whole).take(b, whole);
  return three(parts.give_all(
      {letters.with_whole(), letters.with_whole(), letters.with_whole()}, [&](const Task& t) {
        auto [y, mean, inverse] = at::native_layer_norm(t[0], shape, t[1], t[2], eps);
        return std::vector<Tensor>{y, mean, inverse};
      }));
}

Three layer_gradient_of_parts(const Tensor& gradient, const Tensor& x, at::IntArrayRef shape,
                              const Tensor& mean, const Tensor& inverse, const Tensor& w,
                              std::array<bool, 3> wanted) {
  std::vector<std::int64_t> kept(x.dim() - shape.size()), shared(shape.size());
  std::iota(kept.begin(), kept.end(), 0);
  std::iota(shared.begin(), shared.end(), static_cast<std::int64_t>(kept.size()));
  const auto sum_of_rows = [&](const Tensor& each) {
    return kept.empty() ? each : at::sum(each, kept);
  };
  const Tensor normal = at::mul(at::sub(x, mean), inverse);
  const Tensor product = at::mul(gradient, normal);
  Tensor of_input;
  if (wanted[0]) {
    const Tensor scaled = w.defined() ? at::mul(gradient, w) : gradient;
    const Tensor both = w.defined() ? at::mul(product, w) : product;
    of_input = at::sub(scaled, at::mean(scaled, shared, true));
    of_input = at::sub(of_input, at::mul(normal, at::mean(both, shared, true)));
    of_input = at::mul(of_input, inverse);
  }
  return {of_input, wanted[1] ? sum_of_rows(product) : Tensor(),
          wanted[2] ? sum_of_rows(gradient) : Tensor()};
}

Three layer_norm_backward_tiles(const Tensor& gradient, const Tensor& x, at::IntArrayRef shape,
                                const Tensor& mean, const Tensor& inverse, const Optional& weight,
                                const Optional& bias, std::array<bool, 3> wanted) {
  const char* name = "aten::native_layer_norm_backward";
  const Operation operation(name);
  const BelowAutograd below;
  const Tensor w = weight.value_or(Tensor()), b = bias.value_or(Tensor());
  if (is_layer_cut(x, shape) || is_layer_cut(gradient, shape)) {
    return layer_gradient_of_parts(gradient, x, shape, mean, inverse, w, wanted);
  }
  const std::string letters = LayerLetters(x, shape).with_whole();
  const std::string whole = stars(static_cast<std::int64_t>(shape.size()));
  Partition parts(name);
  for (const Tensor& each : {gradient, x, mean, inverse}) parts.take(each, letters);
  parts.take(w, whole).take(b, whole);
  return three(parts.give_all({letters, whole, whole}, [&](const Task& t) {
    auto [gx, gw, gb] = at::native_layer_norm_backward(
        t[0].contiguous(), t[1], shape, t[2].contiguous(), t[3].contiguous(), t[4], t[5], wanted);
    return std::vector<Tensor>{gx, gw, gb};
  }));
}

// Groups of channels: tensors are seen as [n, groups, channels of a group, …].

struct Groups {
  std::int64_t count;
  std::vector<std::int64_t> sizes;
  std::string letters, with_whole;

  Groups(const Tensor& x, std::int64_t groups)
      : count(groups), sizes{x.size(0), groups, x.size(1) / groups} {
    sizes.insert(sizes.end(), x.sizes().begin() + 2, x.sizes().end());
    letters = "ngd" + letters_from('p', x.dim() - 2);
    with_whole = "ng" + stars(x.dim() - 1);
  }
  Tensor seen(const Tensor& x) const { return x.reshape(sizes); }
  /// A weight or a bias, as [groups, channels of a group].
  Tensor of_channels(const Tensor& values) const {
    return values.defined() ? values.reshape({count, -1}) : values;
  }
};

/// A part of [n, groups, channels, …] as [n, all channels, the rest], contiguous for LibTorch.
Tensor as_images(const Tensor& part) {
  const std::int64_t rest = c10::multiply_integers(part.sizes().slice(3));
  return part.reshape({part.size(0), part.size(1) * part.size(2), rest}).contiguous();
}
Tensor flattened(const Tensor& values) { return values.defined() ? values.reshape({-1}) : values; }
/// [n, groups] or [n, groups, channels], to go with the dimensions of a part.
Tensor with_dims_of(const Tensor& part, const Tensor& values) {
  std::vector<std::int64_t> sizes = values.sizes().vec();
  sizes.resize(part.dim(), 1);
  return values.reshape(sizes);
}

Three group_norm_of_parts(const char* name, const Groups& groups, const Tensor& x, const Tensor& w,
                          const Tensor& b, double eps) {
  const Moments moments = moments_of(name, x, groups.letters, "ng");
  const Tensor mean = moments.mean.to(x.scalar_type());
  const Tensor inverse = at::rsqrt(at::add(moments.var, eps)).to(x.scalar_type());
  Partition parts(name);
  parts.take(x, groups.letters).take(mean, "ng").take(inverse, "ng").take(w, "gd").take(b, "gd");
  const Tensor y = parts.give(groups.letters, [&](const Task& t) {
    Tensor scale = t[2].unsqueeze(2);
    if (w.defined()) scale = at::mul(scale, t[3]);
    Tensor shift = at::mul(scale, t[1].unsqueeze(2)).neg_();
    if (b.defined()) shift = at::add(shift, t[4]);
    return at::addcmul(with_dims_of(t[0], shift), t[0], with_dims_of(t[0], scale));
  });
  return {y, mean, inverse};
}

Three group_norm_tiles(const Tensor& x, const Optional& weight, const Optional& bias, std::int64_t,
                       std::int64_t, std::int64_t, std::int64_t count, double eps) {
  const char* name = "aten::native_group_norm";
  const Operation operation(name);
  const BelowAutograd below;
  const Groups groups(x, count);
  const Tensor seen = groups.seen(x);
  const Tensor w = groups.of_channels(weight.value_or(Tensor()));
  const Tensor b = groups.of_channels(bias.value_or(Tensor()));
  const auto run = [&]() -> Three {
    if (is_cut_along(seen, 2, seen.dim()) || seen.size(0) * count == 1) {
      return group_norm_of_parts(name, groups, seen, w, b, eps);
    }
    Partition parts(name);
    parts.take(seen, groups.with_whole).take(w, "g*").take(b, "g*");
    return three(parts.give_all({groups.with_whole, "ng", "ng"}, [&](const Task& t) {
      const Tensor part = as_images(t[0]);
      auto [y, mean, inverse] =
          at::native_group_norm(part, flattened(t[1]), flattened(t[2]), part.size(0), part.size(1),
                                part.size(2), t[0].size(1), eps);
      return std::vector<Tensor>{y.reshape(t[0].sizes()), mean, inverse};
    }));
  };
  auto [y, mean, inverse] = run();
  return {y.reshape(x.sizes()), mean, inverse};
}

/// Sums over places of gradient * (x - mean) * inverse and of the gradient: [n, groups, channels].
std::vector<Tensor> sums_of_channels(const char* name, const Groups& groups, const Tensor& gradient,
                                     const Tensor& x, const Tensor& mean, const Tensor& inverse) {
  Partition parts(name);
  parts.take(gradient, groups.letters).take(x, groups.letters);
  parts.take(mean, "ng").take(inverse, "ng");
  return parts.give_all({"ngd", "ngd"}, [&](const Task& t) {
    const auto sizes = t[0].sizes().slice(0, 3);
    const auto as_channels = [&](const Tensor& part) {
      return part.reshape({1, c10::multiply_integers(sizes), -1});
    };
    const auto of_channels = [&](const Tensor& each) {
      return each.unsqueeze(2).expand(sizes).contiguous().view({-1});
    };
    const Tensor none;
    const auto [gx, products, sums] = at::native_batch_norm_backward(
        as_channels(t[0]), as_channels(t[1]), none, none, none, of_channels(t[2]),
        of_channels(t[3]), true, 0, {false, true, true});
    return std::vector<Tensor>{products.reshape(sizes), sums.reshape(sizes)};
  });
}

Three group_gradient_of_parts(const char* name, const Groups& groups, const Tensor& gradient,
                              const Tensor& x, const Tensor& mean, const Tensor& inverse,
                              const Tensor& w, std::array<bool, 3> wanted) {
  const auto sums = sums_of_channels(name, groups, gradient, x, mean, inverse);
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(0) * x.size(1));
  Tensor of_input;
  if (wanted[0]) {
    const auto mean_of = [&](const Tensor& each) {
      return at::div(at::sum(w.defined() ? at::mul(each, w) : each, 2), count);
    };
    const Tensor slope = at::mul(at::square(inverse), at::neg(mean_of(sums[0])));
    const Tensor shift = at::neg(at::add(at::mul(inverse, mean_of(sums[1])), at::mul(slope, mean)));
    Partition parts(name);
    parts.take(gradient, groups.letters).take(x, groups.letters).take(inverse, "ng");
    parts.take(slope, "ng").take(shift, "ng").take(w, "gd");
    of_input = parts.give(groups.letters, [&](const Task& t) {
      Tensor scale = t[2].unsqueeze(2);
      if (w.defined()) scale = at::mul(scale, t[5]);
      return linear_in_both(t[0], t[1], with_dims_of(t[0], scale), with_dims_of(t[0], t[3]),
                            with_dims_of(t[0], t[4]));
    });
  }
  return {of_input, wanted[1] ? at::sum(sums[0], 0) : Tensor(),
          wanted[2] ? at::sum(sums[1], 0) : Tensor()};
}

Three group_norm_backward_tiles(const Tensor& gradient, const Tensor& x, const Tensor& mean,
                                const Tensor& inverse, const Optional& weight, std::int64_t,
                                std::int64_t, std::int64_t, std::int64_t count,
                                std::array<bool, 3> wanted) {
  const char* name = "aten::native_group_norm_backward";
  const Operation operation(name);
  const BelowAutograd below;
  const Groups groups(x, count);
  const Tensor seen = groups.seen(x), own = groups.seen(gradient);
  const Tensor w = groups.of_channels(weight.value_or(Tensor()));
  const auto run = [&]() -> Three {
    if (is_cut_along(seen, 2, seen.dim()) || is_cut_along(own, 2, own.dim()) ||
        seen.size(0) * count == 1) {
      return group_gradient_of_parts(name, groups, own, seen, mean, inverse, w, wanted);
    }
    Partition parts(name);
    parts.take(own, groups.with_whole).take(seen, groups.with_whole);
    parts.take(mean, "ng").take(inverse, "ng").take(w, "g*");
    return three(parts.give_all({groups.with_whole, "g*", "g*"}, [&](const Task& t) {
      const Tensor part = as_images(t[1]);
      const std::int64_t here = t[1].size(1);
      auto [gx, gw, gb] = at::native_group_norm_backward(
          as_images(t[0]), part, t[2].contiguous(), t[3].contiguous(), flattened(t[4]),
          part.size(0), part.size(1), part.size(2), here, wanted);
      const auto in_groups = [&](const Tensor& each) {
        return each.defined() ? each.reshape({here, -1}) : each;
      };
      return std::vector<Tensor>{gx.defined() ? gx.reshape(t[1].sizes()) : gx, in_groups(gw),
                                 in_groups(gb)};
    }));
  };
  auto [gx, gw, gb] = run();
  return {gx.defined() ? gx.reshape(x.sizes()) : gx, flattened(gw), flattened(gb)};
}

}  // namespace

void register_normalization(torch::Library& library) {
  library.impl("native_batch_norm", batch_norm_tiles);
  library.impl("native_batch_norm_backward", batch_norm_backward_tiles);
  library.impl("_native_batch_norm_legit", batch_norm_legit_tiles);
  library.impl("_native_batch_norm_legit.no_stats", batch_norm_no_stats_tiles);
  library.impl("_batch_norm_with_update", batch_norm_with_update_tiles);
  library.impl("batch_norm_backward", batch_norm_backward_of_update_tiles);
  library.impl("native_layer_norm", layer_norm_tiles);
  library.impl("native_layer_norm_backward", layer_norm_backward_tiles);
  library.impl("native_group_norm", group_norm_tiles);
  library.impl("native_group_norm_backward", group_norm_backward_tiles);
}

}  // namespace cohort::spmd
