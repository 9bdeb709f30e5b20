#include "cohort/collectives/threads/thread_network.h"

#include <cmath>

#include "cohort/base/error.h"
#include "cohort/collectives/threads/thread_exchange.h"

namespace cohort {
namespace {

void check_not_negative(const char* where, const char* name, double value, const char* unit) {
  if (std::isfinite(value) && value >= 0) return;
  throw ValueError(where, cat(name, ": expected 0 or more ", unit, ", got ", value));
}

}  // namespace

void NetworkOptions::validate(const char* where) const {
  check_not_negative(where, "bytes_per_second", bytes_per_second, "bytes per second");
  check_not_negative(where, "latency", latency.count(), "seconds");
}

/// Each exchange knows the place of all.
class ThreadNetwork::Impl {
 public:
  Impl(int workers, const NetworkOptions& options) {
    for (int worker = 0; worker < workers; ++worker) {
      all.push_back(std::make_unique<threads::ThreadExchange>(all, worker, workers, options));
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  threads::ThreadExchange& at(const char* where, int worker) const {
    const int workers = static_cast<int>(all.size());
    if (worker >= 0 && worker < workers) return *all[worker];
    throw ValueError(where, cat("no such worker: expected 0 to ", workers - 1, ", got ", worker));
  }

  threads::ThreadExchange::All all;
};

ThreadNetwork::ThreadNetwork(int workers, const NetworkOptions& options) {
  if (workers < 1) {
    throw ValueError("ThreadNetwork", cat("workers: expected 1 or more, got ", workers));
  }
  options.validate("ThreadNetwork");
  impl_ = std::make_shared<Impl>(workers, options);
}

ThreadNetwork::~ThreadNetwork() = default;

int ThreadNetwork::workers() const { return static_cast<int>(impl_->all.size()); }

std::shared_ptr<Exchange> ThreadNetwork::exchange(int worker) {
  return {impl_, &impl_->at("ThreadNetwork.exchange", worker)};
}

void ThreadNetwork::lose(int worker, const std::string& why) {
  impl_->at("ThreadNetwork.lose", worker).lose(why);
}

void ThreadNetwork::stop(int worker) { impl_->at("ThreadNetwork.stop", worker).stop(); }

void ThreadNetwork::resume(int worker) { impl_->at("ThreadNetwork.resume", worker).resume(); }

}  // namespace cohort
