// The iterators of TensorFlow 1. Rules 10.1 to 10.6.

#include "cohort/compat/input.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/device/configuration.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "tests/base/failing.h"

namespace cohort::compat {
namespace {

Strategy two() {
  configure({.cpu_devices = 2});
  return MirroredStrategy({"cpu:0", "cpu:1"});
}

std::vector<double> sums(const Strategy& strategy, const PerReplica<at::Tensor>& value) {
  std::vector<double> all;
  for (const at::Tensor& each : strategy.local_results(value)) {
    all.push_back(each.sum().item<double>());
  }
  return all;
}

using testing::ElementsAre;

TEST(DatasetIterator, CutsTheGlobalBatchAndCanStartAgain) {
  const Strategy strategy = two();
  auto iterator = make_dataset_iterator(strategy, data::range(4).batch(4));
  EXPECT_THAT(sums(strategy, iterator.get_next()), ElementsAre(1, 5));
  EXPECT_FAILS(iterator.get_next(), OutOfRange, "end");
  iterator.initialize();
  EXPECT_THAT(sums(strategy, iterator.get_next()), ElementsAre(1, 5));
}

TEST(InputFnIterator, GivesEachReplicaAnElementOfTheDataset) {
  const Strategy strategy = two();
  auto iterator =
      make_input_fn_iterator(strategy, [](const InputContext&) { return data::range(4).batch(2); });
  EXPECT_THAT(sums(strategy, iterator.get_next()), ElementsAre(1, 5));
}

TEST(InputFnIterator, CallsAFunctionOnceForEachReplica) {
  const Strategy strategy = two();
  auto iterator = make_input_fn_iterator(strategy, [](const InputContext&) {
    return [calls = 0]() mutable { return torch::tensor(++calls); };
  });
  EXPECT_THAT(sums(strategy, iterator.get_next()), ElementsAre(1, 2));
  EXPECT_THAT(sums(strategy, iterator.get_next()), ElementsAre(3, 4));
}

TEST(InputFnIterator, KnowsOneMode) {
  const auto fn = [](const InputContext&) { return data::range(4).batch(2); };
  EXPECT_FAILS(make_input_fn_iterator(two(), fn, InputReplicationMode::PER_REPLICA), ValueError,
               "Input replication mode not supported");
}

TEST(ExperimentalRun, TakesTheNextElement) {
  const Strategy strategy = two();
  auto iterator = make_dataset_iterator(strategy, data::range(4).batch(4));
  const auto doubled = experimental_run(
      strategy, [](const at::Tensor& x) { return 2 * x; }, iterator);
  EXPECT_THAT(sums(strategy, doubled), ElementsAre(2, 10));
}

TEST(RunStepsOnIterator, LeavesTheOutputsOfTheLastStep) {
  const Strategy strategy = two();
  auto iterator = make_dataset_iterator(strategy, data::range(8).batch(4));
  const auto context = experimental_run_steps_on_iterator(
      strategy,
      [&](MultiStepContext& steps, const PerReplica<at::Tensor>& inputs) {
        steps.set_last_step_output("all", inputs, ReduceOp::SUM);
        strategy.run(
            [&](const at::Tensor& x) {
              steps.set_last_step_output("sum", x.sum(), ReduceOp::SUM);
              steps.set_non_tensor_output("rows", x.size(0));
            },
            inputs);
      },
      iterator, 2);
  const auto tensor = [&](const char* name) {
    return std::any_cast<at::Tensor>(context.last_step_outputs().at(name));
  };
  EXPECT_EQ(tensor("sum").item<double>(), 4 + 5 + 6 + 7);
  EXPECT_TRUE(tensor("all").equal(torch::tensor({10, 12})));
  EXPECT_THAT(std::any_cast<std::vector<std::int64_t>>(context.non_tensor_outputs().at("rows")),
              ElementsAre(2, 2));
}

TEST(LastStepOutputs, InsideOfAReplicaNeedAnOperation) {
  MultiStepContext context;
  EXPECT_FAILS(two().run([&] { context.set_last_step_output("x", torch::ones({})); }), ValueError,
               "reduce_op is needed");
}

TEST(MultiStepContext, GivesOfATemporaryItsOutputsByValue) {
  const auto context = [] {
    MultiStepContext made;
    made.set_last_step_output("loss", 1.5);
    made.set_non_tensor_output("rows", 2);
    return made;
  };
  static_assert(!std::is_reference_v<decltype(context().last_step_outputs())>);
  static_assert(!std::is_reference_v<decltype(context().non_tensor_outputs())>);
  std::string names;
  for (const auto& [name, output] : context().last_step_outputs()) names += name + ' ';
  for (const auto& [name, output] : context().non_tensor_outputs()) names += name;
  EXPECT_EQ(names, "loss rows");
}

}  // namespace
}  // namespace cohort::compat
