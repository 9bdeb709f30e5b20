#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace cohort {

/// Tells what has changed in a module since it was last looked at, without comparing values: by
/// LibTorch's count of writes (`_version`) and by the memory of its tensors.
///
/// What is written through `.data()` is not counted. Asking allocates nothing. Not thread-safe.
class ModuleWatch {
 public:
  /// Begins to watch: all parameters, buffers and modules as they are now.
  void look_at(torch::nn::Module& module);

  /// Accepts what has changed since in the parameters; in the buffers; and in what modules and
  /// parameters are set to: whether they train.
  void note_parameters();
  void note_buffers();
  void note_settings();

  /// True if parameters are registered that were not, or modules are gone. A module that was added
  /// is seen by `has_other_modules` only, which looks at everything.
  bool has_other_parameters() const;
  bool has_other_modules(const torch::nn::Module& module) const;

  /// The first parameter, or buffer, that was written or has got other memory; -1 for none.
  int written_parameter() const;
  int written_buffer() const;
  bool is_written(int parameter) const { return parameters_[parameter].is_written(); }
  bool is_buffer_written(int buffer) const { return buffers_[buffer].is_written(); }

  /// The first parameter with other memory; -1 for none.
  int moved_parameter() const;

  /// True if modules were switched between training and evaluation, or parameters were frozen.
  bool has_other_settings() const;

  /// In the order of `named_parameters()`, with those that are undefined in between. A tensor that
  /// has come before under another name (tied weights) is repeated.
  int parameters() const { return static_cast<int>(parameters_.size()); }
  const at::Tensor& parameter(int i) const { return parameters_[i].tensor; }
  const std::string& name(int i) const { return names_[i]; }
  bool is_repeated(int i) const { return is_repeated_[i]; }

  /// In the order of `named_buffers()`.
  int buffers() const { return static_cast<int>(buffers_.size()); }
  const at::Tensor& buffer(int i) const { return buffers_[i].tensor; }

  const std::vector<std::shared_ptr<torch::nn::Module>>& modules() const { return modules_; }
  bool knows(const torch::nn::Module* module) const { return known_.contains(module); }
  bool knows(const at::Tensor& parameter) const {
    return known_.contains(parameter.unsafeGetTensorImpl());
  }

 private:
  struct Seen {
    explicit Seen(at::Tensor seen);
    void note();
    bool is_moved() const;
    bool is_written() const;

    at::Tensor tensor;
    c10::Storage storage;  // null for one in parts
    std::int64_t writes = 0;
    bool requires_grad = false;
  };

  void add_parameters(const std::string& prefix, torch::nn::Module& module);

  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<std::uint8_t> is_training_;       // of each module
  std::vector<std::size_t> parameters_before_;  // of each module: those of the modules before it
  std::vector<Seen> parameters_;
  std::vector<std::string> names_;
  std::vector<std::uint8_t> is_repeated_;
  std::vector<Seen> buffers_;
  std::unordered_set<const void*> known_;  // modules, and parameters
};

}  // namespace cohort
