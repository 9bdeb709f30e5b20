#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/io/block_pool.h"
#include "cohort/io/byte_sink.h"
#include "cohort/io/byte_source.h"
#include "cohort/io/span.h"

/// TFRecord, TensorFlow's file format: records of any bytes, each with checksums.
///
///     offset  bytes
///     0       8      n, the length of the data, little-endian
///     8       4      masked CRC-32C of those 8 bytes, little-endian
///     12      n      data
///     12 + n  4      masked CRC-32C of the data, little-endian
namespace cohort::io {

/// Reads the records of a file in order.
///
///     TFRecordReader reader("train.tfrecord");
///     for (std::string_view record; reader.next(record);) …
///
/// Both checksums of every record are checked. A record that is damaged or ends early is an
/// InvalidArgument that names the file, the byte and the number of the record. Behind damaged data
/// the reader goes on: the next call gives the next record. Behind a damaged length nothing tells
/// where the next record begins: the reader stays where it was, and `can_go_on` is false. No length
/// in a file makes it allocate more than twice what the file holds.
/// Belongs to one thread at a time; the blocks it gives away may be dropped in any.
class TFRecordReader {
 public:
  /// AUTO finds out whether the file is plain, gzip or zlib; the checksum of the first length tells
  /// a plain one for sure. Throws NotFound if the file can't be opened.
  explicit TFRecordReader(const std::string& path, Compression compression = Compression::AUTO);

  /// The next record, valid until the next call; false at the end of the file.
  bool next(std::string_view& record);

  /// The next records, up to `max_records`, without a copy: sets `block` to the block that the file
  /// was read into, and appends to `spans` where in it the records lie. Returns how many there are:
  /// at least one, as many as the block holds whole, 0 at the end of the file. Nobody changes
  /// the block as long as somebody holds it; after that, its memory is used for another one.
  std::int64_t next_block(std::int64_t max_records, std::shared_ptr<const char[]>& block,
                          std::vector<Span>& spans);

  /// Where the next record starts, in decompressed bytes, and its number, from 0: a position that
  /// `seek` takes up again, in another reader of the file too. `record` is believed.
  std::int64_t offset() const { return offset_; }
  std::int64_t record() const { return record_; }
  void seek(std::int64_t offset, std::int64_t record);

  /// False after an error that leaves nothing to be read: every further call throws it again.
  bool can_go_on() const { return can_go_on_; }

  const std::string& path() const { return source_->path(); }

 private:
  bool find_record(Span& data);
  void pass_record();
  std::uint64_t checked_length(const char* header);
  std::size_t fill_to() const;
  bool read_more();
  void make_room();
  void check(std::string_view bytes, std::string_view name) const;
  void pass_damaged_record();
  [[noreturn]] void fail(std::string_view what) const;

  std::unique_ptr<ByteSource> source_;
  std::shared_ptr<char[]> block_;  // bytes [begin_, end_) are read and not yet given away
  std::size_t capacity_ = 0;       // of block_
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t needed_;           // from begin_, for the next record, as far as known
  std::int64_t asked_ = 0;       // records, by next_block
  std::int64_t most_asked_ = 0;  // the most of these
  bool is_shared_ = false;       // whether block_ was given away
  bool is_framed_ = false;       // whether all needed_ bytes are held, of a length that is right
  bool can_go_on_ = true;
  char known_header_[12] = {};  // length and checksum that were right the last time
  std::int64_t offset_ = 0;
  std::int64_t record_ = 0;
};

/// Writes records to a file, which it creates or empties.
///
///     TFRecordWriter writer("train.tfrecord");
///     writer.write(bytes);
///     writer.close();
///
/// Belongs to one thread at a time.
class TFRecordWriter {
 public:
  /// Throws NotFound if the file can't be created.
  explicit TFRecordWriter(const std::string& path, Compression compression = Compression::NONE);

  /// Adds a record. Throws Unavailable if the disk is full or fails.
  void write(std::string_view record);

  /// Gives the operating system all that was written. Throws as `write`.
  void flush() { sink_->flush(); }

  /// Ends the file; nothing may be written after it. Throws as `write`. The destructor closes too,
  /// but can only log an error.
  void close() { sink_->close(); }

 private:
  std::unique_ptr<ByteSink> sink_;
};

}  // namespace cohort::io
