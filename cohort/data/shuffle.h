#pragma once

#include <optional>

#include "cohort/base/error.h"
#include "cohort/base/random.h"
#include "cohort/data/node.h"

namespace cohort::data {

struct ShuffleOptions {
  /// Without one, a seed follows from `cohort::seed()` and the stage's place in the pipeline.
  std::optional<std::uint64_t> seed = {};
  /// Another order in each pass; false repeats the first one.
  bool reshuffle_each_iteration = true;
};

/// 0 … size-1 in an order that is a function of the seed.
std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed);

/// Gives the elements of each block of `buffer` elements in random order. While a block is given,
/// the next one is read, an element for an element, so that never more than `buffer` are held.
///
/// The order is a function of (seed, pass, block), not of the elements and their timing; and to go
/// back to a position, at most the block that it lies in is read again.
template <class T>
class Shuffle : public KeepingNode<Shuffle, T> {
 public:
  Shuffle(TypedPtr<T> input, std::int64_t buffer, ShuffleOptions options)
      : Shuffle(std::move(input), buffer, options, 0) {
    place_ = this->depth();
  }
  /// `place` tells the stage apart from others with the same seed.
  Shuffle(TypedPtr<T> input, std::int64_t buffer, ShuffleOptions options, std::uint64_t place)
      : KeepingNode<Shuffle, T>(std::move(input)),
        buffer_(buffer),
        options_(options),
        place_(place) {}

  std::string name() const override { return cat("shuffle(", buffer_, ')'); }
  std::string position_kind() const override {
    return cat(name(), options_.seed ? cat(" by ", *options_.seed) : "",
               options_.reshuffle_each_iteration ? "" : " once");
  }
  auto arguments() const { return std::tuple(buffer_, options_, place_); }
  IteratorPtr<T> run(const Iteration& iteration) const {
    const std::uint64_t pass = options_.reshuffle_each_iteration ? iteration.epoch : 0;
    const std::uint64_t seed =
        options_.seed ? mix(*options_.seed, pass) : mix(iteration.seed, place_, pass);
    return std::make_unique<Running>(this->input_->iterate(iteration), buffer_, seed);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, std::int64_t buffer, std::uint64_t seed)
        : input_(std::move(input)), buffer_(buffer), seed_(seed) {}

    bool next(T& element) override {
      if (given_ == order_.size() && !next_block()) return false;
      // One in, one out.
      while (coming_.size() <= given_ && read_into(coming_)) {
      }
      element = std::move(block_[order_[given_++]]);
      return true;
    }
    void save(PositionWriter& position) const override {
      const bool inside = !order_.empty();
      position.put(inside ? number_ - 1 : number_);
      position.put(inside ? static_cast<std::int64_t>(given_) : -1);
      position.put(inside ? errors_in_block_ : 0);
      position.put(static_cast<std::int64_t>(coming_.size()) + errors_in_coming_);
      position.put(errors_in_coming_);
      position.put(inside   ? start_of_block_.get()
                   : begun_ ? start_of_coming_.get()
                            : input_->position());
    }
    void restore(PositionReader& position) override {
      number_ = position.get_unsigned();
      const std::int64_t given = position.get(), errors_in_block = position.get();
      const std::int64_t asked = position.get(), errors = position.get();
      input_->go_to(position.get_position());
      if (given >= 0) {
        ask_again(errors_in_block + 1, errors_in_block, [this] {
          next_block();
          return false;  // there
        });
        given_ = std::min(static_cast<std::size_t>(given), order_.size());
      }
      if (asked > 0) begin();
      ask_again(asked, errors, [this] { return read_into(coming_); });
    }

   private:
    void begin() {
      if (!begun_) start_of_coming_ = keeper_.of(*input_);
      begun_ = true;
    }
    /// Nothing has changed but what is coming when the input throws.
    bool next_block() {
      begin();
      while (read_into(coming_)) {  // the first block, or one after going back to a position
      }
      start_of_block_ = std::exchange(start_of_coming_, keeper_.of(*input_));
      errors_in_block_ = std::exchange(errors_in_coming_, 0);
      block_ = std::exchange(coming_, {});
      coming_.reserve(block_.size());
      order_ = permutation(static_cast<std::int64_t>(block_.size()), mix(seed_, number_++));
      given_ = 0;
      return !block_.empty();
    }
    bool read_into(std::vector<T>& block) {
      if (ended_ || static_cast<std::int64_t>(block.size()) >= buffer_) return false;
      T element{};
      try {
        ended_ = !input_->next(element);
      } catch (...) {
        ++errors_in_coming_;
        throw;
      }
      if (!ended_) block.push_back(std::move(element));
      return !ended_;
    }

    const IteratorPtr<T> input_;
    const std::int64_t buffer_;
    const std::uint64_t seed_;
    std::vector<T> block_, coming_;
    std::vector<std::int64_t> order_;  // of the block's elements
    std::size_t given_ = 0;            // of them
    std::uint64_t number_ = 0;         // of the block that is coming
    PositionKeeper keeper_;
    KeptPosition start_of_block_, start_of_coming_;
    std::int64_t errors_in_block_ = 0, errors_in_coming_ = 0;
    bool begun_ = false;
    bool ended_ = false;
  };

  const std::int64_t buffer_;
  const ShuffleOptions options_;
  std::uint64_t place_;
};

}  // namespace cohort::data
