#include "cohort/collectives/packs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "cohort/collectives/tensor_reduction.h"

namespace cohort::collectives {
namespace {

using testing::ElementsAre;

TEST(PacksBySize, APackIsFullWhenItHoldsMoreThanTheLimit) {
  const std::vector<std::int64_t> bytes{128, 32, 800, 4};
  EXPECT_THAT(packs_by_size(bytes, 200), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3)));
  EXPECT_THAT(packs_by_size(bytes, 128),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3)));
}

TEST(PacksBySize, NoLimitMeansOnePack) {
  const std::vector<std::int64_t> bytes{128, 32, 4};
  EXPECT_THAT(packs_by_size(bytes, 0), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_TRUE(packs_by_size({}, 0).empty());
}

TEST(PackBoundaries, TheLastPieceTakesTheRest) {
  EXPECT_THAT(pack_boundaries(10, 3), ElementsAre(0, 3, 6, 10));
  EXPECT_THAT(pack_boundaries(10, 1), ElementsAre(0, 10));
}

TEST(PackBoundaries, ThereAreNoMorePiecesThanElements) {
  EXPECT_THAT(pack_boundaries(2, 5), ElementsAre(0, 1, 2));
  EXPECT_THAT(pack_boundaries(0, 5), ElementsAre(0, 0));
}

TEST(ReduceJoined, GivesEachValueItsShapeBack) {
  const std::vector<TensorPerReplica> values{{at::ones({2, 3}), at::ones({2, 3})},
                                             {at::full({}, 5.f), at::full({}, 7.f)},
                                             {at::ones({0}), at::ones({0})}};
  std::vector<std::size_t> numbers;
  const auto results =
      reduce_joined(values, 3, [&](std::span<const at::Tensor> piece, auto number) {
        numbers.push_back(number);
        return TensorPerReplica(2, reduce_tensors("SUM", piece));
      });
  EXPECT_THAT(numbers, ElementsAre(0, 1, 2));
  EXPECT_TRUE(results[0][1].equal(at::full({2, 3}, 2.f)));
  EXPECT_TRUE(results[1][0].equal(at::full({}, 12.f)));
  EXPECT_EQ(results[2][0].numel(), 0);
}

}  // namespace
}  // namespace cohort::collectives
