// StrategyExtended: what it knows of variables, and call_for_each_replica. Rule 9.

#include "tests/oracle/extended.h"

namespace cohort::oracle::extended_variables_cases {
namespace {

ORACLE_THEME("extended");

// Variables.

CASE("colocate/plain_variable") {
  const Variable v(1.f);
  const Strategy s = two();
  const auto scope = s.scope();
  const auto colocated = s.extended().colocate_vars_with(v);
  return encode(Variable(1.f));
}

CASE("colocate/cs") {
  const Strategy s = central();
  const auto scope = s.scope();
  const Variable v(1.f);
  const auto colocated = s.extended().colocate_vars_with(v);
  return encode(Variable(2.f).device());
}

CASE("colocate/in_other_scope") {
  const Strategy s = two(), other = three();
  const Variable v = variable(s, 1);
  const auto scope = other.scope();
  const auto colocated = s.extended().colocate_vars_with(v);
  return 1;
}

CASE("created_in_scope/own") {
  const Strategy s = two();
  return s.extended().variable_created_in_scope(variable(s, 1));
}

CASE("created_in_scope/other") {
  return two().extended().variable_created_in_scope(variable(three(), 1));
}

CASE("created_in_scope/default_of_mirrored") {
  return default_strategy().extended().variable_created_in_scope(variable(two(), 1));
}

CASE("created_in_scope/cs") {
  const Strategy s = central();
  return Json::array({s.extended().variable_created_in_scope(variable(s, 1)),
                      s.extended().variable_created_in_scope(Variable(1.f))});
}

CASE("read_var/on_read_sum") {
  const Strategy s = two();
  const Variable v = variable(
      s, 0, {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
  set_components(v, {3, 4});
  return encode(s.extended().read_var(v));
}

CASE("read_var/mirrored") {
  const Strategy s = two();
  return encode(s.extended().read_var(variable(s, 5)));
}

CASE("call_for_each_replica/kwargs_none") {
  return encode(two().extended().call_for_each_replica([] { return rid(); }));
}

CASE("colocate/own") {
  const Strategy s = two();
  const auto scope = s.scope();
  const Variable v(1.f);
  const auto colocated = s.extended().colocate_vars_with(v);
  const Variable w(2.f);
  return Json::array({w.kind_name(), components(w), encode((*w.devices())[1])});
}

CASE("colocate/outside_of_scope") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  const auto colocated = s.extended().colocate_vars_with(v);
  return 1;
}

CASE("colocate/other_strategys_variable") {
  const Strategy s = two();
  const Variable v = variable(three(), 1);
  const auto scope = s.scope();
  const auto colocated = s.extended().colocate_vars_with(v);
  return Variable(1.f).name();
}

CASE("colocate/in_replica") {
  const Strategy s = two();
  const Variable v = variable(s, 1);
  return encode(s.run([&] {
    const auto colocated = s.extended().colocate_vars_with(v);
    return 1;
  }));
}

CASE("colocate/one_device") {
  const Strategy s = one_device();
  const auto scope = s.scope();
  const Variable v(1.f);
  const auto colocated = s.extended().colocate_vars_with(v);
  return encode(Variable(2.f).device());
}

/// Whether the strategy says that it made each of these.
Json created(const Strategy& s, const std::vector<Variable>& variables) {
  Json all = Json::array();
  for (const Variable& v : variables) all.push_back(s.extended().variable_created_in_scope(v));
  return all;
}

CASE("created_in_scope/one") {
  const Strategy s = one_device();
  return created(s, {variable(s, 1), Variable(1.f), variable(two(), 1)});
}

CASE("created_in_scope/default") {
  return created(default_strategy(),
                 {Variable(1.f), variable(one_device(), 1), variable(central(), 1)});
}

CASE("created_in_scope/on_read") {
  const Strategy s = two();
  const Variable v = variable(s, 1, kOnReadSum);
  return Json::array({created(s, {v})[0], created(three(), {v})[0]});
}

TABLE("read_var_table/") {
  static const std::map<std::string, Aggregation> aggregations{
      {"NONE", Aggregation::NONE},
      {"MEAN", Aggregation::MEAN},
      {"ONLY_FIRST_REPLICA", Aggregation::ONLY_FIRST_REPLICA}};
  const Strategy s = three();
  const Variable v = variable(s, 0,
                              {.synchronization = input[0] == "ON_READ" ? Synchronization::ON_READ
                                                                        : Synchronization::ON_WRITE,
                               .aggregation = aggregations.at(input[1])});
  set_components(v, {3, 4, 8});
  return encode(s.extended().read_var(v));
}

CASE("call_for_each_replica/args") {
  const Strategy s = three();
  return encode(s.extended().call_for_each_replica(
      [](const Tensor& x, double y) {
        return std::pair{x + y, rid()};
      },
      per(s, {1, 2, 3}), 10.));
}

CASE("call_for_each_replica/in_replica") {
  const Strategy s = two();
  s.run([&] { s.extended().call_for_each_replica([] { return rid(); }); });
  return nullptr;
}

CASE("call_for_each_replica/one_device") {
  return encode(one_device().extended().call_for_each_replica([](const Tensor& x) { return x + 1; },
                                                              scalar(1)));
}

}  // namespace
}  // namespace cohort::oracle::extended_variables_cases
