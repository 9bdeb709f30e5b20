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

at::Tensor all_reduce(const at::Tensor& value) {
  return get_replica_context().all_reduce("SUM", value);
}

struct RunFailures : OnLayouts {
  using OnLayouts::OnLayouts;
  void after() { expect_usable(); }

  /// A run in which the last replica throws this.
  template <class Thrown>
  void expect_thrown_by_last(const Thrown& thrown) const {
    EXPECT_REPLICA_THROWS(last, strategy.run([&] {
      if (id() == last) throw Thrown(thrown);
      all_reduce(at::ones({1}));
    }),
                          Thrown);
    if (is_here(last)) {
      EXPECT_EQ(failed_replica(), last);
    }
  }
};
ON_ALL_LAYOUTS(RunFailures);

struct Mine : std::exception {
  explicit Mine(int number) : number(number) {}
  int number;
};

TEST_ON_EACH_WORKER(RunFailures, TheLowestLocalReplicasExceptionIsRethrownWithItsType) {
  try {
    strategy.run([] { throw Mine(id()); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Mine& e) {
    EXPECT_EQ(e.number, first_here);
    EXPECT_EQ(failed_replica(), first_here);
  } catch (const Cancelled& e) {  // by a worker that was faster
    EXPECT_GT(workers, 1) << e.what();
  }
}

TEST_ON_EACH_WORKER(RunFailures, FailedReplicaTellsWhoItWas) { expect_thrown_by_last(Mine(7)); }

TEST_ON_EACH_WORKER(RunFailures, CohortsErrorsNameTheReplica) {
  EXPECT_REPLICA_FAILS(last, strategy.run([&] {
    if (id() == last) throw ValueError("step", "boom");
    all_reduce(at::ones({1}));
  }),
                       ValueError, cat("replica ", last));
}

struct Unreadable final : std::runtime_error {
  explicit Unreadable(int row) : std::runtime_error("unreadable"), row(row) {}
  int row;
};

/// Expects what comes out of a run when the last replica throws `thrown`: an exception of this type
/// and text where it is, else Cancelled with as much of it as others can know.
template <class Thrown>
void expect_thrown(const RunFailures& test, const Thrown& thrown, const std::string& text,
                   const std::string& note) {
  try {
    test.strategy.run([&] {
      if (id() == test.last) throw Thrown(thrown);
      all_reduce(at::ones({1}));
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Cancelled& caught) {
    EXPECT_FALSE(test.is_here(test.last)) << caught.what();
    EXPECT_THAT(caught.what(), HasSubstr(cat("replica ", test.last, " threw: ", text)));
  } catch (const Thrown& caught) {
    EXPECT_TRUE(test.is_here(test.last)) << caught.what();
    EXPECT_EQ(typeid(caught), typeid(Thrown));
    EXPECT_THAT(caught.what(), testing::StartsWith(text));
    EXPECT_THAT(caught.what(), HasSubstr(note));
    EXPECT_EQ(failed_replica(), test.last);
  }
}

TEST_ON_EACH_WORKER(RunFailures, ExceptionsOfOthersNameTheReplicaAndKeepTheirType) {
  const std::string note = cat(" (in replica ", last, ')');
  expect_thrown(*this, std::runtime_error("boom"), "boom", note);
  expect_thrown(*this, std::out_of_range("row 9"), "row 9", note);
  expect_thrown(*this, Unreadable(9), "unreadable", note);
  expect_thrown(*this, std::system_error(EIO, std::generic_category(), "disk"), "disk", note);
  expect_thrown(*this, c10::Error({"f", "file", 1}, "shape"), "shape", note);
  expect_thrown(*this, c10::IndexError({"f", "file", 1}, "row"), "row", note);
}

TEST_P(RunFailuresOnEachWorker, WhatHasNoTextToTakeItNamesTheReplicaInTheLog) {
  const CapturedLog log;
  on_each_worker<RunFailures>(GetParam(), [](const RunFailures& test) {
    test.expect_thrown_by_last(Mine(3));
    test.expect_thrown_by_last(42);
  });
  EXPECT_EQ(log.count(log::Level::ERROR, cat("in replica ", GetParam().replicas - 1)), 2);
}

TEST_ON_EACH_WORKER(RunFailures, ReplicasThatWaitAreStopped) {
  EXPECT_REPLICA_THROWS(last, strategy.run([&] {
    if (id() == last) throw Mine(id());
    all_reduce(at::ones({4}));
    ADD_FAILURE() << "replica " << id() << " got past a collective that can't be";
  }),
                        Mine);
}

TEST_ON_EACH_WORKER(RunFailures, AReplicaThatIsLateIsNamedWhenTheTimeoutIsOver) {
  if (n == 1) return;  // nobody to wait for
  const auto timeout = is_here(0) ? std::chrono::milliseconds(20) : std::chrono::minutes(1);
  const CommunicationOptions soon{.timeout = timeout};
  std::atomic<int> given_up{0};
  EXPECT_REPLICA_FAILS(last_of_chief, strategy.run([&] {
    // Replica 0's device: others may be late there as well.
    while (id() == last_of_chief && given_up == 0) std::this_thread::yield();
    try {
      get_replica_context().all_reduce("SUM", at::ones({4}), soon);
    } catch (const DeadlineExceeded&) {
      ++given_up;
      throw;
    }
  }),
                       DeadlineExceeded, "not come within 0.02 s");
}

TEST_ON_EACH_WORKER(RunFailures, AReplicaThatComesInTimeIsWaitedFor) {
  const CommunicationOptions late{.timeout = std::chrono::minutes(10)};
  const auto sums = strategy.run(
      [&] { return get_replica_context().all_reduce("SUM", at::ones({}), late).item<double>(); });
  EXPECT_THAT(values_of(sums), Each(n));
}

TEST_ON_EACH_WORKER(RunFailures, AReplicaThatSwallowsItsStopDoesNotHideTheReason) {
  const auto fail = [&] {
    strategy.run([&] {
      if (id() == last) throw Mine(id());
      try {
        all_reduce(at::ones({4}));
      } catch (const Cancelled&) {
      }
    });
  };
  const std::string thrown = thrown_by<Mine>(fail);
  if (is_here(last)) {
    EXPECT_EQ(thrown, "it");
  } else {  // its replicas say that nothing was wrong, if it is told when they have begun
    EXPECT_THAT(thrown, testing::AnyOf("nothing", "Cancelled"));
  }
}

TEST_ON_EACH_WORKER(RunFailures, LeavingWhileOthersWaitIsAnErrorThatNamesTheReplica) {
  if (n == 1) return;
  const auto leave_early = [&] {
    if (id() == last_of_chief) return;
    get_replica_context().merge_call([](Strategy&) {});
    all_reduce(at::ones({1}));
  };
  EXPECT_REPLICA_FAILS(last_of_chief, strategy.run(leave_early), RuntimeError,
                       cat("replica ", last_of_chief));
  EXPECT_REPLICA_FAILS(last_of_chief, strategy.run(leave_early), RuntimeError,
                       "different number of replica_context().merge_call() calls");
}

TEST_ON_EACH_WORKER(RunFailures, TheFirstReplicaMayBeTheOneThatLeaves) {
  if (n == 1) return;
  EXPECT_REPLICA_FAILS(0, strategy.run([&] {
    if (id() != 0) all_reduce(at::ones({1}));
  }),
                       RuntimeError, "replica 0 has returned");
}

TEST_ON_EACH_WORKER(RunFailures, DifferentCollectivesAreInvalidArgument) {
  if (n == 1) return;
  for (const int one : {last_of_chief, last}) {
    const auto different = [&] {
      if (id() == one) {
        get_replica_context().all_gather(at::ones({1}), 0);
      } else {
        all_reduce(at::ones({1}));
      }
    };
    EXPECT_FAILS(strategy.run(different), InvalidArgument, "all_gather(axis 0)");
    EXPECT_FAILS(strategy.run(different), InvalidArgument, "all_reduce(SUM)");
    EXPECT_FAILS(strategy.run(different), InvalidArgument, cat("replica ", one));
  }
}

TEST_ON_EACH_WORKER(RunFailures, DifferentShapesAreInvalidArgumentOnEveryReplica) {
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
  // None where a worker has found it in its own replicas before this one's have begun.
  EXPECT_THAT(refused.load(), testing::AnyOf(n_here, workers > 1 ? 0 : n_here));
}

TEST_ON_EACH_WORKER(RunFailures, DifferentDtypesAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_FAILS(
      strategy.run([&] { all_reduce(at::ones({1}, id() == last ? at::kDouble : at::kFloat)); }),
      InvalidArgument, "Double");
}

TEST_ON_EACH_WORKER(RunFailures, DifferentOpsAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_FAILS(strategy.run([&] {
    get_replica_context().all_reduce(id() == last ? "MEAN" : "SUM", at::ones({1}));
  }),
               InvalidArgument, "all_reduce(MEAN)");
}

TEST_ON_EACH_WORKER(RunFailures, DifferentNumbersOfLeavesAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_FAILS(strategy.run([&] {
    get_replica_context().all_reduce("SUM", std::vector(id() == last ? 2 : 1, at::ones({1})));
  }),
               InvalidArgument, "Float [1], Float [1]");
}

TEST_ON_EACH_WORKER(RunFailures, AMismatchMayBeCaughtAndTheRunGoesOn) {
  if (n == 1) return;
  for (const int one : {last_of_chief, last}) {
    const auto sums = strategy.run([&] {
      EXPECT_FAILS(all_reduce(at::ones({id() == one ? 2 : 1})), InvalidArgument, "Float [2]");
      return all_reduce(at::ones({})).item<double>();
    });
    EXPECT_THAT(values_of(sums), Each(n));
  }
}

TEST_ON_EACH_WORKER(RunFailures, WhatOneWorkerRefusesMayBeCaughtAndTheRunGoesOn) {
  if (n == 1) return;
  const auto sums = strategy.run([&] {
    const auto refused =
        failure_of([&] { all_reduce(at::ones({1}, is_here(last) ? at::kBool : at::kFloat)); });
    EXPECT_NE(refused, "nothing");
    return all_reduce(at::ones({})).item<double>();
  });
  EXPECT_THAT(values_of(sums), Each(n));
}

TEST_ON_EACH_WORKER(RunFailures, WhatAMergeFunctionThrowsCantBeCaughtInReplicas) {
  EXPECT_RUN_THROWS(strategy.run([&] {
    try {
      get_replica_context().merge_call([](Strategy&) { throw Mine(42); });
    } catch (...) {
    }
  }),
                    Mine);
}

TEST_ON_EACH_WORKER(RunFailures, WhatAMergeFunctionThrowsSaysSoInItsText) {
  try {
    strategy.run([&] { get_replica_context().merge_call([](Strategy&) { throw Unreadable(9); }); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Unreadable& error) {
    EXPECT_EQ(error.what(), cat("unreadable (in replica ", first_here, ')'));
  } catch (const Cancelled& error) {  // of a worker that was faster
    EXPECT_GT(workers, 1);
    EXPECT_THAT(error.what(), HasSubstr("unreadable"));
  }
}

TEST_ON_EACH_WORKER(RunFailures, ChangeNoExceptionThatTheProgramKeeps) {
  std::promise<void> load;
  const std::shared_future<void> loaded = load.get_future();
  load.set_exception(std::make_exception_ptr(NotFound("load", "no such file")));
  for (int step = 0; step < 3; ++step) {
    EXPECT_RUN_FAILS(strategy.run([&] { loaded.get(); }), NotFound, "no such file");
  }
  EXPECT_EQ(failure_of([&] { loaded.get(); }), "NotFound: [load] no such file");
}

TEST_ON_EACH_WORKER(RunFailures, ResultsOfDifferentLengthsCantBeMerged) {
  if (n == 1) return;
  const auto different = [&] {
    strategy.run([&] { return std::vector<int>(id() == last_of_chief ? 2 : 1); });
  };
  if (is_here(last_of_chief)) {
    EXPECT_FAILS(different(), ValueError, cat("replica ", last_of_chief));
  } else {
    different();  // what runs return is local
  }
}

TEST_ON_EACH_WORKER(RunFailures, AnUndefinedTensorIsAValueError) {
  EXPECT_RUN_FAILS(strategy.run([] { all_reduce(at::Tensor()); }), ValueError, "undefined");
  EXPECT_RUN_FAILS(strategy.run([] { get_replica_context().all_gather(at::Tensor(), 0); }),
                   ValueError, "undefined");
}

TEST_ON_EACH_WORKER(RunFailures, DtypesThatCantBeAddedAreInvalidArgument) {
  if (n == 1) return;
  EXPECT_RUN_FAILS(strategy.run([] { all_reduce(at::ones({1}, at::kBool)); }), InvalidArgument, "");
}

TEST_ON_EACH_WORKER(RunFailures, ManyFailuresInARow) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_REPLICA_THROWS(i % n, strategy.run([&] {
      if (id() == i % n) throw Mine(i);
      all_reduce(at::ones({1}));
    }),
                          Mine);
  }
}

TEST_ON_EACH_WORKER(RunFailures, BackwardThroughACollectiveAfterTheRunIsAnError) {
  if (n == 1) return;
  const auto results = strategy.run([] {
    const at::Tensor x = at::ones({2}).requires_grad_();
    return all_reduce(x).sum();
  });
  EXPECT_FAILS(results.values()[0].backward(), RuntimeError, "strategy.run()");
}

}  // namespace
}  // namespace cohort
