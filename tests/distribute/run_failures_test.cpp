// What happens when replicas fail, leave early, or do not do the same.

#include <future>
#include <stdexcept>
#include <system_error>

#include "tests/base/captured_log.h"
#include "tests/distribute/layouts.h"

namespace cohort {
namespace {

using testing::Each;
using testing::HasSubstr;

class RunFailures : public OnLayouts {
 protected:
  void TearDown() override { expect_usable(); }
};

at::Tensor all_reduce(const at::Tensor& value) {
  return get_replica_context().all_reduce("SUM", value);
}

struct Mine : std::exception {
  explicit Mine(int number) : number(number) {}
  int number;
};

TEST_P(RunFailures, TheLowestReplicasExceptionIsRethrownWithItsType) {
  try {
    strategy.run([] { throw Mine(id()); });
    FAIL() << "nothing was thrown";
  } catch (const Mine& e) {
    EXPECT_EQ(e.number, 0);
    EXPECT_EQ(failed_replica(), 0);
  }
}

TEST_P(RunFailures, FailedReplicaTellsWhoItWas) {
  EXPECT_THROW(strategy.run([&] {
    if (id() == last) throw Mine(id());
  }),
               Mine);
  EXPECT_EQ(failed_replica(), last);
}

TEST_P(RunFailures, CohortsErrorsNameTheReplica) {
  EXPECT_FAILS(strategy.run([&] {
    if (id() == last) throw ValueError("step", "boom");
  }),
               ValueError, cat("in replica ", last));
}

struct Unreadable final : std::runtime_error {
  explicit Unreadable(int row) : std::runtime_error("unreadable"), row(row) {}
  int row;
};

/// The text of what comes out of a run when the last replica throws `thrown`, which must be caught
/// as what it is.
template <class Thrown>
std::string text_after_run(const Strategy& strategy, const Thrown& thrown) {
  const int last = strategy.num_replicas_in_sync() - 1;
  try {
    strategy.run([&] {
      if (id() == last) throw Thrown(thrown);
      all_reduce(at::ones({1}));
    });
  } catch (const Thrown& caught) {
    EXPECT_EQ(typeid(caught), typeid(Thrown));
    return caught.what();
  }
  return "nothing was thrown";
}

TEST_P(RunFailures, ExceptionsOfOthersNameTheReplicaAndKeepTheirType) {
  const std::string note = cat(" (in replica ", last, ')');
  EXPECT_EQ(text_after_run(strategy, std::runtime_error("boom")), "boom" + note);
  EXPECT_EQ(text_after_run(strategy, std::out_of_range("row 9")), "row 9" + note);
  EXPECT_EQ(text_after_run(strategy, Unreadable(9)), "unreadable" + note);
  EXPECT_THAT(text_after_run(strategy, std::system_error(EIO, std::generic_category(), "disk")),
              testing::EndsWith(note));
  EXPECT_THAT(text_after_run(strategy, c10::Error({"f", "file", 1}, "shape")), HasSubstr(note));
  EXPECT_THAT(text_after_run(strategy, c10::IndexError({"f", "file", 1}, "row")), HasSubstr(note));
  EXPECT_EQ(failed_replica(), last);
}

TEST_P(RunFailures, WhatHasNoTextToTakeItNamesTheReplicaInTheLog) {
  const CapturedLog log;
  text_after_run(strategy, Mine(3));
  EXPECT_EQ(log.count(log::Level::ERROR, cat("in replica ", last)), 1);
  try {
    strategy.run([&] {
      if (id() == last) throw 42;
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const int number) {
    EXPECT_EQ(number, 42);
  }
  EXPECT_EQ(log.count(log::Level::ERROR, cat("in replica ", last)), 2);
  EXPECT_EQ(failed_replica(), last);
}

TEST_P(RunFailures, ReplicasThatWaitAreStopped) {
  EXPECT_THROW(strategy.run([&] {
    if (id() == last) throw Mine(id());
    all_reduce(at::ones({4}));
    ADD_FAILURE() << "replica " << id() << " got past a collective that can't be";
  }),
               Mine);
}

TEST_P(RunFailures, AReplicaThatIsLateIsNamedWhenTheTimeoutIsOver) {
  if (n == 1) GTEST_SKIP() << "nobody to wait for";
  const CommunicationOptions soon{.timeout = std::chrono::milliseconds(20)};
  std::atomic<int> given_up{0};
  EXPECT_FAILS(strategy.run([&] {
    while (id() == last && given_up == 0) std::this_thread::yield();  // replica 0's device
    try {
      get_replica_context().all_reduce("SUM", at::ones({4}), soon);
    } catch (const DeadlineExceeded&) {
      ++given_up;
      throw;
    }
  }),
               DeadlineExceeded, "not come within 0.02 s");  // others may be late there as well
}

TEST_P(RunFailures, AReplicaThatComesInTimeIsWaitedFor) {
  const CommunicationOptions late{.timeout = std::chrono::minutes(10)};
  const auto sums = strategy.run(
      [&] { return get_replica_context().all_reduce("SUM", at::ones({}), late).item<double>(); });
  EXPECT_THAT(values_of(sums), Each(n));
}

TEST_P(RunFailures, AReplicaThatSwallowsItsStopDoesNotHideTheReason) {
  EXPECT_THROW(strategy.run([&] {
    if (id() == last) throw Mine(id());
    try {
      all_reduce(at::ones({4}));
    } catch (const Cancelled&) {
    }
  }),
               Mine);
}

TEST_P(RunFailures, LeavingWhileOthersWaitIsAnErrorThatNamesTheReplica) {
  if (n == 1) return;
  const auto leave_early = [&] {
    if (id() == last) return;
    get_replica_context().merge_call([](Strategy&) {});
  };
  EXPECT_FAILS(strategy.run(leave_early), RuntimeError, cat("replica ", last));
  EXPECT_FAILS(strategy.run(leave_early), RuntimeError,
               "different number of replica_context().merge_call() calls");
}

TEST_P(RunFailures, TheFirstReplicaMayBeTheOneThatLeaves) {
  if (n == 1) return;
  EXPECT_FAILS(strategy.run([&] {
    if (id() != 0) all_reduce(at::ones({1}));
  }),
               RuntimeError, "replica 0 has returned");
}

TEST_P(RunFailures, DifferentCollectivesAreInvalidArgument) {
  if (n == 1) return;
  const auto different = [&] {
    if (id() == last) {
      get_replica_context().all_gather(at::ones({1}), 0);
    } else {
      all_reduce(at::ones({1}));
    }
  };
  EXPECT_FAILS(strategy.run(different), InvalidArgument,
               cat("replica ", last, " calls all_gather"));
}

TEST_P(RunFailures, DifferentShapesAreInvalidArgumentOnEveryReplica) {
  if (n == 1) return;
  std::atomic<int> refused = 0;
  const auto different = [&] {
    try {
      all_reduce(at::ones({id() == last ? 2 : 1}));
    } catch (const InvalidArgument&) {
      ++refused;
      throw;
    }
  };
  EXPECT_FAILS(strategy.run(different), InvalidArgument, "[2]");
  EXPECT_EQ(refused, n);
}

TEST_P(RunFailures, DifferentDtypesAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_FAILS(
      strategy.run([&] { all_reduce(at::ones({1}, id() == last ? at::kDouble : at::kFloat)); }),
      InvalidArgument, "Double");
}

TEST_P(RunFailures, DifferentOpsAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_FAILS(strategy.run([&] {
    get_replica_context().all_reduce(id() == last ? "MEAN" : "SUM", at::ones({1}));
  }),
               InvalidArgument, "reduce op");
}

TEST_P(RunFailures, DifferentNumbersOfLeavesAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_FAILS(strategy.run([&] {
    get_replica_context().all_reduce("SUM", std::vector(id() == last ? 2 : 1, at::ones({1})));
  }),
               InvalidArgument, "leaves");
}

TEST_P(RunFailures, AMismatchMayBeCaughtAndTheRunGoesOn) {
  if (n == 1) return;
  const auto sums = strategy.run([&] {
    try {
      all_reduce(at::ones({id() == last ? 2 : 1}));
    } catch (const InvalidArgument&) {
    }
    return all_reduce(at::ones({})).item<double>();
  });
  EXPECT_THAT(values_of(sums), Each(n));
}

TEST_P(RunFailures, WhatAMergeFunctionThrowsCantBeCaughtInReplicas) {
  EXPECT_THROW(strategy.run([&] {
    try {
      get_replica_context().merge_call([](Strategy&) { throw Mine(42); });
    } catch (...) {
    }
  }),
               Mine);
}

TEST_P(RunFailures, WhatAMergeFunctionThrowsSaysSoInItsText) {
  try {
    strategy.run([&] { get_replica_context().merge_call([](Strategy&) { throw Unreadable(9); }); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Unreadable& error) {
    EXPECT_STREQ(error.what(), "unreadable (in replica 0)");
  }
}

TEST_P(RunFailures, ChangeNoExceptionThatTheProgramKeeps) {
  std::promise<void> load;
  const std::shared_future<void> loaded = load.get_future();
  load.set_exception(std::make_exception_ptr(NotFound("load", "no such file")));
  for (int step = 0; step < 3; ++step) {
    EXPECT_FAILS(strategy.run([&] { loaded.get(); }), NotFound, "no such file (in replica 0)");
  }
  EXPECT_EQ(failure_of([&] { loaded.get(); }), "NotFound: [load] no such file");
}

TEST_P(RunFailures, ResultsOfDifferentLengthsCantBeMerged) {
  if (n == 1) return;
  EXPECT_FAILS(strategy.run([&] { return std::vector<int>(id() == last ? 2 : 1); }), ValueError,
               cat("replica ", last));
}

TEST_P(RunFailures, AnUndefinedTensorIsAValueError) {
  EXPECT_FAILS(strategy.run([] { all_reduce(at::Tensor()); }), ValueError, "undefined");
  EXPECT_FAILS(strategy.run([] { get_replica_context().all_gather(at::Tensor(), 0); }), ValueError,
               "undefined");
}

TEST_P(RunFailures, DtypesThatCantBeAddedAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_FAILS(strategy.run([] { all_reduce(at::ones({1}, at::kBool)); }), InvalidArgument, "");
}

TEST_P(RunFailures, ManyFailuresInARow) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_THROW(strategy.run([&] {
      if (id() == i % n) throw Mine(i);
      all_reduce(at::ones({1}));
    }),
                 Mine);
  }
}

TEST_P(RunFailures, BackwardThroughACollectiveAfterTheRunIsAnError) {
  if (n == 1) return;
  const auto results = strategy.run([] {
    const at::Tensor x = at::ones({2}).requires_grad_();
    return all_reduce(x).sum();
  });
  EXPECT_FAILS(results.values()[0].backward(), RuntimeError, "strategy.run()");
}

ON_ALL_LAYOUTS(RunFailures);

}  // namespace
}  // namespace cohort
