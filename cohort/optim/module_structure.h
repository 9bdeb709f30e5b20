#pragma once

#include <torch/nn/module.h>

#include "cohort/optim/module_watch.h"

namespace cohort {

/// Throws ValueError unless the module `other` of a further replica has tensors of its own, which
/// fit to those of the first replica's.
void check_same_structure(const torch::nn::Module& first, const torch::nn::Module& other);

/// Throws ValueError unless `made`, which the constructor without arguments has made for a further
/// replica, prints as `given` does: sizes and options of layers show there.
void check_same_options(const torch::nn::Module& given, const torch::nn::Module& made);

/// Does to a further replica's module what the program has done to the first replica's: registers
/// parameters, buffers and modules that are new there, and replaces modules that were replaced.
/// `before` has looked at the first one when both were alike.
///
/// A replaced module's contents are put into the old one, to which the further replica's members
/// refer. That needs LibTorch's own layers. Throws ValueError for others.
void follow_structure(const torch::nn::Module& first, const ModuleWatch& before,
                      torch::nn::Module& other);

/// Switches each module between training and evaluation as the one in the same place.
void follow_modes(const torch::nn::Module& first, torch::nn::Module& other);

}  // namespace cohort
