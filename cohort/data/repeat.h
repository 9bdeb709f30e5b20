#pragma once

#include "cohort/base/error.h"
#include "cohort/data/ignore_errors.h"
#include "cohort/data/node.h"

namespace cohort::data {

/// The input `times` times, for ever with a negative number. Each pass is another epoch to the
/// stages below.
template <class T>
class Repeat : public KeepingNode<Repeat, T> {
 public:
  Repeat(TypedPtr<T> input, std::int64_t times)
      : KeepingNode<Repeat, T>(std::move(input)), times_(times) {}

  std::string name() const override {
    return times_ < 0 ? "repeat()" : cat("repeat(", times_, ')');
  }
  auto arguments() const { return std::tuple(times_); }
  std::int64_t cardinality() const override {
    const std::int64_t once = this->input_->cardinality();
    if (once == 0 || times_ == 0) return 0;
    if (times_ < 0) return kInfinite;
    return once < 0 ? once : once * times_;
  }
  IteratorPtr<T> run(const Iteration& iteration) const {
    return std::make_unique<Running>(this->input_, times_, iteration);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(TypedPtr<T> input, std::int64_t times, const Iteration& iteration)
        : input_(std::move(input)), times_(times), iteration_(iteration) {}
    bool next(T& element) override {
      while (pass_ != times_) {
        begin_pass();
        if (next_of_pass(element)) return true;
        end_pass();
      }
      return false;
    }
    Passed skip(std::int64_t count) override {
      Passed skipped;
      try {
        while (skipped.count < count && pass_ != times_) {
          begin_pass();
          skip_in_pass(count, skipped);
          if (skipped.error) return skipped;
          if (skipped.count < count) end_pass();
        }
      } catch (...) {
        ++skipped.count;
        skipped.error = std::current_exception();
      }
      return skipped;
    }
    void save(PositionWriter& position) const override {
      position.put(pass_);
      position.put(std::int64_t{gave_});
      position.put(std::int64_t{running_ != nullptr});
      if (running_) running_->save(position);
    }
    void restore(PositionReader& position) override {
      pass_ = position.get();
      gave_ = position.get() != 0;
      running_ = nullptr;
      if (position.get() == 0) return;
      running_ = input_->iterate(iteration_.inner(pass_));
      running_->restore(position);
    }

   private:
    /// A pass that can't begin is tried again only where somebody looks at the errors; else it is
    /// left out, and of endlessly many all that would follow.
    void begin_pass() {
      if (running_) return;
      try {
        running_ = input_->iterate(iteration_.inner(pass_));
      } catch (...) {
        if (iteration_.errors_are_ignored) {
          if (times_ < 0) {
            detail::warn_of_no_beginning(cat("pass ", pass_, " of repeat"),
                                         "the dataset ends here");
          }
          note_error();
          end_pass();
        }
        throw;
      }
    }
    bool next_of_pass(T& element) {
      try {
        const bool more = running_->next(element);
        gave_ = gave_ || more;
        return more;
      } catch (...) {
        note_error();
        throw;
      }
    }
    void skip_in_pass(std::int64_t count, Passed& skipped) {
      Passed some = running_->skip(count - skipped.count);
      if (some.error) note_error();
      gave_ = gave_ || some.count > (some.error ? 1 : 0);
      skipped.count += some.count;
      skipped.error = std::move(some.error);
    }
    /// The next pass may have elements all the same; but nobody waits for the last of endlessly
    /// many.
    void note_error() { gave_ = gave_ || times_ >= 0; }
    /// An empty input is not asked for ever.
    void end_pass() {
      running_ = nullptr;
      pass_ = gave_ ? pass_ + 1 : times_;
      gave_ = false;
    }

    const TypedPtr<T> input_;
    const std::int64_t times_;
    const Iteration iteration_;
    IteratorPtr<T> running_;
    std::int64_t pass_ = 0;
    bool gave_ = false;  // in this pass, or an error of finitely many passes
  };

  const std::int64_t times_;
};

}  // namespace cohort::data
