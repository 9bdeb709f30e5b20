#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "cohort/data/feature.h"
#include "cohort/data/parse_example.h"
#include "cohort/data/strings.h"

namespace cohort::data {

/// The values of one feature of all records of a batch. `parse_example` gives it the records'
/// values row by row; of two for one row, the last counts.
class ExampleColumn {
 public:
  virtual ~ExampleColumn() = default;
  ExampleColumn(const ExampleColumn&) = delete;
  ExampleColumn& operator=(const ExampleColumn&) = delete;

  const std::string& name() const { return name_; }

  /// Takes what a record has; nothing, if nothing is set.
  void take(std::int64_t row, const io::FeatureView& feature);

  /// After all features of a record: takes the default if there was none.
  void end_row(std::int64_t row);

  /// After all records: adds the result. `records` holds the views that were taken.
  virtual void finish(const Strings& records, ParsedExample& result) = 0;

 protected:
  ExampleColumn(std::string_view name, const Feature& feature) : name_(name), feature_(feature) {}

  virtual void store(std::int64_t row, const io::FeatureView& feature) = 0;

  /// Throws if there is no default.
  virtual void store_default(std::int64_t row) = 0;

  const Feature& feature() const { return feature_; }
  [[noreturn]] void fail(std::int64_t row, std::string_view what) const;
  [[noreturn]] void fail_missing(std::int64_t row) const;
  void check_count(std::int64_t row, std::size_t count) const;

 private:
  const std::string name_;
  const Feature& feature_;
  std::int64_t last_row_ = -1;  // that had a value
};

/// The column for a feature, which must outlive it, of so many records.
std::unique_ptr<ExampleColumn> make_column(std::string_view name, const Feature& feature,
                                           std::int64_t rows);

}  // namespace cohort::data
