#include "cohort/data/dataset.h"

namespace cohort::data {
namespace {

/// Elements that are there already.
class StringRows : public Rows<std::string> {
 public:
  explicit StringRows(std::vector<std::string> strings) : strings_(std::move(strings)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(strings_.size()); }
  std::string at(std::int64_t row) const override { return strings_[row]; }
  Strings gather(std::span<const std::int64_t> rows) const override {
    std::vector<std::string_view> views;
    for (const std::int64_t row : rows) views.emplace_back(strings_[row]);
    return Strings(std::span<const std::string_view>(views));
  }
  ElementSpec spec() const override { return spec_of(std::string()); }

 private:
  const std::vector<std::string> strings_;
};

template <class T>
Dataset<T> rows(const char* name, std::shared_ptr<const Rows<T>> rows) {
  return Dataset<T>(std::make_shared<RowsNode<T>>(name, std::move(rows)));
}

}  // namespace

Dataset<std::string> from_tensor_slices(std::vector<std::string> strings) {
  return rows<std::string>("from_tensor_slices", std::make_shared<StringRows>(std::move(strings)));
}

Dataset<std::int64_t> range(std::int64_t stop) { return range(0, stop); }

Dataset<std::int64_t> range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  return rows<std::int64_t>("range", std::make_shared<RangeRows>(start, stop, step));
}

}  // namespace cohort::data
