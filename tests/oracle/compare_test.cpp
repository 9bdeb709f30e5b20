// The harness itself: what counts as agreement with TensorFlow.

#include "tests/oracle/compare.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"

namespace cohort::oracle::compare_cases {
namespace {

bool agree(const Json& tensorflow, const Json& cohort, const Tolerance& tolerance = {}) {
  return !difference(tensorflow, cohort, tolerance);
}

Json scalar(double value) { return encode(at::scalar_tensor(value)); }
Json per_replica(double a, double b) {
  return encode(PerReplica<at::Tensor>({at::scalar_tensor(a), at::scalar_tensor(b)}));
}

Json python_error(const char* type, const char* message, bool accidental = false) {
  return {{"error", {{"type", type}, {"message", message}}}, {"accidental", accidental}};
}
Json cohort_error(const char* kind, const char* text) {
  return {{"error", {{"type", kind}, {"message", text}}}};
}

TEST(Agreement, OfSmallNumbersIsExactOfOthersTo1e6) {
  EXPECT_TRUE(agree(2.5, 2.5));
  EXPECT_FALSE(agree(2.5, 2.5000001));
  EXPECT_TRUE(agree(0.3333333, 0.33333334));
  EXPECT_FALSE(agree(0.333333, 0.333343));
  EXPECT_TRUE(agree(2.5, 2.500001, {.absolute = 1e-5}));
  EXPECT_FALSE(agree(2.5, 2.6, {.absolute = 1e-5}));
}

TEST(Agreement, OfTensorsIsOfDtypeShapeAndValue) {
  EXPECT_TRUE(agree(scalar(1), scalar(1)));
  EXPECT_FALSE(agree(scalar(1), scalar(2)));
  EXPECT_FALSE(agree(scalar(1), encode(at::scalar_tensor(1, at::kInt))));
  EXPECT_FALSE(agree(scalar(1), encode(at::ones({1}))));
  EXPECT_TRUE(agree(encode(at::full({}, NAN)), encode(at::full({}, NAN))));
}

TEST(Agreement, ATensorWhereTensorFlowHandsANumberThrough) {
  EXPECT_TRUE(agree(3.0, scalar(3)));
  EXPECT_FALSE(agree(4.0, scalar(3)));
  EXPECT_FALSE(agree(scalar(3), 3.0));
}

TEST(Agreement, ComponentsThatAreAllWhatTensorFlowUnwraps) {
  EXPECT_TRUE(agree(scalar(7), per_replica(7, 7)));
  EXPECT_FALSE(agree(scalar(7), per_replica(7, 8)));
  EXPECT_TRUE(agree(per_replica(7, 8), per_replica(7, 8)));
  EXPECT_FALSE(agree(per_replica(7, 7), scalar(7)));
}

TEST(Agreement, OfListsAndTuplesIsOfTheirItems) {
  const Json tuple = {{"kind", "tuple"}, {"items", {1, 2}}};
  EXPECT_TRUE(agree(tuple, {1, 2}));
  EXPECT_FALSE(agree(tuple, {1, 2, 3}));
  EXPECT_FALSE(agree({{"a", 1}}, {{"b", 1}}));
  EXPECT_FALSE(agree({{"a", 1}}, {{"a", 1}, {"b", 1}}));
}

TEST(Agreement, OfErrorsIsOfTheirKindAndTheQuotedWords) {
  const Json expected = python_error("RuntimeError", "Mixing different tf.distribute things");
  EXPECT_TRUE(agree(expected, cohort_error("RuntimeError", "[x] Mixing different strategies")));
  EXPECT_FALSE(agree(expected, cohort_error("ValueError", "[x] Mixing different strategies")));
  EXPECT_FALSE(agree(expected, cohort_error("RuntimeError", "[x] other words")));
  EXPECT_FALSE(agree(expected, 3));
  EXPECT_FALSE(agree(3, cohort_error("RuntimeError", "")));
}

TEST(Agreement, WhatPythonHappenedToRaiseIsAValueError) {
  EXPECT_TRUE(is_kind_of("AssertionError", "ValueError"));
  EXPECT_TRUE(is_kind_of("IndexError", "InvalidArgument"));
  EXPECT_FALSE(is_kind_of("AttributeError", "TypeError"));
  EXPECT_TRUE(is_kind_of("InvalidArgumentError", "InvalidArgument"));
  EXPECT_FALSE(is_kind_of("ValueError", "InvalidArgument"));
}

TEST(Agreement, AnAccidentAgreesWithAnyErrorOfCohort) {
  const Json accident = python_error("AttributeError", "no attribute", true);
  EXPECT_TRUE(agree(accident, cohort_error("TypeError", "")));
  EXPECT_FALSE(agree(accident, cohort_error(kForeignError, "")));
  EXPECT_FALSE(agree(accident, 1));
}

TEST(Attempt, CapturesWhatIsThrown) {
  EXPECT_EQ(attempt([] { throw KeyError("here", "gone"); }),
            cohort_error("KeyError", "[here] gone"));
  EXPECT_EQ(attempt([] { throw std::runtime_error("x"); })["error"]["type"], kForeignError);
  EXPECT_EQ(attempt([] { return 5; }), 5);
  EXPECT_EQ(attempt([] {}), nullptr);
}

TEST(Difference, NamesThePlace) {
  const auto text = difference({{"a", {1, 2}}}, {{"a", {1, 3}}});
  EXPECT_EQ(*text, "result.a[1]: expected 2, got 3");
}

}  // namespace
}  // namespace cohort::oracle::compare_cases
