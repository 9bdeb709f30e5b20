#pragma once

#include <concepts>

#include "cohort/base/never.h"
#include "cohort/values/distributed_values.h"

namespace cohort {

/// One value for each replica; they may differ.
///
/// `strategy.run` returns it, and hands each replica its own component when it is an argument.
/// Outside of replicas it is not a `T`: using it as one does not compile. Ways out:
///
///     strategy.reduce(ReduceOp::SUM, x)     // one tensor for all replicas
///     strategy.local_results(x)             // a vector of this process's components
///     x.local()                             // inside run: the replica's own component
template <class T>
class PerReplica : public DistributedValues<T> {
 public:
  using value_type = T;

  explicit PerReplica(std::vector<T> values, DeviceList devices = nullptr)
      : DistributedValues<T>(std::move(values), std::move(devices)) {}

  /// The component of the replica that asks. Throws ValueError outside of `run`.
  const T& local() const& {
    const std::size_t i = detail::component_of_current_replica("PerReplica.local");
    return this->component(detail::checked_component(i, this->size(), "PerReplica.local"));
  }
  T local() const&& { return local(); }

  friend std::ostream& operator<<(std::ostream& out, const PerReplica& value) {
    value.print(out, "PerReplica");
    return out;
  }

  // Any use as a single value stops at the one static_assert below.
  operator T() const {  // NOLINT(google-explicit-constructor)
    return refused().component(0);
  }
  auto operator->() const { return &refused().component(0); }
  PerReplica operator-() const { return refused(); }
  PerReplica operator~() const { return refused(); }
  template <class Index>
  PerReplica operator[](const Index&) const {
    return refused();
  }
  template <class Number = T>
  Number item() const {
    refused();
    return Number();
  }
#define COHORT_REFUSE(op)                                                         \
  template <class U>                                                              \
  friend PerReplica operator op(const PerReplica& a, const U&) {                  \
    return a.refused();                                                           \
  }                                                                               \
  template <class U>                                                              \
    requires(!std::derived_from<U, std::ostream> && !std::same_as<U, PerReplica>) \
  friend PerReplica operator op(const U&, const PerReplica& b) {                  \
    return b.refused();                                                           \
  }
  COHORT_REFUSE(+)
  COHORT_REFUSE(-)
  COHORT_REFUSE(*)
  COHORT_REFUSE(/)
#undef COHORT_REFUSE
  // The members of tensors that the results of `run` are most often asked for.
#define COHORT_REFUSE(member)               \
  template <class... Args>                  \
  PerReplica member(const Args&...) const { \
    return refused();                       \
  }
  COHORT_REFUSE(sum)
  COHORT_REFUSE(mean)
  COHORT_REFUSE(backward)
  COHORT_REFUSE(detach)
  COHORT_REFUSE(to)
#undef COHORT_REFUSE

 private:
  const PerReplica& refused() const {
    static_assert(kNever<T>,
                  "PerReplica is one value per replica, not a single value: use it inside "
                  "strategy.run() (x.local() there), or take strategy.reduce(op, x) or "
                  "strategy.local_results(x) outside");
    return *this;
  }
};

}  // namespace cohort
