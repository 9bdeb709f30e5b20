#pragma once

#include <memory>
#include <vector>

#include "cohort/collectives/world.h"
#include "cohort/values/distributed_values.h"

namespace cohort {

/// Which replicas this process runs, and where.
///
/// Replicas are dealt to the devices in blocks: eight replicas on two devices are 0-3 and 4-7, on
/// three devices 0-2, 3-5 and 6-7. The first replica of a device is the one that owns the device's
/// copy of what is kept once per device.
class ReplicaLayout {
 public:
  /// The replicas of a process on its own; 0 means one for each device. Throws ValueError for no
  /// device, or for fewer replicas than devices.
  explicit ReplicaLayout(std::vector<Device> devices, int replicas = 0);

  /// Those that this worker has of a world. Throws ValueError for no device, or for fewer replicas
  /// than devices.
  ReplicaLayout(std::vector<Device> devices, std::shared_ptr<World> world);

  /// The job, which says which replicas there are.
  World& world() const { return *world_; }

  /// All replicas of the job, and those of this process: [first, first + local).
  int global() const { return world_->replicas(); }
  int local() const { return world_->local(); }
  int first() const { return world_->first(); }
  int id_of(int replica) const { return world_->id_of(replica); }

  /// The distinct devices, and how many.
  const std::vector<Device>& devices() const { return devices_; }
  int copies() const { return static_cast<int>(devices_.size()); }

  /// The index in `devices()` of local replica i's device.
  int copy_of(int replica) const { return device_of_[replica]; }
  const std::vector<int>& copy_of_each() const { return device_of_; }

  /// The first local replica of a device.
  int owner_of(int copy) const { return owner_[copy]; }
  bool is_owner(int replica) const { return owner_[device_of_[replica]] == replica; }

  const Device& device(int replica) const { return devices_[device_of_[replica]]; }

  /// The device of each local replica, as the values of a run carry it.
  const DeviceList& replica_devices() const { return replica_devices_; }

 private:
  std::shared_ptr<World> world_;
  std::vector<Device> devices_;
  std::vector<int> device_of_;
  std::vector<int> owner_;
  DeviceList replica_devices_;
};

}  // namespace cohort
