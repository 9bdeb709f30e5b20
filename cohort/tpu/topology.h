#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/tpu/coordinates.h"

namespace cohort::tpu {

/// A TPU system: a mesh of cores, and which device of which task each core is.
///
/// The mesh has four axes: x, y and z of the chips, and the cores of a chip. Tasks are the
/// processes that the system is attached to; each has the same number of devices, which are
/// numbered from 0 in every task. A mesh point without a device is a missing one.
///
///     const auto topology = tpu::initialize_system(resolver);        // the usual way
///     const auto same = tpu::Topology::parse(topology.serialized());
///     topology.tpu_device_name_at_coordinates({1, 0, 0, 1});         // "/task:0/device:TPU:3"
///
/// A constant object may be used from several threads.
class Topology {
 public:
  /// `device_coordinates[task][device]` is where that device is. If two devices are at one place,
  /// the later one counts.
  ///
  /// Throws ValueError unless `mesh_shape` is four positive numbers with at most `kMostCores`
  /// cores, all tasks have the same number of devices, and all coordinates are inside of the mesh.
  Topology(std::vector<int> mesh_shape, std::vector<std::vector<Coordinates>> device_coordinates);

  /// A mesh where nothing is missing. Devices are numbered core by core of a chip, then along x, y
  /// and z, and dealt out to the tasks in blocks. Throws ValueError for a bad shape, or tasks that
  /// the cores cannot be dealt out to evenly.
  static Topology full_mesh(const std::vector<int>& mesh_shape, int num_tasks = 1);

  /// Reads what `serialized` wrote, here or in TensorFlow. Throws ValueError for bytes that are no
  /// TopologyProto, negative counts, a wrong number of coordinates, and what the constructor
  /// refuses. Safe for any bytes.
  static Topology parse(std::string_view serialized);

  /// The bytes of TensorFlow's TopologyProto; after `parse`, what it was given, with all that only
  /// TensorFlow reads.
  std::string serialized() const;

  const std::vector<int>& mesh_shape() const& { return mesh_shape_; }
  std::vector<int> mesh_shape() const&& { return mesh_shape_; }
  int mesh_rank() const { return kMeshRank; }

  /// As [task][device].
  const std::vector<std::vector<Coordinates>>& device_coordinates() const& {
    return device_coordinates_;
  }
  std::vector<std::vector<Coordinates>> device_coordinates() const&& { return device_coordinates_; }

  int num_tasks() const { return static_cast<int>(device_coordinates_.size()); }
  int num_tpus_per_task() const;

  /// The mesh points without a device, the last axis fastest. Empty if none is missing.
  std::vector<Coordinates> missing_devices() const;

  /// The task of the device at this place, and the device's number in the task; -1 if the device
  /// is missing. Throws ValueError for a place outside of the mesh.
  int task_ordinal_at_coordinates(const Coordinates& coordinates) const;
  int tpu_device_ordinal_at_coordinates(const Coordinates& coordinates) const;

  /// "/task:T/device:TPU:D" of the device at this place and "/task:T/device:CPU:0" of its host;
  /// "/job:J" comes before if there is a job. T and D are -1 if the device is missing. Throws
  /// ValueError for a place outside of the mesh.
  std::string tpu_device_name_at_coordinates(const Coordinates& coordinates,
                                             std::string_view job = {}) const;
  std::string cpu_device_name_at_coordinates(const Coordinates& coordinates,
                                             std::string_view job = {}) const;

  /// More than any TPU has: a bound on what damaged bytes can ask for.
  static constexpr int kMostCores = 1 << 20;

 private:
  struct Place {
    int task = -1;
    int device = -1;
  };

  std::size_t index_of(const Coordinates& coordinates) const;

  std::vector<int> mesh_shape_;
  std::vector<std::vector<Coordinates>> device_coordinates_;
  std::vector<Place> places_;  // by mesh point, the last axis fastest
  std::string parsed_;         // the bytes; "" if it was not parsed
};

}  // namespace cohort::tpu
