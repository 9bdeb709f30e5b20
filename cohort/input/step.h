#pragma once

#include <optional>
#include <span>
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

/// The position of a worker's steps is the number of its pipelines, the number of pieces that were
/// taken of a batch, of how many if there were some, and where each pipeline stands. So another
/// number of replicas can go on, wherever it has the same pipelines and stands between two batches.
/// For that of the job see job_position.h.
namespace detail {

/// Throws InvalidArgument unless the position is of so many pipelines.
void expect_pipelines(data::PositionReader& position, std::size_t count);
/// The pieces that were taken. Throws InvalidArgument unless they were of so many.
int get_pieces(data::PositionReader& position, int of);

template <class T>
void save_pipelines(data::PositionWriter& position,
                    std::span<const data::IteratorPtr<T>> pipelines) {
  position.put(static_cast<std::int64_t>(pipelines.size()));
  position.put(std::int64_t{0});
  for (const auto& pipeline : pipelines) position.put(pipeline->position());
}
template <class T>
void restore_pipelines(data::PositionReader& position,
                       std::span<const data::IteratorPtr<T>> pipelines) {
  expect_pipelines(position, pipelines.size());
  get_pieces(position, 1);
  for (const auto& pipeline : pipelines) pipeline->go_to(position.get_position());
}

}  // namespace detail

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
        before_ = keeper_.of(*batches_);
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
    const bool inside = !choice_.first && !ended_ && piece_ > 0 && piece_ < end_of_pieces();
    position.put(std::int64_t{1});
    position.put(std::int64_t{inside ? piece_ : 0});
    if (inside) position.put(std::int64_t{cut_.pieces()});
    position.put(inside ? before_.get() : batches_->position());
  }
  void restore(data::PositionReader& position) override {
    detail::expect_pipelines(position, 1);
    const int piece = detail::get_pieces(position, cut_.pieces());
    data::Position before = position.get_position();
    batches_->go_to(before);
    if (piece == 0) return;
    before_ = data::KeptPosition(std::move(before));
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
  data::PositionKeeper keeper_;
  data::KeptPosition before_;  // the batch
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
  void save(data::PositionWriter& position) const override {
    detail::save_pipelines(position, std::span(&elements_, 1));
  }
  void restore(data::PositionReader& position) override {
    detail::restore_pipelines(position, std::span(&elements_, 1));
  }

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
    detail::save_pipelines(position, std::span(pipelines_));
  }
  void restore(data::PositionReader& position) override {
    detail::restore_pipelines(position, std::span(pipelines_));
  }

 private:
  const std::vector<data::IteratorPtr<T>> pipelines_;
};

}  // namespace cohort
