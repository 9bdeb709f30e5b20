#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::io {

/// A file of the operating system, whose errors are exceptions that name the path.
///
/// `where` in the constructors is the call that the user made, for the text of errors. An object
/// belongs to one thread at a time, except that any number of them may call `read_at`.
class File {
 public:
  /// Opens a file to read. Throws NotFound, with the most similar name in the folder, if that is
  /// not possible.
  static File open(const std::string& path, std::string_view where);

  /// Creates or empties a file to write. Throws NotFound if that is not possible.
  static File create(const std::string& path, std::string_view where);

  ~File();
  File(File&& other) noexcept;
  File& operator=(File&&) = delete;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }

  /// The size as it is now; 0 for what is not a file of fixed size, such as a pipe.
  std::int64_t size() const;

  /// Reads up to `bytes`, and fewer only at the end of the file: 0 there. Throws InvalidArgument
  /// for a folder, Unavailable if the disk fails.
  std::size_t read(void* target, std::size_t bytes);

  /// The same from any place in the file, without moving the place where `read` goes on.
  std::size_t read_at(void* target, std::size_t bytes, std::int64_t offset) const;

  /// Moves the place where `read` goes on. Throws Unavailable for what can't, such as a pipe.
  void seek(std::int64_t offset);

  /// Writes all of it. Throws Unavailable if the disk is full or fails.
  void write(std::string_view bytes);

  /// Closes the file, which can't be used any more. Throws Unavailable if the operating system
  /// reports only now that what was written is lost.
  void close();

  /// Throws InvalidArgument: the path, what is wrong, and the byte.
  [[noreturn]] void fail(std::string_view what, std::int64_t offset) const;

 private:
  File(const std::string& path, std::string_view where, int flags);
  [[noreturn]] void fail_by_system(std::string_view what) const;

  std::string path_;
  std::string where_;
  int descriptor_;
};

}  // namespace cohort::io
