#include "cohort/base/environment.h"

#include <gtest/gtest.h>

#include "cohort/base/error.h"
#include "tests/base/scoped_environment.h"

namespace cohort {
namespace {

constexpr const char* kName = "COHORT_TEST_SETTING";

TEST(Environment, GivesNothingForAVariableThatIsUnsetOrEmpty) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const ScopedEnvironment variable(kName, value);
    EXPECT_FALSE(environment::text(kName));
    EXPECT_FALSE(environment::integer(kName, 1, 9));
    EXPECT_FALSE(environment::choice(kName, {"apply", "leave"}));
  }
}

TEST(Environment, GivesTheTextAsItIs) {
  const ScopedEnvironment variable(kName, " a=b ");
  EXPECT_EQ(environment::text(kName), " a=b ");
}

TEST(Environment, ReadsNumbersUpToBothBounds) {
  for (const int number : {-2, 0, 9}) {
    const ScopedEnvironment variable(kName, std::to_string(number).c_str());
    EXPECT_EQ(environment::integer(kName, -2, 9), number);
  }
}

TEST(Environment, RefusesWhatIsNotANumberInRange) {
  for (const char* value : {"0", "10", "-1", "x", "1x", " 1", "1 ", "1.5", "0x2", "99999999999"}) {
    const ScopedEnvironment variable(kName, value);
    EXPECT_THROW(environment::integer(kName, 1, 9), ValueError) << value;
  }
}

TEST(Environment, RefusesAWordThatIsNotAChoice) {
  const ScopedEnvironment variable(kName, "Leave");
  EXPECT_THROW(environment::choice(kName, {"apply", "leave"}), ValueError);
  EXPECT_EQ(environment::choice(kName, {"apply", "Leave"}), "Leave");
}

TEST(Environment, NamesTheVariableAndWhatItExpected) {
  const ScopedEnvironment variable(kName, "many");
  try {
    environment::integer(kName, 1, 9);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_STREQ(error.what(),
                 "[environment variable COHORT_TEST_SETTING] expected a whole number from 1 to 9, "
                 "got \"many\"; correct or unset COHORT_TEST_SETTING");
  }
  try {
    environment::choice(kName, {"apply", "leave"});
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("\"apply\" or \"leave\""), std::string::npos);
  }
}

}  // namespace
}  // namespace cohort
