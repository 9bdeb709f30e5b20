#include "cohort/io/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "cohort/io/crc32c.h"
#include "cohort/io/little_endian.h"
#include "tests/base/failing.h"
#include "tests/io/scratch_folder.h"

namespace cohort::io {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Records = std::vector<std::string>;

constexpr std::size_t kBlock = BlockPool::kBlockBytes;

Records with_next(TFRecordReader& reader) {
  Records records;
  for (std::string_view record; reader.next(record);) records.emplace_back(record);
  return records;
}

Records with_blocks(TFRecordReader& reader, std::int64_t max_records) {
  Records records;
  std::shared_ptr<const char[]> block;
  std::vector<Span> spans;
  while (const std::int64_t count = reader.next_block(max_records, block, spans)) {
    EXPECT_LE(count, max_records);
    EXPECT_EQ(count, static_cast<std::int64_t>(spans.size()));
    for (const Span& span : spans) records.emplace_back(span.of(block.get()));
    spans.clear();
  }
  return records;
}

/// Records of these sizes, all different.
Records of_sizes(const std::vector<std::size_t>& sizes) {
  std::mt19937 random(3);
  Records records;
  for (const std::size_t size : sizes) {
    std::string& record = records.emplace_back(size, static_cast<char>(random()));
    for (std::size_t i = 0; i < size; i += 97) record[i] = static_cast<char>(random());
  }
  return records;
}

class TFRecord : public testing::Test {
 protected:
  std::string write(const Records& records, Compression compression = Compression::NONE) {
    const std::string path = files_.path("records");
    TFRecordWriter writer(path, compression);
    for (const std::string& record : records) writer.write(record);
    writer.close();
    return path;
  }

  /// The file of these records, with changed bytes.
  template <class Change>
  std::string write_changed(const Records& records, Change change) {
    write(records);
    std::string bytes = files_.read("records");
    change(bytes);
    return files_.write("records", bytes);
  }

  ScratchFolder files_;
};

TEST_F(TFRecord, IsFramedByLengthAndChecksums) {
  write({"foo"});
  const std::string bytes = files_.read("records");
  ASSERT_EQ(bytes.size(), 19U);
  EXPECT_EQ(load<std::uint64_t>(bytes.data()), 3U);
  EXPECT_EQ(load<std::uint32_t>(bytes.data() + 8), masked(crc32c(bytes.substr(0, 8))));
  EXPECT_EQ(bytes.substr(12, 3), "foo");
  EXPECT_EQ(load<std::uint32_t>(bytes.data() + 15), masked(crc32c("foo")));
}

TEST_F(TFRecord, ReadsWhatWasWritten) {
  const Records records = {"a", "", std::string("\0\xff", 2), "last"};
  const std::string path = write(records);
  TFRecordReader reader(path);
  EXPECT_EQ(with_next(reader), records);
  std::string_view record;
  EXPECT_FALSE(reader.next(record));
  TFRecordReader again(path);
  EXPECT_EQ(with_blocks(again, 3), records);
}

TEST_F(TFRecord, ReadsAnEmptyFile) {
  TFRecordReader reader(write({}));
  EXPECT_THAT(with_next(reader), IsEmpty());
  EXPECT_THAT(with_blocks(reader, 10), IsEmpty());
}

TEST_F(TFRecord, FindsOutTheCompression) {
  const Records records = of_sizes({10, 0, 2000, 300'000});
  for (const auto compression : {Compression::NONE, Compression::GZIP, Compression::ZLIB}) {
    const std::string path = write(records, compression);
    TFRecordReader detecting(path);
    EXPECT_EQ(with_next(detecting), records);
    TFRecordReader told(path, compression);
    EXPECT_EQ(with_blocks(told, 1000), records);
  }
}

TEST_F(TFRecord, IsPlainForSureWhenTheFirstLengthLooksAsGzipDoes) {
  const Records records = {std::string(0x088b1f, 'x')};
  TFRecordReader reader(write(records));
  EXPECT_EQ(with_next(reader), records);
}

TEST_F(TFRecord, CrossesTheEndsOfBlocks) {
  for (const std::size_t around : {kBlock - 40, kBlock - 17, kBlock - 16, kBlock - 15, kBlock}) {
    const Records records = of_sizes({5, around, 7, 2 * kBlock + 11, 3, 3 * kBlock, 0, kBlock, 9});
    const std::string path = write(records);
    TFRecordReader by_one(path);
    EXPECT_TRUE(with_next(by_one) == records) << around;
    TFRecordReader by_blocks(path);
    EXPECT_TRUE(with_blocks(by_blocks, 4) == records) << around;
  }
}

TEST_F(TFRecord, GivesTheRecordsOfABlockAtOnce) {
  const Records records(3000, std::string(1000, 'r'));
  TFRecordReader reader(write(records));
  std::shared_ptr<const char[]> block;
  std::vector<Span> spans;
  EXPECT_EQ(reader.next_block(10'000, block, spans), static_cast<std::int64_t>(kBlock / 1016));
  EXPECT_EQ(reader.next_block(5, block, spans), 5);
  EXPECT_EQ(spans.size(), kBlock / 1016 + 5);
  EXPECT_EQ(reader.record(), static_cast<std::int64_t>(spans.size()));
}

TEST_F(TFRecord, EndsBlocksWithWhatIsAskedForOnceItKnowsTheLength) {
  const Records records(4096, std::string(1000, 'r'));
  TFRecordReader reader(write(records));
  std::shared_ptr<const char[]> block;
  std::vector<Span> spans;
  int short_ones = 0;
  for (std::int64_t asked = 256; reader.record() < 4096;) {
    const std::int64_t got = reader.next_block(asked, block, spans);
    short_ones += got < asked ? 1 : 0;
    asked = got < asked ? asked - got : 256;
  }
  EXPECT_EQ(short_ones, 1);  // at the end of the first block
}

TEST_F(TFRecord, MayBeAskedForAnyNumberOfRecords) {
  const Records records = of_sizes(std::vector<std::size_t>(100, 50'000));
  TFRecordReader reader(write(records));
  EXPECT_TRUE(with_blocks(reader, std::numeric_limits<std::int64_t>::max()) == records);
}

TEST_F(TFRecord, LeavesABlockAloneAsLongAsSomebodyHoldsIt) {
  const Records records = of_sizes(std::vector<std::size_t>(400, 50'000));
  TFRecordReader reader(write(records));
  std::vector<std::shared_ptr<const char[]>> blocks;
  std::vector<std::vector<Span>> spans(1);
  std::shared_ptr<const char[]> block;
  while (reader.next_block(7, block, spans.back()) > 0) {
    blocks.push_back(block);
    spans.emplace_back();
  }
  Records got;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    for (const Span& span : spans[i]) got.emplace_back(span.of(blocks[i].get()));
  }
  EXPECT_TRUE(got == records);
}

TEST_F(TFRecord, UsesBlocksAgain) {
  const Records records(10'000, std::string(2000, 'r'));
  TFRecordReader reader(write(records));
  std::set<const char*> addresses;
  std::shared_ptr<const char[]> block;
  std::vector<Span> spans;
  while (reader.next_block(1'000'000, block, spans) > 0) addresses.insert(block.get());
  EXPECT_LE(addresses.size(), 3U);
}

TEST_F(TFRecord, GivesBlocksThatAnotherThreadMayDrop) {
  const Records records(20'000, std::string(500, 'r'));
  TFRecordReader reader(write(records));
  std::vector<std::thread> threads;
  std::atomic<std::size_t> right = 0;
  std::shared_ptr<const char[]> block;
  for (std::vector<Span> spans; reader.next_block(1500, block, spans) > 0; spans.clear()) {
    threads.emplace_back([&right, held = std::move(block), spans] {
      for (const Span& span : spans) right += span.of(held.get()) == std::string(500, 'r') ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, records.size());
}

TEST_F(TFRecord, GoesOnAtAPosition) {
  const Records records = of_sizes({10, 700'000, 20, 800'000, 30});
  for (const auto compression : {Compression::NONE, Compression::GZIP}) {
    const std::string path = write(records, compression);
    TFRecordReader reader(path);
    std::string_view record;
    for (int i = 0; i < 3; ++i) reader.next(record);
    const std::int64_t offset = reader.offset();
    EXPECT_EQ(offset, 700'030 + 3 * 16);
    EXPECT_EQ(reader.record(), 3);
    with_next(reader);

    TFRecordReader other(path);
    for (TFRecordReader* one : {&reader, &other}) {
      one->seek(offset, 3);
      EXPECT_EQ(one->offset(), offset);
      EXPECT_TRUE(with_next(*one) == Records(records.begin() + 3, records.end()));
      EXPECT_EQ(one->record(), 5);
    }
  }
}

TEST_F(TFRecord, NamesTheRecordWhoseDataIsDamaged) {
  const std::string path =
      write_changed({"zero", "one", "two"}, [](std::string& bytes) { bytes[20 + 13] ^= 1; });
  TFRecordReader reader(path);
  std::string_view record;
  EXPECT_TRUE(reader.next(record));
  EXPECT_FAILS(reader.next(record), InvalidArgument,
               path + ": record 1 at byte 20: the checksum of its data is wrong: expected ");
}

TEST_F(TFRecord, GoesOnBehindDamagedData) {
  const std::string path = write_changed({"zero", "one", "two", "three"}, [](std::string& bytes) {
    bytes[20 + 13] ^= 1;       // of "one"
    bytes[20 + 19 + 13] ^= 1;  // of "two"
  });
  TFRecordReader by_one(path);
  std::string_view record;
  EXPECT_TRUE(by_one.next(record));
  EXPECT_FAILS(by_one.next(record), InvalidArgument, "record 1 at byte 20");
  EXPECT_TRUE(by_one.can_go_on());
  EXPECT_EQ(by_one.offset(), 39);
  EXPECT_FAILS(by_one.next(record), InvalidArgument, "record 2 at byte 39");
  EXPECT_THAT(with_next(by_one), ElementsAre("three"));

  TFRecordReader by_blocks(path);
  EXPECT_FAILS(with_blocks(by_blocks, 10), InvalidArgument, "record 1 at byte 20");
  EXPECT_FAILS(with_blocks(by_blocks, 10), InvalidArgument, "record 2 at byte 39");
  EXPECT_THAT(with_blocks(by_blocks, 10), ElementsAre("three"));
}

TEST_F(TFRecord, StaysBeforeADamagedLength) {
  TFRecordReader reader(write_changed({"zero", "one"}, [](std::string& bytes) { bytes[20] ^= 1; }));
  EXPECT_FAILS(with_next(reader), InvalidArgument, "length");
  EXPECT_FALSE(reader.can_go_on());
  EXPECT_FAILS(with_next(reader), InvalidArgument, "record 1 at byte 20");
  reader.seek(0, 0);
  EXPECT_TRUE(reader.can_go_on());
}

TEST_F(TFRecord, GivesTheRecordsBeforeTheDamagedOneFirst) {
  TFRecordReader reader(
      write_changed({"zero", "one", "two"}, [](std::string& bytes) { bytes[20 + 13] ^= 1; }));
  std::shared_ptr<const char[]> block;
  std::vector<Span> spans;
  EXPECT_EQ(reader.next_block(10, block, spans), 1);
  EXPECT_FAILS(reader.next_block(10, block, spans), InvalidArgument, "record 1 at byte 20");
}

TEST_F(TFRecord, GivesTheRecordsBeforeTheEarlyEndOfAGzipFile) {
  const Records records = of_sizes(std::vector<std::size_t>(200, 1000));
  const std::string path = write(records, Compression::GZIP);
  files_.write("records", files_.read("records").substr(0, files_.read("records").size() / 2));
  TFRecordReader reader(path);
  std::string_view record;
  std::size_t count = 0;
  EXPECT_FAILS(
      while (reader.next(record)) { EXPECT_EQ(record, records[count++]); }, InvalidArgument,
      "the file ends inside of compressed data");
  EXPECT_GT(count, 50u);
  EXPECT_FALSE(reader.can_go_on());
}

TEST_F(TFRecord, NamesTheRecordWhoseLengthIsDamaged) {
  TFRecordReader reader(write_changed({"zero", "one"}, [](std::string& bytes) { bytes[20] ^= 1; }));
  EXPECT_FAILS(with_next(reader), InvalidArgument,
               "record 1 at byte 20: the checksum of its length is wrong");
}

TEST_F(TFRecord, SaysWhereAFileEndsInsideARecord) {
  for (const std::size_t length : {21, 31, 32, 34, 38}) {
    const std::string path =
        write_changed({"zero", "one"}, [&](std::string& bytes) { bytes.resize(length); });
    TFRecordReader reader(path);
    EXPECT_FAILS(with_next(reader), InvalidArgument,
                 cat(path, ": record 1 at byte 20: expected ", length < 32 ? 12 : 19,
                     " bytes, and the file ends after ", length - 20, " of them"));
  }
}

TEST_F(TFRecord, DoesNotAllocateWhatALengthOnlyClaims) {
  for (const std::uint64_t claimed : {1ULL << 40, 1ULL << 62, ~0ULL}) {
    const std::string path = write_changed({"zero"}, [&](std::string& bytes) {
      store(bytes.data(), claimed);
      store(bytes.data() + 8, masked(crc32c(bytes.substr(0, 8))));
    });
    TFRecordReader reader(path);
    EXPECT_FAILS(with_next(reader), InvalidArgument, "record 0 at byte 0: ");
  }
}

TEST_F(TFRecord, AsksWhetherAnotherFormatIsOne) {
  TFRecordReader text(files_.write("text", "these are no records"));
  EXPECT_FAILS(with_next(text), InvalidArgument, "is it a TFRecord file, with this compression?");
  write({"a record that is compressed"}, Compression::GZIP);
  TFRecordReader gzip(files_.path("records"), Compression::NONE);
  EXPECT_FAILS(with_next(gzip), InvalidArgument, "is it a TFRecord file, with this compression?");
}

TEST_F(TFRecord, NamesAMissingFile) {
  write({});
  EXPECT_FAILS(TFRecordReader(files_.path("record")), NotFound, "did you mean records?");
}

TEST_F(TFRecord, WriterSaysThatTheDiskIsFull) {
  TFRecordWriter writer("/dev/full");
  writer.write("record");
  EXPECT_FAILS(writer.flush(), Unavailable, "[TFRecordWriter] /dev/full: can't be written");
  EXPECT_FAILS(writer.close(), Unavailable, "No space left");
}

}  // namespace
}  // namespace cohort::io
