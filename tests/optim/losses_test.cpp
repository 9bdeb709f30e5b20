#include "cohort/optim/losses.h"

#include "cohort/optim/sync_batch_norm.h"
#include "tests/optim/training.h"

namespace cohort {
namespace {

using Numbers = std::vector<float>;

class AverageLoss : public ManyDevices {
 protected:
  const Strategy strategy_ = mirrored(2);
  const Tensor three_ = torch::tensor({1.f, 2.f, 3.f});
};

TEST_F(AverageLoss, IsTheSumByTheGlobalBatchSize) {
  EXPECT_EQ(average_loss(three_, 12).item<float>(), 0.5f);
  EXPECT_EQ(average_loss(torch::tensor({1, 2}), 4).scalar_type(), at::kDouble);
  EXPECT_EQ(average_loss(torch::zeros({0}), 4).item<float>(), 0);
  const auto scope = strategy_.scope();
  EXPECT_EQ(average_loss(three_, 8).item<float>(), 0.75f) << "in cross-replica context too";
}

TEST_F(AverageLoss, CountsTheLocalExamplesOfAllReplicasByDefault) {
  EXPECT_EQ(average_loss(three_).item<float>(), 2);
  const auto shares = strategy_.run([&] { return average_loss(three_); });
  for (const Tensor& share : shares.values()) EXPECT_EQ(share.item<float>(), 1);
  const auto scope = strategy_.scope();
  EXPECT_FAILS(average_loss(three_), RuntimeError, "cross-replica context");
}

TEST_F(AverageLoss, WeighsExamples) {
  const Tensor weights = torch::tensor({1.f, 0.f, 2.f});
  EXPECT_EQ(average_loss(three_, 7, weights).item<float>(), 1);
  EXPECT_EQ(average_loss(three_, 7, weights.unsqueeze(1)).item<float>(), 1);
  EXPECT_EQ(average_loss(three_, 6, torch::tensor(2.)).item<float>(), 2);
  const Tensor square = torch::arange(9.f).view({3, 3});
  EXPECT_EQ(average_loss(square, 1, weights).item<float>(), 3 + 42) << "of rows, not columns";
  EXPECT_FAILS(average_loss(three_, 7, torch::ones({2})), InvalidArgument, "weights do not fit");
}

TEST_F(AverageLoss, RefusesScalarsAndNegativeBatchSizes) {
  EXPECT_FAILS(average_loss(torch::tensor(1.f), 4), ValueError, "no batch dimension");
  EXPECT_FAILS(average_loss(three_, -1), InvalidArgument, "non-negative, got -1");
}

TEST_F(AverageLoss, OfNoExamplesIsZero) {
  Tensor losses = torch::tensor({1.f, INFINITY}, torch::requires_grad());
  const Tensor loss = average_loss(losses, 0);
  EXPECT_EQ(loss.item<float>(), 0);
  loss.backward();
  EXPECT_TRUE(losses.grad().eq(0).all().item<bool>());
}

TEST_F(AverageLoss, OfARegularizationCountsOnceOverAllReplicas) {
  const auto shares = strategy_.run([&] { return scale_regularization_loss(three_); });
  EXPECT_EQ(strategy_.reduce(ReduceOp::SUM, shares).item<float>(), 6);
  EXPECT_EQ(scale_regularization_loss(three_).item<float>(), 6);
  EXPECT_EQ(scale_regularization_loss(torch::tensor({1, 2})).item<double>(), 3);
  const auto scope = strategy_.scope();
  EXPECT_FAILS(scale_regularization_loss(three_), RuntimeError, "cross-replica context");
}

// SyncBatchNorm, against BatchNorm with the whole batch.

class SyncNorm : public ManyDevices {
 protected:
  /// Forward and backward on shares of these sizes, then in evaluation.
  template <class Plain>
  void expect_as_whole_batch(const Strategy& strategy, Plain plain, Tensor input,
                             const std::vector<std::int64_t>& sizes) {
    const auto scope = strategy.scope();
    Model<SyncBatchNorm> model(plain->options);
    const Tensor upstream = torch::cos(torch::arange(input.numel(), at::kFloat)).view_as(input);
    const Tensor whole = input.clone().requires_grad_();
    const Tensor expected = plain(whole);
    (expected * upstream).sum().backward();

    const auto inputs = input.split_with_sizes(sizes), ups = upstream.split_with_sizes(sizes);
    const auto [output, input_grad, weight_grad] = strategy.run([&] {
      const Tensor own = inputs[id()].clone().requires_grad_();
      const Tensor out = model(own);
      (out * ups[id()]).sum().backward();
      return std::tuple{out.detach(), own.grad(), model->weight.grad()};
    });
    EXPECT_TRUE(strategy.gather(output, 0).allclose(expected, 1e-4, 1e-5));
    EXPECT_TRUE(strategy.gather(input_grad, 0).allclose(whole.grad(), 1e-3, 1e-5));
    EXPECT_TRUE(
        strategy.reduce(ReduceOp::SUM, weight_grad).allclose(plain->weight.grad(), 1e-4, 1e-4));
    expect_on_every_replica(model, state_of(*plain));
    model.eval();
    plain->eval();
    EXPECT_TRUE(model(input).allclose(plain(input), 1e-4, 1e-5));
  }
  const Tensor rows_ = torch::sin(torch::arange(24, at::kFloat)).view({8, 3}) * 3 + 1;
  const Tensor images_ = torch::sin(torch::arange(192, at::kFloat)).view({4, 3, 4, 4}) - 2;
};

TEST_F(SyncNorm, IsBatchNormWithTheWholeBatch) {
  expect_as_whole_batch(mirrored(2), nn::BatchNorm1d(3), rows_, {4, 4});
  expect_as_whole_batch(mirrored(2, 4), nn::BatchNorm1d(3), rows_, {1, 2, 2, 3});
  expect_as_whole_batch(mirrored(2), nn::BatchNorm2d(3), images_, {1, 3});
  expect_as_whole_batch(default_strategy(), nn::BatchNorm2d(3), images_, {4});
}

TEST_F(SyncNorm, TakesTheSameOptions) {
  const auto options = nn::BatchNormOptions(3).eps(0.1).momentum(c10::nullopt);
  expect_as_whole_batch(mirrored(2), nn::BatchNorm1d(options), rows_, {4, 4});
}

TEST_F(SyncNorm, LetsAReplicaHaveNoExamples) {
  expect_as_whole_batch(mirrored(2), nn::BatchNorm1d(3), rows_, {8, 0});
  expect_as_whole_batch(mirrored(3), nn::BatchNorm2d(3), images_, {0, 1, 3});
}

TEST_F(SyncNorm, LeavesItsStatisticsAloneWhenNobodyHasExamples) {
  const Strategy strategy = mirrored(2);
  const auto scope = strategy.scope();
  Model<SyncBatchNorm> model(3);
  strategy.run([&] { EXPECT_EQ(model(torch::zeros({0, 3})).size(0), 0); });
  EXPECT_EQ(model->num_batches_tracked.item<int>(), 0);
  EXPECT_TRUE(model->running_var.eq(1).all().item<bool>());
}

TEST_F(SyncNorm, WithoutParametersOrStatistics) {
  const Strategy strategy = mirrored(2);
  const auto scope = strategy.scope();
  Model<SyncBatchNorm> model(nn::BatchNormOptions(3).affine(false).track_running_stats(false));
  model.eval();
  nn::BatchNorm1d plain(nn::BatchNormOptions(3).affine(false).track_running_stats(false));
  const auto output = strategy.run([&] { return model(rows_.chunk(2)[id()]); });
  EXPECT_TRUE(strategy.gather(output, 0).allclose(plain(rows_), 1e-4, 1e-5));
}

TEST_F(SyncNorm, RefusesAnotherNumberOfFeatures) {
  EXPECT_FAILS(SyncBatchNorm(4)(rows_), ValueError, "expected [batch, 4");
}

}  // namespace
}  // namespace cohort
