#pragma once

#include <memory>
#include <utility>

namespace cohort {

class Exchange;

/// One worker of a job, as a strategy of several workers takes it. A small value; copies are the
/// same worker. Outlives the function that it was given to, but can't reach the others then.
class Worker {
 public:
  explicit Worker(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  /// Which worker this is, from 0, and how many there are.
  int index() const;
  int count() const;

  /// Worker 0: variables and models start with its values, and it writes what is written once.
  bool is_chief() const { return index() == 0; }

  // For the layers above.
  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace cohort
