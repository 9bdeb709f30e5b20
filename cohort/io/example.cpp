#include "cohort/io/example.h"

#include <algorithm>
#include <cstring>

#include "cohort/io/little_endian.h"
#include "cohort/io/wire_reader.h"

namespace cohort::io {
namespace {

using Field = WireReader::Field;

bool is_message(const Field& field, std::uint32_t number) {
  return field.number == number && field.type == WireType::BYTES;
}

/// Calls `visit` with each field 1 of each list of this kind in the message of a feature: lists of
/// one kind that come one after the other are one list.
template <class Visit>
void visit_list(std::string_view message, FeatureKind kind, const char* record, Visit visit) {
  for (WireReader feature(message, record); !feature.is_done();) {
    const Field list = feature.field();
    if (!is_message(list, static_cast<std::uint32_t>(kind))) continue;
    for (WireReader values(list.bytes, record); !values.is_done();) {
      const Field value = values.field();
      if (value.number == 1) visit(value, values);
    }
  }
}

/// Takes values as long as there is room, and counts all of them.
template <class Value>
class Target {
 public:
  explicit Target(std::span<Value> room) : room_(room) {}

  void add(Value value) {
    if (count_ < room_.size()) room_[count_] = value;
    ++count_;
  }

  /// Values as they lie in memory.
  void add_packed(std::string_view bytes) {
    const std::size_t added = bytes.size() / sizeof(Value);
    const std::size_t fitting = std::min(added, room_.size() - std::min(count_, room_.size()));
    if (fitting > 0) std::memcpy(&room_[count_], bytes.data(), fitting * sizeof(Value));
    count_ += added;
  }

  std::size_t count() const { return count_; }

 private:
  std::span<Value> room_;
  std::size_t count_ = 0;
};

template <class Value>
void append_to(std::vector<Value>& values, const FeatureView& feature) {
  const std::size_t before = values.size();
  values.resize(before + feature.copy(std::span<Value>()));
  feature.copy(std::span(values).subspan(before));
}

}  // namespace

std::string_view name_of(FeatureKind kind) {
  constexpr std::string_view kNames[] = {"nothing", "bytes", "float", "int64"};
  return kNames[static_cast<std::size_t>(kind)];
}

FeatureView::FeatureView(std::string_view message, const char* record)
    : message_(message), record_(record) {
  for (WireReader reader(message, record); !reader.is_done();) {
    const char* position = reader.position();
    const Field field = reader.field();
    if (field.number > 3 || field.type != WireType::BYTES) continue;
    const auto kind = static_cast<FeatureKind>(field.number);
    if (kind != kind_) message_.remove_prefix(static_cast<std::size_t>(position - message_.data()));
    kind_ = kind;  // of two kinds, only the last one is set
  }
}

std::size_t FeatureView::size() const {
  switch (kind_) {
    case FeatureKind::BYTES:
      return copy(std::span<std::string_view>());
    case FeatureKind::FLOAT:
      return copy(std::span<float>());
    case FeatureKind::INT64:
      return copy(std::span<std::int64_t>());
    default:
      return 0;
  }
}

std::size_t FeatureView::copy(std::span<std::string_view> values) const {
  Target<std::string_view> target(values);
  if (kind_ != FeatureKind::BYTES) return 0;
  visit_list(message_, kind_, record_, [&](const Field& field, const WireReader&) {
    if (field.type == WireType::BYTES) target.add(field.bytes);
  });
  return target.count();
}

std::size_t FeatureView::copy(std::span<float> values) const {
  Target<float> target(values);
  if (kind_ != FeatureKind::FLOAT) return 0;
  visit_list(message_, kind_, record_, [&](const Field& field, const WireReader& in) {
    if (field.type == WireType::FIXED32) target.add(load<float>(field.bytes.data()));
    if (field.type != WireType::BYTES) return;
    if (field.bytes.size() % sizeof(float) != 0) in.fail("a list of floats is cut off");
    target.add_packed(field.bytes);
  });
  return target.count();
}

std::size_t FeatureView::copy(std::span<std::int64_t> values) const {
  Target<std::int64_t> target(values);
  if (kind_ != FeatureKind::INT64) return 0;
  visit_list(message_, kind_, record_, [&](const Field& field, const WireReader&) {
    if (field.type == WireType::VARINT) target.add(static_cast<std::int64_t>(field.varint));
    if (field.type != WireType::BYTES) return;
    for (WireReader packed(field.bytes, record_); !packed.is_done();) {
      target.add(static_cast<std::int64_t>(packed.varint()));
    }
  });
  return target.count();
}

void FeatureView::append(std::vector<std::string_view>& values) const { append_to(values, *this); }
void FeatureView::append(std::vector<float>& values) const { append_to(values, *this); }
void FeatureView::append(std::vector<std::int64_t>& values) const { append_to(values, *this); }

void visit_features(std::string_view record,
                    FunctionRef<void(std::string_view, const FeatureView&)> visit) {
  const char* start = record.data();
  for (WireReader example(record, start); !example.is_done();) {
    const Field features = example.field();
    if (!is_message(features, 1)) continue;
    for (WireReader entries(features.bytes, start); !entries.is_done();) {
      const Field entry = entries.field();
      if (!is_message(entry, 1)) continue;
      std::string_view name;
      std::string_view value;
      for (WireReader parts(entry.bytes, start); !parts.is_done();) {
        const Field part = parts.field();
        if (is_message(part, 1)) name = part.bytes;
        if (is_message(part, 2)) value = part.bytes;
      }
      visit(name, FeatureView(value, start));
    }
  }
}

std::map<std::string_view, FeatureView> features_of(std::string_view record) {
  std::map<std::string_view, FeatureView> features;
  visit_features(record, [&](std::string_view name, const FeatureView& feature) {
    features.insert_or_assign(name, feature);
  });
  return features;
}

}  // namespace cohort::io
