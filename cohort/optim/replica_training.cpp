#include "cohort/optim/replica_training.h"

#include <memory>

namespace cohort {

ReplicaTraining& ReplicaTraining::of(ReplicaContext& replica) {
  if (!replica.attachment()) replica.attach(std::make_unique<ReplicaTraining>(replica));
  return static_cast<ReplicaTraining&>(*replica.attachment());
}

}  // namespace cohort
