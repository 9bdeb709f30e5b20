#include "cohort/io/fixed_length.h"

#include <limits>

#include "cohort/base/error.h"

namespace cohort::io {
namespace {

const FixedLengthOptions& checked(const FixedLengthOptions& options) {
  constexpr std::size_t kMost = std::size_t{1} << 40;  // so that sums can't overflow
  if (options.record_bytes == 0 || options.record_bytes > kMost || options.header_bytes > kMost ||
      options.footer_bytes > kMost) {
    throw ValueError(
        "FixedLengthReader",
        cat("expected record_bytes from 1 to ", kMost, ", got ", options.record_bytes,
            " (header_bytes ", options.header_bytes, ", footer_bytes ", options.footer_bytes, ")"));
  }
  return options;
}

}  // namespace

FixedLengthReader::FixedLengthReader(const std::string& path, const FixedLengthOptions& options)
    : options_(checked(options)),
      source_(open_source(path, options.compression, "FixedLengthReader")) {}

bool FixedLengthReader::next(std::string_view& record) {
  if (source_.offset() == 0) skip_header();
  const std::size_t wanted = options_.record_bytes + options_.footer_bytes;
  const std::string_view held = source_.peek(wanted);
  if (held.size() == options_.footer_bytes) return false;
  if (held.size() < wanted) {
    fail(options_.footer_bytes > 0 ? "record and footer" : "record", wanted, held.size());
  }
  record = held.substr(0, options_.record_bytes);
  source_.take(options_.record_bytes);
  ++record_;
  return true;
}

void FixedLengthReader::skip_header() {
  const std::size_t held = source_.peek(options_.header_bytes).size();
  if (held < options_.header_bytes) fail("header", options_.header_bytes, held);
  source_.take(options_.header_bytes);
}

void FixedLengthReader::seek(std::int64_t record) {
  const auto bytes = static_cast<std::int64_t>(options_.record_bytes);
  const auto header = static_cast<std::int64_t>(options_.header_bytes);
  if (record < 0 || record > (std::numeric_limits<std::int64_t>::max() - header) / bytes) {
    throw ValueError("FixedLengthReader::seek", cat("there is no record ", record));
  }
  source_.seek(record == 0 ? 0 : header + record * bytes);
  record_ = record;
}

void FixedLengthReader::fail(std::string_view part, std::size_t expected, std::size_t got) const {
  throw InvalidArgument(
      "FixedLengthReader",
      cat(source_.path(), ": record ", record_, " at byte ", source_.offset(), ": expected a ",
          part, " of ", expected, " bytes, and the file ends after ", got, " of them"));
}

}  // namespace cohort::io
