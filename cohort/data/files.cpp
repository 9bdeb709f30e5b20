#include "cohort/data/files.h"

#include <glob.h>

#include <algorithm>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/io/nearest_name.h"

namespace cohort::data {
namespace {

template <class Reader>
bool next_view(Reader& reader, std::string& element) {
  std::string_view view;
  if (!reader.next(view)) return false;
  element.assign(view);
  return true;
}

}  // namespace

bool TFRecordFormat::Reader::next(std::string& element) { return next_view(records, element); }
bool TextLineFormat::Reader::next(std::string& element) { return next_view(lines, element); }
bool FixedLengthFormat::Reader::next(std::string& element) { return next_view(records, element); }

std::int64_t TFRecordFormat::Reader::next_batch(std::int64_t count, Strings& batch) {
  std::shared_ptr<const char[]> block;
  std::vector<io::Span> spans;
  spans.reserve(static_cast<std::size_t>(std::min<std::int64_t>(count, 4096)));
  const std::int64_t got = records.next_block(count, block, spans);
  if (got > 0) batch = Strings(std::move(block), std::move(spans));
  return got;
}

bool CsvFormat::Reader::next(std::vector<std::string>& element) {
  if (std::exchange(is_at_header, false) && !rows.next(element)) return false;
  return rows.next(element);
}

/// The first good row of the file says how many fields there are.
void CsvFormat::Reader::seek(std::int64_t offset, std::int64_t line) {
  std::vector<std::string> first;
  while (rows.offset() < offset && rows.can_go_on() && first.empty()) {
    try {
      if (!rows.next(first)) break;
    } catch (const InvalidArgument&) {
      first.clear();
    }
  }
  rows.seek(offset, line);
  is_at_header = has_header && offset == 0;
}

void detail::warn_of_file_left(const char* format, const std::string& path) {
  log::warning(format, ": the rest of ", path,
               " is left out: behind the damage nothing tells where the next element begins");
}

std::vector<std::string> match_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    glob_t found{};
    const int status = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
    const std::size_t before = files.size();
    for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
      files.emplace_back(found.gl_pathv[i]);
    }
    globfree(&found);
    if (files.size() > before) continue;
    throw NotFound("data::list_files", cat("no file matches the pattern \"", pattern, '"',
                                           io::hint_for_missing(pattern)));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace cohort::data
