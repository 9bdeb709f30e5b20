#pragma once

#include <optional>

#include "cohort/data/node.h"
#include "cohort/data/user_function.h"

namespace cohort::data {

/// The numbers 0 … count-1, in order.
class RowNumbers : public TypedNode<std::int64_t> {
 public:
  explicit RowNumbers(std::int64_t count) : count_(count) {}

  std::string name() const override { return "rows"; }
  Role role() const override { return Role::SOURCE; }
  NodePtr with_inputs(std::vector<NodePtr>) const override {
    return std::make_shared<RowNumbers>(count_);
  }
  std::int64_t cardinality() const override { return count_; }
  ElementSpec spec() const override { return spec_of(std::int64_t{}); }
  IteratorPtr<std::int64_t> iterate(const Iteration&) const override {
    return std::make_unique<Running>(count_);
  }

 private:
  class Running : public Iterator<std::int64_t> {
   public:
    explicit Running(std::int64_t count) : count_(count) {}
    bool next(std::int64_t& row) override {
      if (next_ >= count_) return false;
      row = next_++;
      return true;
    }
    Passed skip(std::int64_t count) override {
      const std::int64_t skipped = std::min(count, count_ - next_);
      next_ += skipped;
      return {skipped};
    }
    void save(PositionWriter& position) const override { position.put(next_); }
    void restore(PositionReader& position) override { next_ = position.get(); }

   private:
    const std::int64_t count_;
    std::int64_t next_ = 0;
  };

  const std::int64_t count_;
};

/// The rows of these numbers.
template <class T>
class RowsIterator : public Iterator<T> {
 public:
  RowsIterator(std::shared_ptr<const Rows<T>> rows, IteratorPtr<std::int64_t> numbers,
               const Iteration& iteration)
      : rows_(std::move(rows)), numbers_(std::move(numbers)) {
    if (const char* stage = rows_->made_by()) make_.emplace(stage, iteration);
  }

  bool next(T& element) override {
    std::int64_t row = 0;
    if (!numbers_->next(row)) return false;
    element = make_ ? (*make_)(row, [&] { return rows_->at(row); }) : rows_->at(row);
    return true;
  }
  Passed gather(std::int64_t count, Gathered<T>& batch) override {
    if (make_) return Iterator<T>::gather(count, batch);
    wanted_.clear();
    Passed passed = numbers_->pass(count, [&](std::int64_t row) { wanted_.push_back(row); });
    try {
      batch.add(rows_->gather(wanted_), static_cast<std::int64_t>(wanted_.size()));
    } catch (...) {
      passed.error = std::current_exception();
    }
    return passed;
  }
  Passed skip(std::int64_t count) override { return numbers_->skip(count); }
  void save(PositionWriter& position) const override { numbers_->save(position); }
  void restore(PositionReader& position) override { numbers_->restore(position); }

 private:
  const std::shared_ptr<const Rows<T>> rows_;
  const IteratorPtr<std::int64_t> numbers_;
  std::optional<const UserCalls> make_;  // none: the rows are there
  std::vector<std::int64_t> wanted_;
};

/// A source whose elements can be had by number.
template <class T>
class RowsNode : public TypedNode<T> {
 public:
  RowsNode(std::string name, std::shared_ptr<const Rows<T>> rows)
      : name_(std::move(name)),
        rows_(std::move(rows)),
        numbers_(std::make_shared<RowNumbers>(rows_->size())) {}

  std::string name() const override { return name_; }
  std::string position_kind() const override { return cat(name_, '[', rows_->size(), ']'); }
  Node::Role role() const override { return Node::Role::SOURCE; }
  NodePtr with_inputs(std::vector<NodePtr>) const override {
    return std::make_shared<RowsNode>(name_, rows_);
  }
  std::int64_t cardinality() const override { return rows_->size(); }
  ElementSpec spec() const override { return rows_->spec(); }
  NumberedRows<T> numbered_rows() const override { return {rows_, numbers_}; }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    return std::make_unique<RowsIterator<T>>(rows_, numbers_->iterate(iteration), iteration);
  }

 private:
  const std::string name_;
  const std::shared_ptr<const Rows<T>> rows_;
  const std::shared_ptr<const RowNumbers> numbers_;
};

template <template <class> class Stage, class T>
NumberedRows<T> KeepingNode<Stage, T>::numbered_rows() const {
  NumberedRows<T> input = this->input_->numbered_rows();
  if (!input) return {};
  return {input.rows, on<std::int64_t>(input.numbers)};
}

template <template <class> class Stage, class T>
IteratorPtr<T> KeepingNode<Stage, T>::iterate(const Iteration& iteration) const {
  if (const NumberedRows<T> rows = numbered_rows()) {
    return std::make_unique<RowsIterator<T>>(rows.rows, rows.numbers->iterate(iteration),
                                             iteration);
  }
  return self().run(iteration);
}

}  // namespace cohort::data
