#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::data {

/// Where an iterator stands: seeds, epochs, counts of delivered elements and a cursor for each
/// source, but no elements. A list of whole numbers, some hundred bytes for most pipelines.
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

/// Collects the numbers of a position, stage after stage.
class PositionWriter {
 public:
  void put(std::int64_t number) { numbers_.push_back(number); }
  void put(std::uint64_t number) { numbers_.push_back(static_cast<std::int64_t>(number)); }
  /// The numbers of another position, to be read back as one.
  void put(const Position& position);

  Position take() { return Position(std::move(numbers_)); }

 private:
  std::vector<std::int64_t> numbers_;
};

/// Gives the numbers of a position back in the same order.
class PositionReader {
 public:
  explicit PositionReader(const Position& position) : left_(position.numbers()) {}

  /// Throw InvalidArgument where the position is of a pipeline with other stages.
  std::int64_t get();
  std::uint64_t get_unsigned() { return static_cast<std::uint64_t>(get()); }
  Position get_position();
  void expect_end() const;

 private:
  std::span<const std::int64_t> left_;
};

}  // namespace cohort::data
