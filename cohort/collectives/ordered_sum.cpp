#include "cohort/collectives/ordered_sum.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "cohort/base/error.h"

#if defined(__FAST_MATH__)
#error "-ffast-math lets the compiler move parentheses: sums would lose their order"
#endif

// x86-64 as such has no AVX2: folds are compiled twice and chosen at run time. (The attribute
// target_clones would do that, but its resolvers run before a sanitizer is ready, and crash.)
#if defined(__x86_64__)
#include <immintrin.h>
#define COHORT_AVX2 __attribute__((target("avx2,f16c")))
#endif
#define COHORT_INLINE __attribute__((always_inline)) inline

// How it works. The range is cut into blocks, and for each block the plan runs as a stack machine:
// reading a leaf pushes its address; a fold adds the topmost two to eight operands in registers
// and replaces them by the address of their sum, a scratch block in the L1 cache. The last fold,
// the root's, stores to the outputs. So every leaf is read from memory once, every
// output is written once, and up to eight leaves flow side by side, as prefetchers like it.
//
// Inside a fold, a strip of two cache lines is summed into a local array and then stored to each
// output. All loads of a strip come before its stores, hence an output may be a leaf; and the
// length of a strip is constant, hence compilers vectorise it without being asked.

namespace cohort::collectives {
namespace {

constexpr int64_t kBlockBytes = 1024;
constexpr int64_t kStripBytes = 128;
constexpr int kWidestFold = 8;
constexpr int kMaxHeight = 31 + kWidestFold;  // a tree over ints has 31 levels at most

/// Where a sum goes: to each output from `offset` on, after division.
struct Target {
  std::span<void* const> outputs;
  int64_t offset = 0;
  double divisor = 1;

  template <class T>
  COHORT_INLINE void store(const T* values, int64_t at, int64_t count) const {
    for (void* output : outputs) {
      std::memcpy(static_cast<T*>(output) + offset + at, values, count * sizeof(T));
    }
  }
};

template <class T>
COHORT_INLINE void divide(T* values, int64_t count, double divisor) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Wide by = static_cast<Wide>(divisor);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(values[i] / by);
}

/// The sum of `operands[0]` to `operands[Width - 1]` at one index, as the tree over so many leaves.
template <int Width, class T>
COHORT_INLINE T tree_sum(const T* const* operands, int64_t index) {
  if constexpr (Width == 1) {
    return operands[0][index];
  } else {
    constexpr int kLeft = split_point(0, Width);
    return static_cast<T>(tree_sum<kLeft>(operands, index) +
                          tree_sum<Width - kLeft>(operands + kLeft, index));
  }
}

template <int Width, class T>
COHORT_INLINE void fold_strip(const T* const* operands, const Target& to, int64_t at,
                              int64_t length) {
  T strip[kStripBytes / sizeof(T)];
  for (int64_t i = 0; i < length; ++i) strip[i] = tree_sum<Width>(operands, at + i);
  if constexpr (!std::is_integral_v<T>) {
    if (to.divisor != 1) divide(strip, length, to.divisor);
  }
  to.store(strip, at, length);
}

/// A vector register's worth of elements, which GCC and Clang add as one.
template <class T>
using Vector __attribute__((vector_size(32))) = T;

/// Not returned by value: without AVX the compiler warns of an ABI that inlining never uses.
template <int Width, class T>
COHORT_INLINE void vector_sum(const T* const* operands, int64_t index, Vector<T>& sum) {
  if constexpr (Width == 1) {
    std::memcpy(&sum, operands[0] + index, sizeof(sum));
  } else {
    constexpr int kLeft = split_point(0, Width);
    Vector<T> right;
    vector_sum<kLeft, T>(operands, index, sum);
    vector_sum<Width - kLeft, T>(operands + kLeft, index, right);
    sum = sum + right;
  }
}

/// To two outputs and without a division, which is the rule, a sum need not leave its register for
/// a strip. Returns where the rest begins.
template <int Width, class T>
COHORT_INLINE int64_t fold_to_two(const T* const* operands, const Target& to, int64_t length) {
  T* const first = static_cast<T*>(to.outputs[0]) + to.offset;
  T* const second = static_cast<T*>(to.outputs[1]) + to.offset;
  constexpr int64_t kCount = sizeof(Vector<T>) / sizeof(T);
  int64_t at = 0;
  for (; at + kCount <= length; at += kCount) {
    Vector<T> sum;
    vector_sum<Width, T>(operands, at, sum);
    std::memcpy(first + at, &sum, sizeof(sum));
    std::memcpy(second + at, &sum, sizeof(sum));
  }
  return at;
}

template <int Width, class T>
COHORT_INLINE void fold(const T* const* stack, const Target& to, int64_t length) {
  const T* operands[Width];  // a copy: no store can be taken for a change of it
  std::copy_n(stack, Width, operands);
  constexpr int64_t kStrip = kStripBytes / sizeof(T);
  int64_t at = 0;
  if constexpr (std::is_arithmetic_v<T>) {
    if (to.outputs.size() == 2 && to.divisor == 1) at = fold_to_two<Width>(operands, to, length);
  }
  for (; at + kStrip <= length; at += kStrip) fold_strip<Width>(operands, to, at, kStrip);
  if (at < length) fold_strip<Width>(operands, to, at, length - at);
}

#if defined(COHORT_AVX2)

template <int Width, class T>
COHORT_AVX2 void fold_with_avx2(const T* const* stack, const Target& to, int64_t length) {
  fold<Width>(stack, to, length);
}

// Compilers do not vectorise the conversions of Half, so that it would be 20 times slower.
COHORT_AVX2 COHORT_INLINE __m128i narrow(__m256 values) {
  return _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
}

template <int Width>
COHORT_AVX2 COHORT_INLINE __m128i half_sum(const c10::Half* const* operands, int64_t index) {
  if constexpr (Width == 1) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(operands[0] + index));
  } else {
    constexpr int kLeft = split_point(0, Width);
    const __m128i left = half_sum<kLeft>(operands, index);
    const __m128i right = half_sum<Width - kLeft>(operands + kLeft, index);
    return narrow(_mm256_add_ps(_mm256_cvtph_ps(left), _mm256_cvtph_ps(right)));
  }
}

template <int Width>
COHORT_AVX2 void fold_with_avx2(const c10::Half* const* stack, const Target& to, int64_t length) {
  const __m256 divisor = _mm256_set1_ps(static_cast<float>(to.divisor));
  int64_t at = 0;
  for (; at + 8 <= length; at += 8) {
    __m128i sum = half_sum<Width>(stack, at);
    if (to.divisor != 1) sum = narrow(_mm256_div_ps(_mm256_cvtph_ps(sum), divisor));
    c10::Half strip[8];
    std::memcpy(strip, &sum, sizeof(sum));
    to.store(strip, at, 8);
  }
  if (at < length) fold_strip<Width>(stack, to, at, length - at);
}

#endif

template <int Width, class T>
void fold_here(const T* const* stack, const Target& to, int64_t length) {
#if defined(COHORT_AVX2)
  if (__builtin_cpu_supports("avx2")) return fold_with_avx2<Width>(stack, to, length);
#endif
  fold<Width>(stack, to, length);
}

template <class T>
void fold_top(int width, const T* const* stack, const Target& to, int64_t length) {
  using Fold = void (*)(const T* const*, const Target&, int64_t);
  static constexpr Fold kFolds[kWidestFold] = {fold_here<1>, fold_here<2>, fold_here<3>,
                                               fold_here<4>, fold_here<5>, fold_here<6>,
                                               fold_here<7>, fold_here<8>};
  kFolds[width - 1](stack, to, length);
}

/// The stack machine, for elements of one type.
template <class T>
class Machine {
 public:
  static constexpr int64_t kBlock = kBlockBytes / sizeof(T);

  Machine(const SumPlan& plan, std::span<const void* const> leaves)
      : plan_(plan), leaves_(leaves) {}

  void run(Range block, const Target& outputs) {
    const void* const* leaf = leaves_.data();
    const auto steps = plan_.steps();
    int height = 0;
    for (const int step : steps.first(steps.size() - 1)) {
      if (step == 0) {
        stack_[height++] = static_cast<const T*>(*leaf++) + block.begin;
        continue;
      }
      height -= step;
      T* const sum = scratch_[height];
      void* const output = sum;
      fold_top(step, stack_ + height, {{&output, 1}}, block.size());
      stack_[height++] = sum;
    }
    fold_top(steps.back(), stack_, outputs, block.size());
  }

 private:
  const SumPlan& plan_;
  const std::span<const void* const> leaves_;

  const T* stack_[kMaxHeight];
  alignas(64) T scratch_[kMaxHeight][kBlock];  // one for each height of the stack
};

template <class T>
void sum_range(const SumPlan& plan, std::span<const void* const> leaves,
               std::span<void* const> outputs, Range range, double divisor) {
  Machine<T> machine(plan, leaves);
  const bool one_fold = plan.steps().size() == static_cast<size_t>(plan.leaves()) + 1;
  const int64_t length = one_fold ? range.size() : machine.kBlock;  // no scratch, no blocks
  for (int64_t at = range.begin; at < range.end; at += length) {
    const Range block{at, std::min(at + length, range.end)};
    machine.run(block, {outputs, at, divisor});
  }
}

/// Calls f(element, parts) with an element of the type that values of the dtype are added as, and
/// how many of these a value has: a complex number is two real ones. False for dtypes without
/// addition.
template <class F>
bool with_element_type(c10::ScalarType dtype, F&& f) {
  switch (dtype) {
    case c10::kFloat:
      return f(float{}, 1), true;
    case c10::kDouble:
      return f(double{}, 1), true;
    case c10::kComplexFloat:
      return f(float{}, 2), true;
    case c10::kComplexDouble:
      return f(double{}, 2), true;
    case c10::kHalf:
      return f(c10::Half{}, 1), true;
    case c10::kBFloat16:
      return f(c10::BFloat16{}, 1), true;
    case c10::kByte:
    case c10::kChar:
      return f(uint8_t{}, 1), true;  // unsigned: wrapping is defined
    case c10::kShort:
      return f(uint16_t{}, 1), true;
    case c10::kInt:
      return f(uint32_t{}, 1), true;
    case c10::kLong:
      return f(uint64_t{}, 1), true;
    default:
      return false;
  }
}

void check(c10::ScalarType dtype, const SumPlan& plan, size_t leaves, double divisor) {
  if (leaves != static_cast<size_t>(plan.leaves())) {
    throw InvalidArgument("ordered_sum",
                          cat("expected ", plan.leaves(), " leaf buffers, got ", leaves));
  }
  if (divisor != 1 && c10::isIntegralType(dtype, /*includeBool=*/true)) {
    throw InvalidArgument("ordered_sum", cat("a sum of ", c10::toString(dtype),
                                             " cannot be divided: divide it as float64"));
  }
}

}  // namespace

SumPlan::SumPlan(int replicas) : leaves_(replicas) {
  const Node root = ReductionTree(replicas).root();
  std::vector<Node> leaves;
  for (int id = root.lo; id < root.hi; ++id) leaves.push_back({id, id + 1});
  *this = SumPlan(leaves);
}

SumPlan::SumPlan(std::span<const Node> leaves) : leaves_(static_cast<int>(leaves.size())) {
  if (leaves.empty()) throw ValueError("SumPlan", "expected at least one leaf buffer, got none");
  compile({leaves.front().lo, leaves.back().hi}, leaves);
}

/// "Adding" two nodes appends steps. A node's operands stay on top of the stack for a wider fold
/// above as long as the node is the tree over so many operands.
void SumPlan::compile(Node root, std::span<const Node> leaves) {
  struct Compiled {
    int operands;        // on top of the stack
    std::ptrdiff_t end;  // of its steps
  };
  const auto compiled = [this](int operands) {
    return Compiled{operands, static_cast<std::ptrdiff_t>(steps_.size())};
  };
  size_t next = 0;
  const auto leaf = [&](Node node) -> std::optional<Compiled> {
    if (next < leaves.size() && leaves[next] == node && node.size() > 0) {
      ++next;
      steps_.push_back(0);
      return compiled(1);
    }
    if (node.size() > 1) return std::nullopt;
    throw ValueError("SumPlan", cat("leaf buffer ", next, ": expected a node of the tree over ",
                                    root, " that begins at ", node.lo, ", got ",
                                    next < leaves.size() ? cat(leaves[next]) : "none"));
  };
  const auto both = [&](Compiled left, Compiled right) {
    const int operands = left.operands + right.operands;
    if (operands <= kWidestFold && split_point(0, operands) == left.operands) {
      return compiled(operands);
    }
    if (right.operands > 1) steps_.push_back(static_cast<uint8_t>(right.operands));
    if (left.operands > 1) {
      steps_.insert(steps_.begin() + left.end, static_cast<uint8_t>(left.operands));
    }
    return compiled(2);
  };
  steps_.push_back(static_cast<uint8_t>(add_up(root, leaf, both).operands));
  if (next == leaves.size()) return;
  throw ValueError("SumPlan", cat("the leaf buffers up to ", next - 1, " make up ", root,
                                  ", got buffer ", next, " for ", leaves[next], " as well"));
}

void ordered_sum(c10::ScalarType dtype, const SumPlan& plan, std::span<const void* const> leaves,
                 std::span<void* const> outputs, Range range, double divisor) {
  check(dtype, plan, leaves.size(), divisor);
  const bool has_sum = with_element_type(dtype, [&](auto type, int parts) {
    const Range elements{parts * range.begin, parts * range.end};
    sum_range<decltype(type)>(plan, leaves, outputs, elements, divisor);
  });
  if (has_sum) return;
  throw InvalidArgument("ordered_sum", cat("values of type ", c10::toString(dtype),
                                           " cannot be added: cast them to a number type"));
}

bool has_ordered_sum(c10::ScalarType dtype) {
  return with_element_type(dtype, [](auto, int) {});
}

void broadcast_bytes(const void* source, std::span<void* const> outputs, Range range) {
  const auto* const first = static_cast<const uint8_t*>(source) + range.begin;
  fold_top(1, &first, {outputs, range.begin}, range.size());
}

#undef COHORT_AVX2
#undef COHORT_INLINE

}  // namespace cohort::collectives
