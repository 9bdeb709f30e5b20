#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/io/buffered_source.h"
#include "cohort/io/byte_source.h"

namespace cohort::io {

/// Reads the lines of a file in order.
///
///     LineReader reader("words.txt");
///     for (std::string_view line; reader.next(line);) …
///
/// A line ends with LF or CRLF, the last one also with the file. The bytes of a line may be any.
/// Belongs to one thread at a time.
class LineReader {
 public:
  /// `where` is the call that the user made, for the text of errors. Throws NotFound if the file
  /// can't be opened.
  explicit LineReader(const std::string& path, Compression compression = Compression::AUTO,
                      std::string_view where = "LineReader");

  /// The next line without its end, valid until the next call; false at the end of the file. Throws
  /// as ByteSource::read.
  bool next(std::string_view& line);

  /// The same, with its end.
  bool next_with_end(std::string_view& line);

  /// Where the next line starts, in decompressed bytes, and its number, from 1: a position that
  /// `seek` takes up again, in another reader of the file too. `line` is believed.
  std::int64_t offset() const { return source_.offset(); }
  std::int64_t line() const { return line_; }
  void seek(std::int64_t offset, std::int64_t line);

  const std::string& path() const { return source_.path(); }

 private:
  BufferedSource source_;
  std::int64_t line_ = 1;
};

}  // namespace cohort::io
