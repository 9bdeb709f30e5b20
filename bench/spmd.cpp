// One replica spread over two logical devices, against one plain thread. Strict mode is on, so that
// nothing is gathered.
#include <cohort/cohort.h>
#include <cohort/spmd/pipeline.h>

#include "harness.h"

namespace {

namespace nn = torch::nn;
namespace spmd = cohort::spmd;
using bench::at_least;
using bench::at_most;
using torch::Tensor;

/// Compares `plain` and `spread`, which take turns, in the one replica of a strategy with two
/// logical devices; and says what two threads gained that share nothing, at the same time.
void speed_up(bench::Report& report, const char* name, const cohort::Strategy& strategy,
              const bench::Step& plain, const bench::Step& spread, double seconds,
              const char* against, double bar) {
  strategy.run([&] {
    const spmd::Strict strict;
    const bench::Comparison comparison(
        {plain, spread, [] { bench::arithmetic(1); }, [] { bench::arithmetic(2); }},
        {.seconds = seconds, .slice = 0.1});
    report.add(name, comparison.ratio(0, 1), "ratio",
               cohort::cat("one thread; ", against,
                           "; two threads of arithmetic beside it: ", 2 * comparison.ratio(2, 3)),
               at_least(bar));
  });
}

cohort::Strategy two_devices() {
  return cohort::MirroredStrategy(cohort::MirroredStrategy::Options{
      .devices = {"cpu:0", "cpu:1"}, .logical_devices_per_replica = 2});
}

/// The mesh of the strategy's replica.
spmd::MeshPtr mesh_of(const cohort::Strategy& strategy) {
  return spmd::mesh_of_copy(strategy.extended(), 0);
}

void cnn(bench::Report& report) {
  const cohort::Strategy strategy = two_devices();
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 32, 3).padding(1)), nn::ReLU(),
                     nn::Conv2d(nn::Conv2dOptions(32, 32, 3).padding(1)), nn::ReLU(),
                     nn::Conv2d(nn::Conv2dOptions(32, 64, 3).padding(1)), nn::ReLU());
  const Tensor images = torch::rand({4, 3, 128, 128});
  const auto step = [&](const Tensor& x) {
    net->zero_grad();
    net->forward(x).mean().backward();
  };
  speed_up(
      report, "spmd/cnn", strategy, [&] { step(images); },
      [&] {
        step(strategy.split_to_logical_devices(images, {1, 1, 2, 1}));
      },
      24, "images of 128 x 128, batch 4, split over the height", 1.65);
}

void matmul(bench::Report& report) {
  const cohort::Strategy strategy = two_devices();
  const Tensor a = torch::rand({1024, 1024}), b = torch::rand({1024, 1024});
  const Tensor rows = spmd::split(a, mesh_of(strategy), {2, 1});
  speed_up(
      report, "spmd/matmul", strategy, [&] { a.mm(b); }, [&] { rows.mm(b); }, 9,
      "1024 x 1024, rows split", 1.85);
}

void tiny_op(bench::Report& report) {
  const cohort::Strategy strategy = two_devices();
  const Tensor x = spmd::split(torch::rand({2, 8}), mesh_of(strategy), {2, 1});
  double seconds = 0;
  strategy.run([&] {
    const torch::NoGradGuard no_grad;
    constexpr int kCalls = 200;
    seconds = bench::median_call(300,
                                 [&] {
                                   for (int i = 0; i < kCalls; ++i) torch::relu(x);
                                 }) /
              kCalls;
  });
  report.add("spmd/tiny_op", seconds * 1e6, "us", "one relu of 2 x 8 on two devices", at_most(6));
}

/// A layer of a transformer with attention over `heads`, all in plain operations.
struct Layer {
  static constexpr int kWidth = 256, kHeads = 8;

  Layer() {
    for (Tensor* weight : {&q, &k, &v, &out}) *weight = torch::randn({kWidth, kWidth}) * 0.05;
    up = torch::randn({4 * kWidth, kWidth}) * 0.05;
    down = torch::randn({kWidth, 4 * kWidth}) * 0.05;
    for (Tensor* weight : {&q, &k, &v, &out, &up, &down}) weight->set_requires_grad(true);
  }

  /// The same weights with heads and hidden units split: columns of the first products, rows of the
  /// second ones.
  Layer(const Layer& plain, const spmd::MeshPtr& mesh) {
    const auto place = [&](const Tensor& weight, std::vector<std::int64_t> parts) {
      return spmd::split(weight.detach(), mesh, parts).set_requires_grad(true);
    };
    q = place(plain.q, {2, 1});
    k = place(plain.k, {2, 1});
    v = place(plain.v, {2, 1});
    out = place(plain.out, {1, 2});
    up = place(plain.up, {2, 1});
    down = place(plain.down, {1, 2});
  }

  Tensor forward(const Tensor& x) const {
    const std::int64_t batch = x.size(0), length = x.size(1);
    const auto heads = [&](const Tensor& weight) {  // first, as they are what is split
      return torch::linear(x, weight).view({batch, length, kHeads, -1}).permute({2, 0, 1, 3});
    };
    const Tensor scores = heads(q).matmul(heads(k).transpose(2, 3)) / std::sqrt(kWidth / kHeads);
    const Tensor mixed = scores.softmax(-1).matmul(heads(v)).permute({1, 2, 0, 3});
    const Tensor y =
        torch::layer_norm(x + torch::linear(mixed.reshape({batch, length, kWidth}), out), {kWidth});
    return torch::layer_norm(y + torch::linear(torch::gelu(torch::linear(y, up)), down), {kWidth});
  }

  Tensor q, k, v, out, up, down;
};

void transformer(bench::Report& report) {
  const cohort::Strategy strategy = two_devices();
  std::vector<Layer> plain(4), spread;
  for (const Layer& layer : plain) spread.emplace_back(layer, mesh_of(strategy));
  const Tensor x = torch::rand({8, 128, Layer::kWidth});
  const auto step = [&](const std::vector<Layer>& layers) {
    Tensor y = x;
    for (const Layer& layer : layers) y = layer.forward(y);
    y.square().mean().backward();
  };
  speed_up(
      report, "spmd/transformer", strategy, [&] { step(plain); }, [&] { step(spread); }, 24,
      "width 256, 4 layers, batch 8, length 128, heads split", 1.5);
}

void pipeline(bench::Report& report) {
  const cohort::Strategy strategy = two_devices();
  const auto stage = [] {
    return nn::Sequential(nn::Linear(512, 1024), nn::ReLU(), nn::Linear(1024, 512), nn::ReLU(),
                          nn::Linear(512, 1024), nn::ReLU(), nn::Linear(1024, 512), nn::ReLU());
  };
  nn::Sequential front = stage(), back = stage();
  auto pipe = spmd::pipeline({front, back}, 8);
  const Tensor x = torch::rand({4096, 512});
  const auto clear = [&] {
    front->zero_grad();
    back->zero_grad();
  };
  speed_up(
      report, "spmd/pipeline", strategy,
      [&] {
        clear();
        back->forward(front->forward(x)).mean().backward();
      },
      [&] {
        clear();
        pipe(x).mean().backward();
      },
      30, "2 stages of 512-1024-512-1024-512, 4096 rows, 8 micro-batches", 1.5);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  cohort::configure({.cpu_devices = 2});
  bench::Report report;
  tiny_op(report);
  matmul(report);
  cnn(report);
  transformer(report);
  pipeline(report);
}
