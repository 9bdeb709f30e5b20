#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cohort/io/buffered_source.h"
#include "cohort/io/byte_source.h"

namespace cohort::io {

/// What a file of records of one length looks like.
struct FixedLengthOptions {
  std::size_t record_bytes = 0;  ///< Must be set.
  std::size_t header_bytes = 0;  ///< Before the first record.
  std::size_t footer_bytes = 0;  ///< After the last record.
  Compression compression = Compression::AUTO;
};

/// Reads the records of a file that are all of one length, such as those of CIFAR-10.
///
///     FixedLengthReader reader("data_batch_1.bin", {.record_bytes = 3073});
///     for (std::string_view record; reader.next(record);) …
///
/// Belongs to one thread at a time.
class FixedLengthReader {
 public:
  /// Throws ValueError if record_bytes is 0, NotFound if the file can't be opened.
  FixedLengthReader(const std::string& path, const FixedLengthOptions& options);

  /// The next record, valid until the next call; false after the last one. Throws InvalidArgument,
  /// with file, byte and number of the record, if the file ends inside of a header, a record or
  /// a footer; and as ByteSource::read.
  bool next(std::string_view& record);

  /// The number of the next record, from 0, which `seek` takes up again, in another reader of the
  /// file too. It throws ValueError for a number that no file can have.
  std::int64_t record() const { return record_; }
  void seek(std::int64_t record);

 private:
  void skip_header();
  [[noreturn]] void fail(std::string_view part, std::size_t expected, std::size_t got) const;

  FixedLengthOptions options_;
  BufferedSource source_;
  std::int64_t record_ = 0;
};

}  // namespace cohort::io
