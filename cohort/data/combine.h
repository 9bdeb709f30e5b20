#pragma once

#include "cohort/base/error.h"
#include "cohort/base/random.h"
#include "cohort/data/node.h"

/// Stages with several inputs: concatenate, zip, sample_from_datasets.
namespace cohort::data {

std::int64_t sum_of_cardinalities(std::span<const NodePtr> inputs);
std::int64_t least_cardinality(std::span<const NodePtr> inputs);

template <class T>
std::vector<TypedPtr<T>> all_typed(const std::vector<NodePtr>& nodes) {
  std::vector<TypedPtr<T>> result;
  for (const NodePtr& node : nodes) result.push_back(typed<T>(node));
  return result;
}

/// All elements of one input, then those of the next.
template <class T>
class Concatenate : public TypedNode<T> {
 public:
  explicit Concatenate(std::vector<TypedPtr<T>> inputs) : inputs_(std::move(inputs)) {}

  std::string name() const override { return "concatenate"; }
  Node::Role role() const override { return Node::Role::KEEPS; }
  std::vector<NodePtr> inputs() const override { return {inputs_.begin(), inputs_.end()}; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Concatenate>(all_typed<T>(inputs));
  }
  std::int64_t cardinality() const override { return sum_of_cardinalities(inputs()); }
  ElementSpec spec() const override {
    ElementSpec common = inputs_[0]->spec();
    for (const auto& input : inputs_) common = common.common_with(input->spec());
    return common;
  }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(inputs_, iteration);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(std::vector<TypedPtr<T>> inputs, const Iteration& iteration)
        : inputs_(std::move(inputs)), iteration_(iteration) {}
    bool next(T& element) override {
      for (; at_ < inputs_.size(); ++at_, running_ = nullptr) {
        if (!running_) begin();
        if (running_->next(element)) return true;
      }
      return false;
    }
    void save(PositionWriter& position) const override {
      position.put(static_cast<std::int64_t>(at_));
      position.put(std::int64_t{running_ != nullptr});
      if (running_) running_->save(position);
    }
    void restore(PositionReader& position) override {
      at_ = position.get_unsigned();
      if (position.get() == 0) return;
      running_ = inputs_.at(at_)->iterate(iteration_);
      running_->restore(position);
    }

   private:
    /// An input that can't begin is left: an error, and then comes the next one.
    void begin() {
      const std::size_t at = at_++;
      running_ = inputs_[at]->iterate(iteration_);
      at_ = at;
    }

    const std::vector<TypedPtr<T>> inputs_;
    const Iteration iteration_;
    std::size_t at_ = 0;
    IteratorPtr<T> running_;
  };

  const std::vector<TypedPtr<T>> inputs_;
};

/// Tuples of one element of each input, until one has no more. Where one can't be made, those of
/// the other inputs that would go with it are passed over.
template <class Tuple, class... Ts>
class Zip : public TypedNode<Tuple> {
 public:
  explicit Zip(TypedPtr<Ts>... inputs) : inputs_(std::move(inputs)...) {}

  std::string name() const override { return "zip"; }
  Node::Role role() const override { return Node::Role::ZIPS; }
  std::vector<NodePtr> inputs() const override {
    return std::apply([](const auto&... each) { return std::vector<NodePtr>{each...}; }, inputs_);
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return [&]<std::size_t... I>(std::index_sequence<I...>) -> NodePtr {
      return std::make_shared<Zip>(typed<Ts>(inputs[I])...);
    }(std::index_sequence_for<Ts...>());
  }
  std::int64_t cardinality() const override { return least_cardinality(inputs()); }
  ElementSpec spec() const override {
    return std::apply([](const auto&... each) { return ElementSpec::tuple({each->spec()...}); },
                      inputs_);
  }
  IteratorPtr<Tuple> iterate(const Iteration& iteration) const override {
    return std::apply(
        [&](const auto&... each) -> IteratorPtr<Tuple> {
          return std::make_unique<Running>(each->iterate(iteration)...);
        },
        inputs_);
  }

 private:
  class Running : public Iterator<Tuple> {
   public:
    explicit Running(IteratorPtr<Ts>... inputs) : inputs_(std::move(inputs)...) {}
    bool next(Tuple& element) override {
      std::exception_ptr error;
      const bool more = [&]<std::size_t... I>(std::index_sequence<I...>) {
        return (next_of(*std::get<I>(inputs_), std::get<I>(element), error) && ...);
      }(std::index_sequence_for<Ts...>());
      if (error) std::rethrow_exception(error);
      return more;
    }
    void save(PositionWriter& position) const override {
      std::apply([&](const auto&... each) { (each->save(position), ...); }, inputs_);
    }
    void restore(PositionReader& position) override {
      std::apply([&](const auto&... each) { (each->restore(position), ...); }, inputs_);
    }

   private:
    /// False at the end. Keeps the first error.
    template <class T>
    static bool next_of(Iterator<T>& input, T& element, std::exception_ptr& error) {
      try {
        return input.next(element);
      } catch (...) {
        if (!error) error = std::current_exception();
        return true;
      }
    }

    const std::tuple<IteratorPtr<Ts>...> inputs_;
  };

  const std::tuple<TypedPtr<Ts>...> inputs_;
};

struct SampleOptions {
  std::vector<double> weights = {};  ///< One for each dataset; none: all the same.
  std::optional<std::uint64_t> seed = {};
  /// Ends when a dataset that was drawn has no more elements, so that the weights hold to the end.
  bool stop_on_empty_dataset = false;
};

std::vector<double> checked_weights(const SampleOptions& options, std::size_t datasets);
/// The index of the weight that a number in [0, 1) falls on.
std::size_t draw(const std::vector<double>& weights, double uniform);

/// Elements of the inputs, drawn by weight.
template <class T>
class Sample : public TypedNode<T> {
 public:
  Sample(std::vector<TypedPtr<T>> inputs, SampleOptions options)
      : inputs_(std::move(inputs)),
        options_(std::move(options)),
        weights_(checked_weights(options_, inputs_.size())) {}

  std::string name() const override { return "sample_from_datasets"; }
  Node::Role role() const override { return Node::Role::KEEPS; }
  std::vector<NodePtr> inputs() const override { return {inputs_.begin(), inputs_.end()}; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Sample>(all_typed<T>(inputs), options_);
  }
  std::int64_t cardinality() const override {
    return options_.stop_on_empty_dataset ? kUnknownCardinality : sum_of_cardinalities(inputs());
  }
  ElementSpec spec() const override {
    ElementSpec common = inputs_[0]->spec();
    for (const auto& input : inputs_) common = common.common_with(input->spec());
    return common;
  }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    std::vector<IteratorPtr<T>> inputs;
    for (const auto& input : inputs_) inputs.push_back(input->iterate(iteration));
    const std::uint64_t seed =
        mix(options_.seed.value_or(mix(iteration.seed, this->depth())), iteration.epoch);
    return std::make_unique<Running>(std::move(inputs), weights_, seed,
                                     options_.stop_on_empty_dataset);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(std::vector<IteratorPtr<T>> inputs, std::vector<double> weights, std::uint64_t seed,
            bool stop_on_empty)
        : inputs_(std::move(inputs)),
          weights_(std::move(weights)),
          seed_(seed),
          stop_on_empty_(stop_on_empty) {}
    bool next(T& element) override {
      for (std::size_t left = open(); left > 0; left = open()) {
        const std::size_t chosen = draw(weights_, RandomStream(mix(seed_, drawn_++)).uniform());
        if (inputs_[chosen]->next(element)) return true;
        weights_[chosen] = 0;
        if (stop_on_empty_) std::fill(weights_.begin(), weights_.end(), 0);
      }
      return false;
    }
    void save(PositionWriter& position) const override {
      position.put(drawn_);
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        position.put(std::int64_t{weights_[i] == 0});
        inputs_[i]->save(position);
      }
    }
    void restore(PositionReader& position) override {
      drawn_ = position.get_unsigned();
      for (std::size_t i = 0; i < inputs_.size(); ++i) {
        if (position.get() != 0) weights_[i] = 0;
        inputs_[i]->restore(position);
      }
    }

   private:
    std::size_t open() const {
      return std::count_if(weights_.begin(), weights_.end(), [](double w) { return w > 0; });
    }

    const std::vector<IteratorPtr<T>> inputs_;
    std::vector<double> weights_;  // 0: it has ended
    const std::uint64_t seed_;
    const bool stop_on_empty_;
    std::uint64_t drawn_ = 0;
  };

  const std::vector<TypedPtr<T>> inputs_;
  const SampleOptions options_;
  const std::vector<double> weights_;
};

}  // namespace cohort::data
