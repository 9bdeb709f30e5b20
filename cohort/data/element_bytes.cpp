#include "cohort/data/element_bytes.h"

#include <ATen/ATen.h>

#include <cstring>

#include "cohort/base/error.h"
#include "cohort/base/whole_tensor.h"

namespace cohort::data {
namespace {

void put(ElementWriter& writer, std::int64_t number) { writer.number(&number, sizeof(number)); }

void put_sizes(ElementWriter& writer, c10::IntArrayRef sizes) {
  put(writer, static_cast<std::int64_t>(sizes.size()));
  for (const std::int64_t size : sizes) put(writer, size);
}

[[noreturn]] void throw_damaged() {
  throw InvalidArgument("ElementReader", "the bytes are not an element of this type");
}

}  // namespace

void ElementWriter::leaf(const std::string& text) {
  put(*this, static_cast<std::int64_t>(text.size()));
  out_.append(text);
}

void ElementWriter::leaf(const Strings& strings) {
  put_sizes(*this, strings.sizes());
  for (const std::string_view each : strings) {
    put(*this, static_cast<std::int64_t>(each.size()));
    out_.append(each);
  }
}

void ElementWriter::leaf(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided) {
    throw InvalidArgument("dataset.cache",
                          "only dense tensors can be kept in a file: call to_dense() first");
  }
  const at::Tensor dense = as_read(tensor.detach().cpu());
  put(*this, static_cast<std::int64_t>(dense.scalar_type()));
  put_sizes(*this, dense.sizes());
  number(dense.data_ptr(), dense.nbytes());
}

std::string_view ElementReader::take(std::size_t bytes) {
  if (bytes > left_.size()) throw_damaged();
  const std::string_view taken = left_.substr(0, bytes);
  left_.remove_prefix(bytes);
  return taken;
}

void ElementReader::number(void* value, std::size_t bytes) {
  std::memcpy(value, take(bytes).data(), bytes);
}

std::int64_t ElementReader::length() {
  std::int64_t value = 0;
  number(&value, sizeof(value));
  if (value < 0) throw_damaged();
  return value;
}

std::vector<std::int64_t> ElementReader::sizes() {
  const std::int64_t dimensions = length();
  if (dimensions > static_cast<std::int64_t>(left_.size() / sizeof(std::int64_t))) throw_damaged();
  std::vector<std::int64_t> sizes;
  for (std::int64_t i = 0; i < dimensions; ++i) sizes.push_back(length());
  return sizes;
}

void ElementReader::leaf(std::string& text) { text = take(length()); }

void ElementReader::leaf(Strings& strings) {
  const std::vector<std::int64_t> shape = sizes();
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(count, size, &count)) throw_damaged();
  }
  if (count > static_cast<std::int64_t>(left_.size() / sizeof(std::int64_t))) throw_damaged();
  std::vector<std::string_view> views;
  views.reserve(count);
  for (std::int64_t i = 0; i < count; ++i) views.push_back(take(length()));
  strings = Strings(std::span<const std::string_view>(views)).reshape(shape);
}

void ElementReader::leaf(at::Tensor& tensor) {
  const std::int64_t dtype = length();
  if (dtype >= static_cast<std::int64_t>(at::ScalarType::Undefined)) throw_damaged();
  const auto type = static_cast<at::ScalarType>(dtype);
  const std::vector<std::int64_t> shape = sizes();
  auto bytes = static_cast<std::int64_t>(at::elementSize(type));
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) throw_damaged();
  }
  const std::string_view values = take(bytes);
  tensor = at::empty(shape, type);
  std::memcpy(tensor.data_ptr(), values.data(), values.size());
}

void ElementReader::expect_end() const {
  if (!left_.empty()) throw_damaged();
}

}  // namespace cohort::data
