#include "cohort/data/image.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/base/failing.h"
#include "tests/io/expected_files.h"

namespace cohort::data {
namespace {

at::Tensor decode(const std::string& name, const ImageOptions& options = {}) {
  const std::string bytes = input_bytes(name);
  return name.ends_with(".png") ? decode_png(bytes, options) : decode_jpeg(bytes, options);
}

/// Compares with what TensorFlow decodes, for each number of channels.
void expect_as_tensorflow(const std::string& name, int tolerance) {
  for (const auto& expected : expected_content().at(name)) {
    const at::Tensor image = decode(name, {.channels = expected.at("channels")});
    EXPECT_EQ(image.scalar_type(), at::kByte);
    const std::vector<std::int64_t> sizes = expected.at("shape");
    ASSERT_EQ(image.sizes(), sizes) << name;
    const at::Tensor values =
        at::tensor(expected.at("values").get<std::vector<std::int64_t>>()).view(sizes);
    EXPECT_LE(image.to(at::kLong).sub(values).abs().max().item<int>(), tolerance)
        << name << ", channels " << expected.at("channels");
  }
}

TEST(DecodePng, GivesThePixelsOfTheFile) {
  for (const std::string name : {"gray", "gray_alpha", "color", "color_alpha", "palette", "bits"}) {
    expect_as_tensorflow(name + ".png", 0);
  }
}

TEST(DecodePng, Scales16BitsTo8) { expect_as_tensorflow("color16.png", 0); }

TEST(DecodePng, GivesTheChannelsThatAreAskedFor) {
  const at::Tensor color = decode("color.png");
  EXPECT_TRUE(decode("color_alpha.png", {.channels = 3}).equal(color));
  const at::Tensor with_alpha = decode("color.png", {.channels = 4});
  EXPECT_TRUE(with_alpha.slice(2, 0, 3).equal(color));
  EXPECT_TRUE(with_alpha.select(2, 3).eq(255).all().item<bool>());
  const at::Tensor gray = decode("gray.png");
  EXPECT_TRUE(decode("gray.png", {.channels = 3}).equal(gray.expand({-1, -1, 3})));
  EXPECT_TRUE(decode("gray_alpha.png", {.channels = 1}).equal(gray));
  EXPECT_EQ(decode("color.png", {.channels = 1}).size(2), 1);
  EXPECT_EQ(decode("palette.png", {.channels = 1}).size(2), 1);
  EXPECT_FAILS(decode("gray.png", {.channels = 2}), ValueError, "got 2");
}

TEST(DecodeJpeg, GivesThePixelsThatTensorFlowGives) {
  for (const std::string name : {"gray.jpg", "color.jpg", "progressive.jpg"}) {
    expect_as_tensorflow(name, 2);  // another version of libjpeg rounds otherwise
  }
}

TEST(DecodeJpeg, GivesOneOrThreeChannels) {
  EXPECT_FAILS(decode("color.jpg", {.channels = 4}), ValueError, "got 4");
}

TEST(DecodeImage, SaysWhatTheLibrarySays) {
  EXPECT_FAILS(decode_png("these are no pixels"), InvalidArgument, "Not a PNG file");
  EXPECT_FAILS(decode_png(""), InvalidArgument, "the data ends early");
  EXPECT_FAILS(decode_jpeg("these are no pixels"), InvalidArgument, "Not a JPEG file");
  EXPECT_FAILS(decode_jpeg(""), InvalidArgument, "Empty input file");
}

TEST(DecodeImage, RefusesAFileThatEndsEarly) {
  for (const std::string name : {"color.png", "palette.png", "color.jpg", "progressive.jpg"}) {
    const std::string whole = input_bytes(name);
    for (std::size_t length = 0; length + 2 < whole.size(); length += 7) {
      const std::string part = whole.substr(0, length);
      EXPECT_FAILS(name.ends_with(".png") ? decode_png(part) : decode_jpeg(part), InvalidArgument,
                   "the image can't be decoded: ");
    }
  }
}

TEST(DecodePng, FindsDamage) {
  std::string damaged = input_bytes("color.png");
  damaged[damaged.size() / 2] ^= 1;
  EXPECT_FAILS(decode_png(damaged), InvalidArgument, "the image can't be decoded: ");
}

TEST(DecodeImage, DoesNotAllocateMoreThanItMay) {
  EXPECT_FAILS(decode("color.png", {.max_bytes = 100}), InvalidArgument,
               "it has 8 × 6 pixels, and so 144 bytes; max_bytes is 100");
  EXPECT_FAILS(decode("color.jpg", {.max_bytes = 100}), InvalidArgument,
               "it has 8 × 6 pixels, and so 144 bytes; max_bytes is 100");
  std::string claims = input_bytes("color.jpg");
  const std::size_t frame = claims.find("\xff\xc0");
  for (std::size_t i = frame + 5; i < frame + 9; ++i) claims[i] = '\xfd';
  EXPECT_FAILS(decode_jpeg(claims), InvalidArgument, "it has 65021 × 65021 pixels");
}

TEST(DecodeImage, NeverCrashes) {
  for (const std::string name : {"color.png", "palette.png", "color.jpg", "progressive.jpg"}) {
    const std::string whole = input_bytes(name);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
      try {
        name.ends_with(".png") ? decode_png(changed, {.max_bytes = 1 << 20})
                               : decode_jpeg(changed, {.max_bytes = 1 << 20});
      } catch (const InvalidArgument&) {
      }
    }
  }
}

}  // namespace
}  // namespace cohort::data
