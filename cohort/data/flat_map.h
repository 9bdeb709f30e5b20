#pragma once

#include <mutex>

#include "cohort/base/error.h"
#include "cohort/data/map.h"
#include "cohort/data/node.h"
#include "cohort/data/user_function.h"

namespace cohort::data {

template <class T>
class Dataset;

struct InterleaveOptions {
  /// How many of the datasets are read in turn.
  std::int64_t cycle_length = 16;
  /// How many elements of one before it is the next one's turn.
  std::int64_t block_length = 1;
  /// True reads each of them ahead on a thread of its own. The order stays the same.
  bool parallel = false;
  /// Whether the function's datasets read the files that its arguments name. Else the function is
  /// asked with the first name.
  std::optional<bool> reads_files = {};
};

/// The elements of fn(element), which is a dataset, for each element of the input: from
/// `cycle_length` of them in turn. flat_map is the case of one.
template <class In, class F>
class Interleave : public UnaryNode<typename std::invoke_result_t<F&, const In&>::value_type, In> {
 public:
  using Out = typename std::invoke_result_t<F&, const In&>::value_type;

  Interleave(TypedPtr<In> input, F fn, std::string name, InterleaveOptions options)
      : UnaryNode<Out, In>(std::move(input)),
        fn_(std::move(fn)),
        name_(std::move(name)),
        options_(options) {
    if (options_.cycle_length < 1 || options_.block_length < 1) {
      throw InvalidArgument("dataset.interleave",
                            cat("cycle_length and block_length must be positive, got ",
                                options_.cycle_length, " and ", options_.block_length));
    }
  }

  std::string name() const override { return name_; }
  std::string position_kind() const override {
    return cat(name_, '(', options_.cycle_length, ", ", options_.block_length, ')');
  }
  Node::Role role() const override {
    return reads_files() ? Node::Role::READER : Node::Role::CHANGES;
  }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Interleave>(typed<In>(inputs[0]), fn_, name_, options_);
  }
  std::int64_t cardinality() const override {
    return this->input_->cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  ElementSpec spec() const override { return {}; }
  std::optional<int> times_batched() const override {
    if (options_.reads_files) return std::nullopt;  // the function is not to be called for this
    const NodePtr& first = first_dataset();
    return first ? first->times_batched() : std::nullopt;
  }
  IteratorPtr<Out> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_, fn_, name_, options_, iteration);
  }

 private:
  /// A reader somewhere in the dataset that the first name gives.
  bool reads_files() const {
    if (!std::is_same_v<In, std::string>) return false;
    if (options_.reads_files) return *options_.reads_files;
    const NodePtr& first = first_dataset();
    return first && has_reader(*first);
  }
  /// The dataset that the first name gives, which is asked for once; null for elements that are no
  /// names, and where there is none. Nothing is opened.
  const NodePtr& first_dataset() const {
    if constexpr (std::is_same_v<In, std::string>) {
      std::call_once(asked_, [&] { first_dataset_ = make_first_dataset(); });
    }
    return first_dataset_;
  }
  NodePtr make_first_dataset() const {
    try {
      In first;
      if (!this->input_->iterate({})->next(first)) return nullptr;
      F fn = fn_;
      return fn(std::as_const(first)).node();
    } catch (...) {
      return nullptr;
    }
  }
  static bool has_reader(const Node& node) {
    if (node.role() == Node::Role::READER) return true;
    for (const NodePtr& input : node.inputs()) {
      if (has_reader(*input)) return true;
    }
    return false;
  }

  class Running : public Iterator<Out> {
   public:
    Running(TypedPtr<In> input, F fn, const std::string& name, InterleaveOptions options,
            const Iteration& iteration)
        : input_(std::move(input)),
          fn_(std::move(fn)),
          options_(options),
          iteration_(iteration),
          call_(name, iteration),
          running_input_(input_->iterate(iteration)),
          cycle_(options.cycle_length) {}

    bool next(Out& element) override {
      for (; !filled_ && turn_ < cycle_.size(); ++turn_) open(cycle_[turn_]);
      if (!std::exchange(filled_, true)) turn_ = 0;
      while (any_open() || !ended_) {
        Lane& lane = cycle_[turn_];
        if (lane.running && lane.running->next(element)) {
          if (++in_block_ == options_.block_length) pass_turn();
          return true;
        }
        lane = {};   // it has ended, or could not be made; the next one takes its place, from its
        open(lane);  // next turn
        pass_turn();
      }
      return false;
    }

    void save(PositionWriter& position) const override {
      position.put(static_cast<std::int64_t>(turn_));
      position.put(in_block_);
      position.put(opened_);
      position.put(std::int64_t{filled_});
      position.put(std::int64_t{ended_});
      for (const Lane& lane : cycle_) {
        position.put(lane.number);
        if (lane.number < 0) continue;
        position.put(lane.before);
        position.put(lane.running->position());
      }
      position.put(running_input_->position());
    }

    void restore(PositionReader& position) override {
      turn_ = position.get_unsigned();
      in_block_ = position.get();
      const std::int64_t opened = position.get();
      filled_ = position.get() != 0;
      const bool ended = position.get() != 0;
      for (Lane& lane : cycle_) {
        opened_ = position.get();
        if (opened_ < 0) continue;
        move_input(position.get_position());
        const Position inside = position.get_position();
        open(lane);
        if (lane.running) lane.running->go_to(inside);
      }
      move_input(position.get_position());
      opened_ = opened;
      ended_ = ended;
    }

   private:
    struct Lane {
      IteratorPtr<Out> running;
      KeptPosition before;       // the input's, before the element that this is made of
      std::int64_t number = -1;  // of that element
    };

    bool any_open() const {
      return std::any_of(cycle_.begin(), cycle_.end(),
                         [](const Lane& lane) { return lane.running != nullptr; });
    }
    void move_input(const Position& of_input) {
      running_input_ = input_->iterate(iteration_);
      running_input_->go_to(of_input);
    }
    void pass_turn() {
      turn_ = (turn_ + 1) % cycle_.size();
      in_block_ = 0;
    }
    void open(Lane& lane) {
      if (ended_) return;
      Lane opened;
      opened.before = keeper_.of(*running_input_);
      In element{};
      ended_ = !running_input_->next(element);
      if (ended_) return;
      opened.number = opened_++;
      const auto dataset = call_(opened.number, [&] { return fn_(std::as_const(element)); });
      opened.running = dataset.node()->iterate(iteration_.inner(opened.number));
      if (options_.parallel) {
        opened.running =
            std::make_unique<typename Prefetch<Out>::Running>(std::move(opened.running), 64);
      }
      lane = std::move(opened);
    }

    const TypedPtr<In> input_;
    F fn_;
    const InterleaveOptions options_;
    const Iteration iteration_;
    const UserCalls call_;
    IteratorPtr<In> running_input_;
    PositionKeeper keeper_;
    std::vector<Lane> cycle_;
    std::size_t turn_ = 0;
    std::int64_t in_block_ = 0, opened_ = 0;
    bool filled_ = false, ended_ = false;
  };

  const F fn_;
  const std::string name_;
  const InterleaveOptions options_;
  mutable std::once_flag asked_;
  mutable NodePtr first_dataset_;
};

}  // namespace cohort::data
