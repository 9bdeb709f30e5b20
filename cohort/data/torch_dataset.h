#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include "cohort/base/mutex.h"
#include "cohort/data/dataset.h"

namespace cohort::data {
namespace detail {

template <class Data, class Target>
std::pair<Data, Target> element_of(torch::data::Example<Data, Target> example) {
  return {std::move(example.data), std::move(example.target)};
}
template <class Data>
Data element_of(torch::data::Example<Data, torch::data::example::NoTarget> example) {
  return std::move(example.data);
}
template <class T>
T element_of(T example) {
  return example;
}

/// LibTorch's datasets have no const `get`, so that one is asked by one thread at a time.
template <class D, class T>
class TorchRows : public Rows<T> {
 public:
  explicit TorchRows(D dataset) : dataset_(std::move(dataset)) {
    const auto size = dataset_.size();
    if (!size) throw ValueError("data::from_torch", "the dataset does not know its size");
    size_ = static_cast<std::int64_t>(*size);
  }

  std::int64_t size() const override { return size_; }
  T at(std::int64_t row) const override {
    const MutexLock lock(mutex_);
    return element_of(dataset_.get(static_cast<std::size_t>(row)));
  }
  typename Rows<T>::Batch gather(std::span<const std::int64_t> rows) const override {
    std::vector<T> elements;
    for (const std::int64_t row : rows) elements.push_back(at(row));
    if constexpr (Batchable<T>) {
      if (!elements.empty()) return stack(elements);
    }
    return {};
  }
  ElementSpec spec() const override {
    if (size_ == 0) return {};
    return UserCalls(made_by(), {})(0, [&] { return spec_of(at(0)); });
  }
  const char* made_by() const override { return "from_torch"; }

 private:
  mutable Mutex mutex_;
  mutable D dataset_ COHORT_GUARDED_BY(mutex_);
  std::int64_t size_;
};

}  // namespace detail

/// A dataset of LibTorch's own, such as `torch::data::datasets::MNIST`: pairs of data and target,
/// or the data alone where there is no target. Throws ValueError for one without a size.
template <class D>
auto from_torch(D dataset) {
  using T = decltype(detail::element_of(dataset.get(0)));
  auto rows = std::make_shared<detail::TorchRows<D, T>>(std::move(dataset));
  return Dataset<T>(std::make_shared<RowsNode<T>>("from_torch", std::move(rows)));
}

}  // namespace cohort::data
