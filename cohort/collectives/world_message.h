#pragma once

#include <cstdint>

#include "cohort/collectives/exchange.h"

/// The heads of the messages between the workers of a World. Internal to it.
///
///     word 0   the kind, in the lowest byte; above it the bytes of text that the body begins with;
///              behind the text of a NOTICE stands the sender's progress (World::tell_all)
///     word 1   the epoch
///     word 2   the run that began last on the sender
///     word 3   which collective of the lane, in the epoch; of a NOTICE the run behind which
///              the sender waits, as it counts those that it has tried, or 0
///     word 4   a hash of the call's text
///     word 5   of a NOTICE or an ERROR: World::Failure::Kind
namespace cohort::world_message {

enum Kind : std::uint64_t {
  DATA = 1,    ///< Part of a collective. The first one to each worker begins with the call's text.
  ERROR = 2,   ///< This collective has failed everywhere; the text says why.
  NOTICE = 3,  ///< The epoch is over; the text says why.
  BYE = 4,     ///< Nothing more will come on this lane.
  HERE = 5,    ///< The sender waits in this collective, already for long.
};

inline Kind kind_of(const MessageHead& head) { return static_cast<Kind>(head[0] & 0xff); }
inline std::uint64_t text_bytes_of(const MessageHead& head) { return head[0] >> 8; }
inline std::uint64_t epoch_of(const MessageHead& head) { return head[1]; }
inline std::uint64_t run_of(const MessageHead& head) { return head[2]; }
inline std::uint64_t sequence_of(const MessageHead& head) { return head[3]; }
inline std::uint64_t hash_of(const MessageHead& head) { return head[4]; }

}  // namespace cohort::world_message
