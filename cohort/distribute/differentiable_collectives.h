#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "cohort/collectives/meeting.h"
#include "cohort/collectives/reduce_op.h"
#include "cohort/distribute/replica_context.h"

/// Collectives of one replica, as functions that autograd knows how to derive.
namespace cohort::detail {

/// While it lives, collectives that this thread calls throw RuntimeError: it holds what other
/// replicas may need to get to the meeting. `where` is who forbids them.
class NoMeetings {
 public:
  explicit NoMeetings(const char* where);
  ~NoMeetings();
  NoMeetings(const NoMeetings&) = delete;
  NoMeetings& operator=(const NoMeetings&) = delete;

 private:
  const char* const before_;
};

/// Meets the other replicas of the run; alone outside of one. `limits` hold for this call instead
/// of the strategy's.
void attend_meeting(ReplicaContext& replica, collectives::Contribution& contribution,
                    const WaitLimits* limits = nullptr);

/// The gradient of an input is the all_reduce, with the same op, of the outputs' gradients.
std::vector<at::Tensor> all_reduce(ReplicaContext& replica, ReduceOp op,
                                   std::vector<at::Tensor> values,
                                   const WaitLimits* limits = nullptr);

/// The gradient of an input is its own slice of the sum of the outputs' gradients.
std::vector<at::Tensor> all_gather(ReplicaContext& replica, std::vector<at::Tensor> values,
                                   std::int64_t axis, const WaitLimits* limits = nullptr);

}  // namespace cohort::detail
