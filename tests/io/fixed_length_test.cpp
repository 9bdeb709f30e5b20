#include "cohort/io/fixed_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/io/byte_sink.h"
#include "tests/base/failing.h"
#include "tests/io/scratch_folder.h"

namespace cohort::io {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> records_of(FixedLengthReader& reader) {
  std::vector<std::string> records;
  for (std::string_view record; reader.next(record);) records.emplace_back(record);
  return records;
}

class FixedLength : public testing::Test {
 protected:
  std::vector<std::string> read(std::string_view bytes, const FixedLengthOptions& options) {
    FixedLengthReader reader(files_.write("file", bytes), options);
    return records_of(reader);
  }

  ScratchFolder files_;
};

TEST_F(FixedLength, RecordsFillTheFile) {
  EXPECT_THAT(read("aaabbbccc", {.record_bytes = 3}), ElementsAre("aaa", "bbb", "ccc"));
  EXPECT_THAT(read("", {.record_bytes = 3}), IsEmpty());
}

TEST_F(FixedLength, RecordsLieBetweenHeaderAndFooter) {
  EXPECT_THAT(read("headaabbfoo", {.record_bytes = 2, .header_bytes = 4, .footer_bytes = 3}),
              ElementsAre("aa", "bb"));
  EXPECT_THAT(read("headfoo", {.record_bytes = 2, .header_bytes = 4, .footer_bytes = 3}),
              IsEmpty());
}

TEST_F(FixedLength, RecordsMayBeLongerThanABuffer) {
  const std::string a(100'000, 'a');
  const std::string b(100'000, 'b');
  EXPECT_THAT(read(a + b, {.record_bytes = 100'000}), ElementsAre(a, b));
}

TEST_F(FixedLength, RecordsAreReadFromGzipAsWell) {
  ByteSink(files_.path("file.gz"), Compression::GZIP, "test").write("haabbf");
  FixedLengthReader reader(files_.path("file.gz"),
                           {.record_bytes = 2, .header_bytes = 1, .footer_bytes = 1});
  EXPECT_THAT(records_of(reader), ElementsAre("aa", "bb"));
}

TEST_F(FixedLength, ReaderGoesOnAtARecord) {
  FixedLengthReader reader(files_.write("file", "haabbccf"),
                           {.record_bytes = 2, .header_bytes = 1, .footer_bytes = 1});
  EXPECT_THAT(records_of(reader), ElementsAre("aa", "bb", "cc"));
  EXPECT_EQ(reader.record(), 3);
  reader.seek(2);
  EXPECT_THAT(records_of(reader), ElementsAre("cc"));
  reader.seek(0);
  EXPECT_THAT(records_of(reader), ElementsAre("aa", "bb", "cc"));
  EXPECT_FAILS(reader.seek(-1), ValueError, "there is no record -1");
}

TEST_F(FixedLength, SaysWhereAFileEndsInsideOfARecord) {
  EXPECT_FAILS(read("aaabb", {.record_bytes = 3}), InvalidArgument,
               files_.path("file") +
                   ": record 1 at byte 3: expected a record of 3 bytes, and the file ends after 2");
  EXPECT_FAILS(read("haab", {.record_bytes = 2, .header_bytes = 1, .footer_bytes = 2}),
               InvalidArgument, "record 0 at byte 1: expected a record and footer of 4 bytes");
  EXPECT_FAILS(read("he", {.record_bytes = 2, .header_bytes = 3}), InvalidArgument,
               "record 0 at byte 0: expected a header of 3 bytes, and the file ends after 2");
}

TEST_F(FixedLength, NeedsALength) {
  EXPECT_FAILS(read("", {}), ValueError, "expected record_bytes from 1");
  EXPECT_FAILS(read("", {.record_bytes = ~std::size_t{0}}), ValueError, "expected record_bytes");
}

TEST_F(FixedLength, DoesNotAllocateWhatOptionsOnlyClaim) {
  EXPECT_FAILS(read("a", {.record_bytes = std::size_t{1} << 40}), InvalidArgument, "ends after 1");
}

}  // namespace
}  // namespace cohort::io
