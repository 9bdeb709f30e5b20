#pragma once

#include <optional>
#include <vector>

#include "cohort/data/node.h"
#include "cohort/input/batch_cut.h"

/// A worker's input step by step: what each of its replicas gets.
namespace cohort {

/// One element for each local replica; none for those that there is no data for.
template <class T>
struct Step {
  std::vector<std::optional<T>> values;
};

template <class T>
using StepsPtr = data::IteratorPtr<Step<T>>;

/// Which pieces of each batch make steps.
struct PieceChoice {
  int per_step = 1;  ///< The local replicas.
  /// The first piece of the only step that a batch makes; none: all pieces, `per_step` a step.
  std::optional<int> first;
  /// The batches consist of nothing but those pieces.
  bool only_those_read = false;
};

/// Cuts each batch into pieces for replicas.
template <class T>
class CutSteps : public data::Iterator<Step<T>> {
 public:
  CutSteps(data::IteratorPtr<T> batches, const BatchCut& cut, const PieceChoice& choice)
      : batches_(std::move(batches)), cut_(cut), choice_(choice) {}

  bool next(Step<T>& step) override {
    do {
      if (piece_ >= end_of_pieces()) {
        before_ = batches_->position();
        if (!batches_->next(batch_)) {
          ended_ = true;
          return false;
        }
        piece_ = choice_.first.value_or(0);
        fresh_ = true;
      }
      cut(step);
    } while (!choice_.first && !fresh_ && is_empty(step));  // trailing pieces of a short batch
    fresh_ = false;
    return true;
  }

  void save(data::PositionWriter& position) const override {
    const bool inside = !ended_ && piece_ < end_of_pieces();
    position.put(std::int64_t{inside ? piece_ : -1});
    position.put(inside ? before_ : batches_->position());
  }
  void restore(data::PositionReader& position) override {
    const auto piece = static_cast<int>(position.get());
    const data::Position before = position.get_position();
    data::PositionReader reader(before);
    batches_->restore(reader);
    if (piece < 0) return;
    before_ = before;
    batches_->next(batch_);
    piece_ = piece;
  }

 private:
  int end_of_pieces() const { return choice_.first ? *choice_.first + 1 : cut_.pieces(); }

  void cut(Step<T>& step) {
    step.values.clear();
    for (int i = 0; i < choice_.per_step; ++i) step.values.push_back(piece(piece_ + i));
    piece_ += choice_.per_step;
  }

  T piece(int number) const {
    if (!choice_.only_those_read) return cut_piece(batch_, cut_, number);
    // The rows of this worker begin at its first piece.
    const std::int64_t full = *cut_.full_batch();
    const std::int64_t start = cut_.begin(*choice_.first, full);
    T result = batch_;
    nest::visit(
        [&]<class Leaf>(Leaf& leaf) {
          if constexpr (data::detail::kFixedLeaf<Leaf>) {
            leaf = data::slice_rows(leaf, cut_.begin(number, full) - start,
                                    cut_.begin(number + 1, full) - start);
          }
        },
        result);
    return result;
  }

  static bool is_empty(const Step<T>& step) {
    for (const auto& value : step.values) {
      if (rows_of_batch(*value).value_or(1) > 0) return false;
    }
    return true;
  }

  const data::IteratorPtr<T> batches_;
  const BatchCut cut_;
  const PieceChoice choice_;
  T batch_{};
  data::Position before_;  // the batch
  int piece_ = std::numeric_limits<int>::max() / 2;
  bool fresh_ = false, ended_ = false;
};

/// Deals the elements of one pipeline to the replicas in turn.
template <class T>
class DealtSteps : public data::Iterator<Step<T>> {
 public:
  DealtSteps(data::IteratorPtr<T> elements, int replicas)
      : elements_(std::move(elements)), replicas_(replicas) {}

  bool next(Step<T>& step) override {
    step.values.assign(replicas_, std::nullopt);
    for (auto& value : step.values) {
      T element{};
      if (!elements_->next(element)) break;
      value = std::move(element);
    }
    return step.values[0].has_value();
  }
  void save(data::PositionWriter& position) const override { elements_->save(position); }
  void restore(data::PositionReader& position) override { elements_->restore(position); }

 private:
  const data::IteratorPtr<T> elements_;
  const int replicas_;
};

/// An element of each replica's own pipeline.
template <class T>
class OwnSteps : public data::Iterator<Step<T>> {
 public:
  explicit OwnSteps(std::vector<data::IteratorPtr<T>> pipelines)
      : pipelines_(std::move(pipelines)) {}

  bool next(Step<T>& step) override {
    step.values.clear();
    bool any = false;
    for (const auto& pipeline : pipelines_) {
      T element{};
      const bool more = pipeline->next(element);
      step.values.push_back(more ? std::optional(std::move(element)) : std::nullopt);
      any = any || more;
    }
    return any;
  }
  void save(data::PositionWriter& position) const override {
    for (const auto& pipeline : pipelines_) pipeline->save(position);
  }
  void restore(data::PositionReader& position) override {
    for (const auto& pipeline : pipelines_) pipeline->restore(position);
  }

 private:
  const std::vector<data::IteratorPtr<T>> pipelines_;
};

}  // namespace cohort
