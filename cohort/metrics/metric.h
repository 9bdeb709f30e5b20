#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/variables/variable.h"

namespace cohort::metrics {

/// A number that is gathered over many steps and replicas.
///
/// Made in a strategy's scope, updated inside of `run`, read and reset between steps:
///
///     cohort::metrics::Mean loss("loss");
///     strategy.run([&] { …; loss.update(losses); });
///     loss.result().item<float>();
///     loss.reset();
///
/// Each replica adds to a state of its own. The result is computed from the states summed over
/// replicas, so it does not depend on how the examples were spread, and is the same everywhere;
/// asked inside of `run`, it is a collective that every replica must call. One that was made
/// outside of the scope has one state for all replicas, which add to it in the order they come; a
/// TPUStrategy refuses it.
/// Copies are the same metric.
class Metric {
 public:
  virtual ~Metric() = default;

  const std::string& name() const& { return name_; }
  std::string name() const&& { return name_; }

  /// A float32 scalar; 0 before the first update.
  at::Tensor result() const;

  /// Back to the beginning: on all replicas, or inside of `run` on the calling one.
  void reset();

 protected:
  /// `states` numbers are kept, each starting from 0.
  Metric(std::string name, int states);
  Metric(const Metric&) = default;
  Metric& operator=(const Metric&) = default;

  /// Adds one number to each state. Throws ValueError in cross-replica context, and where the
  /// strategy takes only metrics of its own scope.
  void add(const std::vector<at::Tensor>& amounts);

  /// The result from the summed states, which are float64.
  virtual at::Tensor compute(const std::vector<at::Tensor>& states) const = 0;

 private:
  std::string name_;
  std::vector<Variable> states_;
  std::shared_ptr<Mutex> mutex_ = std::make_shared<Mutex>();  // of states that all replicas share
};

/// The sum of all values, each times its weight.
class Sum : public Metric {
 public:
  explicit Sum(std::string name = "sum") : Metric(std::move(name), 1) {}
  void update(const at::Tensor& values, const at::Tensor& sample_weight = {});

 private:
  at::Tensor compute(const std::vector<at::Tensor>& states) const override { return states[0]; }
};

/// The mean of all values: their weighted sum by the sum of weights, not a mean of means.
class Mean : public Metric {
 public:
  explicit Mean(std::string name = "mean") : Metric(std::move(name), 2) {}
  void update(const at::Tensor& values, const at::Tensor& sample_weight = {});

 private:
  at::Tensor compute(const std::vector<at::Tensor>& states) const override;
};

/// How often the largest of the predictions is the one at the label.
class SparseCategoricalAccuracy : public Metric {
 public:
  explicit SparseCategoricalAccuracy(std::string name = "sparse_categorical_accuracy")
      : Metric(std::move(name), 2) {}

  /// `labels` are class numbers [batch…], `predictions` scores or probabilities [batch…, classes].
  /// Throws InvalidArgument for other shapes.
  void update(const at::Tensor& labels, const at::Tensor& predictions,
              const at::Tensor& sample_weight = {});

 private:
  at::Tensor compute(const std::vector<at::Tensor>& states) const override;
};

}  // namespace cohort::metrics
