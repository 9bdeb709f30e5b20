#pragma once

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/data/node.h"

/// Stages that give some of their input's elements: take, skip, shard, and a checked number.
namespace cohort::data {

/// The first `count` elements; all of them for a negative count.
template <class T>
class Take : public KeepingNode<Take, T> {
 public:
  Take(TypedPtr<T> input, std::int64_t count)
      : KeepingNode<Take, T>(std::move(input)), count_(count) {}

  std::string name() const override { return cat("take(", count_, ')'); }
  auto arguments() const { return std::tuple(count_); }
  std::int64_t cardinality() const override {
    const std::int64_t all = this->input_->cardinality();
    if (count_ < 0) return all;
    if (all == kInfinite) return count_;
    return all == kUnknownCardinality ? all : std::min(all, count_);
  }
  IteratorPtr<T> run(const Iteration& iteration) const {
    return std::make_unique<Running>(this->input_->iterate(iteration), count_);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, std::int64_t count) : input_(std::move(input)), count_(count) {}
    bool next(T& element) override {
      if (taken_ == count_) return false;
      ++taken_;  // also when it throws: a broken element is one of the first too
      return input_->next(element);
    }
    Passed gather(std::int64_t count, Gathered<T>& batch) override {
      return took(input_->gather(limited(count), batch));
    }
    Passed skip(std::int64_t count) override { return took(input_->skip(limited(count))); }
    void save(PositionWriter& position) const override {
      position.put(taken_);
      input_->save(position);
    }
    void restore(PositionReader& position) override {
      taken_ = position.get();
      input_->restore(position);
    }

   private:
    std::int64_t limited(std::int64_t count) const {
      return count_ < 0 ? count : std::min(count, count_ - taken_);
    }
    Passed took(Passed passed) {
      taken_ += passed.count;
      return passed;
    }

    const IteratorPtr<T> input_;
    const std::int64_t count_;
    std::int64_t taken_ = 0;
  };

  const std::int64_t count_;
};

/// All but the first `count` elements; none for a negative count.
template <class T>
class Skip : public KeepingNode<Skip, T> {
 public:
  Skip(TypedPtr<T> input, std::int64_t count)
      : KeepingNode<Skip, T>(std::move(input)), count_(count) {}

  std::string name() const override { return cat("skip(", count_, ')'); }
  auto arguments() const { return std::tuple(count_); }
  std::int64_t cardinality() const override {
    const std::int64_t all = this->input_->cardinality();
    if (count_ < 0) return 0;
    return all < 0 ? all : std::max<std::int64_t>(all - count_, 0);
  }
  IteratorPtr<T> run(const Iteration& iteration) const {
    return std::make_unique<Running>(this->input_->iterate(iteration), count_);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, std::int64_t count) : input_(std::move(input)), left_(count) {}
    bool next(T& element) override {
      begin().rethrow();
      return left_ == 0 && input_->next(element);
    }
    Passed gather(std::int64_t count, Gathered<T>& batch) override {
      Passed begun = begin();
      return left_ == 0 && !begun.error ? input_->gather(count, batch) : begun;
    }
    Passed skip(std::int64_t count) override {
      Passed begun = begin();
      return left_ == 0 && !begun.error ? input_->skip(count) : begun;
    }
    void save(PositionWriter& position) const override {
      position.put(left_);
      input_->save(position);
    }
    void restore(PositionReader& position) override {
      left_ = position.get();
      input_->restore(position);
    }

   private:
    /// An error among the elements that are left out is an error of the stage, and one element.
    Passed begin() {
      if (left_ <= 0) return {};
      Passed passed = input_->skip(left_);
      left_ -= passed.count;
      return {passed.error ? 1 : 0, std::move(passed.error)};
    }

    const IteratorPtr<T> input_;
    std::int64_t left_;  // to be left out; negative: all
  };

  const std::int64_t count_;
};

/// Which part of the elements a shard is.
struct ShardOf {
  std::int64_t count;
  std::int64_t index;
  /// Placeholder that the HINT policy replaces by the workers; itself it shards nothing.
  static constexpr std::int64_t kHint = -1;
  /// An error where there are fewer elements than shards, and this one would get some.
  bool strict = false;

  bool is_hint() const { return count == kHint; }
};

/// Throws InvalidArgument unless 0 <= index < shards.
void check_shard(std::int64_t shards, std::int64_t index, const char* where);
[[noreturn]] void throw_too_few_elements(const ShardOf& shard, std::int64_t elements);

/// Elements index, index + count, index + 2 count, …
template <class T>
class Shard : public KeepingNode<Shard, T> {
 public:
  Shard(TypedPtr<T> input, ShardOf shard)
      : KeepingNode<Shard, T>(std::move(input)), shard_(shard) {}

  std::string name() const override {
    return shard_.is_hint() ? "shard(SHARD_HINT)"
                            : cat("shard(", shard_.count, ", ", shard_.index, ')');
  }
  NodePtr with_shard(const ShardOf& shard) const override {
    return shard_.is_hint() ? std::make_shared<Shard>(this->input_, shard) : nullptr;
  }
  auto arguments() const { return std::tuple(shard_); }
  std::int64_t cardinality() const override {
    const std::int64_t all = this->input_->cardinality();
    if (all < 0 || shard_.is_hint()) return all;
    return all / shard_.count + (shard_.index < all % shard_.count);
  }
  IteratorPtr<T> run(const Iteration& iteration) const {
    auto input = this->input_->iterate(iteration);
    if (shard_.is_hint()) return input;
    return std::make_unique<Running>(std::move(input), shard_);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, const ShardOf& shard)
        : input_(std::move(input)), shard_(shard), ahead_(shard.index) {}
    bool next(T& element) override {
      if (!begun_ && shard_.strict) return first(element);
      begun_ = true;
      pass();
      if (ahead_ > 0) return false;
      ahead_ = shard_.count - 1;  // also when it throws: a broken element is this shard's own
      return input_->next(element);
    }
    void save(PositionWriter& position) const override {
      position.put(std::int64_t{begun_});
      position.put(ahead_);
      input_->save(position);
    }
    void restore(PositionReader& position) override {
      begun_ = position.get() != 0;
      ahead_ = position.get();
      input_->restore(position);
    }

   private:
    /// The first round must give every shard an element, or none is left out silently. One that
    /// can't be made is an error on its own shard.
    bool first(T& element) {
      begun_ = true;
      pass();
      if (ahead_ > 0) return false;
      ahead_ = shard_.count - 1;
      if (!input_->next(element)) return false;
      const std::int64_t others = shard_.count - 1 - shard_.index;
      const Passed passed = input_->skip(others);
      ahead_ -= passed.count;
      if (!passed.error && passed.count < others) {
        throw_too_few_elements(shard_, shard_.index + 1 + passed.count);
      }
      return true;
    }
    /// The elements of other shards.
    void pass() {
      const Passed passed = input_->skip(ahead_);
      ahead_ -= passed.count;
      passed.rethrow();
    }

    const IteratorPtr<T> input_;
    const ShardOf shard_;
    std::int64_t ahead_;  // elements of other shards before the next one of this
    bool begun_ = false;
  };

  const ShardOf shard_;
};

[[noreturn]] void throw_other_cardinality(std::int64_t expected, std::int64_t got, bool more);

/// The input, which must have exactly this many elements.
template <class T>
class AssertCardinality : public KeepingNode<AssertCardinality, T> {
 public:
  AssertCardinality(TypedPtr<T> input, std::int64_t count)
      : KeepingNode<AssertCardinality, T>(std::move(input)), count_(count) {}

  std::string name() const override { return cat("assert_cardinality(", count_, ')'); }
  bool checks_cardinality() const override { return true; }
  auto arguments() const { return std::tuple(count_); }
  std::int64_t cardinality() const override { return count_; }
  IteratorPtr<T> run(const Iteration& iteration) const {
    return std::make_unique<Running>(this->input_->iterate(iteration), count_);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, std::int64_t count) : input_(std::move(input)), count_(count) {}
    bool next(T& element) override {
      if (seen_ > count_) return false;
      const bool more = input_->next(element);
      if (more == (seen_ < count_)) {
        seen_ += more;
        return more;
      }
      // Says so once, and is at its end.
      throw_other_cardinality(count_, std::exchange(seen_, count_ + 1), more);
    }
    void save(PositionWriter& position) const override {
      position.put(seen_);
      input_->save(position);
    }
    void restore(PositionReader& position) override {
      seen_ = position.get();
      input_->restore(position);
    }

   private:
    const IteratorPtr<T> input_;
    const std::int64_t count_;
    std::int64_t seen_ = 0;
  };

  const std::int64_t count_;
};

}  // namespace cohort::data
