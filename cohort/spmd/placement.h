#pragma once

#include <iosfwd>
#include <vector>

#include "cohort/spmd/sharded_tensor.h"

/// Where tensors lie, and how to move them. All are differentiable, and change no value.
///
/// Users annotate with the methods of Strategy (`split_to_logical_devices` and its like), inside of
/// a replica; ordinary operations of LibTorch then follow, and give tensors that are sharded too.
namespace cohort {
class StrategyExtended;
}

namespace cohort::spmd {

/// Dimension d of the tensor in `parts[d]` parts, over the devices of the mesh in row-major order.
Tensor split(const Tensor& tensor, const MeshPtr& mesh, at::IntArrayRef parts);

/// All of it on one device.
Tensor assign(const Tensor& tensor, const MeshPtr& mesh, int device);

/// Throws ValueError if something of these sizes can't be split over a replica's logical devices.
/// `what` names it: "a tensor of sizes [4, 6]". Dimension 0 may be uneven, as the last batch of an
/// epoch is.
void check_split(const char* where, const std::string& what, at::IntArrayRef sizes,
                 at::IntArrayRef parts, int devices);

/// The tensor in another layout of its mesh. One that is not sharded needs the mesh.
Tensor redistribute(const Tensor& tensor, const LayoutPtr& layout);
Tensor redistribute(const Tensor& tensor, const MeshPtr& mesh, const LayoutPtr& layout);

/// An ordinary tensor with all elements; one that is not sharded as it is.
Tensor full(const Tensor& tensor);

/// What a device has of it, which must be one tile or none: then undefined. Not differentiable;
/// shares the memory. Throws ValueError for several tiles.
Tensor to_local(const Tensor& tensor, int device);

/// A tensor of these tiles, in row-major order of a grid of `parts`, over the devices in order.
/// Sharing the memory. Throws ValueError if tiles in one row or column differ in size.
Tensor from_local(const std::vector<Tensor>& tiles, const MeshPtr& mesh, at::IntArrayRef parts);

/// Prints the layout and all elements.
std::ostream& print(std::ostream& out, const Tensor& tensor);

/// The logical devices of the replica that this thread runs. Throws ValueError outside of one.
MeshPtr mesh_of_replica(const char* where);

/// Those of the replicas of a device of a strategy's layout.
MeshPtr mesh_of_copy(StrategyExtended& strategy, int copy);

}  // namespace cohort::spmd
