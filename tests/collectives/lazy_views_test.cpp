// Conjugated and negated tensors, which LibTorch keeps as a note on memory that holds something
// else: what is combined are the values that the tensor shows.

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/cohort.h"
#include "cohort/optim/fingerprint.h"
#include "cohort/optim/same_bits.h"

namespace cohort {
namespace {

using Complex = c10::complex<double>;

at::Tensor conjugated() {
  return torch::tensor({Complex(1, 2), Complex(3, -4)}, at::kComplexDouble).conj();
}
at::Tensor negated() { return torch::_neg_view(torch::tensor({1.0, -2.0, 3.0})); }

/// The same values in plain memory.
at::Tensor plain(const at::Tensor& view) {
  return (view.is_complex() ? view.resolve_conj() : view.resolve_neg()).clone();
}

/// Each test is about both kinds, on two replicas that bring the same.
class LazyViews : public testing::TestWithParam<at::Tensor (*)()> {
 protected:
  void SetUp() override { ASSERT_TRUE(view.is_conj() || view.is_neg()); }

  PerReplica<at::Tensor> both() const { return PerReplica<at::Tensor>({view, view}); }

  Strategy strategy = MirroredStrategy({"cpu:0", "cpu:1"});
  at::Tensor view = GetParam()();
  at::Tensor values = plain(view);
};

#define EXPECT_EQUAL(tensor, expected) EXPECT_TRUE(torch::equal(tensor, expected)) << (tensor)

TEST_P(LazyViews, AreReduced) {
  EXPECT_EQUAL(strategy.reduce("SUM", both()), values * 2);
  EXPECT_EQUAL(strategy.reduce("MEAN", both()), values);
  EXPECT_EQUAL(strategy.reduce("SUM", both(), 0), values.sum() * 2);
  EXPECT_EQUAL(strategy.reduce("MEAN", view), values);
}

TEST_P(LazyViews, AreReducedToDestinations) {
  StrategyExtended& extended = strategy.extended();
  EXPECT_EQUAL(extended.reduce_to("SUM", both(), "cpu:1").get(), values * 2);
  using Pair = std::pair<PerReplica<at::Tensor>, Destinations>;
  const std::vector<Pair> pairs{{both(), "cpu:0"}, {both(), "cpu:0"}};
  for (const auto& each : extended.batch_reduce_to("SUM", pairs)) {
    for (const at::Tensor& copy : each.values()) EXPECT_EQUAL(copy, values * 2);
  }
  EXPECT_EQUAL(extended.broadcast_to(view, "cpu:1").get(), values);
}

TEST_P(LazyViews, AreGathered) {
  EXPECT_EQUAL(strategy.gather(both(), 0), torch::cat({values, values}));
}

TEST_P(LazyViews, AreCombinedInReplicas) {
  strategy.run([&] {
    ReplicaContext& replica = get_replica_context();
    EXPECT_EQUAL(replica.all_reduce("SUM", view), values * 2);
    EXPECT_EQUAL(replica.all_reduce("MEAN", view), values);
    EXPECT_EQUAL(replica.all_gather(view, 0), torch::cat({values, values}));
  });
}

TEST_P(LazyViews, AreCombinedByEveryAlgorithm) {
  const std::vector<Device> devices{"cpu:0", "cpu:1"};
  const std::vector<std::shared_ptr<CrossDeviceOps>> algorithms{
      std::make_shared<ReductionToOneDevice>(), std::make_shared<HierarchicalCopyAllReduce>(2),
      std::make_shared<CollectiveAllReduce>(devices, 2)};
  const std::vector<std::vector<at::Tensor>> batch(3, {view, view});
  for (const auto& algorithm : algorithms) {
    EXPECT_EQUAL(algorithm->reduce("SUM", batch[0], devices)[1], values * 2);
    for (const auto& result : algorithm->batch_reduce("SUM", batch, devices)) {
      EXPECT_EQUAL(result[0], values * 2);
    }
  }
}

TEST_P(LazyViews, AreAssignedAndAggregated) {
  const auto scope = strategy.scope();
  const Variable v(torch::zeros_like(values), {.aggregation = Aggregation::SUM});
  strategy.run([&] { v.assign(view); });
  EXPECT_EQUAL(v.read_value(), values * 2);
  v.assign_add(view);
  EXPECT_EQUAL(v.read_value(), values * 3);
}

TEST_P(LazyViews, AreGradientsOfCollectives) {
  strategy.run([&] {
    const at::Tensor x = torch::zeros_like(values).requires_grad_();
    get_replica_context().all_reduce("SUM", x).backward(view);
    EXPECT_EQUAL(x.grad(), values * 2);
  });
}

/// A module that is a parameter.
struct WeightImpl : torch::nn::Module {
  explicit WeightImpl(const at::Tensor& value) {
    weight = register_parameter("weight", value.clone());
  }
  at::Tensor forward() { return weight.view_as(weight); }
  at::Tensor weight;
};
TORCH_MODULE(Weight);

TEST_P(LazyViews, AreGradientsOfModels) {
  const auto scope = strategy.scope();
  const Model<Weight> model([this] { return Weight(torch::zeros_like(values)); });
  Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(1));
  strategy.run([&] {
    model().backward(view);
    EXPECT_EQUAL(model->weight.grad(), values * 2);
    optimizer.step();
  });
  EXPECT_EQUAL(model.state_dict().at("weight"), values * -2);
  strategy.run([&] {
    optimizer.zero_grad();
    model->weight.mutable_grad() = view;  // of this replica; `step` sums it
    optimizer.step();
  });
  EXPECT_EQUAL(model.state_dict().at("weight"), values * -4);
}

TEST_P(LazyViews, HaveTheBitsOfTheirValues) {
  EXPECT_TRUE(same_bits(view, values));
  EXPECT_EQ(hash_of_bits(view), hash_of_bits(values));
  EXPECT_EQ(fingerprint({{"x", view}}), fingerprint({{"x", values}}));
}

INSTANTIATE_TEST_SUITE_P(, LazyViews, testing::Values(&conjugated, &negated),
                         [](const auto& info) { return info.index ? "Negated" : "Conjugated"; });

#undef EXPECT_EQUAL

}  // namespace
}  // namespace cohort
