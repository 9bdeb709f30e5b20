#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A hook that notes what it is asked for and what becomes of it.
struct Notes {
  std::vector<std::string> asked, kinds;
  VariableCreator hook() {
    return [this](const NextCreator& next, VariableRequest request) {
      asked.push_back(request.options.name);
      const Variable made = next(std::move(request));
      kinds.push_back(made.kind_name());
      return made;
    };
  }
};

TEST(VariableCreatorScope, AroundAScopeSeesEachCopy) {
  Notes notes;
  const VariableCreatorScope hook(notes.hook());
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  const Variable v(1.0f, {.name = "w"});
  EXPECT_THAT(notes.asked, ElementsAre("w", "w/replica_1"));
  EXPECT_THAT(notes.kinds, ElementsAre("Variable", "Variable"));
  EXPECT_STREQ(v.kind_name(), "MirroredVariable");
}

TEST(VariableCreatorScope, InsideAScopeSeesTheWholeVariable) {
  Notes notes;
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  const VariableCreatorScope hook(notes.hook());
  const Variable v(1.0f, {.name = "w"});
  EXPECT_THAT(notes.asked, ElementsAre("w"));
  EXPECT_THAT(notes.kinds, ElementsAre("MirroredVariable"));
}

TEST(VariableCreatorScope, TheInnermostIsAskedFirst) {
  std::vector<int> order;
  const auto hook = [&](int number) {
    return [&order, number](const NextCreator& next, VariableRequest request) {
      order.push_back(number);
      return next(std::move(request));
    };
  };
  const VariableCreatorScope outer(hook(1)), inner(hook(2));
  const Variable v(1.0f);
  EXPECT_THAT(order, ElementsAre(2, 1));
}

TEST(VariableCreatorScope, MayChangeWhatIsMade) {
  const VariableCreatorScope hook([](const NextCreator& next, VariableRequest request) {
    request.options.name = "renamed";
    request.initial_value = [] { return at::scalar_tensor(7.0f); };
    return next(std::move(request));
  });
  const Variable v(1.0f);
  EXPECT_EQ(v.name(), "renamed");
  EXPECT_EQ(number(v), 7);
}

TEST(VariableCreatorScope, MustMakeCopiesThatAreAlike) {
  std::int64_t size = 0;
  const VariableCreatorScope hook([&](const NextCreator& next, VariableRequest request) {
    request.initial_value = [&] { return at::zeros({++size}); };
    return next(std::move(request));
  });
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  EXPECT_FAILS(Variable(1.0f, {.name = "w"}), ValueError, "copies of 'w' that differ");
}

TEST(VariableCreatorScope, EndsWithItsBlock) {
  Notes notes;
  { const VariableCreatorScope hook(notes.hook()); }
  const Variable v(1.0f);
  EXPECT_THAT(notes.asked, IsEmpty());
}

TEST(VariableCreatorScope, OfTheCallerIsAskedByReplica0Only) {
  Notes notes;
  const VariableWords world = four_replicas_on_two_devices();
  const auto scope = world.strategy.scope();
  const VariableCreatorScope hook(notes.hook());
  world.strategy.run([] { return Variable(1.0f, {.name = "w"}); });
  EXPECT_THAT(notes.asked, ElementsAre("w"));
}

TEST(VariableCreatorScope, InsideOfRunIsAskedByEveryReplica) {
  const VariableWords world = two_replicas();
  const auto asked = world.strategy.run([] {
    Notes notes;
    const VariableCreatorScope hook(notes.hook());
    const Variable v(1.0f, {.name = "w"});
    return static_cast<int>(notes.asked.size());
  });
  EXPECT_EQ(asked.values()[0], 1);
  EXPECT_EQ(asked.values()[1], 1);
}

TEST(VariableCreatorScope, AScopeCantEndAroundAnOpenOne) {
  const VariableWords world = two_replicas();
  auto scope = world.strategy.scope();
  {
    const VariableCreatorScope hook(Notes().hook());
    EXPECT_FAILS(scope.exit(), RuntimeError, "Variable creator scope nesting error");
  }
  scope.exit();
  EXPECT_FALSE(has_strategy());
}

TEST(VariableCreatorScope, MakingAVariableWhileAnotherStrategyIsCurrentIsMixing) {
  const VariableWords world = two_replicas(), other = two_replicas();
  EXPECT_FAILS(
      {
        auto scope = world.strategy.scope();
        const VariableCreatorScope hook([&](const NextCreator& next, VariableRequest request) {
          const auto inner = other.strategy.scope();
          return next(std::move(request));
        });
        const Variable v(1.0f);
      },
      RuntimeError, "Mixing different");
}

}  // namespace
}  // namespace cohort
