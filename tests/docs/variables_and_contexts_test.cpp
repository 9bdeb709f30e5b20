// The snippets of docs/guide/variables_and_contexts.md, as they stand there.
#include "tests/docs/guide_fixture.h"

// clang-format off

TEST_F(Guide, Contexts) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  assert(!cohort::has_strategy());                   // default context
  {
    auto scope = strategy.scope();
    assert(cohort::in_cross_replica_context());      // one view of all replicas
    strategy.run([] {
      auto& replica = cohort::get_replica_context();
      assert(!cohort::in_cross_replica_context());   // one of them, at the same time as the others
      replica.merge_call([](cohort::Strategy&) {
        assert(cohort::in_cross_replica_context());  // once, while all of them wait
      });
    });
  }
}

TEST_F(Guide, Collectives) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});

  auto results = strategy.run([] {
    auto& replica = cohort::get_replica_context();
    auto x = torch::full({1}, replica.replica_id_in_sync_group() + 1.0f);      // 1 and 2
    auto sum = replica.all_reduce(cohort::ReduceOp::SUM, x);                   // 3 on both
    auto all = replica.all_gather(x, 0);                                       // 1, 2 on both
    auto largest = replica.merge_call(
        [](cohort::Strategy& s, const cohort::PerReplica<torch::Tensor>& each) {
          return torch::stack(s.local_results(each)).max();                    // 2, computed once
        },
        x);
    return std::tuple{sum, all, largest};
  });

  auto& [sum, all, largest] = results;
  EXPECT_EQ(strategy.local_results(sum)[1].item<float>(), 3);
  EXPECT_TRUE(strategy.local_results(all)[0].equal(torch::tensor({1.0f, 2.0f})));
  EXPECT_EQ(strategy.local_results(largest)[1].item<float>(), 2);
}

TEST_F(Guide, Variables) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto scope = strategy.scope();

  cohort::Variable weight(torch::zeros({3}), {.name = "weight",
                                              .aggregation = cohort::Aggregation::MEAN});
  cohort::Variable seen(0.0f, {.synchronization = cohort::Synchronization::ON_READ,
                               .aggregation = cohort::Aggregation::SUM});

  strategy.run([&] {
    float id = cohort::get_replica_context().replica_id_in_sync_group();
    weight.assign(torch::full({3}, id));  // the replicas meet; the mean goes to all copies
    seen.assign_add(id + 1);              // each replica's own
  });

  assert(weight.value()[0].item<float>() == 0.5f);
  assert(seen.value().item<float>() == 3.0f);  // summed now that it is read

  strategy.run([&] {
    assert(seen.value().item<float>() < 3.0f);                       // the replica's own
    auto synchronized = cohort::variable_sync_on_read_context();
    assert((seen + 0).item<float>() == 3.0f);                        // a collective
  });

  cohort::Variable fixed(1.0f);  // aggregation NONE
  try {
    strategy.run([&] { fixed.assign(2); });
  } catch (const cohort::ValueError& error) {
    std::cout << error.what() << '\n';  // "… You must specify an aggregation method …"
  }
  fixed.assign(2);  // in cross-replica context: to all copies
  EXPECT_EQ(fixed.value().item<float>(), 2);

  auto total = strategy.extended().reduce_to("sum", strategy.run([] { return 1.0f; }), weight);
  strategy.extended().update(
      weight, [](torch::Tensor& copy, const torch::Tensor& by) { copy.add_(by); }, total);
  assert(weight.value()[0].item<float>() == 2.5f);
}

TEST_F(Guide, Creators) {
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});
  auto scope = strategy.scope();

  std::vector<cohort::Variable> made;
  cohort::VariableCreatorScope collect(
      [&](const cohort::NextCreator& next, cohort::VariableRequest request) {
        made.push_back(next(std::move(request)));
        return made.back();
      });
  cohort::Variable bias(torch::zeros({10}), {.name = "bias"});
  assert(made.size() == 1 && made[0] == bias);
}
