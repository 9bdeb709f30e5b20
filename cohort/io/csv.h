#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/io/byte_source.h"
#include "cohort/io/text.h"

namespace cohort::io {

/// How a CSV file is written.
struct CsvOptions {
  Compression compression = Compression::AUTO;
  char delimiter = ',';        ///< Between fields: '\t' for TSV.
  bool has_quotes = true;      ///< false: a quote is a character as any other.
  std::size_t num_fields = 0;  ///< Of every row; 0: as many as the first row has.
};

/// Reads the rows of a CSV file in order, as RFC 4180 has them.
///
///     CsvReader reader("iris.csv");
///     for (std::vector<std::string> row; reader.next(row);) …
///
/// A field that starts with a quote goes to the next lone quote, over delimiters and ends of lines;
/// two quotes in it mean one. Rows end with LF or CRLF, the last one also with the file. Empty
/// lines are no rows. A byte order mark at the start of the file is skipped. The first row may be
/// a header: it is a row as any other here.
///
/// A bad row is an InvalidArgument that names file, line and field, and the reader goes on after
/// it. Where the file itself can't be read on, it does not. Belongs to one thread at a time.
class CsvReader {
 public:
  /// Throws NotFound if the file can't be opened.
  explicit CsvReader(const std::string& path, const CsvOptions& options = {});

  /// Sets `row` to the next row's fields, using its storage again; false at the end of the file.
  /// Throws InvalidArgument for a quote in the wrong place, a file that ends inside of quotes, and
  /// a row with another number of fields than the rows before; and as ByteSource::read.
  bool next(std::vector<std::string>& row);

  /// Where the next row starts, in decompressed bytes, and its line, from 1: a position that `seek`
  /// takes up again, in another reader of the file too. `line` is believed, and without
  /// `num_fields` the first row after it says how many fields there are.
  std::int64_t offset() const { return lines_.offset(); }
  std::int64_t line() const { return lines_.line(); }
  void seek(std::int64_t offset, std::int64_t line);

  /// False after an error that leaves nothing to be read: every further call throws it again.
  bool can_go_on() const { return can_go_on_; }

 private:
  bool next_line();
  void parse_row(std::vector<std::string>& row);
  void parse_field(std::string& field);
  void parse_quoted_field(std::string& field);
  [[noreturn]] void fail(std::string_view what) const;

  LineReader lines_;
  CsvOptions options_;
  std::string_view rest_;        // of the line
  std::int64_t first_line_ = 0;  // of the row
  std::size_t num_fields_ = 0;   // of the row so far
  bool can_go_on_ = true;
};

}  // namespace cohort::io
