#pragma once

#include <functional>

#include "cohort/base/error.h"
#include "cohort/data/ignore_errors.h"
#include "cohort/data/node.h"
#include "cohort/data/user_function.h"

/// Sources in memory: tensors, their rows, numbers, and a function of the user's.
namespace cohort::data {
namespace detail {

/// The rows of a tensor, in this order, as a tensor.
at::Tensor gather_rows(const at::Tensor& tensor, std::span<const std::int64_t> rows);
Strings gather_rows(const Strings& strings, std::span<const std::int64_t> rows);
/// The rows that all leaves have. Throws ValueError where there are none, or they differ.
std::int64_t common_rows(std::span<const std::int64_t> rows);
/// A dense tensor as `gather_rows` reads it, without a graph; another one as it is.
at::Tensor as_rows(const at::Tensor& tensor);

}  // namespace detail

/// The rows of a nest of tensors and Strings that have the same first dimension.
template <class Nest, class T>
class NestRows : public Rows<T> {
 public:
  explicit NestRows(Nest nest) : nest_(std::move(nest)) {
    std::vector<std::int64_t> rows;
    nest::visit(
        [&]<class Leaf>(Leaf& leaf) {
          if constexpr (std::same_as<Leaf, at::Tensor>) leaf = detail::as_rows(leaf);
          rows.push_back(count_rows(leaf));
        },
        nest_);
    size_ = detail::common_rows(rows);
  }

  std::int64_t size() const override { return size_; }
  T at(std::int64_t row) const override { return row_of(nest_, row); }
  typename Rows<T>::Batch gather(std::span<const std::int64_t> rows) const override {
    Nest batch = nest_;
    nest::visit([&](auto& leaf) { leaf = detail::gather_rows(leaf, rows); }, batch);
    return batch;
  }
  ElementSpec spec() const override { return spec_of(nest_).unbatched(); }

 private:
  Nest nest_;
  std::int64_t size_;
};

/// Numbers or bools that are there already.
template <class T>
class NumberRows : public Rows<T> {
 public:
  explicit NumberRows(std::vector<T> numbers) : numbers_(std::move(numbers)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(numbers_.size()); }
  T at(std::int64_t row) const override { return numbers_[row]; }
  at::Tensor gather(std::span<const std::int64_t> rows) const override {
    std::vector<T> chosen;
    chosen.reserve(rows.size());
    for (const std::int64_t row : rows) chosen.push_back(numbers_[row]);
    return stack(chosen);
  }
  ElementSpec spec() const override { return spec_of(T{}); }

 private:
  const std::vector<T> numbers_;
};

/// The numbers start, start + step, … before stop.
class RangeRows : public Rows<std::int64_t> {
 public:
  RangeRows(std::int64_t start, std::int64_t stop, std::int64_t step);

  std::int64_t size() const override { return size_; }
  std::int64_t at(std::int64_t row) const override { return start_ + row * step_; }
  at::Tensor gather(std::span<const std::int64_t> rows) const override;
  ElementSpec spec() const override { return spec_of(std::int64_t{}); }

 private:
  const std::int64_t start_, step_;
  std::int64_t size_;
};

/// One element: itself.
template <class T>
class OneRow : public Rows<T> {
 public:
  explicit OneRow(T element) : element_(std::move(element)) {}

  std::int64_t size() const override { return 1; }
  T at(std::int64_t) const override { return element_; }
  typename Rows<T>::Batch gather(std::span<const std::int64_t> rows) const override {
    if constexpr (Batchable<T>) {
      const std::vector<const T*> same(rows.size(), &element_);
      if (!rows.empty()) return stack(std::span<const T* const>(same));
    }
    return {};
  }
  ElementSpec spec() const override { return spec_of(element_); }

 private:
  const T element_;
};

struct GeneratorOptions {
  /// What is known of the elements, where it has to be known before the first one is made.
  ElementSpec spec = {};
};

/// Elements that a function of the user's makes. `make()` is called for each pass, and gives a
/// function that returns the next element, or nothing at the end.
template <class T>
class Generator : public TypedNode<T> {
 public:
  using Next = std::function<std::optional<T>()>;

  Generator(std::function<Next()> make, GeneratorOptions options)
      : make_(std::move(make)), options_(std::move(options)) {}

  std::string name() const override { return "from_generator"; }
  Node::Role role() const override { return Node::Role::SOURCE; }
  NodePtr with_inputs(std::vector<NodePtr>) const override {
    return std::make_shared<Generator>(make_, options_);
  }
  std::int64_t cardinality() const override { return kUnknownCardinality; }
  ElementSpec spec() const override { return options_.spec; }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(make_, iteration);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(std::function<Next()> make, const Iteration& iteration)
        : make_(std::move(make)),
          call_("from_generator", iteration),
          errors_are_ignored_(iteration.errors_are_ignored) {}
    bool next(T& element) override {
      if (ended_) return false;
      begin();
      std::optional<T> made;
      try {
        made = call_(asked_++, next_);
      } catch (...) {
        ++errors_;
        throw;
      }
      ended_ = !made;
      if (made) element = *std::move(made);
      return !ended_;
    }
    void save(PositionWriter& position) const override {
      position.put(std::int64_t{ended_});
      position.put(asked_);
      position.put(errors_);
    }
    /// A generator can only be asked again from its beginning.
    void restore(PositionReader& position) override {
      const bool ended = position.get() != 0;
      const std::int64_t asked = position.get();
      const std::int64_t errors = position.get();
      if (!ended && asked > 0) begin();
      if (!ended) this->retrace(asked, errors);
      asked_ = asked;
      errors_ = errors;
      ended_ = ended;
    }

   private:
    void begin() {
      if (next_) return;
      try {
        next_ = call_(0, make_);
      } catch (...) {
        ended_ = errors_are_ignored_;
        if (ended_) detail::warn_of_no_beginning("from_generator", "it gives nothing in this pass");
        throw;
      }
    }

    const std::function<Next()> make_;
    const UserCalls call_;
    const bool errors_are_ignored_;
    Next next_;
    std::int64_t asked_ = 0;   // for elements, of which some could not be made
    std::int64_t errors_ = 0;  // of these
    bool ended_ = false;
  };

  const std::function<Next()> make_;
  const GeneratorOptions options_;
};

}  // namespace cohort::data
