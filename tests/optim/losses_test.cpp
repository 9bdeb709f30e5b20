#include "cohort/optim/losses.h"

#include "cohort/optim/sync_batch_norm.h"
#include "tests/optim/training.h"

namespace cohort {
namespace {

using Numbers = std::vector<float>;

struct AverageLoss : OnStrategies {
  using OnStrategies::OnStrategies;
  const Tensor three_ = torch::tensor({1.f, 2.f, 3.f});

  /// The default strategy's scope is no cross-replica context.
  bool has_scope() const { return strategy != default_strategy(); }
};
ON_ALL_STRATEGIES(AverageLoss);

TEST_ON_EACH_WORKER(AverageLoss, IsTheSumByTheGlobalBatchSize) {
  EXPECT_EQ(average_loss(three_, 12).item<float>(), 0.5f);
  EXPECT_EQ(average_loss(torch::tensor({1, 2}), 4).scalar_type(), at::kDouble);
  EXPECT_EQ(average_loss(torch::zeros({0}), 4).item<float>(), 0);
  const auto scope = strategy.scope();
  EXPECT_EQ(average_loss(three_, 8).item<float>(), 0.75f) << "in cross-replica context too";
}

TEST_ON_EACH_WORKER(AverageLoss, CountsTheLocalExamplesOfAllReplicasByDefault) {
  EXPECT_EQ(average_loss(three_).item<float>(), 2);
  const auto shares = strategy.run([&] { return average_loss(three_); });
  for (const Tensor& share : shares.values()) EXPECT_FLOAT_EQ(share.item<float>(), 2.f / n);
  const auto scope = strategy.scope();
  if (has_scope()) {
    EXPECT_FAILS(average_loss(three_), RuntimeError, "cross-replica context");
  }
}

TEST_ON_EACH_WORKER(AverageLoss, OfUnevenBatchesIsTheAverageOverAllExamples) {
  const auto shares = strategy.run([&] {
    return average_loss(torch::arange(id(), 2 * id() + 1, at::kDouble), n * (n + 1) / 2);
  });
  const Tensor all = torch::cat([&] {
    std::vector<Tensor> each;
    for (int r = 0; r < n; ++r) each.push_back(torch::arange(r, 2 * r + 1, at::kDouble));
    return each;
  }());
  EXPECT_NEAR(strategy.reduce("SUM", shares).item<double>(), all.mean().item<double>(), 1e-12);
}

TEST(AverageLossOfABatch, WeighsExamples) {
  const Tensor three = torch::tensor({1.f, 2.f, 3.f});
  const Tensor weights = torch::tensor({1.f, 0.f, 2.f});
  EXPECT_EQ(average_loss(three, 7, weights).item<float>(), 1);
  EXPECT_EQ(average_loss(three, 7, weights.unsqueeze(1)).item<float>(), 1);
  EXPECT_EQ(average_loss(three, 6, torch::tensor(2.)).item<float>(), 2);
  const Tensor square = torch::arange(9.f).view({3, 3});
  EXPECT_EQ(average_loss(square, 1, weights).item<float>(), 3 + 42) << "of rows, not columns";
  EXPECT_FAILS(average_loss(three, 7, torch::ones({2})), InvalidArgument, "weights do not fit");
}

TEST(AverageLossOfABatch, RefusesScalarsAndNegativeBatchSizes) {
  const Tensor three = torch::tensor({1.f, 2.f, 3.f});
  EXPECT_FAILS(average_loss(torch::tensor(1.f), 4), ValueError, "no batch dimension");
  EXPECT_FAILS(average_loss(three, -1), InvalidArgument, "non-negative, got -1");
}

TEST(AverageLossOfABatch, OfNoExamplesIsZero) {
  Tensor losses = torch::tensor({1.f, INFINITY}, torch::requires_grad());
  const Tensor loss = average_loss(losses, 0);
  EXPECT_EQ(loss.item<float>(), 0);
  loss.backward();
  EXPECT_TRUE(losses.grad().eq(0).all().item<bool>());
}

TEST_ON_EACH_WORKER(AverageLoss, OfARegularizationCountsOnceOverAllReplicas) {
  const auto shares = strategy.run([&] { return scale_regularization_loss(three_); });
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::SUM, shares).item<float>(), 6);
  EXPECT_EQ(scale_regularization_loss(three_).item<float>(), 6);
  EXPECT_EQ(scale_regularization_loss(torch::tensor({1, 2})).item<double>(), 3);
  const auto scope = strategy.scope();
  if (has_scope()) {
    EXPECT_FAILS(scale_regularization_loss(three_), RuntimeError, "cross-replica context");
  }
}

// SyncBatchNorm, against BatchNorm with the whole batch.

struct SyncNorm : OnStrategies {
  using OnStrategies::OnStrategies;

  /// Forward and backward on shares of these sizes, then in evaluation.
  template <class Plain>
  void expect_as_whole_batch(Plain plain, Tensor input,
                             const std::vector<std::int64_t>& sizes) const {
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

  /// So many rows for each replica, so that the sum is `total`: as they come, a few each time.
  std::vector<std::int64_t> uneven(std::int64_t total) const {
    std::vector<std::int64_t> sizes(n, 0);
    for (std::int64_t row = 0; row < total; ++row) ++sizes[row * row % n];
    return sizes;
  }
  std::vector<std::int64_t> all_on(int replica, std::int64_t total) const {
    std::vector<std::int64_t> sizes(n, 0);
    sizes[replica] = total;
    return sizes;
  }

  const Tensor rows_ = torch::sin(torch::arange(48, at::kFloat)).view({16, 3}) * 3 + 1;
  const Tensor images_ = torch::sin(torch::arange(768, at::kFloat)).view({16, 3, 4, 4}) - 2;
};
ON_ALL_STRATEGIES(SyncNorm);

TEST_ON_EACH_WORKER(SyncNorm, IsBatchNormWithTheWholeBatch) {
  std::vector<std::int64_t> even(n, 16 / n);
  even[last] += 16 % n;
  expect_as_whole_batch(nn::BatchNorm1d(3), rows_, even);
  expect_as_whole_batch(nn::BatchNorm2d(3), images_, even);
  expect_as_whole_batch(nn::BatchNorm1d(3), rows_, uneven(16));
  expect_as_whole_batch(nn::BatchNorm2d(3), images_, uneven(16));
}

TEST_ON_EACH_WORKER(SyncNorm, TakesTheSameOptions) {
  const auto options = nn::BatchNormOptions(3).eps(0.1).momentum(c10::nullopt);
  expect_as_whole_batch(nn::BatchNorm1d(options), rows_, uneven(16));
}

TEST_ON_EACH_WORKER(SyncNorm, LetsAReplicaHaveNoExamples) {
  for (const int one : {0, last}) {
    expect_as_whole_batch(nn::BatchNorm1d(3), rows_, all_on(one, 16));
    expect_as_whole_batch(nn::BatchNorm2d(3), images_, all_on(one, 16));
  }
}

TEST_ON_EACH_WORKER(SyncNorm, LeavesItsStatisticsAloneWhenNobodyHasExamples) {
  const auto scope = strategy.scope();
  Model<SyncBatchNorm> model(3);
  strategy.run([&] { EXPECT_EQ(model(torch::zeros({0, 3})).size(0), 0); });
  EXPECT_EQ(model->num_batches_tracked.item<int>(), 0);
  EXPECT_TRUE(model->running_var.eq(1).all().item<bool>());
}

TEST_ON_EACH_WORKER(SyncNorm, WithoutParametersOrStatistics) {
  const auto scope = strategy.scope();
  Model<SyncBatchNorm> model(nn::BatchNormOptions(3).affine(false).track_running_stats(false));
  model.eval();
  nn::BatchNorm1d plain(nn::BatchNormOptions(3).affine(false).track_running_stats(false));
  const auto output = strategy.run([&] { return model(rows_.tensor_split(n)[id()]); });
  EXPECT_TRUE(strategy.gather(output, 0).allclose(plain(rows_), 1e-4, 1e-5));
}

TEST(SyncNormAlone, RefusesAnotherNumberOfFeatures) {
  EXPECT_FAILS(SyncBatchNorm(4)(torch::ones({8, 3})), ValueError, "expected [batch, 4");
}

}  // namespace
}  // namespace cohort
