#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/variables/variable_fixture.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
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

struct CreatorScopes : VariablesOnLayouts {
  using VariablesOnLayouts::VariablesOnLayouts;
};
ON_ALL_LAYOUTS(CreatorScopes);

TEST_ON_EACH_WORKER(CreatorScopes, AroundAScopeSeesEachLocalCopy) {
  Notes notes;
  const VariableCreatorScope hook(notes.hook());
  const auto scope = strategy.scope();
  const Variable v(1.0f, {.name = "w"});
  std::vector<std::string> names;
  const std::vector<int> copies = owners(v);
  for (int i = 0; i < n_here; ++i) {
    if (copies[i] == i) names.push_back(v.component_name(i));
  }
  EXPECT_THAT(notes.asked, ElementsAreArray(names));
  EXPECT_THAT(notes.kinds, ElementsAreArray(std::vector<std::string>(names.size(), "Variable")));
  EXPECT_STREQ(v.kind_name(), "MirroredVariable");
}

TEST(VariableCreatorScope, AroundAScopeNamesTheCopies) {
  Notes notes;
  const VariableCreatorScope hook(notes.hook());
  const VariableWords world = two_replicas();
  const auto scope = world.strategy.scope();
  const Variable v(1.0f, {.name = "w"});
  EXPECT_THAT(notes.asked, ElementsAre("w", "w/replica_1"));
}

TEST_ON_EACH_WORKER(CreatorScopes, InsideAScopeSeesTheWholeVariable) {
  Notes notes;
  const auto scope = strategy.scope();
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

TEST_ON_EACH_WORKER(CreatorScopes, MayChangeTheValueAndTheChiefsCounts) {
  const VariableCreatorScope hook([&](const NextCreator& next, VariableRequest request) {
    if (request.options.name == "w") {
      request.initial_value = [&] { return at::scalar_tensor(7.0f + first_here); };
    }
    return next(std::move(request));
  });
  const auto scope = strategy.scope();
  EXPECT_EQ(components(Variable(1.0f, {.name = "w"})), here(7));
}

TEST_ON_EACH_WORKER(CreatorScopes, MustMakeCopiesThatAreAlike) {
  if (extended().worker_devices().size() == 1) return;  // one copy
  std::int64_t size = 0;
  const VariableCreatorScope hook([&](const NextCreator& next, VariableRequest request) {
    request.initial_value = [&] { return at::zeros({++size}); };
    return next(std::move(request));
  });
  const auto scope = strategy.scope();
  EXPECT_FAILS(Variable(1.0f, {.name = "w"}), ValueError, "copies of 'w' that differ");
}

TEST(VariableCreatorScope, EndsWithItsBlock) {
  Notes notes;
  { const VariableCreatorScope hook(notes.hook()); }
  const Variable v(1.0f);
  EXPECT_THAT(notes.asked, IsEmpty());
}

TEST_ON_EACH_WORKER(CreatorScopes, OfTheCallerIsAskedByTheFirstReplicaOfAWorkerOnly) {
  Notes notes;
  const auto scope = strategy.scope();
  const VariableCreatorScope hook(notes.hook());
  strategy.run([] { return Variable(1.0f, {.name = "w"}); });
  EXPECT_THAT(notes.asked, ElementsAre("w"));
}

TEST_ON_EACH_WORKER(CreatorScopes, InsideOfRunIsAskedByEveryReplica) {
  const auto asked = strategy.run([] {
    Notes notes;
    const VariableCreatorScope hook(notes.hook());
    const Variable v(1.0f, {.name = "w"});
    return static_cast<int>(notes.asked.size());
  });
  EXPECT_EQ(values_of(asked), std::vector<int>(n_here, 1));
}

TEST_ON_EACH_WORKER(CreatorScopes, AScopeCantEndAroundAnOpenOne) {
  auto scope = strategy.scope();
  {
    const VariableCreatorScope hook(Notes().hook());
    EXPECT_FAILS(scope.exit(), RuntimeError, "Variable creator scope nesting error");
  }
  scope.exit();
  EXPECT_FALSE(has_strategy());
}

TEST_ON_EACH_WORKER(CreatorScopes, MakingAVariableWhileAnotherStrategyIsCurrentIsMixing) {
  const VariableWords other = two_replicas();
  EXPECT_FAILS(
      {
        auto scope = strategy.scope();
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
