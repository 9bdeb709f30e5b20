#include "cohort/io/deflater.h"

#include <isa-l/igzip_lib.h>

#include <array>

namespace cohort::io {

struct Deflater::State {
  isal_zstream stream;
  std::array<unsigned char, ISAL_DEF_LVL1_DEFAULT> level;
  std::array<unsigned char, 1 << 16> output;
};

Deflater::Deflater(Compression compression) : state_(std::make_unique<State>()) {
  isal_zstream& stream = state_->stream;
  isal_deflate_init(&stream);
  stream.level = 1;
  stream.level_buf = state_->level.data();
  stream.level_buf_size = static_cast<std::uint32_t>(state_->level.size());
  stream.gzip_flag = compression == Compression::GZIP ? IGZIP_GZIP : IGZIP_ZLIB;
}

Deflater::~Deflater() = default;

void Deflater::deflate(std::string_view bytes, End end, std::string& output) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // ISA-L counts in 32 bits
  for (; bytes.size() > kMost; bytes.remove_prefix(kMost)) {
    deflate(bytes.substr(0, kMost), End::NO, output);
  }
  isal_zstream& stream = state_->stream;
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<std::uint32_t>(bytes.size());
  stream.end_of_stream = end == End::STREAM;
  stream.flush = end == End::FLUSH ? SYNC_FLUSH : NO_FLUSH;
  do {
    stream.next_out = state_->output.data();
    stream.avail_out = static_cast<std::uint32_t>(state_->output.size());
    isal_deflate(&stream);
    output.append(reinterpret_cast<char*>(state_->output.data()),
                  state_->output.size() - stream.avail_out);
  } while (!is_done(end));
}

bool Deflater::is_done(End end) const {
  const isal_zstream& stream = state_->stream;
  if (end == End::STREAM) return stream.internal_state.state == ZSTATE_END;
  return stream.avail_in == 0 && stream.avail_out > 0;
}

}  // namespace cohort::io
