#include "cohort/device/process_settings.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/device/loaded_symbol.h"
#include "tests/base/captured_log.h"
#include "tests/base/scoped_environment.h"

namespace cohort {
namespace {

/// The settings cannot be taken back, so each story is told in a process of its own.
class ProcessSettingsTest : public testing::Test {
 protected:
  ProcessSettingsTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  /// Ends the process of a story, with the number of the line that does not hold.
  static void expect(bool holds, int line) {
    if (!holds) std::exit(line);
  }

  ScopedEnvironment no_refusal_{"COHORT_PROCESS_SETTINGS", nullptr};
};

#define HOLDS(condition) expect(condition, __LINE__)
#define IN_A_FRESH_PROCESS(story) \
  EXPECT_EXIT(                    \
      {                           \
        story();                  \
        std::exit(0);             \
      },                          \
      testing::ExitedWithCode(0), "")

int openblas_threads() {
  auto* const get = loaded_symbol<int()>("openblas_get_num_threads");
  return get ? get() : 1;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasOwnMalloc = true;  // a sanitizer's, which takes no settings
#else
constexpr bool kHasOwnMalloc = false;
#endif

/// Whether malloc fetches a block of 16 MiB from the kernel. To be asked once in a process: glibc
/// learns from the first block that was freed.
bool malloc_asks_the_kernel() {
  const auto mapped_before = mallinfo2().hblks;
  void* volatile block = std::malloc(16 << 20);
  const bool asks = mallinfo2().hblks > mapped_before;
  std::free(block);
  return asks;
}

TEST_F(ProcessSettingsTest, MakeOpenBlasSingleThreadedAndMallocKeepItsBlocks) {
  IN_A_FRESH_PROCESS([] {
    HOLDS(apply_process_settings());
    HOLDS(openblas_threads() == 1);
    HOLDS(kHasOwnMalloc || !malloc_asks_the_kernel());
  });
}

TEST_F(ProcessSettingsTest, AreMadeAndSaidOnceByManyThreads) {
  IN_A_FRESH_PROCESS([] {
    const CapturedLog log;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([] { HOLDS(apply_process_settings()); });
    for (auto& thread : threads) thread.join();
    HOLDS(log.count(log::Level::INFO, "process settings: ") == 1);
  });
}

TEST_F(ProcessSettingsTest, AreLeftAloneIfTheProgramSaysSo) {
  IN_A_FRESH_PROCESS([] {
    const CapturedLog log;
    const int before = openblas_threads();
    configure({.process_settings = ProcessSettings::LEAVE_ALONE});
    HOLDS(!apply_process_settings());
    HOLDS(!apply_process_settings());
    HOLDS(openblas_threads() == before);
    HOLDS(kHasOwnMalloc || malloc_asks_the_kernel());
    HOLDS(log.count(log::Level::INFO, "left alone") == 1);
  });
}

TEST_F(ProcessSettingsTest, AreLeftAloneIfTheEnvironmentSaysSo) {
  const ScopedEnvironment leave("COHORT_PROCESS_SETTINGS", "leave");
  IN_A_FRESH_PROCESS([] {
    HOLDS(!apply_process_settings());
    configure({.process_settings = ProcessSettings::APPLY});
    HOLDS(!apply_process_settings());
    HOLDS(kHasOwnMalloc || malloc_asks_the_kernel());
  });
}

TEST_F(ProcessSettingsTest, CanBeAllowedLaterButNotTakenBack) {
  IN_A_FRESH_PROCESS([] {
    configure({.process_settings = ProcessSettings::LEAVE_ALONE});
    HOLDS(!apply_process_settings());
    configure({});
    HOLDS(apply_process_settings());
    configure({.process_settings = ProcessSettings::LEAVE_ALONE});
    HOLDS(apply_process_settings());
    HOLDS(openblas_threads() == 1);
  });
}

TEST_F(ProcessSettingsTest, RefuseAWordTheyDoNotKnow) {
  const ScopedEnvironment bad("COHORT_PROCESS_SETTINGS", "no");
  IN_A_FRESH_PROCESS([] {
    try {
      apply_process_settings();
      HOLDS(false);
    } catch (const ValueError&) {
      HOLDS(kHasOwnMalloc || malloc_asks_the_kernel());
    }
  });
}

}  // namespace
}  // namespace cohort
