#include "cohort/device/process_settings.h"

#include <malloc.h>

#include <mutex>
#include <string>

#include "cohort/base/environment.h"
#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/device/loaded_symbol.h"

namespace cohort {
namespace {

constexpr int kMiB = 1 << 20;
constexpr int kMmapThreshold = 32 * kMiB;  // the largest that glibc takes
constexpr int kTrimThreshold = 2000 * kMiB;
constexpr int kTopPad = 64 * kMiB;  // as large as the heaps that threads' blocks come from

bool is_refused() {
  const auto word = environment::choice("COHORT_PROCESS_SETTINGS", {"apply", "leave"});
  return word == "leave" ||
         current_configuration().process_settings == ProcessSettings::LEAVE_ALONE;
}

std::string set_blas_threads() {
  auto* const set = loaded_symbol<void(int)>("openblas_set_num_threads");
  auto* const get = loaded_symbol<int()>("openblas_get_num_threads");
  if (set == nullptr || get == nullptr) return "no OpenBLAS to set";
  const int before = get();
  set(1);
  return cat("OpenBLAS threads ", before, " -> ", get());
}

/// Setting one threshold alone makes things worse: it ends glibc's own adjustment of both. They
/// don't hold for the further heaps of a thread, which glibc gives back as soon as they are empty,
/// unless what is left would be less than the padding.
///
/// glibc does not merge the blocks of its fast bins with their neighbours before a heap is used up,
/// and LibTorch's aligned blocks leave a rest for such a bin each time. With that much padding, the
/// heap of each thread would fill with rests, 64 MiB of them, before any is used again. Without
/// fast bins they are merged at once; the blocks that a thread takes and returns in turn come from
/// its own cache either way.
std::string set_malloc_thresholds() {
  const bool taken = mallopt(M_MMAP_THRESHOLD, kMmapThreshold) == 1 &&
                     mallopt(M_TRIM_THRESHOLD, kTrimThreshold) == 1 &&
                     mallopt(M_TOP_PAD, kTopPad) == 1 && mallopt(M_MXFAST, 0) == 1;
  return taken ? "malloc keeps blocks up to 32 MiB" : "this malloc takes no thresholds";
}

}  // namespace

bool apply_process_settings() {
  static std::mutex mutex;
  static bool is_applied = false;
  const std::lock_guard lock(mutex);
  if (is_applied) return true;
  if (is_refused()) {
    if (log::first("process-settings-refused")) {
      log::info("process settings are left alone, as the program or COHORT_PROCESS_SETTINGS asks");
    }
    return false;
  }
  log::info("process settings: ", set_blas_threads(), ", ", set_malloc_thresholds());
  is_applied = true;
  return true;
}

}  // namespace cohort
