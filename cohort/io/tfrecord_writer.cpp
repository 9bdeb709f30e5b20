#include "cohort/io/crc32c.h"
#include "cohort/io/little_endian.h"
#include "cohort/io/tfrecord.h"

namespace cohort::io {
namespace {

void write_checksum(ByteSink& sink, std::string_view bytes) {
  char checksum[sizeof(std::uint32_t)];
  store(checksum, masked(crc32c(bytes)));
  sink.write({checksum, sizeof checksum});
}

}  // namespace

TFRecordWriter::TFRecordWriter(const std::string& path, Compression compression)
    : sink_(std::make_unique<ByteSink>(path, compression, "TFRecordWriter")) {}

void TFRecordWriter::write(std::string_view record) {
  char length[sizeof(std::uint64_t)];
  store(length, std::uint64_t{record.size()});
  sink_->write({length, sizeof length});
  write_checksum(*sink_, {length, sizeof length});
  sink_->write(record);
  write_checksum(*sink_, record);
}

}  // namespace cohort::io
