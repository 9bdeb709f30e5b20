#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/io/byte_source.h"
#include "cohort/io/deflater.h"
#include "cohort/io/file.h"

namespace cohort::io {

/// A file that is written from its start to its end, compressed or not. Belongs to one thread at a
/// time.
class ByteSink {
 public:
  /// Creates or empties the file. `where` is the call that the user made, for the text of errors.
  /// Throws NotFound if the file can't be created.
  ByteSink(const std::string& path, Compression compression, std::string_view where);

  /// Closes the file if `close` was not called, and logs if that fails.
  ~ByteSink();
  ByteSink(const ByteSink&) = delete;
  ByteSink& operator=(const ByteSink&) = delete;

  /// Adds bytes, some of which wait in a buffer. Throws Unavailable if the disk is full or fails,
  /// RuntimeError after `close`.
  void write(std::string_view bytes);

  /// Gives the operating system all that was written, so that a reader sees it. Throws as `write`.
  void flush();

  /// Ends the file; again, it does nothing. Throws as `write`.
  void close();

 private:
  void check_open() const;
  void drain(Deflater::End end);

  File file_;
  std::string where_;
  std::unique_ptr<Deflater> deflater_;  // null for a plain file
  std::string buffer_;
  bool is_open_ = true;
};

}  // namespace cohort::io
