#pragma once

#include "cohort/base/error.h"
#include "cohort/base/home_process.h"
#include "cohort/base/log.h"
#include "cohort/base/mutex.h"
#include "cohort/data/node.h"

namespace cohort::data {

/// Keeps the elements of the first full pass without an error, and gives them in all later ones.
/// Copies of the dataset, and datasets made of it, share them.
template <class T>
class Cache : public UnaryNode<T> {
 public:
  struct Store {
    Mutex mutex;
    std::shared_ptr<const std::vector<T>> all COHORT_GUARDED_BY(mutex);  // null: not yet
  };

  explicit Cache(TypedPtr<T> input, std::shared_ptr<Store> store = std::make_shared<Store>())
      : UnaryNode<T>(std::move(input)), store_(std::move(store)) {}

  std::string name() const override { return "cache"; }
  Node::Role role() const override { return Node::Role::KEEPS; }
  /// Other inputs have other elements.
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    auto input = typed<T>(inputs[0]);
    if (input == this->input_) return std::make_shared<Cache>(std::move(input), store_);
    return std::make_shared<Cache>(std::move(input));
  }
  ElementSpec spec() const override { return this->input_->spec(); }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), store_);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, std::shared_ptr<Store> store)
        : input_(std::move(input)), store_(std::move(store)), all_(stored()) {}
    bool next(T& element) override {
      if (all_) {
        if (given_ >= all_->size()) return false;
        element = (*all_)[given_++];
        return true;
      }
      ++given_;
      try {
        if (input_->next(element)) {
          seen_.push_back(element);
          return true;
        }
      } catch (...) {
        is_whole_ = false;
        throw;
      }
      --given_;
      if (is_whole_) finish();
      return false;
    }
    void save(PositionWriter& position) const override {
      position.put(static_cast<std::int64_t>(given_));
    }
    /// What is not kept any more is read again.
    void restore(PositionReader& position) override {
      const auto given = position.get();
      if (all_) {
        given_ = static_cast<std::size_t>(given);
      } else {
        this->skip(given);
      }
    }

   private:
    std::shared_ptr<const std::vector<T>> stored() const {
      const MutexLock lock(store_->mutex);
      return store_->all;
    }
    void finish() {
      const MutexLock lock(store_->mutex);
      if (!store_->all) store_->all = std::make_shared<const std::vector<T>>(std::move(seen_));
      all_ = store_->all;
      given_ = all_->size();
    }

    const IteratorPtr<T> input_;
    const std::shared_ptr<Store> store_;
    std::shared_ptr<const std::vector<T>> all_;
    std::vector<T> seen_;
    bool is_whole_ = true;  // no element has failed: what was seen is all there is
    std::size_t given_ = 0;
  };

  const std::shared_ptr<Store> store_;
};

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

/// The input without the elements that could not be made.
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
    return std::make_unique<Running>(this->input_->iterate(iteration), count_, log_warning_);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, ErrorCount count, bool log_warning)
        : input_(std::move(input)), count_(std::move(count)), log_warning_(log_warning) {}
    bool next(T& element) override {
      for (;;) {
        try {
          return input_->next(element);
        } catch (const std::exception& error) {
          if (!process_.is_current()) throw;  // after a fork the input throws for ever
          count_.add();
          if (log_warning_) log::warning(cat("dataset.ignore_errors: ", error.what()));
        }
      }
    }
    void save(PositionWriter& position) const override { input_->save(position); }
    void restore(PositionReader& position) override { input_->restore(position); }

   private:
    const HomeProcess process_;
    const IteratorPtr<T> input_;
    ErrorCount count_;
    const bool log_warning_;
  };

  const ErrorCount count_;
  const bool log_warning_;
};

}  // namespace cohort::data
