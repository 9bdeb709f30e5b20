#include "cohort/io/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/io/byte_sink.h"
#include "tests/base/failing.h"
#include "tests/io/scratch_folder.h"

namespace cohort::io {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> lines_of(LineReader& reader) {
  std::vector<std::string> lines;
  for (std::string_view line; reader.next(line);) lines.emplace_back(line);
  return lines;
}

class Lines : public testing::Test {
 protected:
  std::vector<std::string> read(std::string_view bytes) {
    LineReader reader(files_.write("text", bytes));
    return lines_of(reader);
  }

  ScratchFolder files_;
};

TEST_F(Lines, EndWithLfOrCrlf) {
  EXPECT_THAT(read("one\ntwo\r\nthree\n"), ElementsAre("one", "two", "three"));
}

TEST_F(Lines, EndWithTheFileToo) {
  EXPECT_THAT(read("one\ntwo"), ElementsAre("one", "two"));
  EXPECT_THAT(read("one\ntwo\r"), ElementsAre("one", "two\r"));
}

TEST_F(Lines, MayBeEmpty) {
  EXPECT_THAT(read(""), IsEmpty());
  EXPECT_THAT(read("\n"), ElementsAre(""));
  EXPECT_THAT(read("\n\r\n\nx"), ElementsAre("", "", "", "x"));
}

TEST_F(Lines, HoldAnyOtherBytes) {
  const std::string bytes("a\0b\rc\xff", 6);
  EXPECT_THAT(read(bytes + "\n"), ElementsAre(bytes));
}

TEST_F(Lines, MayBeLongerThanABuffer) {
  const std::string a(300'000, 'a');
  const std::string b(70'000, 'b');
  EXPECT_THAT(read(a + "\r\n" + b + "\n" + a), ElementsAre(a, b, a));
}

TEST_F(Lines, AreReadFromGzipAsWell) {
  ByteSink(files_.path("text.gz"), Compression::GZIP, "test").write("one\ntwo\n");
  LineReader reader(files_.path("text.gz"));
  EXPECT_THAT(lines_of(reader), ElementsAre("one", "two"));
}

TEST_F(Lines, GoOnAtAPosition) {
  LineReader reader(files_.write("text", "one\r\ntwo\nthree\n"));
  std::string_view line;
  reader.next(line);
  EXPECT_EQ(reader.offset(), 5);
  EXPECT_EQ(reader.line(), 2);
  lines_of(reader);
  EXPECT_EQ(reader.line(), 4);
  reader.seek(5, 2);
  EXPECT_THAT(lines_of(reader), ElementsAre("two", "three"));
  EXPECT_EQ(reader.line(), 4);
}

TEST_F(Lines, OfAMissingFileAreNotFound) {
  EXPECT_FAILS(LineReader(files_.path("missing")), NotFound, files_.path("missing"));
}

}  // namespace
}  // namespace cohort::io
