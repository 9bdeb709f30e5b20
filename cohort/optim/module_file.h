#pragma once

#include <string>

#include "cohort/optim/replicated_module.h"

namespace cohort {

/// Writes the model as one module, in LibTorch's own format: `torch::load(module, path)` reads it
/// too. The file is complete or not there. Throws NotFound when it can't be written, and ValueError
/// for names that LibTorch could not read again: keywords of TorchScript such as "in".
void save_module(const ReplicatedModule& model, const std::string& path);

/// The parameters and buffers in a file of `save_module` or of `torch::save(module, path)`, by
/// name. Throws NotFound when it can't be opened, InvalidArgument when it is something else.
StateDict read_module_file(const std::string& path);

}  // namespace cohort
