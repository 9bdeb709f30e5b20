#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cohort/collectives/exchange.h"

namespace cohort {

/// The network between workers that are threads of one process.
struct NetworkOptions {
  /// Each worker sends this much a second to each other one; 0 means as fast as memory.
  double bytes_per_second = 0;

  /// How long a message takes beside that.
  std::chrono::duration<double> latency{0};

  /// Throws ValueError for times and rates that are negative or no numbers.
  void validate(const char* where) const;
};

/// Workers that are threads of one process, with a network between them that is memory.
///
/// Each two workers have a link in each direction. A message becomes visible to its receiver when
/// it has been sent + latency + bytes / bandwidth of its link, behind what was sent on the link
/// before; so a slow network can be tried out. Receivers sleep until then, senders never. A
/// worker's end travels the same way, behind all that it has sent.
///
/// Its exchanges may outlive it.
class ThreadNetwork {
 public:
  /// Throws ValueError for less than one worker, and for options that are not valid.
  explicit ThreadNetwork(int workers, const NetworkOptions& options = {});
  ~ThreadNetwork();
  ThreadNetwork(const ThreadNetwork&) = delete;
  ThreadNetwork& operator=(const ThreadNetwork&) = delete;

  int workers() const;

  /// The exchange of one worker.
  std::shared_ptr<Exchange> exchange(int worker);

  // Faults, for tests.

  /// The worker is gone, as if its process had died: the others learn why, what it sends from now
  /// on goes nowhere, and for its own exchange the others are lost.
  void lose(int worker, const std::string& why);

  /// The worker stops, as if its machine hung: what it sends stays away, and nobody is told. It
  /// goes on with `resume`, and what it has sent meanwhile is sent then.
  void stop(int worker);
  void resume(int worker);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cohort
