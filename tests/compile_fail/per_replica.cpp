// A value with one component for each replica is not a single value.

#include <ATen/ATen.h>

#include "cohort/distribute/strategy.h"

using cohort::PerReplica;

at::Tensor local(const PerReplica<at::Tensor>& x) { return at::relu(x.local()); }

at::Tensor reduced(const cohort::Strategy& strategy, const PerReplica<at::Tensor>& x) {
  return strategy.reduce("SUM", x);
}

// case: a tensor operation does not take a PerReplica
// error: one value per replica, not a single value
#if CASE == 1
at::Tensor f(const PerReplica<at::Tensor>& x) { return at::relu(x); }
#endif

// case: a PerReplica does not become a tensor
// error: one value per replica, not a single value
#if CASE == 2
at::Tensor f(const PerReplica<at::Tensor>& x) { return x; }
#endif

// case: a PerReplica can't be added to a number
// error: one value per replica, not a single value
#if CASE == 3
auto f(const PerReplica<at::Tensor>& x) { return x + 1; }
#endif

// case: a PerReplica can't be subtracted from a tensor
// error: one value per replica, not a single value
#if CASE == 4
auto f(const PerReplica<at::Tensor>& x) { return at::ones({1}) - x; }
#endif

// case: a PerReplica has no members of its components
// error: one value per replica, not a single value
#if CASE == 5
auto f(const PerReplica<at::Tensor>& x) { return x->numel(); }
#endif

// case: a PerReplica number is no number
// error: one value per replica, not a single value
#if CASE == 6
double f(const PerReplica<float>& x) { return x; }
#endif

// case: a replica reduces its own value, not those of all
// error: take x.local() there
#if CASE == 7
auto f(cohort::ReplicaContext& replica, const PerReplica<at::Tensor>& x) {
  return replica.all_reduce("SUM", x);
}
#endif

// case: a PerReplica has no item
// error: one value per replica, not a single value
#if CASE == 8
auto f(const cohort::Strategy& strategy) {
  return strategy.run([] { return at::ones({1}); }).item<float>();
}
#endif

// case: a PerReplica has no negative
// error: one value per replica, not a single value
#if CASE == 9
auto f(const PerReplica<at::Tensor>& x) { return -x; }
#endif

// case: a PerReplica has no elements
// error: one value per replica, not a single value
#if CASE == 10
auto f(const PerReplica<at::Tensor>& x) { return x[0]; }
#endif

// case: a PerReplica has no sum
// error: one value per replica, not a single value
#if CASE == 11
auto f(const PerReplica<at::Tensor>& x) { return x.sum(); }
#endif

// case: nor a sum along a dimension, of which an item is taken
// error: one value per replica, not a single value
#if CASE == 12
auto f(const PerReplica<at::Tensor>& x) { return x.mean(0).item<float>(); }
#endif

// case: a PerReplica has no complement
// error: one value per replica, not a single value
#if CASE == 13
auto f(const PerReplica<at::Tensor>& x) { return ~x; }
#endif
