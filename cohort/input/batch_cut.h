#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/data/batched.h"
#include "cohort/data/element_spec.h"

namespace cohort {

/// Where a batch is cut into pieces for replicas.
///
/// A full batch of G rows is cut evenly: with f = G div n and c = G mod n, the first c pieces have
/// f + 1 rows and the others f. The points are fixed by G, so that a short batch leaves trailing
/// pieces short or empty, and an index always meets the same replica. Without a known G, a batch
/// is cut evenly by its own size.
class BatchCut {
 public:
  explicit BatchCut(int pieces, std::optional<std::int64_t> full_batch = std::nullopt)
      : pieces_(pieces), full_(full_batch) {}

  int pieces() const { return pieces_; }
  const std::optional<std::int64_t>& full_batch() const { return full_; }

  /// The rows of piece j of a batch of `rows`, as [begin of j, begin of j + 1).
  std::int64_t begin(int piece, std::int64_t rows) const {
    const std::int64_t size = full_ && rows <= *full_ ? *full_ : rows;
    const std::int64_t even = size / pieces_, extra = size % pieces_;
    return std::min(piece * even + std::min<std::int64_t>(piece, extra), rows);
  }

 private:
  int pieces_;
  std::optional<std::int64_t> full_;
};

namespace detail {
[[noreturn]] void throw_unbatched();
}

/// The rows that all leaves of a batch have; nothing if they differ. Throws ValueError for a leaf
/// without dimensions: a dataset must be batched before replicas share it.
template <class T>
std::optional<std::int64_t> rows_of_batch(const T& batch) {
  std::optional<std::int64_t> rows;
  bool same = true;
  nest::visit(
      [&]<class Leaf>(const Leaf& leaf) {
        if constexpr (data::detail::kFixedLeaf<Leaf>) {
          const std::int64_t own = data::count_rows(leaf);
          if (own < 0) detail::throw_unbatched();
          same = same && (!rows || *rows == own);
          rows = own;
        } else {
          detail::throw_unbatched();
        }
      },
      batch);
  return same ? rows : std::nullopt;
}

/// Piece j of a batch. Leaves of different lengths are cut each by its own.
template <class T>
T cut_piece(const T& batch, const BatchCut& cut, int piece) {
  const auto common = rows_of_batch(batch);
  T result = batch;
  nest::visit(
      [&]<class Leaf>(Leaf& leaf) {
        if constexpr (data::detail::kFixedLeaf<Leaf>) {
          const std::int64_t rows = data::count_rows(leaf);
          const BatchCut& own = common ? cut : BatchCut(cut.pieces());
          leaf = data::slice_rows(leaf, own.begin(piece, rows), own.begin(piece + 1, rows));
        }
      },
      result);
  return result;
}

/// An element without data, like this one: no rows; zero where there is no dimension to empty.
template <class T>
T without_rows(const T& element) {
  T result = element;
  nest::visit(
      []<class Leaf>(Leaf& leaf) {
        if constexpr (std::is_same_v<Leaf, at::Tensor>) {
          leaf = leaf.dim() ? data::slice_rows(leaf, 0, 0) : leaf.new_zeros({});
        } else if constexpr (std::is_same_v<Leaf, data::Strings>) {
          leaf = leaf.dim() ? leaf.slice(0, 0) : data::Strings::scalar("");
        } else {
          leaf = Leaf{};
        }
      },
      result);
  return result;
}

/// What a leaf of an element looks like.
struct LeafLook {
  data::LeafSpec spec;
  std::int64_t sparse_dims = 0;  ///< Of a sparse tensor.
};

template <class T>
std::vector<LeafLook> look_of(const T& element) {
  std::vector<LeafLook> look;
  const data::ElementSpec spec = data::spec_of(element);
  for (const data::LeafSpec& leaf : spec.leaves()) look.push_back({leaf});
  std::size_t at = 0;
  nest::visit(
      [&]<class Leaf>(const Leaf& leaf) {
        if constexpr (std::is_same_v<Leaf, at::Tensor>) {
          if (leaf.defined() && leaf.is_sparse()) look[at].sparse_dims = leaf.sparse_dim();
        }
        ++at;
      },
      element);
  return look;
}

/// `without_rows` of an element that looks so, for a worker that never had one.
at::Tensor empty_tensor(const LeafLook& look);
data::Strings empty_strings(const LeafLook& look);

template <class T>
T empty_from(const std::vector<LeafLook>& look) {
  T result{};
  std::size_t at = 0;
  nest::visit(
      [&]<class Leaf>(Leaf& leaf) {
        if (at < look.size()) {
          if constexpr (std::is_same_v<Leaf, at::Tensor>) leaf = empty_tensor(look[at]);
          if constexpr (std::is_same_v<Leaf, data::Strings>) leaf = empty_strings(look[at]);
        }
        ++at;
      },
      result);
  return result;
}

}  // namespace cohort
