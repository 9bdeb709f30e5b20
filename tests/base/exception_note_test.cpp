#include "cohort/base/exception_note.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cohort/base/error.h"
#include "tests/base/captured_log.h"
#include "tests/base/failing.h"

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

TEST(ExceptionNote, StandsInTheTextThatAClassOfTheUsersOwnInherits) {
  struct Own final : std::runtime_error {
    explicit Own(int number) : std::runtime_error("boom"), number(number) {}
    int number;
  };
  struct Titled : std::out_of_range {
    using std::out_of_range::out_of_range;
    const char* what() const noexcept override {
      text = cat("title: ", std::out_of_range::what());
      return text.c_str();
    }
    mutable std::string text;
  };
  EXPECT_EQ(text_with_note(Own(7)), "boom (in replica 2)");
  EXPECT_EQ(text_with_note(Titled("boom")), "title: boom (in replica 2)");
  EXPECT_EQ(text_with_note(std::system_error(std::make_error_code(std::errc::io_error), "disk")),
            cat("disk: ", std::make_error_code(std::errc::io_error).message(), " (in replica 2)"));
  try {
    std::rethrow_exception(with_note(std::make_exception_ptr(Own(7)), "in replica 2"));
  } catch (const Own& own) {
    EXPECT_EQ(own.number, 7);
  }
}

struct Numbered : std::runtime_error {
  explicit Numbered(int number) : std::runtime_error("boom"), number(number) {}
  int number;
};

/// The texts that an exception has, by itself and with a note, while somebody else holds it.
template <class Class>
std::pair<std::string, std::string> texts_of_a_kept_one(const Class& error) {
  const auto kept = std::make_exception_ptr(error);
  const auto text_of = [](const std::exception_ptr& each) {
    try {
      std::rethrow_exception(each);
    } catch (const Class& e) {
      EXPECT_EQ(typeid(e).name(), typeid(Class).name());
      return std::string(e.what());
    }
  };
  std::string text;
  try {
    std::rethrow_exception(kept);
  } catch (...) {
    text = text_of(with_note(std::current_exception(), "in replica 2"));
  }
  return {text_of(kept), text};
}

TEST(ExceptionNote, IsNotWrittenIntoAnExceptionThatSomebodyElseHolds) {
  using testing::Pair;
  const CapturedLog log;
  EXPECT_THAT(texts_of_a_kept_one(NotFound("open", "boom")),
              Pair("[open] boom", "[open] boom (in replica 2)"));
  EXPECT_THAT(texts_of_a_kept_one(std::out_of_range("boom")), Pair("boom", "boom (in replica 2)"));
  EXPECT_THAT(texts_of_a_kept_one(c10::IndexError({"f", "file", 1}, "boom")),
              Pair(testing::Not(HasSubstr("replica")), HasSubstr("in replica 2")));
  EXPECT_THAT(log.lines(), testing::IsEmpty());
  EXPECT_THAT(texts_of_a_kept_one(Numbered(7)), Pair("boom", "boom"));
  EXPECT_EQ(log.count(log::Level::ERROR, "(in replica 2): boom"), 1);
}

TEST(ExceptionNote, StandsInTheTextOfAnExceptionThatIsBeingHandled) {
  try {
    throw Numbered(7);
  } catch (...) {
    try {
      std::rethrow_exception(with_note(std::current_exception(), "in replica 2"));
    } catch (const Numbered& error) {
      EXPECT_STREQ(error.what(), "boom (in replica 2)");
    }
  }
}

TEST(ExceptionNote, OfAnExceptionThatSeveralThreadsHandleAtOnce) {
  std::promise<void> promise;
  const std::shared_future<void> future = promise.get_future();
  promise.set_exception(std::make_exception_ptr(InvalidArgument("load", "boom")));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&future, t] {
      for (int i = 0; i < 200; ++i) {
        try {
          future.get();
        } catch (...) {
          const auto made = with_note(std::current_exception(), cat("of thread ", t));
          EXPECT_EQ(failure_of([&] { std::rethrow_exception(made); }),
                    cat("InvalidArgument: [load] boom (of thread ", t, ')'));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FAILS(future.get(), InvalidArgument, "[load] boom");
}

TEST(ExceptionNote, OfAClassThatMakesItsOwnTextGoesToTheLog) {
  struct Own : std::exception {
    const char* what() const noexcept override { return "boom"; }
  };
  const CapturedLog log;
  EXPECT_EQ(text_with_note(Own()), "boom");
  EXPECT_EQ(log.count(log::Level::ERROR, "(in replica 2): boom"), 1);
  try {
    std::rethrow_exception(with_note(std::make_exception_ptr(42), "in replica 3"));
  } catch (const int value) {
    EXPECT_EQ(value, 42);
  }
  EXPECT_EQ(log.count(log::Level::ERROR, "in replica 3"), 1);
  EXPECT_EQ(with_note(std::make_exception_ptr(Own()), "in replica 4", log::Level::INFO) != nullptr,
            true);
  EXPECT_EQ(log.count(log::Level::INFO, "(in replica 4): boom"), 1);
}

}  // namespace
}  // namespace cohort
