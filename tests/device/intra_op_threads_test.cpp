#include "cohort/device/intra_op_threads.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <thread>

#include "cohort/base/error.h"
#include "cohort/device/loaded_symbol.h"

namespace cohort {
namespace {

/// How many threads an element-wise operation of LibTorch is really spread over, seen from the
/// calling thread. (`at::parallel_for` called from here would not tell: it is a template, and this
/// file is compiled without OpenMP.) The threads share nothing but an atomic number, as the thread
/// sanitizer does not see how OpenMP's threads wait for each other.
int threads_of_an_operation() {
  constexpr int64_t kElements = 64, kGrain = 1;
  static std::atomic<std::uint64_t> seen;
  seen = 0;
  at::Tensor out = at::zeros({kElements});
  at::TensorIterator elements = at::TensorIterator::nullary_op(out);
  elements.for_each([](char**, const int64_t*, int64_t,
                       int64_t) { seen |= std::uint64_t{1} << at::get_thread_num(); },
                    kGrain);
  return std::popcount(seen.load());
}

template <class Function>
void in_another_thread(Function function) {
  std::thread(function).join();
}

TEST(IntraOpThreads, HoldsForOperationsOfTheCallingThread) {
  for (const int threads : {1, 2, 3}) {
    const IntraOpThreads guard(threads);
    EXPECT_EQ(at::get_num_threads(), threads);
    EXPECT_EQ(threads_of_an_operation(), threads);
  }
}

TEST(IntraOpThreads, RestoresWhatWasBefore) {
  const int before = at::get_num_threads();
  { const IntraOpThreads guard(before + 2); }
  EXPECT_EQ(at::get_num_threads(), before);
  EXPECT_EQ(threads_of_an_operation(), before);
}

TEST(IntraOpThreads, RestoresAlsoWhenTheStepThrows) {
  const int before = at::get_num_threads();
  const auto step = [&] {
    const IntraOpThreads guard(before + 1);
    throw RuntimeError("step", "fails");
  };
  EXPECT_THROW(step(), RuntimeError);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(IntraOpThreads, Nests) {
  const IntraOpThreads outer(2);
  {
    const IntraOpThreads inner(1);
    EXPECT_EQ(threads_of_an_operation(), 1);
  }
  EXPECT_EQ(threads_of_an_operation(), 2);
}

TEST(IntraOpThreads, LeavesOtherThreadsAlone) {
  int expected = 0;
  in_another_thread([&] { expected = at::get_num_threads(); });
  const IntraOpThreads guard(expected + 3);
  in_another_thread([&] {
    EXPECT_EQ(at::get_num_threads(), expected);
    EXPECT_EQ(threads_of_an_operation(), expected);
  });
}

TEST(IntraOpThreads, HoldsFromTheFirstOperationOfANewThread) {
  in_another_thread([] {
    const IntraOpThreads guard(3);
    EXPECT_EQ(threads_of_an_operation(), 3);
  });
  in_another_thread([] {
    const IntraOpThreads guard(1);
    EXPECT_EQ(threads_of_an_operation(), 1);
  });
}

TEST(IntraOpThreads, LeavesTheSettingOfTheProcessAlone) {
  in_another_thread([] {
    const int before = at::get_num_threads();
    at::set_num_threads(2);
    in_another_thread([] {
      const IntraOpThreads guard(1);
      in_another_thread([] { EXPECT_EQ(at::get_num_threads(), 2); });
    });
    at::set_num_threads(before);
  });
}

TEST(IntraOpThreads, TellsMklToo) {
  auto* const mkl_threads = loaded_symbol<int()>("MKL_Get_Max_Threads");
  if (mkl_threads == nullptr) GTEST_SKIP() << "no MKL in this LibTorch";
  const int before = mkl_threads();
  {
    const IntraOpThreads guard(before + 1);
    EXPECT_EQ(mkl_threads(), before + 1);
  }
  EXPECT_EQ(mkl_threads(), before);
}

TEST(IntraOpThreads, GivesTheSameProductInEveryThread) {
  const at::Tensor a = at::rand({10, 64}), b = at::rand({64, 512});
  const auto product = [&] {
    const IntraOpThreads guard(1);
    return at::mm(a, b);
  };
  const at::Tensor expected = product();
  in_another_thread([&] { EXPECT_TRUE(product().equal(expected)); });
}

TEST(IntraOpThreads, RefusesFewerThanOne) {
  const int before = at::get_num_threads();
  EXPECT_THROW(IntraOpThreads(0), ValueError);
  EXPECT_THROW(IntraOpThreads(-1), ValueError);
  EXPECT_EQ(at::get_num_threads(), before);
}

}  // namespace
}  // namespace cohort
