// Products of matrices. Split rows or columns stay split; over a split sum, partial products are
// added in order.

#include <ATen/ATen.h>

#include "cohort/spmd/partition.h"

namespace cohort::spmd {
namespace {

using Task = Partition::Task;

Tensor mm_tiles(const Tensor& a, const Tensor& b) {
  Partition parts("aten::mm");
  parts.take(a, "mk").take(b, "kn");
  return parts.give("mn", [](const Task& t) { return at::mm(t[0], t[1]); });
}

Tensor bmm_tiles(const Tensor& a, const Tensor& b) {
  Partition parts("aten::bmm");
  parts.take(a, "bmk").take(b, "bkn");
  return parts.give("bmn", [](const Task& t) { return at::bmm(t[0], t[1]); });
}

Tensor mv_tiles(const Tensor& a, const Tensor& x) {
  Partition parts("aten::mv");
  parts.take(a, "mk").take(x, "k");
  return parts.give("m", [](const Task& t) { return at::mv(t[0], t[1]); });
}

Tensor dot_tiles(const Tensor& a, const Tensor& b) {
  Partition parts("aten::dot");
  parts.take(a, "k").take(b, "k");
  return parts.give("", [](const Task& t) { return at::dot(t[0], t[1]); });
}

Tensor vdot_tiles(const Tensor& a, const Tensor& b) {
  Partition parts("aten::vdot");
  parts.take(a, "k").take(b, "k");
  return parts.give("", [](const Task& t) { return at::vdot(t[0], t[1]); });
}

/// beta * c + alpha * product, where c is broadcast.
Tensor scaled_sum(const Tensor& c, const Tensor& product, const at::Scalar& beta,
                  const at::Scalar& alpha) {
  const Tensor scaled = alpha.equal(1) ? product : at::mul(product, alpha);
  return beta.equal(0) ? scaled : at::add(scaled, c, beta);
}

Tensor addmm_tiles(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  const Operation operation("aten::addmm");
  const BelowAutograd below;
  return scaled_sum(c, at::mm(a, b), beta, alpha);
}

Tensor baddbmm_tiles(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                     const at::Scalar& alpha) {
  const Operation operation("aten::baddbmm");
  const BelowAutograd below;
  return scaled_sum(c, at::bmm(a, b), beta, alpha);
}

Tensor addmv_tiles(const Tensor& c, const Tensor& a, const Tensor& x, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  const Operation operation("aten::addmv");
  const BelowAutograd below;
  return scaled_sum(c, at::mv(a, x), beta, alpha);
}

Tensor addr_tiles(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                  const at::Scalar& alpha) {
  const Operation operation("aten::addr");
  const BelowAutograd below;
  return scaled_sum(c, at::mul(a.unsqueeze(1), b.unsqueeze(0)), beta, alpha);
}

Tensor addbmm_tiles(const Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  const Operation operation("aten::addbmm");
  const BelowAutograd below;
  return scaled_sum(c, at::sum(at::bmm(a, b), 0), beta, alpha);
}

/// The form of a rule that works in place, on a tensor that may be an ordinary one.
template <auto rule>
Tensor& in_place(Tensor& c, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  const BelowAutograd below;
  return c.copy_(rule(c, a, b, beta, alpha));
}

}  // namespace

void register_matmul(torch::Library& library) {
  library.impl("mm", mm_tiles);
  library.impl("bmm", bmm_tiles);
  library.impl("mv", mv_tiles);
  library.impl("dot", dot_tiles);
  library.impl("vdot", vdot_tiles);
  library.impl("addmm", addmm_tiles);
  library.impl("baddbmm", baddbmm_tiles);
  library.impl("addmv", addmv_tiles);
  library.impl("addr", addr_tiles);
  library.impl("addbmm", addbmm_tiles);
  library.impl("addmm_", in_place<addmm_tiles>);
  library.impl("baddbmm_", in_place<baddbmm_tiles>);
  library.impl("addmv_", in_place<addmv_tiles>);
  library.impl("addr_", in_place<addr_tiles>);
  library.impl("addbmm_", in_place<addbmm_tiles>);
}

}  // namespace cohort::spmd
