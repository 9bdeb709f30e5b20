#include "cohort/data/file_cache.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>

#include "cohort/base/error.h"
#include "cohort/base/log.h"

namespace cohort::data::detail {
namespace {

std::string unfinished(const std::string& path) {
  static std::atomic<int> number{0};
  return cat(path, ".unfinished_", ::getpid(), '_', number++);
}

}  // namespace

std::string cache_header(const std::string& type, const Node& input) {
  const std::int64_t count = input.cardinality();
  const std::string stages = describe_stages(input, [](const Node& node) { return node.name(); });
  return cat("cohort cache 1\nelements: ", type, "\nof: ", stages, '\n',
             count < 0 ? "" : cat("in all: ", count, '\n'));
}

std::unique_ptr<io::TFRecordReader> open_cache(const std::string& path, const std::string& header) {
  if (!std::filesystem::exists(path)) return nullptr;
  auto reader = std::make_unique<io::TFRecordReader>(path, io::Compression::NONE);
  std::string_view found;
  if (!reader->next(found) || found != header) {
    throw InvalidArgument("dataset.cache",
                          cat(path, " was not made by this dataset: expected\n", header, "got\n",
                              found.substr(0, 1000), "Delete the file, or name another"));
  }
  return reader;
}

std::string cache_path_for(const std::string& path, const std::string& header) {
  char hash[20];
  std::snprintf(hash, sizeof(hash), "%016zx", std::hash<std::string>()(header));
  return cat(path, '.', hash);
}

void warn_of_cache_left(const std::string& path) {
  log::warning(
      "dataset.cache: the rest of ", path,
      " is left out: behind the damage nothing tells where the next element begins; delete "
      "the file, so that it is made again");
}

CacheWriter::CacheWriter(std::string path, const std::string& header)
    : path_(std::move(path)), unfinished_path_(unfinished(path_)), writer_(unfinished_path_) {
  writer_.write(header);
}

CacheWriter::~CacheWriter() {
  std::error_code is_gone;  // once it is finished
  std::filesystem::remove(unfinished_path_, is_gone);
}

void CacheWriter::finish() {
  writer_.close();
  std::filesystem::rename(unfinished_path_, path_);
}

}  // namespace cohort::data::detail
