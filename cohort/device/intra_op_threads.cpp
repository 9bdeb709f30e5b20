#include "cohort/device/intra_op_threads.h"

#include <ATen/Parallel.h>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/device/loaded_symbol.h"

// LibTorch asks OpenMP for the number of threads at every operation, and OpenMP keeps that number
// for each thread by itself (the nthreads-var ICV). Only `at::set_num_threads` also stores it for
// the process: threads take it over from there once, at their first question. So the way to set one
// thread is to let it ask first, then to set OpenMP. MKL has a number per thread of its own, which
// wins over OpenMP's.

namespace cohort {
namespace {

/// The functions that set the calling thread; nullptr for a library that is not there.
struct ThreadSetters {
  void (*openmp)(int) = nullptr;
  int (*mkl)(int) = nullptr;  ///< Returns the number before; 0 stands for "as OpenMP".
};

/// A process may hold two copies of OpenMP, of which LibTorch uses one. So try it.
bool moves_libtorch(void (*set_openmp)(int)) {
  if (set_openmp == nullptr) return false;
  const int before = at::get_num_threads();
  set_openmp(before + 1);
  const bool moved = at::get_num_threads() == before + 1;
  set_openmp(before);
  return moved;
}

ThreadSetters find_setters() {
  ThreadSetters setters{loaded_symbol<void(int)>("omp_set_num_threads"),
                        loaded_symbol<int(int)>("MKL_Set_Num_Threads_Local")};
  if (!moves_libtorch(setters.openmp)) {
    log::warning(
        "intra-op threads cannot be set for each replica: this LibTorch does not use the "
        "OpenMP of the process; for reproducible results run with OMP_NUM_THREADS=1");
    return {};
  }
  return setters;
}

const ThreadSetters& setters() {
  static const ThreadSetters setters = find_setters();
  return setters;
}

}  // namespace

IntraOpThreads::IntraOpThreads(int threads) : openmp_before_(at::get_num_threads()) {
  if (threads < 1) throw ValueError("IntraOpThreads", cat("expected 1 or more, got ", threads));
  if (setters().openmp) setters().openmp(threads);
  if (setters().mkl) mkl_before_ = setters().mkl(threads);
}

IntraOpThreads::~IntraOpThreads() {
  if (setters().openmp) setters().openmp(openmp_before_);
  if (setters().mkl) setters().mkl(mkl_before_);
}

}  // namespace cohort
