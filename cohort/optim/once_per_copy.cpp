#include "cohort/optim/once_per_copy.h"

#include <utility>

#include "cohort/distribute/crew.h"
#include "cohort/distribute/differentiable_collectives.h"

namespace cohort {
namespace {

/// A meeting in which one thread does something while all replicas wait.
class Together : public collectives::Contribution {
 public:
  Together(const char* what, const std::function<void(int)>& action)
      : what_(what), action_(action) {}
  std::string describe() const override { return what_; }
  std::optional<std::string> mismatch(const Contribution&) const override { return std::nullopt; }
  std::int64_t plan(std::span<Contribution* const>) override { return 1; }
  void work(std::int64_t) override { action_(0); }

 private:
  const char* const what_;
  const std::function<void(int)>& action_;
};

}  // namespace

OncePerCopy::OncePerCopy(const ReplicatedModule& model, const char* what)
    : model_(model),
      what_(what),
      run_(model.copies(), 0),
      calls_(model.replicas(), 0),
      done_(model.copies(), 0) {}

/// Counts from the beginning in each run, since one that threw may have stopped some replicas of a
/// copy before their call.
void OncePerCopy::start_run(const ReplicaContext& replica, int copy) {
  if (std::exchange(run_[copy], replica.run_serial()) == replica.run_serial()) return;
  done_[copy] = 0;
  for (int r = 0; r < model_.replicas(); ++r) {
    if (model_.copy_of(r) == copy) calls_[r] = 0;
  }
}

void OncePerCopy::run(ReplicaContext& replica, const std::function<void(int)>& action) {
  if (model_.replicas() == 1) return action(0);
  const int id = replica.local_id();
  const bool one_device_each = model_.copies() == model_.strategy().layout().copies();
  if (!one_device_each) {
    Together together(what_, action);
    return detail::attend_meeting(replica, together);
  }
  replica.take_turn(what_);
  // The replica of this copy that had the slot before may have thrown in the action.
  if (replica.in_run() && replica.crew().meeting().aborted()) throw collectives::Stopped();
  const int copy = model_.copy_of(id);
  start_run(replica, copy);
  if (done_[copy] >= ++calls_[id]) return;
  done_[copy] = calls_[id];
  action(copy);
}

}  // namespace cohort
