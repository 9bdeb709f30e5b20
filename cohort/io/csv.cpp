#include "cohort/io/csv.h"

#include "cohort/base/error.h"

namespace cohort::io {
namespace {

bool is_end_of_line(std::string_view text) {
  return text.empty() || text == "\n" || text == "\r\n";
}

}  // namespace

CsvReader::CsvReader(const std::string& path, const CsvOptions& options)
    : lines_(path, options.compression, "CsvReader"), options_(options) {}

bool CsvReader::next(std::vector<std::string>& row) {
  do {
    if (!next_line()) return false;
  } while (is_end_of_line(rest_));
  first_line_ = lines_.line() - 1;
  parse_row(row);
  return true;
}

void CsvReader::seek(std::int64_t offset, std::int64_t line) {
  lines_.seek(offset, line);
  can_go_on_ = true;
}

bool CsvReader::next_line() {
  const bool is_start = lines_.offset() == 0;
  can_go_on_ = false;  // unless there is a line, or the end
  const bool more = lines_.next_with_end(rest_);
  can_go_on_ = true;
  if (!more) return false;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (is_start && rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  return true;
}

void CsvReader::parse_row(std::vector<std::string>& row) {
  for (num_fields_ = 1;; ++num_fields_) {
    if (row.size() < num_fields_) row.emplace_back();
    std::string& field = row[num_fields_ - 1];
    field.clear();
    if (options_.has_quotes && rest_.starts_with('"')) {
      parse_quoted_field(field);
    } else {
      parse_field(field);
    }
    if (is_end_of_line(rest_)) break;
    rest_.remove_prefix(1);  // the delimiter
  }
  row.resize(num_fields_);
  if (options_.num_fields == 0) options_.num_fields = num_fields_;
  if (num_fields_ != options_.num_fields) {
    fail(cat("expected ", options_.num_fields, " fields, got ", num_fields_));
  }
}

/// Up to the delimiter or the end of the line.
void CsvReader::parse_field(std::string& field) {
  std::size_t length = rest_.find(options_.delimiter);
  if (length == std::string_view::npos) {
    length = rest_.size();
    if (rest_.ends_with('\n')) length -= rest_.ends_with("\r\n") ? 2 : 1;
  }
  field = rest_.substr(0, length);
  if (options_.has_quotes && field.find('"') != std::string::npos) {
    fail(cat("field ", num_fields_, " has a quote inside, but does not start with one"));
  }
  rest_.remove_prefix(length);
}

/// Up to behind the closing quote, which may be on a later line.
void CsvReader::parse_quoted_field(std::string& field) {
  rest_.remove_prefix(1);
  while (true) {
    const std::size_t quote = rest_.find('"');
    field += rest_.substr(0, quote);
    if (quote == std::string_view::npos) {
      if (!next_line()) fail(cat("the file ends inside of the quotes of field ", num_fields_));
      continue;
    }
    rest_.remove_prefix(quote + 1);
    if (!rest_.starts_with('"')) break;
    field += '"';
    rest_.remove_prefix(1);
  }
  if (!is_end_of_line(rest_) && rest_.front() != options_.delimiter) {
    fail(cat("field ", num_fields_, " goes on after its closing quote"));
  }
}

void CsvReader::fail(std::string_view what) const {
  throw InvalidArgument("CsvReader", cat(lines_.path(), ", line ", first_line_, ": ", what));
}

}  // namespace cohort::io
