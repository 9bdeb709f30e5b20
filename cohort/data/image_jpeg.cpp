// libjpeg reports an error by a call that must not return, and C++ exceptions can't cross its
// frames: so it jumps back, over frames of libjpeg and of functions without destructors only.

#include <ATen/ATen.h>
#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstddef>
#include <string>

#include "cohort/base/error.h"
#include "cohort/data/image.h"

namespace cohort::data {
namespace {

class JpegDecoder {
 public:
  JpegDecoder() {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) { of(info).jump_back(); };
    errors_.emit_message = [](j_common_ptr info, int level) { of(info).note(level); };
    guarded([&] { jpeg_create_decompress(&info_); });
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  at::Tensor decode(std::string_view bytes, const ImageOptions& options) {
    guarded([&] {
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
    const bool is_cmyk = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    const int channels = options.channels != 0       ? options.channels
                         : info_.num_components == 1 ? 1
                                                     : 3;
    if (is_cmyk && channels == 1) {
      throw InvalidArgument("decode_jpeg", "the image is CMYK, which does not become gray");
    }
    info_.out_color_space = is_cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    const std::int64_t height = info_.image_height;
    const std::int64_t width = info_.image_width;
    check_size(height * width * (is_cmyk ? 4 : channels), options.max_bytes);
    at::Tensor image = at::empty({height, width, is_cmyk ? 4 : channels}, at::kByte);
    read_rows(image.data_ptr<std::uint8_t>(), static_cast<std::size_t>(image.stride(0)));
    return is_cmyk ? rgb_of_inverted_cmyk(image) : image;
  }

 private:
  static JpegDecoder& of(j_common_ptr info) {
    return *static_cast<JpegDecoder*>(info->client_data);
  }

  [[noreturn]] void jump_back() { std::longjmp(back_, 1); }

  /// A file that ends early is only worth a warning to libjpeg, which then makes up pixels.
  void note(int level) {
    const bool is_cut = errors_.msg_code == JWRN_JPEG_EOF || errors_.msg_code == JWRN_HIT_MARKER;
    if (level < 0 && is_cut) jump_back();
  }

  /// Calls a function that calls libjpeg; throws what libjpeg says if it fails.
  template <class Function>
  void guarded(Function function) {
    if (setjmp(back_) == 0) {
      function();
      return;
    }
    char text[JMSG_LENGTH_MAX];
    errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), text);
    fail(text);
  }

  [[noreturn]] static void fail(const std::string& what) {
    throw InvalidArgument("decode_jpeg", cat("the image can't be decoded: ", what));
  }

  void check_size(std::int64_t bytes, std::int64_t most) const {
    if (bytes <= most) return;
    fail(cat("it has ", info_.image_width, " × ", info_.image_height, " pixels, and so ", bytes,
             " bytes; max_bytes is ", most));
  }

  void read_rows(std::uint8_t* rows, std::size_t row_bytes) {
    guarded([&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < info_.output_height) {
        JSAMPROW row = rows + info_.output_scanline * row_bytes;
        jpeg_read_scanlines(&info_, &row, 1);
      }
      jpeg_finish_decompress(&info_);
    });
  }

  /// Files of CMYK hold the opposite of the ink, as Adobe's programs write them.
  static at::Tensor rgb_of_inverted_cmyk(const at::Tensor& image) {
    const at::Tensor wide = image.to(at::kInt);
    return wide.slice(2, 0, 3).mul(wide.slice(2, 3, 4)).add(127).div(255, "floor").to(at::kByte);
  }

  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  std::jmp_buf back_;
};

}  // namespace

at::Tensor decode_jpeg(std::string_view bytes, const ImageOptions& options) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3) {
    throw ValueError("decode_jpeg", cat("expected 0, 1 or 3 channels, got ", options.channels));
  }
  return JpegDecoder().decode(bytes, options);
}

}  // namespace cohort::data
