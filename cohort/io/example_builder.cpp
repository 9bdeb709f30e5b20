#include "cohort/io/example.h"
#include "cohort/io/wire_reader.h"

namespace cohort::io {
namespace {

void add_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

/// A field whose value is bytes, or another message.
void add_field(std::string& out, std::uint32_t number, std::string_view value) {
  add_varint(out, number << 3 | static_cast<std::uint32_t>(WireType::BYTES));
  add_varint(out, value.size());
  out += value;
}

std::string message_of(std::uint32_t number, std::string_view value) {
  std::string message;
  add_field(message, number, value);
  return message;
}

std::string feature_of(FeatureKind kind, std::string_view list) {
  return message_of(static_cast<std::uint32_t>(kind), list);
}

}  // namespace

ExampleBuilder& ExampleBuilder::bytes(std::string_view name, std::string_view value) {
  features_[std::string(name)] = feature_of(FeatureKind::BYTES, message_of(1, value));
  return *this;
}

ExampleBuilder& ExampleBuilder::bytes(std::string_view name, std::span<const std::string> values) {
  std::string list;
  for (const std::string& value : values) add_field(list, 1, value);
  features_[std::string(name)] = feature_of(FeatureKind::BYTES, list);
  return *this;
}

ExampleBuilder& ExampleBuilder::int64(std::string_view name, std::int64_t value) {
  return int64(name, std::span(&value, 1));
}

ExampleBuilder& ExampleBuilder::int64(std::string_view name, std::span<const std::int64_t> values) {
  std::string packed;
  for (const std::int64_t value : values) add_varint(packed, static_cast<std::uint64_t>(value));
  features_[std::string(name)] = feature_of(FeatureKind::INT64, message_of(1, packed));
  return *this;
}

ExampleBuilder& ExampleBuilder::floats(std::string_view name, float value) {
  return floats(name, std::span(&value, 1));
}

ExampleBuilder& ExampleBuilder::floats(std::string_view name, std::span<const float> values) {
  const std::string_view packed(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  features_[std::string(name)] = feature_of(FeatureKind::FLOAT, message_of(1, packed));
  return *this;
}

std::string ExampleBuilder::serialize() const {
  std::string entries;
  for (const auto& [name, feature] : features_) {
    add_field(entries, 1, message_of(1, name) + message_of(2, feature));
  }
  return message_of(1, entries);
}

}  // namespace cohort::io
