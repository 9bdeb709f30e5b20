#pragma once

#include "cohort/base/error.h"
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
        if (given_ >= kept()) return false;
        element = (*all_)[given_++];
        return true;
      }
      try {
        if (next_counted(*input_, element, given_)) {
          seen_.push_back(element);
          return true;
        }
      } catch (...) {
        ++errors_;
        throw;
      }
      if (errors_ == 0) finish();
      return false;
    }
    void save(PositionWriter& position) const override {
      position.put(given_);
      position.put(errors_);
    }
    /// What is not kept any more is read again.
    void restore(PositionReader& position) override {
      const std::int64_t given = position.get();
      const std::int64_t errors = position.get();
      if (all_) {
        given_ = given;
      } else {
        this->retrace(given, errors);
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
      given_ = kept();
    }
    std::int64_t kept() const { return static_cast<std::int64_t>(all_->size()); }

    const IteratorPtr<T> input_;
    const std::shared_ptr<Store> store_;
    std::shared_ptr<const std::vector<T>> all_;
    std::vector<T> seen_;
    std::int64_t given_ = 0;   // elements, with those that could not be made
    std::int64_t errors_ = 0;  // of these; 0: what was seen is all there is
  };

  const std::shared_ptr<Store> store_;
};

}  // namespace cohort::data
