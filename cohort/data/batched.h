#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "cohort/data/strings.h"
#include "cohort/values/nest.h"

/// How elements become batches, leaf by leaf: numbers and tensors turn into tensors with a new
/// first dimension, strings into `Strings`. A struct keeps its type, so that its leaves must be
/// tensors or Strings already.
namespace cohort::data {
namespace detail {

template <class T>
inline constexpr bool kBatchLeaf =
    std::is_arithmetic_v<T> || std::same_as<T, at::Tensor> || std::same_as<T, std::string> ||
    std::same_as<T, Strings> || std::same_as<T, std::vector<bool>>;
/// A leaf that stays of its type in a batch.
template <class T>
inline constexpr bool kFixedLeaf = std::same_as<T, at::Tensor> || std::same_as<T, Strings>;

template <class T, bool kFixed>
constexpr bool is_batchable();

template <class T, bool kFixed>
struct AllBatchable;
template <template <class...> class Tuple, class... Parts, bool kFixed>
struct AllBatchable<Tuple<Parts...>, kFixed> {
  static constexpr bool value = (is_batchable<std::remove_cvref_t<Parts>, kFixed>() && ...);
};

template <class T, bool kFixed>
constexpr bool is_batchable() {
  if constexpr (nest::Tuple<T>) {
    return AllBatchable<T, kFixed>::value;
  } else if constexpr (nest::Array<T> || nest::List<T>) {
    return is_batchable<typename T::value_type, kFixed>();
  } else if constexpr (nest::Map<T>) {
    return is_batchable<typename T::mapped_type, kFixed>();
  } else if constexpr (nest::Struct<T>) {
    return AllBatchable<decltype(nest::fields(std::declval<T&>())), true>::value;
  } else {
    return kFixed ? kFixedLeaf<T> : kBatchLeaf<T>;
  }
}

at::Tensor stack_tensors(std::span<const at::Tensor* const> tensors);
at::Tensor stack_numbers(const void* numbers, std::int64_t count, c10::ScalarType dtype);
at::Tensor stack_bools(const std::vector<bool>& bools);
/// As vectors of other numbers are stacked: a tensor for each place.
std::vector<at::Tensor> stack_bools(std::span<const std::vector<bool>* const> vectors);
Strings stack_strings(std::span<const std::string* const> strings);
Strings stack_strings(std::span<const Strings* const> strings);

template <class T>
at::Tensor stack_numbers(std::span<const T* const> numbers) {
  // LibTorch has no unsigned numbers of more than a byte, and one size of each kind.
  using Stored = std::conditional_t<
      std::is_floating_point_v<T> || std::is_same_v<T, bool> || sizeof(T) == 1, T,
      std::conditional_t<
          sizeof(T) == 8 || (std::is_unsigned_v<T> && sizeof(T) == 4), std::int64_t,
          std::conditional_t<sizeof(T) == 4 || std::is_unsigned_v<T>, std::int32_t, std::int16_t>>>;
  const auto values = std::make_unique<Stored[]>(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) values[i] = static_cast<Stored>(*numbers[i]);
  return stack_numbers(values.get(), static_cast<std::int64_t>(numbers.size()),
                       c10::CppTypeToScalarType<Stored>::value);
}

void check_same_leaves(std::size_t got, std::size_t expected);

/// Leaf after leaf: the first struct's leaves are replaced by join(those of all).
template <class T, class Join>
T join_structs(std::span<const T* const> structs, Join join) {
  std::vector<std::vector<const void*>> leaves(structs.size());
  for (std::size_t i = 0; i < structs.size(); ++i) {
    nest::visit([&](const auto& leaf) { leaves[i].push_back(&leaf); }, *structs[i]);
  }
  T result = *structs[0];
  std::size_t at = 0;
  nest::visit(
      [&]<class Leaf>(Leaf& leaf) {
        std::vector<const Leaf*> same;
        for (const auto& of_one : leaves) {
          check_same_leaves(of_one.size(), leaves[0].size());
          same.push_back(static_cast<const Leaf*>(of_one[at]));
        }
        leaf = join(std::span<const Leaf* const>(same));
        ++at;
      },
      result);
  return result;
}

struct StackLeaves {
  template <class T>
  auto operator()(std::span<const T* const> leaves) const {
    if constexpr (nest::Struct<T>) {
      return join_structs(leaves, *this);
    } else if constexpr (std::same_as<T, at::Tensor>) {
      return stack_tensors(leaves);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return stack_numbers(leaves);
    } else if constexpr (std::same_as<T, std::vector<bool>>) {
      return stack_bools(leaves);
    } else {
      return stack_strings(leaves);
    }
  }
};

at::Tensor join_tensors(std::span<const at::Tensor* const> tensors);
Strings join_strings(std::span<const Strings* const> strings);

struct JoinLeaves {
  template <class T>
  T operator()(std::span<const T* const> leaves) const {
    if constexpr (nest::Struct<T>) {
      return join_structs(leaves, *this);
    } else if constexpr (std::same_as<T, at::Tensor>) {
      return join_tensors(leaves);
    } else {
      return join_strings(leaves);
    }
  }
};

}  // namespace detail

/// An element type that `batch` takes.
template <class T>
concept Batchable = detail::is_batchable<T, false>();

/// The elements as one batch. Throws InvalidArgument where shapes or dtypes differ.
template <Batchable T>
auto stack(std::span<const T* const> elements) {
  return nest::zip(detail::StackLeaves(), elements);
}
template <Batchable T>
auto stack(const std::vector<T>& elements) {
  if constexpr (std::same_as<T, bool>) {  // a vector<bool> has no bools to point to
    return detail::stack_bools(elements);
  } else {
    std::vector<const T*> pointers;
    pointers.reserve(elements.size());
    for (const T& element : elements) pointers.push_back(&element);
    return stack(std::span<const T* const>(pointers));
  }
}

namespace detail {
template <class T>
struct BatchedOf {
  using type = void;
};
template <Batchable T>
struct BatchedOf<T> {
  using type = decltype(stack(std::declval<std::span<const T* const>>()));
};
}  // namespace detail

/// What elements of type T become in a batch; void for a type that cannot be batched.
template <class T>
using Batched = typename detail::BatchedOf<T>::type;

/// The rows of one batch after the other's.
template <class Batch>
Batch join(const std::vector<Batch>& batches) {
  std::vector<const Batch*> pointers;
  for (const Batch& batch : batches) pointers.push_back(&batch);
  return nest::zip(detail::JoinLeaves(), std::span<const Batch* const>(pointers));
}

/// Rows from..to of a leaf of a batch; fewer where it has fewer.
at::Tensor slice_rows(const at::Tensor& batch, std::int64_t from, std::int64_t to);
Strings slice_rows(const Strings& batch, std::int64_t from, std::int64_t to);
/// The length of the first dimension; -1 for a leaf without dimensions.
std::int64_t count_rows(const at::Tensor& batch);
std::int64_t count_rows(const Strings& batch);

namespace detail {
at::Tensor select_row(const at::Tensor& batch, std::int64_t row);

struct SelectRow {
  std::int64_t row;

  at::Tensor operator()(const at::Tensor& batch) const { return select_row(batch, row); }
  std::string operator()(const Strings& batch) const {
    return std::string(batch.select(row).str());
  }
  template <nest::Struct T>
  T operator()(T batch) const {
    nest::visit(
        [&]<class Leaf>(Leaf& leaf) {
          if constexpr (std::same_as<Leaf, Strings>) {
            leaf = leaf.select(row);
          } else {
            leaf = select_row(leaf, row);
          }
        },
        batch);
    return batch;
  }
};
}  // namespace detail

/// One row of a batch, as an element again.
template <class T>
auto row_of(const T& batch, std::int64_t row) {
  return nest::map(detail::SelectRow{row}, batch);
}

}  // namespace cohort::data
