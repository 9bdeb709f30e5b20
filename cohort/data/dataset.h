#pragma once

#include <iterator>
#include <utility>

#include "cohort/base/never.h"
#include "cohort/base/random.h"
#include "cohort/data/batch.h"
#include "cohort/data/bucket.h"
#include "cohort/data/cache.h"
#include "cohort/data/combine.h"
#include "cohort/data/file_cache.h"
#include "cohort/data/flat_map.h"
#include "cohort/data/ignore_errors.h"
#include "cohort/data/map.h"
#include "cohort/data/node.h"
#include "cohort/data/repeat.h"
#include "cohort/data/sequence.h"
#include "cohort/data/shuffle.h"
#include "cohort/data/slicing.h"
#include "cohort/data/sources.h"

namespace cohort::data {

/// How a strategy with several workers shares a dataset out among them. See docs/guide/input.md.
enum class AutoShardPolicy {
  OFF = -1,         ///< Every worker reads everything.
  AUTO = 0,         ///< FILE where the pipeline reads files, else DATA.
  FILE = 1,         ///< Each worker reads its own files.
  DATA = 2,         ///< Every worker makes all batches and keeps its rows of each.
  HINT = 3,         ///< `shard(SHARD_HINT)` stages say where.
  FILE_BY_REPLICA,  ///< Each replica reads its own files.
};

struct DatasetOptions {
  AutoShardPolicy auto_shard = AutoShardPolicy::AUTO;
};

struct ShardHint {};
/// `dataset.shard(SHARD_HINT)`: the policy HINT puts the workers here.
inline constexpr ShardHint SHARD_HINT{};

/// One pass over a dataset.
///
/// Used by one thread at a time; the elements may be made by other threads. After an error it may
/// be asked again, for what comes behind the element that could not be made.
template <class T>
class DatasetIterator {
 public:
  DatasetIterator(TypedPtr<T> node, const Iteration& iteration)
      : node_(std::move(node)), iteration_(iteration), running_(node_->iterate(iteration)) {}

  /// The next element; nothing at the end.
  std::optional<T> next() {
    T element{};
    if (!running_->next(element)) return std::nullopt;
    return element;
  }

  /// Where the pass stands, behind the last element that it gave. Throws ValueError where a stage
  /// gives its elements in no order.
  Position position() const {
    PositionWriter writer;
    writer.put_stages(position_stages(*node_));
    writer.put(iteration_.seed);
    writer.put(iteration_.epoch);
    running_->save(writer);
    return writer.take();
  }

  /// Goes on from a position of the same dataset, of this process or another one. Throws
  /// InvalidArgument for one of another pipeline.
  void restore(const Position& position) {
    PositionReader reader(position);
    reader.expect_stages(position_stages(*node_));
    iteration_.seed = reader.get_unsigned();
    iteration_.epoch = reader.get_unsigned();
    node_->set_passes(iteration_.epoch + 1);
    running_ = node_->iterate(iteration_);
    running_->restore(reader);
    reader.expect_end();
  }

 private:
  TypedPtr<T> node_;
  Iteration iteration_;
  IteratorPtr<T> running_;
};

/// A sequence of elements, made anew in each pass: where the data comes from, and what is done
/// with it on the way. A small value: copies are the same dataset, and nothing is read before an
/// element is asked for.
///
///     auto dataset = data::fashion_mnist("train").shuffle(10'000).batch(256).prefetch(2);
///     for (const data::Example& batch : dataset) …
///
/// T is a tensor, a number, a string, or a tuple, pair, array, vector, map or struct of these.
template <class T>
class Dataset {
 public:
  using value_type = T;

  explicit Dataset(TypedPtr<T> node, DatasetOptions options = {})
      : node_(std::move(node)), options_(options) {}

  // Elements one by one.

  /// fn(element), or fn(parts…) for tuples; fn may take an `at::Generator` as its last argument.
  template <class F>
  auto map(F fn, MapOptions options = {}) const {
    using Stage = Map<T, F>;
    static_assert(!std::is_void_v<typename Stage::Out>, "dataset.map(fn): fn returns nothing");
    return then<typename Stage::Out, Stage>(std::move(fn), std::move(options));
  }
  template <class F>
  Dataset filter(F predicate) const {
    return then<T, Filter<T, F>>(std::move(predicate));
  }
  /// All elements of fn(element), which is a dataset, one dataset after the other.
  template <class F>
  auto flat_map(F fn) const {
    using Stage = Interleave<T, F>;
    return then<typename Stage::Out, Stage>(std::move(fn), "flat_map",
                                            InterleaveOptions{.cycle_length = 1});
  }
  /// Elements of several such datasets in turn.
  template <class F>
  auto interleave(F fn, InterleaveOptions options = {}) const {
    using Stage = Interleave<T, F>;
    return then<typename Stage::Out, Stage>(std::move(fn), "interleave", options);
  }
  Dataset<std::pair<std::int64_t, T>> enumerate(std::int64_t start = 0) const {
    return then<std::pair<std::int64_t, T>, Enumerate<T>>(start);
  }
  /// fn(state, element) gives a pair of the next state and an element.
  template <class State, class F>
  auto scan(State initial, F fn) const {
    using Stage = Scan<T, State, F>;
    return then<typename Stage::Out, Stage>(std::move(initial), std::move(fn));
  }

  // Batches.

  /// `size` elements as one, leaf by leaf: tensors and numbers are stacked, strings put into a
  /// `Strings`.
  auto batch(std::int64_t size, BatchOptions options = {}) const {
    if constexpr (check_batchable()) return then<Batched<T>, Batch<T>>(size, options);
  }
  /// `collate(std::vector<T>)` makes the batch.
  template <class F>
    requires std::invocable<F&, std::vector<T>>
  auto batch(std::int64_t size, F collate, BatchOptions options = {}) const {
    using Stage = Collate<T, F>;
    return then<typename Stage::Out, Stage>(size, std::move(collate), options);
  }
  /// Elements whose tensors differ in size are padded first.
  auto padded_batch(std::int64_t size, PaddedBatchOptions options = {}) const {
    if constexpr (check_batchable()) {
      const BatchOptions batch_options{options.drop_remainder};
      return batch(
          size,
          [options = std::move(options)](std::vector<T> elements) {
            return detail::stack_padded(std::move(elements), options);
          },
          batch_options);
    }
  }
  /// Padded batches of elements of about the same `length(element)`.
  template <class F>
  auto bucket_by_sequence_length(F length, BucketOptions options) const {
    if constexpr (check_batchable()) {
      return then<Batched<T>, Bucket<T, F>>(std::move(length), std::move(options));
    }
  }
  /// An element for each row of a batch.
  auto unbatch() const {
    using Stage = Unbatch<T>;
    return then<typename Stage::Out, Stage>();
  }
  Dataset<std::vector<T>> window(WindowOptions options) const {
    return then<std::vector<T>, Window<T>>(options);
  }

  // Which elements, and in which order.

  /// Each block of `buffer` elements in random order; all of them if it holds the whole dataset.
  Dataset shuffle(std::int64_t buffer, ShuffleOptions options = {}) const {
    check_batch_size(buffer, "dataset.shuffle");
    return then<T, Shuffle<T>>(buffer, options);
  }
  /// For ever without an argument.
  Dataset repeat(std::int64_t times = -1) const { return then<T, Repeat<T>>(times); }
  Dataset take(std::int64_t count) const { return then<T, Take<T>>(count); }
  Dataset skip(std::int64_t count) const { return then<T, Skip<T>>(count); }
  /// Elements index, index + shards, …
  Dataset shard(std::int64_t shards, std::int64_t index) const {
    check_shard(shards, index, "dataset.shard");
    return then<T, Shard<T>>(ShardOf{shards, index});
  }
  Dataset shard(ShardHint) const { return then<T, Shard<T>>(ShardOf{ShardOf::kHint, 0}); }
  Dataset concatenate(const Dataset& other) const {
    return Dataset(std::make_shared<Concatenate<T>>(std::vector{node_, other.node_}), options_);
  }

  // How it is made.

  /// Keeps all elements in memory once they have been made.
  Dataset cache() const { return then<T, Cache<T>>(); }
  /// The same in a file, which later processes find; delete it when the input has changed.
  Dataset cache(std::string path) const { return then<T, FileCache<T>>(std::move(path)); }
  /// Makes so many elements ahead, on a thread of its own.
  Dataset prefetch(std::int64_t elements = AUTOTUNE) const {
    return then<T, Prefetch<T>>(elements);
  }
  /// Leaves out the elements that throw; always ends.
  Dataset ignore_errors(IgnoreErrorsOptions options = {}) const {
    return then<T, IgnoreErrors<T>>(options.count, options.log_warning);
  }
  /// Throws InvalidArgument, in the pass, unless there are exactly so many elements.
  Dataset assert_cardinality(std::int64_t count) const {
    return then<T, AssertCardinality<T>>(count);
  }
  Dataset options(DatasetOptions options) const { return Dataset(node_, options); }

  // What is known of it.

  /// How many elements there are; kInfinite or kUnknownCardinality where that can't be said.
  std::int64_t cardinality() const { return node_->cardinality(); }
  ElementSpec element_spec() const { return node_->spec(); }
  const DatasetOptions& options() const { return options_; }
  const TypedPtr<T>& node() const { return node_; }

  /// A new pass.
  DatasetIterator<T> iterator() const {
    return DatasetIterator<T>(node_, {.seed = seed(), .epoch = node_->start_pass()});
  }

  class Range;
  /// For range-based loops: each is a new pass.
  Range begin() const { return Range(iterator()); }
  std::default_sentinel_t end() const { return {}; }

 private:
  template <class>
  friend class Dataset;

  template <class Out, class Stage, class... Args>
  Dataset<Out> then(Args&&... args) const {
    return Dataset<Out>(std::make_shared<const Stage>(node_, std::forward<Args>(args)...),
                        options_);
  }
  /// One error for elements that have no batch, and none of what would follow from it.
  static constexpr bool check_batchable() {
    static_assert(Batchable<T>,
                  "dataset.batch(n): elements must be tensors, numbers, strings, or tuples, "
                  "arrays, vectors and maps of them, or structs of Tensors and data::Strings; "
                  "for others use batch(n, collate)");
    return Batchable<T>;
  }

  TypedPtr<T> node_;
  DatasetOptions options_;
};

/// Goes over the elements of a pass.
template <class T>
class Dataset<T>::Range {
 public:
  using value_type = T;
  using difference_type = std::ptrdiff_t;

  explicit Range(DatasetIterator<T> pass) : pass_(std::move(pass)) { ++*this; }
  const T& operator*() const { return *element_; }
  Range& operator++() {
    element_ = pass_.next();
    return *this;
  }
  bool operator==(std::default_sentinel_t) const { return !element_; }

 private:
  DatasetIterator<T> pass_;
  std::optional<T> element_;
};

// Sources in memory.

/// One element.
template <class T>
Dataset<T> from_tensors(T element) {
  return Dataset<T>(std::make_shared<RowsNode<T>>("from_tensors",
                                                  std::make_shared<OneRow<T>>(std::move(element))));
}

/// The rows of a nest of tensors, and of Strings, that have the same first dimension.
template <class Nest>
auto from_tensor_slices(Nest nest) {
  using T = decltype(row_of(nest, 0));
  auto rows = std::make_shared<NestRows<Nest, T>>(std::move(nest));
  return Dataset<T>(std::make_shared<RowsNode<T>>("from_tensor_slices", std::move(rows)));
}
/// Each of these as an element.
Dataset<std::string> from_tensor_slices(std::vector<std::string> strings);
template <class T>
  requires std::is_arithmetic_v<T>
Dataset<T> from_tensor_slices(std::vector<T> numbers) {
  return Dataset<T>(std::make_shared<RowsNode<T>>(
      "from_tensor_slices", std::make_shared<NumberRows<T>>(std::move(numbers))));
}

/// 0 … stop-1; start … stop-1; in steps.
Dataset<std::int64_t> range(std::int64_t stop);
Dataset<std::int64_t> range(std::int64_t start, std::int64_t stop, std::int64_t step = 1);

/// Elements of a function of the user's: `make()` is called for each pass and returns a function
/// that returns a std::optional, empty at the end.
template <class F>
auto from_generator(F make, GeneratorOptions options = {}) {
  using T = typename std::invoke_result_t<std::invoke_result_t<F&>&>::value_type;
  return Dataset<T>(std::make_shared<Generator<T>>(std::move(make), std::move(options)));
}

/// Tuples of one element of each; a pair of two datasets' elements. Ends with the shortest.
template <class A, class B>
Dataset<std::pair<A, B>> zip(const Dataset<A>& a, const Dataset<B>& b) {
  return Dataset<std::pair<A, B>>(std::make_shared<Zip<std::pair<A, B>, A, B>>(a.node(), b.node()),
                                  a.options());
}
template <class A, class B, class C, class... More>
Dataset<std::tuple<A, B, C, More...>> zip(const Dataset<A>& a, const Dataset<B>& b,
                                          const Dataset<C>& c, const Dataset<More>&... more) {
  using Tuple = std::tuple<A, B, C, More...>;
  return Dataset<Tuple>(
      std::make_shared<Zip<Tuple, A, B, C, More...>>(a.node(), b.node(), c.node(), more.node()...),
      a.options());
}

/// Elements of several datasets, drawn by weight.
template <class T>
Dataset<T> sample_from_datasets(const std::vector<Dataset<T>>& datasets,
                                SampleOptions options = {}) {
  std::vector<TypedPtr<T>> nodes;
  for (const Dataset<T>& dataset : datasets) nodes.push_back(dataset.node());
  return Dataset<T>(std::make_shared<Sample<T>>(std::move(nodes), std::move(options)));
}

}  // namespace cohort::data
