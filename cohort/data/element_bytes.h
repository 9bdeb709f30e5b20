#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "cohort/base/never.h"
#include "cohort/data/strings.h"
#include "cohort/values/nest.h"

/// Elements as bytes, for files that outlive the process. Numbers are as the machine has them.
namespace cohort::data {

class ElementWriter {
 public:
  static constexpr bool kReads = false;

  void number(const void* value, std::size_t bytes) {
    out_.append(static_cast<const char*>(value), bytes);
  }
  void leaf(const std::string& text);
  void leaf(const Strings& strings);
  /// Throws InvalidArgument for a tensor that is not dense.
  void leaf(const at::Tensor& tensor);

  /// The bytes so far; the next element starts with none.
  std::string take() { return std::exchange(out_, {}); }

 private:
  std::string out_;
};

/// Throws InvalidArgument where the bytes end before the element does.
class ElementReader {
 public:
  static constexpr bool kReads = true;

  /// Takes the bytes, which must outlive this.
  explicit ElementReader(std::string_view bytes) : left_(bytes) {}

  void number(void* value, std::size_t bytes);
  void leaf(std::string& text);
  void leaf(Strings& strings);
  void leaf(at::Tensor& tensor);

  /// Throws InvalidArgument if there are bytes left.
  void expect_end() const;

 private:
  std::string_view take(std::size_t bytes);
  std::int64_t length();
  std::vector<std::int64_t> sizes();

  std::string_view left_;
};

/// Writes an element, or reads one: the parts of each nest in order, with the lengths of those that
/// have one. (nest::visit knows the leaves of what is there; reading has to make them.)
template <class Archive, class T>
void transfer(Archive& archive, T& value) {
  using Plain = std::remove_const_t<T>;
  const auto each = [&](auto&... parts) { (transfer(archive, parts), ...); };
  const auto length = [&](std::size_t size) {
    auto count = static_cast<std::int64_t>(size);
    transfer(archive, count);
    return static_cast<std::size_t>(count);
  };
  if constexpr (std::is_arithmetic_v<Plain> || std::is_enum_v<Plain>) {
    archive.number(&value, sizeof(value));
  } else if constexpr (nest::Tuple<Plain>) {
    std::apply(each, value);
  } else if constexpr (nest::Struct<Plain>) {
    std::apply(each, nest::fields(value));
  } else if constexpr (nest::Array<Plain>) {
    for (auto& part : value) transfer(archive, part);
  } else if constexpr (nest::List<Plain>) {
    const std::size_t size = length(value.size());
    if constexpr (Archive::kReads) value.clear();
    for (std::size_t i = 0; i < size; ++i) {
      if constexpr (Archive::kReads) value.emplace_back();
      transfer(archive, value[i]);
    }
  } else if constexpr (std::is_same_v<Plain, std::vector<bool>>) {  // has no bools to refer to
    const std::size_t size = length(value.size());
    if constexpr (Archive::kReads) value.clear();
    for (std::size_t i = 0; i < size; ++i) {
      bool part = !Archive::kReads && value[i];
      transfer(archive, part);
      if constexpr (Archive::kReads) value.push_back(part);
    }
  } else if constexpr (nest::Map<Plain>) {
    std::size_t size = length(value.size());
    if constexpr (Archive::kReads) {
      for (value.clear(); size > 0; --size) {
        typename Plain::key_type key{};
        transfer(archive, key);
        transfer(archive, value[std::move(key)]);
      }
    } else {
      for (const auto& [key, part] : value) each(key, part);
    }
  } else if constexpr (nest::Optional<Plain>) {
    const bool is_there = length(value.has_value()) > 0;
    if constexpr (Archive::kReads) value.reset();
    if (!is_there) return;
    if constexpr (Archive::kReads) value.emplace();
    transfer(archive, *value);
  } else if constexpr (requires { archive.leaf(value); }) {
    archive.leaf(value);
  } else {
    static_assert(kNever<T>,
                  "elements can be kept in a file if they are tensors, numbers, strings, "
                  "data::Strings, or nests of them");
  }
}

}  // namespace cohort::data
