#pragma once

#include <memory>

#include "cohort/io/byte_source.h"
#include "cohort/io/file.h"

namespace cohort::io {

/// A compressed file as the bytes that were compressed. Made by `open_source`.
class InflateSource : public ByteSource {
 public:
  /// `compression` is GZIP or ZLIB.
  InflateSource(File file, Compression compression, std::string_view where);
  ~InflateSource() override;

  std::size_t read(void* target, std::size_t bytes) override;
  void seek(std::int64_t offset) override;

 private:
  struct State;

  void start_stream();
  bool refill();
  bool start_next_stream();
  bool inflate_some();
  [[noreturn]] void fail_in_file(std::string_view what) const;

  File file_;
  Compression compression_;
  std::unique_ptr<State> state_;
};

}  // namespace cohort::io
