#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace cohort::data {

/// How an image is decoded.
struct ImageOptions {
  /// 0: as many as the image has. 1: gray. 3: red, green, blue. 4, of a PNG: these and opacity.
  int channels = 0;

  /// The most bytes that the decoded image may have, whatever sizes its header claims: images come
  /// from strangers. The default is a picture of 9,400 × 9,400 in colour.
  std::int64_t max_bytes = std::int64_t{1} << 28;
};

/// The image in the bytes of a JPEG file, as a uint8 tensor of height × width × channels.
///
/// CMYK images become red, green and blue. Throws InvalidArgument, with what libjpeg says, for
/// bytes that are no JPEG, that are damaged or end early, or whose image is larger than
/// `max_bytes`; ValueError for another number of channels than 0, 1 or 3. Any number of threads may
/// call it.
at::Tensor decode_jpeg(std::string_view bytes, const ImageOptions& options = {});

/// The image in the bytes of a PNG file, as a uint8 tensor of height × width × channels.
///
/// Images of 16 bits are scaled to 8 (65535 becomes 255), those of fewer than 8 bits too; a palette
/// becomes its colours. Opacity counts as a channel: 2 are gray and opacity. Throws
/// InvalidArgument, with what libpng says, for bytes that are no PNG, that are damaged or end
/// early, or whose image is larger than `max_bytes`; ValueError for another number of channels than
/// 0, 1, 3 or 4. Any number of threads may call it.
at::Tensor decode_png(std::string_view bytes, const ImageOptions& options = {});

}  // namespace cohort::data
