#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "cohort/data/gathered.h"
#include "cohort/data/position.h"

namespace cohort::data {

/// How many elements a stage has passed: fewer than it was asked to at its end, and where one could
/// not be made, which is the last of them.
struct Passed {
  std::int64_t count = 0;
  std::exception_ptr error = nullptr;

  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }
};

/// Calls ask(), which says false at its end, as often as somebody else has called it; of these
/// calls, `errors` threw. The next error is thrown.
template <class Ask>
void ask_again(std::int64_t calls, std::int64_t errors, Ask&& ask) {
  for (; calls > 0; --calls) {
    try {
      if (!ask()) return;
    } catch (...) {
      if (errors-- <= 0) throw;
    }
  }
}

/// A stage of a pipeline at work: gives one element after the other.
///
/// Used by one thread at a time. After `next` has thrown, it may be called again: it goes on with
/// the element behind the one that failed, or is at its end where there is no such element. So an
/// element that can't be made is an element too: it has its number, is one of those that `take` and
/// `skip` count, and costs no other one. Only what has not begun (a generator, a pass of `repeat`)
/// may try to begin again, unless `Iteration::errors_are_ignored`: it would be asked for ever.
template <class T>
class Iterator {
 public:
  Iterator() = default;
  virtual ~Iterator() = default;
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;

  /// Sets `element` to the next one; false at the end.
  virtual bool next(T& element) = 0;

  /// Adds the next `count` elements to a batch. Overridden by sources that make a batch without
  /// making the elements one by one.
  virtual Passed gather(std::int64_t count, Gathered<T>& batch) {
    batch.expect(count);
    return pass(count, [&](T& element) { batch.add(std::move(element)); });
  }

  /// Passes over `count` elements.
  virtual Passed skip(std::int64_t count) {
    return pass(count, [](T&) {});
  }

  /// use(element) for the next `count` elements.
  template <class Use>
  Passed pass(std::int64_t count, Use&& use) {
    Passed passed;
    T element{};
    try {
      while (passed.count < count && next(element)) {
        use(element);
        ++passed.count;
      }
    } catch (...) {
      ++passed.count;
      passed.error = std::current_exception();
    }
    return passed;
  }

  /// Where it stands, behind the last element that it gave or could not make. A stage that cannot
  /// tell throws ValueError.
  virtual void save(PositionWriter& position) const = 0;
  /// Goes to where another iterator of the same stage stood. Called before anything else. What is
  /// read again on the way there may throw what it threw before, and no more than that.
  virtual void restore(PositionReader& position) = 0;

  /// The same with a position of its own.
  Position position() const {
    PositionWriter writer;
    save(writer);
    return writer.take();
  }
  void go_to(const Position& position) {
    PositionReader reader(position);
    restore(reader);
    reader.expect_end();
  }

 protected:
  /// Asks for as many elements as another iterator of the same stage was asked for.
  void retrace(std::int64_t calls, std::int64_t errors) {
    T element{};
    ask_again(calls, errors, [&] { return next(element); });
  }
};

template <class T>
using IteratorPtr = std::unique_ptr<Iterator<T>>;

/// input.next(element), which counts it, also if it can't be made.
template <class T>
bool next_counted(Iterator<T>& input, T& element, std::int64_t& count) {
  ++count;
  if (input.next(element)) return true;
  --count;
  return false;
}

}  // namespace cohort::data
