#pragma once

#include <ATen/core/Generator.h>

#include "cohort/base/error.h"
#include "cohort/base/mutex.h"
#include "cohort/base/never.h"
#include "cohort/base/random.h"
#include "cohort/data/node.h"
#include "cohort/data/read_ahead.h"
#include "cohort/data/user_function.h"

namespace cohort::data {

/// `parallel`, `prefetch`: as many as the machine and the consumer call for.
inline constexpr int AUTOTUNE = -1;

struct MapOptions {
  /// How many threads call the function; AUTOTUNE: one for each core. 1 calls it in the thread
  /// that asks for the element.
  int parallel = 1;
  /// False gives elements as they become ready: a little faster where they take unequally long.
  bool ordered = true;
  /// What is known of the results, where it has to be known before the first one is made.
  ElementSpec spec = {};
};

namespace detail {

template <class F, class... Args>
concept MapsWith = std::is_invocable_v<F&, Args...>;

/// What comes out of a function that does not fit: one error.
template <class T, class F>
struct NotMapped {
  static_assert(kNever<F>, "dataset.map(fn): fn can't be called with the dataset's elements");
};

/// fn(element), fn(element, generator), or both with a tuple's parts as arguments.
template <class F, class T>
auto call_map(F& fn, const T& element, const std::function<at::Generator()>& generator) {
  if constexpr (MapsWith<F, const T&>) {
    return fn(element);
  } else if constexpr (MapsWith<F, const T&, at::Generator>) {
    return fn(element, generator());
  } else if constexpr (nest::Tuple<T>) {
    return std::apply(
        [&](const auto&... parts) {
          if constexpr (MapsWith<F, decltype(parts)...>) {
            return fn(parts...);
          } else if constexpr (MapsWith<F, decltype(parts)..., at::Generator>) {
            return fn(parts..., generator());
          } else {
            return NotMapped<T, F>();
          }
        },
        element);
  } else {
    return NotMapped<T, F>();
  }
}

template <class F, class T>
using Mapped =
    std::remove_cvref_t<decltype(call_map(std::declval<F&>(), std::declval<const T&>(),
                                          std::declval<const std::function<at::Generator()>&>()))>;

at::Generator element_generator(std::uint64_t seed);
int threads_for(int parallel, const char* where);

/// A spec that is known once the first element has been made.
class LearntSpec {
 public:
  explicit LearntSpec(ElementSpec spec) : known_(spec.known()), spec_(std::move(spec)) {}
  template <class T>
  void learn(const T& element, const ElementSpec& input) {
    if (!known_) set(spec_of(element), input);
  }
  ElementSpec get() const {
    const MutexLock lock(mutex_);
    return spec_;
  }

 private:
  void set(ElementSpec spec, const ElementSpec& input);

  std::atomic<bool> known_;
  mutable Mutex mutex_;
  ElementSpec spec_ COHORT_GUARDED_BY(mutex_);
};

}  // namespace detail

/// fn of each element. A function that takes an `at::Generator` too gets one whose numbers depend
/// on (seed, pass, element) alone.
template <class In, class F>
class Map : public UnaryNode<detail::Mapped<F, In>, In> {
 public:
  using Out = detail::Mapped<F, In>;

  Map(TypedPtr<In> input, F fn, MapOptions options)
      : UnaryNode<Out, In>(std::move(input)),
        options_(options),
        shared_(std::make_shared<Shared>(std::move(fn), options.spec)) {}

  std::string name() const override { return "map"; }
  Node::Role role() const override { return Node::Role::MAPS; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Map>(typed<In>(inputs[0]), shared_->fn, options_);
  }
  ElementSpec spec() const override { return shared_->spec.get(); }
  bool is_unordered() const override { return !options_.ordered && options_.parallel != 1; }

  IteratorPtr<Out> iterate(const Iteration& iteration) const override {
    const std::uint64_t seed = mix(iteration.seed, this->depth(), iteration.epoch);
    auto transform = [shared = shared_, seed, call = UserCalls("map", iteration),
                      input_spec = this->input_->spec()](In&& element, std::int64_t number) -> Out {
      const auto generator = [&] { return detail::element_generator(mix(seed, number)); };
      Out made = call(number, [&] { return detail::call_map(shared->fn, element, generator); });
      shared->spec.learn(made, input_spec);
      return made;
    };
    const int threads = detail::threads_for(options_.parallel, "dataset.map");
    auto input = this->input_->iterate(iteration);
    if (threads == 1) return std::make_unique<Serial>(std::move(input), std::move(transform));
    return std::make_unique<Parallel>(
        std::move(input), std::move(transform),
        ReadAheadOptions{.threads = threads,
                         .capacity = 2 * threads,
                         .ordered = options_.ordered || iteration.in_order});
  }

 private:
  struct Shared {
    Shared(F fn, const ElementSpec& spec) : fn(std::move(fn)), spec(spec) {}
    F fn;
    detail::LearntSpec spec;
  };
  using Transform = typename ReadAhead<In, Out>::Transform;

  class Serial : public Iterator<Out> {
   public:
    Serial(IteratorPtr<In> input, Transform transform)
        : input_(std::move(input)), transform_(std::move(transform)) {}
    bool next(Out& element) override {
      In input{};
      if (!next_counted(*input_, input, number_)) return false;
      element = transform_(std::move(input), number_ - 1);
      return true;
    }
    Passed skip(std::int64_t count) override {
      const Passed passed = input_->skip(count);
      number_ += passed.count;
      return passed;
    }
    void save(PositionWriter& position) const override {
      position.put(number_);
      input_->save(position);
    }
    void restore(PositionReader& position) override {
      number_ = position.get();
      input_->restore(position);
    }

   private:
    const IteratorPtr<In> input_;
    const Transform transform_;
    std::int64_t number_ = 0;  // of the next element
  };

  class Parallel : public Iterator<Out> {
   public:
    Parallel(IteratorPtr<In> input, Transform transform, const ReadAheadOptions& options)
        : ahead_(std::move(input), std::move(transform), options) {}
    bool next(Out& element) override { return ahead_->next(element); }
    Passed skip(std::int64_t count) override { return ahead_->skip(count); }
    void save(PositionWriter& position) const override {
      if (!ahead_->ordered()) {
        throw ValueError("iterator.position",
                         "an unordered map has no position: use {.ordered = true}");
      }
      position.put(ahead_->given());
      ahead_->save_input(position);
    }
    void restore(PositionReader& position) override {
      const std::int64_t given = position.get();
      ahead_->restore_input(position, given);
    }

   private:
    UsedByThreads<ReadAhead<In, Out>> ahead_;
  };

  const MapOptions options_;
  const std::shared_ptr<Shared> shared_;
};

/// The elements for which the predicate holds.
template <class T, class F>
class Filter : public UnaryNode<T> {
 public:
  Filter(TypedPtr<T> input, F predicate)
      : UnaryNode<T>(std::move(input)), predicate_(std::move(predicate)) {}

  std::string name() const override { return "filter"; }
  Node::Role role() const override { return Node::Role::FILTERS; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Filter>(typed<T>(inputs[0]), predicate_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t all = this->input_->cardinality();
    return all == kInfinite || all == 0 ? all : kUnknownCardinality;
  }
  ElementSpec spec() const override { return this->input_->spec(); }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    return std::make_unique<Running>(this->input_->iterate(iteration), predicate_, iteration);
  }

 private:
  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, F predicate, const Iteration& iteration)
        : input_(std::move(input)), predicate_(std::move(predicate)), call_("filter", iteration) {}
    bool next(T& element) override {
      while (next_counted(*input_, element, number_)) {
        if (call_(number_ - 1, [&] { return holds(element); })) return true;
      }
      return false;
    }
    void save(PositionWriter& position) const override {
      position.put(number_);
      input_->save(position);
    }
    void restore(PositionReader& position) override {
      number_ = position.get();
      input_->restore(position);
    }

   private:
    bool holds(const T& element) {
      if constexpr (std::is_invocable_v<F&, const T&>) {
        return static_cast<bool>(predicate_(element));
      } else {
        return static_cast<bool>(std::apply(predicate_, element));
      }
    }

    const IteratorPtr<T> input_;
    F predicate_;
    const UserCalls call_;
    std::int64_t number_ = 0;  // of the next element of the input
  };

  const F predicate_;
};

/// The input, read ahead by a thread of its own.
template <class T>
class Prefetch : public UnaryNode<T> {
 public:
  Prefetch(TypedPtr<T> input, std::int64_t elements)
      : UnaryNode<T>(std::move(input)), elements_(elements) {}

  std::string name() const override {
    return elements_ < 0 ? "prefetch(AUTOTUNE)" : cat("prefetch(", elements_, ')');
  }
  Node::Role role() const override { return Node::Role::KEEPS; }
  NodePtr with_inputs(std::vector<NodePtr> inputs) const override {
    return std::make_shared<Prefetch>(typed<T>(inputs[0]), elements_);
  }
  ElementSpec spec() const override { return this->input_->spec(); }
  IteratorPtr<T> iterate(const Iteration& iteration) const override {
    auto input = this->input_->iterate(iteration);
    if (elements_ == 0) return input;
    return std::make_unique<Running>(std::move(input), elements_);
  }

  class Running : public Iterator<T> {
   public:
    Running(IteratorPtr<T> input, std::int64_t elements)
        : ahead_(
              std::move(input), [](T&& element, std::int64_t) { return std::move(element); },
              ReadAheadOptions{.capacity = elements < 0 ? 2 : elements, .autotune = elements < 0}) {
    }
    bool next(T& element) override { return ahead_->next(element); }
    Passed skip(std::int64_t count) override { return ahead_->skip(count); }
    /// That of the input, so that one with any number of elements ahead can go on.
    void save(PositionWriter& position) const override { ahead_->save_input(position); }
    void restore(PositionReader& position) override { ahead_->restore_input(position); }

   private:
    UsedByThreads<ReadAhead<T, T>> ahead_;
  };

 private:
  const std::int64_t elements_;
};

}  // namespace cohort::data
