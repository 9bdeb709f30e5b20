#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <vector>

#include "cohort/compat/compat.h"
#include "cohort/device/configuration.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "cohort/variables/update.h"
#include "cohort/variables/variable.h"

namespace cohort {

using torch::Tensor;

/// An example of TensorFlow's reference pages. The pages print what one device gives; `one` is
/// for their numbers, `two` for what they say about several replicas.
class Reference : public testing::Test {
 protected:
  Reference() { configure({.cpu_devices = 2}); }
  ~Reference() override { configure({}); }

  static Strategy one() { return MirroredStrategy{"cpu:0"}; }
  static Strategy two() { return MirroredStrategy{"cpu:0", "cpu:1"}; }

  /// The numbers of a tensor of any type, flat.
  static std::vector<double> numbers(const Tensor& tensor) {
    const Tensor flat = tensor.detach().to(torch::kDouble).flatten().contiguous();
    return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
  }
  static double number(const Tensor& tensor) { return tensor.item<double>(); }

  /// A batch that is cut for two replicas: [first …], [second …].
  static PerReplica<Tensor> batch(std::vector<float> first, std::vector<float> second) {
    return PerReplica<Tensor>({torch::tensor(first), torch::tensor(second)});
  }

  static int own_id() { return get_replica_context().replica_id_in_sync_group(); }
};

}  // namespace cohort
