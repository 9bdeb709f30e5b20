#include "cohort/io/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/failing.h"

namespace cohort::io {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A field of bytes; all lengths here are below 128.
std::string field(int number, const std::string& bytes) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
}

std::string example(const std::string& name, const std::string& feature) {
  return field(1, field(1, field(1, name) + field(2, feature)));
}

template <class Value>
std::vector<Value> values(std::string_view record, std::string_view name) {
  std::vector<Value> result;
  features_of(record).at(name).append(result);
  return result;
}

TEST(Example, IsWhatTensorFlowWrites) {
  // tf.train.Example with {'a': int64 [1, 300]}, serialized.
  EXPECT_EQ(ExampleBuilder().int64("a", std::vector<std::int64_t>{1, 300}).serialize(),
            example("a", field(3, field(1, "\x01\xac\x02"))));
}

TEST(Example, KeepsEveryKindOfValue) {
  const std::vector<std::string> names = {"x", "", std::string("\0y", 2)};
  const std::vector<std::int64_t> numbers = {0, -1, 127, 128, INT64_MIN, INT64_MAX};
  const std::vector<float> floats = {0.0F, -1.5F, 3e38F};
  const std::string record = ExampleBuilder()
                                 .bytes("names", names)
                                 .int64("numbers", numbers)
                                 .floats("floats", floats)
                                 .bytes("one name", std::string(1000, 'n'))
                                 .int64("one number", 7)
                                 .floats("one float", 0.5F)
                                 .serialize();
  EXPECT_THAT(values<std::string_view>(record, "names"), ElementsAre("x", "", names[2]));
  EXPECT_EQ(values<std::int64_t>(record, "numbers"), numbers);
  EXPECT_EQ(values<float>(record, "floats"), floats);
  EXPECT_THAT(values<std::string_view>(record, "one name"), ElementsAre(std::string(1000, 'n')));
  EXPECT_THAT(values<std::int64_t>(record, "one number"), ElementsAre(7));
  EXPECT_THAT(values<float>(record, "one float"), ElementsAre(0.5F));
  EXPECT_EQ(features_of(record).size(), 6U);
}

TEST(Example, PointsIntoTheRecord) {
  const std::string record = ExampleBuilder().bytes("image", "pixels").serialize();
  EXPECT_EQ(values<std::string_view>(record, "image")[0].data(),
            record.data() + record.find("pixels"));
}

TEST(Example, MayBeEmpty) {
  EXPECT_THAT(features_of(""), IsEmpty());
  EXPECT_THAT(features_of(ExampleBuilder().serialize()), IsEmpty());
  const std::string record = ExampleBuilder().floats("none", std::span<const float>()).serialize();
  EXPECT_EQ(features_of(record).at("none").kind(), FeatureKind::FLOAT);
  EXPECT_EQ(features_of(record).at("none").size(), 0U);
  EXPECT_EQ(features_of(example("unset", "")).at("unset").kind(), FeatureKind::NONE);
}

TEST(Example, ReadsListsThatAreNotPacked) {
  const std::string numbers = example("n", field(3, "\x08\x05\x08\xac\x02"));
  EXPECT_THAT(values<std::int64_t>(numbers, "n"), ElementsAre(5, 300));
  const std::string floats =
      example("f", field(2, std::string("\x0d\0\0\x80\x3f\x0d\0\0\0\x40", 10)));
  EXPECT_THAT(values<float>(floats, "f"), ElementsAre(1.0F, 2.0F));
}

TEST(Example, JoinsListsOfOneKind) {
  const std::string record = example("n", field(3, field(1, "\1\2")) + field(3, "\x08\3"));
  EXPECT_THAT(values<std::int64_t>(record, "n"), ElementsAre(1, 2, 3));
}

TEST(Example, TakesTheLastOfTwoKinds) {
  const std::string record =
      example("n", field(3, field(1, "\1")) + field(1, field(1, "x")) + field(3, field(1, "\2")));
  EXPECT_THAT(values<std::int64_t>(record, "n"), ElementsAre(2));
  EXPECT_THAT(values<std::string_view>(record, "n"), IsEmpty());
}

TEST(Example, TakesTheLastOfTwoFeaturesWithOneName) {
  const std::string record = ExampleBuilder().int64("n", 1).serialize() +  // which merges
                             ExampleBuilder().int64("n", 2).serialize();
  EXPECT_THAT(values<std::int64_t>(record, "n"), ElementsAre(2));
}

TEST(Example, SkipsUnknownFields) {
  const std::string unknown =
      "\x28\x96\x01" + field(7, "bytes") + "\x45" + "abcd" + "\x49" + "abcdefgh";
  const std::string list = unknown + field(1, "\5");
  const std::string feature = field(3, list) + unknown;
  const std::string entry = unknown + field(1, "n") + field(2, feature);
  const std::string record = unknown + field(1, field(1, entry)) + unknown;
  EXPECT_THAT(values<std::int64_t>(record, "n"), ElementsAre(5));
}

TEST(Example, SaysWhereBytesAreMalformed) {
  EXPECT_FAILS(features_of("\x0a"), InvalidArgument, "a number is cut off at byte 1");
  EXPECT_FAILS(features_of("\x0a\x05xyz"), InvalidArgument,
               "a field is longer than its message at byte 2");
  EXPECT_FAILS(features_of(std::string("\x00\x05", 2)), InvalidArgument,
               "a field has a wrong number at byte 1");
  EXPECT_FAILS(features_of("\x0b"), InvalidArgument, "a field has a wrong type at byte 1");
  EXPECT_FAILS(features_of("\x08" + std::string(10, '\xff')), InvalidArgument,
               "a number has more than 10 bytes");
  EXPECT_FAILS(values<float>(example("f", field(2, field(1, "12345"))), "f"), InvalidArgument,
               "a list of floats is cut off at byte ");
  EXPECT_FAILS(values<std::int64_t>(example("n", field(3, field(1, "\xff"))), "n"), InvalidArgument,
               "a number is cut off at byte ");
}

TEST(Example, CutAnywhereIsMalformedOrShorter) {
  const std::string record =
      ExampleBuilder().bytes("image", "pixels").int64("label", 300).floats("w", 1.5F).serialize();
  for (std::size_t length = 1; length < record.size(); ++length) {
    const std::string cut = record.substr(0, length);
    EXPECT_FAILS(features_of(cut), InvalidArgument, "malformed");
  }
}

}  // namespace
}  // namespace cohort::io
