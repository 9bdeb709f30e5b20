#include <gtest/gtest.h>

#include "cohort/cohort.h"

namespace cohort {
namespace {

// The program of the guide, "The lower level", with its assertions.
TEST(VariablesAndContexts, TheGuidesProgramRuns) {
  configure({.cpu_devices = 8});
  MirroredStrategy strategy({"cpu:0", "cpu:1"});

  Variable outside(torch::tensor(1.0f));
  {
    auto scope = strategy.scope();
    EXPECT_TRUE(in_cross_replica_context() && has_strategy());

    Variable weight(torch::tensor(1.0f), {.name = "weight", .aggregation = Aggregation::MEAN});
    Variable seen(torch::tensor(0.0f),
                  {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM});
    EXPECT_TRUE(strategy.extended().variable_created_in_scope(weight));
    EXPECT_FALSE(strategy.extended().variable_created_in_scope(outside));

    auto results = strategy.run(
        [&](float x) {
          auto& context = get_replica_context();
          auto id = torch::tensor(float(context.replica_id_in_sync_group()));
          seen.assign_add(id + 1);
          weight.assign(id);
          auto sum = context.all_reduce(ReduceOp::SUM, id * x);
          auto max = context.merge_call(
              [](Strategy& s, const PerReplica<torch::Tensor>& v) {
                return torch::stack(s.local_results(v)).max();
              },
              id);
          return std::tuple{sum, max, id};
        },
        3.0f);

    EXPECT_EQ(weight.value().item<float>(), 0.5f);
    EXPECT_EQ(seen.value().item<float>(), 3.0f);

    auto& [sum, max, id] = results;
    EXPECT_EQ(strategy.reduce(ReduceOp::SUM, sum).item<float>(), 6.0f);
    EXPECT_EQ(strategy.local_results(max)[1].item<float>(), 1.0f);
    EXPECT_EQ(strategy.local_results(id).size(), 2u);

    auto delta = strategy.extended().reduce_to(ReduceOp::MEAN, id, weight);
    strategy.extended().update(
        weight, [](torch::Tensor& w, const torch::Tensor& d) { w.add_(d); }, delta);
    EXPECT_EQ(weight.value().item<float>(), 1.0f);
  }
  EXPECT_FALSE(has_strategy());
}

}  // namespace
}  // namespace cohort
