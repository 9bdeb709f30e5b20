#include "cohort/values/nest.h"

namespace cohort::nest::detail {

void throw_mismatch(const char* what, std::size_t replica, std::size_t expected, std::size_t got) {
  throw ValueError("merging the replicas' results",
                   cat("replica ", replica, " returned a list of another ", what, ": expected ",
                       expected, " as on replica 0, got ", got));
}

void throw_keys_differ(std::size_t replica) {
  throw ValueError("merging the replicas' results",
                   cat("replica ", replica,
                       " returned a map with other keys than replica 0; "
                       "return the same keys on every replica"));
}

void throw_presence_differs(std::size_t replica) {
  throw ValueError("merging the replicas' results",
                   cat("replica ", replica,
                       " has no value where replica 0 has one, or the other way round; give one "
                       "on every replica or on none"));
}

void throw_handles_differ(std::size_t replica) {
  throw ValueError("merging the replicas' results",
                   cat("replica ", replica,
                       " returned another variable than replica 0; "
                       "return its value() for one tensor per replica"));
}

}  // namespace cohort::nest::detail
