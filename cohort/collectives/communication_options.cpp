#include "cohort/collectives/communication_options.h"

#include <strings.h>

#include <string>

#include "cohort/base/error.h"

namespace cohort {

CommunicationImplementation::CommunicationImplementation(std::string_view name) {
  const std::string text(name);
  for (const Kind kind : {AUTO, RING, NCCL}) {
    kind_ = kind;
    if (strcasecmp(text.c_str(), this->name()) == 0) return;
  }
  throw ValueError("CommunicationImplementation",
                   cat("unknown implementation: expected AUTO, RING or NCCL, got \"", name, '"'));
}

const char* CommunicationImplementation::name() const {
  constexpr const char* kNames[] = {"AUTO", "RING", "NCCL"};
  return kNames[kind_];
}

void CommunicationOptions::validate() const {
  if (bytes_per_pack < 0) {
    throw ValueError("CommunicationOptions",
                     cat("bytes_per_pack must be non-negative, got ", bytes_per_pack));
  }
  const auto check_time = [](const char* name, double seconds) {
    if (seconds > 0) return;
    throw ValueError("CommunicationOptions", cat(name, " must be positive, got ", seconds, " s"));
  };
  if (timeout) check_time("timeout", timeout->count());
  check_time("warn_after", warn_after.count());
}

CommunicationOptions CommunicationOptions::merged_with(const CommunicationOptions& other) const {
  CommunicationOptions result = *this;
  if (other.bytes_per_pack != 0) result.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout) result.timeout = other.timeout;
  if (other.warn_after != kWarnAfter) result.warn_after = other.warn_after;
  if (other.implementation != CommunicationImplementation::AUTO) {
    result.implementation = other.implementation;
  }
  return result;
}

}  // namespace cohort
