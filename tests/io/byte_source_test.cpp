#include "cohort/io/byte_source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "cohort/io/byte_sink.h"
#include "tests/base/failing.h"
#include "tests/io/scratch_folder.h"

namespace cohort::io {
namespace {

/// Bytes of which half repeat, so that they compress to something with blocks of every kind.
std::string some_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::string bytes(count, 'a');
  for (std::size_t i = 0; i < count; ++i) {
    if (i / 1000 % 2 == 0) bytes[i] = static_cast<char>(random());
  }
  return bytes;
}

/// All that is left, in reads of `step` bytes.
std::string rest_of(ByteSource& source, std::size_t step = 4096) {
  std::string all;
  std::string piece(step, ' ');
  while (const std::size_t got = source.read(piece.data(), step)) all.append(piece, 0, got);
  return all;
}

class ByteSourceTest : public testing::TestWithParam<Compression> {
 protected:
  std::string write(const std::string& name, std::string_view bytes) {
    ByteSink sink(files_.path(name), GetParam(), "test");
    sink.write(bytes);
    sink.close();
    return files_.path(name);
  }

  std::unique_ptr<ByteSource> open(const std::string& path) {
    return open_source(path, GetParam());
  }

  ScratchFolder files_;
};

INSTANTIATE_TEST_SUITE_P(Every, ByteSourceTest,
                         testing::Values(Compression::NONE, Compression::GZIP, Compression::ZLIB));

TEST_P(ByteSourceTest, ReadsWhatWasWritten) {
  const std::string bytes = some_bytes(300'000);
  const std::string path = write("bytes", bytes);
  for (const std::size_t step : {1, 7, 4096, 1 << 20}) {
    auto source = open(path);
    EXPECT_TRUE(rest_of(*source, step) == bytes) << "in steps of " << step;
    EXPECT_EQ(source->offset(), 300'000);
    EXPECT_EQ(source->path(), path);
  }
}

TEST_P(ByteSourceTest, ReadsAnEmptyFile) {
  auto source = open(write("empty", ""));
  EXPECT_EQ(rest_of(*source), "");
  EXPECT_EQ(source->offset(), 0);
}

TEST_P(ByteSourceTest, ReadsFewerBytesOnlyAtTheEnd) {
  const std::string bytes = some_bytes(200'000);
  auto source = open(write("bytes", bytes));
  std::string target(150'000, ' ');
  EXPECT_EQ(source->read(target.data(), target.size()), 150'000);
  EXPECT_EQ(source->read(target.data(), target.size()), 50'000);
  EXPECT_EQ(source->read(target.data(), target.size()), 0);
}

TEST_P(ByteSourceTest, GoesOnAtAnyByte) {
  const std::string bytes = some_bytes(200'000);
  auto source = open(write("bytes", bytes));
  for (const std::int64_t offset : {150'000, 20, 0, 199'999, 200'000}) {
    source->seek(offset);
    EXPECT_EQ(source->offset(), offset);
    EXPECT_TRUE(rest_of(*source) == bytes.substr(static_cast<std::size_t>(offset))) << offset;
  }
}

TEST_P(ByteSourceTest, GoesToTheEndWhenThereAreFewerBytes) {
  auto source = open(write("bytes", "0123456789"));
  source->seek(1000);
  EXPECT_EQ(source->offset(), 10);
  EXPECT_EQ(rest_of(*source), "");
  source->seek(4);
  EXPECT_EQ(rest_of(*source), "456789");
}

TEST_P(ByteSourceTest, SeesWhatAWriterFlushed) {
  ByteSink sink(files_.path("log"), GetParam(), "test");
  sink.write("first");
  sink.flush();
  char target[5];
  EXPECT_EQ(open(files_.path("log"))->read(target, 5), 5);
  EXPECT_EQ(std::string(target, 5), "first");
  sink.write(", second");
  sink.close();
  EXPECT_EQ(rest_of(*open(files_.path("log"))), "first, second");
}

TEST_P(ByteSourceTest, NamesAMissingFileAndTheNearestName) {
  files_.write("train-00001.tfrecord", "");
  files_.write("something else", "");
  EXPECT_FAILS(open(files_.path("train-0001.tfrecord")), NotFound,
               files_.path("train-0001.tfrecord") +
                   ": can't be opened: No such file or directory; did you mean "
                   "train-00001.tfrecord?");
  EXPECT_FAILS(open(files_.path("no/such")), NotFound, "there is no folder " + files_.path("no"));
  EXPECT_EQ(failure_of([&] { open(files_.path("x")); }).find("did you mean"), std::string::npos);
}

TEST_P(ByteSourceTest, DoesNotReadAFolder) {
  std::filesystem::create_directories(files_.path("folder"));
  EXPECT_FAILS(rest_of(*open(files_.path("folder"))), InvalidArgument, files_.path("folder"));
}

using CompressedSourceTest = ByteSourceTest;
INSTANTIATE_TEST_SUITE_P(Every, CompressedSourceTest,
                         testing::Values(Compression::GZIP, Compression::ZLIB));

TEST_P(CompressedSourceTest, SaysWhereAFileEndsEarly) {
  write("whole", some_bytes(100'000));
  const std::string whole = files_.read("whole");
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{5}, whole.size() / 2,
                                   whole.size() - 5, whole.size() - 1}) {
    const std::string path = files_.write("part", whole.substr(0, length));
    EXPECT_FAILS(
        rest_of(*open(path)), InvalidArgument,
        cat(path, ": the file ends inside of compressed data at byte ", length, " of the file"));
  }
}

TEST_P(CompressedSourceTest, GivesWhatComesBeforeAnEarlyEnd) {
  const std::string bytes = some_bytes(100'000);
  write("whole", bytes);
  const std::string path = files_.write("part", files_.read("whole").substr(0, 30'000));
  for (const std::size_t step : {std::size_t{1000}, std::size_t{1} << 20}) {
    const auto source = open(path);
    std::string got;
    EXPECT_FAILS(
        {
          std::string piece(step, ' ');
          while (const std::size_t some = source->read(piece.data(), step)) {
            got.append(piece, 0, some);
          }
        },
        InvalidArgument, "the file ends inside of compressed data");
    EXPECT_GT(got.size(), 25'000u);
    EXPECT_TRUE(bytes.starts_with(got));
    EXPECT_EQ(source->offset(), static_cast<std::int64_t>(got.size()));
    EXPECT_FAILS(source->read(got.data(), 1), InvalidArgument, "the file ends inside of");
  }
}

TEST_P(CompressedSourceTest, FindsDamage) {
  write("whole", some_bytes(100'000));
  const std::string whole = files_.read("whole");
  for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 50) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    const std::string path = files_.write("damaged", damaged);
    std::string got;
    const std::string failure = failure_of([&] { got = rest_of(*open(path)); });
    // Some bytes of a gzip header mean nothing.
    EXPECT_TRUE(failure.starts_with("InvalidArgument") || got == some_bytes(100'000)) << at;
  }
}

TEST_P(CompressedSourceTest, RefusesBytesAfterTheEnd) {
  write("whole", "text");
  const std::string path = files_.write("more", files_.read("whole") + "more");
  EXPECT_FAILS(rest_of(*open(path)), InvalidArgument,
               "there are other bytes after the end of the compressed data");
}

TEST(GzipSource, ReadsSeveralMembersAsOne) {
  ScratchFolder files;
  std::string together;
  std::string expected;
  for (int i = 0; i < 40; ++i) {
    const std::string bytes = some_bytes(static_cast<std::size_t>(i * i * 20));
    ByteSink(files.path("member"), Compression::GZIP, "test").write(bytes);
    together += files.read("member");
    expected += bytes;
  }
  const std::string path = files.write("together", together);
  for (const std::size_t step : {1, 1000, 1 << 20}) {
    EXPECT_TRUE(rest_of(*open_source(path, Compression::GZIP), step) == expected) << step;
  }
}

TEST(ZlibSource, RefusesAStreamThatNeedsADictionary) {
  ScratchFolder files;
  const std::string path = files.write("dictionary", "\x78\xbb\x01\x02\x03\x04 and more bytes");
  EXPECT_FAILS(rest_of(*open_source(path, Compression::ZLIB)), InvalidArgument, path);
}

TEST(PlainSource, SaysWhenAFileBecameShorter) {
  ScratchFolder files;
  const std::string path = files.write("file", some_bytes(1000));
  auto source = open_source(path, Compression::NONE);
  std::filesystem::resize_file(path, 400);
  EXPECT_FAILS(rest_of(*source), InvalidArgument,
               path + ": the file became shorter than the 1000 bytes it had, and ends at byte 400");
}

TEST(AutoCompression, IsGzipOrNone) {
  ScratchFolder files;
  ByteSink(files.path("a.gz"), Compression::AUTO, "test").write("text");
  ByteSink(files.path("a"), Compression::AUTO, "test").write("text");
  EXPECT_EQ(files.read("a"), "text");
  EXPECT_NE(files.read("a.gz"), "text");
  EXPECT_EQ(rest_of(*open_source(files.path("a"), Compression::AUTO)), "text");
  EXPECT_EQ(rest_of(*open_source(files.path("a.gz"), Compression::AUTO)), "text");
}

TEST(ByteSink, SaysThatAFolderIsMissing) {
  ScratchFolder files;
  EXPECT_FAILS(ByteSink(files.path("no/file"), Compression::NONE, "save"), NotFound,
               "[save] " + files.path("no/file") + ": can't be opened");
}

TEST(ByteSink, SaysThatTheDiskIsFull) {
  ByteSink sink("/dev/full", Compression::NONE, "save");
  sink.write("text");
  EXPECT_FAILS(sink.flush(), Unavailable, "/dev/full: can't be written: No space left on device");
  EXPECT_FAILS(sink.close(), Unavailable, "No space left");
}

TEST(ByteSink, CanNotBeWrittenAfterItsEnd) {
  ScratchFolder files;
  ByteSink sink(files.path("file"), Compression::NONE, "save");
  sink.close();
  sink.close();
  EXPECT_FAILS(sink.write("text"), RuntimeError, files.path("file") + ": is closed already");
}

}  // namespace
}  // namespace cohort::io
