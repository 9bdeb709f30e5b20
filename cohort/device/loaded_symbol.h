#pragma once

#include <dlfcn.h>

namespace cohort {

/// A C function of a library that may or may not be loaded into the process; nullptr if it is not.
///
/// For libraries that Cohort makes use of but must not link, because LibTorch has brought its own
/// copy (OpenMP, OpenBLAS, MKL): the search order is the one by which LibTorch itself was bound.
///
///     if (auto* set = loaded_symbol<void(int)>("openblas_set_num_threads")) set(1);
///
/// The caller must know the function's type. May be called from any thread.
template <class Function>
Function* loaded_symbol(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace cohort
