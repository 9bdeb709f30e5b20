#pragma once

#include <string>

/// What the program runs on, in words: for logs, bug reports and benchmarks.
///
/// All functions may be called from any thread.
namespace cohort {

/// The LibTorch that Cohort was compiled against: "1.13.0".
std::string libtorch_version();

/// The BLAS that LibTorch multiplies matrices with: "OpenBLAS 0.3.21 …", "Intel(R) oneAPI Math
/// Kernel Library …", "BLIS …", or "reference BLAS" if no fast one is in the process.
std::string blas_name();

/// Warns, once in the process, if there is only the reference BLAS, and says what to install.
/// It is what a fresh Debian has; training is some 20 times slower with it.
void warn_if_reference_blas();

/// A few lines, each `name: value` and ended by a newline:
///
///     LibTorch: 1.13.0
///     BLAS: OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY Haswell MAX_THREADS=64
///     cores allowed: 2
///     devices: cpu:0 cpu:1
///
/// Throws ValueError if `COHORT_CPU_DEVICES` is needed and bad.
std::string describe_machine();

}  // namespace cohort
