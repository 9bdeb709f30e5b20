#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

/// Where an iterator stands: seeds, epochs, counts of delivered elements and a cursor for each
/// source, but no elements. A list of whole numbers, some hundred bytes for most pipelines.
///
/// The first number is a hash of the pipeline's stages, so that a position of another pipeline is
/// refused. It knows nothing of threads, buffers, devices, replicas and workers: a position holds
/// for the same pipeline with others of these.
///
///     const data::Position here = iterator.position();
///     save(here.bytes());
///     …
///     iterator.restore(data::Position::from_bytes(load()));
class Position {
 public:
  Position() = default;
  explicit Position(std::vector<std::int64_t> numbers) : numbers_(std::move(numbers)) {}

  const std::vector<std::int64_t>& numbers() const { return numbers_; }

  /// A form for files: the same on every machine.
  std::string bytes() const;
  /// Throws InvalidArgument for bytes that are not of a Position.
  static Position from_bytes(std::string_view bytes);

  friend bool operator==(const Position&, const Position&) = default;

 private:
  std::vector<std::int64_t> numbers_;
};

/// Where an input stood at some time, kept by a stage in case that somebody asks where the stage
/// stands. Nothing is thrown for an input that cannot tell before that.
class KeptPosition {
 public:
  KeptPosition() = default;
  explicit KeptPosition(Position position) : position_(std::move(position)) {}
  explicit KeptPosition(std::exception_ptr why_none) : why_none_(std::move(why_none)) {}

  /// Throws what the input threw.
  const Position& get() const {
    if (why_none_) std::rethrow_exception(why_none_);
    return position_;
  }

 private:
  Position position_;
  std::exception_ptr why_none_;
};

/// Asks an input where it stands; one that cannot tell is asked only once.
class PositionKeeper {
 public:
  template <class Input>
  KeptPosition of(const Input& input) {
    if (why_none_) return KeptPosition(why_none_);
    try {
      return KeptPosition(input.position());
    } catch (...) {
      why_none_ = std::current_exception();
      return KeptPosition(why_none_);
    }
  }

 private:
  std::exception_ptr why_none_;
};

/// Collects the numbers of a position, stage after stage.
class PositionWriter {
 public:
  /// What the position is of; the first thing to be put. See `position_stages`.
  void put_stages(std::string_view stages);
  void put(std::int64_t number) { numbers_.push_back(number); }
  void put(std::uint64_t number) { numbers_.push_back(static_cast<std::int64_t>(number)); }
  /// The numbers of another position, to be read back as one.
  void put(const Position& position);
  void put(const KeptPosition& position) { put(position.get()); }
  /// The numbers of another position, as if they had been put here one by one.
  void append(const Position& position);

  Position take() { return Position(std::move(numbers_)); }

 private:
  std::vector<std::int64_t> numbers_;
};

/// Gives the numbers of a position back in the same order.
class PositionReader {
 public:
  explicit PositionReader(const Position& position) : left_(position.numbers()) {}

  // These throw InvalidArgument where the position is of a pipeline with other stages.

  void expect_stages(std::string_view stages);
  std::int64_t get();
  std::uint64_t get_unsigned() { return static_cast<std::uint64_t>(get()); }
  Position get_position();
  void expect_end() const;

 private:
  std::span<const std::int64_t> left_;
};

}  // namespace cohort::data
