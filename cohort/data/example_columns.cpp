#include "cohort/data/example_columns.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "cohort/base/error.h"

namespace cohort::data {
namespace {

using io::FeatureView;

std::vector<std::int64_t> with_rows(std::int64_t rows, const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> result = {rows};
  result.insert(result.end(), sizes.begin(), sizes.end());
  return result;
}

std::size_t as_size(std::int64_t number) { return static_cast<std::size_t>(number); }

/// As many numbers in each record, in a tensor from the start.
template <class Number>
class NumberColumn : public ExampleColumn {
 public:
  NumberColumn(std::string_view name, const Feature& feature, std::int64_t rows)
      : ExampleColumn(name, feature),
        tensor_(at::empty(with_rows(rows, feature.sizes()), feature.dtype())),
        data_(tensor_.data_ptr<Number>()) {}

  void finish(const Strings&, ParsedExample& result) override { result.tensors[name()] = tensor_; }

 private:
  std::span<Number> row_at(std::int64_t row) const {
    return {data_ + row * feature().count(), as_size(feature().count())};
  }

  void store(std::int64_t row, const FeatureView& view) override {
    check_count(row, view.copy(row_at(row)));
  }

  void store_default(std::int64_t row) override {
    const auto& number = feature().number();
    if (!number) fail_missing(row);
    std::ranges::fill(row_at(row), number->template to<Number>());
  }

  at::Tensor tensor_;
  Number* data_;
};

/// The memory of a tensor in each record, copied to its place.
class RawColumn : public ExampleColumn {
 public:
  RawColumn(std::string_view name, const Feature& feature, std::int64_t rows)
      : ExampleColumn(name, feature),
        is_bool_(feature.dtype() == at::kBool),
        tensor_(
            at::empty(with_rows(rows, feature.sizes()), is_bool_ ? at::kByte : feature.dtype())),
        data_(static_cast<char*>(tensor_.data_ptr())) {}

  void finish(const Strings&, ParsedExample& result) override {
    result.tensors[name()] = is_bool_ ? tensor_.ne(0) : tensor_;
  }

 private:
  void store(std::int64_t row, const FeatureView& view) override {
    std::string_view bytes;
    const std::size_t count = view.copy(std::span(&bytes, 1));
    if (count != 1) fail(row, cat("expected 1 value, got ", count));
    if (bytes.size() != as_size(feature().count())) {
      fail(row, cat("expected ", feature().count(), " bytes, for sizes ",
                    at::IntArrayRef(feature().sizes()), " of ", feature().dtype(), ", got ",
                    bytes.size()));
    }
    if (!bytes.empty()) std::memcpy(data_ + row * feature().count(), bytes.data(), bytes.size());
  }

  void store_default(std::int64_t row) override {
    const auto& number = feature().number();
    if (!number) fail_missing(row);
    tensor_.select(0, row).fill_(*number);
  }

  bool is_bool_;  // read as bytes, as one that is neither 0 nor 1 is no bool
  at::Tensor tensor_;
  char* data_;
};

/// As many strings in each record.
class StringColumn : public ExampleColumn {
 public:
  StringColumn(std::string_view name, const Feature& feature, std::int64_t rows)
      : ExampleColumn(name, feature), rows_(rows), views_(as_size(rows * feature.count())) {}

  void finish(const Strings& records, ParsedExample& result) override {
    const Strings flat = has_default_ ? Strings(views_) : records.within(views_);
    result.strings[name()] = flat.reshape(with_rows(rows_, feature().sizes()));
  }

 private:
  std::span<std::string_view> row_at(std::int64_t row) {
    const std::size_t count = as_size(feature().count());
    return std::span(views_).subspan(as_size(row) * count, count);
  }

  void store(std::int64_t row, const FeatureView& view) override {
    check_count(row, view.copy(row_at(row)));
  }

  void store_default(std::int64_t row) override {
    const auto& string = feature().string();
    if (!string) fail_missing(row);
    std::ranges::fill(row_at(row), *string);
    has_default_ = true;
  }

  std::int64_t rows_;
  std::vector<std::string_view> views_;
  bool has_default_ = false;  // which does not lie in the records
};

/// Any number of values in each record, one row after the other.
template <class Value>
class VariableColumn : public ExampleColumn {
 public:
  VariableColumn(std::string_view name, const Feature& feature, std::int64_t rows)
      : ExampleColumn(name, feature) {
    starts_.reserve(as_size(rows) + 1);
  }

  void finish(const Strings& records, ParsedExample& result) override {
    starts_.push_back(values_.size());
    const auto rows = static_cast<std::int64_t>(starts_.size()) - 1;
    at::Tensor lengths = at::empty({rows}, at::kLong);
    auto* length = lengths.data_ptr<std::int64_t>();
    for (std::size_t row = 0; row + 1 < starts_.size(); ++row) {
      length[row] = static_cast<std::int64_t>(starts_[row + 1] - starts_[row]);
    }
    const std::int64_t longest = rows == 0 ? 0 : *std::max_element(length, length + rows);
    add_padded(rows, longest, records, result);
    result.lengths[name()] = lengths;
  }

 private:
  void store(std::int64_t row, const FeatureView& view) override {
    if (starts_.size() > as_size(row)) {
      values_.resize(starts_[as_size(row)]);
    } else {
      starts_.push_back(values_.size());
    }
    view.append(values_);
  }

  void store_default(std::int64_t) override { starts_.push_back(values_.size()); }

  /// Copies the rows into an array that is full of the default.
  void copy_rows(Value* target, std::int64_t longest) const {
    for (std::size_t row = 0; row + 1 < starts_.size(); ++row) {
      std::copy(values_.begin() + static_cast<std::ptrdiff_t>(starts_[row]),
                values_.begin() + static_cast<std::ptrdiff_t>(starts_[row + 1]),
                target + static_cast<std::int64_t>(row) * longest);
    }
  }

  void add_padded(std::int64_t rows, std::int64_t longest, const Strings& records,
                  ParsedExample& result);

  std::vector<Value> values_;
  std::vector<std::size_t> starts_;  // of the rows in values_
};

template <class Value>
void VariableColumn<Value>::add_padded(std::int64_t rows, std::int64_t longest, const Strings&,
                                       ParsedExample& result) {
  at::Tensor padded = at::full({rows, longest}, feature().number().value_or(0), feature().dtype());
  copy_rows(padded.data_ptr<Value>(), longest);
  result.tensors[name()] = padded;
}

template <>
void VariableColumn<std::string_view>::add_padded(std::int64_t rows, std::int64_t longest,
                                                  const Strings& records, ParsedExample& result) {
  const std::string padding = feature().string().value_or("");
  std::vector<std::string_view> padded(as_size(rows * longest), padding);
  copy_rows(padded.data(), longest);
  const Strings flat = padding.empty() ? records.within(padded) : Strings(padded);
  result.strings[name()] = flat.reshape({rows, longest});
}

template <class Column>
std::unique_ptr<ExampleColumn> column(std::string_view name, const Feature& feature,
                                      std::int64_t rows) {
  return std::make_unique<Column>(name, feature, rows);
}

}  // namespace

void ExampleColumn::take(std::int64_t row, const FeatureView& view) {
  if (view.kind() == io::FeatureKind::NONE) return;
  if (view.kind() != feature_.kind()) {
    fail(row, cat("expected ", name_of(feature_.kind()), ", got ", name_of(view.kind())));
  }
  store(row, view);
  last_row_ = row;
}

void ExampleColumn::end_row(std::int64_t row) {
  if (last_row_ != row) store_default(row);
}

void ExampleColumn::fail(std::int64_t row, std::string_view what) const {
  throw InvalidArgument("parse_example", cat("record ", row, ", feature '", name_, "': ", what));
}

void ExampleColumn::fail_missing(std::int64_t row) const {
  fail(row, cat("expected ", name_of(feature_.kind()),
                ", got none; default_value(…) says what to take instead"));
}

void ExampleColumn::check_count(std::int64_t row, std::size_t count) const {
  if (count == as_size(feature_.count())) return;
  fail(row, cat("expected ", feature_.count(), " values, for sizes ",
                at::IntArrayRef(feature_.sizes()), ", got ", count));
}

std::unique_ptr<ExampleColumn> make_column(std::string_view name, const Feature& feature,
                                           std::int64_t rows) {
  if (feature.is_raw()) return column<RawColumn>(name, feature, rows);
  const bool is_variable = feature.is_variable();
  switch (feature.kind()) {
    case io::FeatureKind::INT64:
      return is_variable ? column<VariableColumn<std::int64_t>>(name, feature, rows)
                         : column<NumberColumn<std::int64_t>>(name, feature, rows);
    case io::FeatureKind::FLOAT:
      return is_variable ? column<VariableColumn<float>>(name, feature, rows)
                         : column<NumberColumn<float>>(name, feature, rows);
    default:
      return is_variable ? column<VariableColumn<std::string_view>>(name, feature, rows)
                         : column<StringColumn>(name, feature, rows);
  }
}

}  // namespace cohort::data
