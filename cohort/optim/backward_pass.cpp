#include "cohort/optim/backward_pass.h"

#include <torch/csrc/autograd/engine.h>

#include <utility>

#include "cohort/optim/gradient_exchange.h"
#include "cohort/optim/gradient_reducer.h"
#include "cohort/optim/replica_training.h"

namespace cohort {

/// What LibTorch keeps until the pass is over: it calls `finish`, unless the pass has thrown.
class BackwardPass::End {
 public:
  explicit End(BackwardPass& pass) : pass_(&pass) {}
  ~End() {
    if (pass_) pass_->abandon();
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void finish() {
    if (BackwardPass* pass = std::exchange(pass_, nullptr)) pass->finish();
  }
  void forget() { pass_ = nullptr; }

 private:
  BackwardPass* pass_;
};

BackwardPass::~BackwardPass() { start_over(); }

BackwardPass& BackwardPass::of(ReplicaContext& replica) {
  return ReplicaTraining::of(replica).pass();
}

void BackwardPass::add(GradientReducer& reducer) {
  reached_.push_back(&reducer);
  if (reached_.size() > 1) return;
  const auto end = std::make_shared<End>(*this);
  end_ = end;
  torch::autograd::Engine::get_default_engine().queue_callback([end] { end->finish(); });
}

void BackwardPass::finish() {
  GradientExchange exchange(reached_, replica_.local_id());
  try {
    exchange.attend(replica_);
  } catch (...) {
    abandon();
    throw;
  }
  reached_.clear();
}

void BackwardPass::abandon() {
  for (GradientReducer* reducer : std::exchange(reached_, {})) {
    reducer->abandon_pass(replica_.local_id());
  }
}

void BackwardPass::start_over() {
  if (const auto end = end_.lock()) end->forget();
  reached_.clear();
}

}  // namespace cohort
