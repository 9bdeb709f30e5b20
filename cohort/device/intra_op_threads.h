#pragma once

namespace cohort {

/// While it lives, LibTorch's operations that the calling thread starts use `threads` threads each.
///
/// Other threads, and `at::set_num_threads`, which is for the whole process, are not touched; what
/// held in this thread before holds again afterwards. Guards may be nested, and must be destroyed
/// in the thread that made them, in reverse order.
///
///     {
///       const IntraOpThreads one(1);
///       loss.backward();                  // on this thread only
///     }                                   // as before
///
/// It costs some tens of nanoseconds, so that it can go around every step of a replica. It matters
/// for more than speed: a matrix product on two threads adds in another order than on one, so that
/// the same bits need the same number of threads.
///
/// Follows it: what LibTorch does through OpenMP, oneDNN and MKL. Does not: OpenBLAS, whose threads
/// only the whole process can set (process_settings.h). A LibTorch built without OpenMP cannot be
/// set for one thread alone; the guard then does nothing, and says so once in the log.
class IntraOpThreads {
 public:
  /// Throws ValueError unless `threads` is at least 1.
  explicit IntraOpThreads(int threads);
  ~IntraOpThreads();

  IntraOpThreads(const IntraOpThreads&) = delete;
  IntraOpThreads& operator=(const IntraOpThreads&) = delete;

 private:
  int openmp_before_;
  int mkl_before_ = 0;
};

}  // namespace cohort
