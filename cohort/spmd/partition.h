#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/spmd/dispatch.h"

namespace cohort::spmd {

/// How one operation is cut into tasks; most rules are made of it.
///
/// Every dimension of an argument gets a letter. Dimensions with the same letter go together: they
/// are cut at the same places, and a task gets the same part of each. A dimension of size 1 goes
/// with any. `*` is a dimension that every task needs whole. The results get letters in the same
/// way; over a letter that a result lacks, the results of the tasks are added, in order.
///
///     Partition parts("aten::mm");
///     parts.take(a, "mk").take(b, "kn");
///     return parts.give("mn", [](const Partition::Task& t) { return at::mm(t[0], t[1]); });
///
/// Where to cut follows from how the arguments are cut, the largest one first. If all that is cut
/// is needed whole, another dimension is cut instead, the longest one of the first result; where
/// there is none, the operation counts as gathered. If no argument is sharded there is one task, in
/// this thread, and the results are ordinary tensors.
class Partition {
 public:
  explicit Partition(const char* op) : op_(op), operation_(op) {}

  /// An argument. An undefined one is given to the tasks as it is.
  Partition& take(const Tensor& tensor, std::string_view letters);

  /// Never cuts along a letter, though it is not whole for all arguments.
  Partition& keep_whole(char letter);

  /// One task's part of everything.
  class Task {
   public:
    /// The part of an argument.
    const Tensor& operator[](std::size_t argument) const { return parts_[argument]; }
    /// The part of a letter's dimensions: [begin, end).
    std::int64_t begin(char letter) const;
    std::int64_t end(char letter) const;
    std::int64_t size(char letter) const { return end(letter) - begin(letter); }

   private:
    friend class Partition;
    const Partition* partition_ = nullptr;
    Dims place_;  // the part of each letter
    std::vector<Tensor> parts_;
  };

  /// How results of tasks are combined.
  using Combine = void (*)(Tensor& all, const Tensor& more);
  static void add(Tensor& all, const Tensor& more) { all.add_(more); }

  /// Runs the tasks; the one result.
  Tensor give(std::string_view letters, FunctionRef<Tensor(const Task&)> task,
              Combine combine = add);

  /// The same for several results; a result whose parts are undefined is undefined.
  std::vector<Tensor> give_all(const std::vector<std::string>& letters,
                               FunctionRef<std::vector<Tensor>(const Task&)> task,
                               Combine combine = add);

  /// How a letter will be cut.
  const Cuts& cuts(char letter);

 private:
  struct Letter {
    char name;
    std::int64_t size;
    Cuts cuts;  // two for one part
    bool is_whole = false;
    int parts() const { return static_cast<int>(cuts.size()) - 1; }
  };
  struct Argument {
    Tensor tensor;
    std::string letters;
  };

  Letter* find(char name);
  const Letter& letter(char name) const;
  void solve(const std::vector<std::string>& results);
  void take_cuts_of(const Argument& argument);
  void move_the_cut(const std::vector<std::string>& results);
  std::vector<int> devices_of_tasks() const;
  Dims place_of_task(int task) const;
  Task make_task(int number) const;
  bool is_worth_sharing(const std::vector<Tensor>& parts) const;
  Tensor add_together(const std::vector<Tensor>& parts) const;
  Tensor assemble(const std::string& letters, std::vector<Tensor> parts,
                  const std::vector<int>& devices, Combine combine) const;

  const char* const op_;
  Operation operation_;
  std::vector<Argument> arguments_;
  std::vector<Letter> letters_;
  MeshPtr mesh_;
  int tasks_ = 1;
  const Argument* leader_ = nullptr;  // the sharded argument with most elements
  bool is_solved_ = false;
};

}  // namespace cohort::spmd
