#include "cohort/io/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace cohort::io {
namespace {

TEST(Crc32c, IsThatOfRfc3720) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

TEST(Crc32c, IsStoredMasked) { EXPECT_EQ(masked(0x12345678U), 0x4f730f40U); }

}  // namespace
}  // namespace cohort::io
