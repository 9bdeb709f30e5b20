#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace cohort::io {

/// How the bytes of a file are stored.
enum class Compression {
  NONE,  ///< As they are.
  GZIP,  ///< RFC 1952; several members one after the other too, as `cat a.gz b.gz` gives.
  ZLIB,  ///< RFC 1950.
  AUTO,  ///< When reading, GZIP for a file that starts as gzip does, else NONE: a zlib stream can't
         ///< be told from other bytes. When writing, GZIP for a name that ends in `.gz`, else NONE.
};

/// The bytes of a file, from its start to its end, decompressed. Belongs to one thread at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// Reads up to `bytes`; fewer at the end, and where the next call will throw: 0 at the end alone.
  /// Throws InvalidArgument, with the path and the byte, if compressed data is damaged or ends
  /// early, or if the file became shorter since it was opened; Unavailable if the disk fails.
  virtual std::size_t read(void* target, std::size_t bytes) = 0;

  /// Goes on at this byte of the decompressed data; to the end, if there are fewer. Takes the time
  /// to decompress what lies before it.
  virtual void seek(std::int64_t offset) = 0;

  /// How many bytes lie before the next one to be read, decompressed.
  std::int64_t offset() const { return offset_; }

  const std::string& path() const { return path_; }

  /// Throws InvalidArgument: the path, what is wrong, and the byte that is read next.
  [[noreturn]] void fail(std::string_view what) const;

 protected:
  ByteSource(std::string path, std::string_view where);

  std::int64_t offset_ = 0;

 private:
  std::string path_;
  std::string where_;
};

/// Opens a file to read. `where` is the call that the user made, for the text of errors. Throws
/// NotFound, with the path and the most similar name in its folder, if the file can't be opened.
std::unique_ptr<ByteSource> open_source(const std::string& path, Compression compression,
                                        std::string_view where = "open_source");

}  // namespace cohort::io
