#include "cohort/optim/module_file.h"

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "cohort/base/error.h"

namespace cohort {
namespace {

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

}  // namespace

void save_module(const ReplicatedModule& model, const std::string& path) {
  model.require_outside_of_replicas("Model.save");
  torch::serialize::OutputArchive archive;
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  if (!file) throw_not_written(path);
  {
    const ReplicatedModule::AggregatedBuffers aggregated(model);
    model.replica(0)->save(archive);
    archive.save_to(file);
  }
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

}  // namespace cohort
