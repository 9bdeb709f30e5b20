#include <span>

#include "tests/base/failing.h"
#include "tests/strategies/job.h"

namespace cohort {
namespace {

using testing::Each;
using testing::HasSubstr;

/// What can be added, apart from float, which is everywhere.
constexpr at::ScalarType kAddable[] = {at::kByte,     at::kChar,   at::kShort,
                                       at::kInt,      at::kLong,   at::kHalf,
                                       at::kBFloat16, at::kDouble, at::kComplexDouble};

class MultiWorkerMethods : public OnJobs {};
ON_ALL_JOBS(MultiWorkerMethods);

TEST_P(MultiWorkerMethods, ReduceAddsInOneOrder) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto values = strategy.run([] { return at::rand({50'001}) * (id() + 1); });
    const auto small = strategy.run([] { return at::rand({3}, at::kDouble) * (id() + 1); });
    return bits_of(strategy.reduce("SUM", values)) + bits_of(strategy.reduce("MEAN", values)) +
           bits_of(strategy.reduce("SUM", small)) + bits_of(strategy.reduce("MEAN", small));
  });
}

TEST_P(MultiWorkerMethods, ReduceOfIntegersHalvesComplexAndSparse) {
  expect_as_one_process([](const Strategy& strategy) {
    std::string text;
    for (const auto dtype : kAddable) {
      const auto values = strategy.run([&] { return (at::rand({7}) * 9).to(dtype) + id(); });
      text += bits_of(strategy.reduce("SUM", values)) + bits_of(strategy.reduce("MEAN", values));
    }
    const auto complex = strategy.run(
        [] { return at::complex(at::rand({4}), at::rand({4})).conj() * (id() + 1.0); });
    text += bits_of(strategy.reduce("SUM", complex));
    const auto sparse = strategy.run([] {
      at::Tensor dense = at::zeros({6, 2});
      dense[id() % 6] = at::rand({2});
      return dense.to_sparse(1);
    });
    return text + bits_of(strategy.reduce("SUM", sparse)) +
           bits_of(strategy.reduce("MEAN", sparse));
  });
}

TEST_P(MultiWorkerMethods, ReduceAlongAnAxisCountsEveryRow) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto rows = strategy.run([] { return at::rand({id() % 3, 2}); });
    return bits_of(strategy.reduce("SUM", rows, 0)) + bits_of(strategy.reduce("MEAN", rows, 0)) +
           bits_of(strategy.reduce("SUM", at::ones({2}), 0));
  });
}

TEST_P(MultiWorkerMethods, AxesMayCountFromTheEnd) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto rows = strategy.run([] { return at::rand({3, 2}) + id(); });
    std::string text = bits_of(strategy.reduce("SUM", rows, -1));
    text += bits_of(strategy.reduce("MEAN", rows, -2));
    text += bits_of(strategy.reduce("MEAN", rows, {-1, 0}));
    const auto columns = strategy.run([] { return at::rand({2, id() % 3 + 1}); });
    text += bits_of(strategy.gather(columns, -1));
    const auto all = strategy.run(
        [](const at::Tensor& own) { return get_replica_context().all_gather(own, -1); }, columns);
    return text + bits_of(strategy.local_results(all)[0]);
  });
}

TEST_P(MultiWorkerMethods, GatherKeepsTheOrderOfReplicas) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto rows = strategy.run([] { return at::full({id() + 1, 2}, id()); });
    return bits_of(strategy.gather(rows, 0));
  });
}

TEST_P(MultiWorkerMethods, GatherOfSparseTensorsKeepsEachOnesSizes) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto rows = strategy.run([] { return at::eye(id() + 1, 2).to_sparse(); });
    return bits_of(strategy.gather(rows, 0));
  });
}

TEST_P(MultiWorkerMethods, ReduceOfSparseTensorsBesideDenseOnes) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto values = strategy.run([] {
      const at::Tensor dense = at::rand({4}) + id();
      return id() % 2 ? dense.to_sparse() : dense;
    });
    return bits_of(strategy.reduce("SUM", values)) + bits_of(strategy.reduce("MEAN", values));
  });
}

TEST_P(MultiWorkerMethods, GatherOfSparseTensorsBesideDenseOnes) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto values = strategy.run([] {
      const at::Tensor dense = at::rand({4}) + id();
      return id() % 2 ? dense.to_sparse() : dense;
    });
    return bits_of(strategy.gather(values, 0));
  });
}

TEST_P(MultiWorkerMethods, ReduceWhereAWorkerHasSparseTensorsAndTheOthersDenseOnes) {
  const auto [replicas, workers] = GetParam();
  const int chiefs = (replicas + workers - 1) / workers;  // replicas
  for (const bool chief_is_sparse : {true, false}) {
    expect_as_one_process([chiefs, chief_is_sparse](const Strategy& strategy) {
      const auto values = strategy.run([&] {
        const at::Tensor dense = at::rand({4, 2}) + id();
        return (id() < chiefs) == chief_is_sparse ? dense.to_sparse(1) : dense;
      });
      return bits_of(strategy.reduce("SUM", values)) + bits_of(strategy.reduce("MEAN", values));
    });
  }
}

TEST_P(MultiWorkerMethods, AllReduceAndAllGatherInReplicas) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto results = strategy.run([] {
      auto& replica = get_replica_context();
      const at::Tensor small = at::rand({4}) + id(), large = at::rand({30'000});
      const auto [a, b] = replica.all_reduce("SUM", std::make_pair(small, large));
      const at::Tensor mean = replica.all_reduce("MEAN", at::full({2}, id(), at::kLong));
      const at::Tensor all = replica.all_gather(at::full({id() % 2 + 1}, id()), 0);
      return bits_of(a) + bits_of(b) + bits_of(mean) + bits_of(all);
    });
    const auto own = strategy.local_results(results);
    EXPECT_THAT(own, Each(own[0]));
    return own[0];
  });
}

TEST_P(MultiWorkerMethods, AllReduceOfEveryType) {
  expect_as_one_process([](const Strategy& strategy) {
    std::string text;
    for (const auto dtype : kAddable) {
      const auto leaves = strategy.run([&] {
        auto& replica = get_replica_context();
        const at::Tensor small = (at::rand({7}) * 9).to(dtype) + id();
        const at::Tensor large = (at::rand({3'000}) * 9).to(dtype) + id();
        auto sums = replica.all_reduce("SUM", std::vector{small, large});
        sums.push_back(replica.all_reduce("MEAN", small));
        return sums;
      });
      for (const auto& leaf : leaves) {
        const auto own = strategy.local_results(leaf);
        for (const at::Tensor& each : own) EXPECT_TRUE(each.equal(own[0])) << dtype;
        text += bits_of(own[0]);
      }
    }
    return text;
  });
}

TEST_P(MultiWorkerMethods, AllReduceRefusesBoolsOnAllReplicas) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto texts = strategy.local_results(strategy.run([] {
      return failure_of([] { get_replica_context().all_reduce("SUM", at::ones({2}, at::kBool)); });
    }));
    EXPECT_THAT(texts, Each(testing::AllOf(HasSubstr("InvalidArgument"),
                                           HasSubstr("type Bool cannot be added"))));
    const auto sums = strategy.run(
        [] { return get_replica_context().all_reduce("SUM", at::full({2}, id() + 0.5)); });
    return texts[0] + bits_of(strategy.local_results(sums)[0]);
  });
}

/// An accumulation in which the order counts.
at::Tensor fading_sum(std::span<const at::Tensor> values) {
  at::Tensor sum = values[0];
  for (const at::Tensor& value : values.subspan(1)) sum = sum * 0.5 + value;
  return sum;
}

TEST_P(MultiWorkerMethods, AnAccumulationGetsTheValuesOfAllReplicasInTheirOrder) {
  const auto fading = [] {
    return std::make_shared<ReductionToOneDevice>(
        ReductionToOneDevice::Options{.accumulation_fn = fading_sum});
  };
  const Program program = [](const Strategy& strategy) {
    const auto values = strategy.run([] { return at::rand({3}) + id(); });
    const auto means = strategy.run(
        [](const at::Tensor& own) { return get_replica_context().all_reduce("MEAN", own); },
        values);
    return bits_of(strategy.reduce("SUM", values)) + bits_of(strategy.local_results(means)[0]);
  };
  configure({.cpu_devices = 2});
  const std::string expected =
      program(MirroredStrategy({.replicas = GetParam().replicas, .cross_device_ops = fading()}));
  run_workers(GetParam().workers, [&](const Worker& worker) {
    EXPECT_EQ(program(MultiWorkerMirroredStrategy({.worker = worker,
                                                   .replicas = GetParam().replicas,
                                                   .cross_device_ops = fading(),
                                                   .timeout = std::chrono::seconds(60)})),
              expected);
  });
}

TEST_P(MultiWorkerMethods, DerivativesOfCollectives) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto gradients = strategy.run([] {
      auto& replica = get_replica_context();
      const at::Tensor x = at::rand({3}).requires_grad_();
      const at::Tensor sum = replica.all_reduce("SUM", x) * (id() + 1);
      const at::Tensor all = replica.all_gather(x, 0);
      (sum.sum() + (all * at::arange(all.numel()) * (id() + 1)).sum()).backward();
      return x.grad();
    });
    return bits_of(strategy.gather(gradients, 0));
  });
}

TEST_P(MultiWorkerMethods, MergeCallSeesTheLocalReplicas) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto sums = strategy.run([] {
      return get_replica_context().merge_call(
          [](Strategy& current, const PerReplica<at::Tensor>& values) {
            EXPECT_EQ(static_cast<int>(current.local_results(values).size()),
                      current.extended().layout().local());
            return current.reduce("SUM", values);  // of all workers
          },
          at::full({2}, id() + 0.5));
    });
    return bits_of(strategy.local_results(sums)[0]);
  });
}

TEST_P(MultiWorkerMethods, ReduceToBatchReduceToAndBroadcastTo) {
  expect_as_one_process([](const Strategy& strategy) {
    auto& extended = strategy.extended();
    const auto values = strategy.run([] { return at::rand({5}) + id(); });
    const auto device = extended.worker_devices()[0];
    std::string text = bits_of(extended.reduce_to("MEAN", values, device).values()[0]);
    const std::vector<std::pair<PerReplica<at::Tensor>, Destinations>> pairs{{values, device},
                                                                             {values, device}};
    for (const auto& each : extended.batch_reduce_to("SUM", pairs))
      text += bits_of(each.values()[0]);
    return text + bits_of(extended.broadcast_to(at::rand({3}), device).values()[0]);
  });
}

TEST_P(MultiWorkerMethods, VariablesStartWithTheChiefsValueAndStayTheSame) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    std::string text;
    for (const Aggregation how :
         {Aggregation::SUM, Aggregation::MEAN, Aggregation::ONLY_FIRST_REPLICA}) {
      Variable written(at::rand({3}), {.name = "written", .aggregation = how});
      Variable read(
          at::rand({3}),
          {.name = "read", .synchronization = Synchronization::ON_READ, .aggregation = how});
      strategy.run([&] {
        written.assign_add(at::rand({3}) * (id() + 1));
        read.assign_add(at::full({3}, id() + 0.25));
        written.assign(written * 0.5);
      });
      text += bits_of(written.value()) + bits_of(read.value());
      read.assign(at::full({3}, 7.5));
      text += bits_of(read.value());
      strategy.run([&] {
        const VariableSyncOnReadContext sync;
        EXPECT_EQ((read + 1.0).sizes()[0], 3);
      });
    }
    return text;
  });
}

TEST_P(MultiWorkerMethods, ScattersTakeTheRowsOfAllReplicas) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    Variable sums(at::zeros({6, 2}), {.aggregation = Aggregation::MEAN});
    Variable firsts(at::zeros({6, 2}), {.aggregation = Aggregation::ONLY_FIRST_REPLICA});
    strategy.run([&] {
      const IndexedSlices rows{at::rand({2, 2}), at::tensor({id() % 6, 2})};
      sums.scatter_add(rows);
      firsts.scatter_update(rows);
    });
    return bits_of(sums.value()) + bits_of(firsts.value());
  });
}

TEST_P(MultiWorkerMethods, VariablesMadeInsideOfRun) {
  expect_as_one_process([](const Strategy& strategy) {
    std::optional<Variable> made;
    strategy.run([&] {
      Variable own([] { return at::rand({2}); },
                   {.name = "inside", .aggregation = Aggregation::SUM});
      own.assign_add(at::full({2}, id() + 0.5));
      if (get_replica_context().local_id() == 0) made = own;
    });
    return bits_of(made->value());
  });
}

TEST_P(MultiWorkerMethods, MetricsCountAllReplicas) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto scope = strategy.scope();
    metrics::Mean loss("loss");
    strategy.run([&] { loss.update(at::rand({id() + 1})); });
    std::string text = bits_of(loss.result());
    loss.reset();
    strategy.run([&] { loss.update(at::full({2}, id())); });
    return text + bits_of(loss.result());
  });
}

TEST_P(MultiWorkerMethods, BarrierWaitsForAll) {
  expect_as_one_process([](const Strategy& strategy) {
    strategy.run([] { get_replica_context().barrier(); });
    return std::string("passed");
  });
}

TEST_P(MultiWorkerMethods, ValuesForReplicasKnowTheirGlobalNumber) {
  expect_as_one_process([](const Strategy& strategy) {
    const auto values = strategy.distribute_values_from_function([](const ValueContext& context) {
      return at::tensor({context.replica_id_in_sync_group, context.num_replicas_in_sync});
    });
    return bits_of(strategy.gather(values, 0));
  });
}

}  // namespace
}  // namespace cohort
