#pragma once

#include <string>

namespace cohort::cluster {

/// A TPU as the environment names it.
struct TPUInEnvironment {
  std::string tpu;
  std::string zone = {};     ///< "" where only the name is known
  std::string project = {};  ///< the same
};

/// The first of KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME and TPU_CONFIG that is set and not empty.
/// The last is a JSON object: {"tpu_node_name": "…", "project": "…", "zone": "…"}; only the name
/// must be there.
///
/// Throws ValueError if none is set, and if TPU_CONFIG is something else.
TPUInEnvironment tpu_in_environment();

}  // namespace cohort::cluster
