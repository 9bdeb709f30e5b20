#include "cohort/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "cohort/base/error.h"
#include "cohort/io/nearest_name.h"

namespace cohort::io {
namespace {

std::string system_text(int error) { return std::generic_category().message(error); }

/// Calls a function of the system that moves some bytes until all are moved or it returns 0.
/// Returns how many were moved, or -1.
template <class Move>
ssize_t move_all(std::size_t bytes, Move move) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // Linux moves less than 2 GiB at once
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t moved = move(done, std::min(bytes - done, kMost));
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return -1;
    if (moved == 0) break;
    done += static_cast<std::size_t>(moved);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

File::File(const std::string& path, std::string_view where, int flags)
    : path_(path), where_(where), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (descriptor_ >= 0) return;
  const int error = errno;
  const bool is_missing = error == ENOENT || error == ENOTDIR;
  throw NotFound(where_, cat(path, ": can't be opened: ", system_text(error),
                             is_missing ? hint_for_missing(path) : ""));
}

File File::open(const std::string& path, std::string_view where) { return {path, where, O_RDONLY}; }

File File::create(const std::string& path, std::string_view where) {
  return {path, where, O_WRONLY | O_CREAT | O_TRUNC};
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      where_(std::move(other.where_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

std::int64_t File::size() const {
  struct stat status;
  if (::fstat(descriptor_, &status) != 0) fail_by_system("its size can't be read");
  return S_ISREG(status.st_mode) ? status.st_size : 0;
}

std::size_t File::read(void* target, std::size_t bytes) {
  const ssize_t got = move_all(bytes, [&](std::size_t done, std::size_t most) {
    return ::read(descriptor_, static_cast<char*>(target) + done, most);
  });
  if (got < 0) fail_by_system("can't be read");
  return static_cast<std::size_t>(got);
}

std::size_t File::read_at(void* target, std::size_t bytes, std::int64_t offset) const {
  const ssize_t got = move_all(bytes, [&](std::size_t done, std::size_t most) {
    return ::pread(descriptor_, static_cast<char*>(target) + done, most,
                   offset + static_cast<std::int64_t>(done));
  });
  if (got < 0) fail_by_system("can't be read");
  return static_cast<std::size_t>(got);
}

void File::seek(std::int64_t offset) {
  if (::lseek(descriptor_, offset, SEEK_SET) < 0) fail_by_system(cat("can't go to byte ", offset));
}

void File::write(std::string_view bytes) {
  const ssize_t written = move_all(bytes.size(), [&](std::size_t done, std::size_t most) {
    return ::write(descriptor_, bytes.data() + done, most);
  });
  if (written < 0) fail_by_system("can't be written");
}

void File::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_by_system("can't be written");
}

void File::fail(std::string_view what, std::int64_t offset) const {
  throw InvalidArgument(where_, cat(path_, ": ", what, " at byte ", offset));
}

void File::fail_by_system(std::string_view what) const {
  const int error = errno;
  const std::string text = cat(path_, ": ", what, ": ", system_text(error));
  if (error == EISDIR) throw InvalidArgument(where_, text);
  throw Unavailable(where_, text);
}

}  // namespace cohort::io
