#include "cohort/tpu/topology.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/tpu/topology_proto.h"

namespace cohort::tpu {
namespace {

constexpr const char* kTopology = "Topology";

/// The number of cores, after checking the shape.
int cores_of(const std::vector<int>& mesh_shape) {
  const bool is_positive = std::ranges::all_of(mesh_shape, [](int size) { return size >= 1; });
  if (mesh_shape.size() != kMeshRank || !is_positive) {
    throw ValueError(kTopology,
                     cat("mesh_shape must be 4 positive numbers, x, y, z and cores of a chip; got ",
                         describe(mesh_shape)));
  }
  std::int64_t cores = 1;
  for (const int size : mesh_shape) {
    cores *= size;
    if (cores <= Topology::kMostCores) continue;
    throw ValueError(kTopology, cat("mesh_shape ", describe(mesh_shape), " has more than ",
                                    Topology::kMostCores, " cores"));
  }
  return static_cast<int>(cores);
}

std::string job_prefix(std::string_view job) { return job.empty() ? "" : cat("/job:", job); }

void check_counts(const TopologyProto& proto) {
  const auto check = [](const char* name, int count) {
    if (count >= 0 && count <= Topology::kMostCores) return;
    throw ValueError("Topology::parse", cat(name, " must be a number from 0 to ",
                                            Topology::kMostCores, ", got ", count));
  };
  check("num_tasks", proto.num_tasks);
  check("num_tpu_devices_per_task", proto.num_tpu_devices_per_task);
  const auto expected =
      std::uint64_t(proto.num_tasks) * std::uint64_t(proto.num_tpu_devices_per_task) * kMeshRank;
  if (proto.device_coordinates.size() != expected) {
    throw ValueError("Topology::parse",
                     cat("device_coordinates must be num_tasks (", proto.num_tasks,
                         ") * num_tpu_devices_per_task (", proto.num_tpu_devices_per_task,
                         ") * 4 numbers, got ", proto.device_coordinates.size()));
  }
}

}  // namespace

Topology::Topology(std::vector<int> mesh_shape,
                   std::vector<std::vector<Coordinates>> device_coordinates)
    : mesh_shape_(std::move(mesh_shape)),
      device_coordinates_(std::move(device_coordinates)),
      places_(cores_of(mesh_shape_)) {
  for (int task = 0; task < num_tasks(); ++task) {
    const auto devices = static_cast<int>(device_coordinates_[task].size());
    if (devices != num_tpus_per_task()) {
      throw ValueError(kTopology, cat("all tasks must have the same number of devices: task 0 has ",
                                      num_tpus_per_task(), ", task ", task, " has ", devices));
    }
    for (int device = 0; device < devices; ++device) {
      places_[index_of(device_coordinates_[task][device])] = {task, device};
    }
  }
}

Topology Topology::full_mesh(const std::vector<int>& mesh_shape, int num_tasks) {
  const int cores = cores_of(mesh_shape);
  if (num_tasks < 1 || cores % num_tasks != 0) {
    throw ValueError("Topology::full_mesh",
                     cat(cores, " cores cannot be dealt out evenly to ", num_tasks, " tasks"));
  }
  std::vector<std::vector<Coordinates>> tasks(num_tasks);
  const int per_task = cores / num_tasks;
  const int width = mesh_shape[0], height = mesh_shape[1], per_chip = mesh_shape[3];
  for (int device = 0; device < cores; ++device) {
    const int chip = device / per_chip;
    tasks[device / per_task].push_back(
        {chip % width, chip / width % height, chip / width / height, device % per_chip});
  }
  return Topology(mesh_shape, std::move(tasks));
}

Topology Topology::parse(std::string_view serialized) {
  TopologyProto proto = read_topology_proto(serialized);
  cores_of(proto.mesh_shape);
  check_counts(proto);
  std::vector<std::vector<Coordinates>> tasks(proto.num_tasks);
  auto next = proto.device_coordinates.begin();
  for (auto& devices : tasks) {
    for (int device = 0; device < proto.num_tpu_devices_per_task; ++device, next += kMeshRank) {
      devices.emplace_back(next, next + kMeshRank);
    }
  }
  Topology topology(std::move(proto.mesh_shape), std::move(tasks));
  topology.parsed_ = serialized;
  return topology;
}

std::string Topology::serialized() const {
  if (!parsed_.empty()) return parsed_;
  TopologyProto proto{mesh_shape_, num_tasks(), num_tpus_per_task(), {}};
  for (const auto& devices : device_coordinates_) {
    for (const Coordinates& device : devices) {
      proto.device_coordinates.insert(proto.device_coordinates.end(), device.begin(), device.end());
    }
  }
  return write_topology_proto(proto);
}

int Topology::num_tpus_per_task() const {
  return device_coordinates_.empty() ? 0 : static_cast<int>(device_coordinates_[0].size());
}

std::vector<Coordinates> Topology::missing_devices() const {
  std::vector<Coordinates> missing;
  for (std::size_t index = 0; index < places_.size(); ++index) {
    if (places_[index].task >= 0) continue;
    Coordinates& coordinates = missing.emplace_back(kMeshRank);
    auto rest = static_cast<int>(index);
    for (int axis = kMeshRank; axis-- > 0; rest /= mesh_shape_[axis]) {
      coordinates[axis] = rest % mesh_shape_[axis];
    }
  }
  return missing;
}

int Topology::task_ordinal_at_coordinates(const Coordinates& coordinates) const {
  return places_[index_of(coordinates)].task;
}

int Topology::tpu_device_ordinal_at_coordinates(const Coordinates& coordinates) const {
  return places_[index_of(coordinates)].device;
}

std::string Topology::tpu_device_name_at_coordinates(const Coordinates& coordinates,
                                                     std::string_view job) const {
  const auto& [task, device] = places_[index_of(coordinates)];
  return cat(job_prefix(job), "/task:", task, "/device:TPU:", device);
}

std::string Topology::cpu_device_name_at_coordinates(const Coordinates& coordinates,
                                                     std::string_view job) const {
  return cat(job_prefix(job), "/task:", places_[index_of(coordinates)].task, "/device:CPU:0");
}

std::size_t Topology::index_of(const Coordinates& coordinates) const {
  bool is_inside = coordinates.size() == kMeshRank;
  std::size_t index = 0;
  for (int axis = 0; is_inside && axis < kMeshRank; ++axis) {
    is_inside = coordinates[axis] >= 0 && coordinates[axis] < mesh_shape_[axis];
    index = index * mesh_shape_[axis] + coordinates[axis];
  }
  if (is_inside) return index;
  throw ValueError(kTopology, cat("expected the 4 coordinates of a core in the mesh ",
                                  describe(mesh_shape_), ", got ", describe(coordinates)));
}

}  // namespace cohort::tpu
