#pragma once

#include <deque>

#include "cohort/base/error.h"
#include "cohort/data/node.h"
#include "cohort/data/user_function.h"

/// Stages that look at an element's place among the others: enumerate, scan, window.
namespace cohort::data {

/// (number, element) pairs, the numbers from `start` on.
template <class T>
class Enumerate : public UnaryNode<std::pair<std::int64_t, T>, T> {
 public:
  using Out = std::pair<std::int64_t, T>;

  Enumerate(TypedPtr<T> input, std::int64_t start)
      : UnaryNode<Out, T>(std::move(input)), start_(start) {}

  std::string name() const override { return "enumerate"; }
  Node::Role role() const override { return Node::Role::MAPS; }
  bool depends_on_earlier_elements() const override { return true; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Enumerate>(typed<T>(inputs[0]), start_);
  }
  ElementSpec spec() const override {
    return ElementSpec::tuple({spec_of(std::int64_t{}), this->input_->spec()});
  }
  IteratorPtr<Out> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), start_);
  }

 private:
  class Running : public Iterator<Out> {
   public:
    Running(IteratorPtr<T> input, std::int64_t start) : input_(std::move(input)), next_(start) {}
    bool next(Out& element) override {
      if (!input_->next(element.second)) return false;
      element.first = next_++;
      return true;
    }
    std::int64_t skip(std::int64_t count) override {
      const std::int64_t skipped = input_->skip(count);
      next_ += skipped;
      return skipped;
    }
    void save(PositionWriter& position) const override {
      position.put(next_);
      input_->save(position);
    }
    void restore(PositionReader& position) override {
      next_ = position.get();
      input_->restore(position);
    }

   private:
    const IteratorPtr<T> input_;
    std::int64_t next_;
  };

  const std::int64_t start_;
};

/// `fn(state, element)` gives the next state and an element: a running sum, a filter with memory.
/// The state is the user's and no number, so going back to a position runs from the beginning.
template <class T, class State, class F>
class Scan
    : public UnaryNode<typename std::invoke_result_t<F&, const State&, const T&>::second_type, T> {
 public:
  using Out = typename std::invoke_result_t<F&, const State&, const T&>::second_type;

  Scan(TypedPtr<T> input, State initial, F fn)
      : UnaryNode<Out, T>(std::move(input)), initial_(std::move(initial)), fn_(std::move(fn)) {}

  std::string name() const override { return "scan"; }
  Node::Role role() const override { return Node::Role::CHANGES; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Scan>(typed<T>(inputs[0]), initial_, fn_);
  }
  bool depends_on_earlier_elements() const override { return true; }
  ElementSpec spec() const override { return {}; }
  IteratorPtr<Out> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), initial_, fn_);
  }

 private:
  class Running : public Iterator<Out> {
   public:
    Running(IteratorPtr<T> input, State state, F fn)
        : input_(std::move(input)), state_(std::move(state)), fn_(std::move(fn)) {}
    bool next(Out& element) override {
      T input{};
      if (!input_->next(input)) return false;
      auto [state, made] = call_for_element(
          "scan", given_++, [&] { return fn_(std::as_const(state_), std::as_const(input)); });
      state_ = std::move(state);
      element = std::move(made);
      return true;
    }
    void save(PositionWriter& position) const override { position.put(given_); }
    void restore(PositionReader& position) override { this->skip(position.get()); }

   private:
    const IteratorPtr<T> input_;
    State state_;
    F fn_;
    std::int64_t given_ = 0;
  };

  const State initial_;
  const F fn_;
};

struct WindowOptions {
  std::int64_t size = 1;
  std::int64_t shift = 0;   ///< From the start of one window to that of the next; 0: the size.
  std::int64_t stride = 1;  ///< From one element of a window to the next.
  bool drop_remainder = false;
};

WindowOptions checked_window(WindowOptions options);

/// Windows of consecutive elements, as vectors; they overlap where the shift is less than the size.
template <class T>
class Window : public UnaryNode<std::vector<T>, T> {
 public:
  Window(TypedPtr<T> input, WindowOptions options)
      : UnaryNode<std::vector<T>, T>(std::move(input)), options_(checked_window(options)) {}

  std::string name() const override { return cat("window(", options_.size, ')'); }
  Node::Role role() const override { return Node::Role::CHANGES; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Window>(typed<T>(inputs[0]), options_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t all = this->input_->cardinality();
    if (all < 0) return all;
    const std::int64_t span =
        options_.drop_remainder ? (options_.size - 1) * options_.stride + 1 : 1;
    return all < span ? 0 : (all - span) / options_.shift + 1;
  }
  ElementSpec spec() const override { return {}; }
  IteratorPtr<std::vector<T>> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), options_);
  }

 private:
  class Running : public Iterator<std::vector<T>> {
   public:
    Running(IteratorPtr<T> input, WindowOptions options)
        : input_(std::move(input)), options_(options) {}
    bool next(std::vector<T>& window) override {
      const std::int64_t span = (options_.size - 1) * options_.stride + 1;
      while (static_cast<std::int64_t>(held_.size()) < span) {
        Held held{{}, keeper_.of(*input_)};
        if (!input_->next(held.element)) break;
        held_.push_back(std::move(held));
      }
      const auto held = static_cast<std::int64_t>(held_.size());
      if (held == 0 || (held < span && options_.drop_remainder)) return false;
      window.clear();
      for (std::int64_t i = 0; i < std::min(held, span); i += options_.stride) {
        window.push_back(held_[i].element);
      }
      shift();
      return true;
    }
    void save(PositionWriter& position) const override {
      position.put(held_.empty() ? input_->position() : held_.front().before.get());
    }
    void restore(PositionReader& position) override { input_->go_to(position.get_position()); }

   private:
    struct Held {
      T element{};
      KeptPosition before;  // the input's
    };
    void shift() {
      const auto held = static_cast<std::int64_t>(held_.size());
      const std::int64_t dropped = std::min(held, options_.shift);
      held_.erase(held_.begin(), held_.begin() + dropped);
      input_->skip(options_.shift - dropped);
    }

    const IteratorPtr<T> input_;
    const WindowOptions options_;
    PositionKeeper keeper_;
    std::deque<Held> held_;
  };

  const WindowOptions options_;
};

}  // namespace cohort::data
