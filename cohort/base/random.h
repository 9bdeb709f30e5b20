#pragma once

#include <cstdint>

namespace cohort {

/// Sets the seed that all random numbers of replicas and of input pipelines come from. Without it,
/// the seed of LibTorch's default generator is used (a constant unless `torch::manual_seed` was
/// called).
void set_seed(std::uint64_t seed);

/// The seed in force, and how often the program has set one.
std::uint64_t seed();
std::uint64_t seeds_set();

/// A number that looks random and is a function of its arguments.
inline std::uint64_t mix(std::uint64_t x);
template <class... More>
std::uint64_t mix(std::uint64_t x, std::uint64_t y, More... more) {
  return mix(mix(x) ^ y, more...);
}

/// A stream of numbers that look random (SplitMix64), for shuffling.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    return finish(state_);
  }
  /// One of 0 … bound-1, as good as equally likely: exact to bound / 2^64. (Lemire 2019, without
  /// the rejection.)
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(Wide{next()} * bound >> 64);
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  static std::uint64_t finish(std::uint64_t x) {  // Steele, Lea, Flood 2014
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  std::uint64_t state_;
};

inline std::uint64_t mix(std::uint64_t x) { return RandomStream(x).next(); }

}  // namespace cohort
