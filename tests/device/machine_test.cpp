#include "cohort/device/machine.h"

#include <gtest/gtest.h>

#include "cohort/device/configuration.h"
#include "cohort/device/loaded_symbol.h"
#include "tests/base/captured_log.h"

namespace cohort {
namespace {

TEST(Machine, KnowsItsLibTorch) {
  const std::string version = libtorch_version();
  EXPECT_TRUE(version.starts_with("1.13") || version.starts_with("2.")) << version;
}

TEST(Machine, KnowsItsBlas) {
  const std::string name = blas_name();
  if (loaded_symbol<char*()>("openblas_get_config")) {
    EXPECT_TRUE(name.starts_with("OpenBLAS")) << name;
  } else if (loaded_symbol<int()>("MKL_Get_Max_Threads")) {
    EXPECT_NE(name.find("Math Kernel Library"), std::string::npos) << name;
  }
  EXPECT_FALSE(name.ends_with(' '));
}

TEST(Machine, WarnsOnceAndOnlyOfTheReferenceBlas) {
  const CapturedLog log;
  warn_if_reference_blas();
  warn_if_reference_blas();
  const int expected = blas_name() == "reference BLAS" ? 1 : 0;
  EXPECT_EQ(log.count(log::Level::WARNING, "apt-get install libopenblas0-pthread"), expected);
}

TEST(Machine, DescribesItselfInAFewLines) {
  configure({.cpu_devices = 2});
  const std::string text = describe_machine();
  configure({});
  EXPECT_TRUE(text.starts_with("LibTorch: " + libtorch_version() + "\nBLAS: ")) << text;
  EXPECT_NE(text.find("\ncores allowed: "), std::string::npos) << text;
  EXPECT_NE(text.find("\ndevices: cpu:0 cpu:1"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with('\n'));
}

}  // namespace
}  // namespace cohort
