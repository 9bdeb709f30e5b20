#pragma once

#include "cohort/base/function_ref.h"
#include "cohort/data/position.h"
#include "cohort/input/input_plan.h"
#include "cohort/input/input_replicas.h"

/// The position of a distributed iterator is that of the whole job: the same numbers on all
/// workers, so that one of them can write it down for all.
///
/// It is a hash of the stages, the seed, the epoch, how many steps were given, and then
///
///     P · the pieces taken of a batch, and of how many if there are some · P positions
///
/// where data does not depend on the number of workers: one pipeline, or one for each replica of
/// the job, in the order of their ids. Any number of workers can go on from it. Elsewhere, with W
/// workers,
///
///     -W · and for each of them: the pieces taken, and of how many · the position of its pipeline
namespace cohort {

/// The part of it that says where the job's pipelines stand, made of where this worker's do:
/// `own()` is `Iterator<Step<T>>::position`. A collective where workers have pipelines of their
/// own; what `own` throws on one of them is an error of all then.
data::Position position_of_job(FunctionRef<data::Position()> own, const InputPlan& plan,
                               const InputReplicas& replicas);

/// The other way round: where this worker's pipelines go on. Throws InvalidArgument for the
/// position of a job with another number of replicas or workers, where that matters.
data::Position position_of_worker(data::PositionReader& job, const InputPlan& plan,
                                  const InputReplicas& replicas);

}  // namespace cohort
