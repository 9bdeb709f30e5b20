#include "cohort/io/text.h"

namespace cohort::io {

LineReader::LineReader(const std::string& path, Compression compression, std::string_view where)
    : source_(open_source(path, compression, where)) {}

bool LineReader::next(std::string_view& line) {
  if (!next_with_end(line)) return false;
  if (!line.ends_with('\n')) return true;
  line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

bool LineReader::next_with_end(std::string_view& line) {
  std::size_t searched = 0;
  while (true) {
    const std::string_view held = source_.peek(searched + 1);
    const auto end = held.find('\n', searched);
    if (end == std::string_view::npos && held.size() > searched) {
      searched = held.size();
      continue;
    }
    line = held.substr(0, end == std::string_view::npos ? end : end + 1);
    source_.take(line.size());
    line_ += line.empty() ? 0 : 1;
    return !line.empty();
  }
}

void LineReader::seek(std::int64_t offset, std::int64_t line) {
  source_.seek(offset);
  line_ = line;
}

}  // namespace cohort::io
