#pragma once

#include <cstdint>
#include <string>

#include "cohort/optim/model.h"

namespace cohort {

/// A hash of all parameters and buffers, their names, types and shapes, as sixteen hex digits.
/// Two models with the same fingerprint have, for all practical purposes, the same bits: print it
/// to see that a job gives the same result elsewhere.
std::string fingerprint(const StateDict& state);

template <class M>
std::string fingerprint(const Model<M>& model) {
  return fingerprint(model.shared()->state_dict("fingerprint"));
}

}  // namespace cohort
