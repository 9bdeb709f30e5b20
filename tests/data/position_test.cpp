// A pass can be stopped behind any element and go on elsewhere, with any stage in the pipeline.

#include "tests/data/elements.h"

namespace cohort::data {
namespace {

auto twelve() {
  return range(12).filter([](std::int64_t) { return true; });  // a stream, not rows by number
}
auto generated() {
  return from_generator(
      [] { return [i = 0]() mutable { return i < 9 ? std::optional(i++) : std::nullopt; }; });
}
const auto doubled = [](std::int64_t x) { return 2 * x; };
const auto noisy = [](std::int64_t x, at::Generator generator) {
  return static_cast<double>(x) + at::rand({}, generator).item<double>();
};
const auto up_to = [](std::int64_t n) { return range(n).shuffle(3); };

TEST(APosition, OfASource) {
  EXPECT_RESUMES(range(7));
  EXPECT_RESUMES(from_tensor_slices(torch::arange(5)));
  EXPECT_RESUMES(generated());
  EXPECT_RESUMES(from_tensor_slices(Texts{"a", "b", "c"}));
}

TEST(APosition, OfAStageThatSlices) {
  EXPECT_RESUMES(range(9).take(5));
  EXPECT_RESUMES(twelve().take(5));
  EXPECT_RESUMES(range(9).skip(3));
  EXPECT_RESUMES(twelve().skip(3));
  EXPECT_RESUMES(range(9).shard(3, 1));
  EXPECT_RESUMES(twelve().shard(3, 1));
  EXPECT_RESUMES(twelve().assert_cardinality(12));
}

TEST(APosition, OfAShuffle) {
  EXPECT_RESUMES(range(12).shuffle(5));
  EXPECT_RESUMES(twelve().shuffle(5));
  EXPECT_RESUMES(twelve().shuffle(100));
  EXPECT_RESUMES(twelve().shuffle(4).shuffle(3));
  EXPECT_RESUMES(generated().shuffle(4, {.seed = 1, .reshuffle_each_iteration = false}));
}

TEST(APosition, OfAShuffleThatMetAnErrorIsStillItsBlock) {
  const auto broken = twelve().map([](std::int64_t x) {
    if (x == 2) throw ValueError("my map", "two");
    return x;
  });
  const auto dataset = broken.shuffle(5, {.seed = 1});
  auto iterator = dataset.iterator();
  EXPECT_FAILS(iterator.next(), ValueError, "two");
  auto resumed = dataset.iterator();
  resumed.restore(iterator.position());
  EXPECT_EQ(resumed.position(), iterator.position());
  const Texts rest = rest_of(iterator);
  EXPECT_EQ(rest.size(), 11u);
  EXPECT_EQ(rest_of(resumed), rest);
}

TEST(APosition, OfARepeat) {
  EXPECT_RESUMES(range(3).repeat(3));
  EXPECT_RESUMES(twelve().shuffle(5).repeat(2));
  EXPECT_RESUMES(range(5).shuffle(5).repeat().take(17));
  EXPECT_RESUMES(range(5).repeat(2).shuffle(4));
}

TEST(APosition, OfAMap) {
  EXPECT_RESUMES(twelve().map(doubled));
  EXPECT_RESUMES(twelve().map(doubled, {.parallel = 3}));
  EXPECT_RESUMES(twelve().map(noisy));
  EXPECT_RESUMES(twelve().map(noisy, {.parallel = 3}));
  EXPECT_RESUMES(twelve().shuffle(5).map(doubled, {.parallel = 2}).shuffle(3));
}

TEST(APosition, OfAnUnorderedMapIsAnError) {
  auto iterator = range(9).map(doubled, {.parallel = 2, .ordered = false}).prefetch(2).iterator();
  iterator.next();
  EXPECT_FAILS(iterator.position(), ValueError, "{.ordered = true}");
}

TEST(APosition, ThatNobodyAsksForIsNoErrorBehindAnUnorderedMap) {
  const auto unordered = range(12).map(doubled, {.parallel = 2, .ordered = false});
  const auto count = [](const auto& dataset) { return elements_of(dataset).size(); };
  EXPECT_EQ(count(unordered.shuffle(5)), 12u);
  EXPECT_EQ(count(unordered.batch(4).unbatch()), 12u);
  EXPECT_EQ(count(unordered.flat_map([](std::int64_t) { return range(2); })), 24u);
  EXPECT_EQ(count(unordered.interleave([](std::int64_t) { return range(2); })), 24u);
  EXPECT_EQ(count(range(2).interleave([&](std::int64_t) { return unordered; },
                                      {.cycle_length = 2, .parallel = true})),
            24u);
  EXPECT_EQ(count(unordered.window({.size = 5})), 3u);
  EXPECT_EQ(count(unordered.map([](std::int64_t x) { return torch::ones({x % 3}); })
                      .bucket_by_sequence_length([](const at::Tensor& x) { return x.size(0); },
                                                 {.boundaries = {9}, .batch_sizes = {4, 4}})),
            3u);
  auto shuffled = unordered.shuffle(5).prefetch(2).iterator();
  shuffled.next();
  EXPECT_FAILS(shuffled.position(), ValueError, "{.ordered = true}");
}

TEST(APosition, OfAFlatMapAndAnInterleave) {
  EXPECT_RESUMES(range(1, 5).flat_map(up_to));
  EXPECT_RESUMES(range(1, 6).interleave(up_to, {.cycle_length = 2, .block_length = 2}));
  EXPECT_RESUMES(
      range(1, 6).interleave(up_to, {.cycle_length = 3, .block_length = 1, .parallel = true}));
}

TEST(APosition, OfABatch) {
  EXPECT_RESUMES(range(9).batch(2));
  EXPECT_RESUMES(twelve().batch(5));
  EXPECT_RESUMES(range(9).shuffle(9).batch(2).prefetch(2));
  EXPECT_RESUMES(twelve().batch(2).unbatch());
  EXPECT_RESUMES(twelve().batch(5).shuffle(2).unbatch());
  EXPECT_RESUMES(range(1, 8).map([](std::int64_t n) { return torch::ones({n}); }).padded_batch(2));
  EXPECT_RESUMES(range(1, 12)
                     .map([](std::int64_t n) { return torch::ones({n * 5 % 11 + 1}); })
                     .bucket_by_sequence_length([](const at::Tensor& t) { return t.size(0); },
                                                {.boundaries = {4, 8}, .batch_sizes = {2, 3, 2}}));
}

TEST(APosition, OfStagesWithSeveralInputs) {
  EXPECT_RESUMES(range(3).concatenate(range(5, 8)).concatenate(range(2)));
  EXPECT_RESUMES(zip(twelve(), range(12).shuffle(12)));
  EXPECT_RESUMES(sample_from_datasets<std::int64_t>({range(5), range(10, 20)}, {.seed = 1}));
}

TEST(APosition, OfStagesThatCount) {
  EXPECT_RESUMES(twelve().enumerate());
  EXPECT_RESUMES(twelve().window({.size = 3, .shift = 1}));
  EXPECT_RESUMES(twelve().window({.size = 2, .shift = 3, .stride = 2}));
  EXPECT_RESUMES(twelve().scan(std::int64_t{0}, [](std::int64_t sum, std::int64_t x) {
    return std::pair(sum + x, sum + x);
  }));
}

TEST(APosition, OfACache) {
  EXPECT_RESUMES(twelve().cache());
  EXPECT_RESUMES(twelve().shuffle(5).cache().repeat(2));
}

TEST(APosition, OfAPrefetch) {
  EXPECT_RESUMES(twelve().prefetch(3));
  EXPECT_RESUMES(twelve().shuffle(4).prefetch().map(doubled).prefetch(1));
}

TEST(APosition, BehindErrors) {
  EXPECT_RESUMES(twelve()
                     .map(
                         [](std::int64_t x) {
                           if (x % 5 == 2) throw ValueError("my map", "no");
                           return x;
                         },
                         {.parallel = 2})
                     .ignore_errors());
}

TEST(APosition, OfAnotherPipelineIsRefused) {
  auto batches = range(9).batch(2).iterator();
  auto shuffled = twelve().shuffle(5).iterator();
  EXPECT_FAILS(shuffled.restore(batches.position()), InvalidArgument, "other stages");
  EXPECT_FAILS(batches.restore(shuffled.position()), InvalidArgument, "other stages");
}

TEST(APosition, OfAnotherPipelineIsRefusedThoughItHasAsManyNumbers) {
  const auto restore = [](const auto& to, const auto& from) {
    auto saved = from.iterator();
    saved.next();
    auto iterator = to.iterator();
    iterator.restore(saved.position());
  };
  EXPECT_FAILS(restore(range(9), range(8)), InvalidArgument,
               "other stages: expected one that was saved from an iterator of range[9]");
  EXPECT_FAILS(restore(range(9).batch(3), range(9).batch(2)), InvalidArgument, "batch(3)");
  EXPECT_FAILS(restore(range(9).take(5), range(9).skip(5)), InvalidArgument, "take");
  EXPECT_FAILS(restore(range(9).shuffle(9), range(9).shuffle(4)), InvalidArgument, "shuffle(9)");
  EXPECT_FAILS(restore(range(9).shuffle(9, {.seed = 1}), range(9).shuffle(9, {.seed = 2})),
               InvalidArgument, "shuffle(9) by 1");
  EXPECT_FAILS(restore(range(9).map(doubled), range(9).enumerate()), InvalidArgument, "map");
  EXPECT_FAILS(restore(zip(range(9), range(5)), range(9).concatenate(range(5))), InvalidArgument,
               "range[9]; range[5]; zip");
}

TEST(APosition, ThatIsRefusedLeavesTheIteratorWhereItWas) {
  auto iterator = range(9).iterator();
  iterator.next();
  EXPECT_FAILS(iterator.restore(range(8).iterator().position()), InvalidArgument, "stages");
  EXPECT_EQ(iterator.next(), 1);
}

TEST(APosition, DoesNotDependOnThreadsAndBuffers) {
  const auto pipeline = [](int parallel, std::int64_t prefetch, bool ahead) {
    return range(1, 6)
        .interleave(up_to, {.cycle_length = 2, .parallel = ahead})
        .map(noisy, {.parallel = parallel})
        .shuffle(4)
        .prefetch(prefetch)
        .repeat(2);
  };
  auto first = pipeline(1, 0, false).iterator();
  for (int i = 0; i < 7; ++i) first.next();
  const Position here = first.position();
  const Texts rest = rest_of(first);
  for (const int parallel : {1, 2, AUTOTUNE}) {
    for (const std::int64_t prefetch : {0, 3, AUTOTUNE}) {
      auto second = pipeline(parallel, prefetch, parallel == 2).iterator();
      second.restore(here);
      EXPECT_EQ(second.position(), here);
      EXPECT_EQ(rest_of(second), rest) << parallel << " threads, prefetch " << prefetch;
    }
  }
}

TEST(APosition, InBytesIsCheckedWhenRead) {
  EXPECT_FAILS(Position::from_bytes("nonsense"), InvalidArgument, "not the bytes of a position");
  const Position numbers({0, -1, 1, INT64_MAX, INT64_MIN, 300});
  EXPECT_EQ(Position::from_bytes(numbers.bytes()), numbers);
  const std::string bytes = numbers.bytes();
  EXPECT_FAILS(Position::from_bytes(bytes.substr(0, bytes.size() - 1)), InvalidArgument, "byte");
}

TEST(APassAfterARestoredOne, HasTheNextNumber) {
  const auto dataset = range(30).shuffle(30, {.seed = 1});
  elements_of(dataset);
  auto second = dataset.iterator();
  const Position here = second.position();
  const Texts third = elements_of(dataset);

  const auto again = range(30).shuffle(30, {.seed = 1});
  auto resumed = again.iterator();
  resumed.restore(here);
  EXPECT_EQ(rest_of(resumed), rest_of(second));
  EXPECT_EQ(elements_of(again), third);
}

}  // namespace
}  // namespace cohort::data
