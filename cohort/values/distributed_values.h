#pragma once

#include <algorithm>
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

/// What PerReplica and Mirrored have in common: an ordered list of components, one for each local
/// replica (or, for a Mirrored on named devices, one for each device).
///
/// Immutable, cheap to copy, and safe to read from any number of threads. A member that refers to
/// what the value holds gives a copy when the value itself is a temporary:
///
///     for (const Tensor& own : strategy.run(step).values()) …    // a vector, which the loop keeps
template <class T>
class DistributedValues {
 public:
  std::size_t size() const { return size_; }

  std::span<const T> values() const& { return {first_.get(), size_}; }
  std::vector<T> values() const&& { return std::vector<T>(first_.get(), first_.get() + size_); }

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
      out << (i == 0 ? "\n  " : ",\n  ") << i << ": " << values()[i];
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
