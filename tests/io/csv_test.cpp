#include "cohort/io/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/failing.h"
#include "tests/io/scratch_folder.h"

namespace cohort::io {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Row = std::vector<std::string>;

std::vector<Row> rows_of(CsvReader& reader) {
  std::vector<Row> rows;
  for (Row row; reader.next(row);) rows.push_back(row);
  return rows;
}

class Csv : public testing::Test {
 protected:
  std::vector<Row> read(std::string_view bytes, const CsvOptions& options = {}) {
    CsvReader reader(files_.write("a.csv", bytes), options);
    return rows_of(reader);
  }

  ScratchFolder files_;
};

TEST_F(Csv, IsRowsOfFields) {
  EXPECT_THAT(read("a,b\n1,2\r\n3,4"), ElementsAre(Row{"a", "b"}, Row{"1", "2"}, Row{"3", "4"}));
  EXPECT_THAT(read(""), IsEmpty());
}

TEST_F(Csv, HasEmptyFieldsButNoEmptyRows) {
  EXPECT_THAT(read(",\n\n\r\n,b\na,\n"), ElementsAre(Row{"", ""}, Row{"", "b"}, Row{"a", ""}));
  EXPECT_THAT(read("\"\"\nx\n"), ElementsAre(Row{""}, Row{"x"}));
}

TEST_F(Csv, QuotesDelimitersAndQuotes) {
  EXPECT_THAT(read(R"("a,b","say ""hi""","")"), ElementsAre(Row{"a,b", "say \"hi\"", ""}));
}

TEST_F(Csv, QuotesEndsOfLines) {
  EXPECT_THAT(read("\"a\r\n\nb\",\"\n\"\r\nc,d\n"),
              ElementsAre(Row{"a\r\n\nb", "\n"}, Row{"c", "d"}));
}

TEST_F(Csv, TakesAnotherDelimiter) {
  EXPECT_THAT(read("a,b\tc\n", {.delimiter = '\t'}), ElementsAre(Row{"a,b", "c"}));
}

TEST_F(Csv, CanDoWithoutQuotes) {
  EXPECT_THAT(read("\"a,b\"\n", {.has_quotes = false}), ElementsAre(Row{"\"a", "b\""}));
}

TEST_F(Csv, SkipsAByteOrderMark) {
  EXPECT_THAT(read("\xef\xbb\xbf\"a\",b\n"), ElementsAre(Row{"a", "b"}));
}

TEST_F(Csv, UsesTheStorageOfARowAgain) {
  CsvReader reader(files_.write("a.csv", "a long field that is on the heap,b\nc,d\n"));
  Row row;
  reader.next(row);
  const char* storage = row[0].data();
  reader.next(row);
  EXPECT_EQ(row, (Row{"c", "d"}));
  EXPECT_EQ(row[0].data(), storage);
}

TEST_F(Csv, RefusesRowsOfAnotherLength) {
  EXPECT_FAILS(read("a,b\n\n1,2,3\n"), InvalidArgument,
               files_.path("a.csv") + ", line 3: expected 2 fields, got 3");
  EXPECT_FAILS(read("a,b\n", {.num_fields = 3}), InvalidArgument,
               "line 1: expected 3 fields, got 2");
}

TEST_F(Csv, RefusesAQuoteInTheWrongPlace) {
  EXPECT_FAILS(read("a,b\nc,d\"e\n"), InvalidArgument,
               "line 2: field 2 has a quote inside, but does not start with one");
  EXPECT_FAILS(read("\"a\n\"b,c\n"), InvalidArgument,
               "line 1: field 1 goes on after its closing quote");
}

TEST_F(Csv, RefusesAFileThatEndsInsideOfQuotes) {
  EXPECT_FAILS(read("a,b\nc,\"d\ne\n"), InvalidArgument,
               "line 2: the file ends inside of the quotes of field 2");
}

TEST_F(Csv, GoesOnAfterABadRow) {
  CsvReader reader(files_.write("a.csv", "a,b\nc\nd,e\n"));
  Row row;
  reader.next(row);
  EXPECT_FAILS(reader.next(row), InvalidArgument, "line 2");
  EXPECT_THAT(rows_of(reader), ElementsAre(Row{"d", "e"}));
}

TEST_F(Csv, DoesNotGoOnWhereTheFileCantBeRead) {
  const std::string path = files_.path("a.csv.gz");
  ByteSink sink(path, Compression::AUTO, "test");
  sink.write("a,b\nc\nd,\"e\nf");
  sink.close();
  files_.write("a.csv.gz", files_.read("a.csv.gz").substr(0, files_.read("a.csv.gz").size() - 8));
  CsvReader reader(path);
  Row row;
  EXPECT_TRUE(reader.next(row));
  EXPECT_FAILS(reader.next(row), InvalidArgument, "line 2");
  EXPECT_TRUE(reader.can_go_on());
  EXPECT_FAILS(reader.next(row), InvalidArgument, "the file ends inside of compressed data");
  EXPECT_FALSE(reader.can_go_on());
  reader.seek(0, 1);
  EXPECT_TRUE(reader.can_go_on());
  EXPECT_TRUE(reader.next(row));
}

TEST_F(Csv, OfAMissingFileIsNotFound) {
  EXPECT_FAILS(CsvReader(files_.path("missing")), NotFound,
               "[CsvReader] " + files_.path("missing"));
}

TEST_F(Csv, GoesOnAtAPosition) {
  CsvReader reader(files_.write("a.csv", "\"a\nb\",c\nd,e\nf,g\n"));
  Row row;
  reader.next(row);
  EXPECT_EQ(reader.offset(), 8);
  EXPECT_EQ(reader.line(), 3);
  rows_of(reader);
  reader.seek(8, 3);
  EXPECT_THAT(rows_of(reader), ElementsAre(Row{"d", "e"}, Row{"f", "g"}));
}

}  // namespace
}  // namespace cohort::io
