#include "cohort/optim/gradient_exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

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

namespace {

void add_if_new(std::vector<GradientReducer*>& reducers, GradientReducer* reducer) {
  const bool is_known = std::find(reducers.begin(), reducers.end(), reducer) != reducers.end();
  if (!is_known) reducers.push_back(reducer);
}

}  // namespace

/// Every replica takes part for every reducer that any has brought.
void GradientExchange::agree_on_reducers(std::span<Contribution* const> all) {
  for (Contribution* each : all) {
    for (GradientReducer* reducer : static_cast<GradientExchange*>(each)->reducers_) {
      add_if_new(reducers_, reducer);
    }
  }
}

void GradientExchange::bring_to_all(std::span<Contribution* const> all) {
  for (Contribution* each : all) {
    auto& other = *static_cast<GradientExchange*>(each);
    if (other.reducers_.size() != reducers_.size()) other.reducers_ = reducers_;
  }
}

void GradientExchange::take_gradients() {
  for (GradientReducer* reducer : reducers_) {
    if (occasion_ == Occasion::STEP) {
      reducer->take_unsummed();
    } else {
      reducer->take_gathered();
    }
  }
}

namespace {

/// What a worker tells the others: for each reducer its number, how many parameters it has, and the
/// state of each.
using Report = std::deque<std::pair<Lane, std::vector<ParameterState>>>;

template <class T>
void put(WorldLane::Bytes& bytes, const T& value) {
  const auto memory = std::as_bytes(std::span(&value, 1));
  bytes.insert(bytes.end(), memory.begin(), memory.end());
}
template <class T>
T get(ConstBytes& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes = bytes.subspan(sizeof value);
  return value;
}

WorldLane::Bytes written(const Report& report) {
  WorldLane::Bytes bytes;
  for (const auto& [id, states] : report) {
    put(bytes, id);
    put(bytes, static_cast<std::uint32_t>(states.size()));
    for (const ParameterState& state : states) put(bytes, state);
  }
  return bytes;
}

Report read(ConstBytes bytes) {
  Report report;
  while (!bytes.empty()) {
    const auto id = get<Lane>(bytes);
    std::vector<ParameterState> states(get<std::uint32_t>(bytes));
    for (ParameterState& state : states) state = get<ParameterState>(bytes);
    report.emplace_back(id, std::move(states));
  }
  return report;
}

}  // namespace

/// All workers find that out.
void GradientExchange::throw_different_steps() const {
  const InvalidArgument error(where(),
                              "workers step different optimizers: the replicas must step the same "
                              "optimizer");
  reducers_[0]->world().fail_alike(error.what());
  for (GradientReducer* reducer : reducers_) reducer->start_over();
  throw error;
}

/// Repeated if some worker has reached what another has not: all of them see that.
void GradientExchange::agree_with_workers(const World& world) {
  const auto by_id = [](const GradientReducer* a, const GradientReducer* b) {
    return a->id() < b->id();
  };
  if (world.holds_root()) {
    for (GradientReducer* reducer : reducers_) {
      reducer->agree(where(), [&](int parameter) { return reducer->state_of(parameter); });
    }
    return;
  }
  for (bool is_complete = false; !is_complete;) {
    std::sort(reducers_.begin(), reducers_.end(), by_id);
    Report mine;
    for (const GradientReducer* reducer : reducers_) {
      auto& states = mine.emplace_back(reducer->id(), reducer->names().size()).second;
      for (std::size_t p = 0; p < states.size(); ++p) {
        states[p] = reducer->state_of(static_cast<int>(p));
      }
    }
    std::map<Lane, std::pair<int, std::vector<ParameterState>>> all;  // by how many workers
    const auto reports =
        const_cast<World&>(world).replicas_lane().all_gather(where(), written(mine));
    for (const auto& each : reports) {
      for (auto& [id, states] : read(each)) {
        auto& [count, sum] = all[id];
        ++count;
        sum.resize(std::max(sum.size(), states.size()));
        for (std::size_t p = 0; p < states.size(); ++p) sum[p] += states[p];
      }
    }
    is_complete = true;
    for (const auto& [id, known] : all) {
      if (known.first == world.workers()) continue;
      is_complete = false;
      if (occasion_ == Occasion::STEP) throw_different_steps();
      auto reducer = GradientReducer::find(world, id);
      if (!reducer) {
        throw InvalidArgument(
            where(),
            "another worker has gradients of an optimizer that this one has destroyed, or "
            "never made: make and destroy the same ones on every worker");
      }
      add_if_new(reducers_, reducer.get());
      alive_.push_back(std::move(reducer));
    }
    if (!is_complete) {
      take_gradients();
      continue;
    }
    for (GradientReducer* reducer : reducers_) {
      const auto& states = all[reducer->id()].second;
      reducer->agree(where(), [&](int parameter) { return states[parameter]; });
    }
  }
}

std::int64_t GradientExchange::plan(std::span<Contribution* const> all) {
  agree_on_reducers(all);
  take_gradients();
  agree_with_workers(reducers_[0]->world());
  bring_to_all(all);
  std::vector<const GradientPiece*> pieces;
  for (GradientReducer* reducer : reducers_) {
    pieces.clear();
    reducer->plan_round(pieces);
    for (const GradientPiece* piece : pieces) pieces_.push_back({reducer, piece});
  }
  return static_cast<std::int64_t>(pieces_.size());
}

void GradientExchange::work(std::int64_t piece) {
  GradientReducer& reducer = *pieces_[piece].reducer;
  const GradientPiece& own = *pieces_[piece].piece;
  stage_ == Stage::SUM ? reducer.sum_piece(own) : reducer.finish_piece(own);
}

std::int64_t GradientExchange::next_stage() {
  if (stage_ == Stage::SUM) {
    stage_ = Stage::FINISH;
    pieces_.clear();
    std::vector<const GradientPiece*> pieces;
    for (GradientReducer* reducer : reducers_) {
      pieces.clear();
      reducer->carry(pieces);
      for (const GradientPiece* piece : pieces) pieces_.push_back({reducer, piece});
    }
    if (!pieces_.empty()) return static_cast<std::int64_t>(pieces_.size());
  }
  if (stage_ == Stage::FINISH) {
    for (GradientReducer* reducer : reducers_) reducer->end_round();
    stage_ = Stage::DONE;
  }
  return 0;
}

}  // namespace cohort
