#include "cohort/collectives/ordered_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class T>
constexpr bool kIsComplex = c10::is_complex<T>::value;

template <class T>
using Buffers = std::vector<std::vector<T>>;

/// Contributions of replicas, and sums of them. A buffer is longer than four blocks of the kernel
/// and no whole number of strips.
template <class T>
class OrderedSum : public ::testing::Test {
 protected:
  static constexpr c10::ScalarType kType = c10::CppTypeToScalarType<T>::value;
  static constexpr int64_t kSize = 4096 / sizeof(T) + 77;

  std::mt19937 random{20};

  int64_t pick(int64_t lowest, int64_t highest) {
    return std::uniform_int_distribution<int64_t>(lowest, highest)(random);
  }

  /// Any integer; floating-point numbers so different in size that every order rounds differently.
  T any_value() {
    const auto real = [&] { return std::ldexp(pick(-5000, 5000) / 5000.0, pick(-8, 8)); };
    if constexpr (std::is_integral_v<T>) return static_cast<T>(random() * uint64_t{0x100000001});
    if constexpr (kIsComplex<T>) return T(real(), real());
    return static_cast<T>(static_cast<float>(real()));
  }

  Buffers<T> contributions(int replicas) {
    Buffers<T> buffers(replicas, std::vector<T>(kSize));
    for (auto& buffer : buffers) {
      for (T& value : buffer) value = any_value();
    }
    return buffers;
  }

  /// The tree as defined, one addition at a time.
  static T plain_sum(const Buffers<T>& values, int64_t index, int lo, int hi) {
    if (hi - lo == 1) return values[lo][index];
    const int cut = split_point(lo, hi);
    const T left = plain_sum(values, index, lo, cut), right = plain_sum(values, index, cut, hi);
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(left) + static_cast<uint64_t>(right));
    } else {
      return left + right;
    }
  }

  static std::vector<T> plain_sum(const Buffers<T>& values) {
    std::vector<T> sums(kSize);
    for (int64_t i = 0; i < kSize; ++i) sums[i] = plain_sum(values, i, 0, values.size());
    return sums;
  }

  static void sum(const SumPlan& plan, const Buffers<T>& leaves, std::vector<T>& output,
                  Range range = {0, kSize}, double divisor = 1) {
    std::vector<const void*> inputs;
    for (const auto& leaf : leaves) inputs.push_back(leaf.data());
    void* const outputs[] = {output.data()};
    ordered_sum(kType, plan, inputs, outputs, range, divisor);
  }

  static void expect_same_bits(const std::vector<T>& got, const std::vector<T>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(T)), 0) << "at element " << i;
    }
  }

  /// [0, n) cut at random into blocks, as replicas are spread over devices and workers.
  std::vector<Node> random_blocks(int n) {
    std::vector<Node> blocks{{0, 1}};
    for (int id = 1; id < n; ++id) {
      pick(0, 2) == 0 ? blocks.push_back({id, id + 1}) : void(blocks.back().hi = id + 1);
    }
    return blocks;
  }
};

struct TypeName {
  template <class T>
  static std::string GetName(int) {
    return c10::toString(c10::CppTypeToScalarType<T>::value);
  }
};
using Types = ::testing::Types<float, double, c10::Half, c10::BFloat16, int8_t, uint8_t, int16_t,
                               int32_t, int64_t, c10::complex<float>, c10::complex<double>>;
TYPED_TEST_SUITE(OrderedSum, Types, TypeName);

TYPED_TEST(OrderedSum, IsTheTreeOverTheReplicas) {
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 31, 40, 64}) {
    SCOPED_TRACE(n);
    const auto values = this->contributions(n);
    std::vector<TypeParam> output(this->kSize);
    this->sum(SumPlan(n), values, output);
    this->expect_same_bits(output, this->plain_sum(values));
  }
}

TYPED_TEST(OrderedSum, HasTheSameBitsForAnyCutIntoRanges) {
  for (int n = 1; n <= 17; ++n) {
    SCOPED_TRACE(n);
    const auto values = this->contributions(n);
    std::vector<TypeParam> output(this->kSize);
    for (int64_t begin = 0, end; begin < this->kSize; begin = end) {
      end = std::min(this->kSize, begin + this->pick(1, this->kSize / 3));
      this->sum(SumPlan(n), values, output, {begin, end});
    }
    this->expect_same_bits(output, this->plain_sum(values));
  }
}

TYPED_TEST(OrderedSum, HasTheSameBitsForAnyFoldingAhead) {
  for (int n = 1; n <= 17; ++n) {
    const auto values = this->contributions(n);
    const auto expected = this->plain_sum(values);
    for (int trial = 0; trial < 5; ++trial) {
      std::vector<Node> nodes;
      Buffers<TypeParam> folded;
      for (const Node block : this->random_blocks(n)) {
        for (const Node node : ReductionTree(n).subtrees(block.lo, block.hi)) {
          nodes.push_back(node);
          folded.emplace_back(this->kSize);
          this->sum(SumPlan(node.size()), {&values[node.lo], &values[node.hi - 1] + 1},
                    folded.back());
        }
      }
      SCOPED_TRACE(::testing::PrintToString(nodes));
      std::vector<TypeParam> output(this->kSize);
      this->sum(SumPlan(nodes), folded, output);
      this->expect_same_bits(output, expected);
    }
  }
}

TYPED_TEST(OrderedSum, MayOverwriteItsLeaves) {
  for (int n = 1; n <= 17; ++n) {
    SCOPED_TRACE(n);
    auto buffers = this->contributions(n);
    const auto expected = this->plain_sum(buffers);
    std::vector<void*> outputs;
    for (auto& buffer : buffers) outputs.push_back(buffer.data());
    const std::vector<const void*> leaves(outputs.begin(), outputs.end());
    std::shuffle(outputs.begin(), outputs.end(), this->random);
    ordered_sum(this->kType, SumPlan(n), leaves, outputs, {0, 100});
    ordered_sum(this->kType, SumPlan(n), leaves, outputs, {100, this->kSize});
    for (const auto& buffer : buffers) this->expect_same_bits(buffer, expected);
  }
}

TYPED_TEST(OrderedSum, WritesNothingOutsideTheRange) {
  const auto values = this->contributions(3);
  const auto before = this->contributions(1)[0];
  for (const Range range : {Range{0, 0}, Range{5, 5}, Range{1, 2}, Range{3, 300}}) {
    auto output = before;
    this->sum(SumPlan(3), values, output, range);
    auto expected = before;
    const auto sums = this->plain_sum(values);
    std::copy(&sums[range.begin], &sums[range.end], &expected[range.begin]);
    this->expect_same_bits(output, expected);
  }
}

TYPED_TEST(OrderedSum, IsDividedOnceAtTheEnd) {
  using Real = std::conditional_t<sizeof(TypeParam) == sizeof(double) * (1 + kIsComplex<TypeParam>),
                                  double, float>;
  if constexpr (!std::is_integral_v<TypeParam>) {
    for (const int n : {1, 2, 3, 7, 8}) {
      const auto values = this->contributions(n);
      auto expected = this->plain_sum(values);
      for (auto& value : expected) value = static_cast<TypeParam>(value / static_cast<Real>(n));
      std::vector<TypeParam> output(this->kSize);
      this->sum(SumPlan(n), values, output, {0, this->kSize}, n);
      this->expect_same_bits(output, expected);
    }
  } else {
    std::vector<TypeParam> output(this->kSize);
    EXPECT_THAT(
        [&] {
          this->sum(SumPlan(2), this->contributions(2), output, {0, 0}, 2);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("divide it as float64")));
  }
}

using FloatSum = OrderedSum<float>;

template <class T>
std::vector<T> sum_of(const Buffers<T>& values, double divisor = 1) {
  std::vector<const void*> leaves;
  for (const auto& value : values) leaves.push_back(value.data());
  std::vector<T> output(values[0].size());
  void* const outputs[] = {output.data()};
  ordered_sum(c10::CppTypeToScalarType<T>::value, SumPlan(static_cast<int>(values.size())), leaves,
              outputs, {0, static_cast<int64_t>(output.size())}, divisor);
  return output;
}

TEST(SumOfNumbers, IsTensorFlows) {
  EXPECT_THAT(sum_of<float>({{0, 1, 2, 3}, {4, 5, 6, 7}}), ElementsAre(4, 6, 8, 10));
  EXPECT_THAT(sum_of<float>({{1, 40, 1}, {3, 2, 98}}), ElementsAre(4, 42, 99));
  EXPECT_THAT(sum_of<float>({{1, 40, 1}, {3, 2, 98}}, 2), ElementsAre(2, 21, 49.5));
}

TEST(SumOfNumbers, RoundsAsTheParenthesesSay) {
  const float big = 1 << 24;  // big + 1 rounds to big
  EXPECT_THAT(sum_of<float>({{big}, {1}, {1}, {-big}}), ElementsAre(1));
  EXPECT_THAT(sum_of<float>({{1}, {1}, {big}}), ElementsAre(big + 2));
  EXPECT_THAT(sum_of<c10::BFloat16>({{256.f}, {1.f}, {1.f}}), ElementsAre(256.f));
  EXPECT_THAT(sum_of<c10::Half>({{2048.f}, {1.f}, {1.f}}), ElementsAre(2048.f));
}

TEST(SumOfNumbers, WrapsIntegersAround) {
  EXPECT_THAT(sum_of<int8_t>({{127, -128}, {1, -1}}), ElementsAre(-128, 127));
  EXPECT_THAT(sum_of<int64_t>({{std::numeric_limits<int64_t>::max()}, {1}}),
              ElementsAre(std::numeric_limits<int64_t>::min()));
}

TEST(SumOfNumbers, KeepsInfinityAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const auto sums = sum_of<float>({{infinity, infinity, nan, 1}, {1, -infinity, 1, nan}});
  EXPECT_EQ(sums[0], infinity);
  EXPECT_TRUE(std::isnan(sums[1]) && std::isnan(sums[2]) && std::isnan(sums[3]));
}

TEST(SumOfNumbers, RoundsEveryHalfAsLibTorchDoes) {
  std::vector<c10::Half> every(1 << 16), other(1 << 16);
  for (const float addend : {0.f, 1.f, -0x1p-24f, 0x1.554p-9f, 65504.f}) {
    for (int bits = 0; bits < 1 << 16; ++bits) {
      every[bits] = c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits());
      other[bits] = addend;
    }
    const auto sums = sum_of<c10::Half>({every, other});
    const auto means = sum_of<c10::Half>({every, other}, 3);
    for (int bits = 0; bits < 1 << 16; ++bits) {
      const c10::Half sum = every[bits] + other[bits];
      if (std::isnan(static_cast<float>(sum))) continue;
      ASSERT_EQ(sums[bits].x, sum.x) << bits << " + " << addend;
      ASSERT_EQ(means[bits].x, static_cast<c10::Half>(sum / 3.f).x) << bits << " + " << addend;
    }
  }
}

TEST_F(FloatSum, CanBeSharedByThreadsInPlace) {
  const int replicas = 6;
  auto buffers = contributions(replicas);
  const auto expected = plain_sum(buffers);
  std::vector<void*> outputs;
  for (auto& buffer : buffers) outputs.push_back(buffer.data());
  const std::vector<const void*> leaves(outputs.begin(), outputs.end());
  const SumPlan plan(replicas);
  ChunkCounter chunks(kSize, 16);
  const auto work = [&] {
    while (const auto range = chunks.claim()) {
      ordered_sum(c10::kFloat, plan, leaves, outputs, *range);
      chunks.done();
    }
  };
  const std::jthread one(work), two(work), three(work);
  while (!chunks.finished()) std::this_thread::yield();
  for (const auto& buffer : buffers) expect_same_bits(buffer, expected);
}

TEST(SumPlan, AddsUpToEightOperandsInOneStep) {
  EXPECT_THAT(SumPlan(1).steps(), ElementsAre(0, 1));
  EXPECT_THAT(SumPlan(2).steps(), ElementsAre(0, 0, 2));
  EXPECT_THAT(SumPlan(6).steps(), ElementsAre(0, 0, 0, 0, 0, 0, 6));
  EXPECT_THAT(SumPlan(8).steps(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 8));
  EXPECT_THAT(SumPlan(10).steps(), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 2, 2));
  EXPECT_THAT((SumPlan{{8, 12}, {12, 16}}).steps(), ElementsAre(0, 0, 2));
}

TEST(SumPlan, DoesNotMoveParenthesesForWiderSteps) {
  EXPECT_THAT((SumPlan{{0, 2}, {2, 4}, {4, 6}}).steps(), ElementsAre(0, 0, 0, 3));     // (a+b)+c
  EXPECT_THAT((SumPlan{{0, 4}, {4, 5}, {5, 6}}).steps(), ElementsAre(0, 0, 0, 2, 2));  // a+(b+c)
}

TEST(SumPlan, NamesTheBufferThatDoesNotFit) {
  const auto plan = [](std::vector<Node> nodes) { return [=] { SumPlan{std::span(nodes)}; }; };
  const auto says = [](const char* text) { return ThrowsMessage<ValueError>(HasSubstr(text)); };
  EXPECT_THAT([] { SumPlan(0); }, says("at least one replica"));
  EXPECT_THAT(plan({}), says("at least one leaf buffer"));
  EXPECT_THAT(plan({{0, 1}, {1, 3}, {3, 4}}),
              says("leaf buffer 1: expected a node of the tree over [0, 4) that begins at 1, got "
                   "[1, 3)"));
  EXPECT_THAT(plan({{0, 2}, {3, 4}}), says("leaf buffer 1"));
  EXPECT_THAT(plan({{0, 2}, {1, 4}}), says("leaf buffer 1"));
  EXPECT_THAT(plan({{2, 4}, {0, 2}}), says("leaf buffer 0"));
  EXPECT_THAT(plan({{0, 2}, {0, 2}}), says("buffer 1 for [0, 2) as well"));
  EXPECT_THAT(plan({{0, 0}}), says("leaf buffer 0"));
}

TEST(SumErrors, NameTheType) {
  const auto sum = [](c10::ScalarType dtype) {
    return [=] {
      const void* const leaves[] = {nullptr, nullptr};
      ordered_sum(dtype, SumPlan(2), leaves, {}, {0, 0});
    };
  };
  const auto says = [](const char* text) {
    return ThrowsMessage<InvalidArgument>(HasSubstr(text));
  };
  EXPECT_THAT(sum(c10::kBool), says("[ordered_sum] values of type Bool cannot be added"));
  EXPECT_THAT(sum(c10::kQInt8), says("QInt8"));
  EXPECT_NO_THROW(sum(c10::kFloat)());
}

TEST(SumErrors, TellHowManyLeavesThePlanReads) {
  const void* const leaves[] = {nullptr, nullptr};
  EXPECT_THAT(
      [&] {
        ordered_sum(c10::kFloat, SumPlan(3), leaves, {}, {0, 0});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected 3 leaf buffers, got 2")));
}

TEST(BroadcastBytes, CopiesTheRangeToEveryOutput) {
  std::string source(1000, '\0'), one(1000, '.'), two(1000, '.');
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>('a' + i % 26);
  void* const outputs[] = {one.data(), source.data(), two.data()};
  const std::string expected = "..." + source.substr(3, 900) + std::string(97, '.');
  broadcast_bytes(source.data(), outputs, {3, 903});
  EXPECT_EQ(one, expected);
  EXPECT_EQ(two, expected);
}

}  // namespace
}  // namespace cohort::collectives
