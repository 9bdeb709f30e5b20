#pragma once

#include "cohort/data/node.h"

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
    std::int64_t skip(std::int64_t count) override {
      const std::int64_t skipped = std::min(count, count_ - next_);
      next_ += skipped;
      return skipped;
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
  RowsIterator(std::shared_ptr<const Rows<T>> rows, IteratorPtr<std::int64_t> numbers)
      : rows_(std::move(rows)), numbers_(std::move(numbers)) {}

  bool next(T& element) override {
    std::int64_t row = 0;
    if (!numbers_->next(row)) return false;
    element = rows_->at(row);
    return true;
  }
  std::int64_t next_batch(std::int64_t count, typename Iterator<T>::Batch& batch) override {
    wanted_.clear();
    std::int64_t row = 0;
    while (static_cast<std::int64_t>(wanted_.size()) < count && numbers_->next(row)) {
      wanted_.push_back(row);
    }
    batch = rows_->gather(wanted_);
    return static_cast<std::int64_t>(wanted_.size());
  }
  std::int64_t skip(std::int64_t count) override { return numbers_->skip(count); }
  void save(PositionWriter& position) const override { numbers_->save(position); }
  void restore(PositionReader& position) override { numbers_->restore(position); }

 private:
  const std::shared_ptr<const Rows<T>> rows_;
  const IteratorPtr<std::int64_t> numbers_;
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
    return std::make_unique<RowsIterator<T>>(rows_, numbers_->iterate(iteration));
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
    return std::make_unique<RowsIterator<T>>(rows.rows, rows.numbers->iterate(iteration));
  }
  return self().run(iteration);
}

}  // namespace cohort::data
