#include "cohort/base/whole_tensor.h"

#include <atomic>

namespace cohort {
namespace {

std::atomic<at::Tensor (*)(const at::Tensor&)> gather{nullptr};

}  // namespace

at::Tensor whole(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.has_storage() || tensor.layout() != at::kStrided) return tensor;
  const auto make_whole = gather.load(std::memory_order_acquire);
  return make_whole ? make_whole(tensor) : tensor;
}

std::vector<at::Tensor> whole(std::vector<at::Tensor> tensors) {
  for (at::Tensor& tensor : tensors) tensor = whole(tensor);
  return tensors;
}

at::Tensor resolved(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg(); }

at::Tensor as_read(const at::Tensor& tensor) { return resolved(tensor).contiguous(); }

void set_whole(at::Tensor (*make_whole)(const at::Tensor&)) {
  gather.store(make_whole, std::memory_order_release);
}

}  // namespace cohort
