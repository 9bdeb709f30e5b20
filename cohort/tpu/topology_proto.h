#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort::tpu {

/// What TensorFlow's message TopologyProto says, field by field and not yet checked.
struct TopologyProto {
  std::vector<int> mesh_shape;
  int num_tasks = 0;
  int num_tpu_devices_per_task = 0;
  std::vector<int> device_coordinates;  ///< [task][device][axis], flattened
};

/// The bytes that TensorFlow writes for these fields.
std::string write_topology_proto(const TopologyProto& proto);

/// The fields in such bytes; what else is in them is skipped. Throws ValueError for bytes that are
/// no message of protocol buffers.
TopologyProto read_topology_proto(std::string_view bytes);

}  // namespace cohort::tpu
