// A message of protocol buffers is a row of fields, each a key and a value. All numbers are written
// seven bits to a byte, the lowest first, with the high bit set in all bytes but the last; a
// negative one has ten bytes. The key is the field's number * 8 + its type.
//
//   field                        key
//   1  mesh_shape                0x0a   length in bytes, numbers
//   2  num_tasks                 0x10   number; left out if it is 0
//   3  num_tpu_devices_per_task  0x18   number; left out if it is 0
//   4  device_coordinates        0x22   length in bytes, numbers
//
// The lists may also come as one field for each number, with the keys 0x08 and 0x20. TensorFlow
// puts a field 5 behind them, about the hardware.

#include "cohort/tpu/topology_proto.h"

#include <cstdint>

#include "cohort/base/error.h"
#include "cohort/io/wire_reader.h"

namespace cohort::tpu {
namespace {

using io::WireReader;
using io::WireType;

enum Field : std::uint32_t { MESH_SHAPE = 1, NUM_TASKS = 2, PER_TASK = 3, DEVICE_COORDINATES = 4 };

void append_number(std::string& bytes, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) bytes += static_cast<char>((number & 0x7f) | 0x80);
  bytes += static_cast<char>(number);
}

void append_key(std::string& bytes, Field field, WireType type) {
  append_number(bytes, field << 3 | static_cast<std::uint64_t>(type));
}

void append_field(std::string& bytes, Field field, int number) {
  if (number == 0) return;
  append_key(bytes, field, WireType::VARINT);
  append_number(bytes, static_cast<std::uint64_t>(std::int64_t{number}));
}

void append_field(std::string& bytes, Field field, const std::vector<int>& list) {
  if (list.empty()) return;
  std::string numbers;
  for (const int number : list) {
    append_number(numbers, static_cast<std::uint64_t>(std::int64_t{number}));
  }
  append_key(bytes, field, WireType::BYTES);
  append_number(bytes, numbers.size());
  bytes += numbers;
}

/// A number of 32 bits is the lower half of what is written, as protocol buffers have it.
int number_of(std::uint64_t varint) { return static_cast<std::int32_t>(varint); }

void read_number(const WireReader::Field& field, int& number) {
  if (field.type == WireType::VARINT) number = number_of(field.varint);
}

void read_list(const WireReader::Field& field, const char* message, std::vector<int>& list) {
  if (field.type == WireType::VARINT) list.push_back(number_of(field.varint));
  if (field.type != WireType::BYTES) return;
  for (WireReader numbers(field.bytes, message); !numbers.is_done();) {
    list.push_back(number_of(numbers.varint()));
  }
}

TopologyProto read_fields(std::string_view bytes) {
  TopologyProto proto;
  for (WireReader reader(bytes, bytes.data()); !reader.is_done();) {
    const WireReader::Field field = reader.field();
    if (field.number == MESH_SHAPE) read_list(field, bytes.data(), proto.mesh_shape);
    if (field.number == NUM_TASKS) read_number(field, proto.num_tasks);
    if (field.number == PER_TASK) read_number(field, proto.num_tpu_devices_per_task);
    if (field.number == DEVICE_COORDINATES) {
      read_list(field, bytes.data(), proto.device_coordinates);
    }
  }
  return proto;
}

}  // namespace

std::string write_topology_proto(const TopologyProto& proto) {
  std::string bytes;
  append_field(bytes, MESH_SHAPE, proto.mesh_shape);
  append_field(bytes, NUM_TASKS, proto.num_tasks);
  append_field(bytes, PER_TASK, proto.num_tpu_devices_per_task);
  append_field(bytes, DEVICE_COORDINATES, proto.device_coordinates);
  return bytes;
}

TopologyProto read_topology_proto(std::string_view bytes) {
  try {
    return read_fields(bytes);
  } catch (const InvalidArgument&) {  // its text speaks of records of Examples
    throw ValueError("Topology::parse", cat("expected the bytes of a TopologyProto, got ",
                                            bytes.size(), " bytes that are cut off or damaged"));
  }
}

}  // namespace cohort::tpu
