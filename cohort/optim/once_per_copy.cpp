#include "cohort/optim/once_per_copy.h"

#include <utility>

#include "cohort/distribute/crew.h"
#include "cohort/distribute/differentiable_collectives.h"

namespace cohort {

/// A meeting in which one thread does something to all copies while the replicas wait.
class OncePerCopy::Together : public collectives::Contribution {
 public:
  Together(const OncePerCopy& once, const std::function<void(int)>& action)
      : once_(once), action_(action) {}
  std::string describe() const override { return once_.what_; }
  std::optional<std::string> mismatch(const Contribution& other) const override {
    if (&static_cast<const Together&>(other).once_ == &once_) return std::nullopt;
    return "the replicas must call it of the same object";
  }
  std::int64_t plan(std::span<Contribution* const>) override { return 1; }
  void work(std::int64_t) override {
    for (int copy = 0; copy < once_.model_.copies(); ++copy) action_(copy);
  }

 private:
  const OncePerCopy& once_;
  const std::function<void(int)>& action_;
};

OncePerCopy::OncePerCopy(const ReplicatedModule& model, const char* what)
    : model_(model),
      what_(what),
      run_(model.copies(), 0),
      calls_(model.replicas(), 0),
      done_(model.copies(), 0),
      failed_(model.copies(), 0) {}

/// Counts from the beginning in each run, since one that threw may have stopped some replicas of a
/// copy before their call.
void OncePerCopy::start_run(const ReplicaContext& replica, int copy) {
  if (std::exchange(run_[copy], replica.run_serial()) == replica.run_serial()) return;
  done_[copy] = failed_[copy] = 0;
  for (int r = 0; r < model_.replicas(); ++r) {
    if (model_.copy_of(r) == copy) calls_[r] = 0;
  }
}

void OncePerCopy::run(ReplicaContext& replica, const std::function<void(int)>& action) {
  if (model_.replicas() == 1) return action(0);
  const int id = replica.local_id();
  const bool one_device_each = model_.copies() == model_.strategy().layout().copies();
  if (!one_device_each) return run_together(replica, action);
  replica.take_turn(what_);
  const int copy = model_.copy_of(id);
  start_run(replica, copy);
  // The replica of this copy that had the slot before may have thrown in the action.
  const bool is_aborted = replica.in_run() && replica.crew().meeting().aborted();
  if (failed_[copy] && is_aborted) throw collectives::Stopped();
  if (done_[copy] >= ++calls_[id]) return;
  done_[copy] = calls_[id];
  failed_[copy] = 1;
  action(copy);
  failed_[copy] = 0;
}

void OncePerCopy::run_together(ReplicaContext& replica, const std::function<void(int)>& action) {
  if (model_.replicas() == 1) return action(0);
  Together together(*this, action);
  detail::attend_meeting(replica, together);
}

}  // namespace cohort
