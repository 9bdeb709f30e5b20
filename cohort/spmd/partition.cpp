#include "cohort/spmd/partition.h"

#include <algorithm>
#include <numeric>

#include "cohort/base/error.h"

namespace cohort::spmd {

Partition& Partition::take(const Tensor& tensor, std::string_view letters) {
  arguments_.push_back({tensor, std::string(letters)});
  if (!tensor.defined()) return *this;
  if (static_cast<std::int64_t>(letters.size()) != tensor.dim()) {
    throw RuntimeError(
        op_, cat("the rule expects ", letters.size(), " dimensions, got ", describe({&tensor, 1})));
  }
  for (std::size_t d = 0; d < letters.size(); ++d) {
    if (letters[d] == '*') continue;
    const std::int64_t size = tensor.size(static_cast<std::int64_t>(d));
    Letter* known = find(letters[d]);
    if (!known) {
      letters_.push_back({letters[d], size, {0, size}});
    } else if (known->size == 1) {
      known->size = size;
      known->cuts = {0, size};
    } else if (size != 1 && size != known->size) {
      throw ValueError(op_, cat("sizes don't fit together: ", size, " and ", known->size));
    }
  }
  return *this;
}

Partition& Partition::keep_whole(char letter) {
  find(letter)->is_whole = true;
  return *this;
}

Partition::Letter* Partition::find(char name) {
  for (Letter& letter : letters_) {
    if (letter.name == name) return &letter;
  }
  return nullptr;
}
const Partition::Letter& Partition::letter(char name) const {
  return *const_cast<Partition*>(this)->find(name);
}

std::int64_t Partition::Task::begin(char name) const {
  const Letter& letter = partition_->letter(name);
  return letter.cuts[place_[&letter - partition_->letters_.data()]];
}
std::int64_t Partition::Task::end(char name) const {
  const Letter& letter = partition_->letter(name);
  return letter.cuts[place_[&letter - partition_->letters_.data()] + 1];
}

const Cuts& Partition::cuts(char name) {
  if (!is_solved_) solve({});
  return find(name)->cuts;
}

void Partition::solve(const std::vector<std::string>& results) {
  if (std::exchange(is_solved_, true)) return;
  std::vector<Tensor> tensors;
  std::vector<const Argument*> sharded;
  for (const Argument& argument : arguments_) {
    tensors.push_back(argument.tensor);
    if (is_sharded(argument.tensor)) sharded.push_back(&argument);
  }
  mesh_ = common_mesh(op_, tensors);
  if (!mesh_) return;
  std::stable_sort(sharded.begin(), sharded.end(), [](const Argument* a, const Argument* b) {
    return a->tensor.numel() > b->tensor.numel();
  });
  leader_ = sharded.front();
  bool is_any_cut = false;
  for (const Argument* argument : sharded) {
    is_any_cut |= layout_of(argument->tensor).tiles() > 1;
    take_cuts_of(*argument);
  }
  if (!is_any_cut || tasks_ > 1) return;
  move_the_cut(results);
  if (tasks_ == 1)
    operation_.gathers("no dimension that could be split is left", describe(tensors));
}

void Partition::take_cuts_of(const Argument& argument) {
  const Layout& layout = layout_of(argument.tensor);
  for (int d = 0; d < layout.dim(); ++d) {
    if (argument.letters[d] == '*' || layout.parts(d) == 1) continue;
    Letter& letter = *find(argument.letters[d]);
    if (letter.is_whole || letter.parts() > 1 || letter.size != layout.sizes()[d]) continue;
    if (tasks_ > 1 && tasks_ * layout.parts(d) > mesh_->size() && &argument != leader_) continue;
    letter.cuts = layout.cuts(d);
    tasks_ *= layout.parts(d);
  }
}

void Partition::move_the_cut(const std::vector<std::string>& results) {
  Letter* best = nullptr;
  const auto consider = [&](bool must_be_in_result) {
    for (Letter& letter : letters_) {
      if (letter.is_whole || letter.size <= 1) continue;
      const bool is_there = !results.empty() && results[0].find(letter.name) != std::string::npos;
      if (must_be_in_result && !is_there) continue;
      if (!best || letter.size > best->size) best = &letter;
    }
  };
  consider(true);
  if (!best) consider(false);
  if (!best) return;
  best->cuts = even_cuts(best->size, mesh_->size());
  tasks_ = best->parts();
}

Dims Partition::place_of_task(int task) const {
  Dims place(letters_.size(), 0);
  for (std::size_t i = letters_.size(); i-- > 0;) {
    place[i] = task % letters_[i].parts();
    task /= letters_[i].parts();
  }
  return place;
}

std::vector<int> Partition::devices_of_tasks() const {
  const Layout& layout = layout_of(leader_->tensor);
  bool follows_leader = true;
  for (const Letter& each : letters_) {
    if (each.parts() == 1) continue;
    const auto d = leader_->letters.find(each.name);
    follows_leader &= d != std::string::npos && layout.cuts(static_cast<int>(d)) == each.cuts;
  }
  std::vector<int> devices(tasks_);
  for (int task = 0; task < tasks_; ++task) {
    if (!follows_leader) {
      devices[task] = task % mesh_->size();
      continue;
    }
    const Dims place = place_of_task(task);
    Dims tile(layout.dim(), 0);
    for (std::size_t i = 0; i < letters_.size(); ++i) {
      const auto d = leader_->letters.find(letters_[i].name);
      if (d != std::string::npos && letters_[i].parts() > 1) tile[d] = place[i];
    }
    devices[task] = layout.device(layout.tile_at(tile));
  }
  return devices;
}

Partition::Task Partition::make_task(int number) const {
  Task task;
  task.partition_ = this;
  task.place_ = place_of_task(number);
  task.parts_.reserve(arguments_.size());
  for (const Argument& argument : arguments_) {
    if (!argument.tensor.defined()) {
      task.parts_.emplace_back();
      continue;
    }
    Region region = Region::all_of(argument.tensor.sizes());
    for (int d = 0; d < region.dim(); ++d) {
      const char name = argument.letters[d];
      if (name == '*' || region.end[d] != letter(name).size) continue;  // whole, or of size 1
      region.begin[d] = task.begin(name);
      region.end[d] = task.end(name);
    }
    task.parts_.push_back(fetch(argument.tensor, region));
  }
  return task;
}

Tensor Partition::give(std::string_view letters, FunctionRef<Tensor(const Task&)> task,
                       Combine combine) {
  return give_all(
      {std::string(letters)}, [&](const Task& each) { return std::vector<Tensor>{task(each)}; },
      combine)[0];
}

std::vector<Tensor> Partition::give_all(const std::vector<std::string>& letters,
                                        FunctionRef<std::vector<Tensor>(const Task&)> task,
                                        Combine combine) {
  solve(letters);
  const BelowAutograd below;
  if (!mesh_) return task(make_task(0));
  const std::vector<int> devices = devices_of_tasks();
  std::vector<std::vector<Tensor>> parts(letters.size(), std::vector<Tensor>(tasks_));
  mesh_->run(devices, [&](int i) {
    auto results = task(make_task(i));
    for (std::size_t r = 0; r < results.size(); ++r) parts[r][i] = std::move(results[r]);
  });
  std::vector<Tensor> results;
  for (std::size_t r = 0; r < letters.size(); ++r) {
    results.push_back(assemble(letters[r], std::move(parts[r]), devices, combine));
  }
  return results;
}

/// Whether it takes one device longer to add the parts than several, which have to be woken.
bool Partition::is_worth_sharing(const std::vector<Tensor>& parts) const {
  constexpr std::int64_t kFew = 16 << 10;
  return mesh_->size() > 1 && parts.size() > 1 && parts[0].numel() >= kFew &&
         std::all_of(parts.begin(), parts.end(),
                     [](const Tensor& part) { return part.is_contiguous(); });
}

/// The sum of the parts, in order: each device adds a range of their elements.
Tensor Partition::add_together(const std::vector<Tensor>& parts) const {
  const Cuts cuts = even_cuts(parts[0].numel(), mesh_->size());
  std::vector<int> devices(cuts.size() - 1);
  std::iota(devices.begin(), devices.end(), 0);
  mesh_->run(devices, [&](int i) {
    const auto range = [&](const Tensor& part) {
      return part.view(-1).narrow(0, cuts[i], cuts[i + 1] - cuts[i]);
    };
    Tensor sum = range(parts[0]);
    for (std::size_t p = 1; p < parts.size(); ++p) add(sum, range(parts[p]));
  });
  return parts[0];
}

Tensor Partition::assemble(const std::string& names, std::vector<Tensor> parts,
                           const std::vector<int>& devices, Combine combine) const {
  if (!parts[0].defined()) return {};
  Dims sizes;
  std::vector<Cuts> cuts;
  for (std::size_t d = 0; d < names.size(); ++d) {
    const std::int64_t own = parts[0].size(static_cast<std::int64_t>(d));
    sizes.push_back(names[d] == '*' ? own : letter(names[d]).size);
    cuts.push_back(names[d] == '*' ? Cuts{0, own} : letter(names[d]).cuts);
  }
  // The tasks of each tile of the result, in order.
  int tiles = 1;
  for (const Cuts& each : cuts) tiles *= static_cast<int>(each.size()) - 1;
  std::vector<std::vector<int>> tasks_of(tiles);
  for (int task = 0; task < tasks_; ++task) {
    const Dims place = place_of_task(task);
    int tile = 0;
    for (std::size_t d = 0; d < names.size(); ++d) {
      tile *= static_cast<int>(cuts[d].size()) - 1;
      if (names[d] != '*') tile += static_cast<int>(place[&letter(names[d]) - letters_.data()]);
    }
    tasks_of[tile].push_back(task);
  }
  std::vector<int> tile_devices;
  for (const auto& tasks : tasks_of) tile_devices.push_back(devices[tasks[0]]);
  const auto combined = [&](int tile) {
    const std::vector<int>& tasks = tasks_of[tile];
    for (std::size_t i = 1; i < tasks.size(); ++i) combine(parts[tasks[0]], parts[tasks[i]]);
    return parts[tasks[0]];
  };
  if (tiles == 1 && (tasks_ > 1 || layout_of(leader_->tensor).tiles() > 1)) {
    return combine == add && is_worth_sharing(parts) ? add_together(parts) : combined(0);
  }
  std::vector<Tensor> result(tiles);
  if (tiles == tasks_) {
    for (int tile = 0; tile < tiles; ++tile) result[tile] = combined(tile);
  } else {
    mesh_->run(tile_devices, [&](int tile) { result[tile] = combined(tile); });
  }
  auto layout = std::make_shared<Layout>(sizes, std::move(cuts), std::move(tile_devices));
  return wrap(mesh_, std::move(layout), std::move(result));
}

}  // namespace cohort::spmd
