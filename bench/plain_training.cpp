// What a user would run without Cohort: the plain LibTorch loop on the global batch, with each
// operation spread over all cores. Linked with LibTorch alone.
//
//     plain_training mlp|cnn|lm default|cohort [seconds]
//
// prints samples/s. The second word says which malloc thresholds: glibc's own, or those that Cohort
// sets (cohort/device/process_settings.cpp).
#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "harness.h"
#include "models.h"

namespace {

constexpr int kReplicas = 2;  // of the job it is compared with

void use_every_core() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(cores);
  auto* const set =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set != nullptr) set(cores);
}

void set_malloc_thresholds() {
  constexpr int kMiB = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, 32 * kMiB);
  mallopt(M_TRIM_THRESHOLD, 2000 * kMiB);
  mallopt(M_TOP_PAD, 64 * kMiB);
  mallopt(M_MXFAST, 0);
}

template <class M>
bool print_samples_per_second(const std::string& name, double seconds) {
  if (name != M::Impl::kName) return false;
  bench::PlainTraining<M> training(kReplicas);
  const bench::Comparison speed({[&] { training.step(); }}, {.seconds = seconds, .slice = 0.2});
  std::cout << static_cast<double>(training.batch_size()) / speed.time(0) << '\n';
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "plain_training mlp|cnn|lm default|cohort [seconds]\n";
    return 1;
  }
  use_every_core();
  if (argv[2] == std::string("cohort")) set_malloc_thresholds();
  const double seconds = argc > 3 ? std::atof(argv[3]) : 3;
  const bool known = print_samples_per_second<bench::Mlp>(argv[1], seconds) ||
                     print_samples_per_second<bench::Cnn>(argv[1], seconds) ||
                     print_samples_per_second<bench::LanguageModel>(argv[1], seconds);
  return known ? 0 : 1;
}
