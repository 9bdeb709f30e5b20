#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/base/function_ref.h"

/// tf.train.Example, the usual content of a TFRecord: lists of values under names.
///
/// It is a message of protocol buffers. As their numbers, and no names, are in the bytes:
///
///     Example    { Features features = 1; }
///     Features   { repeated Entry feature = 1; }      Entry { string key = 1; Feature value = 2; }
///     Feature    { one of BytesList = 1, FloatList = 2, Int64List = 3 }
///     BytesList  { repeated bytes value = 1; }
///     FloatList  { repeated float value = 1; }        packed into one field, or one field each
///     Int64List  { repeated int64 value = 1; }        likewise
namespace cohort::io {

/// What a feature is a list of.
enum class FeatureKind {
  NONE = 0,  ///< Nothing was set.
  BYTES = 1,
  FLOAT = 2,
  INT64 = 3,
};

/// "bytes", "float", "int64" or "nothing".
std::string_view name_of(FeatureKind kind);

/// One feature of a record, inside of the record's bytes, which must outlive it.
///
/// The values are decoded when they are asked for; of another kind than it has, there are none.
/// Throws InvalidArgument for malformed bytes.
class FeatureView {
 public:
  FeatureView() = default;
  FeatureView(std::string_view message, const char* record);

  FeatureKind kind() const { return kind_; }

  /// The number of values.
  std::size_t size() const;

  /// Appends all values.
  void append(std::vector<std::string_view>& values) const;
  void append(std::vector<float>& values) const;
  void append(std::vector<std::int64_t>& values) const;

  /// Copies as many values as the target has room for, and returns how many there are.
  std::size_t copy(std::span<std::string_view> values) const;
  std::size_t copy(std::span<float> values) const;
  std::size_t copy(std::span<std::int64_t> values) const;

 private:
  FeatureKind kind_ = FeatureKind::NONE;
  std::string_view message_;
  const char* record_ = nullptr;
};

/// Calls `visit` for each feature of a serialized Example, in the order of the bytes. Of two with
/// one name, the last counts. Fields that are unknown are skipped.
///
/// Throws InvalidArgument, with the byte of the record, for malformed bytes.
void visit_features(std::string_view record,
                    FunctionRef<void(std::string_view name, const FeatureView& feature)> visit);

/// All features of a serialized Example by name. Throws as `visit_features`.
std::map<std::string_view, FeatureView> features_of(std::string_view record);

/// Makes the bytes of an Example.
///
///     writer.write(ExampleBuilder().bytes("image", pixels).int64("label", 7).serialize());
///
/// A name that is set again has the last values. Equal content gives equal bytes.
class ExampleBuilder {
 public:
  ExampleBuilder& bytes(std::string_view name, std::string_view value);
  ExampleBuilder& bytes(std::string_view name, std::span<const std::string> values);

  ExampleBuilder& int64(std::string_view name, std::int64_t value);
  ExampleBuilder& int64(std::string_view name, std::span<const std::int64_t> values);

  ExampleBuilder& floats(std::string_view name, float value);
  ExampleBuilder& floats(std::string_view name, std::span<const float> values);

  std::string serialize() const;

 private:
  std::map<std::string, std::string, std::less<>> features_;  // as messages
};

}  // namespace cohort::io
