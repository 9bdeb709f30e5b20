#include "cohort/data/torch_dataset.h"

#include "tests/data/elements.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;

/// (i, 10 i).
struct Tens : torch::data::datasets::Dataset<Tens> {
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<std::int64_t>(index);
    return {torch::tensor(i), torch::tensor(10 * i)};
  }
  c10::optional<std::size_t> size() const override { return 3; }
};

TEST(ADatasetOfLibTorch, GivesPairsOfDataAndTarget) {
  EXPECT_THAT(elements_of(from_torch(Tens())),
              ElementsAre("[]{0} []{0}", "[]{1} []{10}", "[]{2} []{20}"));
  EXPECT_THAT(elements_of(from_torch(Tens()).batch(2)),
              ElementsAre("[2]{0 1} [2]{0 10}", "[1]{2} [1]{20}"));
  EXPECT_EQ(from_torch(Tens()).shuffle(3).cardinality(), 3);
}

/// Whether i is even.
struct Evens : torch::data::datasets::Dataset<Evens, bool> {
  bool get(std::size_t index) override { return index % 2 == 0; }
  c10::optional<std::size_t> size() const override { return 3; }
};

TEST(ADatasetOfLibTorch, MayBeOfBools) {
  EXPECT_THAT(elements_of(from_torch(Evens()).batch(3)), ElementsAre("[3]{1 0 1}"));
}

TEST(ADatasetOfLibTorch, WithoutTargetsGivesTheData) {
  const torch::data::datasets::TensorDataset tensors(torch::arange(3));
  EXPECT_THAT(elements_of(from_torch(tensors)), ElementsAre("[]{0}", "[]{1}", "[]{2}"));
}

}  // namespace
}  // namespace cohort::data
