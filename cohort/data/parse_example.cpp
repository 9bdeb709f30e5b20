#include "cohort/data/parse_example.h"

#include <memory>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/data/example_columns.h"
#include "cohort/io/example.h"

namespace cohort::data {
namespace {

/// Finds the column of a feature by its name. Records of one data set have the same features in the
/// same order, most of the time: so the first guess is what the record before had in that place.
class ColumnFinder {
 public:
  ColumnFinder(const ParseOptions& options, std::int64_t rows) {
    for (const auto& [name, feature] : options.features) {
      columns_.push_back(make_column(name, feature, rows));
    }
  }

  const std::vector<std::unique_ptr<ExampleColumn>>& columns() const { return columns_; }

  /// nullptr if nobody wants it. The names must live as long as the finder.
  ExampleColumn* find(std::size_t place, std::string_view name) {
    if (place >= guesses_.size()) guesses_.resize(place + 1);
    Guess& guess = guesses_[place];
    if (guess.name.data() == nullptr || guess.name != name) guess = {name, search(name)};
    return guess.column;
  }

 private:
  struct Guess {
    std::string_view name;
    ExampleColumn* column = nullptr;
  };

  ExampleColumn* search(std::string_view name) const {
    for (const auto& column : columns_) {
      if (column->name() == name) return column.get();
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<ExampleColumn>> columns_;
  std::vector<Guess> guesses_;  // by the place of a feature in its record
};

void parse_record(std::string_view record, std::int64_t row, ColumnFinder& finder) {
  std::size_t place = 0;
  io::visit_features(record, [&](std::string_view name, const io::FeatureView& feature) {
    if (ExampleColumn* column = finder.find(place++, name)) column->take(row, feature);
  });
  for (const auto& column : finder.columns()) column->end_row(row);
}

ParsedExample parse_batch(const Strings& records, const ParseOptions& options) {
  ColumnFinder finder(options, records.numel());
  std::int64_t row = 0;
  try {
    for (const std::string_view record : records) parse_record(record, row++, finder);
  } catch (InvalidArgument& error) {
    error.add_note(cat("parsing record ", row - 1, " of ", records.numel()));
    throw;
  }
  ParsedExample result;
  for (const auto& column : finder.columns()) column->finish(records, result);
  return result;
}

/// The only row of a batch of one.
ParsedExample without_rows(ParsedExample batch) {
  for (auto& [name, tensor] : batch.tensors) tensor = tensor.select(0, 0);
  for (auto& [name, strings] : batch.strings) strings = strings.select(0);
  for (auto& [name, length] : batch.lengths) length = length.select(0, 0);
  return batch;
}

template <class Value>
const Value& find_by_name(const std::map<std::string, Value>& values, std::string_view name,
                          std::string_view what) {
  const auto found = values.find(std::string(name));
  if (found != values.end()) return found->second;
  std::string names;
  for (const auto& [other, value] : values) names += cat(names.empty() ? "" : ", ", other);
  throw KeyError("ParsedExample",
                 cat("there is no ", what, " '", name, "', but ", names.empty() ? "none" : names));
}

}  // namespace

const at::Tensor& ParsedExample::tensor(std::string_view name) const& {
  return find_by_name(tensors, name, "tensor");
}

const Strings& ParsedExample::string(std::string_view name) const& {
  return find_by_name(strings, name, "string");
}

const at::Tensor& ParsedExample::length(std::string_view name) const& {
  return find_by_name(lengths, name, "length");
}

ParsedExample parse_example(std::string_view record, const ParseOptions& options) {
  return parse_example(Strings::scalar(record), options);
}

ParsedExample parse_example(const Strings& records, const ParseOptions& options) {
  if (records.dim() > 1) {
    throw InvalidArgument("parse_example",
                          cat("expected records in one dimension, got sizes ", records.sizes()));
  }
  ParsedExample batch = parse_batch(records, options);
  return records.dim() == 0 ? without_rows(std::move(batch)) : batch;
}

}  // namespace cohort::data
