// The format:
//
//     offset  bytes
//     0       6         \x93NUMPY
//     6       2         version: major, minor
//     8       2 or 4    n, the length of the dictionary: 2 bytes in version 1, little-endian
//     10, 12  n         a dictionary as Python writes it, with spaces and a newline at its end:
//                       {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
//     …                 the elements

#include "cohort/io/npy_header.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>

#include "cohort/base/error.h"
#include "cohort/io/little_endian.h"

namespace cohort::io {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::size_t kNpyPrefix = 8;            // magic and version
constexpr std::size_t kNpyAlignment = 64;        // of the first element
constexpr std::size_t kNpyMostHeader = 1 << 16;  // NumPy refuses what is longer than 10,000

struct NpyType {
  std::string_view name;  // without the order of bytes
  at::ScalarType dtype;
};
constexpr NpyType kNpyTypes[] = {
    {"b1", at::kBool},   {"u1", at::kByte},         {"i1", at::kChar},          {"i2", at::kShort},
    {"i4", at::kInt},    {"i8", at::kLong},         {"f2", at::kHalf},          {"f4", at::kFloat},
    {"f8", at::kDouble}, {"c8", at::kComplexFloat}, {"c16", at::kComplexDouble}};

/// Multiplies sizes that are not 0; nothing if the product is too large.
std::optional<std::int64_t> product_of(std::int64_t first, const std::vector<std::int64_t>& sizes) {
  for (const std::int64_t size : sizes) {
    if (size == 0) continue;
    if (first > std::numeric_limits<std::int64_t>::max() / size) return std::nullopt;
    first *= size;
  }
  return first;
}

/// Reads the dictionary from left to right.
class DictionaryParser {
 public:
  DictionaryParser(const File& file, std::string_view text, std::size_t offset)
      : file_(file), text_(text), offset_(offset) {}

  void parse(NpyHeader& header) {
    expect('{');
    for (int entries = 0; !skip('}'); ++entries) {
      if (entries > 0) expect(',');
      if (entries > 0 && skip('}')) break;
      parse_entry(header);
    }
    skip_spaces();
    if (at_ != text_.size()) fail("the header goes on after its dictionary");
    if (!has_descr_ || !has_order_ || !has_shape_) {
      fail("the header lacks 'descr', 'fortran_order' or 'shape'");
    }
  }

 private:
  void parse_entry(NpyHeader& header) {
    const std::string_view key = parse_string();
    expect(':');
    if (key == "descr" && !has_descr_) {
      parse_descr(header);
      has_descr_ = true;
    } else if (key == "fortran_order" && !has_order_) {
      header.is_fortran_order = parse_bool();
      has_order_ = true;
    } else if (key == "shape" && !has_shape_) {
      header.sizes = parse_shape();
      has_shape_ = true;
    } else {
      fail(cat("the header has an entry '", key, "' that is unknown, or there twice"));
    }
  }

  void parse_descr(NpyHeader& header) {
    if (skip('[')) fail("the elements are structures, which LibTorch has no type for");
    const std::string_view descr = parse_string();
    const bool has_order = !descr.empty() && std::string_view("<>=|").find(descr[0]) != descr.npos;
    const std::string_view name = descr.substr(has_order ? 1 : 0);
    const auto* type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                    [&](const NpyType& known) { return known.name == name; });
    if (type == std::end(kNpyTypes)) {
      fail(cat("the elements are '", descr, "', which LibTorch has no type for"));
    }
    header.dtype = type->dtype;
    header.is_big_endian = descr[0] == '>';
  }

  bool parse_bool() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("expected True or False");
  }

  std::vector<std::int64_t> parse_shape() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!skip(')')) {
      if (!sizes.empty()) expect(',');
      if (!sizes.empty() && skip(')')) break;
      sizes.push_back(parse_number());
      skip('L');  // as Python 2 wrote it
    }
    constexpr std::size_t kMostDimensions = 64;  // of NumPy
    if (sizes.size() > kMostDimensions) fail(cat("the shape has ", sizes.size(), " dimensions"));
    return sizes;
  }

  std::int64_t parse_number() {
    skip_spaces();
    const std::size_t start = at_;
    std::int64_t number = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const int digit = text_[at_] - '0';
      if (number > (std::numeric_limits<std::int64_t>::max() - digit) / 10) {
        fail("a size is too large");
      }
      number = number * 10 + digit;
    }
    if (at_ == start) fail("expected a size");
    return number;
  }

  std::string_view parse_string() {
    const char quote = skip('"') ? '"' : '\'';
    if (quote == '\'') expect(quote);
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) fail("the header ends inside of quotes");
    const std::string_view string = text_.substr(at_, end - at_);
    at_ = end + 1;
    return string;
  }

  void skip_spaces() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  bool skip(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!skip(c)) fail(cat("expected '", c, "' in the header"));
  }

  [[noreturn]] void fail(std::string_view what) const {
    file_.fail(what, static_cast<std::int64_t>(offset_ + at_));
  }

  const File& file_;
  std::string_view text_;
  std::size_t offset_;  // of the text in the file
  std::size_t at_ = 0;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

/// Throws unless the file holds what the header says.
void check_size(const File& file, const NpyHeader& header) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(header.dtype));
  if (!product_of(item, header.sizes)) {
    file.fail("the shape in the header is too large", header.data_offset);
  }
  const std::int64_t held = file.size() - header.data_offset;
  if (held < header.num_bytes()) {
    file.fail(cat("expected ", header.num_bytes(), " bytes of elements, got ", held),
              header.data_offset);
  }
}

}  // namespace

std::int64_t NpyHeader::numel() const {
  const bool is_empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  return is_empty ? 0 : product_of(1, sizes).value_or(0);
}

std::int64_t NpyHeader::num_bytes() const {
  return numel() * static_cast<std::int64_t>(c10::elementSize(dtype));
}

NpyHeader read_npy_header(const File& file) {
  char start[kNpyPrefix + sizeof(std::uint32_t)] = {};
  const std::size_t got = file.read_at(start, sizeof start, 0);
  if (!std::string_view(start, got).starts_with(kNpyMagic)) file.fail("not a .npy file", 0);
  const int version = static_cast<unsigned char>(start[kNpyMagic.size()]);
  if (version < 1 || version > 3) file.fail(cat("version ", version, " is unknown"), 6);
  const std::size_t length_bytes = version == 1 ? sizeof(std::uint16_t) : sizeof(std::uint32_t);
  const std::size_t offset = kNpyPrefix + length_bytes;
  if (got < offset) file.fail("the file ends inside of the header", static_cast<std::int64_t>(got));

  const std::size_t length = version == 1 ? load<std::uint16_t>(start + kNpyPrefix)
                                          : load<std::uint32_t>(start + kNpyPrefix);
  if (length > kNpyMostHeader) file.fail(cat("the header has ", length, " bytes"), kNpyPrefix);
  std::string text(length, ' ');
  const std::size_t held = file.read_at(text.data(), length, static_cast<std::int64_t>(offset));
  if (held < length) {
    file.fail("the file ends inside of the header", static_cast<std::int64_t>(offset + held));
  }
  NpyHeader header;
  header.data_offset = static_cast<std::int64_t>(offset + length);
  DictionaryParser(file, text, offset).parse(header);
  check_size(file, header);
  return header;
}

NpyHeader read_npy_header(const std::string& path) {
  return read_npy_header(File::open(path, "read_npy_header"));
}

std::string npy_header(at::ScalarType dtype, const std::vector<std::int64_t>& sizes) {
  const auto* type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                  [&](const NpyType& known) { return known.dtype == dtype; });
  if (type == std::end(kNpyTypes)) {
    throw InvalidArgument("write_npy", cat("NumPy has no type for ", dtype));
  }
  const char order = c10::elementSize(dtype) == 1 ? '|' : '<';
  std::string text = cat("{'descr': '", order, type->name, "', 'fortran_order': False, 'shape': (");
  for (const std::int64_t size : sizes) text += cat(size, ", ");
  text += "), }";
  const std::size_t used = kNpyPrefix + sizeof(std::uint16_t) + text.size() + 1;
  text.append((kNpyAlignment - used % kNpyAlignment) % kNpyAlignment, ' ');
  text += '\n';
  char length[sizeof(std::uint16_t)];
  store(length, static_cast<std::uint16_t>(text.size()));
  return cat(kNpyMagic, '\1', '\0', std::string_view(length, sizeof length), text);
}

}  // namespace cohort::io
