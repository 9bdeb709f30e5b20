// Variables on several workers: rules 6 and 13.5.

#include "tests/oracle/multiworker.h"

namespace cohort::oracle::multiworker_variables_cases {
namespace {

ORACLE_THEME("multiworker");

using A = Aggregation;

Variable on_write(const Strategy& s, double value, A aggregation = A::NONE) {
  return variable(s, value, {.aggregation = aggregation});
}

Variable on_read(const Strategy& s, double value, A aggregation) {
  return variable(s, value,
                  {.synchronization = Synchronization::ON_READ, .aggregation = aggregation});
}

/// The worker's own components, and what all workers read.
Json components_and_value(const Variable& v) { return {components(v), encode(v.read_value())}; }

// Creation.

CASE("variable/initial_value_broadcast") {
  return of_workers(input, [](const Strategy& s, int w) { return components(on_write(s, w + 5)); });
}

CASE("variable/on_read_initial_value") {
  return of_workers(input, [](const Strategy& s, int w) {
    return components_and_value(on_read(s, w + 5, A::SUM));
  });
}

// Assigning in replicas.

/// The components after each replica has changed a variable that was 1.
template <class F>
Json components_after(const Json& input, A aggregation, const F& change) {
  return of_workers(input, [&](const Strategy& s) {
    const Variable v = on_write(s, 1, aggregation);
    s.run([&] { change(v); });
    return components(v);
  });
}

CASE("variable/replica_assign_SUM_R2") {
  return components_after(input, A::SUM, [](const Variable& v) { v.assign(rid() + 1); });
}

CASE("variable/replica_assign_MEAN") {
  return components_after(input, A::MEAN, [](const Variable& v) { v.assign_add(rid()); });
}

DIFFERS("variable/replica_assign_FIRST_R2", "6.14: the first replica of the whole job",
        on_both({7, 7})) {
  return components_after(input, A::ONLY_FIRST_REPLICA,
                          [](const Variable& v) { v.assign(rid() + 7); });
}

// Caught in the replica: a run that one worker has failed may be Cancelled on the other.
DIFFERS("variable/replica_assign_NONE", "6.13: NONE is an error",
        on_both({fails("ValueError", "You must specify an aggregation method"), {1}})) {
  return of_workers(input, [](const Strategy& s) -> Json {
    const Variable v = on_write(s, 1);
    Json returned;  // by the worker's only replica
    s.run([&] { returned = attempt([&] { return v.assign(rid() + 7); }); });
    return {returned, components(v)};
  });
}

/// Of a number that is the same in all replicas.
Json assign_literal(const Json& input, A aggregation) {
  return of_workers(input, [&](const Strategy& s) -> Json {
    const Variable v = on_write(s, 1, aggregation);
    const Json returned = attempt([&] { return s.run([&] { return v.assign(5.); }); });
    return {returned, components(v)};
  });
}

CASE("variable/replica_assign_SUM_literal") { return assign_literal(input, A::SUM); }
CASE("variable/replica_assign_MEAN_literal") { return assign_literal(input, A::MEAN); }

// Assigning outside of replicas.

CASE("variable/cross_assign_differs") {
  return of_workers(input, [](const Strategy& s, int w) {
    const Variable v = on_write(s, 1, A::SUM);
    v.assign(w + 3.);
    return components(v);
  });
}

CASE("variable/on_read_sum_cross_assign_R2") {
  return of_workers(input, [](const Strategy& s) {
    const Variable v = on_read(s, 0, A::SUM);
    v.assign(8., {.read_value = false});
    return components_and_value(v);
  });
}

// Reading what replicas have assigned.

/// Replica r has assigned r + 1.
Json assigned_and_read(const Json& input, A aggregation) {
  return of_workers(input, [&](const Strategy& s) {
    const Variable v = on_read(s, 0, aggregation);
    s.run([&] { v.assign(rid() + 1); });
    return components_and_value(v);
  });
}

CASE("variable/on_read_sum_read_R2") {
  return of_workers(input, [](const Strategy& s) {
    const Variable v = on_read(s, 0, A::SUM);
    s.run([&] { v.assign_add(rid() + 1); });
    return components_and_value(v);
  });
}

CASE("variable/on_read_mean_read") { return assigned_and_read(input, A::MEAN); }

DIFFERS("variable/on_read_first_read", "6.21: the first replica of the whole job",
        on_two({{1}, encode(scalar(1))}, {{2}, encode(scalar(1))})) {
  return assigned_and_read(input, A::ONLY_FIRST_REPLICA);
}

PENDING("checkpoint/on_read_sum", "checkpoint of variables");

}  // namespace
}  // namespace cohort::oracle::multiworker_variables_cases
