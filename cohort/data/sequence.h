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
      if (!next_counted(*input_, element.second, next_)) return false;
      element.first = next_ - 1;
      return true;
    }
    Passed skip(std::int64_t count) override {
      const Passed passed = input_->skip(count);
      next_ += passed.count;
      return passed;
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
    return std::make_unique<Running>(this->input_->iterate(iteration), initial_, fn_, iteration);
  }

 private:
  class Running : public Iterator<Out> {
   public:
    Running(IteratorPtr<T> input, State state, F fn, const Iteration& iteration)
        : input_(std::move(input)),
          state_(std::move(state)),
          fn_(std::move(fn)),
          call_("scan", iteration) {}
    bool next(Out& element) override {
      try {
        return make(element);
      } catch (...) {
        ++errors_;
        throw;
      }
    }
    void save(PositionWriter& position) const override {
      position.put(given_);
      position.put(errors_);
    }
    void restore(PositionReader& position) override {
      const std::int64_t given = position.get();
      this->retrace(given, position.get());
    }

   private:
    bool make(Out& element) {
      T input{};
      if (!next_counted(*input_, input, given_)) return false;
      auto [state, made] =
          call_(given_ - 1, [&] { return fn_(std::as_const(state_), std::as_const(input)); });
      state_ = std::move(state);
      element = std::move(made);
      return true;
    }

    const IteratorPtr<T> input_;
    State state_;
    F fn_;
    const UserCalls call_;
    std::int64_t given_ = 0;   // elements, with those that could not be made
    std::int64_t errors_ = 0;  // of these
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
      pass_gap();
      const std::int64_t span = (options_.size - 1) * options_.stride + 1;
      while (static_cast<std::int64_t>(held_.size()) < span && hold_next()) {
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
      position.put(gap_);
      const Held* first = held_.empty() ? nullptr : &held_.front();
      position.put(first ? asked_ - first->asked : 0);
      position.put(first ? errors_ - first->errors : 0);
      position.put(first ? first->before.get() : input_->position());
    }
    void restore(PositionReader& position) override {
      gap_ = position.get();
      const std::int64_t asked = position.get(), errors = position.get();
      input_->go_to(position.get_position());
      ask_again(asked, errors, [this] { return hold_next(); });
    }

   private:
    struct Held {
      T element{};
      KeptPosition before;                 // the input's
      std::int64_t asked = 0, errors = 0;  // of the input, before
    };
    bool hold_next() {
      Held held{{}, keeper_.of(*input_), asked_, errors_};
      try {
        if (!next_counted(*input_, held.element, asked_)) return false;
      } catch (...) {
        ++errors_;
        throw;
      }
      held_.push_back(std::move(held));
      return true;
    }
    void shift() {
      const auto held = static_cast<std::int64_t>(held_.size());
      const std::int64_t dropped = std::min(held, options_.shift);
      held_.erase(held_.begin(), held_.begin() + dropped);
      gap_ = options_.shift - dropped;
    }
    void pass_gap() {
      const Passed passed = input_->skip(gap_);
      gap_ -= passed.count;
      passed.rethrow();
    }

    const IteratorPtr<T> input_;
    const WindowOptions options_;
    PositionKeeper keeper_;
    std::deque<Held> held_;
    std::int64_t asked_ = 0, errors_ = 0;  // of the input
    std::int64_t gap_ = 0;                 // elements between the last window and the next
  };

  const WindowOptions options_;
};

}  // namespace cohort::data
