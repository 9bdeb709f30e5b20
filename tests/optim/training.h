#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "tests/distribute/layouts.h"

/// A small network, its data, and words for training it on a strategy and without one.
namespace cohort {

namespace nn = torch::nn;
namespace optim = torch::optim;
using torch::Tensor;

struct NetImpl : nn::Module {
  NetImpl() {
    first = register_module("first", nn::Linear(4, 8));
    second = register_module("second", nn::Linear(8, 3));
  }
  Tensor hidden(const Tensor& x) { return torch::tanh(first(x)); }
  Tensor forward(const Tensor& x) { return second(hidden(x)); }
  nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

/// A network whose embedding has sparse gradients.
struct WordsImpl : nn::Module {
  WordsImpl() {
    seed_thread(3);
    table = register_module("table", nn::Embedding(nn::EmbeddingOptions(10, 4).sparse(true)));
    head = register_module("head", nn::Linear(4, 3));
  }
  Tensor forward(const Tensor& words) { return head(table(words)); }
  nn::Embedding table{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Words);

inline std::vector<Device> first_devices(int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.emplace_back(DeviceType::CPU, i);
  return devices;
}

inline Strategy central(int devices) {
  return CentralStorageStrategy(
      {.compute_devices = first_devices(devices), .parameter_device = "cpu:0"});
}

/// Rows of numbers from formulas, with classes 0, 1, 2.
struct Batch {
  Tensor x, y;
};
inline Batch batch(int rows = 13, at::ScalarType dtype = at::kFloat) {
  const Tensor i = torch::arange(rows, at::kDouble), j = torch::arange(4, at::kDouble);
  return {torch::sin(0.7 * i.unsqueeze(1) + 1.3 * j).to(dtype), torch::arange(rows).remainder(3)};
}

inline int replicas() { return get_replica_context().num_replicas_in_sync(); }

/// The calling replica's rows: as even as they go.
inline Batch own_share(const Batch& whole) {
  return {whole.x.tensor_split(replicas())[id()], whole.y.tensor_split(replicas())[id()]};
}

inline Tensor losses(const Tensor& logits, const Tensor& classes) {
  return nn::functional::cross_entropy(
      logits, classes, nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
}

/// A share's part of the loss, averaged over the whole batch.
template <class M>
Tensor loss_of(const M& model, const Batch& share, const Batch& whole) {
  return losses(model(share.x), share.y).sum() / whole.x.size(0);
}

/// One step of training, on every replica.
template <class M, class O>
void step_on(const Strategy& strategy, Model<M>& model, Optimizer<O>& optimizer,
             const Batch& whole) {
  strategy.run([&] {
    optimizer.zero_grad();
    loss_of(model, own_share(whole), whole).backward();
    optimizer.step();
  });
}

/// A network and its optimizer, in the scope of a strategy.
template <class O>
struct Trainer {
  template <class Options>
  Trainer(const Strategy& strategy, const Options& options, const OptimizerOptions& more = {})
      : strategy(strategy),
        scope(strategy.scope()),
        model(seeded()),
        optimizer(model, options, more) {}

  void step(const Batch& whole = batch()) { step_on(strategy, model, optimizer, whole); }
  StateDict train(int steps) {
    for (int i = 0; i < steps; ++i) step();
    return model.state_dict();
  }

  static std::function<Net()> seeded() {
    return [] {
      seed_thread(1);
      return Net();
    };
  }

  Strategy strategy;
  Scope scope;
  Model<Net> model;
  Optimizer<O> optimizer;
};

inline StateDict state_of(nn::Module& module) {
  StateDict state;
  for (const auto& entry : module.named_parameters()) state[entry.key()] = entry.value().detach();
  for (const auto& entry : module.named_buffers()) state[entry.key()] = entry.value().detach();
  return state;
}

/// The same in plain LibTorch, with the whole batch at once.
template <class O>
struct PlainTrainer {
  template <class Options>
  explicit PlainTrainer(const Options& options)
      : net(Trainer<O>::seeded()()), optimizer(net->parameters(), options) {}

  void step(const Batch& whole = batch()) {
    optimizer.zero_grad();
    losses(net(whole.x), whole.y).mean().backward();
    optimizer.step();
  }
  StateDict train(int steps) {
    for (int i = 0; i < steps; ++i) step();
    return state_of(*net);
  }

  Net net;
  O optimizer;
};

inline void expect_near(const StateDict& got, const StateDict& expected, double tolerance = 1e-5,
                        const std::string& what = "") {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(got.contains(name)) << what << ": " << name;
    const double apart = (got.at(name).detach().to(at::kDouble) - tensor.detach().to(at::kDouble))
                             .abs()
                             .max()
                             .item<double>();
    EXPECT_LE(apart, tolerance) << what << ": " << name;
  }
}

/// The module of every replica of this worker holds these parameters.
template <class M>
void expect_on_every_replica(const Model<M>& model, const StateDict& expected,
                             double tolerance = 1e-5) {
  for (int r = 0; r < model.shared()->replicas(); ++r) {
    expect_near(state_of(*model.shared()->replica(r)), expected, tolerance,
                cat("local replica ", r));
  }
}

/// A strategy of one process or of the workers of a job, and what to call it.
struct NamedStrategy {
  NamedStrategy(std::string name, const std::function<Strategy()>& make)
      : name(std::move(name)), make([make](const auto&) { return make(); }) {}
  explicit NamedStrategy(const Job& job, int logical_devices_per_replica = 1)
      : name(name_of(job)),
        make([=](const std::optional<Worker>& worker) {
          return strategy_of(job, *worker, logical_devices_per_replica);
        }),
        workers(job.workers) {}

  std::string name;
  std::function<Strategy(const std::optional<Worker>&)> make;
  int workers = 0;  // 0: in one process
  friend std::ostream& operator<<(std::ostream& out, const NamedStrategy& named) {
    return out << named.name;
  }
};

inline std::vector<NamedStrategy> and_all_jobs(std::vector<NamedStrategy> all) {
  for (const Job& job : all_jobs()) all.emplace_back(job);
  return all;
}

inline std::vector<NamedStrategy> all_strategies() {
  return and_all_jobs({{"Default", [] { return default_strategy(); }},
                       {"OneDevice", [] { return OneDeviceStrategy("cpu:0"); }},
                       {"Mirrored1", [] { return mirrored(1); }},
                       {"Mirrored2", [] { return mirrored(2); }},
                       {"Mirrored3", [] { return mirrored(3); }},
                       {"Mirrored8On2", [] { return mirrored(2, 8); }},
                       {"Mirrored5On3", [] { return mirrored(3, 5); }},
                       {"Central2", [] { return central(2); }}});
}

/// A test that runs on each of some strategies: what one worker sees. See each_worker.h.
class OnStrategies {
 public:
  OnStrategies(const NamedStrategy& named, const std::optional<Worker>& worker)
      : strategy(named.make(worker)),
        workers(worker ? worker->count() : 1),
        this_worker(worker ? worker->index() : 0),
        n(strategy.num_replicas_in_sync()),
        last(n - 1),
        last_of_chief(strategy.extended().world().first_of(1) - 1),
        first_here(strategy.extended().world().first()),
        n_here(strategy.extended().world().local()) {}

  /// Called when the test's body has ended.
  void after() {}

  const Strategy strategy;
  const int workers, this_worker;
  const int n, last;             // replicas of the job, and the last one's number
  const int last_of_chief;       // shares its worker with another one, wherever there are two
  const int first_here, n_here;  // those of this worker

  bool is_here(int replica) const { return first_here <= replica && replica < first_here + n_here; }
  bool is_chief() const { return this_worker == 0; }

  /// The parameters of all replicas of the job have the same bits.
  template <class M>
  void expect_equal_copies(const Model<M>& model) const {
    const auto own = strategy.run([&] {
      std::vector<Tensor> flat;
      for (const Tensor& p : model.parameters()) flat.push_back(spmd::full(p.detach()).flatten());
      return torch::cat(flat).unsqueeze(0);
    });
    const Tensor all = strategy.gather(own, 0);
    ASSERT_EQ(all.size(0), n);
    for (int r = 0; r < n; ++r) EXPECT_TRUE(all[r].equal(all[0])) << "replica " << r;
  }
};

/// Instantiates the tests of a suite derived from OnStrategies.
#define ON_ALL_STRATEGIES(Suite) \
  SUITE_ON_EACH_WORKER(Suite, NamedStrategy, testing::ValuesIn(all_strategies()))

/// Tests that need more devices than the machine has cores.
class ManyDevices : public testing::Test {
 protected:
  ManyDevices() { configure({.cpu_devices = 8}); }
  ~ManyDevices() override { configure({}); }
};

}  // namespace cohort
