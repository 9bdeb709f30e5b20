#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
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
/// After an error in a step that was begun, it is where the step began: the error is met again.
namespace detail {

/// Throws InvalidArgument unless the position is of so many pipelines.
void expect_pipelines(data::PositionReader& position, std::size_t count);
/// The pieces that were taken. Throws InvalidArgument unless they were of so many.
int get_pieces(data::PositionReader& position, int of);

/// `position_of(i)` is where pipeline i stands.
template <class PositionOf>
void save_pipelines(data::PositionWriter& position, std::size_t pipelines,
                    PositionOf&& position_of) {
  position.put(static_cast<std::int64_t>(pipelines));
  position.put(std::int64_t{0});
  for (std::size_t i = 0; i < pipelines; ++i) position.put(position_of(i));
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
    const int first = std::exchange(piece_, end_of_pieces());  // of a batch that can't be cut
    for (int i = 0; i < choice_.per_step; ++i) step.values.push_back(piece(first + i));
    piece_ = first + choice_.per_step;
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

  /// What has been dealt stays so when an element can't be made: the next call goes on there.
  bool next(Step<T>& step) override {
    if (dealt_.empty()) before_ = keeper_.of(*elements_);
    const auto left = replicas_ - static_cast<std::int64_t>(dealt_.size());
    const auto deal = [this](T& element) { dealt_.push_back(std::move(element)); };
    elements_->pass(left, deal).rethrow();
    step.values = std::exchange(dealt_, {});
    const bool any = !step.values.empty();
    step.values.resize(replicas_);
    return any;
  }
  void save(data::PositionWriter& position) const override {
    detail::save_pipelines(position, 1, [&](std::size_t) {
      return dealt_.empty() ? elements_->position() : before_.get();
    });
  }
  void restore(data::PositionReader& position) override {
    detail::restore_pipelines(position, std::span(&elements_, 1));
  }

 private:
  const data::IteratorPtr<T> elements_;
  const int replicas_;
  data::PositionKeeper keeper_;
  data::KeptPosition before_;            // the step
  std::vector<std::optional<T>> dealt_;  // of a step that is not complete
};

/// An element of each replica's own pipeline.
template <class T>
class OwnSteps : public data::Iterator<Step<T>> {
 public:
  explicit OwnSteps(std::vector<data::IteratorPtr<T>> pipelines)
      : pipelines_(std::move(pipelines)) {}

  /// What replicas have got stays so when an element can't be made: the next call goes on there.
  bool next(Step<T>& step) override {
    while (values_.size() < pipelines_.size()) {
      data::Iterator<T>& pipeline = *pipelines_[values_.size()];
      data::KeptPosition before = keeper_.of(pipeline);
      T element{};
      const bool more = pipeline.next(element);
      values_.push_back(more ? std::optional(std::move(element)) : std::nullopt);
      before_.push_back(std::move(before));
    }
    before_.clear();
    step.values = std::exchange(values_, {});
    return std::any_of(step.values.begin(), step.values.end(),
                       [](const auto& value) { return value.has_value(); });
  }
  void save(data::PositionWriter& position) const override {
    detail::save_pipelines(position, pipelines_.size(), [&](std::size_t i) {
      return i < before_.size() ? before_[i].get() : pipelines_[i]->position();
    });
  }
  void restore(data::PositionReader& position) override {
    detail::restore_pipelines(position, std::span(pipelines_));
  }

 private:
  const std::vector<data::IteratorPtr<T>> pipelines_;
  data::PositionKeeper keeper_;
  // Of a step that is not complete, for the first replicas.
  std::vector<std::optional<T>> values_;
  std::vector<data::KeptPosition> before_;
};

}  // namespace cohort
