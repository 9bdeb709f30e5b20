#pragma once

#include <functional>
#include <string>
#include <vector>

/// What the benchmarks are written in: sides that take turns, medians, a table and a JSON file.
///
/// Figures of a shared machine drift, so nothing is compared with what was measured before: the
/// sides of a comparison take turns many times in one process, and the result is the median over
/// the rounds of the ratio within a round.
namespace bench {

using Step = std::function<void()>;

double seconds_now();

/// The middle one; the mean of the two middle ones for an even count.
double median(std::vector<double> values);

/// Runs the steps in turn and keeps how long each took.
class Comparison {
 public:
  struct Options {
    double seconds = 8;    ///< For all sides and rounds together.
    double slice = 0.030;  ///< How long a side goes on before it is the next one's turn.
  };

  /// Warms up, measures, and is done.
  Comparison(std::vector<Step> sides, Options options);

  /// Seconds for one step of a side.
  double time(int side) const { return median(times_[side]); }

  /// Time of a step of `side` over that of `other`.
  double ratio(int side, int other) const;

  /// The same for any figure of a round: `figure` gets the times of all sides in it.
  double figure(const std::function<double(const std::vector<double>&)>& figure) const;

 private:
  std::vector<std::vector<double>> times_;  // [side][round]
};

/// The median duration of a call, in seconds, with `before` called (and not timed) before each.
double median_call(int calls, const Step& step, const Step& before = nullptr);

/// The processor time of all threads of this process so far, in seconds.
double cpu_seconds();

/// The memory that the process holds, in MiB.
double resident_mib();

/// Binds the calling thread to one of the cores that the process has.
void pin_to_core(int core);

/// A fixed piece of arithmetic that needs no memory, on one thread or on two at the same time.
void arithmetic(int threads);

/// What a figure should be.
struct Bar {
  enum Kind { NONE, AT_LEAST, AT_MOST } kind = NONE;
  double value = 0;
};
inline Bar at_least(double value) { return {Bar::AT_LEAST, value}; }
inline Bar at_most(double value) { return {Bar::AT_MOST, value}; }

/// Prints a line for each measure, and writes them all when it is destroyed: to the file that
/// $COHORT_BENCH_JSON names, beside what other programs have put there.
class Report {
 public:
  Report() = default;
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  /// `against` says what the value is a ratio to, or how it was taken.
  void add(const std::string& name, double value, const std::string& unit,
           const std::string& against, Bar bar = {});

 private:
  struct Measure {
    std::string name;
    double value;
    std::string unit, against;
  };
  std::vector<Measure> measures_;
};

}  // namespace bench
