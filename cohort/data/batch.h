#pragma once

#include <algorithm>
#include <optional>

#include "cohort/base/error.h"
#include "cohort/data/node.h"
#include "cohort/data/user_function.h"

/// Stages that put elements together, and take them apart: batch, padded_batch, unbatch.
namespace cohort::data {

struct BatchOptions {
  /// Drops a last batch that has fewer elements than the others.
  bool drop_remainder = false;
};

/// The rows of each batch that are wanted, of those that it would have. Others are passed over,
/// and not even read where the source has its elements by number.
struct WantedRows {
  std::int64_t from = 0;
  std::int64_t to = 0;
};

std::int64_t batches_of(std::int64_t elements, std::int64_t size, bool drop_remainder);
void check_batch_size(std::int64_t size, const char* where);

template <class T>
class Batch : public UnaryNode<Batched<T>, T> {
 public:
  Batch(TypedPtr<T> input, std::int64_t size, BatchOptions options,
        std::optional<WantedRows> wanted = std::nullopt)
      : UnaryNode<Batched<T>, T>(std::move(input)),
        size_(size),
        options_(options),
        wanted_(wanted) {
    check_batch_size(size, "dataset.batch");
  }

  std::string name() const override {
    return cat("batch(", size_, options_.drop_remainder ? ", drop_remainder" : "", ')');
  }
  std::string position_kind() const override { return name(); }
  Node::Role role() const override { return Node::Role::BATCHES; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Batch>(typed<T>(inputs[0]), size_, options_, wanted_);
  }
  std::optional<std::int64_t> batch_size() const override { return size_; }
  NodePtr with_batch_size(std::int64_t size) const override {
    return std::make_shared<Batch>(this->input_, size, options_);
  }
  NodePtr with_wanted_rows(const WantedRows& rows) const override {
    if (!this->input_->numbered_rows()) return nullptr;
    return std::make_shared<Batch>(this->input_, size_, options_, rows);
  }
  std::int64_t cardinality() const override {
    return batches_of(this->input_->cardinality(), size_, options_.drop_remainder);
  }
  ElementSpec spec() const override {
    return this->input_->spec().batched(options_.drop_remainder ? size_ : LeafSpec::kUnknown);
  }
  IteratorPtr<Batched<T>> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), size_, options_,
                                     wanted_.value_or(WantedRows{0, size_}));
  }

 private:
  class Running : public Iterator<Batched<T>> {
   public:
    Running(IteratorPtr<T> input, std::int64_t size, BatchOptions options, WantedRows wanted)
        : input_(std::move(input)), size_(size), options_(options), wanted_(wanted) {}
    /// What has been read stays when an element can't be made: the next call goes on there.
    bool next(Batched<T>& batch) override {
      if (rows_ == 0) begin(keeper_.of(*input_));
      while (rows_ < size_ && read(size_)) {
      }
      const std::int64_t rows = std::exchange(rows_, 0);
      if (rows < size_ && (rows == 0 || options_.drop_remainder)) return false;
      if (gathered_.rows() == 0) input_->gather(0, gathered_);  // a part without rows
      batch = gathered_.take();
      return true;
    }
    /// Inside of a batch, where it starts, and how often the input was asked since then.
    void save(PositionWriter& position) const override {
      const bool is_inside = rows_ > 0;
      position.put(is_inside ? asked_ : 0);
      position.put(is_inside ? errors_ : 0);
      position.append(is_inside ? before_.get() : input_->position());
    }
    void restore(PositionReader& position) override {
      const std::int64_t asked = position.get(), errors = position.get();
      input_->restore(position);
      begin(keeper_.of(*input_));
      ask_again(asked, errors, [this] { return read(1); });
    }

   private:
    void begin(KeptPosition before) {
      before_ = std::move(before);
      gathered_.clear();
      asked_ = errors_ = 0;
    }
    /// Passes over some rows of the batch, `most` of them; false at the end. The place of an
    /// element that can't be made is the next one's, unless others make the rest of this batch.
    bool read(std::int64_t most) {
      const bool is_wanted = rows_ >= wanted_.from && rows_ < wanted_.to;
      const std::int64_t until = is_wanted              ? wanted_.to
                                 : rows_ < wanted_.from ? wanted_.from
                                                        : size_;
      const std::int64_t count = std::min(most, until - rows_);
      const Passed passed = is_wanted ? input_->gather(count, gathered_) : input_->skip(count);
      const bool is_part = wanted_.to - wanted_.from < size_;
      asked_ += passed.count;
      errors_ += passed.error ? 1 : 0;
      rows_ += passed.error && !is_part ? passed.count - 1 : passed.count;
      passed.rethrow();
      return passed.count == count;
    }

    const IteratorPtr<T> input_;
    const std::int64_t size_;
    const BatchOptions options_;
    const WantedRows wanted_;
    PositionKeeper keeper_;
    KeptPosition before_;  // the batch
    Gathered<T> gathered_;
    std::int64_t rows_ = 0;                // of the batch, so far
    std::int64_t asked_ = 0, errors_ = 0;  // of the input since `before_`
  };

  const std::int64_t size_;
  const BatchOptions options_;
  const std::optional<WantedRows> wanted_;
};

/// Batches that a function of the user's makes out of a vector of elements.
template <class T, class F>
class Collate : public UnaryNode<std::invoke_result_t<F&, std::vector<T>>, T> {
 public:
  using Out = std::invoke_result_t<F&, std::vector<T>>;

  Collate(TypedPtr<T> input, std::int64_t size, F collate, BatchOptions options)
      : UnaryNode<Out, T>(std::move(input)),
        size_(size),
        collate_(std::move(collate)),
        options_(options) {
    check_batch_size(size, "dataset.batch");
  }

  std::string name() const override { return cat("batch(", size_, ", collate)"); }
  std::string position_kind() const override { return name(); }
  Node::Role role() const override { return Node::Role::BATCHES; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Collate>(typed<T>(inputs[0]), size_, collate_, options_);
  }
  std::optional<std::int64_t> batch_size() const override { return size_; }
  NodePtr with_batch_size(std::int64_t size) const override {
    return std::make_shared<Collate>(this->input_, size, collate_, options_);
  }
  std::int64_t cardinality() const override {
    return batches_of(this->input_->cardinality(), size_, options_.drop_remainder);
  }
  ElementSpec spec() const override { return {}; }
  IteratorPtr<Out> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), size_, collate_, options_,
                                     iteration);
  }

 private:
  class Running : public Iterator<Out> {
   public:
    Running(IteratorPtr<T> input, std::int64_t size, F collate, BatchOptions options,
            const Iteration& iteration)
        : input_(std::move(input)),
          size_(size),
          collate_(std::move(collate)),
          options_(options),
          call_("batch", iteration) {}
    /// What has been read stays when an element can't be made: the next call goes on there.
    bool next(Out& batch) override {
      if (elements_.empty()) begin(keeper_.of(*input_));
      while (static_cast<std::int64_t>(elements_.size()) < size_ && read()) {
      }
      std::vector<T> elements = std::exchange(elements_, {});
      const auto rows = static_cast<std::int64_t>(elements.size());
      if (rows == 0 || (rows < size_ && options_.drop_remainder)) return false;
      batch = call_(number_++, [&] { return collate_(std::move(elements)); });
      return true;
    }
    /// As that of Batch.
    void save(PositionWriter& position) const override {
      const bool is_inside = !elements_.empty();
      position.put(number_);
      position.put(is_inside ? asked_ : 0);
      position.put(is_inside ? errors_ : 0);
      position.append(is_inside ? before_.get() : input_->position());
    }
    void restore(PositionReader& position) override {
      number_ = position.get();
      const std::int64_t asked = position.get(), errors = position.get();
      input_->restore(position);
      begin(keeper_.of(*input_));
      ask_again(asked, errors, [this] { return read(); });
    }

   private:
    void begin(KeptPosition before) {
      before_ = std::move(before);
      asked_ = errors_ = 0;
    }
    bool read() {
      const auto keep = [this](T& element) { elements_.push_back(std::move(element)); };
      const Passed passed = input_->pass(1, keep);
      asked_ += passed.count;
      errors_ += passed.error ? 1 : 0;
      passed.rethrow();
      return passed.count == 1;
    }

    const IteratorPtr<T> input_;
    const std::int64_t size_;
    F collate_;
    const BatchOptions options_;
    const UserCalls call_;
    PositionKeeper keeper_;
    KeptPosition before_;  // the batch
    std::vector<T> elements_;
    std::int64_t asked_ = 0, errors_ = 0;  // of the input since `before_`
    std::int64_t number_ = 0;              // of the next batch
  };

  const std::int64_t size_;
  const F collate_;
  const BatchOptions options_;
};

struct PaddedBatchOptions {
  bool drop_remainder = false;
  /// What fills the rows that are shorter than the longest of their batch.
  double padding_value = 0;
  /// For each leaf the shape to pad to, with -1 for the longest of the batch; none: -1 everywhere.
  std::vector<std::vector<std::int64_t>> padded_shapes = {};
};

namespace detail {
at::Tensor pad_to(const at::Tensor& tensor, const std::vector<std::int64_t>& shape, double value);
/// The shape that holds all of them; `wanted` has -1 where it is to be found out.
std::vector<std::int64_t> common_shape(const std::vector<std::vector<std::int64_t>>& shapes,
                                       const std::vector<std::int64_t>* wanted);

/// Pads the tensors of elements in place, so that they can be stacked.
template <class T>
void pad_alike(std::vector<T>& elements, const PaddedBatchOptions& options) {
  std::vector<std::vector<std::vector<std::int64_t>>> shapes;  // of leaf, of element
  for (const T& element : elements) {
    std::size_t leaf = 0;
    nest::visit(
        [&]<class Leaf>(const Leaf& value) {
          if (shapes.size() <= leaf) shapes.emplace_back();
          if constexpr (std::same_as<Leaf, at::Tensor>) shapes[leaf].push_back(value.sizes().vec());
          ++leaf;
        },
        element);
  }
  std::vector<std::vector<std::int64_t>> targets;
  for (std::size_t leaf = 0; leaf < shapes.size(); ++leaf) {
    const bool given = leaf < options.padded_shapes.size();
    targets.push_back(common_shape(shapes[leaf], given ? &options.padded_shapes[leaf] : nullptr));
  }
  for (T& element : elements) {
    std::size_t leaf = 0;
    nest::visit(
        [&]<class Leaf>(Leaf& value) {
          if constexpr (std::same_as<Leaf, at::Tensor>) {
            value = pad_to(value, targets[leaf], options.padding_value);
          }
          ++leaf;
        },
        element);
  }
}

/// Turns padded elements into a batch.
template <class T>
Batched<T> stack_padded(std::vector<T> elements, const PaddedBatchOptions& options) {
  if constexpr (!std::is_same_v<T, bool>) pad_alike(elements, options);  // numbers are alike
  return stack(elements);
}
}  // namespace detail

/// Each batch as an element for each of its rows.
template <class In>
class Unbatch : public UnaryNode<decltype(row_of(std::declval<const In&>(), 0)), In> {
 public:
  using Out = decltype(row_of(std::declval<const In&>(), 0));
  using UnaryNode<Out, In>::UnaryNode;

  std::string name() const override { return "unbatch"; }
  Node::Role role() const override { return Node::Role::CHANGES; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Unbatch>(typed<In>(inputs[0]));
  }
  std::int64_t cardinality() const override {
    return this->input_->cardinality() == kInfinite ? kInfinite : kUnknownCardinality;
  }
  ElementSpec spec() const override { return this->input_->spec().unbatched(); }
  std::optional<int> times_batched() const override {
    const std::optional<int> times = this->input_->times_batched();
    return times ? std::optional(std::max(*times - 1, 0)) : std::nullopt;
  }
  IteratorPtr<Out> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration));
  }

 private:
  class Running : public Iterator<Out> {
   public:
    explicit Running(IteratorPtr<In> input) : input_(std::move(input)) {}
    bool next(Out& element) override {
      while (row_ == rows_) {
        row_ = rows_ = 0;
        before_ = keeper_.of(*input_);
        if (!input_->next(batch_)) return false;
        rows_ = rows_of(batch_);
      }
      element = row_of(batch_, row_++);
      return true;
    }
    void save(PositionWriter& position) const override {
      position.put(row_ < rows_ ? row_ : 0);
      position.put(row_ < rows_ ? before_.get() : input_->position());
    }
    void restore(PositionReader& position) override {
      const std::int64_t row = position.get();
      input_->go_to(position.get_position());
      row_ = rows_ = 0;
      this->retrace(row, 0);
    }

   private:
    static std::int64_t rows_of(const In& batch) {
      std::int64_t rows = -1;
      nest::visit([&](const auto& leaf) { rows = rows < 0 ? count_rows(leaf) : rows; }, batch);
      if (rows < 0) {
        throw InvalidArgument("dataset.unbatch", "an element has no dimension to unbatch");
      }
      return rows;
    }

    const IteratorPtr<In> input_;
    In batch_{};
    PositionKeeper keeper_;
    KeptPosition before_;  // the batch
    std::int64_t row_ = 0, rows_ = 0;
  };
};

}  // namespace cohort::data
