#include "cohort/input/job_position.h"

#include "cohort/base/error.h"
#include "cohort/collectives/world_lane.h"

namespace cohort {
namespace {

using data::Position;
using data::PositionReader;
using data::PositionWriter;

constexpr const char* kPosition = "iterator.position";
constexpr const char* kRestore = "iterator.restore";

/// What each worker stands at.
std::vector<Position> all_of(WorldLane& lane, FunctionRef<Position()> own) {
  const std::string bytes = lane.take_part(kPosition, own).bytes();
  const auto mine = std::as_bytes(std::span(bytes.data(), bytes.size()));
  std::vector<Position> all;
  for (const auto& each : lane.all_gather(kPosition, mine)) {
    all.push_back(Position::from_bytes({reinterpret_cast<const char*>(each.data()), each.size()}));
  }
  return all;
}

/// Whether each worker has made steps of its own, which nobody else can go on with.
bool is_per_worker(const InputPlan& plan, const InputReplicas& replicas) {
  return plan.depends_on_workers && replicas.workers() > 1;
}

/// Pipelines, as a position counts them.
std::int64_t count_of(const InputPlan& plan, const InputReplicas& replicas) {
  if (is_per_worker(plan, replicas)) return -replicas.workers();
  return plan.how == InputPlan::How::OWN ? replicas.global() : 1;
}

/// The pieces taken of a batch, and of how many if there are some.
std::vector<std::int64_t> pieces_in(PositionReader& position) {
  std::vector<std::int64_t> pieces{position.get()};
  if (pieces[0] != 0) pieces.push_back(position.get());
  return pieces;
}

void put_all(PositionWriter& out, const std::vector<std::int64_t>& numbers) {
  for (const std::int64_t number : numbers) out.put(number);
}

std::string kind_of(std::int64_t count) {
  if (count < 0) return cat("of ", -count, " workers that read data of their own");
  return "of one worker, or of data that does not depend on the number of workers";
}

[[noreturn]] void throw_other_job(std::int64_t expected, std::int64_t saved) {
  if (expected > 0 && saved > 0) {
    throw InvalidArgument(
        kRestore,
        cat("the position is of another number of pipelines: expected ", expected, ", got ", saved,
            "; go on with the number of replicas that it was saved with"));
  }
  throw InvalidArgument(
      kRestore,
      cat("the position is of another job: expected one ", kind_of(expected), ", got one ",
          kind_of(saved),
          "; go on with the policy and the number of workers that it was saved with. Positions "
          "under the policies DATA and FILE_BY_REPLICA, and of functions with PER_REPLICA, hold "
          "for any number"));
}

}  // namespace

Position position_of_job(FunctionRef<Position()> own, const InputPlan& plan,
                         const InputReplicas& replicas) {
  const bool is_own = plan.how == InputPlan::How::OWN;
  const bool is_same_on_all = !is_per_worker(plan, replicas) && !is_own;
  if (replicas.workers() == 1 || is_same_on_all) return own();
  PositionWriter job;
  job.put(count_of(plan, replicas));
  if (is_own) job.put(std::int64_t{0});
  for (const Position& each : all_of(replicas.lane(), own)) {
    PositionReader worker(each);
    const std::int64_t pipelines = worker.get();
    const auto pieces = pieces_in(worker);
    if (!is_own) put_all(job, pieces);
    for (std::int64_t i = 0; i < pipelines; ++i) job.put(worker.get_position());
  }
  return job.take();
}

Position position_of_worker(PositionReader& job, const InputPlan& plan,
                            const InputReplicas& replicas) {
  const std::int64_t expected = count_of(plan, replicas), saved = job.get();
  if (saved != expected) throw_other_job(expected, saved);
  const bool is_own = plan.how == InputPlan::How::OWN;
  PositionWriter own;
  own.put(std::int64_t{is_own ? replicas.local() : 1});
  if (is_per_worker(plan, replicas)) {
    for (int w = 0; w < replicas.workers(); ++w) {
      const auto pieces = pieces_in(job);
      const Position position = job.get_position();
      if (w != replicas.worker()) continue;
      put_all(own, pieces);
      own.put(position);
    }
    return own.take();
  }
  put_all(own, pieces_in(job));
  const int first = is_own ? replicas.first() : 0, count = is_own ? replicas.local() : 1;
  for (std::int64_t i = 0; i < saved; ++i) {
    const Position position = job.get_position();
    if (i >= first && i < first + count) own.put(position);
  }
  return own.take();
}

}  // namespace cohort
