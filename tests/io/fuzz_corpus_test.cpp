#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/targets.h"

namespace cohort {
namespace {

using Bytes = std::string;
using Target = void (*)(std::string_view);

/// Changes a few bytes, as fuzzers do: the same changes for the same seed.
class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  Bytes mutated(Bytes bytes) {
    const std::size_t changes = 1 + below(4);
    for (std::size_t i = 0; i < changes; ++i) change(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % std::max<std::size_t>(1, limit); }

  void change(Bytes& bytes) {
    constexpr char kBoundaries[] = {0, 1, 0x7f, '\x80', '\xff', ',', '"', '\n'};
    const std::size_t at = below(bytes.size());
    const std::size_t length = below(std::min<std::size_t>(16, bytes.size() - at) + 1);
    switch (below(6)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = kBoundaries[below(std::size(kBoundaries))];
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.insert(at, length, kBoundaries[below(std::size(kBoundaries))]);
        break;
      default:
        bytes.resize(at);
    }
  }

  std::mt19937 random_;
};

/// Every file of the corpus, and changed copies of it.
void run_corpus(const std::string& name, Target target) {
  constexpr int kCopies = 400;
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(COHORT_TEST_DATA "/../fuzz/corpus/" + name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const Bytes bytes(std::istreambuf_iterator<char>(file), {});
    target(bytes);
    Mutator mutator(7);
    for (int i = 0; i < kCopies; ++i) target(mutator.mutated(bytes));
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST(NoBytesCrash, TFRecordReader) { run_corpus("tfrecord", fuzz::tfrecord); }
TEST(NoBytesCrash, Example) { run_corpus("example", fuzz::example); }
TEST(NoBytesCrash, ReadNpy) { run_corpus("npy", fuzz::npy); }
TEST(NoBytesCrash, ReadIdx) { run_corpus("idx", fuzz::idx); }
TEST(NoBytesCrash, CsvReader) { run_corpus("csv", fuzz::csv); }

}  // namespace
}  // namespace cohort
