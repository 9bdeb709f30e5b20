#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cohort/collectives/meeting.h"
#include "cohort/optim/gradient_reducer.h"

namespace cohort {

/// The meeting in which replicas finish a sum of gradients: at the end of a backward pass, or in a
/// step. What backward has not summed yet is summed here, by all.
///
/// A pass may reach the parameters of several reducers (a generator's loss those of the
/// discriminator), and not the same ones on all replicas: then a reducer counts for all if any
/// replica has brought it, on any worker. The workers agree on that, and on which parameters have
/// gradients, before anything is completed.
class GradientExchange : public collectives::Contribution {
 public:
  /// At the end of a replica's backward pass, with the reducers that it has reached.
  GradientExchange(std::vector<GradientReducer*> reached, int replica)
      : occasion_(Occasion::BACKWARD), reducers_(std::move(reached)), replica_(replica) {}

  /// In a step, for gradients that no pass has summed.
  GradientExchange(GradientReducer& reducer, int replica)
      : occasion_(Occasion::STEP), reducers_{&reducer}, replica_(replica) {}

  /// Returns when `.grad` of the replica's parameters is the sum.
  void attend(ReplicaContext& replica);

  std::string describe() const override { return where(); }
  std::optional<std::string> mismatch(const Contribution& other) const override;
  std::int64_t plan(std::span<Contribution* const> all) override;
  void work(std::int64_t piece) override;
  std::int64_t next_stage() override;

 private:
  enum class Occasion { BACKWARD, STEP };

  const char* where() const {
    return occasion_ == Occasion::BACKWARD ? "backward" : "optimizer.step";
  }
  void agree_on_reducers(std::span<Contribution* const> all);
  void agree_with_workers(const World& world);
  [[noreturn]] void throw_different_steps() const;
  void take_gradients();
  void bring_to_all(std::span<Contribution* const> all);

  const Occasion occasion_;
  std::vector<GradientReducer*> reducers_;
  const int replica_;

  // Of the leader, made by `plan`.
  enum class Stage { SUM, FINISH, DONE } stage_ = Stage::SUM;
  struct Piece {
    GradientReducer* reducer;
    const GradientPiece* piece;
  };
  std::vector<Piece> pieces_;
  std::vector<std::shared_ptr<GradientReducer>> alive_;  // those that other workers have reached
};

}  // namespace cohort
