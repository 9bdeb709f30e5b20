#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cohort/optim/leaf_gradient.h"

namespace cohort {

/// The gradients of one replica's parameters: what each `.grad` holds, and what becomes of it when
/// backward makes more.
///
/// A backward pass that is summed over replicas must leave in `.grad` what was there before plus
/// the sum of what the pass made. So before autograd adds to `.grad`, what is there is put aside
/// (the `base`), and afterwards the gradient of the pass is taken out. It comes back through
/// `set_sum`, summed, with the base added.
///
/// In a pass inside `no_sync`, gradients gather in `.grad`. The next pass that is summed adds its
/// own to them, and takes both out. Where `.grad` was not empty before, what gathers is kept apart
/// from it too, and `.grad` shows the sum of both.
///
/// One thread at a time: that of the replica, or any while the replica waits.
class ReplicaGradients {
 public:
  /// `names`, for errors, must outlive this.
  ReplicaGradients(const std::vector<at::Tensor>& parameters,
                   const std::vector<std::string>& names);

  /// Before and after autograd adds a gradient, `incoming`, to a parameter's `.grad`. In a pass
  /// that is summed, the second returns the gradient to sum, in memory that no other tensor sees.
  /// Throws RuntimeError if the program has changed a `.grad` by hand in which gathered gradients
  /// can't be told apart any more.
  void before_accumulation(int parameter, bool is_summed);
  at::Tensor after_accumulation(int parameter, bool is_summed, const at::Tensor& incoming);

  /// The pass has made no gradient of the parameter after all: `.grad` is what it was before.
  void put_back(int parameter);

  /// Takes out what has gathered inside `no_sync`, for a sum, as if a pass that is summed had added
  /// nothing to it. Undefined if nothing has.
  at::Tensor take_gathered(int parameter);

  /// What a sum over replicas is added to; undefined for nothing.
  const at::Tensor& base(int parameter) const { return entries_[parameter].base; }

  /// Takes out a gradient that no pass has summed: one that the program has put there since the
  /// last step or zero_grad (the optimizer's, or the module's: LeafGradient::is_cleared says how
  /// that is told), or that has gathered inside `no_sync`. Undefined if there is none.
  at::Tensor take_unsummed(int parameter);

  /// `.grad` is a sum over replicas from now on, with the base added to it.
  void set_sum(int parameter, const at::Tensor& sum, LeafGradient::Sharing sharing);

  /// Puts the base back, without what the pass made or had gathered: the pass has failed.
  void forget_pass();

  /// Lets go of all sums over replicas, before a step that another replica's are applied in.
  void drop_sums();

  /// A step has applied the gradients.
  void note_step();

  /// Forgets all gradients; each is undefined then, or zeros.
  void zero(bool set_to_none);

  /// The program may have cleared a gradient without telling us, as `model->zero_grad()` does. What
  /// is there then it has put there since: it is the replica's own, whatever was there before (see
  /// LeafGradient::is_cleared). Returns true if so.
  bool forget_if_cleared(int parameter);

  /// Forgets a gradient that was summed or has gathered; one that the program has put there stays.
  void clear(int parameter, bool set_to_none);

  LeafGradient& leaf(int parameter) { return *entries_[parameter].leaf; }
  int size() const { return static_cast<int>(entries_.size()); }

 private:
  enum class Content : std::uint8_t {
    PUT,       ///< Nothing, or what the program has put there since it was cleared.
    GATHERED,  ///< The replica's own gradients, from passes inside `no_sync`.
    MIXED,     ///< The same on top of something else: see Mixed.
    SUM,       ///< A sum over replicas; the program may have changed it since, alike on all.
    APPLIED,   ///< The same, after a step.
  };
  struct Entry {
    LeafGradient* leaf;
    Content content = Content::PUT;
    bool is_in_pass = false;  // `base` is put aside
    at::Tensor base;
  };
  /// `.grad` shows base + gathered, as a tensor with so many writes.
  struct Mixed {
    at::Tensor base, gathered, shown;
    std::int64_t writes = 0;
  };

  void begin_gathering(Entry& entry, int parameter);
  void show_mixed(Entry& entry, int parameter);
  at::Tensor take_from_mixed(Entry& entry, int parameter);
  bool is_mixed_cleared(int parameter);
  const std::string& name(int parameter) const { return names_[parameter]; }

  const std::vector<std::string>& names_;
  std::vector<Entry> entries_;
  std::unordered_map<int, Mixed> mixed_;  // by parameter; seldom any
};

}  // namespace cohort
