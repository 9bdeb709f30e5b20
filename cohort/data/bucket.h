#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "cohort/data/batch.h"

namespace cohort::data {

struct BucketOptions {
  /// The upper bounds, exclusive, of the lengths of each bucket but the last.
  std::vector<std::int64_t> boundaries;
  /// One more than there are boundaries.
  std::vector<std::int64_t> batch_sizes;
  double padding_value = 0;
  /// Pads each batch to its bucket's boundary - 1 instead of its longest element.
  bool pad_to_bucket_boundary = false;
  bool drop_remainder = false;
};

void check_buckets(const BucketOptions& options);

/// Batches of elements of about the same length, so that little is padding.
template <class T, class Length>
class Bucket : public UnaryNode<Batched<T>, T> {
 public:
  Bucket(TypedPtr<T> input, Length length, BucketOptions options)
      : UnaryNode<Batched<T>, T>(std::move(input)),
        length_(std::move(length)),
        options_(std::move(options)) {
    check_buckets(options_);
  }

  std::string name() const override { return "bucket_by_sequence_length"; }
  Node::Role role() const override { return Node::Role::BATCHES; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Bucket>(typed<T>(inputs[0]), length_, options_);
  }
  std::int64_t cardinality() const override {
    return this->input_->cardinality() == kInfinite ? kInfinite : kUnknownCardinality;
  }
  ElementSpec spec() const override { return {}; }
  IteratorPtr<Batched<T>> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), length_, options_,
                                     iteration);
  }

 private:
  class Running : public Iterator<Batched<T>> {
   public:
    Running(IteratorPtr<T> input, Length length, BucketOptions options, const Iteration& iteration)
        : input_(std::move(input)),
          length_(std::move(length)),
          options_(std::move(options)),
          call_("bucket_by_sequence_length", iteration),
          buckets_(options_.batch_sizes.size()) {}

    bool next(Batched<T>& batch) override {
      while (const auto bucket = read()) {
        if (static_cast<std::int64_t>(buckets_[*bucket].size()) < options_.batch_sizes[*bucket]) {
          continue;
        }
        batch = take(*bucket);
        return true;
      }
      for (std::size_t bucket = 0; !options_.drop_remainder && bucket < buckets_.size(); ++bucket) {
        if (buckets_[bucket].empty()) continue;
        batch = take(bucket);
        return true;
      }
      return false;
    }
    /// Where the oldest element that waits was read, and which of those since then wait.
    void save(PositionWriter& position) const override {
      std::map<std::int64_t, const Waiting*> waiting;
      for (const auto& bucket : buckets_) {
        for (const Waiting& each : bucket) waiting.emplace(each.number, &each);
      }
      const Waiting* oldest = waiting.empty() ? nullptr : waiting.begin()->second;
      std::vector<std::int64_t> numbers;
      for (const auto& [number, each] : waiting) numbers.push_back(number);
      position.put(read_);
      position.put(oldest ? errors_ - oldest->errors : 0);
      position.put(Position(std::move(numbers)));
      position.put(oldest ? oldest->before.get() : input_->position());
    }
    void restore(PositionReader& position) override {
      const std::int64_t read = position.get();
      const std::int64_t errors = position.get();
      const std::vector<std::int64_t> waiting = position.get_position().numbers();
      input_->go_to(position.get_position());
      read_ = waiting.empty() ? read : waiting[0];
      std::int64_t left = errors;
      for (const std::int64_t number : waiting) {
        skip_to(number, left);
        this->read();
      }
      skip_to(read, left);
      errors_ = errors;
    }

   private:
    struct Waiting {
      T element{};
      KeptPosition before;  // the input's
      std::int64_t number = 0;
      std::int64_t errors = 0;  // that there were before it
    };

    /// Passes over elements, of which so many can't be made.
    void skip_to(std::int64_t number, std::int64_t& errors) {
      while (read_ < number) {
        const Passed passed = input_->skip(number - read_);
        read_ += passed.count;
        if (!passed.error) return;
        ++errors_;
        if (errors-- <= 0) passed.rethrow();
      }
    }
    bool read_element(T& element) {
      try {
        return next_counted(*input_, element, read_);
      } catch (...) {
        ++errors_;
        throw;
      }
    }

    /// Puts the next element into its bucket; nothing at the end.
    std::optional<std::size_t> read() {
      Waiting waiting{{}, keeper_.of(*input_), read_, errors_};
      if (!read_element(waiting.element)) return std::nullopt;
      const auto length = call_(waiting.number, [&] {
        return static_cast<std::int64_t>(length_(std::as_const(waiting.element)));
      });
      const auto& bounds = options_.boundaries;
      const std::size_t bucket =
          std::upper_bound(bounds.begin(), bounds.end(), length) - bounds.begin();
      buckets_[bucket].push_back(std::move(waiting));
      return bucket;
    }
    Batched<T> take(std::size_t bucket) {
      PaddedBatchOptions padding{.padding_value = options_.padding_value, .padded_shapes = {}};
      if (options_.pad_to_bucket_boundary && bucket < options_.boundaries.size()) {
        padding.padded_shapes = {{options_.boundaries[bucket] - 1}};
      }
      std::vector<T> elements;
      for (Waiting& each : buckets_[bucket]) elements.push_back(std::move(each.element));
      buckets_[bucket].clear();
      return detail::stack_padded(std::move(elements), padding);
    }

    const IteratorPtr<T> input_;
    Length length_;
    const BucketOptions options_;
    const UserCalls call_;
    PositionKeeper keeper_;
    std::vector<std::vector<Waiting>> buckets_;
    std::int64_t read_ = 0;    // elements of the input, with those that could not be made
    std::int64_t errors_ = 0;  // of these
  };

  const Length length_;
  const BucketOptions options_;
};

}  // namespace cohort::data
