// What a function of the user's throws comes out with its type, and says where it was thrown.

#include <stdexcept>

#include "tests/data/elements.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The text of the first exception of a pass, which must be an `Exception`.
template <class Exception, class T>
std::string what_of(const Dataset<T>& dataset) {
  try {
    elements_of(dataset);
  } catch (const Exception& error) {
    EXPECT_EQ(typeid(error), typeid(Exception));
    return error.what();
  }
  return "nothing";
}

/// As std::stof does for a string that is no number.
std::int64_t not_two(std::int64_t x) { return x == 2 ? throw std::invalid_argument("stof") : x; }

TEST(AnExceptionOfAFunction, SaysInWhichStageAndForWhichElement) {
  const auto datasets = [](std::int64_t x) { return range(not_two(x)); };
  for (const int parallel : {1, 3}) {
    EXPECT_EQ(what_of<std::invalid_argument>(range(9).map(not_two, {.parallel = parallel})),
              "stof (element 2 of map)");
  }
  EXPECT_EQ(what_of<std::invalid_argument>(range(9).filter(not_two)), "stof (element 2 of filter)");
  EXPECT_EQ(what_of<std::invalid_argument>(range(9).flat_map(datasets)),
            "stof (element 2 of flat_map)");
  EXPECT_EQ(what_of<std::invalid_argument>(range(9).interleave(datasets)),
            "stof (element 2 of interleave)");
  EXPECT_EQ(what_of<std::invalid_argument>(range(9).scan(
                0, [](int state, std::int64_t x) { return std::pair(state, not_two(x)); })),
            "stof (element 2 of scan)");
  EXPECT_EQ(what_of<std::invalid_argument>(range(9).batch(
                2, [](const std::vector<std::int64_t>& both) { return not_two(both[0]); })),
            "stof (element 1 of batch)");
  EXPECT_EQ(what_of<std::invalid_argument>(range(9).bucket_by_sequence_length(
                not_two, {.boundaries = {5}, .batch_sizes = {2, 2}})),
            "stof (element 2 of bucket_by_sequence_length)");
  EXPECT_EQ(what_of<std::invalid_argument>(from_generator(
                [] { return [i = 0]() mutable { return std::optional(not_two(i++)); }; })),
            "stof (element 2 of from_generator)");
}

TEST(AnExceptionOfAFunction, KeepsItsNumberBehindAPosition) {
  const auto dataset = range(9).filter([](std::int64_t x) { return x != 5 || not_two(2); });
  auto first = dataset.iterator();
  for (int i = 0; i < 4; ++i) first.next();
  auto second = dataset.iterator();
  second.restore(first.position());
  EXPECT_EQ(second.next(), 4);
  try {
    second.next();
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "stof (element 5 of filter)");
  }
}

TEST(AnExceptionOfAFunction, MayBeOfAnyType) {
  struct Own {
    int code;
  };
  const auto own = range(9).map([](std::int64_t x) { return x == 2 ? throw Own{7} : x; });
  EXPECT_THROW(elements_of(own), Own);
  EXPECT_FAILS(elements_of(range(9).map(
                   [](std::int64_t x) { return x == 2 ? throw ValueError("my map", "two") : x; })),
               ValueError, "[my map] two (element 2 of map)");
  const auto checked = range(9).map([](std::int64_t x) {
    TORCH_CHECK(x != 2, "two");
    return x;
  });
  EXPECT_THAT(what_of<c10::Error>(checked), HasSubstr("element 2 of map"));
}

TEST(AnExceptionOfAFunction, LosesOneElementOnly) {
  const auto once = [](std::int64_t x) { return range(not_two(x), x + 1); };
  EXPECT_THAT(elements_of(range(5).flat_map(once).ignore_errors()),
              ElementsAre("0", "1", "3", "4"));
  EXPECT_THAT(elements_of(range(5).interleave(once, {.cycle_length = 2}).ignore_errors()),
              ElementsAre("0", "1", "3", "4"));
  EXPECT_THAT(
      elements_of(range(5).filter([](std::int64_t x) { return not_two(x) >= 0; }).ignore_errors()),
      ElementsAre("0", "1", "3", "4"));
  EXPECT_THAT(elements_of(range(5)
                              .bucket_by_sequence_length(not_two,
                                                         {.boundaries = {5}, .batch_sizes = {2, 2}})
                              .ignore_errors()),
              ElementsAre("[2]{0 1}", "[2]{3 4}"));
}

TEST(Generators, ThatCantBeginCountNoElement) {
  int begins = 0;
  const auto numbers = from_generator([&begins] {
    if (++begins == 1) throw std::runtime_error("not yet");
    return [i = std::int64_t{0}]() mutable -> std::optional<std::int64_t> { return i++; };
  });
  auto iterator = numbers.iterator();
  EXPECT_THROW(iterator.next(), std::runtime_error);
  EXPECT_EQ(iterator.next(), 0);
  auto restored = numbers.iterator();
  restored.restore(iterator.position());
  EXPECT_EQ(restored.next(), 1);
}

}  // namespace
}  // namespace cohort::data
