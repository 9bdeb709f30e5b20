// Elements that can't be made: what is left out, that everything else comes out, and that it ends.

#include "cohort/data/ignore_errors.h"

#include <filesystem>
#include <fstream>
#include <future>

#include "cohort/base/random.h"
#include "cohort/data/readers.h"
#include "cohort/data/torch_dataset.h"
#include "cohort/io/byte_sink.h"
#include "tests/base/captured_log.h"
#include "tests/data/elements.h"
#include "tests/io/scratch_folder.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using testing::UnorderedElementsAreArray;

std::int64_t not_third(std::int64_t x) {
  return x % 5 == 3 ? throw ValueError("my map", cat("broken ", x)) : x;
}

/// 0 … n-1, of which 3, 8, 13, … can't be made.
auto broken(std::int64_t n, int parallel = 1) {
  return range(n).map(not_third, {.parallel = parallel});
}

/// As many as `n` numbers have when those are left out.
Texts whole(std::int64_t n) {
  Texts all;
  for (std::int64_t x = 0; x < n; ++x) {
    if (x % 5 != 3) all.push_back(cat(x));
  }
  return all;
}

/// The rows of batches of numbers.
Texts rows_of(const Dataset<at::Tensor>& batches) {
  return elements_of(
      batches.unbatch().map([](const at::Tensor& row) { return row.item<std::int64_t>(); }));
}

TEST(AnElementThatCantBeMade, CostsNoOtherOneBehindAnyStage) {
  const Texts all = whole(12);
  for (const int parallel : {1, 3}) {
    const auto numbers = broken(12, parallel);
    EXPECT_EQ(elements_of(numbers.ignore_errors()), all);
    EXPECT_EQ(elements_of(numbers.prefetch(2).ignore_errors()), all);
    EXPECT_EQ(elements_of(numbers.cache().ignore_errors()), all);
    EXPECT_EQ(elements_of(numbers.map([](std::int64_t x) { return x; }, {.parallel = 2})
                              .prefetch(3)
                              .ignore_errors()),
              all);
    EXPECT_EQ(elements_of(numbers.filter([](std::int64_t) { return true; }).ignore_errors()), all);
    EXPECT_EQ(elements_of(numbers.window({.size = 1}).ignore_errors()), all);
    EXPECT_EQ(elements_of(
                  numbers.flat_map([](std::int64_t x) { return range(x, x + 1); }).ignore_errors()),
              all);
    EXPECT_EQ(
        elements_of(range(1).concatenate(numbers.skip(1)).concatenate(range(0)).ignore_errors()),
        all);
    for (const int buffer : {1, 3, 100}) {
      EXPECT_THAT(elements_of(numbers.shuffle(buffer).ignore_errors()),
                  UnorderedElementsAreArray(all));
      EXPECT_THAT(elements_of(numbers.shuffle(buffer).prefetch().shuffle(2).ignore_errors()),
                  UnorderedElementsAreArray(all));
    }
  }
}

TEST(AnElementThatCantBeMade, CostsNoOtherOneOfItsBatch) {
  for (const int parallel : {1, 3}) {
    const auto numbers = broken(12, parallel);
    EXPECT_THAT(elements_of(numbers.batch(2).ignore_errors()),
                ElementsAre("[2]{0 1}", "[2]{2 4}", "[2]{5 6}", "[2]{7 9}", "[2]{10 11}"));
    EXPECT_THAT(elements_of(numbers.batch(4, {.drop_remainder = true}).ignore_errors()),
                ElementsAre("[4]{0 1 2 4}", "[4]{5 6 7 9}"));
    EXPECT_THAT(elements_of(numbers.padded_batch(4).prefetch(2).ignore_errors()),
                ElementsAre("[4]{0 1 2 4}", "[4]{5 6 7 9}", "[2]{10 11}"));
    EXPECT_EQ(rows_of(numbers.batch(3).shuffle(1).ignore_errors()), whole(12));
    EXPECT_EQ(rows_of(numbers
                          .bucket_by_sequence_length([](std::int64_t) { return 1; },
                                                     {.boundaries = {9}, .batch_sizes = {3, 3}})
                          .ignore_errors()),
              whole(12));
    EXPECT_THAT(elements_of(numbers.window({.size = 3, .shift = 2}).ignore_errors()),
                ElementsAre("0 1 2", "2 4 5", "5 6 7", "7 9 10", "10 11"));
    EXPECT_THAT(elements_of(numbers.window({.size = 1, .shift = 3}).ignore_errors()),
                ElementsAre("0", "4", "7", "10"));
  }
}

TEST(AnElementThatCantBeMade, IsOneOfThoseThatAreCounted) {
  for (const int parallel : {1, 3}) {
    const auto numbers = broken(12, parallel);
    EXPECT_THAT(elements_of(numbers.take(5).ignore_errors()), ElementsAre("0", "1", "2", "4"));
    EXPECT_THAT(elements_of(numbers.take(5).batch(3).ignore_errors()),
                ElementsAre("[3]{0 1 2}", "[1]{4}"));
    EXPECT_THAT(elements_of(numbers.skip(5).take(3).ignore_errors()), ElementsAre("5", "6", "7"));
    EXPECT_THAT(elements_of(numbers.prefetch(2).skip(5).take(3).ignore_errors()),
                ElementsAre("5", "6", "7"));
    EXPECT_THAT(elements_of(numbers.shard(2, 1).take(3).ignore_errors()), ElementsAre("1", "5"));
    EXPECT_THAT(elements_of(numbers.shard(2, 0).take(3).ignore_errors()),
                ElementsAre("0", "2", "4"));
    EXPECT_THAT(elements_of(numbers.shard(2, 0).ignore_errors()),
                ElementsAre("0", "2", "4", "6", "10"));
    EXPECT_THAT(elements_of(numbers.shard(2, 1).ignore_errors()),
                ElementsAre("1", "5", "7", "9", "11"));
    EXPECT_THAT(elements_of(numbers.enumerate().skip(2).take(4).ignore_errors()),
                ElementsAre("2 2", "4 4", "5 5"));
    EXPECT_THAT(elements_of(zip(numbers, range(100, 112)).skip(2).take(3).ignore_errors()),
                ElementsAre("2 102", "4 104"));
  }
}

TEST(AnElementThatCantBeMade, DoesNotPutTheOthersOfAZipOutOfStep) {
  EXPECT_THAT(elements_of(zip(broken(6), range(6)).ignore_errors()),
              ElementsAre("0 0", "1 1", "2 2", "4 4", "5 5"));
  EXPECT_THAT(elements_of(zip(range(6), broken(6), range(6)).ignore_errors()),
              ElementsAre("0 0 0", "1 1 1", "2 2 2", "4 4 4", "5 5 5"));
}

TEST(AnElementThatCantBeMade, LeavesTheRandomNumbersOfTheOthersAsTheyAre) {
  const auto noisy = [](std::int64_t x, at::Generator generator) {
    return static_cast<double>(x) + at::rand({}, generator).item<double>();
  };
  const auto draw = [&](int parallel) {
    return elements_of(broken(12).map(noisy, {.parallel = parallel}).ignore_errors());
  };
  EXPECT_EQ(draw(1), draw(3));
}

TEST(AnElementThatCantBeMade, CostsNoOtherOneOfAnInterleaveInAnyDataset) {
  const auto three = [](std::int64_t x) {
    return range(3).map([x](std::int64_t i) { return not_third(3 * x + i); });
  };
  for (const bool parallel : {false, true}) {
    EXPECT_THAT(
        elements_of(
            broken(6).interleave(three, {.cycle_length = 2, .parallel = parallel}).ignore_errors()),
        UnorderedElementsAre("0", "1", "2", "4", "5", "6", "7", "12", "14", "15", "16", "17"));
  }
}

TEST(AnElementThatCantBeMade, IsOneRowOfATorchDataset) {
  struct Rows : torch::data::datasets::Dataset<Rows, at::Tensor> {
    at::Tensor get(std::size_t row) override {
      return torch::full({}, not_third(static_cast<std::int64_t>(row)));
    }
    torch::optional<std::size_t> size() const override { return 7; }
  };
  EXPECT_THAT(elements_of(from_torch(Rows()).batch(2).ignore_errors()),
              ElementsAre("[2]{0 1}", "[2]{2 4}", "[2]{5 6}"));
  EXPECT_THAT(elements_of(from_torch(Rows()).take(5).batch(3).ignore_errors()),
              ElementsAre("[3]{0 1 2}", "[1]{4}"));
  EXPECT_FAILS(elements_of(from_torch(Rows()).batch(2)), ValueError, "(element 3 of from_torch)");
}

TEST(AnElementWithoutRows, CostsNoOtherOneOfAnUnbatch) {
  const auto batches = range(4).map(
      [](std::int64_t x) { return x == 2 ? torch::full({}, x) : torch::full({2}, x); });
  EXPECT_THAT(elements_of(batches.unbatch().ignore_errors()),
              ElementsAre("[]{0}", "[]{0}", "[]{1}", "[]{1}", "[]{3}", "[]{3}"));
}

TEST(APassOfARepeat, ThatGivesNothingButErrorsIsNotTheLastOfSeveral) {
  int calls = 0;
  const auto first_fails = range(2).map([&calls](std::int64_t x) {
    if (++calls <= 2) throw std::runtime_error("not yet");
    return x;
  });
  EXPECT_THAT(elements_of(first_fails.repeat(3).ignore_errors()), ElementsAre("0", "1", "0", "1"));
}

// Positions behind elements that were left out.

/// What the calls of an iterator give from here on, errors too.
template <class T>
Texts calls_of(DatasetIterator<T>& iterator) {
  Texts calls;
  for (;;) {
    try {
      const auto element = iterator.next();
      if (!element) return calls;
      calls.push_back(element_text(*element));
    } catch (const Error& error) {
      calls.emplace_back(error.what());
    }
  }
}

/// Stops behind every call of a pass, also behind errors, and compares what comes then with what
/// came without a stop; and the same where errors are ignored.
template <class T>
void expect_resumes_behind_errors(const Dataset<T>& dataset, const char* name) {
  expect_resumes(dataset.ignore_errors(), name);
  SCOPED_TRACE(name);
  auto whole = dataset.iterator();
  const Position start = whole.position();
  const Texts all = calls_of(whole);
  for (std::size_t stop = 0; stop <= all.size(); ++stop) {
    auto first = dataset.iterator();
    first.restore(start);
    for (std::size_t i = 0; i < stop; ++i) {
      try {
        first.next();
      } catch (const Error&) {
      }
    }
    auto second = dataset.iterator();
    second.restore(Position::from_bytes(first.position().bytes()));
    EXPECT_EQ(second.position(), first.position()) << "stopped at " << stop;
    EXPECT_EQ(calls_of(second), Texts(all.begin() + stop, all.end())) << "stopped at " << stop;
  }
}
#define EXPECT_RESUMES_BEHIND_ERRORS(dataset) expect_resumes_behind_errors(dataset, #dataset)

TEST(APositionBehindAnError, OfAStageThatReadsAgain) {
  for (const int parallel : {1, 2}) {
    const auto numbers = broken(14, parallel);
    EXPECT_RESUMES_BEHIND_ERRORS(numbers.shuffle(4));
    EXPECT_RESUMES_BEHIND_ERRORS(numbers.shuffle(100));
    EXPECT_RESUMES_BEHIND_ERRORS(numbers.cache());
    EXPECT_RESUMES_BEHIND_ERRORS(numbers.cache().repeat(2));
    EXPECT_RESUMES_BEHIND_ERRORS(numbers.scan(
        std::int64_t{0},
        [](std::int64_t sum, std::int64_t x) { return std::pair(sum + x, not_third(sum + x)); }));
    EXPECT_RESUMES_BEHIND_ERRORS(numbers.shuffle(4).prefetch(2).shuffle(3));
    EXPECT_RESUMES_BEHIND_ERRORS(numbers.repeat(2).shuffle(5).cache());
  }
}

TEST(APositionBehindAnError, OfAGenerator) {
  const auto generated = from_generator([] {
    return [i = std::int64_t{0}]() mutable -> std::optional<std::int64_t> {
      if (i == 9) return std::nullopt;
      return not_third(i++);
    };
  });
  EXPECT_RESUMES_BEHIND_ERRORS(generated);
  EXPECT_RESUMES_BEHIND_ERRORS(generated.shuffle(3));
}

TEST(APositionBehindAnError, OfABatchOfRows) {
  EXPECT_RESUMES_BEHIND_ERRORS(range(8).assert_cardinality(9).batch(3));
  EXPECT_RESUMES_BEHIND_ERRORS(range(12).assert_cardinality(8).batch(3));
  const auto pairs = from_tensor_slices(std::pair(torch::arange(8), torch::arange(8, 16)));
  EXPECT_RESUMES_BEHIND_ERRORS(pairs.assert_cardinality(9).batch(3));
}

TEST(APositionBehindAnError, OfAFileCache) {
  ScratchFolder files;
  EXPECT_RESUMES_BEHIND_ERRORS(broken(9).cache(files.path("cache")));
  EXPECT_RESUMES_BEHIND_ERRORS(broken(9).cache(files.path("shuffled")).shuffle(4));
}

template <class T>
void expect_resumes_behind(const Dataset<T>& input) {
  const auto same = [](const T& x) { return x; };
  EXPECT_RESUMES_BEHIND_ERRORS(input.map(same));
  EXPECT_RESUMES_BEHIND_ERRORS(input.map(same, {.parallel = 2}).prefetch(2));
  EXPECT_RESUMES_BEHIND_ERRORS(input.filter([](const T&) { return true; }));
  EXPECT_RESUMES_BEHIND_ERRORS(input.enumerate());
  EXPECT_RESUMES_BEHIND_ERRORS(input.batch(3));
  EXPECT_RESUMES_BEHIND_ERRORS(input.shuffle(3).batch(2));
  EXPECT_RESUMES_BEHIND_ERRORS(input.padded_batch(3));
  EXPECT_RESUMES_BEHIND_ERRORS(input.batch(3).unbatch());
  EXPECT_RESUMES_BEHIND_ERRORS(input.batch(2).shuffle(2).unbatch().shuffle(3));
  EXPECT_RESUMES_BEHIND_ERRORS(input.window({.size = 3, .shift = 1}));
  EXPECT_RESUMES_BEHIND_ERRORS(input.window({.size = 2, .shift = 3}));
  EXPECT_RESUMES_BEHIND_ERRORS(input.window({.size = 1, .shift = 3}).shuffle(2));
  EXPECT_RESUMES_BEHIND_ERRORS(input.take(9).skip(2));
  EXPECT_RESUMES_BEHIND_ERRORS(input.skip(4));
  EXPECT_RESUMES_BEHIND_ERRORS(input.batch(2, [](std::vector<T> two) { return two.front(); }));
  EXPECT_RESUMES_BEHIND_ERRORS(input.batch(2).take(7).enumerate());
  EXPECT_RESUMES_BEHIND_ERRORS(input.shard(2, 1));
  EXPECT_RESUMES_BEHIND_ERRORS(zip(input, range(100).shuffle(5)));
  EXPECT_RESUMES_BEHIND_ERRORS(input.concatenate(input));
  EXPECT_RESUMES_BEHIND_ERRORS(sample_from_datasets<T>({input, input}, {.seed = 1}));
  EXPECT_RESUMES_BEHIND_ERRORS(input.bucket_by_sequence_length(
      [](const T& x) { return static_cast<std::int64_t>(element_text(x).size()); },
      {.boundaries = {2}, .batch_sizes = {2, 3}}));
  const auto three = [](const T& x) { return from_tensors(x).repeat(3); };
  EXPECT_RESUMES_BEHIND_ERRORS(input.flat_map(three));
  EXPECT_RESUMES_BEHIND_ERRORS(input.interleave(three, {.cycle_length = 2, .block_length = 2}));
  EXPECT_RESUMES_BEHIND_ERRORS(input.interleave(three, {.cycle_length = 3, .parallel = true}));
}

TEST(APositionBehindAnError, OfEveryStage) {
  expect_resumes_behind(broken(11));
  expect_resumes_behind(broken(11, 3));
}
TEST(APositionBehindAnError, OfEveryStageBehindAShuffle) {
  expect_resumes_behind(broken(11).shuffle(4, {.seed = 1}));
}
TEST(APositionBehindAnError, OfEveryStageBehindABatch) {
  expect_resumes_behind(broken(22).batch(2));
}

TEST(APositionBehindAnError, ThatIsNewThrowsIt) {
  bool is_gone = false;
  const auto dataset = range(9)
                           .map([&is_gone](std::int64_t x) {
                             if (is_gone) throw NotFound("my map", "the file is gone");
                             return not_third(x);
                           })
                           .shuffle(4);
  auto iterator = dataset.ignore_errors().iterator();
  for (int i = 0; i < 6; ++i) iterator.next();
  const Position here = iterator.position();
  is_gone = true;
  auto resumed = dataset.ignore_errors().iterator();
  EXPECT_FAILS(resumed.restore(here), NotFound, "the file is gone");
}

// What throws and does not go on.

class WhatCantGoOn : public testing::Test {
 protected:
  /// A gzip file without its last bytes.
  std::string truncated(const std::string& name, const std::string& text) {
    const std::string path = files_.path(name);
    io::ByteSink sink(path, io::Compression::GZIP, "test");
    sink.write(text);
    sink.close();
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 12);
    return path;
  }
  /// Random digits, which compression leaves almost as long as they are.
  static std::string rows(int count) {
    RandomStream random(1);
    std::string text;
    for (int i = 0; i < count; ++i) text += cat(i, ',', random.next(), '\n');
    return text;
  }

  ScratchFolder files_;
  ErrorCount count_;
  const CapturedLog log_;
};

TEST_F(WhatCantGoOn, ATruncatedFileIsLeftBehindItsLastWholeRow) {
  const std::string path = truncated("a.csv.gz", rows(500));
  const std::string other = files_.write("b.csv", "600,1\n601,2\n");
  const Texts all = elements_of(csv(Texts{path, other}).ignore_errors({.count = count_}));
  EXPECT_EQ(count_.get(), 1);
  ASSERT_GT(all.size(), 450u);
  for (std::size_t i = 0; i + 2 < all.size(); ++i)
    EXPECT_THAT(all[i], testing::StartsWith(cat(i, ' ')));
  EXPECT_EQ(all[all.size() - 2], "600 1");
  EXPECT_EQ(all.back(), "601 2");
  EXPECT_EQ(log_.count(log::Level::WARNING, cat("the rest of ", path, " is left out")), 1);
  EXPECT_EQ(log_.lines().size(), 1u);
  EXPECT_FAILS(elements_of(csv(path)), InvalidArgument, "the file ends inside of compressed data");
}

TEST_F(WhatCantGoOn, ATruncatedFileIsLeftByEveryReader) {
  const std::string path = truncated("lines.gz", rows(500));
  EXPECT_GT(elements_of(text_lines(path).ignore_errors()).size(), 450u);
  EXPECT_GT(elements_of(fixed_length_records(path, {.record_bytes = 4}).ignore_errors()).size(),
            500u);
  EXPECT_THAT(
      elements_of(csv(truncated("b.gz", "1,2"))
                      .batch(2, [](const auto& x) { return static_cast<std::int64_t>(x.size()); })
                      .ignore_errors()),
      IsEmpty());
  EXPECT_EQ(log_.count(log::Level::WARNING, "is left out"), 3);
}

TEST_F(WhatCantGoOn, ABadRowOrHeaderIsNoTruncatedFile) {
  const std::string path = files_.write("a.csv", "1,2\n3\n4,5\n\"6\" 7,8\n9,10\n");
  EXPECT_THAT(elements_of(csv(path).ignore_errors({.count = count_})),
              ElementsAre("1 2", "4 5", "9 10"));
  EXPECT_EQ(count_.get(), 2);
  const std::string header = files_.write("b.csv", "x\",y\n1,2\n3,4\n");
  EXPECT_THAT(elements_of(csv(header, {.header = true}).ignore_errors({.count = count_})),
              ElementsAre("1 2", "3 4"));
  EXPECT_EQ(count_.get(), 3);
  EXPECT_RESUMES(csv(path).ignore_errors());
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(WhatCantGoOn, ACacheOfAnotherDatasetIsNoPassOfARepeat) {
  const std::string path = files_.path("cache");
  elements_of(range(3).cache(path));
  const auto dataset = range(4).cache(path);
  EXPECT_THAT(elements_of(dataset.repeat().ignore_errors({.count = count_})), IsEmpty());
  EXPECT_EQ(count_.get(), 1);
  EXPECT_EQ(log_.count(log::Level::WARNING, "repeat can't begin"), 1);
  EXPECT_EQ(log_.count(log::Level::WARNING, cat(path, " was not made by this dataset")), 1);
  EXPECT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(elements_of(dataset.repeat(3).shuffle(2).batch(2).ignore_errors({.count = count_})),
              IsEmpty());
  EXPECT_EQ(count_.get(), 4);
  EXPECT_THAT(elements_of(range(2)
                              .concatenate(range(1).repeat(1).concatenate(dataset))
                              .concatenate(range(7, 9))
                              .ignore_errors()),
              ElementsAre("0", "1", "0", "7", "8"));
  EXPECT_FAILS(elements_of(dataset.repeat()), InvalidArgument, path);
}

TEST_F(WhatCantGoOn, AGeneratorThatCantBeginGivesNothing) {
  int begins = 0;
  const auto dataset = from_generator([&begins]() -> std::function<std::optional<int>()> {
    ++begins;
    throw std::runtime_error("no connection");
  });
  EXPECT_THAT(elements_of(dataset.ignore_errors({.count = count_})), IsEmpty());
  EXPECT_EQ(begins, 1);
  EXPECT_EQ(count_.get(), 1);
  EXPECT_EQ(log_.count(log::Level::WARNING, "from_generator can't begin"), 1);
  EXPECT_EQ(log_.count(log::Level::WARNING, "no connection"), 1);
  EXPECT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(elements_of(dataset.shuffle(3).prefetch(2).batch(2).ignore_errors()), IsEmpty());
  EXPECT_THAT(elements_of(dataset.repeat().ignore_errors()), IsEmpty());
  EXPECT_THAT(elements_of(range(3)
                              .interleave([&](std::int64_t) { return dataset; },
                                          {.cycle_length = 2, .parallel = true})
                              .ignore_errors()),
              IsEmpty());
  EXPECT_THAT(
      elements_of(
          dataset.concatenate(range(2).map([](std::int64_t x) { return static_cast<int>(x); }))
              .ignore_errors()),
      ElementsAre("0", "1"));
}

TEST_F(WhatCantGoOn, TooManyElementsAreOneError) {
  EXPECT_THAT(elements_of(range(2).repeat().assert_cardinality(3).ignore_errors({.count = count_})),
              ElementsAre("0", "1", "0"));
  EXPECT_THAT(elements_of(range(9)
                              .filter([](std::int64_t) { return true; })
                              .assert_cardinality(3)
                              .batch(2)
                              .ignore_errors({.count = count_})),
              ElementsAre("[2]{0 1}", "[1]{2}"));
  EXPECT_THAT(elements_of(range(9).assert_cardinality(3).batch(2).ignore_errors({.count = count_})),
              ElementsAre("[2]{0 1}", "[1]{2}"));
  EXPECT_EQ(count_.get(), 3);
}

TEST_F(WhatCantGoOn, AnEndlessDatasetOfErrorsIsGivenUp) {
  const auto endless = range(1).repeat().map([](std::int64_t x) { return not_third(x + 3); });
  const auto generated = from_generator([] { return [] { return std::optional(0); }; });
  EXPECT_TRUE(detail::may_be_endless(*endless.node()));
  EXPECT_TRUE(
      detail::may_be_endless(*generated.batch(2).filter([](auto&&) { return true; }).node()));
  EXPECT_FALSE(detail::may_be_endless(*endless.take(9).node()));
  EXPECT_FALSE(detail::may_be_endless(*text_lines("lines").node()));
  EXPECT_FALSE(detail::gives_up_after(1, true, "boom"));
  EXPECT_FALSE(detail::gives_up_after(999'999, true, "boom"));
  EXPECT_THAT(log_.lines(), IsEmpty());
  EXPECT_FALSE(detail::gives_up_after(1000, true, "boom"));
  EXPECT_EQ(
      log_.count(log::Level::WARNING, "1000 errors and no element between them, the last: boom"),
      1);
  EXPECT_FALSE(detail::gives_up_after(1'000'000, false, "boom"));
  EXPECT_TRUE(detail::gives_up_after(1'000'000, true, "boom"));
  EXPECT_EQ(log_.count(log::Level::WARNING, "the dataset ends here"), 1);
}

// Exceptions of all kinds.

/// Makes its text itself.
struct OwnText : std::exception {
  const char* what() const noexcept override { return "own text"; }
};

TEST(AnExceptionWithATextOfItsOwn, IsNoErrorInTheLogWhereItIsIgnored) {
  const auto failing = [](std::int64_t x) { return x == 2 ? throw OwnText() : x; };
  for (const int parallel : {1, 2}) {
    const auto dataset = range(4).map(failing, {.parallel = parallel}).shuffle(1).prefetch(1);
    const CapturedLog log;
    EXPECT_THAT(elements_of(dataset.ignore_errors()), ElementsAre("0", "1", "3"));
    EXPECT_EQ(log.count(log::Level::ERROR, ""), 0);
    EXPECT_EQ(log.count(log::Level::WARNING, ""), 0);
    EXPECT_EQ(log.count(log::Level::INFO, "(element 2 of map): own text"), 1);
    EXPECT_THROW(elements_of(dataset), OwnText);
    EXPECT_EQ(log.count(log::Level::ERROR, "(element 2 of map): own text"), 1);
    const auto behind = dataset.ignore_errors().map([](std::int64_t) -> int { throw OwnText(); });
    EXPECT_THROW(elements_of(behind), OwnText);
    EXPECT_EQ(log.count(log::Level::ERROR, "(element 0 of map): own text"), 1);
  }
}

TEST(AnExceptionThatTheProgramKeeps, IsTheSameBehindEveryElement) {
  std::promise<std::int64_t> load;
  const std::shared_future<std::int64_t> loaded = load.get_future();
  load.set_exception(std::make_exception_ptr(NotFound("load", "no such file")));
  auto iterator =
      range(50).map([&](std::int64_t x) { return x + loaded.get(); }, {.parallel = 4}).iterator();
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(failure_of([&] { iterator.next(); }),
              cat("NotFound: [load] no such file (element ", i, " of map)"));
  }
  EXPECT_EQ(failure_of([&] { loaded.get(); }), "NotFound: [load] no such file");
}

}  // namespace
}  // namespace cohort::data
