// A cache in a file: later passes and later processes read it in place of the input.

#include <filesystem>
#include <fstream>

#include "tests/data/elements.h"
#include "tests/io/scratch_folder.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;

struct Sample {
  at::Tensor image;
  std::string name;
};
using Deep = std::tuple<std::vector<at::Tensor>, std::map<std::string, std::int64_t>,
                        std::optional<double>, Strings, Sample, std::array<bool, 2>>;

class AFileCache : public testing::Test {
 protected:
  /// 0, 1, …, which counts how many were made.
  auto counted(std::int64_t n) {
    return range(n).map([this](std::int64_t x) {
      ++made_;
      return x;
    });
  }
  std::size_t files() const {
    const std::filesystem::directory_iterator all(folder_.path("."));
    return std::distance(begin(all), end(all));
  }

  ScratchFolder folder_;
  const std::string path_ = folder_.path("cache");
  int made_ = 0;
};

TEST_F(AFileCache, GivesTheElementsOfTheFirstPassWithoutTheInput) {
  const auto dataset = counted(4).cache(path_);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_THAT(elements_of(dataset), ElementsAre("0", "1", "2", "3"));
  }
  EXPECT_EQ(made_, 4);
  EXPECT_THAT(elements_of(counted(4).cache(path_)), ElementsAre("0", "1", "2", "3"));
  EXPECT_EQ(made_, 4);  // another dataset that is written down the same
  EXPECT_EQ(files(), 1u);
}

TEST_F(AFileCache, KeepsVectorsOfBools) {
  const auto windows =
      range(3).map([](std::int64_t x) { return x != 1; }).window({.size = 3}).cache(path_);
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_EQ(windows.iterator().next(), std::vector<bool>({true, false, true}));
  }
}

TEST_F(AFileCache, KeepsAnyNest) {
  const auto deep = range(2).map([](std::int64_t x) {
    const auto n = static_cast<std::size_t>(x);
    return Deep{std::vector(n, torch::full({2}, 1.5, torch::kHalf)),
                {{"a", x}, {"b", -x}},
                n > 0 ? std::optional(0.25) : std::nullopt,
                Strings({"p", std::string(2, '\0')}).reshape({2, 1}),
                {torch::arange(4).reshape({2, 2}).t(), cat("name ", x)},
                {true, n > 0}};
  });
  const Texts expected = elements_of(deep);
  const auto cached = deep.cache(path_);
  EXPECT_EQ(elements_of(cached), expected);
  EXPECT_EQ(elements_of(cached), expected);
  auto iterator = cached.iterator();
  EXPECT_FALSE(std::get<2>(*iterator.next()));
  const Deep second = *iterator.next();
  EXPECT_EQ(std::get<0>(second)[0].scalar_type(), torch::kHalf);
  EXPECT_THAT(std::get<3>(second).sizes().vec(), ElementsAre(2, 1));
}

TEST_F(AFileCache, IsNotMadeByAPassThatStopsEarlyOrFails) {
  const auto dataset = counted(4).cache(path_);
  {
    auto iterator = dataset.iterator();
    iterator.next();
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u);
  const auto failing = range(3)
                           .map([](std::int64_t x) {
                             if (x == 1) throw ValueError("my map", "one");
                             return x;
                           })
                           .cache(path_)
                           .ignore_errors();
  EXPECT_THAT(elements_of(failing), ElementsAre("0", "2"));
  EXPECT_THAT(elements_of(failing), ElementsAre("0", "2"));
  EXPECT_EQ(files(), 0u);
}

TEST_F(AFileCache, OfAnotherDatasetIsAnErrorThatNamesTheFile) {
  elements_of(range(3).cache(path_));
  EXPECT_FAILS(elements_of(range(4).cache(path_)), InvalidArgument, path_);
  EXPECT_FAILS(elements_of(range(3).batch(2).cache(path_)), InvalidArgument, "Delete the file");
  std::ofstream(path_) << "something else";
  EXPECT_FAILS(elements_of(range(3).cache(path_)), InvalidArgument, path_);
}

TEST_F(AFileCache, ThatIsDamagedIsAnErrorThatNamesTheFile) {
  const auto dataset = range(3).cache(path_);
  elements_of(dataset);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  EXPECT_FAILS(elements_of(dataset), InvalidArgument, path_);
}

TEST_F(AFileCache, OfPartsOfTheInputIsAnotherFile) {
  const auto dataset = range(4).cache(path_);
  elements_of(dataset);
  const NodePtr half = dataset.node()->with_inputs({range(4).shard(2, 1).node()});
  EXPECT_THAT(elements_of(Dataset<std::int64_t>(typed<std::int64_t>(half))), ElementsAre("1", "3"));
  EXPECT_EQ(files(), 2u);
  EXPECT_THAT(elements_of(dataset), ElementsAre("0", "1", "2", "3"));
}

TEST_F(AFileCache, CanBeStoppedAnywhere) {
  EXPECT_RESUMES(range(6).cache(path_));  // the first pass makes the file
  const auto twice = range(5).cache(folder_.path("other")).repeat(2);
  EXPECT_RESUMES(twice);
  // Saved by a pass that wrote, taken up by one that reads.
  const auto dataset = range(6).cache(folder_.path("third"));
  auto writing = dataset.iterator();
  writing.next();
  writing.next();
  const Position position = writing.position();
  rest_of(writing);
  auto reading = dataset.iterator();
  reading.restore(position);
  EXPECT_THAT(rest_of(reading), ElementsAre("2", "3", "4", "5"));
}

TEST_F(AFileCache, RefusesTensorsThatAreNotDense) {
  const auto sparse = range(1).map([](std::int64_t) { return torch::eye(2).to_sparse(); });
  EXPECT_FAILS(elements_of(sparse.cache(path_)), InvalidArgument, "to_dense()");
}

}  // namespace
}  // namespace cohort::data
