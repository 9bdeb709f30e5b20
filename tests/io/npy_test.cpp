#include "cohort/io/npy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/base/failing.h"
#include "tests/io/scratch_folder.h"

namespace cohort::io {
namespace {

/// A file of version 1.0 with this dictionary.
std::string npy(const std::string& dictionary, std::string_view elements) {
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(dictionary.size() & 0xff);
  bytes += static_cast<char>(dictionary.size() >> 8);
  bytes += dictionary;
  bytes += elements;
  return bytes;
}

std::string dictionary(const std::string& descr, const std::string& shape, bool fortran = false) {
  return cat("{'descr': '", descr, "', 'fortran_order': ", fortran ? "True" : "False",
             ", 'shape': ", shape, ", }\n");
}

const std::string kSixBytes("\1\2\3\4\5\6");

class Npy : public testing::Test {
 protected:
  at::Tensor read(std::string_view bytes) { return read_npy(files_.write("a.npy", bytes)); }

  std::string path() const { return files_.path("a.npy"); }

  ScratchFolder files_;
};

TEST_F(Npy, IsReadInItsShape) {
  EXPECT_TRUE(read(npy(dictionary("|u1", "(2, 3)"), kSixBytes))
                  .equal(at::tensor({1, 2, 3, 4, 5, 6}, at::kByte).view({2, 3})));
  EXPECT_TRUE(read(npy(dictionary("<i2", "(3,)"), kSixBytes))
                  .equal(at::tensor({0x0201, 0x0403, 0x0605}, at::kShort)));
}

TEST_F(Npy, IsReadInEitherOrderOfBytes) {
  EXPECT_TRUE(read(npy(dictionary(">i2", "(3,)"), kSixBytes))
                  .equal(at::tensor({0x0102, 0x0304, 0x0506}, at::kShort)));
  const std::string one_and_two("\x3f\x80\0\0\x40\0\0\0", 8);
  EXPECT_TRUE(read(npy(dictionary(">f4", "(2,)"), one_and_two)).equal(at::tensor({1.0F, 2.0F})));
  EXPECT_TRUE(read(npy(dictionary(">c8", "(1,)"), one_and_two))
                  .equal(at::complex(at::tensor({1.0F}), at::tensor({2.0F}))));
}

TEST_F(Npy, IsReadInEitherOrderOfElements) {
  const at::Tensor read_back = read(npy(dictionary("|u1", "(2, 3)", true), kSixBytes));
  EXPECT_TRUE(read_back.equal(at::tensor({1, 3, 5, 2, 4, 6}, at::kByte).view({2, 3})));
  EXPECT_TRUE(read_back.is_contiguous());
}

TEST_F(Npy, MayHaveNoDimensionsOrNoElements) {
  EXPECT_EQ(read(npy(dictionary("|u1", "()"), "\7")).item<int>(), 7);
  EXPECT_EQ(read(npy(dictionary("<f4", "(0, 5)"), "")).sizes(), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(read(npy(dictionary("<f4", "(3, 0)", true), "")).sizes(), (std::vector<int64_t>{3, 0}));
}

TEST_F(Npy, TakesAnyByteButZeroForTrue) {
  EXPECT_TRUE(read(npy(dictionary("|b1", "(3,)"), std::string("\0\1\xff", 3)))
                  .equal(at::tensor({0, 1, 1}, at::kByte).to(at::kBool)));
}

TEST_F(Npy, HasALongHeaderInVersions2And3) {
  for (const char version : {'\2', '\3'}) {
    const std::string text = dictionary("|u1", "(6,)");
    std::string bytes("\x93NUMPY", 6);
    bytes += version;
    bytes += '\0';
    bytes += static_cast<char>(text.size());
    bytes += std::string(3, '\0') + text + kSixBytes;
    EXPECT_EQ(read(bytes).sum().item<int>(), 21);
  }
}

TEST_F(Npy, IsReadAsItWasWritten) {
  const std::vector<at::Tensor> tensors = {
      at::tensor({0, 1, 1}, at::kByte).to(at::kBool),
      at::arange(4, at::kByte),
      at::arange(-2, 2, at::kChar),
      at::arange(-2, 2, at::kShort),
      at::arange(6, at::kInt).view({2, 3}),
      at::arange(24, at::kLong).view({2, 3, 4}),
      at::arange(3, at::kFloat).to(at::kHalf),
      at::rand({5, 1}),
      at::rand({2}, at::kDouble),
      at::rand({2, 2}, at::kComplexFloat),
      at::rand({2}, at::kComplexDouble).conj(),
      at::scalar_tensor(3.5),
      at::empty({0, 4}),
      at::rand({3, 4}).t().requires_grad_(),
  };
  for (const at::Tensor& tensor : tensors) {
    write_npy(path(), tensor);
    const at::Tensor read_back = read_npy(path());
    EXPECT_EQ(read_back.scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(read_back.equal(tensor.detach().resolve_conj())) << tensor;
    EXPECT_EQ(read_npy_header(path()).data_offset % 64, 0);
  }
}

TEST_F(Npy, RefusesToWriteWhatNumPyDoesNotHave) {
  EXPECT_FAILS(write_npy(path(), at::zeros({1}, at::kBFloat16)), InvalidArgument,
               "NumPy has no type for BFloat16");
  EXPECT_FAILS(write_npy(path(), at::eye(2).to_sparse()), InvalidArgument,
               "expected a dense tensor, got Sparse");
  EXPECT_FAILS(write_npy("/dev/full", at::zeros({1})), Unavailable, "No space left");
}

TEST_F(Npy, RefusesElementsThatLibTorchDoesNotHave) {
  EXPECT_FAILS(read(npy(dictionary("<u2", "(3,)"), kSixBytes)), InvalidArgument,
               "the elements are '<u2', which LibTorch has no type for");
  EXPECT_FAILS(read(npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}", "")),
               InvalidArgument, "the elements are structures");
}

TEST_F(Npy, SaysWhatIsWrongWithAHeader) {
  const std::string dict = dictionary("|u1", "(6,)");
  EXPECT_FAILS(read(""), InvalidArgument, path() + ": not a .npy file at byte 0");
  EXPECT_FAILS(read("\x93NUMPZ"), InvalidArgument, "not a .npy file");
  EXPECT_FAILS(read(std::string("\x93NUMPY\4\0\1\0{", 11)), InvalidArgument,
               "version 4 is unknown at byte 6");
  EXPECT_FAILS(read(std::string("\x93NUMPY\1\0\1", 9)), InvalidArgument,
               "the file ends inside of the header at byte 9");
  EXPECT_FAILS(read(npy(dict, "").substr(0, 20)), InvalidArgument,
               "the file ends inside of the header at byte 20");
  EXPECT_FAILS(read(std::string("\x93NUMPY\2\0\xff\xff\xff\xff", 12)), InvalidArgument,
               "the header has 4294967295 bytes at byte 8");
}

TEST_F(Npy, SaysWhatIsWrongWithADictionary) {
  EXPECT_FAILS(read(npy("[]", "")), InvalidArgument, "expected '{' in the header at byte 10");
  EXPECT_FAILS(read(npy("{'descr': '|u1'}", "")), InvalidArgument, "the header lacks");
  EXPECT_FAILS(read(npy("{'descr': '|u1", "")), InvalidArgument, "ends inside of quotes");
  EXPECT_FAILS(read(npy("{'color': 'red'}", "")), InvalidArgument, "an entry 'color'");
  EXPECT_FAILS(read(npy("{'shape': (1,), 'shape': (1,)}", "")), InvalidArgument, "there twice");
  EXPECT_FAILS(read(npy("{'fortran_order': 1}", "")), InvalidArgument, "expected True or False");
  EXPECT_FAILS(read(npy("{'shape': (-1,)}", "")), InvalidArgument, "expected a size at byte 21");
  EXPECT_FAILS(read(npy("{'shape': (99999999999999999999,)}", "")), InvalidArgument,
               "a size is too large");
  EXPECT_FAILS(read(npy(dictionary("|u1", "(1,)") + "x", "1")), InvalidArgument,
               "goes on after its dictionary");
}

TEST_F(Npy, DoesNotAllocateWhatAShapeOnlyClaims) {
  EXPECT_FAILS(read(npy(dictionary("<f8", "(1000000, 1000000)"), kSixBytes)), InvalidArgument,
               "expected 8000000000000 bytes of elements, got 6");
  EXPECT_FAILS(read(npy(dictionary("<f8", "(4611686018427387904,)"), "")), InvalidArgument,
               "the shape in the header is too large");
  EXPECT_FAILS(read(npy(dictionary("|u1", "(0, 4611686018427387904, 16)"), "")), InvalidArgument,
               "the shape in the header is too large");
}

class NpyRowsTest : public Npy {};

TEST_F(NpyRowsTest, AreReadOneRangeAtATime) {
  const at::Tensor all = at::arange(60, at::kFloat).view({5, 3, 4});
  write_npy(path(), all);
  const NpyRows rows(path());
  EXPECT_EQ(rows.size(), 5);
  EXPECT_EQ(rows.sizes(), (std::vector<int64_t>{5, 3, 4}));
  EXPECT_EQ(rows.dtype(), at::kFloat);
  EXPECT_TRUE(rows.read(0, 5).equal(all));
  EXPECT_TRUE(rows.read(3, 4).equal(all.slice(0, 3, 4)));
  EXPECT_EQ(rows.read(5, 5).sizes(), (std::vector<int64_t>{0, 3, 4}));
}

TEST_F(NpyRowsTest, AreTheSameInFortranOrder) {
  files_.write("a.npy", npy(dictionary("|u1", "(2, 3)", true), kSixBytes));
  EXPECT_TRUE(NpyRows(path()).read(1, 2).equal(at::tensor({2, 4, 6}, at::kByte).view({1, 3})));
}

TEST_F(NpyRowsTest, MayBeEmpty) {
  write_npy(path(), at::empty({0, 3}));
  EXPECT_EQ(NpyRows(path()).read(0, 0).sizes(), (std::vector<int64_t>{0, 3}));
  write_npy(path(), at::empty({3, 0}));
  EXPECT_EQ(NpyRows(path()).read(1, 3).sizes(), (std::vector<int64_t>{2, 0}));
}

TEST_F(NpyRowsTest, MustBeThere) {
  write_npy(path(), at::zeros({3}));
  const NpyRows rows(path());
  EXPECT_FAILS(rows.read(2, 4), ValueError, "rows 2 to 4 are not in [0, 3]");
  EXPECT_FAILS(rows.read(-1, 2), ValueError, "rows -1 to 2");
  std::filesystem::resize_file(path(), 130);
  EXPECT_FAILS(rows.read(0, 3), InvalidArgument, "the file became shorter");
  write_npy(path(), at::scalar_tensor(1));
  EXPECT_FAILS(NpyRows{path()}, InvalidArgument, "the array has no rows: its shape is ()");
}

}  // namespace
}  // namespace cohort::io
