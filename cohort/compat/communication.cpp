#include "cohort/compat/communication.h"

#include "cohort/compat/deprecated.h"

namespace cohort::compat {

CollectiveHints::CollectiveHints(std::int64_t bytes_per_pack,
                                 std::optional<double> timeout_seconds) {
  warn_deprecated("CollectiveHints", "use CommunicationOptions");
  options_.bytes_per_pack = bytes_per_pack;
  if (timeout_seconds) options_.timeout = std::chrono::duration<double>(*timeout_seconds);
  options_.validate();
}

CollectiveCommunication::CollectiveCommunication(Kind kind) : CommunicationImplementation(kind) {
  warn_deprecated("CollectiveCommunication", "use CommunicationImplementation");
}

}  // namespace cohort::compat
