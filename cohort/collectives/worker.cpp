#include "cohort/collectives/worker.h"

#include "cohort/collectives/exchange.h"

namespace cohort {

int Worker::index() const { return exchange_->index(); }

int Worker::count() const { return exchange_->workers(); }

}  // namespace cohort
