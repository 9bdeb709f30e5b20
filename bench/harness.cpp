#include "harness.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

namespace bench {

double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

namespace {

double time_steps(const Step& step, int count) {
  const double begin = seconds_now();
  for (int i = 0; i < count; ++i) step();
  return (seconds_now() - begin) / count;
}

/// How many steps fill a slice. Warms up on the way.
int steps_in(double slice, const Step& step) {
  int count = 1;
  for (;;) {
    const double each = time_steps(step, count);
    if (each * count >= slice / 2) return std::max(1, static_cast<int>(slice / each + 0.5));
    count *= 2;
  }
}

}  // namespace

Comparison::Comparison(std::vector<Step> sides, Options options) : times_(sides.size()) {
  std::vector<int> counts;
  for (const Step& side : sides) counts.push_back(steps_in(options.slice, side));
  const double end = seconds_now() + options.seconds;
  for (int round = 0; round < 3 || seconds_now() < end; ++round) {
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const std::size_t side = round % 2 == 0 ? i : sides.size() - 1 - i;
      times_[side].push_back(time_steps(sides[side], counts[side]));
    }
  }
}

double Comparison::ratio(int side, int other) const {
  return figure([&](const std::vector<double>& times) { return times[side] / times[other]; });
}

double Comparison::figure(const std::function<double(const std::vector<double>&)>& figure) const {
  std::vector<double> figures;
  for (std::size_t round = 0; round < times_[0].size(); ++round) {
    std::vector<double> times;
    for (const auto& side : times_) times.push_back(side[round]);
    figures.push_back(figure(times));
  }
  return median(std::move(figures));
}

double median_call(int calls, const Step& step, const Step& before) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    if (before) before();
    times.push_back(time_steps(step, 1));
  }
  return median(std::move(times));
}

double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

namespace {

/// As it was when the process began: a thread that is bound later passes on its own core only.
const cpu_set_t kAllowedCores = [] {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  return allowed;
}();

}  // namespace

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;  // the second number
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void pin_to_core(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &kAllowedCores) || core-- > 0) continue;
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

void arithmetic(int threads) {
  const auto work = [] {
    std::uint64_t x = 88172645463325252U;  // xorshift (Marsaglia 2003): a chain of additions
    for (int i = 0; i < 2'000'000; ++i) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
    }
    volatile std::uint64_t sink = x;
    static_cast<void>(sink);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (auto& thread : others) thread.join();
}

void Report::add(const std::string& name, double value, const std::string& unit,
                 const std::string& against, Bar bar) {
  const bool good = bar.kind == Bar::NONE ||
                    (bar.kind == Bar::AT_LEAST ? value >= bar.value : value <= bar.value);
  char wanted[32] = "";
  if (bar.kind != Bar::NONE) {
    std::snprintf(wanted, sizeof wanted, "%s %.4g",
                  bar.kind == Bar::AT_LEAST ? ">=" : "<=", bar.value);
  }
  std::printf("%-44s %10.4g %-9s %-9s %-5s %s\n", name.c_str(), value, unit.c_str(), wanted,
              bar.kind == Bar::NONE ? ""
              : good                ? "ok"
                                    : "SHORT",
              against.c_str());
  std::fflush(stdout);
  measures_.push_back({name, value, unit, against});
}

Report::~Report() {
  const char* path = std::getenv("COHORT_BENCH_JSON");
  if (!path) return;
  auto all = nlohmann::json::array();
  if (std::ifstream file(path); file) all = nlohmann::json::parse(file, nullptr, false);
  if (!all.is_array()) all = nlohmann::json::array();
  for (const Measure& measure : measures_) {
    const auto same = [&](const nlohmann::json& old) { return old["name"] == measure.name; };
    all.erase(std::remove_if(all.begin(), all.end(), same), all.end());
    all.push_back({{"name", measure.name},
                   {"value", measure.value},
                   {"unit", measure.unit},
                   {"against", measure.against}});
  }
  std::ofstream(path) << all.dump(2) << '\n';
}

}  // namespace bench
