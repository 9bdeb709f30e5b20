// Several workers: what a strategy says of itself, running, reductions and gathers. Rules 7, 8, 13.

#include "tests/oracle/multiworker.h"

namespace cohort::oracle::multiworker_cases {
namespace {

ORACLE_THEME("multiworker");

// What a strategy says of itself.

Json without_resolvers(Json fields) {
  for (Json& worker : fields) worker["result"]["resolver"] = nullptr;
  return fields;
}

DIFFERS("fields/W2_R1", "a worker that is a thread is found by no cluster resolver",
        without_resolvers(oracle_theme().result_of("fields/W2_R1"))) {
  return of_workers(input, [](const Strategy& s) -> Json {
    const StrategyExtended& e = s.extended();
    const Device device = e.worker_devices().at(0);
    return {{"n", s.num_replicas_in_sync()},
            {"worker_devices", encode(e.worker_devices())},
            {"parameter_devices", encode(e.parameter_devices())},
            {"between_graph", e.between_graph()},
            {"should_init", e.should_init()},
            {"should_checkpoint", e.should_checkpoint()},
            {"should_save_summary", e.should_save_summary()},
            {"task", {device.job(), device.task()}},
            {"in_multi_worker_mode", e.world().workers() > 1},
            {"resolver", s.cluster_resolver() ? Json("a resolver") : Json()}};
  });
}

CASE("fields/W2_R2") {
  return of_workers(input, [](const Strategy& s) -> Json {
    return {{"n", s.num_replicas_in_sync()},
            {"worker_devices", encode(s.extended().worker_devices())}};
  });
}

// Running.

CASE("run/ids_W2_R1") {
  return of_workers(input, [](const Strategy& s) { return s.run([] { return rid(at::kInt); }); });
}

CASE("run/local_results_W2_R2") {
  return of_workers(
      input, [](const Strategy& s) { return s.local_results(s.run([] { return rid() * 10; })); });
}

CASE("values/from_function_W2_R2") {
  return of_workers(input, [](const Strategy& s) -> Json {
    Json seen = Json::array();
    const auto values = s.distribute_values_from_function([&](const ValueContext& context) {
      seen.push_back({context.replica_id_in_sync_group, context.num_replicas_in_sync});
      return scalar(context.replica_id_in_sync_group);
    });
    return {seen, encode(values)};
  });
}

CASE("merge_call/local_sum_W2_R2") {
  return of_workers(input, [](const Strategy& s) {
    return s.run([] {
      return merge_call(
          [](const Strategy& current, const PerReplica<Tensor>& values) {
            return current.local_results(values);
          },
          rid());
    });
  });
}

// Reductions.

template <class F>
Json reduce(const Json& input, ReduceOp op, const F& value, const Axis& axis = {}) {
  return of_workers(input, [&](const Strategy& s) { return s.reduce(op, s.run(value), axis); });
}

CASE("reduce/SUM_per_replica_W2_R1") {
  return reduce(input, "SUM", [] { return rid() + 1; });
}
CASE("reduce/MEAN_per_replica_W2_R2") {
  return reduce(input, "MEAN", [] { return rid(); });
}
CASE("reduce/MEAN_axis0_uneven") {
  return reduce(
      input, "MEAN", [] { return at::full({id() + 1}, id() + 1.f); }, 0);
}
CASE("reduce/SUM_axis0_uneven_R2") {
  return reduce(
      input, "SUM", [] { return at::ones({id() + 1}); }, 0);
}
CASE("reduce/int32_SUM") {
  return reduce(input, "SUM", [] { return rid(at::kInt) + 1; });
}
CASE("reduce/int32_MEAN") {
  return reduce(input, "MEAN", [] { return rid(at::kInt); });
}

/// Of a tensor that is not distributed: w + 1 on worker w.
Json reduce_host_tensor(const Json& input, ReduceOp op) {
  return of_workers(input, [&](const Strategy& s, int w) { return s.reduce(op, scalar(w + 1)); });
}

constexpr const char* kHostValue = "7.7, 6.15: the number of workers changes nothing";
const Json kNoSum = both_fail(fails("ValueError", "cannot be reduced with the given reduce op"));

DIFFERS("reduce/host_tensor_SUM", kHostValue, kNoSum) { return reduce_host_tensor(input, "SUM"); }

DIFFERS("reduce/host_tensor_MEAN", kHostValue, on_two(encode(scalar(1)), encode(scalar(2)))) {
  return reduce_host_tensor(input, "MEAN");
}

DIFFERS("reduce/host_tensor_SUM_R2", kHostValue, kNoSum) {
  return of_workers(input, [](const Strategy& s) { return s.reduce("SUM", scalar(1)); });
}

CASE("all_reduce/SUM_W2_R2") {
  return of_workers(input, [](const Strategy& s) {
    return s.run([] { return get_replica_context().all_reduce("SUM", rid() + 1); });
  });
}

CASE("all_reduce/gradient_W2") {
  return of_workers(input, [](const Strategy& s) {
    return s.run([] {
      const Tensor x = (rid() + 2).requires_grad_();
      const Tensor y = get_replica_context().all_reduce("SUM", x) * (rid() * 2 + 1);
      return std::tuple{y.detach(), torch::autograd::grad({y}, {x})[0]};
    });
  });
}

// Gathers.

/// So many elements as the replica's number says, all equal to it.
Tensor own_elements() { return at::full({id() + 1}, static_cast<float>(id())); }

CASE("gather/axis0_uneven_W2_R2") {
  return of_workers(input, [](const Strategy& s) { return s.gather(s.run(own_elements), 0); });
}

DIFFERS("gather/host_tensor_W2", "8.1: returned unchanged on several workers too",
        on_two(encode(vector({0, 0})), encode(vector({1, 1})))) {
  return of_workers(input, [](const Strategy& s, int w) {
    const double value = w;
    return s.gather(vector({value, value}), 0);
  });
}

CASE("all_gather/uneven_W2") {
  return of_workers(input, [](const Strategy& s) {
    return s.run([] { return get_replica_context().all_gather(own_elements(), 0); });
  });
}

}  // namespace
}  // namespace cohort::oracle::multiworker_cases
