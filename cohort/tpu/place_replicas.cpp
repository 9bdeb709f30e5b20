// A replica is a block of cores: `shape` says how many along each axis, `stride` how far apart. The
// cores between its own belong to other replicas, so that a `footprint` of shape * stride is shared
// by stride replicas along each axis, and the mesh has room for `capacity` of them:
//
//     mesh 8, shape 2, stride 2       cores      0 1 2 3 4 5 6 7
//     footprint 4, capacity 4         replicas   0 1 0 1 2 3 2 3
//
// The replicas make a grid, which is chosen as close to a cube as the capacity allows. They are
// numbered over the grid, core axis first, or along a ring.

#include "cohort/tpu/place_replicas.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>

#include "cohort/base/error.h"
#include "cohort/tpu/ring_order.h"

namespace cohort::tpu {
namespace {

using Places = std::vector<std::vector<Coordinates>>;

constexpr const char* kBuild = "DeviceAssignment::build";
constexpr int kCoreAxis = kMeshRank - 1;

/// The axes in the order in which replicas fill them.
constexpr std::array<int, kMeshRank> kFillOrder = {kCoreAxis, 0, 1, 2};

int product(const std::vector<int>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies<>());
}

void check_sizes(const char* name, const std::vector<int>& sizes) {
  const bool is_positive = std::ranges::all_of(sizes, [](int size) { return size >= 1; });
  if (sizes.size() == kMeshRank && is_positive) return;
  throw ValueError(
      kBuild, cat(name, " must be 4 positive numbers, x, y, z and cores of a chip; got ", name, '=',
                  describe(sizes)));
}

/// What is asked for, checked, with what follows from it for each axis.
struct Plan {
  Plan(const Topology& topology, const AssignmentOptions& options);

  std::vector<int> mesh, shape, stride;
  std::vector<int> footprint;
  std::vector<int> capacity;
  int num_replicas;

 private:
  void check_footprint() const;
  void check_num_replicas() const;
};

Plan::Plan(const Topology& topology, const AssignmentOptions& options)
    : mesh(topology.mesh_shape()),
      shape(options.computation_shape),
      stride(options.computation_stride),
      num_replicas(options.num_replicas) {
  check_sizes("computation_shape", shape);
  check_sizes("computation_stride", stride);
  check_footprint();
  for (int axis = 0; axis < kMeshRank; ++axis) {
    footprint.push_back(shape[axis] * stride[axis]);
    capacity.push_back(mesh[axis] / footprint[axis] * stride[axis]);
  }
  check_num_replicas();
}

void Plan::check_footprint() const {
  for (int axis = 0; axis < kMeshRank; ++axis) {
    if (std::int64_t{shape[axis]} * stride[axis] <= mesh[axis]) continue;
    throw ValueError(kBuild,
                     cat("a replica of shape ", describe(shape), " and stride ", describe(stride),
                         " does not fit in the TPU mesh of shape ", describe(mesh)));
  }
}

void Plan::check_num_replicas() const {
  if (num_replicas < 0) {
    throw ValueError(kBuild, cat("num_replicas must not be negative, got ", num_replicas));
  }
  if (num_replicas <= product(capacity)) return;
  throw ValueError(kBuild, cat("requested ", num_replicas, " replicas but only ", product(capacity),
                               " replicas with shape ", describe(shape), " and stride ",
                               describe(stride), " fit in the TPU mesh of shape ", describe(mesh)));
}

/// The smallest number whose power is at least n.
int ceil_root(int n, int exponent) {
  if (exponent == 1) return n;
  for (int root = 1;; ++root) {
    std::int64_t power = root;
    for (int i = 1; i < exponent && power < n; ++i) power *= root;
    if (power >= n) return root;
  }
}

/// How many replicas there are along each axis. The axis with the least room comes first, so that
/// no choice makes the rest impossible; of equal ones the one that is filled first.
std::vector<int> replica_grid(const Plan& plan) {
  auto axes = kFillOrder;
  std::ranges::stable_sort(axes, {}, [&](int axis) { return plan.capacity[axis]; });
  std::vector<int> grid(kMeshRank, 0);
  int remaining = plan.num_replicas;
  int axes_left = kMeshRank;
  for (const int axis : axes) {
    grid[axis] = std::min(ceil_root(remaining, axes_left), plan.capacity[axis]);
    remaining = (remaining + grid[axis] - 1) / grid[axis];
    --axes_left;
  }
  return grid;
}

/// The cores of a replica at the origin, the last axis fastest.
std::vector<Coordinates> block_of(const Plan& plan) {
  std::vector<Coordinates> block(product(plan.shape), Coordinates(kMeshRank));
  for (std::size_t core = 0; core < block.size(); ++core) {
    auto rest = static_cast<int>(core);
    for (int axis = kMeshRank; axis-- > 0; rest /= plan.shape[axis]) {
      block[core][axis] = rest % plan.shape[axis] * plan.stride[axis];
    }
  }
  return block;
}

Places in_mesh_order(const Plan& plan) {
  if (plan.num_replicas == 0) return {};
  const std::vector<int> grid = replica_grid(plan);
  Places places(plan.num_replicas, block_of(plan));
  for (int replica = 0; replica < plan.num_replicas; ++replica) {
    int rest = replica;
    for (const int axis : kFillOrder) {
      const int position = rest % grid[axis];
      rest /= grid[axis];
      const int offset =
          position / plan.stride[axis] * plan.footprint[axis] + position % plan.stride[axis];
      for (Coordinates& core : places[replica]) core[axis] += offset;
    }
  }
  return places;
}

/// Whole chips, none left over for another replica.
bool has_ring(const Plan& plan) {
  return plan.shape[kCoreAxis] == plan.mesh[kCoreAxis] && product(plan.stride) == 1 &&
         plan.num_replicas == product(plan.capacity);
}

/// Replicas along a ring of blocks, and in each the chips along a ring, core by core.
Places in_ring_order(const Plan& plan) {
  const auto chips = ring_order({plan.shape[0], plan.shape[1], plan.shape[2]});
  Places places;
  for (const Point& block : ring_order({plan.capacity[0], plan.capacity[1], plan.capacity[2]})) {
    auto& cores = places.emplace_back();
    for (const Point& chip : chips) {
      for (int core = 0; core < plan.shape[kCoreAxis]; ++core) {
        cores.push_back({block[0] * plan.shape[0] + chip[0], block[1] * plan.shape[1] + chip[1],
                         block[2] * plan.shape[2] + chip[2], core});
      }
    }
  }
  return places;
}

/// For a mesh with gaps: one device after the other, task by task.
Places in_task_order(const Plan& plan, const Topology& topology) {
  if (product(plan.stride) != 1) {
    throw ValueError(kBuild,
                     cat("devices of the TPU mesh are missing, so that replicas can have no "
                         "stride; got computation_stride=",
                         describe(plan.stride)));
  }
  if (plan.num_replicas == 0) {
    throw ValueError(kBuild,
                     "devices of the TPU mesh are missing, so that there must be a replica; got "
                     "num_replicas=0");
  }
  const int cores = product(plan.shape);
  const int per_task = topology.num_tpus_per_task();
  const std::int64_t devices = std::int64_t{topology.num_tasks()} * per_task;
  if (std::int64_t{plan.num_replicas} * cores > devices) {
    throw ValueError(kBuild,
                     cat("requested ", plan.num_replicas, " replicas of ", cores,
                         " cores, but devices of the TPU mesh are missing: it has ", devices));
  }
  Places places(plan.num_replicas);
  for (int next = 0; next < plan.num_replicas * cores; ++next) {
    places[next / cores].push_back(topology.device_coordinates()[next / per_task][next % per_task]);
  }
  return places;
}

}  // namespace

Places place_replicas(const Topology& topology, const AssignmentOptions& options) {
  const Plan plan(topology, options);
  if (!topology.missing_devices().empty()) return in_task_order(plan, topology);
  if (options.order == DeviceOrderMode::RING && !has_ring(plan)) {
    throw ValueError(kBuild,
                     cat("RING is not compatible with this topology: it needs replicas of "
                         "whole chips, without stride, that fill the TPU mesh ",
                         describe(plan.mesh), "; got computation_shape=", describe(plan.shape),
                         ", computation_stride=", describe(plan.stride),
                         " and num_replicas=", plan.num_replicas, "; use AUTO"));
  }
  const bool is_ring = options.order != DeviceOrderMode::MESH && has_ring(plan);
  return is_ring ? in_ring_order(plan) : in_mesh_order(plan);
}

}  // namespace cohort::tpu
