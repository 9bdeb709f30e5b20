#include "cohort/optim/module_watch.h"

#include <algorithm>

#include "cohort/optim/module_parameters.h"
#include "cohort/optim/write_count.h"

namespace cohort {
namespace {

template <class Seen, class Is>
int first_where(const std::vector<Seen>& all, Is is) {
  const auto found = std::find_if(all.begin(), all.end(), is);
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

}  // namespace

ModuleWatch::Seen::Seen(at::Tensor seen) : tensor(std::move(seen)) { note(); }

void ModuleWatch::Seen::note() {
  if (!tensor.defined()) return;
  writes = write_count(tensor);
  requires_grad = tensor.requires_grad();
  if (is_moved()) storage = tensor.storage();
}

bool ModuleWatch::Seen::is_moved() const {
  return tensor.defined() && tensor.has_storage() &&
         tensor.storage().unsafeGetStorageImpl() != storage.unsafeGetStorageImpl();
}

bool ModuleWatch::Seen::is_written() const {
  return tensor.defined() && (write_count(tensor) != writes || is_moved());
}

void ModuleWatch::look_at(torch::nn::Module& module) {
  *this = ModuleWatch();
  for (const auto& entry : module.named_modules()) {
    modules_.push_back(entry.value());
    known_.insert(entry.value().get());
    add_parameters(entry.key(), *entry.value());
  }
  for (const at::Tensor& buffer : module.buffers()) buffers_.emplace_back(buffer);
  note_settings();
}

void ModuleWatch::add_parameters(const std::string& prefix, torch::nn::Module& module) {
  parameters_before_.push_back(parameters_.size());
  for (const auto& entry : registered_parameters(module)) {
    parameters_.emplace_back(entry.value());
    names_.push_back(prefix.empty() ? entry.key() : prefix + "." + entry.key());
    const bool is_new = known_.insert(entry.value().unsafeGetTensorImpl()).second;
    is_repeated_.push_back(!is_new && entry.value().defined());
  }
}

void ModuleWatch::note_parameters() {
  for (Seen& seen : parameters_) seen.note();
}

void ModuleWatch::note_buffers() {
  for (Seen& seen : buffers_) seen.note();
}

void ModuleWatch::note_settings() {
  is_training_.resize(modules_.size());
  for (std::size_t m = 0; m < modules_.size(); ++m) is_training_[m] = modules_[m]->is_training();
  for (Seen& seen : parameters_) {
    if (seen.tensor.defined()) seen.requires_grad = seen.tensor.requires_grad();
  }
}

bool ModuleWatch::has_other_parameters() const {
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    const auto& now = registered_parameters(*modules_[m]);
    const std::size_t first = parameters_before_[m];
    const std::size_t end =
        m + 1 < modules_.size() ? parameters_before_[m + 1] : parameters_.size();
    if (now.size() != end - first || (m > 0 && modules_[m].use_count() == 1)) return true;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (!now[i].value().is_same(parameters_[first + i].tensor)) return true;
    }
  }
  return false;
}

bool ModuleWatch::has_other_modules(const torch::nn::Module& module) const {
  if (has_other_parameters()) return true;
  return module.modules() != modules_ || module.buffers().size() != buffers_.size();
}

int ModuleWatch::written_parameter() const {
  return first_where(parameters_, [](const Seen& seen) { return seen.is_written(); });
}

int ModuleWatch::written_buffer() const {
  return first_where(buffers_, [](const Seen& seen) { return seen.is_written(); });
}

int ModuleWatch::moved_parameter() const {
  return first_where(parameters_, [](const Seen& seen) { return seen.is_moved(); });
}

bool ModuleWatch::has_other_settings() const {
  for (std::size_t m = 0; m < modules_.size(); ++m) {
    if (modules_[m]->is_training() != static_cast<bool>(is_training_[m])) return true;
  }
  return std::any_of(parameters_.begin(), parameters_.end(), [](const Seen& seen) {
    return seen.tensor.defined() && seen.tensor.requires_grad() != seen.requires_grad;
  });
}

}  // namespace cohort
