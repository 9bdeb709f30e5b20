#include "cohort/optim/gradient_exchange.h"

#include <algorithm>

#include "cohort/distribute/differentiable_collectives.h"

namespace cohort {

void GradientExchange::attend(ReplicaContext& replica) {
  for (GradientReducer* reducer : reducers_) reducer->sum_ready_buckets();
  detail::attend_meeting(replica, *this);
  for (GradientReducer* reducer : reducers_) reducer->take_sums(replica_);
}

std::optional<std::string> GradientExchange::mismatch(const Contribution& contribution) const {
  const auto& other = static_cast<const GradientExchange&>(contribution);
  if (occasion_ != other.occasion_) return "they must make the same calls in order";
  if (occasion_ == Occasion::STEP) {
    if (reducers_ == other.reducers_) return std::nullopt;
    return "the replicas must step the same optimizer";
  }
  for (GradientReducer* reducer : reducers_) {
    const bool in_both =
        std::find(other.reducers_.begin(), other.reducers_.end(), reducer) != other.reducers_.end();
    if (!in_both || reducer->passes(replica_) == reducer->passes(other.replica_)) continue;
    return "one of them has begun another backward pass that it did not finish";
  }
  return std::nullopt;
}

/// Every replica takes part for every reducer that any has brought.
void GradientExchange::agree_on_reducers(std::span<Contribution* const> all) {
  for (Contribution* each : all) {
    for (GradientReducer* reducer : static_cast<GradientExchange*>(each)->reducers_) {
      const bool is_known =
          std::find(reducers_.begin(), reducers_.end(), reducer) != reducers_.end();
      if (!is_known) reducers_.push_back(reducer);
    }
  }
  for (Contribution* each : all) {
    auto& other = *static_cast<GradientExchange*>(each);
    if (other.reducers_.size() != reducers_.size()) other.reducers_ = reducers_;
  }
}

std::int64_t GradientExchange::plan(std::span<Contribution* const> all) {
  agree_on_reducers(all);
  std::vector<const GradientPiece*> pieces;
  for (GradientReducer* reducer : reducers_) {
    if (occasion_ == Occasion::STEP) {
      reducer->take_unsummed();
    } else {
      reducer->take_gathered();
    }
    pieces.clear();
    reducer->plan_round(where(), pieces);
    for (const GradientPiece* piece : pieces) pieces_.push_back({reducer, piece});
  }
  return static_cast<std::int64_t>(pieces_.size());
}

void GradientExchange::work(std::int64_t piece) {
  pieces_[piece].reducer->sum_piece(*pieces_[piece].piece);
}

}  // namespace cohort
