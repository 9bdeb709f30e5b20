// Tensors that can't be combined: the error names the call and the replica.

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "tests/base/failing.h"

namespace cohort {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Two replicas, the second of which has nothing to give.
class UndefinedTensors : public testing::Test {
 protected:
  Strategy strategy = MirroredStrategy({"cpu:0", "cpu:1"});
  StrategyExtended& extended = strategy.extended();
  const PerReplica<at::Tensor> second_has_none =
      PerReplica<at::Tensor>({torch::ones({2}), at::Tensor()});
  const PerReplica<at::Tensor> none = PerReplica<at::Tensor>({at::Tensor(), at::Tensor()});
};

TEST_F(UndefinedTensors, AreRefusedByReduceWhichNamesTheReplica) {
  EXPECT_FAILS(strategy.reduce("SUM", second_has_none), ValueError,
               "[strategy.reduce] replica 1 gave an undefined tensor");
  EXPECT_FAILS(strategy.reduce("SUM", second_has_none, 0), ValueError, "replica 1 gave");
  EXPECT_FAILS(strategy.reduce("MEAN", none), ValueError, "replica 0 gave");
  EXPECT_FAILS(strategy.reduce("MEAN", at::Tensor()), ValueError, "undefined");
}

TEST_F(UndefinedTensors, AreRefusedByGatherWhichNamesTheReplica) {
  EXPECT_FAILS(strategy.gather(second_has_none, 0), ValueError,
               "[strategy.gather] replica 1 gave an undefined tensor");
  EXPECT_FAILS(strategy.gather(none, 0), ValueError, "replica 0 gave");
  EXPECT_FAILS(strategy.gather(at::Tensor(), 0), ValueError, "undefined");
}

TEST_F(UndefinedTensors, AreRefusedByReduceToAndItsBatches) {
  EXPECT_FAILS(extended.reduce_to("SUM", second_has_none, "cpu:0"), ValueError,
               "[extended.reduce_to] replica 1 gave an undefined tensor");
  using Pair = std::pair<PerReplica<at::Tensor>, Destinations>;
  const std::vector<Pair> pairs{{second_has_none, "cpu:0"}}, nothing{{none, "cpu:0"}};
  EXPECT_FAILS(extended.batch_reduce_to("SUM", pairs), ValueError,
               "[extended.batch_reduce_to] replica 1 gave an undefined tensor");
  EXPECT_FAILS(extended.batch_reduce_to("SUM", nothing), ValueError, "replica 0 gave");
  EXPECT_FAILS(extended.broadcast_to(at::Tensor(), "cpu:0"), ValueError, "undefined");
}

TEST_F(UndefinedTensors, AreRefusedByTheCollectivesOfReplicas) {
  const auto own = [](ReplicaContext& replica) {
    return replica.replica_id_in_sync_group() == 1 ? at::Tensor() : torch::ones({2});
  };
  EXPECT_FAILS(strategy.run([&] {
    ReplicaContext& replica = get_replica_context();
    replica.all_reduce("SUM", own(replica));
  }),
               ValueError, "[replica_context.all_reduce] replica 1 gave an undefined tensor");
  EXPECT_FAILS(strategy.run([&] {
    ReplicaContext& replica = get_replica_context();
    replica.all_gather(own(replica), 0);
  }),
               ValueError, "[replica_context.all_gather] replica 1 gave an undefined tensor");
}

TEST_F(UndefinedTensors, OfOneReplicaAreRefusedToo) {
  const Strategy one = OneDeviceStrategy("cpu:0");
  const PerReplica<at::Tensor> none_of_one({at::Tensor()});
  EXPECT_FAILS(one.reduce("SUM", none_of_one), ValueError, "replica 0 gave an undefined tensor");
  EXPECT_FAILS(one.gather(none_of_one, 0), ValueError, "replica 0 gave an undefined tensor");
}

TEST(UnfitTensors, OfDifferentDtypesAreToldByTheirDtype) {
  const Strategy strategy = MirroredStrategy({"cpu:0", "cpu:1"});
  const PerReplica<at::Tensor> mixed({torch::ones({2}), torch::ones({2}, at::kInt)});
  const std::string gathered = failure_of([&] { strategy.gather(mixed, 0); });
  EXPECT_THAT(gathered, HasSubstr("InvalidArgument: [strategy.gather] the replicas' dtypes differ: "
                                  "expected Float as on replica 0, got Int on replica 1"));
  EXPECT_THAT(gathered, Not(HasSubstr("Shape")));
  EXPECT_THAT(failure_of([&] { strategy.reduce("SUM", mixed); }),
              HasSubstr("[strategy.reduce] the replicas' tensors differ"));
  EXPECT_FAILS(strategy.run([] {
    ReplicaContext& replica = get_replica_context();
    const auto dtype = replica.replica_id_in_sync_group() == 0 ? at::kFloat : at::kInt;
    replica.all_gather(torch::ones({2}, dtype), 0);
  }),
               InvalidArgument, "[replica_context.all_gather] the replicas' dtypes differ");
}

TEST(UnfitTensors, AreToldByTheCallThatTheUserMade) {
  const Strategy strategy = MirroredStrategy({"cpu:0", "cpu:1"});
  const PerReplica<at::Tensor> lengths({torch::ones({2}), torch::ones({3})});
  EXPECT_FAILS(strategy.reduce("SUM", lengths), InvalidArgument, "[strategy.reduce]");
  EXPECT_FAILS(strategy.extended().reduce_to("SUM", lengths, "cpu:0"), InvalidArgument,
               "[extended.reduce_to]");
  EXPECT_FAILS(strategy.gather(PerReplica<at::Tensor>({torch::ones({}), torch::ones({})}), 0),
               ValueError, "[strategy.gather]");
  const auto flags = torch::ones({2}, at::kBool);
  EXPECT_FAILS(strategy.reduce("SUM", PerReplica<at::Tensor>({flags, flags})), InvalidArgument,
               "[strategy.reduce] values of type Bool cannot be added");
  EXPECT_FAILS(strategy.run([&] { get_replica_context().all_reduce("MEAN", flags); }),
               InvalidArgument, "[replica_context.all_reduce] values of type Bool");
  const auto scope = strategy.scope();
  const Variable v(torch::zeros({2}), {.aggregation = Aggregation::SUM});
  EXPECT_FAILS(strategy.run([&] { v.assign(torch::ones({get_replica_context().local_id() + 2})); }),
               InvalidArgument, "[variable.assign]");
}

// Kinds of tensors.

at::Tensor nested() {
  return at::_nested_tensor_from_tensor_list({torch::ones({2, 3}), torch::ones({4, 3})});
}

TEST(UnfitTensors, AreDescribedWhateverTheirKind) {
  using collectives::describe;
  const at::Tensor x = torch::eye(3);
  EXPECT_EQ(describe(at::Tensor()), "an undefined tensor");
  EXPECT_EQ(describe(x), "Float [3, 3]");
  EXPECT_EQ(describe(x.to_sparse()), "sparse Float [3, 3]");
  EXPECT_EQ(describe(x.to_sparse_csr()), "Float [3, 3]");
  EXPECT_EQ(describe(x.to(at::kMeta)), "Float [3, 3]");
  EXPECT_EQ(describe(at::quantize_per_tensor(x, 0.1, 0, at::kQInt8)), "QInt8 [3, 3]");
  EXPECT_EQ(describe(nested()), "nested Float [[2, 3], [4, 3]]");
  const std::vector<at::Tensor> many(6, torch::ones({1}));
  EXPECT_EQ(describe(at::_nested_tensor_from_tensor_list(many)),
            "nested Float [[1], [1], [1], [1] and 2 more]");
  EXPECT_EQ(describe(at::_nested_tensor_from_tensor_list({})), "nested Float []");
}

TEST(UnfitTensors, AreNamedInAMismatchWhateverTheirKind) {
  const Strategy strategy = MirroredStrategy({"cpu:0", "cpu:1"});
  EXPECT_FAILS(strategy.run([] {
    ReplicaContext& replica = get_replica_context();
    replica.local_id() == 0 ? replica.barrier()
                            : static_cast<void>(replica.all_gather(nested(), 0));
  }),
               InvalidArgument,
               "replica 1 calls all_gather(axis 0) of nested Float [[2, 3], [4, 3]]");
  EXPECT_FAILS(strategy.run([] {
    ReplicaContext& replica = get_replica_context();
    if (replica.local_id() == 1) replica.all_reduce("SUM", nested());
  }),
               RuntimeError, "[all_reduce(SUM) of nested Float [[2, 3], [4, 3]]] replica 0 has");
}

TEST(UnfitTensors, ThatAreNestedCantBeCombined) {
  const Strategy strategy = MirroredStrategy({"cpu:0", "cpu:1"});
  const PerReplica<at::Tensor> both({nested(), nested()});
  const PerReplica<at::Tensor> second({torch::ones({2, 3}), nested()});
  for (const auto& [values, who] :
       {std::pair(both, "replica 0 gave"), {second, "replica 1 gave"}}) {
    EXPECT_FAILS(strategy.reduce("SUM", values), InvalidArgument, cat("[strategy.reduce] ", who));
    EXPECT_FAILS(strategy.gather(values, 0), InvalidArgument, cat("[strategy.gather] ", who));
    EXPECT_FAILS(strategy.gather(values, 0), InvalidArgument,
                 "nested Float [[2, 3], [4, 3]]: expected a tensor of one size, give "
                 "to_padded_tensor() of it");
    EXPECT_FAILS(
        strategy.run([](const at::Tensor& own) { get_replica_context().all_reduce("SUM", own); },
                     values),
        InvalidArgument, "leaf 0 must be a tensor of one size, and not nested");
    EXPECT_FAILS(
        strategy.run([](const at::Tensor& own) { get_replica_context().all_gather(own, 0); },
                     values),
        InvalidArgument, cat("[replica_context.all_gather] ", who));
  }
  const auto scope = strategy.scope();
  const Variable v(torch::zeros({2, 3}), {.aggregation = Aggregation::SUM});
  EXPECT_FAILS(v.assign(nested()), ValueError, "Expected [2, 3], got a nested tensor");
  EXPECT_FAILS(strategy.run([&] { v.assign(nested()); }), InvalidArgument,
               "[variable.assign] replica 0 gave nested Float");
}

TEST(UnfitTensors, ThatAreNestedAreTheirOwnSumOnOneReplica) {
  const Strategy strategy = OneDeviceStrategy("cpu:0");
  const auto same = [](const at::Tensor& value) { return value.is_nested(); };
  EXPECT_TRUE(same(strategy.reduce("SUM", PerReplica<at::Tensor>({nested()}))));
  strategy.run([&] { EXPECT_TRUE(same(get_replica_context().all_reduce("SUM", nested()))); });
}

TEST(UnfitTensors, CantBePutOnLogicalDevices) {
  const Strategy strategy = MirroredStrategy(MirroredStrategy::Options{
      .devices = {"cpu:0", "cpu:1"}, .replicas = 1, .logical_devices_per_replica = 2});
  const std::vector<std::pair<at::Tensor, std::string>> unfit{
      {at::Tensor(), "an undefined tensor"},
      {nested(), "a nested tensor"},
      {torch::eye(3).to_sparse(), "a Sparse tensor of sizes [3, 3]"}};
  for (const auto& [tensor, what] : unfit) {
    EXPECT_FAILS(strategy.run([&] {
      strategy.split_to_logical_devices(tensor, {2, 1});
    }),
                 ValueError, what + " can't be split [2, 1]: expected a dense one");
    EXPECT_FAILS(strategy.run([&] { strategy.assign_to_logical_device(tensor, 1); }), ValueError,
                 what + " can't be assigned to logical device 1: expected a dense one");
    EXPECT_FAILS(strategy.assign_to_logical_device(tensor, 3), ValueError, what);
  }
}

}  // namespace
}  // namespace cohort
