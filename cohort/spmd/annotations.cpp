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
    const int replica = strategy.layout().id_of(strategy.layout().owner_of(copy));
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

bool has_sizes(const at::Tensor& tensor) { return tensor.defined() && !tensor.is_nested(); }

std::string named(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  if (tensor.is_nested()) return "a nested tensor";
  if (tensor.layout() == at::kStrided) return cat("a tensor of sizes ", tensor.sizes());
  return cat("a ", tensor.layout(), " tensor of sizes ", tensor.sizes());
}

/// Only what has its elements at fixed places can be put on devices.
void check_kind(const char* where, const at::Tensor& tensor, const std::string& layout,
                int devices) {
  if (has_sizes(tensor) && tensor.layout() == at::kStrided) return;
  refuse(where, named(tensor), layout, "expected a dense one", devices);
}

}  // namespace

void check_split(const char* where, const std::string& what, at::IntArrayRef sizes,
                 at::IntArrayRef parts, int devices) {
  const auto fail = [&](const std::string& why) {
    refuse(where, what, cat("split ", parts), why, devices);
  };
  if (parts.size() != sizes.size()) {
    fail(cat("expected a number of parts for each of its ", sizes.size(), " dimensions"));
  }
  std::int64_t product = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    product *= parts[d];
    if (parts[d] < 1) fail("parts must be positive");
    if (d > 0 && sizes[d] % parts[d] != 0) {
      fail(cat("dimension ", d, " of size ", sizes[d], " does not divide into ", parts[d],
               " equal parts"));
    }
  }
  if (product != devices) {
    fail(cat("that is ", product, " parts, expected one for each logical device"));
  }
}

}  // namespace spmd

namespace {

/// The replica's mesh, which must be this strategy's. `layout` says what is asked for, for errors:
/// "split [2, 1]".
spmd::MeshPtr own_mesh(const StrategyExtended& strategy, const at::Tensor& tensor,
                       FunctionRef<std::string()> layout, const char* where) {
  const ReplicaContext* replica = replica_context_or_null();
  if (replica && !replica->in_run() && &replica->extended() != &strategy) replica = nullptr;
  const int devices = strategy.logical_devices_per_replica();
  if (!replica) {
    throw ValueError(where, cat(spmd::named(tensor), " can't be ", layout(),
                                " outside of a replica: the ", devices,
                                " logical devices are each replica's own; call this inside of "
                                "strategy.run()"));
  }
  if (&replica->extended() != &strategy) {
    throw ValueError(where,
                     cat(spmd::named(tensor), " can't be ", layout(), " over the ", devices,
                         " logical devices of another ", strategy.name(), " in a replica of ",
                         replica->extended().name(), ": call the method of that one"));
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
  const auto layout = [&] { return cat("assigned to logical device ", logical_device); };
  if (logical_device < 0 || logical_device >= devices) {
    spmd::refuse(where, spmd::named(tensor), layout(), cat("expected 0 to ", devices - 1), devices);
  }
  if (devices == 1) return tensor;
  spmd::check_kind(where, tensor, layout(), devices);
  return spmd::assign(tensor, own_mesh(*extended_, tensor, layout, where), logical_device);
}

at::Tensor Strategy::split_to_logical_devices(
    const at::Tensor& tensor, const std::vector<std::int64_t>& partition_dimensions) const {
  const char* where = "strategy.split_to_logical_devices";
  const int devices = extended_->logical_devices_per_replica();
  const auto layout = [&] { return cat("split ", at::IntArrayRef(partition_dimensions)); };
  if (devices > 1 || !spmd::has_sizes(tensor)) {
    spmd::check_kind(where, tensor, layout(), devices);
  }
  spmd::check_split(where, spmd::named(tensor), tensor.sizes(), partition_dimensions, devices);
  if (devices == 1) return tensor;
  return spmd::split(tensor, own_mesh(*extended_, tensor, layout, where), partition_dimensions);
}

at::Tensor Strategy::replicate_to_logical_devices(const at::Tensor& tensor) const {
  if (extended_->logical_devices_per_replica() == 1) return tensor;
  const auto layout = [] { return std::string("replicated"); };
  own_mesh(*extended_, tensor, layout, "strategy.replicate_to_logical_devices");
  return spmd::full(tensor);
}

}  // namespace cohort
