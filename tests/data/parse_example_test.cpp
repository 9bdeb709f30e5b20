#include "cohort/data/parse_example.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/io/example.h"
#include "cohort/io/tfrecord.h"
#include "tests/base/failing.h"
#include "tests/io/expected_files.h"

namespace cohort::data {
namespace {

using io::ExampleBuilder;
using testing::ElementsAre;

at::Tensor longs(const std::vector<std::int64_t>& values) { return at::tensor(values, at::kLong); }

/// Two records with an image of four bytes and a label each.
Strings two_images() {
  return Strings({ExampleBuilder().bytes("image", "abcd").int64("label", 3).serialize(),
                  ExampleBuilder().bytes("image", "efgh").int64("label", 5).serialize()});
}

TEST(ParseExample, TakesOneRecordApart) {
  const std::string bytes = ExampleBuilder()
                                .bytes("image", "pixels")
                                .int64("label", 7)
                                .floats("box", std::vector<float>{1, 2, 3, 4})
                                .int64("unwanted", 0)
                                .serialize();
  const auto parsed =
      parse_example(bytes, {.features = {{"image", Feature::bytes()},
                                         {"label", Feature::int64()},
                                         {"box", Feature::float32().shape({2, 2})}}});
  EXPECT_EQ(parsed.string("image").str(), "pixels");
  EXPECT_TRUE(parsed.tensor("label").equal(at::scalar_tensor(7, at::kLong)));
  EXPECT_TRUE(parsed.tensor("box").equal(at::tensor({1.0F, 2.0F, 3.0F, 4.0F}).view({2, 2})));
  EXPECT_EQ(parsed.tensors.size() + parsed.strings.size(), 3U);
}

TEST(ParseExample, TakesABatchApartAtOnce) {
  const Strings records = two_images();
  const auto parsed = parse_example(
      records, {.features = {{"image", Feature::bytes()}, {"label", Feature::int64()}}});
  EXPECT_THAT(parsed.string("image"), ElementsAre("abcd", "efgh"));
  EXPECT_TRUE(parsed.tensor("label").equal(longs({3, 5})));
}

TEST(ParseExample, GivesOfATemporaryWhatTheCallerKeeps) {
  const auto parsed = [] {
    return parse_example(two_images(), {.features = {{"image", Feature::bytes()},
                                                     {"label", Feature::int64().variable()}}});
  };
  static_assert(std::is_same_v<decltype(parsed().tensor("")), at::Tensor>);
  static_assert(std::is_same_v<decltype(parsed().length("")), at::Tensor>);
  static_assert(std::is_same_v<decltype(parsed().string("")), Strings>);
  const at::Tensor& labels = parsed().tensor("label");
  EXPECT_TRUE(labels.equal(longs({3, 5}).unsqueeze(1)));
  const at::Tensor& lengths = parsed().length("label");
  EXPECT_TRUE(lengths.equal(longs({1, 1})));
  std::string all;
  for (const std::string_view image : parsed().string("image")) all += image;
  EXPECT_EQ(all, "abcdefgh");
}

TEST(Feature, GivesOfATemporaryWhatTheCallerKeeps) {
  static_assert(std::is_same_v<decltype(Feature::bytes().variable()), Feature>);
  static_assert(std::is_same_v<decltype(Feature::bytes().shape({1})), Feature>);
  static_assert(std::is_same_v<decltype(Feature::bytes().default_value("")), Feature>);
  const Feature& made = Feature::float32().shape({3, 2}).default_value(4);
  EXPECT_THAT(made.sizes(), ElementsAre(3, 2));
  const Feature& variable = Feature::bytes().variable();
  EXPECT_TRUE(variable.is_variable());
  static_assert(!std::is_reference_v<decltype(Feature::bytes().sizes())>);
  static_assert(!std::is_reference_v<decltype(Feature::bytes().string())>);
  static_assert(!std::is_reference_v<decltype(Feature::bytes().number())>);
  const auto& sizes = Feature::raw(at::kByte, {28, 28}).sizes();
  EXPECT_THAT(sizes, ElementsAre(28, 28));
  const auto& text = Feature::bytes().default_value("of a temporary feature").string();
  EXPECT_EQ(text, "of a temporary feature");
  const auto& number = Feature::int64().default_value(7).number();
  EXPECT_EQ(number->toLong(), 7);
}

TEST(ParseExample, LeavesStringsWhereTheyLie) {
  const Strings records = two_images();
  const auto parsed = parse_example(records, {.features = {{"image", Feature::bytes()}}});
  EXPECT_EQ(parsed.string("image")[1].data(), records[1].data() + records[1].find("efgh"));
}

TEST(ParseExample, TakesAStringsWithoutDimensionsForOneRecord) {
  const auto parsed =
      parse_example(two_images().select(1), {.features = {{"label", Feature::int64()}}});
  EXPECT_TRUE(parsed.tensor("label").equal(at::scalar_tensor(5, at::kLong)));
  EXPECT_FAILS(parse_example(two_images().reshape({1, 2}), {}), InvalidArgument, "sizes [1, 2]");
}

TEST(ParseExample, OfNoRecordsHasNoRows) {
  const auto parsed = parse_example(Strings(), {.features = {{"a", Feature::float32().shape({3})},
                                                             {"b", Feature::bytes()},
                                                             {"c", Feature::int64().variable()}}});
  EXPECT_EQ(parsed.tensor("a").sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(parsed.string("b").numel(), 0);
  EXPECT_EQ(parsed.tensor("c").sizes(), (std::vector<int64_t>{0, 0}));
}

TEST(RawFeature, IsTheMemoryOfATensor) {
  const auto parsed =
      parse_example(two_images(), {.features = {{"image", Feature::raw(at::kByte, {2, 2})}}});
  EXPECT_TRUE(parsed.tensor("image").equal(
      at::tensor({'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}, at::kByte).view({2, 2, 2})));
  const auto shorts =
      parse_example(two_images(), {.features = {{"image", Feature::raw(at::kShort, {2})}}});
  EXPECT_TRUE(shorts.tensor("image")[0].equal(at::tensor({0x6261, 0x6463}, at::kShort)));
}

TEST(RawFeature, TakesAnyByteButZeroForTrue) {
  const std::string record = ExampleBuilder().bytes("mask", std::string("\0\1\xff", 3)).serialize();
  EXPECT_TRUE(parse_example(record, {.features = {{"mask", Feature::raw(at::kBool, {3})}}})
                  .tensor("mask")
                  .equal(at::tensor({0, 1, 1}, at::kByte).to(at::kBool)));
}

TEST(RawFeature, SaysHowManyBytesItWants) {
  EXPECT_FAILS(
      parse_example(two_images(), {.features = {{"image", Feature::raw(at::kFloat, {28})}}}),
      InvalidArgument,
      "record 0, feature 'image': expected 112 bytes, for sizes [28] of Float, got 4");
  const std::string two =
      ExampleBuilder().bytes("image", std::vector<std::string>{"a", "b"}).serialize();
  EXPECT_FAILS(parse_example(two, {.features = {{"image", Feature::raw(at::kByte, {1})}}}),
               InvalidArgument, "expected 1 value, got 2");
}

TEST(VariableFeature, IsFilledUpToTheLongestRow) {
  const Strings records({ExampleBuilder().int64("n", std::vector<int64_t>{1, 2, 3}).serialize(),
                         ExampleBuilder().serialize(), ExampleBuilder().int64("n", 4).serialize()});
  const auto parsed =
      parse_example(records, {.features = {{"n", Feature::int64().variable().default_value(-1)}}});
  EXPECT_TRUE(parsed.tensor("n").equal(longs({1, 2, 3, -1, -1, -1, 4, -1, -1}).view({3, 3})));
  EXPECT_TRUE(parsed.length("n").equal(longs({3, 0, 1})));
}

TEST(VariableFeature, MayBeStrings) {
  const std::vector<std::string> words = {"a", "bc"};
  const Strings records({ExampleBuilder().bytes("words", words).serialize(),
                         ExampleBuilder().bytes("words", "d").serialize()});
  const auto parsed =
      parse_example(records, {.features = {{"words", Feature::bytes().variable()}}});
  EXPECT_EQ(parsed.string("words"), Strings({"a", "bc", "d", ""}).reshape({2, 2}));
  EXPECT_TRUE(parsed.length("words").equal(longs({2, 1})));
  const auto filled = parse_example(
      records, {.features = {{"words", Feature::bytes().variable().default_value("-")}}});
  EXPECT_EQ(filled.string("words"), Strings({"a", "bc", "d", "-"}).reshape({2, 2}));
}

TEST(VariableFeature, OfOneRecordHasOneDimension) {
  const std::string record =
      ExampleBuilder().floats("w", std::vector<float>{0.5F, 1.5F}).serialize();
  const auto parsed = parse_example(record, {.features = {{"w", Feature::float32().variable()},
                                                          {"none", Feature::bytes().variable()}}});
  EXPECT_TRUE(parsed.tensor("w").equal(at::tensor({0.5F, 1.5F})));
  EXPECT_EQ(parsed.length("w").item<int>(), 2);
  EXPECT_EQ(parsed.string("none").sizes(), (std::vector<int64_t>{0}));
}

TEST(DefaultValue, StandsForWhatIsMissing) {
  const Strings records({ExampleBuilder().serialize(), ExampleBuilder()
                                                           .int64("n", 1)
                                                           .floats("f", std::vector<float>{2, 3})
                                                           .bytes("s", "x")
                                                           .bytes("raw", "ab")
                                                           .serialize()});
  const auto parsed = parse_example(
      records, {.features = {{"n", Feature::int64().default_value(9)},
                             {"f", Feature::float32().shape({2}).default_value(0.5)},
                             {"s", Feature::bytes().default_value("none")},
                             {"raw", Feature::raw(at::kByte, {2}).default_value(7)}}});
  EXPECT_TRUE(parsed.tensor("n").equal(longs({9, 1})));
  EXPECT_TRUE(parsed.tensor("f").equal(at::tensor({0.5F, 0.5F, 2.0F, 3.0F}).view({2, 2})));
  EXPECT_THAT(parsed.string("s"), ElementsAre("none", "x"));
  EXPECT_TRUE(parsed.tensor("raw").equal(at::tensor({7, 7, 'a', 'b'}, at::kByte).view({2, 2})));
}

TEST(DefaultValue, MustBeOfTheFeaturesKind) {
  EXPECT_FAILS(Feature::int64().default_value("x"), ValueError, "expected a number");
  EXPECT_FAILS(Feature::bytes().default_value(3), ValueError,
               "expected a string, got the number 3");
}

TEST(Feature, HasOneShape) {
  EXPECT_FAILS(Feature::int64().shape({-1}), ValueError, "expected sizes of an array, got [-1]");
  EXPECT_FAILS(Feature::int64().shape({1LL << 40, 1LL << 40}), ValueError, "expected sizes");
  EXPECT_FAILS(Feature::int64().variable().shape({2}), ValueError, "variable");
  EXPECT_FAILS(Feature::int64().shape({2}).variable(), ValueError, "a shape already");
  EXPECT_FAILS(Feature::raw(at::kByte, {2}).shape({2}), ValueError, "raw");
  EXPECT_FAILS(Feature::raw(at::kByte, {2}).variable(), ValueError, "a shape already");
}

TEST(ParseExample, NamesWhatIsMissing) {
  const Strings records(
      {ExampleBuilder().int64("n", 1).serialize(), ExampleBuilder().int64("m", 1).serialize()});
  EXPECT_FAILS(parse_example(records, {.features = {{"n", Feature::int64()}}}), InvalidArgument,
               "record 1, feature 'n': expected int64, got none");
}

TEST(ParseExample, NamesAnotherKindOrNumberOfValues) {
  EXPECT_FAILS(parse_example(two_images(), {.features = {{"label", Feature::float32()}}}),
               InvalidArgument, "record 0, feature 'label': expected float, got int64");
  EXPECT_FAILS(parse_example(two_images(), {.features = {{"label", Feature::int64().shape({2})}}}),
               InvalidArgument,
               "record 0, feature 'label': expected 2 values, for sizes [2], got 1");
}

TEST(ParseExample, NamesAMalformedRecord) {
  const Strings records({std::string(two_images()[0]), "no example"});
  EXPECT_FAILS(parse_example(records, {.features = {{"label", Feature::int64()}}}), InvalidArgument,
               "(parsing record 1 of 2)");
}

TEST(ParseExample, TakesTheLastOfTwoFeaturesWithOneName) {
  const std::string twice = ExampleBuilder().int64("n", std::vector<int64_t>{1, 2}).serialize() +
                            ExampleBuilder().int64("n", 3).serialize();
  EXPECT_TRUE(parse_example(twice, {.features = {{"n", Feature::int64().variable()}}})
                  .tensor("n")
                  .equal(longs({3})));
}

TEST(ParseExample, FindsFeaturesInAnyOrder) {
  const std::string a = ExampleBuilder().int64("a", 1).serialize();
  const std::string b = ExampleBuilder().int64("b", 2).serialize();
  const std::string c = ExampleBuilder().int64("c", 3).serialize();
  const auto parsed =
      parse_example(Strings({a + b + c, c + a + b, b + a}),
                    {.features = {{"a", Feature::int64()}, {"b", Feature::int64()}}});
  EXPECT_TRUE(parsed.tensor("a").equal(longs({1, 1, 1})));
  EXPECT_TRUE(parsed.tensor("b").equal(longs({2, 2, 2})));
}

TEST(ParseExample, AgreesWithTensorFlow) {
  std::vector<std::string> records;
  io::TFRecordReader reader(input_path("examples.tfrecord"));
  for (std::string_view record; reader.next(record);) records.emplace_back(record);
  const auto parsed =
      parse_example(Strings(records), {.features = {{"image", Feature::bytes()},
                                                    {"label", Feature::int64()},
                                                    {"weights", Feature::float32().variable()},
                                                    {"words", Feature::bytes().variable()}}});
  const auto& expected = expected_content().at("examples.tfrecord");
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto row = static_cast<std::size_t>(i);
    EXPECT_EQ(to_hex(parsed.string("image")[i]), expected.at("image")[row]);
    EXPECT_EQ(parsed.tensor("label")[i].item<int64_t>(), expected.at("label")[row]);
    for (std::int64_t j = 0; j < 3; ++j) {
      const auto column = static_cast<std::size_t>(j);
      EXPECT_EQ(parsed.tensor("weights")[i][j].item<float>(),
                expected.at("weights")[row][column].get<float>());
      EXPECT_EQ(to_hex(parsed.string("words").select(i)[j]), expected.at("words")[row][column]);
    }
  }
}

TEST(ParsedExample, SaysWhatThereIs) {
  const auto parsed = parse_example(
      two_images(), {.features = {{"image", Feature::bytes()}, {"label", Feature::int64()}}});
  EXPECT_FAILS(parsed.tensor("labels"), KeyError, "there is no tensor 'labels', but label");
  EXPECT_FAILS(parsed.string("label"), KeyError, "there is no string 'label', but image");
  EXPECT_FAILS(parsed.length("label"), KeyError, "there is no length 'label', but none");
}

}  // namespace
}  // namespace cohort::data
