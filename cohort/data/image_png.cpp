// libpng reports an error by a call that must not return, and C++ exceptions can't cross its
// frames: so it jumps back, over frames of libpng and of functions without destructors only.

#include <ATen/ATen.h>
#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "cohort/base/error.h"
#include "cohort/data/image.h"

namespace cohort::data {
namespace {

class PngDecoder {
 public:
  explicit PngDecoder(std::string_view bytes) : rest_(bytes) {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp png, png_const_charp what) { of(png_get_error_ptr(png)).jump_back(what); },
        [](png_structp, png_const_charp) {});  // warnings: the image is whole
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) fail("libpng can't start");
  }
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  at::Tensor decode(const ImageOptions& options) {
    guarded([&] {
      png_set_read_fn(png_, this, [](png_structp png, png_bytep target, std::size_t bytes) {
        of(png_get_io_ptr(png)).read(target, bytes);
      });
      png_read_info(png_, info_);
      choose_channels(options.channels);
    });
    const std::int64_t height = png_get_image_height(png_, info_);
    const std::int64_t width = png_get_image_width(png_, info_);
    const std::int64_t channels = png_get_channels(png_, info_);
    check_size(height, width, channels, options.max_bytes);
    at::Tensor image = at::empty({height, width, channels}, at::kByte);
    for (std::int64_t row = 0; row < height; ++row) {
      rows_.push_back(image.data_ptr<std::uint8_t>() + row * width * channels);
    }
    guarded([&] {
      png_read_image(png_, rows_.data());
      png_read_end(png_, nullptr);
    });
    return image;
  }

 private:
  static PngDecoder& of(void* pointer) { return *static_cast<PngDecoder*>(pointer); }

  [[noreturn]] void jump_back(const char* what) {
    std::strncpy(error_, what, sizeof error_ - 1);
    std::longjmp(back_, 1);
  }

  void read(png_bytep target, std::size_t bytes) {
    if (bytes > rest_.size()) jump_back("the data ends early");
    std::memcpy(target, rest_.data(), bytes);
    rest_.remove_prefix(bytes);
  }

  /// Tells libpng to give 8 bits a channel, and this number of channels unless it is 0.
  void choose_channels(int channels) {
    const bool has_color = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0;
    png_set_scale_16(png_);
    png_set_expand(png_);  // palettes, fewer than 8 bits, a transparent colour
    if (channels == 1 || channels == 3) png_set_strip_alpha(png_);
    if (channels == 4) png_set_add_alpha(png_, 0xff, PNG_FILLER_AFTER);
    if (channels == 1 && has_color) png_set_rgb_to_gray(png_, PNG_ERROR_ACTION_NONE, 0.299, 0.587);
    if (channels >= 3 && !has_color) png_set_gray_to_rgb(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  void check_size(std::int64_t height, std::int64_t width, std::int64_t channels,
                  std::int64_t most) const {
    const std::int64_t bytes = height * width * channels;  // both sizes have at most 31 bits
    if (bytes > most) {
      fail(cat("it has ", width, " × ", height, " pixels, and so ", bytes, " bytes; max_bytes is ",
               most));
    }
    if (png_get_rowbytes(png_, info_) != static_cast<std::size_t>(width * channels)) {
      fail("it has another number of bits than 8");
    }
  }

  /// Calls a function that calls libpng; throws what libpng says if it fails.
  template <class Function>
  void guarded(Function function) {
    if (setjmp(back_) != 0) fail(error_);
    function();
  }

  [[noreturn]] static void fail(const std::string& what) {
    throw InvalidArgument("decode_png", cat("the image can't be decoded: ", what));
  }

  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<png_bytep> rows_;
  std::jmp_buf back_;
  char error_[256] = {};
};

}  // namespace

at::Tensor decode_png(std::string_view bytes, const ImageOptions& options) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3 &&
      options.channels != 4) {
    throw ValueError("decode_png", cat("expected 0, 1, 3 or 4 channels, got ", options.channels));
  }
  return PngDecoder(bytes).decode(options);
}

}  // namespace cohort::data
