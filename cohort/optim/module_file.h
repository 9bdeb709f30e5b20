#pragma once

#include <string>

#include "cohort/optim/replicated_module.h"

namespace cohort {

/// Writes the model as one module, in LibTorch's own format: `torch::load(module, path)` reads it
/// too. The file is complete or not there. Throws NotFound when it can't be written, and ValueError
/// for names that LibTorch could not read again: keywords of TorchScript such as "in". A call of
/// all workers: the chief writes, and the others return when the file is there.
void save_module(const ReplicatedModule& model, const std::string& path);

/// Sets the model's parameters and buffers from a file of `save_module` or of
/// `torch::save(module, path)`. Throws NotFound when it can't be opened, InvalidArgument when it is
/// something else, ValueError for tensors that do not fit. A call of all workers: the chief reads.
void load_module(ReplicatedModule& model, const std::string& path);

}  // namespace cohort
