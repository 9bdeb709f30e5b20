#include "cohort/optim/module_file.h"

#include <torch/csrc/jit/frontend/lexer.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/collectives/world_lane.h"
#include "cohort/optim/model_copies.h"

namespace cohort {
namespace {

/// LibTorch writes names into a text of TorchScript, which it parses when it loads: its keywords,
/// and characters that end a string there, can be written but not read.
bool can_be_loaded(std::string_view name) {
  constexpr std::string_view kKeywords[] = {
#define COHORT_KEYWORD(kind, name, keyword) keyword,
      TC_FORALL_TOKEN_KINDS(COHORT_KEYWORD)
#undef COHORT_KEYWORD
  };
  if (name == "__parameters__" || name == "__buffers__") return false;
  if (name.find_first_of("\"\\\n\r") != std::string_view::npos) return false;
  return std::find(std::begin(kKeywords), std::end(kKeywords), name) == std::end(kKeywords);
}

void check_name(const std::string& name, const std::string& path, const char* kind) {
  if (can_be_loaded(name)) return;
  throw ValueError("Model.save",
                   cat("the ", kind, " \"", name, "\"", path.empty() ? "" : " of \"" + path + "\"",
                       " could be saved, but never loaded again: LibTorch writes names as "
                       "TorchScript, where this is no name; register it by another one, such as \"",
                       name == "in" ? "input" : name + "_", "\""));
}

void check_names(const torch::nn::Module& module) {
  for (const auto& entry : module.named_modules()) {
    const torch::nn::Module& each = *entry.value();
    for (const auto& child : each.named_children()) check_name(child.key(), entry.key(), "module");
    for (const auto& parameter : each.named_parameters(/*recurse=*/false)) {
      check_name(parameter.key(), entry.key(), "parameter");
    }
    for (const auto& buffer : each.named_buffers(/*recurse=*/false)) {
      check_name(buffer.key(), entry.key(), "buffer");
    }
  }
}

[[noreturn]] void throw_not_written(const std::string& path) {
  throw NotFound("Model.save", cat(path, ": can't be written: ", std::strerror(errno)));
}

/// An archive holds tensors, and archives of the modules inside.
void read_archive(torch::serialize::InputArchive& archive, const std::string& prefix,
                  StateDict& state) {
  for (const std::string& key : archive.keys()) {
    at::Tensor tensor;
    torch::serialize::InputArchive inside;
    if (archive.try_read(key, tensor) || archive.try_read(key, tensor, /*is_buffer=*/true)) {
      state[prefix + key] = tensor;
    } else if (archive.try_read(key, inside)) {
      read_archive(inside, cat(prefix, key, '.'), state);
    }
  }
}

void write_module(torch::nn::Module& module, const std::string& path) {
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  if (!file) throw_not_written(path);
  torch::serialize::OutputArchive archive;
  module.save(archive);
  archive.save_to(file);
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) throw_not_written(path);
}

StateDict read_module_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw NotFound("Model.load", cat(path, ": can't be opened: ", std::strerror(errno)));
  StateDict state;
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(file);
    read_archive(archive, "", state);
  } catch (const c10::Error& error) {
    throw InvalidArgument(
        "Model.load",
        cat(path, ": is not a module that LibTorch has saved: ", error.what_without_backtrace()));
  }
  return state;
}

}  // namespace

void save_module(const ReplicatedModule& model, const std::string& path) {
  constexpr const char* kWhere = "model.save";
  model.require_outside_of_replicas("Model.save");
  StrategyExtended& strategy = model.strategy();
  const World::Turn turn = strategy.take_turn();
  WorldLane& lane = strategy.world().replicas_lane();
  lane.take_part(kWhere, [&] {
    check_names(*model.replica(0));
    model.model_copies().follow_chief(kWhere);
    const ReplicatedModule::AggregatedBuffers aggregated(model, kWhere);
    if (strategy.world().is_chief()) write_module(*model.replica(0), path);
    lane.all_gather(kWhere, {});
  });
}

void load_module(ReplicatedModule& model, const std::string& path) {
  try {
    model.load("model.load", [&] { return read_module_file(path); });
  } catch (ValueError& error) {
    error.add_note(cat("in ", path));
    throw;
  }
}

}  // namespace cohort
