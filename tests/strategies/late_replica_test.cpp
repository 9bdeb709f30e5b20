// A replica that does not come: whatever the others wait in, they say for whom, and for how long.

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "cohort/device/configuration.h"
#include "cohort/optim/model.h"
#include "cohort/optim/optimizer.h"
#include "cohort/optim/sync_batch_norm.h"
#include "cohort/strategies/central_storage_strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/variables/reading.h"
#include "cohort/variables/update.h"
#include "cohort/variables/variable.h"
#include "tests/base/captured_log.h"

namespace cohort {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using Milliseconds = std::chrono::milliseconds;

int own_id() { return get_replica_context().replica_id_in_sync_group(); }

/// The replica that is late: it stays away until the others have written into the log what the test
/// waits for.
class LateOne {
 public:
  using Awaited = std::function<bool(const std::string& line, const std::string& late)>;
  LateOne(const CapturedLog& log, Awaited awaited) : log_(log), awaited_(std::move(awaited)) {}

  /// Only the first replica to come here is late.
  void stay_away() {
    int nobody = -1;
    if (!id_.compare_exchange_strong(nobody, own_id())) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (line().empty()) {
      if (std::chrono::steady_clock::now() > end) throw Cancelled("test", "nobody complains");
      std::this_thread::sleep_for(Milliseconds(1));
    }
  }

  int id() const { return id_; }
  std::string name() const { return cat("replica ", id_.load()); }

  /// What the others have written; empty if they have not.
  std::string line() const {
    for (const auto& [level, line] : log_.lines()) {
      if (level == log::Level::WARNING && awaited_(line, name())) return line;
    }
    return {};
  }

 private:
  const CapturedLog& log_;
  const Awaited awaited_;
  std::atomic<int> id_{-1};
};

/// SGD that can be kept from updating a copy.
class SlowSGD : public torch::optim::SGD {
 public:
  using SGD::SGD;
  static inline std::function<void()> before_step;
  at::Tensor step(LossClosure closure = nullptr) override {
    if (before_step) before_step();
    return SGD::step(std::move(closure));
  }
};

/// What replicas do together, with what they need for it.
struct Together {
  explicit Together(const Strategy& strategy)
      : strategy(strategy), scope(strategy.scope()), losses(strategy.num_replicas_in_sync()) {}

  at::Tensor& loss() { return losses[own_id()]; }
  void compute_loss() {
    optimizer.zero_grad();
    loss() = model(at::ones({3, 2})).sum();
  }

  Strategy strategy;
  Scope scope;
  Variable variable{0.0f, {.aggregation = Aggregation::SUM}};
  Variable total{0.0f,
                 {.synchronization = Synchronization::ON_READ, .aggregation = Aggregation::SUM}};
  Model<torch::nn::Linear> model{2, 1};
  Model<SyncBatchNorm> norm{2};
  Optimizer<SlowSGD> optimizer{model, torch::optim::SGDOptions(0.1),
                               OptimizerOptions{.check_drift_every = 1}};
  Scheduler<torch::optim::StepLR> scheduler{optimizer, 10, 0.1};
  std::vector<at::Tensor> losses;  // of the replicas
};

using Part = std::function<void(Together&)>;

/// When the late one is late.
enum class Moment { BEFORE, IN_UPDATE, AFTER };

/// A call in which replicas wait for others.
struct Call {
  const char* name;
  const char* where;  // what errors and warnings call it
  Part call;
  Part prepare = [](Together&) {};
  Moment moment = Moment::BEFORE;
  bool late_first = false;   // only replica 0 is waited for
  bool needs_turns = false;  // nobody waits unless replicas share devices
  bool central = false;      // where copies are shared by devices
};

std::ostream& operator<<(std::ostream& out, const Call& call) { return out << call.name; }

ReplicaContext& replica() { return get_replica_context(); }

std::vector<Call> all_calls() {
  const Part loss = [](Together& t) { t.compute_loss(); };
  const Part gradients = [](Together& t) {
    t.compute_loss();
    t.loss().backward();
  };
  const Part normalized = [](Together& t) {
    const at::Tensor x = at::rand({3, 2}).requires_grad_();
    t.loss() = t.norm(x).square().sum();
  };
  const Part reduced = [](Together& t) {
    t.loss() = replica().all_reduce("SUM", at::ones({2}).requires_grad_()).sum();
  };
  const Part gathered = [](Together& t) {
    t.loss() = replica().all_gather(at::ones({2}).requires_grad_(), 0).sum();
  };
  const Part backward = [](Together& t) { t.loss().backward(); };
  const Part step = [](Together& t) { t.optimizer.step(); };
  const Part barrier = [](Together&) { replica().barrier(); };
  const Part assign = [](Together& t) { t.variable.assign(1); };
  return {
      {"AllReduce", "all_reduce", [](Together&) { replica().all_reduce("SUM", at::ones({2})); }},
      {"AllGather", "all_gather", [](Together&) { replica().all_gather(at::ones({2}), 0); }},
      {"MergeCall", "merge_call", [](Together&) { replica().merge_call([](Strategy&) {}); }},
      {"Barrier", "barrier", barrier},
      {"Assign", "variable.assign", assign},
      {.name = "CentralAssign", .where = "variable.assign", .call = assign, .central = true},
      {"Update", "merge_call",
       [](Together& t) {
         t.strategy.extended().update(
             t.variable, [](at::Tensor& copy, float x) { copy.fill_(x); }, 1.0f);
       }},
      {"SynchronizedRead", "all_reduce",
       [](Together& t) {
         const auto synchronized = variable_sync_on_read_context();
         EXPECT_EQ(static_cast<float>(t.total), 0);
       }},
      {"BackwardOfAllReduce", "all_reduce", backward, reduced},
      {"BackwardOfAllGather", "all_reduce", backward, gathered},
      {"Backward", "backward", backward, loss},
      {"Step", "optimizer.step", step, gradients},
      {"StepWithClosure", "optimizer.step",
       [](Together& t) {
         t.optimizer.step([&t] {
           t.compute_loss();
           t.loss().backward();
           return t.loss();
         });
       }},
      {"DriftCheck", "optimizer.step: drift check", step, gradients, Moment::IN_UPDATE},
      {"CentralStep", "optimizer.step", step, gradients, Moment::BEFORE, false, false, true},
      {"Scheduler", "scheduler.step", [](Together& t) { t.scheduler.step(); }},
      {"SetLr", "optimizer.set_lr", [](Together& t) { t.optimizer.set_lr(0.1); }},
      {"ModelUpdate", "model.update",
       [](Together& t) { t.model.update([](const std::string&, at::Tensor) {}); }},
      {"SyncBatchNorm", "all_reduce", normalized},
      {"BackwardOfSyncBatchNorm", "all_reduce", backward, normalized},
      {"CreationInRun", "Variable made",
       [](Together&) { const Variable made(1.0f, {.name = "made"}); }, [](Together&) {},
       Moment::BEFORE, /*late_first=*/true},
      {"SlotToStart", "strategy.run", [](Together&) {}, [](Together&) {}, Moment::BEFORE,
       /*late_first=*/true, /*needs_turns=*/true},
      {"SlotAfterBarrier", "barrier", barrier, [](Together&) {}, Moment::AFTER, false,
       /*needs_turns=*/true},
  };
}

/// Where the replicas are, and which of them is late.
struct Where {
  const char* name;
  int replicas;  // on two devices
  bool first_is_late;
};

std::ostream& operator<<(std::ostream& out, const Where& where) { return out << where.name; }

struct Times {
  std::optional<Milliseconds> timeout = {};
  Milliseconds warn_after = std::chrono::hours(1);
};

class LateReplica : public testing::TestWithParam<std::tuple<Call, Where>> {
 protected:
  void SetUp() override {
    configure({.cpu_devices = 2});
    if (call().late_first && !where().first_is_late) GTEST_SKIP() << "nobody waits for another";
    if (call().needs_turns && !takes_turns()) GTEST_SKIP() << "everybody has a device";
  }
  void TearDown() override {
    SlowSGD::before_step = nullptr;
    configure({});
  }

  const Call& call() const { return std::get<0>(GetParam()); }
  const Where& where() const { return std::get<1>(GetParam()); }
  bool takes_turns() const { return where().replicas > 2; }

  Strategy strategy(const Times& times) const {
    const std::vector<Device> devices{"cpu:0", "cpu:1"};
    if (!call().central) {
      return MirroredStrategy({.devices = devices,
                               .replicas = where().replicas,
                               .timeout = times.timeout,
                               .warn_after = times.warn_after});
    }
    std::vector<Device> each;
    for (int i = 0; i < where().replicas; ++i) each.push_back(devices[i * 2 / where().replicas]);
    return CentralStorageStrategy({.compute_devices = each,
                                   .parameter_device = "cpu:0",
                                   .timeout = times.timeout,
                                   .warn_after = times.warn_after});
  }

  bool is_to_be_late() const {
    return own_id() == (where().first_is_late ? 0 : where().replicas - 1);
  }

  /// What each replica does; null if none is late.
  void play(Together& together, LateOne* late) const {
    call().prepare(together);
    if (late && call().moment == Moment::BEFORE && is_to_be_late()) late->stay_away();
    call().call(together);
    if (late && call().moment == Moment::AFTER) late->stay_away();
  }

  /// "DeadlineExceeded: …", or whatever else comes out of a run; "nothing" if it goes well.
  std::string outcome(Together& together, LateOne* late) const {
    // The updates of both copies, at the same time: one of them is late.
    if (late && call().moment == Moment::IN_UPDATE) {
      SlowSGD::before_step = [late] { late->stay_away(); };
    }
    std::string text = "nothing";
    try {
      together.strategy.run([&] { play(together, late); });
    } catch (const Error& error) {
      text = cat(error.kind(), ": ", error.what());
    }
    SlowSGD::before_step = nullptr;
    return text;
  }

  /// Who waits for the late one's slot waits in no call, or in the one before.
  auto says_where() const {
    return AnyOf(HasSubstr(call().where),
                 HasSubstr(takes_turns() ? "the slot of its device" : call().where));
  }
};

bool names(const std::string& text, const std::string& who) {
  return text.find(who + ' ') != std::string::npos || text.find(who + ':') != std::string::npos;
}

/// A busy machine may keep others away for as long as the late one: then all wait for longer.
TEST_P(LateReplica, IsNamedWhenTheTimeoutIsOver) {
  for (const int timeout : {50, 500, 5000}) {
    const CapturedLog log;
    LateOne late(log, [](const std::string& line, const std::string&) {
      return line.find("strategy.run throws this when") != std::string::npos;
    });
    Together together(strategy({.timeout = Milliseconds(timeout)}));
    const std::string text = outcome(together, &late);
    if (timeout < 5000 && !(late.id() >= 0 && names(text, late.name()))) continue;
    EXPECT_THAT(text, HasSubstr("DeadlineExceeded"));
    EXPECT_TRUE(names(text, late.name())) << text;
    EXPECT_THAT(text, says_where());
    std::string afterwards;
    for (int tries = 0; tries < 100 && afterwards != "nothing"; ++tries) {
      afterwards = outcome(together, nullptr);
    }
    EXPECT_EQ(afterwards, "nothing") << "the strategy can be used again";
    return;
  }
}

TEST_P(LateReplica, IsNamedInTheLogMeanwhile) {
  const CapturedLog log;
  LateOne late(log, [](const std::string& line, const std::string& who) {
    return line.find(" waited ") != std::string::npos && names(line, who);
  });
  Together together(strategy({.warn_after = Milliseconds(20)}));
  EXPECT_EQ(outcome(together, &late), "nothing");
  EXPECT_THAT(late.line(), says_where());
  EXPECT_THAT(late.line(), HasSubstr("a lock or barrier of your own"));
}

INSTANTIATE_TEST_SUITE_P(
    , LateReplica,
    testing::Combine(testing::ValuesIn(all_calls()),
                     testing::Values(Where{"FirstOfTwo", 2, true}, Where{"LastOfTwo", 2, false},
                                     Where{"FirstOfFour", 4, true}, Where{"LastOfFour", 4, false})),
    [](const auto& info) {
      return cat(std::get<0>(info.param).name, '_', std::get<1>(info.param).name);
    });

}  // namespace
}  // namespace cohort
