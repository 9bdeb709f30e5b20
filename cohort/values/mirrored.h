#pragma once

#include "cohort/values/distributed_values.h"

namespace cohort {

/// A value that is the same on every replica, with a copy on each device that needs one.
///
/// Made by `reduce_to`, `broadcast_to` and `update`. Reads as a `T`: in a replica its own copy,
/// in an update the copy of the device that is updated, elsewhere the first.
template <class T>
class Mirrored : public DistributedValues<T> {
 public:
  using value_type = T;

  explicit Mirrored(std::vector<T> values, DeviceList devices = nullptr)
      : DistributedValues<T>(std::move(values), std::move(devices)) {}

  /// The copy that the current context reads. A value on one device is that one everywhere.
  const T& get() const& {
    const std::size_t i = this->size() == 1 ? 0 : detail::component_of_current_context();
    return this->component(detail::checked_component(i, this->size(), "Mirrored.get"));
  }
  T get() const&& { return get(); }
  operator T() const { return get(); }  // NOLINT(google-explicit-constructor)
  const T* operator->() const { return &get(); }
  const T& operator*() const& { return get(); }
  T operator*() const&& { return get(); }

  // The operators of a `T` that only its members give it. Nothing can be assigned to `m[i]`: that
  // would change one copy of all.
  friend auto operator-(const Mirrored& m)
    requires requires(const T& value) { -value; }
  {
    return -m.get();
  }
  friend auto operator~(const Mirrored& m)
    requires requires(const T& value) { ~value; }
  {
    return ~m.get();
  }
  template <class Index>
  using Element =
      std::remove_cvref_t<decltype(std::declval<const T&>()[std::declval<const Index&>()])>;
  template <class Index>
  const Element<Index> operator[](const Index& index) const {  // NOLINT(readability-const-*)
    return get()[index];
  }

  friend std::ostream& operator<<(std::ostream& out, const Mirrored& value) {
    value.print(out, "Mirrored");
    return out;
  }
};

}  // namespace cohort
