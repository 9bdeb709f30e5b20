#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cohort/io/byte_source.h"

namespace cohort::io {

/// Compresses a stream of bytes piece by piece. Belongs to one thread at a time.
class Deflater {
 public:
  enum class End {
    NO,      ///< More will come; some of the output may be kept back.
    FLUSH,   ///< More will come; all that was given can be decompressed from the output.
    STREAM,  ///< Nothing more comes.
  };

  /// `compression` is GZIP or ZLIB.
  explicit Deflater(Compression compression);
  ~Deflater();

  /// Compresses the bytes and appends the output.
  void deflate(std::string_view bytes, End end, std::string& output);

 private:
  struct State;

  bool is_done(End end) const;

  std::unique_ptr<State> state_;
};

}  // namespace cohort::io
