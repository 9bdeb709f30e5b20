#include "cohort/data/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/base/failing.h"

namespace cohort::data {
namespace {

using Sizes = std::vector<std::int64_t>;
using testing::ElementsAre;

const std::string kZeroInside("a\0b", 3);

/// 2 × 3 strings in one block.
Strings two_rows() { return Strings({"a", "bc", "", "def", "g", "hij"}).reshape({2, 3}); }

TEST(Strings, AreNoneByDefault) {
  const Strings none;
  EXPECT_EQ(none.sizes(), Sizes{0});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_THAT(none, ElementsAre());
  EXPECT_EQ(none, Strings(std::vector<std::string>()));
}

TEST(Strings, CopyWhatTheyAreMadeOf) {
  std::vector<std::string> source = {"one", "", kZeroInside};
  const Strings strings(source);
  source[0] = "two";
  EXPECT_EQ(strings.sizes(), Sizes{3});
  EXPECT_THAT(strings, ElementsAre("one", "", kZeroInside));
  const std::vector<std::string_view> views = {"x", "yz"};
  EXPECT_THAT(Strings(views), ElementsAre("x", "yz"));
}

TEST(Strings, PointIntoABlockThatTheyShare) {
  std::shared_ptr<char[]> block(new char[6]{'a', 'b', 'c', 'd', 'e', 'f'});
  const Strings strings(block, {{4, 2}, {0, 3}, {6, 0}});
  EXPECT_THAT(strings, ElementsAre("ef", "abc", ""));
  EXPECT_EQ(strings[1].data(), block.get());
}

TEST(Strings, KeepTheirBlockAlive) {
  Strings row;
  { row = Strings({"first", "second"}).select(1); }
  EXPECT_EQ(row.str(), "second");
}

TEST(Strings, OfNoDimensionsAreOneString) {
  const Strings scalar = Strings::scalar("hello");
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.str(), "hello");
  EXPECT_FAILS(Strings({"hello"}).str(), ValueError, "sizes [1]");
}

TEST(Strings, HaveSizesAsATensorHas) {
  EXPECT_EQ(two_rows().size(0), 2);
  EXPECT_EQ(two_rows().size(1), 3);
  EXPECT_EQ(two_rows().size(-1), 3);
  EXPECT_FAILS(two_rows().size(2), ValueError, "no dimension 2 in [2, 3]");
  EXPECT_FAILS(Strings::scalar("").size(0), ValueError, "no dimension 0 in []");
}

TEST(Strings, AreCountedInRowMajorOrder) {
  EXPECT_EQ(two_rows()[3], "def");
  EXPECT_FAILS(two_rows()[6], ValueError, "no string 6 of 6");
  EXPECT_FAILS(two_rows()[-1], ValueError, "no string -1 of 6");
}

TEST(Strings, GiveRowsWithoutCopyingThem) {
  const Strings all = two_rows();
  EXPECT_EQ(all.select(1).sizes(), Sizes{3});
  EXPECT_THAT(all.select(1), ElementsAre("def", "g", "hij"));
  EXPECT_EQ(all.select(1)[0].data(), all[3].data());
  EXPECT_EQ(all.select(1).select(2).str(), "hij");
  EXPECT_FAILS(all.select(2), ValueError, "no row 2 in [2, 3]");
  EXPECT_FAILS(Strings::scalar("").select(0), ValueError, "no row 0 in []");
}

TEST(Strings, GiveRangesOfRowsWithoutCopyingThem) {
  const Strings all = two_rows();
  EXPECT_EQ(all.slice(1, 2).sizes(), (Sizes{1, 3}));
  EXPECT_THAT(all.slice(1, 2), ElementsAre("def", "g", "hij"));
  EXPECT_EQ(all.slice(0, 2).slice(1, 2)[0].data(), all[3].data());
  EXPECT_EQ(all.slice(1, 1).sizes(), (Sizes{0, 3}));
  EXPECT_FAILS(all.slice(1, 3), ValueError, "rows 1 to 3 are not in [2, 3]");
  EXPECT_FAILS(all.slice(2, 1), ValueError, "rows 2 to 1");
}

TEST(Strings, TakeAnotherShape) {
  EXPECT_EQ(two_rows().reshape({3, 2})[2], two_rows()[2]);
  EXPECT_EQ(two_rows().reshape({-1}).sizes(), Sizes{6});
  EXPECT_EQ(two_rows().reshape({1, -1, 2}).sizes(), (Sizes{1, 3, 2}));
  EXPECT_EQ(Strings({"x"}).reshape({}).str(), "x");
  EXPECT_FAILS(two_rows().reshape({4}), ValueError, "6 strings can't have the sizes [4]");
  EXPECT_FAILS(two_rows().reshape({4, -1}), ValueError, "[4, -1]");
  EXPECT_FAILS(two_rows().reshape({-1, -1}), ValueError, "[-1, -1]");
  EXPECT_FAILS(two_rows().reshape({-2, -3}), ValueError, "[-2, -3]");
  EXPECT_FAILS(Strings().reshape({0, -1}), ValueError, "[0, -1]");
  EXPECT_FAILS(two_rows().reshape({1LL << 62, 1LL << 62}), ValueError, "6 strings");
}

TEST(Strings, GivePartsOfThemselvesWithoutCopyingThem) {
  const Strings all({"key=value", "k=v"});
  const std::vector<std::string_view> values = {all[1].substr(2), all[0].substr(4), ""};
  const Strings parts = all.within(values);
  EXPECT_THAT(parts, ElementsAre("v", "value", ""));
  EXPECT_EQ(parts[1].data(), all[0].data() + 4);
}

TEST(StringsStack, MakesANewFirstDimension) {
  const std::vector<Strings> rows = {Strings({"a", "b"}), Strings({"c", kZeroInside})};
  const Strings stacked = Strings::stack(rows);
  EXPECT_EQ(stacked.sizes(), (Sizes{2, 2}));
  EXPECT_THAT(stacked, ElementsAre("a", "b", "c", kZeroInside));
  const std::vector<Strings> scalars = {Strings::scalar("x"), Strings::scalar("y")};
  EXPECT_EQ(Strings::stack(scalars), Strings({"x", "y"}));
}

TEST(StringsStack, CopiesNothingOutOfOneBlock) {
  const Strings all = two_rows();
  const std::vector<Strings> rows = {all.select(1), all.select(0)};
  EXPECT_EQ(Strings::stack(rows)[0].data(), all[3].data());
}

TEST(StringsStack, NamesTheShapesThatDiffer) {
  const std::vector<Strings> rows = {Strings({"a", "b"}), Strings({"c"})};
  EXPECT_FAILS(Strings::stack(rows), InvalidArgument,
               "row 1 has sizes [1], expected [2] as of row 0");
  EXPECT_FAILS(Strings::stack({}), InvalidArgument, "there are no rows");
}

TEST(StringsCat, JoinsRows) {
  const std::vector<Strings> parts = {two_rows(), two_rows().slice(0, 1), two_rows().slice(0, 0)};
  const Strings joined = Strings::cat(parts);
  EXPECT_EQ(joined.sizes(), (Sizes{3, 3}));
  EXPECT_EQ(joined.select(2), two_rows().select(0));
}

TEST(StringsCat, NamesTheShapesThatDiffer) {
  const std::vector<Strings> parts = {two_rows(), Strings({"a", "b"})};
  EXPECT_FAILS(Strings::cat(parts), InvalidArgument, "part 1 has sizes [2], part 0 [2, 3]");
  const std::vector<Strings> scalars = {Strings::scalar("x"), Strings::scalar("y")};
  EXPECT_FAILS(Strings::cat(scalars), InvalidArgument, "part 0 has sizes []");
  EXPECT_FAILS(Strings::cat({}), InvalidArgument, "there are no parts");
}

TEST(Strings, CompareByShapeAndBytes) {
  EXPECT_EQ(two_rows(), two_rows());
  EXPECT_NE(two_rows(), two_rows().reshape({3, 2}));
  EXPECT_NE(Strings({"a"}), Strings({"b"}));
  EXPECT_NE(Strings({"a"}), Strings::scalar("a"));
}

template <class T>
concept HasBegin = requires(T&& strings) { std::forward<T>(strings).begin(); };

TEST(Strings, OfATemporaryGiveWhatTheCallerKeeps) {
  const auto strings = [] { return Strings({"ada", "grace"}); };
  static_assert(std::is_same_v<decltype(strings().sizes()), std::vector<std::int64_t>>);
  static_assert(HasBegin<const Strings&> && !HasBegin<Strings>);
  std::int64_t product = 1;
  for (const std::int64_t size : strings().reshape({2, 1}).sizes()) product *= size;
  EXPECT_EQ(product, 2);
  std::string all;
  for (const std::string_view each : strings()) all += each.back();
  EXPECT_EQ(all, "ae");
}

TEST(Strings, PrintAFew) {
  std::ostringstream out;
  out << Strings({"a\"b", std::string("\x00\xff", 2)}) << Strings(std::vector<std::string>(9, "x"))
      << Strings::scalar(std::string(40, 'y'));
  EXPECT_EQ(out.str(),
            "Strings[2]{\"a\\\"b\", \"\\x00\\xff\"}"
            "Strings[9]{\"x\", \"x\", \"x\", \"x\", \"x\", \"x\", …}"
            "Strings[]{\"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\"… (40 bytes)}");
}

}  // namespace
}  // namespace cohort::data
