#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "cohort/data/element_spec.h"
#include "cohort/data/iterator.h"

namespace cohort::data {

/// What `cardinality()` says of a dataset whose elements nobody can count beforehand.
inline constexpr std::int64_t kInfinite = -1;
inline constexpr std::int64_t kUnknownCardinality = -2;

/// What the stages of one pass over a dataset are told.
struct Iteration {
  std::uint64_t seed = 0;   ///< For random stages that were not given one.
  std::uint64_t epoch = 0;  ///< Another number for each pass.
  bool in_order = false;    ///< Stages that may give elements out of order do not.
  /// Whoever asks goes on after every error: what can't begin is not asked to begin again.
  bool errors_are_ignored = false;

  /// Pass number n over something inside of this one.
  Iteration inner(std::uint64_t n) const;
};

struct ShardOf;
struct WantedRows;
class Node;
using NodePtr = std::shared_ptr<const Node>;

/// A stage of a pipeline as a user wrote it down; knows its inputs. This is what distribution looks
/// at and rewrites; what a stage does is in its iterators.
///
/// What the stage is never changes. What it has learnt by being used may: the number of passes, a
/// spec that the first element showed. May be used by several threads at once.
class Node {
 public:
  /// What distribution has to know of a stage.
  enum class Role {
    SOURCE,   ///< Makes elements out of nothing: tensors, numbers, a generator.
    READER,   ///< Reads files; its only input is the dataset of their names.
    KEEPS,    ///< Its elements are elements of its inputs, whatever they are: take, shuffle.
    FILTERS,  ///< The same, but looks at them to choose.
    BATCHES,  ///< Its elements are batches.
    MAPS,     ///< One element for each of its input's: map.
    ZIPS,     ///< Its elements are tuples of its inputs'.
    CHANGES,  ///< Anything else.
  };

  Node() = default;
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// As the user spells it: "shuffle(100)".
  virtual std::string name() const = 0;
  /// The name without arguments: "shuffle".
  std::string kind() const;
  /// What positions of the stage depend on: its kind, and arguments that give a position another
  /// meaning. No numbers of threads, buffers, replicas or workers.
  virtual std::string position_kind() const { return kind(); }
  virtual Role role() const = 0;
  virtual std::vector<NodePtr> inputs() const { return {}; }
  /// The same stage on other inputs of the same types.
  virtual NodePtr with_inputs(std::vector<NodePtr> inputs) const = 0;

  /// The number of elements, kInfinite or kUnknownCardinality.
  virtual std::int64_t cardinality() const = 0;
  virtual ElementSpec spec() const = 0;
  /// The rows of a full batch, of a stage that makes batches of one size.
  virtual std::optional<std::int64_t> batch_size() const { return std::nullopt; }
  /// The stage with batches of another size; null for other stages.
  virtual NodePtr with_batch_size(std::int64_t) const { return nullptr; }
  /// The stage with some rows of each batch only; null where that saves no reading.
  virtual NodePtr with_wanted_rows(const WantedRows&) const { return nullptr; }
  /// The stage with the workers put in; null for all but `shard(SHARD_HINT)`.
  virtual NodePtr with_shard(const ShardOf&) const { return nullptr; }
  /// True for a stage that only checks the number of elements.
  virtual bool checks_cardinality() const { return false; }
  /// True where elements may come in another order from run to run.
  virtual bool is_unordered() const { return false; }
  /// True where an element depends on how many, or which, came before it.
  virtual bool depends_on_earlier_elements() const { return false; }
  /// How many batch stages the elements have passed, so that 0 is elements that nobody has put
  /// together; nothing where that can't be seen.
  virtual std::optional<int> times_batched() const;

  /// How many stages lie between this one and its furthest source: tells random stages apart.
  std::uint64_t depth() const;
  /// The number of this pass over the dataset, from 0; counts it.
  std::uint64_t start_pass() const { return passes_.fetch_add(1); }
  /// The next pass has this number.
  void set_passes(std::uint64_t passes) const { passes_ = passes; }

 private:
  mutable std::atomic<std::uint64_t> passes_{0};
};

/// The stages from the sources to this one, as `text` has each of them: "range.map.shuffle", with
/// the inputs of stages that have several separated by "; ".
std::string describe_stages(const Node& node, const std::function<std::string(const Node&)>& text);

/// What positions of a pipeline are of, in words.
std::string position_stages(const Node& node);
/// The same without any argument of a stage, for pipelines that were made for some replicas.
std::string position_kinds(const Node& node);

/// Elements that can be had by number, in any order: tensors in memory, an array file.
/// May be used by several threads at once.
template <class T>
class Rows {
 public:
  using Batch = typename Gathered<T>::Batch;

  virtual ~Rows() = default;
  virtual std::int64_t size() const = 0;
  virtual T at(std::int64_t row) const = 0;
  /// Rows in this order as one batch; there may be none.
  virtual Batch gather(std::span<const std::int64_t> rows) const = 0;
  virtual ElementSpec spec() const = 0;
  /// The stage whose function of the user's makes each row when it is asked for, so that one may
  /// fail and the next one not; null for rows that are there.
  virtual const char* made_by() const { return nullptr; }
};

template <class T>
class TypedNode;
template <class T>
using TypedPtr = std::shared_ptr<const TypedNode<T>>;

/// A dataset as the numbers of rows: shuffling or skipping then moves numbers, not elements.
template <class T>
struct NumberedRows {
  std::shared_ptr<const Rows<T>> rows;
  TypedPtr<std::int64_t> numbers;

  explicit operator bool() const { return rows != nullptr; }
};

template <class T>
class TypedNode : public Node {
 public:
  virtual IteratorPtr<T> iterate(const Iteration& iteration) const = 0;

  /// The dataset as numbers of rows, where it is nothing but that.
  virtual NumberedRows<T> numbered_rows() const { return {}; }
};

/// Knows that a node gives elements of type T.
template <class T>
TypedPtr<T> typed(const NodePtr& node) {
  return std::static_pointer_cast<const TypedNode<T>>(node);
}

/// A stage with one input.
template <class T, class Input = T>
class UnaryNode : public TypedNode<T> {
 public:
  explicit UnaryNode(TypedPtr<Input> input) : input_(std::move(input)) {}
  std::vector<NodePtr> inputs() const override { return {input_}; }
  std::int64_t cardinality() const override { return input_->cardinality(); }

 protected:
  const TypedPtr<Input> input_;
};

/// A stage that gives elements of its input as they are. `Stage<T>` is the stage itself, made
/// from an input and `arguments()`; its `run(iteration)` makes the iterator.
template <template <class> class Stage, class T>
class KeepingNode : public UnaryNode<T> {
 public:
  using UnaryNode<T>::UnaryNode;

  Node::Role role() const override { return Node::Role::KEEPS; }
  ElementSpec spec() const override { return this->input_->spec(); }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return on(typed<T>(inputs[0]));
  }
  NumberedRows<T> numbered_rows() const override;
  IteratorPtr<T> iterate(const Iteration& iteration) const override;

 private:
  const Stage<T>& self() const { return static_cast<const Stage<T>&>(*this); }
  template <class Other>
  std::shared_ptr<const Stage<Other>> on(TypedPtr<Other> input) const {
    return std::apply(
        [&](const auto&... arguments) {
          return std::make_shared<const Stage<Other>>(std::move(input), arguments...);
        },
        self().arguments());
  }
};

}  // namespace cohort::data

#include "cohort/data/rows.h"
