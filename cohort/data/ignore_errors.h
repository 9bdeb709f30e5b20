#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/base/home_process.h"
#include "cohort/base/log.h"
#include "cohort/data/node.h"

namespace cohort::data {

/// How many elements `ignore_errors` has left out.
class ErrorCount {
 public:
  void add() { ++*count_; }
  std::int64_t get() const { return *count_; }

 private:
  std::shared_ptr<std::atomic<std::int64_t>> count_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
};

struct IgnoreErrorsOptions {
  bool log_warning = false;  ///< Each of them.
  ErrorCount count = {};     ///< Keep a copy to ask it how many there were.
};

namespace detail {

/// Whether nothing says that the stage will ever end: a source that nobody can count, or one that
/// is repeated for ever.
bool may_be_endless(const Node& node);

/// Called when the input has failed so many times without an element between; true if it is not to
/// be asked again. A warning says so, and another one, now and then, before.
bool gives_up_after(std::int64_t errors, bool is_endless, std::string_view last_error);

/// Called while an exception is handled with which a stage could not begin: logs that it is left
/// out, and why.
void warn_of_no_beginning(std::string_view stage, std::string_view what_is_left_out);

}  // namespace detail

/// The input without the elements that could not be made.
///
/// Always ends where its input does. An input that goes on and on without an element (each one of
/// an endless dataset fails) ends after a million errors.
template <class T>
class IgnoreErrors : public UnaryNode<T> {
 public:
  IgnoreErrors(TypedPtr<T> input, ErrorCount count, bool log_warning)
      : UnaryNode<T>(std::move(input)), count_(std::move(count)), log_warning_(log_warning) {}

  std::string name() const override { return "ignore_errors"; }
  Node::Role role() const override { return Node::Role::KEEPS; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<IgnoreErrors>(typed<T>(inputs[0]), count_, log_warning_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t all = this->input_->cardinality();
    return all > 0 ? kUnknownCardinality : all;
  }
  ElementSpec spec() const override { return this->input_->spec(); }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    Iteration of_input = iteration;
    of_input.errors_are_ignored = true;
    return std::make_unique<Running>(this->input_->iterate(of_input), count_, log_warning_,
                                     detail::may_be_endless(*this->input_));
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, ErrorCount count, bool log_warning, bool is_endless)
        : input_(std::move(input)),
          count_(std::move(count)),
          log_warning_(log_warning),
          is_endless_(is_endless) {}
    bool next(T& element) override {
      for (std::int64_t errors = 0; !gave_up_;) {
        try {
          return input_->next(element);
        } catch (const std::exception& error) {
          if (!process_.is_current()) throw;  // after a fork the input throws for ever
          count_.add();
          if (log_warning_) log::warning(cat("dataset.ignore_errors: ", error.what()));
          gave_up_ = detail::gives_up_after(++errors, is_endless_, error.what());
        }
      }
      return false;
    }
    void save(PositionWriter& position) const override { input_->save(position); }
    void restore(PositionReader& position) override { input_->restore(position); }

   private:
    const HomeProcess process_;
    const IteratorPtr<T> input_;
    ErrorCount count_;
    const bool log_warning_, is_endless_;
    bool gave_up_ = false;
  };

  const ErrorCount count_;
  const bool log_warning_;
};

}  // namespace cohort::data
