// The methods of Strategy that say where a tensor lies.

#include "cohort/base/error.h"
#include "cohort/distribute/context.h"
#include "cohort/distribute/replica_context.h"
#include "cohort/distribute/strategy.h"
#include "cohort/spmd/placement.h"

namespace cohort {
namespace spmd {

MeshPtr mesh_of_replica(const char* where) {
  ReplicaContext* replica = replica_context_or_null();
  if (!replica) {
    throw ValueError(where,
                     "logical devices belong to a replica: call this inside of strategy.run()");
  }
  return mesh_of_copy(replica->extended(),
                      replica->extended().layout().copy_of(replica->local_id()));
}

MeshPtr mesh_of_copy(StrategyExtended& strategy, int copy) {
  return strategy.logical_mesh(copy, [&] {
    const int replica = strategy.layout().first() + strategy.layout().owner_of(copy);
    const std::vector<Device> devices = strategy.logical_devices(copy);
    return std::make_shared<Mesh>(
        cat("the ", devices.size(), " logical devices of replica ", replica), devices);
  });
}

namespace {

[[noreturn]] void refuse(const char* where, const std::string& what, const std::string& layout,
                         const std::string& why, int devices) {
  throw ValueError(where, cat(what, " can't be ", layout, ": ", why, "; a replica has ", devices,
                              " logical device", devices == 1 ? "" : "s"));
}

std::string named(const at::Tensor& tensor) { return cat("a tensor of sizes ", tensor.sizes()); }

}  // namespace

void check_split(const char* where, const std::string& what, at::IntArrayRef sizes,
                 at::IntArrayRef parts, int devices) {
  const std::string layout = cat("split ", parts);
  if (parts.size() != sizes.size()) {
    refuse(where, what, layout,
           cat("expected a number of parts for each of its ", sizes.size(), " dimensions"),
           devices);
  }
  std::int64_t product = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    product *= parts[d];
    if (parts[d] < 1) refuse(where, what, layout, "parts must be positive", devices);
    if (d > 0 && sizes[d] % parts[d] != 0) {
      refuse(where, what, layout,
             cat("dimension ", d, " of size ", sizes[d], " does not divide into ", parts[d],
                 " equal parts"),
             devices);
    }
  }
  if (product != devices) {
    refuse(where, what, layout,
           cat("that is ", product, " parts, expected one for each logical device"), devices);
  }
}

}  // namespace spmd

namespace {

/// The replica's mesh, which must be this strategy's.
spmd::MeshPtr own_mesh(const StrategyExtended& strategy, const at::Tensor& tensor,
                       const char* where) {
  const ReplicaContext* replica = replica_context_or_null();
  if (replica && !replica->in_run() && &replica->extended() != &strategy) replica = nullptr;
  if (replica && &replica->extended() != &strategy) {
    throw ValueError(
        where, cat("a tensor of sizes ", tensor.sizes(), " in a replica of ",
                   replica->extended().name(), " can't be annotated by another ", strategy.name()));
  }
  if (!replica) {
    throw ValueError(where, cat("a tensor of sizes ", tensor.sizes(),
                                " was annotated outside of a replica: the ",
                                strategy.logical_devices_per_replica(),
                                " logical devices are each replica's own; call this inside of "
                                "strategy.run()"));
  }
  return spmd::mesh_of_replica(where);
}

}  // namespace

at::Tensor Strategy::assign_to_logical_device(const at::Tensor& tensor, int logical_device) const {
  const char* where = "strategy.assign_to_logical_device";
  const int devices = extended_->logical_devices_per_replica();
  if (extended_->use_spmd_partitioning()) {
    spmd::refuse(where, spmd::named(tensor), "assigned to one device",
                 "the strategy partitions all tensors itself, use split_to_logical_devices()",
                 devices);
  }
  if (logical_device < 0 || logical_device >= devices) {
    spmd::refuse(where, spmd::named(tensor), cat("assigned to logical device ", logical_device),
                 cat("expected 0 to ", devices - 1), devices);
  }
  if (devices == 1) return tensor;
  return spmd::assign(tensor, own_mesh(*extended_, tensor, where), logical_device);
}

at::Tensor Strategy::split_to_logical_devices(
    const at::Tensor& tensor, const std::vector<std::int64_t>& partition_dimensions) const {
  const char* where = "strategy.split_to_logical_devices";
  const int devices = extended_->logical_devices_per_replica();
  spmd::check_split(where, spmd::named(tensor), tensor.sizes(), partition_dimensions, devices);
  if (devices == 1) return tensor;
  return spmd::split(tensor, own_mesh(*extended_, tensor, where), partition_dimensions);
}

at::Tensor Strategy::replicate_to_logical_devices(const at::Tensor& tensor) const {
  if (extended_->logical_devices_per_replica() == 1) return tensor;
  own_mesh(*extended_, tensor, "strategy.replicate_to_logical_devices");
  return spmd::full(tensor);
}

}  // namespace cohort
