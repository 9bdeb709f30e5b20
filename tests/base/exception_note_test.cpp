#include "cohort/base/exception_note.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <typeinfo>

#include "cohort/base/error.h"
#include "tests/base/captured_log.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

/// Expects that an exception with a note is still of its own class, and returns its text.
template <class Class>
std::string text_with_note(const Class& error) {
  try {
    std::rethrow_exception(with_note(std::make_exception_ptr(error), "in replica 2"));
  } catch (const std::exception& e) {
    EXPECT_EQ(typeid(e).name(), typeid(Class).name());
    return e.what();
  }
}

TEST(ExceptionNote, StandsInTheTextOfStandardExceptions) {
  EXPECT_EQ(text_with_note(std::invalid_argument("stof")), "stof (in replica 2)");
  EXPECT_EQ(text_with_note(std::runtime_error("boom")), "boom (in replica 2)");
  EXPECT_EQ(text_with_note(std::out_of_range("at")), "at (in replica 2)");
}

TEST(ExceptionNote, StandsInTheTextOfCohortsErrorsOnce) {
  EXPECT_EQ(text_with_note(ValueError("run", "boom")), "[run] boom (in replica 2)");
  ValueError noted("run", "boom");
  noted.add_note("in replica 2");
  EXPECT_EQ(text_with_note(noted), "[run] boom (in replica 2)");
}

TEST(ExceptionNote, StandsInTheTextOfLibTorchsErrors) {
  const std::string text = text_with_note(c10::IndexError({"f", "file", 1}, "out of range"));
  EXPECT_THAT(text, HasSubstr("out of range"));
  EXPECT_THAT(text, HasSubstr("in replica 2"));
}

TEST(ExceptionNote, OfAClassOfTheUsersOwnGoesToTheLog) {
  struct Own : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  const CapturedLog log;
  EXPECT_EQ(text_with_note(Own("boom")), "boom");
  EXPECT_EQ(log.count(log::Level::ERROR, "(in replica 2): boom"), 1);
  try {
    std::rethrow_exception(with_note(std::make_exception_ptr(42), "in replica 3"));
  } catch (const int value) {
    EXPECT_EQ(value, 42);
  }
  EXPECT_EQ(log.count(log::Level::ERROR, "in replica 3"), 1);
}

}  // namespace
}  // namespace cohort
