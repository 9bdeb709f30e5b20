#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/device/device.h"

namespace cohort {

/// The devices that the components of a distributed value live on, shared by all values of a run.
using DeviceList = std::shared_ptr<const std::vector<Device>>;

/// The components of a distributed value: a range in contiguous memory, which it keeps alive, so
/// that it may outlive the value. Becomes a std::span where one is asked for, or a std::vector.
/// Immutable, cheap to copy.
template <class T>
class Components {
 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using const_reference = const T&;
  using reference = const_reference;
  using const_iterator = typename std::span<const T>::iterator;
  using iterator = const_iterator;

  Components(std::shared_ptr<const T> first, std::size_t size)
      : first_(std::move(first)), size_(size) {}

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* data() const { return first_.get(); }
  const_iterator begin() const { return std::span(data(), size_).begin(); }
  const_iterator end() const { return std::span(data(), size_).end(); }

  /// A component. Of a temporary a copy, which needs nobody to keep it.
  const T& operator[](std::size_t i) const& { return data()[i]; }
  T operator[](std::size_t i) const&& { return data()[i]; }
  const T& front() const& { return data()[0]; }
  T front() const&& { return data()[0]; }
  const T& back() const& { return data()[size_ - 1]; }
  T back() const&& { return data()[size_ - 1]; }

  operator std::vector<T>() const {  // NOLINT(google-explicit-constructor)
    return std::vector<T>(begin(), end());
  }
  /// Another view of the same memory, such as the at::TensorList of `torch::stack(x.values())`.
  template <class View>
    requires std::constructible_from<View, const T*, std::size_t> &&
             std::is_trivially_copyable_v<View> && (!requires { View::extent; })  // not std::span
  operator View() const {  // NOLINT(google-explicit-constructor)
    return View(data(), size_);
  }

  friend bool operator==(const Components& a, const Components& b)
    requires std::equality_comparable<T>
  {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator==(const Components& a, const std::vector<T>& b)
    requires std::equality_comparable<T>
  {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::shared_ptr<const T> first_;
  std::size_t size_;
};

/// What PerReplica and Mirrored have in common: an ordered list of components, one for each local
/// replica (or, for a Mirrored on named devices, one for each device).
///
/// Immutable, cheap to copy, and safe to read from any number of threads. What `values` gives may
/// outlive the value:
///
///     for (const Tensor& own : strategy.run(step).values()) …
template <class T>
class DistributedValues {
 public:
  std::size_t size() const { return size_; }

  Components<T> values() const { return {first_, size_}; }

  /// A component, which lives as long as this value or a copy.
  const T& component(std::size_t i) const { return first_.get()[i]; }

  /// The devices of the components, in the same order; null when nobody said where they are.
  const DeviceList& devices() const& { return devices_; }
  DeviceList devices() const&& { return devices_; }

 protected:
  DistributedValues(std::vector<T> values, DeviceList devices)
      : size_(values.size()), first_(share(std::move(values))), devices_(std::move(devices)) {}
  ~DistributedValues() = default;
  DistributedValues(const DistributedValues&) = default;
  DistributedValues(DistributedValues&&) = default;
  DistributedValues& operator=(const DistributedValues&) = default;
  DistributedValues& operator=(DistributedValues&&) = default;

  void print(std::ostream& out, const char* name) const {
    out << name << ":{";
    for (std::size_t i = 0; i < size(); ++i) {
      out << (i == 0 ? "\n  " : ",\n  ") << i << ": " << component(i);
    }
    out << "\n}";
  }

 private:
  /// The first of the values, which owns them all. A vector<bool> has no bools to point to.
  static std::shared_ptr<const T> share(std::vector<T> values) {
    if constexpr (std::is_same_v<T, bool>) {
      std::shared_ptr<bool[]> copy(new bool[values.size()]);
      std::copy(values.begin(), values.end(), copy.get());
      return {copy, copy.get()};
    } else {
      const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
      return {owner, owner->data()};
    }
  }

  std::size_t size_;
  std::shared_ptr<const T> first_;
  DeviceList devices_;
};

namespace detail {

/// Which component the current context reads: the replica's own, the one being updated, or the
/// primary. Defined by the contexts (`distribute/context.cpp`), which `values/` knows nothing of.
std::size_t component_of_current_context();

/// The own component's index. Throws ValueError unless called inside a replica.
std::size_t component_of_current_replica(const char* where);

/// Checks an index into `size` components; throws ValueError that names both.
std::size_t checked_component(std::size_t index, std::size_t size, const char* where);

}  // namespace detail
}  // namespace cohort
