// The readers against files that TensorFlow and NumPy wrote.

#include "tests/io/expected_files.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "cohort/io/npy.h"
#include "cohort/io/tfrecord.h"

namespace cohort::io {
namespace {

std::vector<std::string> hex_records(const std::string& name, Compression compression) {
  std::vector<std::string> records;
  TFRecordReader reader(input_path(name), compression);
  for (std::string_view record; reader.next(record);) records.push_back(to_hex(record));
  return records;
}

TEST(FilesOfTensorFlow, AreReadRecordByRecord) {
  const std::map<std::string, Compression> files = {
      {"records.tfrecord", Compression::NONE},
      {"records_gzip.tfrecord", Compression::GZIP},
      {"records_zlib.tfrecord", Compression::ZLIB},
  };
  for (const auto& [name, compression] : files) {
    const std::vector<std::string> expected = expected_content().at(name);
    EXPECT_EQ(hex_records(name, compression), expected) << name;
    EXPECT_EQ(hex_records(name, Compression::AUTO), expected) << name;
  }
}

TEST(FilesOfTensorFlow, AreWrittenInTheSameBytes) {
  const std::string path = testing::TempDir() + "cohort_same_bytes";
  TFRecordReader reader(input_path("records.tfrecord"));
  TFRecordWriter writer(path);
  for (std::string_view record; reader.next(record);) writer.write(record);
  writer.close();
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), input_bytes("records.tfrecord"));
  std::remove(path.c_str());
}

at::ScalarType type_of(const std::string& dtype) {
  static const std::map<std::string, at::ScalarType> types = {
      {"b1", at::kBool},         {"u1", at::kByte},          {"i1", at::kChar},
      {"i2", at::kShort},        {"i4", at::kInt},           {"i8", at::kLong},
      {"f2", at::kHalf},         {"f4", at::kFloat},         {"f8", at::kDouble},
      {"c8", at::kComplexFloat}, {"c16", at::kComplexDouble}};
  return types.at(dtype);
}

/// The elements as expected.json has them.
std::vector<double> plain_values(const at::Tensor& tensor) {
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor) : tensor;
  const at::Tensor flat = real.to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

TEST(FilesOfNumPy, AreReadInEveryTypeAndOrder) {
  int count = 0;
  for (const auto& [name, content] : expected_content().items()) {
    if (!name.ends_with(".npy")) continue;
    const at::Tensor tensor = read_npy(input_path(name));
    EXPECT_EQ(tensor.scalar_type(), type_of(content.at("dtype"))) << name;
    EXPECT_EQ(tensor.sizes(), content.at("shape").get<std::vector<std::int64_t>>()) << name;
    const auto& values = content.at("values");
    std::vector<double> expected;
    for (const auto& value : values) {
      expected.push_back(value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>());
    }
    EXPECT_EQ(plain_values(tensor), expected) << name;
    ++count;
  }
  EXPECT_GT(count, 30);
}

TEST(FilesOfNumPy, AreReadByRows) {
  for (const std::string name : {"f4.npy", "f4_big.npy", "f4_fortran.npy"}) {
    const NpyRows rows(input_path(name));
    EXPECT_TRUE(rows.read(1, 2).equal(read_npy(input_path(name)).slice(0, 1, 2))) << name;
  }
}

}  // namespace
}  // namespace cohort::io
