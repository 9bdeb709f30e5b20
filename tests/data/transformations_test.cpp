// What each stage of a pipeline gives.

#include "tests/data/elements.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAreArray;

TEST(Range, CountsToTheStopInSteps) {
  EXPECT_THAT(elements_of(range(3)), ElementsAre("0", "1", "2"));
  EXPECT_THAT(elements_of(range(2, 9, 3)), ElementsAre("2", "5", "8"));
  EXPECT_THAT(elements_of(range(3, 0, -1)), ElementsAre("3", "2", "1"));
  EXPECT_THAT(elements_of(range(0)), ElementsAre());
  EXPECT_FAILS(range(0, 3, 0), ValueError, "step");
}

TEST(TensorSlices, AreTheRowsOfEveryLeaf) {
  const auto pairs = from_tensor_slices(
      std::pair(torch::tensor({1., 2.}), Strings(std::vector<std::string>{"a", "b"})));
  EXPECT_THAT(elements_of(pairs), ElementsAre("[]{1} a", "[]{2} b"));
  EXPECT_EQ(pairs.cardinality(), 2);
}

TEST(TensorSlices, OfAVectorAreItsElements) {
  const Dataset<bool> bools = from_tensor_slices(std::vector<bool>{true, false, true});
  EXPECT_THAT(elements_of(bools), ElementsAre("1", "0", "1"));
  EXPECT_THAT(elements_of(bools.batch(2)), ElementsAre("[2]{1 0}", "[1]{1}"));
  EXPECT_EQ(cat(bools.batch(2).element_spec()), "bool[?]");
  const Dataset<float> floats = from_tensor_slices(std::vector<float>{1.5, 2});
  EXPECT_THAT(elements_of(floats.shuffle(1).batch(2)), ElementsAre("[2]{1.5 2}"));
  EXPECT_THAT(elements_of(from_tensor_slices(std::vector<int>{}).batch(2)), ElementsAre());
}

TEST(TensorSlices, MustHaveAFirstDimensionOfOneLength) {
  EXPECT_FAILS(from_tensor_slices(torch::tensor(1.)), ValueError, "no dimensions");
  EXPECT_FAILS(from_tensor_slices(std::pair(torch::ones({2}), torch::ones({3}))), ValueError,
               "expected 2, got 3");
}

TEST(Tensors, AreOneElement) {
  EXPECT_THAT(elements_of(from_tensors(torch::ones({2}))), ElementsAre("[2]{1 1}"));
  EXPECT_THAT(elements_of(from_tensors(torch::ones({2})).repeat(3).batch(2)),
              ElementsAre("[2, 2]{1 1 1 1}", "[1, 2]{1 1}"));
}

auto counter(int stop) {
  return from_generator([stop] {
    return [i = 0, stop]() mutable { return i < stop ? std::optional(i++) : std::nullopt; };
  });
}

TEST(Generator, StartsAnewInEachPass) {
  const auto dataset = counter(3);
  EXPECT_THAT(elements_of(dataset), ElementsAre("0", "1", "2"));
  EXPECT_THAT(elements_of(dataset), ElementsAre("0", "1", "2"));
  EXPECT_EQ(dataset.cardinality(), kUnknownCardinality);
}

TEST(Map, CallsTheFunctionWithEachElement) {
  EXPECT_THAT(elements_of(range(3).map([](std::int64_t x) { return x * x; })),
              ElementsAre("0", "1", "4"));
}

TEST(Map, TakesTuplesApart) {
  const auto sums =
      zip(range(3), range(10, 13)).map([](std::int64_t a, std::int64_t b) { return a + b; });
  EXPECT_THAT(elements_of(sums), ElementsAre("10", "12", "14"));
}

TEST(Map, KeepsTheOrderOnAnyNumberOfThreads) {
  const auto slow_first = [](std::int64_t x) {
    if (x % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return x;
  };
  for (const int threads : {1, 2, 5, AUTOTUNE}) {
    EXPECT_EQ(elements_of(range(50).map(slow_first, {.parallel = threads})),
              elements_of(range(50)));
  }
}

TEST(Map, UnorderedGivesTheSameElements) {
  const auto dataset =
      range(50).map([](std::int64_t x) { return x; }, {.parallel = 4, .ordered = false});
  EXPECT_THAT(elements_of(dataset), UnorderedElementsAreArray(elements_of(range(50))));
}

TEST(Map, DrawsRandomNumbersByElementNotByThread) {
  const auto noisy = [](std::int64_t x, at::Generator generator) {
    return static_cast<double>(x) + at::rand({}, generator).item<double>();
  };
  const auto one = elements_of(range(20).map(noisy));
  EXPECT_EQ(elements_of(range(20).map(noisy, {.parallel = 3})), one);
  EXPECT_NE(one[0], one[1]);
}

TEST(Map, ReportsAnErrorInTheElementsPlaceAndGoesOn) {
  for (const int threads : {1, 3}) {
    auto iterator = range(5)
                        .map(
                            [](std::int64_t x) {
                              if (x == 2) throw ValueError("my map", "two");
                              return x;
                            },
                            {.parallel = threads})
                        .iterator();
    EXPECT_EQ(iterator.next(), 0);
    EXPECT_EQ(iterator.next(), 1);
    EXPECT_FAILS(iterator.next(), ValueError, "two");
    EXPECT_EQ(iterator.next(), 3);
  }
}

TEST(Map, StopsItsThreadsWhenThePassIsGivenUp) {
  std::atomic<int> running{0};
  {
    auto iterator = range(1000)
                        .map(
                            [&](std::int64_t x) {
                              ++running;
                              --running;
                              return x;
                            },
                            {.parallel = 4})
                        .iterator();
    iterator.next();
  }
  EXPECT_EQ(running, 0);
}

TEST(Filter, KeepsWhatThePredicateHoldsFor) {
  EXPECT_THAT(elements_of(range(6).filter([](std::int64_t x) { return x % 2; })),
              ElementsAre("1", "3", "5"));
}

TEST(FlatMap, PutsDatasetsOneAfterTheOther) {
  EXPECT_THAT(elements_of(range(1, 4).flat_map([](std::int64_t n) { return range(n); })),
              ElementsAre("0", "0", "1", "0", "1", "2"));
}

/// n, n, … n times n, as in TensorFlow's page of interleave.
auto repeated(std::int64_t n) { return range(n, n + 1).repeat(6); }

TEST(Interleave, TakesBlocksInTurn) {
  const auto dataset = range(1, 6).interleave(repeated, {.cycle_length = 2, .block_length = 4});
  const Texts expected{"1", "1", "1", "1", "2", "2", "2", "2", "1", "1", "2", "2", "3", "3", "3",
                       "3", "4", "4", "4", "4", "3", "3", "4", "4", "5", "5", "5", "5", "5", "5"};
  EXPECT_EQ(elements_of(dataset), expected);
  EXPECT_EQ(elements_of(range(1, 6).interleave(
                repeated, {.cycle_length = 2, .block_length = 4, .parallel = true})),
            expected);
}

TEST(Batch, StacksLeavesAndKeepsTheRest) {
  EXPECT_THAT(elements_of(range(5).batch(2)), ElementsAre("[2]{0 1}", "[2]{2 3}", "[1]{4}"));
  EXPECT_THAT(elements_of(range(5).batch(2, {.drop_remainder = true})),
              ElementsAre("[2]{0 1}", "[2]{2 3}"));
  EXPECT_THAT(elements_of(from_tensor_slices(Texts{"a", "b", "c"}).batch(2)),
              ElementsAre("[2]{a b}", "[1]{c}"));
  EXPECT_FAILS(range(5).batch(0), InvalidArgument, "positive, got 0");
}

struct Point {
  at::Tensor x;
  Strings name;
};

TEST(Batch, KeepsTheTypeOfAStruct) {
  const auto points = range(3).map([](std::int64_t i) {
    return Point{torch::full({2}, i), Strings::scalar(cat("p", i))};
  });
  const Dataset<Point> batches = points.batch(2);
  EXPECT_THAT(elements_of(batches),
              ElementsAre("[2, 2]{0 0 1 1} [2]{p0 p1}", "[1, 2]{2 2} [1]{p2}"));
  EXPECT_THAT(elements_of(batches.unbatch()),
              ElementsAre("[2]{0 0} []{p0}", "[2]{1 1} []{p1}", "[2]{2 2} []{p2}"));
}

const auto is_even = [](std::int64_t x) { return x % 2 == 0; };

TEST(Batch, OfBoolsIsATensorOfThem) {
  const Dataset<bool> even = range(6).map(is_even);
  EXPECT_THAT(elements_of(even.batch(3)), ElementsAre("[3]{1 0 1}", "[3]{0 1 0}"));
  EXPECT_EQ(even.batch(3).iterator().next()->scalar_type(), at::kBool);
  EXPECT_THAT(elements_of(even.padded_batch(4)), ElementsAre("[4]{1 0 1 0}", "[2]{1 0}"));
  EXPECT_THAT(elements_of(even.bucket_by_sequence_length(
                  [](bool x) { return x ? 1 : 9; }, {.boundaries = {5}, .batch_sizes = {3, 2}})),
              ElementsAre("[2]{0 0}", "[3]{1 1 1}", "[1]{0}"));
  EXPECT_THAT(elements_of(even.shuffle(1).cache().batch(2).unbatch()),
              ElementsAre("[]{1}", "[]{0}", "[]{1}", "[]{0}", "[]{1}", "[]{0}"));
  EXPECT_THAT(elements_of(zip(range(3), even).batch(3)), ElementsAre("[3]{0 1 2} [3]{1 0 1}"));
  EXPECT_THAT(elements_of(even.batch(2, [](const std::vector<bool>& both) { return both[0]; })),
              ElementsAre("1", "1", "1"));
}

TEST(Batch, OfWindowsOfBoolsHasATensorForEachPlace) {
  const auto windows = range(6).map(is_even).window({.size = 3});
  EXPECT_THAT(elements_of(windows.batch(2)), ElementsAre("[2]{1 0} [2]{0 1} [2]{1 0}"));
  const auto uneven = range(5).map(is_even).window({.size = 3});
  EXPECT_FAILS(elements_of(uneven.batch(2)), ValueError, "expected 3, got 2");
}

TEST(Batch, OfDifferentShapesNamesTheElementAndTheWayOut) {
  const auto growing = range(3).map([](std::int64_t n) { return torch::ones({n}); });
  EXPECT_FAILS(elements_of(growing.batch(3)), InvalidArgument, "element 1");
  EXPECT_FAILS(elements_of(growing.batch(3)), InvalidArgument, "padded_batch");
}

TEST(Batch, CanBeMadeByAFunction) {
  const auto sums = range(5).batch(2, [](std::vector<std::int64_t> elements) {
    std::int64_t sum = 0;
    for (const std::int64_t element : elements) sum += element;
    return sum;
  });
  EXPECT_THAT(elements_of(sums), ElementsAre("1", "5", "4"));
}

TEST(PaddedBatch, PadsToTheLongestOrToAShape) {
  const auto growing = range(1, 4).map([](std::int64_t n) { return torch::full({n}, n); });
  EXPECT_THAT(elements_of(growing.padded_batch(2)),
              ElementsAre("[2, 2]{1 0 2 2}", "[1, 3]{3 3 3}"));
  EXPECT_THAT(elements_of(growing.padded_batch(3, {.padding_value = -1, .padded_shapes = {{4}}})),
              ElementsAre("[3, 4]{1 -1 -1 -1 2 2 -1 -1 3 3 3 -1}"));
  EXPECT_FAILS(elements_of(growing.padded_batch(3, {.padded_shapes = {{2}}})), InvalidArgument,
               "longer than its padded shape");
}

TEST(Bucket, PutsElementsOfLikeLengthTogether) {
  const auto lengths = from_tensor_slices(torch::tensor({1, 5, 2, 6, 1, 9}));
  const auto words =
      lengths.map([](const at::Tensor& n) { return torch::ones({n.item<std::int64_t>()}); });
  const auto buckets =
      words.bucket_by_sequence_length([](const at::Tensor& word) { return word.size(0); },
                                      {.boundaries = {3, 7}, .batch_sizes = {2, 2, 2}});
  EXPECT_THAT(elements_of(buckets.map([](const at::Tensor& batch) { return cat(batch.sizes()); })),
              ElementsAre("[2, 2]", "[2, 6]", "[1, 1]", "[1, 9]"));
}

TEST(Unbatch, GivesTheRows) {
  EXPECT_THAT(elements_of(range(4).batch(3).unbatch()),
              ElementsAre("[]{0}", "[]{1}", "[]{2}", "[]{3}"));
}

TEST(Window, OverlapsWhereTheShiftIsSmaller) {
  EXPECT_THAT(elements_of(range(5).window({.size = 2})), ElementsAre("0 1", "2 3", "4"));
  EXPECT_THAT(elements_of(range(5).window({.size = 3, .shift = 1, .drop_remainder = true})),
              ElementsAre("0 1 2", "1 2 3", "2 3 4"));
  EXPECT_THAT(elements_of(range(7).window({.size = 2, .shift = 3, .stride = 2})),
              ElementsAre("0 2", "3 5", "6"));
  EXPECT_EQ(range(7).window({.size = 2, .shift = 3, .stride = 2}).cardinality(), 3);
}

TEST(Shuffle, GivesEveryElementOnceInAnotherOrderEachPass) {
  const auto dataset = range(100).shuffle(100, {.seed = 1});
  const Texts first = elements_of(dataset), second = elements_of(dataset);
  EXPECT_NE(first, elements_of(range(100)));
  EXPECT_NE(first, second);
  EXPECT_THAT(first, UnorderedElementsAreArray(second));
}

TEST(Shuffle, RepeatsItsOrderWhereToldTo) {
  const auto dataset = range(100).shuffle(100, {.seed = 1, .reshuffle_each_iteration = false});
  EXPECT_EQ(elements_of(dataset), elements_of(dataset));
}

TEST(Shuffle, IsTheSameForRowsByNumberAndForAStream) {
  const auto stream = range(50).filter([](std::int64_t) { return true; });
  EXPECT_EQ(elements_of(range(50).shuffle(20, {.seed = 3})),
            elements_of(stream.shuffle(20, {.seed = 3})));
}

TEST(Shuffle, WithoutASeedFollowsTheProgramsSeed) {
  const auto order = [](std::uint64_t seed) {
    set_seed(seed);
    return elements_of(range(50).shuffle(50));
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(Repeat, ReshufflesEachTime) {
  const Texts twice = elements_of(range(20).shuffle(20, {.seed = 1}).repeat(2));
  ASSERT_EQ(twice.size(), 40u);
  EXPECT_NE(Texts(twice.begin(), twice.begin() + 20), Texts(twice.begin() + 20, twice.end()));
}

TEST(Repeat, OfNothingEnds) { EXPECT_THAT(elements_of(counter(0).repeat()), ElementsAre()); }

TEST(TakeSkipShard, SliceTheElements) {
  EXPECT_THAT(elements_of(range(5).take(2)), ElementsAre("0", "1"));
  EXPECT_THAT(elements_of(counter(5).take(2)), ElementsAre("0", "1"));
  EXPECT_EQ(elements_of(range(5).take(-1)), elements_of(range(5)));
  EXPECT_THAT(elements_of(range(5).skip(3)), ElementsAre("3", "4"));
  EXPECT_THAT(elements_of(counter(5).skip(3)), ElementsAre("3", "4"));
  EXPECT_THAT(elements_of(range(5).shard(2, 1)), ElementsAre("1", "3"));
  EXPECT_THAT(elements_of(counter(5).shard(3, 1)), ElementsAre("1", "4"));
  EXPECT_FAILS(range(5).shard(2, 2), InvalidArgument, "expected 0 to 1, got 2");
}

TEST(Concatenate, GivesOneAfterTheOther) {
  EXPECT_THAT(elements_of(range(2).concatenate(range(5, 7))), ElementsAre("0", "1", "5", "6"));
}

TEST(Zip, EndsWithTheShortest) {
  EXPECT_THAT(elements_of(zip(range(3), range(10, 20), range(5, 7))),
              ElementsAre("0 10 5", "1 11 6"));
}

TEST(Enumerate, Counts) {
  EXPECT_THAT(elements_of(range(7, 9).enumerate(5)), ElementsAre("5 7", "6 8"));
}

TEST(Scan, CarriesAState) {
  const auto sums = range(5).scan(std::int64_t{0}, [](std::int64_t sum, std::int64_t x) {
    return std::pair(sum + x, sum + x);
  });
  EXPECT_THAT(elements_of(sums), ElementsAre("0", "1", "3", "6", "10"));
}

TEST(SampleFromDatasets, DrawsByWeightUntilAllAreGone) {
  const auto zeros = range(1).repeat(1000), ones = range(1, 2).repeat(1000);
  const auto mixed =
      sample_from_datasets<std::int64_t>({zeros, ones}, {.weights = {3, 1}, .seed = 1});
  const Texts all = elements_of(mixed);
  EXPECT_EQ(all.size(), 2000u);
  EXPECT_NEAR(std::count(all.begin(), all.begin() + 1000, "0"), 750, 50);
  EXPECT_THAT(elements_of(sample_from_datasets<std::int64_t>({range(9)}, {.weights = {1}})),
              UnorderedElementsAreArray(elements_of(range(9))));
}

TEST(Cache, MakesElementsOnce) {
  int calls = 0;
  const auto dataset = range(3)
                           .map([&](std::int64_t x) {
                             ++calls;
                             return x;
                           })
                           .cache();
  EXPECT_EQ(elements_of(dataset), elements_of(dataset));
  EXPECT_EQ(calls, 3);
}

TEST(Cache, KeepsNothingOfAPassWithAnError) {
  int calls = 0;
  const auto dataset = range(4)
                           .map([&](std::int64_t x) {
                             if (++calls == 2) throw ValueError("my map", "once");
                             return x;
                           })
                           .cache();
  EXPECT_THAT(elements_of(dataset.ignore_errors()), ElementsAre("0", "2", "3"));
  EXPECT_THAT(elements_of(dataset), ElementsAre("0", "1", "2", "3"));
}

TEST(Prefetch, GivesTheSameElements) {
  for (const std::int64_t elements : {0, 1, 7, AUTOTUNE}) {
    EXPECT_EQ(elements_of(range(30).prefetch(elements)), elements_of(range(30)));
  }
}

TEST(IgnoreErrors, CountsWhatItLeavesOut) {
  ErrorCount count;
  const auto dataset = range(6)
                           .map([](std::int64_t x) {
                             if (x % 3 == 1) throw ValueError("my map", "one");
                             return x;
                           })
                           .ignore_errors({.count = count});
  EXPECT_THAT(elements_of(dataset), ElementsAre("0", "2", "3", "5"));
  EXPECT_EQ(count.get(), 2);
}

TEST(AssertCardinality, HoldsTheDatasetToItsWord) {
  EXPECT_EQ(counter(3).assert_cardinality(3).cardinality(), 3);
  EXPECT_THAT(elements_of(counter(3).assert_cardinality(3)), ElementsAre("0", "1", "2"));
  EXPECT_FAILS(elements_of(counter(3).assert_cardinality(4)), InvalidArgument, "expected 4, got 3");
  EXPECT_FAILS(elements_of(counter(3).assert_cardinality(2)), InvalidArgument,
               "expected 2, got more than 2");
  EXPECT_THAT(elements_of(counter(3).assert_cardinality(4).ignore_errors()),
              ElementsAre("0", "1", "2"));
}

TEST(Cardinality, FollowsTheStages) {
  EXPECT_EQ(range(10).cardinality(), 10);
  EXPECT_EQ(range(10).batch(3).cardinality(), 4);
  EXPECT_EQ(range(10).batch(3, {.drop_remainder = true}).cardinality(), 3);
  EXPECT_EQ(range(10).repeat().cardinality(), kInfinite);
  EXPECT_EQ(range(10).repeat().take(7).cardinality(), 7);
  EXPECT_EQ(range(10).skip(20).cardinality(), 0);
  EXPECT_EQ(range(10).shard(3, 0).cardinality(), 4);
  EXPECT_EQ(range(10).filter([](std::int64_t) { return true; }).cardinality(), kUnknownCardinality);
  EXPECT_EQ(range(10).concatenate(range(5)).repeat(2).cardinality(), 30);
  EXPECT_EQ(zip(range(10), range(5)).cardinality(), 5);
}

TEST(ElementSpec, PrintsDtypesAndShapes) {
  const auto images = from_tensor_slices(std::pair(torch::zeros({9, 28, 28}), torch::arange(9)));
  EXPECT_EQ(cat(images.element_spec()), "(float32[28, 28], int64[])");
  EXPECT_EQ(cat(images.batch(4).element_spec()), "(float32[?, 28, 28], int64[?])");
  EXPECT_EQ(cat(images.batch(3, {.drop_remainder = true}).element_spec()),
            "(float32[3, 28, 28], int64[3])");
  EXPECT_EQ(cat(range(3).enumerate().element_spec()), "(int64[], int64[])");
}

TEST(ElementSpec, OfATemporaryGivesItsLeavesByValue) {
  const auto rows = from_tensor_slices(torch::zeros({5, 28}));
  static_assert(!std::is_reference_v<decltype(rows.element_spec().leaves())>);
  for (const LeafSpec& leaf : rows.element_spec().leaves()) EXPECT_EQ(leaf.dtype, "float32");
}

TEST(ElementSpec, OfAMapIsLearntOrGiven) {
  const auto halves = [](std::int64_t x) { return torch::full({2}, x / 2.); };
  const auto dataset = range(3).map(halves);
  EXPECT_EQ(cat(dataset.element_spec()), "unknown");
  dataset.iterator().next();
  EXPECT_EQ(cat(dataset.element_spec()), "float32[2]");
  const auto given = range(3).map(halves, {.spec = spec_of(torch::zeros({2}))});
  EXPECT_EQ(cat(given.element_spec()), "float32[2]");
}

TEST(ARangeBasedLoop, IsAPass) {
  std::int64_t sum = 0;
  for (const std::int64_t x : range(5)) sum += x;
  EXPECT_EQ(sum, 10);
}

}  // namespace
}  // namespace cohort::data
