// Datasets of files: what they give, and where they can be stopped.

#include "cohort/data/readers.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cohort/io/npy.h"
#include "tests/base/captured_log.h"
#include "tests/data/elements.h"

namespace cohort::data {
namespace {

using testing::ElementsAre;

class Readers : public testing::Test {
 protected:
  Readers() { std::filesystem::create_directories(folder_); }
  ~Readers() override { std::filesystem::remove_all(folder_); }

  std::string add(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  /// Records "a0", "a1", … of each letter, a file each.
  Texts records(const std::string& letters, int count) const {
    Texts paths;
    for (const char letter : letters) {
      paths.push_back(cat(folder_, '/', letter, ".tfrecord"));
      io::TFRecordWriter writer(paths.back());
      for (int i = 0; i < count; ++i) writer.write(cat(letter, i));
      writer.close();
    }
    return paths;
  }
  /// Changes a bit of a byte of a file.
  static void damage(const std::string& path, std::streamoff byte) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(byte);
    const auto changed = static_cast<char>(file.get() ^ 1);
    file.seekp(byte);
    file.put(changed);
  }
  const std::string folder_ = cat(testing::TempDir(), "cohort_readers_", getpid());
};

TEST_F(Readers, GiveTheRecordsOfEachFile) {
  const auto files = records("ab", 2);
  EXPECT_THAT(elements_of(tf_records(files)), ElementsAre("a0", "a1", "b0", "b1"));
  EXPECT_THAT(elements_of(tf_records(files).batch(3)), ElementsAre("[3]{a0 a1 b0}", "[1]{b1}"));
  EXPECT_THAT(elements_of(tf_records(files, {.parallel_reads = 2})),
              ElementsAre("a0", "b0", "a1", "b1"));
}

TEST_F(Readers, GiveLinesRowsAndRecordsOfOneLength) {
  EXPECT_THAT(elements_of(text_lines(add("t", "one\ntwo\r\nthree"))),
              ElementsAre("one", "two", "three"));
  EXPECT_THAT(elements_of(csv(add("c", "x,y\n1,\"2,3\"\n4,5\n"), {.header = true})),
              ElementsAre("1 2,3", "4 5"));
  EXPECT_THAT(
      elements_of(fixed_length_records(add("f", "HHaabb"), {.record_bytes = 2, .header_bytes = 2})),
      ElementsAre("aa", "bb"));
}

TEST_F(Readers, CanBeStoppedBehindAnyElement) {
  const auto files = records("abc", 3);
  const std::string array = folder_ + "/rows.npy";
  io::write_npy(array, torch::arange(12).reshape({6, 2}));
  EXPECT_RESUMES(tf_records(files));
  EXPECT_RESUMES(tf_records(files).batch(2));
  EXPECT_RESUMES(tf_records(files, {.parallel_reads = 2}).shuffle(4));
  EXPECT_RESUMES(text_lines(add("t", "1\n2\n3\n4")));
  EXPECT_RESUMES(csv(add("c", "x,y\n1,2\n3,4\n5,6\n"), {.header = true}));
  EXPECT_RESUMES(fixed_length_records(add("f", "aabbccdd"), {.record_bytes = 2}));
  EXPECT_RESUMES(npy(array).shuffle(6).batch(2));
}

TEST_F(Readers, GoOnBehindARecordWhoseDataIsDamaged) {
  const auto files = records("ab", 4);
  damage(files[0], 18 + 13);  // the data of record 1
  const CapturedLog log;
  ErrorCount count;
  EXPECT_THAT(elements_of(tf_records(files).ignore_errors({.count = count})),
              ElementsAre("a0", "a2", "a3", "b0", "b1", "b2", "b3"));
  EXPECT_EQ(count.get(), 1);
  EXPECT_THAT(log.lines(), testing::IsEmpty());
  EXPECT_FAILS(elements_of(tf_records(files)), InvalidArgument, "record 1 at byte 18");

  auto iterator = tf_records(files).iterator();
  iterator.next();
  EXPECT_FAILS(iterator.next(), InvalidArgument, "data");
  auto resumed = tf_records(files).iterator();
  resumed.restore(iterator.position());
  EXPECT_EQ(resumed.next(), "a2");
}

TEST_F(Readers, LeaveAFileBehindADamagedLengthAndSaySo) {
  const auto files = records("ab", 4);
  damage(files[0], 18);  // the length of record 1
  const CapturedLog log;
  EXPECT_THAT(elements_of(tf_records(files).ignore_errors()),
              ElementsAre("a0", "b0", "b1", "b2", "b3"));
  EXPECT_EQ(log.count(log::Level::WARNING, cat("the rest of ", files[0], " is left out")), 1);
}

TEST_F(Readers, NameAFileThatIsMissing) {
  records("a", 1);
  EXPECT_FAILS(elements_of(tf_records(folder_ + "/b.tfrecord")), NotFound, "a.tfrecord");
  EXPECT_FAILS(list_files(folder_ + "/*.txt"), NotFound, "no file matches");
}

}  // namespace
}  // namespace cohort::data
