#include "cohort/io/idx.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tests/base/failing.h"

namespace cohort::io {
namespace {

using Bytes = std::vector<unsigned char>;

/// Two rows of three bytes.
const Bytes kPlain = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255};
/// The same through gzip.
const Bytes kGzip = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0x63, 0x60,
                     0xe0, 0x60, 0x62, 0x60, 0x60, 0x00, 0x61, 0x66, 0x46, 0x26, 0x66, 0x16,
                     0xd6, 0xff, 0x00, 0xf0, 0xde, 0x5f, 0x21, 0x12, 0x00, 0x00, 0x00};

Bytes first(const Bytes& all, std::size_t count) { return {all.begin(), all.begin() + count}; }

class ReadIdx : public testing::Test {
 protected:
  ~ReadIdx() override { std::remove(path_.c_str()); }

  at::Tensor read(const Bytes& bytes) {
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
    return read_idx(path_);
  }

  const std::string path_ = testing::TempDir() + "cohort_idx_test";
  const at::Tensor two_rows_ = at::tensor({1, 2, 3, 4, 5, 255}, at::kByte).view({2, 3});
};

TEST_F(ReadIdx, PlainAndCompressed) {
  EXPECT_TRUE(read(kPlain).equal(two_rows_));
  EXPECT_TRUE(read(kGzip).equal(two_rows_));
}

TEST_F(ReadIdx, OfAnyRank) {
  EXPECT_TRUE(read({0, 0, 8, 1, 0, 0, 0, 2, 7, 8}).equal(at::tensor({7, 8}, at::kByte)));
  EXPECT_EQ(read({0, 0, 8, 0, 9}).item<int>(), 9);
  EXPECT_EQ(read({0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 5}).sizes(), (std::vector<int64_t>{0, 5}));
}

TEST_F(ReadIdx, RefusesAnotherFormat) {
  EXPECT_FAILS(read({'P', 'K', 3, 4, 0, 0}), InvalidArgument, "not an IDX file of unsigned bytes");
  EXPECT_FAILS(read({0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0}), InvalidArgument, "not an IDX file");
}

TEST_F(ReadIdx, SaysWhereAFileEndsEarly) {
  EXPECT_FAILS(read({}), InvalidArgument, "the header ends early at byte 0");
  EXPECT_FAILS(read(first(kPlain, 10)), InvalidArgument, "the header ends early at byte 10");
  EXPECT_FAILS(read(first(kPlain, 16)), InvalidArgument, "expected 6 elements at byte 16");
  EXPECT_FAILS(read(first(kGzip, kGzip.size() - 12)), InvalidArgument, path_);
}

TEST_F(ReadIdx, DoesNotAllocateWhatAHeaderOnlyClaims) {
  EXPECT_FAILS(read({0, 0, 8, 2, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 1}),
               InvalidArgument, "ends early");
  EXPECT_FAILS(
      read({0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
      InvalidArgument, "the sizes are too large");
}

TEST_F(ReadIdx, NamesDamageAndWhatIsMissing) {
  Bytes damaged = kGzip;
  for (std::size_t i = 12; i < 20; ++i) damaged[i] ^= 0xff;
  EXPECT_FAILS(read(damaged), InvalidArgument, path_);
  EXPECT_FAILS(read_idx(path_ + "/missing"), NotFound, path_ + "/missing");
  EXPECT_FAILS(read_idx(testing::TempDir()), InvalidArgument, testing::TempDir());
}

}  // namespace
}  // namespace cohort::io
