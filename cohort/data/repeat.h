#pragma once

#include "cohort/base/error.h"
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
        if (!running_) running_ = input_->iterate(iteration_.inner(pass_));
        if (running_->next(element)) {
          gave_ = true;
          return true;
        }
        end_pass();
      }
      return false;
    }
    std::int64_t skip(std::int64_t count) override {
      std::int64_t skipped = 0;
      while (skipped < count && pass_ != times_) {
        if (!running_) running_ = input_->iterate(iteration_.inner(pass_));
        const std::int64_t some = running_->skip(count - skipped);
        gave_ = gave_ || some > 0;
        skipped += some;
        if (skipped < count) end_pass();
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
    bool gave_ = false;  // in this pass
  };

  const std::int64_t times_;
};

}  // namespace cohort::data
