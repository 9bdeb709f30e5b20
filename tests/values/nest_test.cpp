#include "cohort/values/nest.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "tests/base/failing.h"

namespace cohort {
namespace {

using testing::ElementsAre;

/// The components of a PerReplica, for comparing.
template <class T>
std::vector<T> values_of(const PerReplica<T>& value) {
  return {value.values().begin(), value.values().end()};
}

const auto doubled = [](int leaf) { return leaf * 2; };
const auto as_text = [](int leaf) { return std::to_string(leaf); };

// map

TEST(NestMap, ALeafIsItsOwnNest) { EXPECT_EQ(nest::map(doubled, 3), 6); }

TEST(NestMap, KeepsTuplesAndPairs) {
  EXPECT_EQ(nest::map(doubled, std::tuple(1, 2, 3)), std::tuple(2, 4, 6));
  EXPECT_EQ(nest::map(doubled, std::pair(1, 2)), std::pair(2, 4));
  EXPECT_EQ(nest::map(doubled, std::tuple()), std::tuple());
}

TEST(NestMap, DoesNotFlattenATupleOfOneTuple) {
  const std::tuple<std::tuple<int>> nested{std::tuple<int>{1}};
  const std::tuple<std::tuple<int>> result = nest::map(doubled, nested);
  EXPECT_EQ(std::get<0>(std::get<0>(result)), 2);
}

TEST(NestMap, KeepsArraysAlsoOfOneArray) {
  EXPECT_THAT(nest::map(doubled, std::array{1, 2}), ElementsAre(2, 4));
  const std::array<std::array<int, 1>, 1> result =
      nest::map(doubled, std::array<std::array<int, 1>, 1>{{{5}}});
  EXPECT_EQ(result[0][0], 10);
}

TEST(NestMap, KeepsLists) {
  EXPECT_THAT(nest::map(doubled, std::vector{1, 2, 3}), ElementsAre(2, 4, 6));
  EXPECT_TRUE(nest::map(doubled, std::vector<int>()).empty());
}

TEST(NestMap, KeepsTheKeysOfMaps) {
  const std::map<std::string, int> map{{"a", 1}, {"b", 2}};
  EXPECT_EQ(nest::map(doubled, map), (std::map<std::string, int>{{"a", 2}, {"b", 4}}));
  const std::unordered_map<int, int> unordered{{7, 1}};
  EXPECT_EQ(nest::map(doubled, unordered).at(7), 2);
}

TEST(NestMap, KeepsWhetherAnOptionalHasAValue) {
  EXPECT_EQ(nest::map(doubled, std::optional(4)), std::optional(8));
  EXPECT_EQ(nest::map(doubled, std::optional<int>()), std::nullopt);
}

TEST(NestMap, MayChangeTheTypeOfLeaves) {
  const auto nested = std::pair(1, std::vector{std::tuple(2, 3)});
  const std::pair<std::string, std::vector<std::tuple<std::string, std::string>>> result =
      nest::map(as_text, nested);
  EXPECT_EQ(result.first, "1");
  EXPECT_EQ(result.second[0], std::tuple(std::string("2"), std::string("3")));
}

TEST(NestMap, GoesFromLeftToRight) {
  std::vector<int> met;
  nest::map([&](int leaf) { return met.push_back(leaf), leaf; },
            std::tuple(1, std::pair(2, std::array{3, 4}), std::vector{5}));
  EXPECT_THAT(met, ElementsAre(1, 2, 3, 4, 5));
}

TEST(NestMap, AVectorOfBoolIsALeaf) {
  const auto size = [](const std::vector<bool>& leaf) { return leaf.size(); };
  EXPECT_EQ(nest::map(size, std::vector<bool>{true, false}), 2U);
}

// zip

template <class T>
auto add(const T& a, const T& b) {
  const T* const items[] = {&a, &b};
  return nest::zip([](std::span<const int* const> leaves) { return *leaves[0] + *leaves[1]; },
                   std::span<const T* const>(items));
}

TEST(NestZip, WalksNestsSideBySide) {
  EXPECT_EQ(add(std::pair(1, std::vector{2}), std::pair(10, std::vector{20})),
            std::pair(11, std::vector{22}));
}

TEST(NestZip, NamesTheItemWithAnotherLength) {
  EXPECT_FAILS(add(std::vector{1}, std::vector{1, 2}), ValueError, "replica 1");
  EXPECT_FAILS(add(std::vector{1}, std::vector{1, 2}), ValueError, "expected 1");
}

TEST(NestZip, NamesTheItemWithOtherKeys) {
  using Map = std::map<std::string, int>;
  EXPECT_FAILS(add(Map{{"a", 1}}, Map{{"b", 1}}), ValueError, "replica 1");
  EXPECT_FAILS(add(Map{{"a", 1}}, Map{{"a", 1}, {"b", 1}}), ValueError, "other keys");
}

TEST(NestZip, NamesTheItemThatAloneHasAValue) {
  EXPECT_FAILS(add(std::optional(1), std::optional<int>()), ValueError, "replica 1");
  EXPECT_FAILS(add(std::optional<int>(), std::optional(1)), ValueError, "replica 1");
}

// visit

struct Example {
  int images;
  std::vector<int> labels;
};

TEST(NestVisit, ChangesLeavesInPlaceAlsoInStructs) {
  auto nested = std::tuple(1, Example{2, {3, 4}}, std::map<int, int>{{0, 5}}, std::optional(6),
                           std::array{7});
  nest::visit([](int& leaf) { leaf *= 10; }, nested);
  std::vector<int> leaves;
  nest::visit([&](const int& leaf) { leaves.push_back(leaf); }, std::as_const(nested));
  EXPECT_THAT(leaves, ElementsAre(10, 20, 30, 40, 50, 60, 70));
}

TEST(NestVisit, SkipsAnEmptyOptional) {
  std::optional<int> nothing;
  nest::visit([](int&) { FAIL(); }, nothing);
}

struct One {
  int a;
};
struct Twelve {
  int a, b, c, d, e, f, g, h, i, j, k, l;
};

TEST(Fields, TiesUpToTwelve) {
  One one{1};
  std::get<0>(nest::fields(one)) = 5;
  EXPECT_EQ(one.a, 5);
  const Twelve twelve{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  EXPECT_EQ(std::get<11>(nest::fields(twelve)), 12);
}

TEST(Fields, WhatIsAStruct) {
  static_assert(nest::Struct<Example>);
  static_assert(!nest::Struct<std::string>);
  static_assert(!nest::Struct<std::vector<int>>);
  static_assert(!nest::Struct<std::array<int, 2>>);
  static_assert(!nest::Struct<std::tuple<int>>);
  static_assert(!nest::Struct<int>);
}

// merge

TEST(NestMerge, MakesAPerReplicaOfEachLeaf) {
  const auto [first, rest] =
      nest::merge(std::vector{std::pair(1, std::vector{2.5}), std::pair(3, std::vector{4.5})});
  EXPECT_THAT(values_of(first), ElementsAre(1, 3));
  EXPECT_THAT(values_of(rest[0]), ElementsAre(2.5, 4.5));
}

TEST(NestMerge, WrapsAlsoEqualValuesAndOneReplica) {
  EXPECT_THAT(values_of(nest::merge(std::vector{7, 7})), ElementsAre(7, 7));
  EXPECT_THAT(values_of(nest::merge(std::vector{7})), ElementsAre(7));
}

TEST(NestMerge, TakesBools) {
  EXPECT_THAT(values_of(nest::merge(std::vector<bool>{true, false})), ElementsAre(true, false));
}

TEST(NestMerge, LetsAnOptionalBeEmptyOnSomeReplicas) {
  const PerReplica<std::optional<int>> merged =
      nest::merge(std::vector{std::optional(1), std::optional<int>()});
  EXPECT_THAT(values_of(merged), ElementsAre(std::optional(1), std::nullopt));
}

TEST(NestMerge, AStructIsALeaf) {
  const PerReplica<Example> merged = nest::merge(std::vector{Example{1, {}}, Example{2, {}}});
  EXPECT_EQ(merged.values()[1].images, 2);
}

TEST(NestMerge, KeepsTheDevices) {
  const auto devices = std::make_shared<const std::vector<Device>>(std::vector<Device>{"cpu:3"});
  EXPECT_EQ(nest::merge(std::vector{1}, devices).devices(), devices);
}

// select

TEST(NestSelect, TakesTheComponentOfEachDistributedLeaf) {
  const auto nested = std::tuple(PerReplica<int>({1, 2}), 3, std::vector{Mirrored<int>({4, 4})});
  EXPECT_EQ(nest::select(nested, 1, 2), std::tuple(2, 3, std::vector{4}));
}

TEST(NestSelect, IsTheInverseOfMerge) {
  const std::vector results{std::pair(1, std::string("a")), std::pair(2, std::string("b"))};
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(nest::select(nest::merge(results), r, 2), results[r]);
  }
}

TEST(NestSelect, RefusesTooFewAndTooManyComponents) {
  EXPECT_FAILS(nest::select(PerReplica<int>({1, 2}), 0, 3), ValueError, "2 components");
  EXPECT_FAILS(nest::select(PerReplica<int>({1, 2, 3}), 0, 2), ValueError, "3 components");
}

TEST(NestSelect, NamesTheCallThatItIsFor) {
  EXPECT_FAILS(nest::select(PerReplica<int>({1}), 0, 2), ValueError, "[strategy.run]");
  EXPECT_FAILS(nest::select(PerReplica<int>({1}), 0, 2, "strategy.local_results"), ValueError,
               "[strategy.local_results]");
}

TEST(NestSelect, AMirroredOnOneDeviceIsThatEverywhere) {
  EXPECT_EQ(nest::select(Mirrored<int>({9}), 3, 4), 9);
}

// Distributed values.

TEST(DistributedValues, PrintAnEntryForEachReplica) {
  EXPECT_EQ(cat(PerReplica<int>({1, 2})), "PerReplica:{\n  0: 1,\n  1: 2\n}");
  EXPECT_EQ(cat(Mirrored<std::string>({"x"})), "Mirrored:{\n  0: x\n}");
}

TEST(DistributedValues, CopiesShareTheirComponents) {
  const PerReplica<std::string> value({"a", "b"});
  const PerReplica<std::string> copy = value;  // NOLINT(performance-unnecessary-copy-*)
  EXPECT_EQ(copy.values().data(), value.values().data());
}

/// A value whose memory shows when it is gone.
std::shared_ptr<int> shared_number(int number) { return std::make_shared<int>(number); }

TEST(DistributedValues, MayBeGoneWhileTheirComponentsAreReadInALoop) {
  using Numbers = PerReplica<std::shared_ptr<int>>;
  const auto next = [] { return std::optional(Numbers({shared_number(3)})); };
  const auto batch = [] { return std::vector{Mirrored<std::string>({"a", "b"})}; };
  std::vector<int> met;
  for (const auto& number : Numbers({shared_number(2)}).values()) met.push_back(*number);
  for (const auto& number : next()->values()) met.push_back(*number);
  for (const bool flag : Mirrored<bool>({true, false}).values()) met.push_back(flag);
  EXPECT_THAT(met, ElementsAre(2, 3, 1, 0));
  std::string text;
  for (const std::string& each : batch()[0].values()) text += each;
  EXPECT_EQ(text, "ab");
}

TEST(DistributedValues, OfATemporaryGiveAComponentByValue) {
  const auto& first = PerReplica<std::string>({"first of a temporary", "b"}).values()[0];
  EXPECT_EQ(first, "first of a temporary");
  EXPECT_EQ(*PerReplica<std::shared_ptr<int>>({shared_number(3)}).values().front(), 3);
  EXPECT_EQ(PerReplica<std::string>({"a", "b"}).values().back(), "b");
}

TEST(DistributedValues, GiveComponentsAsAnyRange) {
  const PerReplica<int> value({3, 1, 2});
  const auto components = value.values();
  EXPECT_THAT(components, ElementsAre(3, 1, 2));
  EXPECT_EQ(std::ranges::max(components), 3);
  EXPECT_EQ(&components[1], components.data() + 1);
  const std::span<const int> span = components;
  EXPECT_EQ(span.size(), 3u);
  const std::vector<int> copy = value.values();
  EXPECT_THAT(copy, ElementsAre(3, 1, 2));
  EXPECT_TRUE(PerReplica<int>({}).values().empty());
  EXPECT_TRUE(PerReplica<int>({3, 1, 2}).values() == components);
  EXPECT_TRUE(PerReplica<int>({3, 1, 2}).values() == (std::vector{3, 1, 2}));
  const PerReplica<at::Tensor> tensors({at::ones({2}), at::zeros({2})});
  EXPECT_EQ(at::stack(tensors.values()).size(0), 2);
}

TEST(DistributedValues, OfATemporaryTellTheirDevicesByValue) {
  const DeviceList devices = std::make_shared<const std::vector<Device>>(1, Device("cpu:3"));
  static_assert(std::is_same_v<decltype(Mirrored<int>({1}, devices).devices()), DeviceList>);
  const DeviceList& kept = Mirrored<int>({1}, devices).devices();
  EXPECT_EQ(kept, devices);
}

TEST(PerReplica, HasALocalComponentOnlyInAReplica) {
  EXPECT_FAILS((PerReplica<int>({1, 2}).local()), ValueError, "not inside a replica context");
}

TEST(Mirrored, ReadsAsItsFirstComponentOutsideOfReplicas) {
  const Mirrored<int> value({7, 8});
  EXPECT_EQ(value + 1, 8);
  EXPECT_EQ(*value, 7);
  EXPECT_EQ(Mirrored<std::string>({"ab", "ab"})->size(), 2U);
}

TEST(Mirrored, OfATemporaryIsReadByValue) {
  const auto make = [] { return Mirrored<std::shared_ptr<int>>({shared_number(5)}); };
  const std::shared_ptr<int>& got = make().get();
  const std::shared_ptr<int>& pointed_to = *make();
  const std::shared_ptr<int>& converted = make();
  EXPECT_EQ(*got + *pointed_to + *converted, 15);
}

TEST(Mirrored, HasTheOperatorsOfItsValue) {
  const Mirrored<int> number({5, 5});
  EXPECT_EQ(-number, -5);
  EXPECT_EQ(~number, ~5);
  EXPECT_EQ(Mirrored<std::string>({"abc"})[1], 'b');
}

}  // namespace
}  // namespace cohort
