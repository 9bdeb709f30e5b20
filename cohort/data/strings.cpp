#include "cohort/data/strings.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <ostream>
#include <utility>

#include "cohort/base/error.h"

namespace cohort::data {
namespace {

/// The number of strings in an array of these sizes.
std::int64_t product(c10::IntArrayRef sizes) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) result *= size;
  return result;
}

/// A block that grows by copies of strings. Its whole size must be known beforehand.
class BlockWriter {
 public:
  BlockWriter(std::size_t bytes, std::size_t strings)
      : block_(std::make_shared_for_overwrite<char[]>(bytes)) {
    spans_.reserve(strings);
  }

  void append(std::string_view string) {
    if (!string.empty()) std::memcpy(block_.get() + end_, string.data(), string.size());
    spans_.push_back({end_, string.size()});
    end_ += string.size();
  }

  /// What was written. Call it last.
  Strings finish() { return {std::move(block_), std::move(spans_)}; }

 private:
  std::shared_ptr<char[]> block_;
  std::vector<io::Span> spans_;
  std::uint64_t end_ = 0;
};

template <class Range>
Strings copied(const Range& strings) {
  std::size_t bytes = 0;
  for (const std::string_view string : strings) bytes += string.size();
  BlockWriter writer(bytes, strings.size());
  for (const std::string_view string : strings) writer.append(string);
  return writer.finish();
}

void print_quoted(std::ostream& out, std::string_view string) {
  constexpr std::size_t kMost = 32;
  constexpr char kDigits[] = "0123456789abcdef";
  out << '"';
  for (const char c : string.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else if (byte >= 0x20 && byte < 0x7f) {
      out << c;
    } else {
      out << "\\x" << kDigits[byte >> 4] << kDigits[byte & 15];
    }
  }
  out << '"';
  if (string.size() > kMost) out << "… (" << string.size() << " bytes)";
}

/// The product of the sizes that are not -1; -1 if it is too large or a size is negative.
std::int64_t known_product(c10::IntArrayRef sizes) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) {
    if (size == -1) continue;
    if (size < 0 || (size > 0 && result > std::numeric_limits<std::int64_t>::max() / size)) {
      return -1;
    }
    result *= size;
  }
  return result;
}

}  // namespace

Strings::Strings() : Strings(nullptr, std::vector<Span>()) {}

Strings::Strings(const std::vector<std::string>& strings) : Strings(copied(strings)) {}

Strings::Strings(std::span<const std::string_view> strings) : Strings(copied(strings)) {}

Strings::Strings(std::shared_ptr<const char[]> bytes, std::vector<Span> spans)
    : bytes_(std::move(bytes)), count_(static_cast<std::int64_t>(spans.size())), sizes_{count_} {
  spans_ = std::make_shared<const std::vector<Span>>(std::move(spans));
}

Strings::Strings(std::shared_ptr<const char[]> bytes, SharedSpans spans, std::size_t first,
                 Sizes sizes)
    : bytes_(std::move(bytes)),
      spans_(std::move(spans)),
      first_(first),
      count_(product(sizes)),
      sizes_(std::move(sizes)) {}

Strings Strings::scalar(std::string_view string) {
  return Strings(std::span<const std::string_view>(&string, 1)).select(0);
}

std::int64_t Strings::size(std::int64_t dim) const {
  const std::int64_t index = dim < 0 ? dim + this->dim() : dim;
  if (index < 0 || index >= this->dim()) {
    throw ValueError("Strings::size", cohort::cat("there is no dimension ", dim, " in ", sizes()));
  }
  return sizes_[static_cast<std::size_t>(index)];
}

std::string_view Strings::operator[](std::int64_t i) const {
  if (i < 0 || i >= count_) {
    throw ValueError("Strings[]", cohort::cat("there is no string ", i, " of ", count_));
  }
  return spans()[i].of(bytes_.get());
}

Strings::Iterator Strings::begin() const& { return {bytes_.get(), spans()}; }
Strings::Iterator Strings::end() const& { return {bytes_.get(), spans() + count_}; }

std::string_view Strings::str() const {
  if (dim() != 0) {
    throw ValueError("Strings::str", cohort::cat("expected one string with no dimensions, got ",
                                                 "sizes ", sizes(), "; select(row) takes one"));
  }
  return (*this)[0];
}

Strings Strings::slice(std::int64_t from, std::int64_t to) const {
  if (from < 0 || from > to || to > size(0)) {
    throw ValueError("Strings::slice",
                     cohort::cat("rows ", from, " to ", to, " are not in ", sizes()));
  }
  Sizes sizes = sizes_;
  sizes[0] = to - from;
  return {bytes_, spans_, first_ + static_cast<std::size_t>(from * strings_in_row()),
          std::move(sizes)};
}

Strings Strings::select(std::int64_t row) const {
  if (dim() == 0 || row < 0 || row >= sizes_[0]) {
    throw ValueError("Strings::select", cohort::cat("there is no row ", row, " in ", sizes()));
  }
  return {bytes_, spans_, first_ + static_cast<std::size_t>(row * strings_in_row()), row_sizes()};
}

Strings Strings::reshape(c10::IntArrayRef sizes) const {
  Sizes complete(sizes.begin(), sizes.end());
  const std::int64_t known = known_product(sizes);
  const auto unknown = std::find(complete.begin(), complete.end(), -1);
  if (unknown != complete.end() && known > 0) *unknown = count_ / known;
  if (known_product(complete) != count_ ||
      std::find(complete.begin(), complete.end(), -1) != complete.end()) {
    throw ValueError("Strings::reshape",
                     cohort::cat(count_, " strings can't have the sizes ", sizes));
  }
  return {bytes_, spans_, first_, std::move(complete)};
}

Strings Strings::within(std::span<const std::string_view> views) const {
  std::vector<Span> spans;
  spans.reserve(views.size());
  for (const std::string_view view : views) {
    const auto begin = view.empty() ? 0 : static_cast<std::uint64_t>(view.data() - bytes_.get());
    spans.push_back({begin, view.size()});
  }
  return {bytes_, std::move(spans)};
}

Strings Strings::stack(std::span<const Strings> rows) {
  if (rows.empty()) throw InvalidArgument("Strings::stack", "there are no rows");
  for (const Strings& row : rows) {
    if (row.sizes() != rows[0].sizes()) {
      throw InvalidArgument("Strings::stack",
                            cohort::cat("row ", &row - rows.data(), " has sizes ", row.sizes(),
                                        ", expected ", rows[0].sizes(), " as of row 0"));
    }
  }
  Sizes sizes{static_cast<std::int64_t>(rows.size())};
  sizes.append(rows[0].sizes_.begin(), rows[0].sizes_.end());
  return join(rows, std::move(sizes));
}

Strings Strings::cat(std::span<const Strings> parts) {
  if (parts.empty()) throw InvalidArgument("Strings::cat", "there are no parts");
  std::int64_t rows = 0;
  for (const Strings& part : parts) {
    if (part.dim() == 0 || part.row_sizes() != parts[0].row_sizes()) {
      throw InvalidArgument("Strings::cat",
                            cohort::cat("part ", &part - parts.data(), " has sizes ", part.sizes(),
                                        ", part 0 ", parts[0].sizes(), "; rows must agree"));
    }
    rows += part.size(0);
  }
  Sizes sizes = parts[0].sizes_;
  sizes[0] = rows;
  return join(parts, std::move(sizes));
}

Strings Strings::join(std::span<const Strings> parts, Sizes sizes) {
  const auto count = static_cast<std::size_t>(product(sizes));
  const bool one_block = std::all_of(parts.begin(), parts.end(), [&](const Strings& part) {
    return part.bytes_ == parts[0].bytes_;
  });
  Strings result = one_block ? join_spans(parts, count) : join_bytes(parts, count);
  result.sizes_ = std::move(sizes);
  return result;
}

Strings Strings::join_spans(std::span<const Strings> parts, std::size_t count) {
  std::vector<Span> spans;
  spans.reserve(count);
  for (const Strings& part : parts) {
    spans.insert(spans.end(), part.spans(), part.spans() + part.count_);
  }
  return {parts[0].bytes_, std::move(spans)};
}

Strings Strings::join_bytes(std::span<const Strings> parts, std::size_t count) {
  std::size_t bytes = 0;
  for (const Strings& part : parts) {
    for (const std::string_view string : part) bytes += string.size();
  }
  BlockWriter writer(bytes, count);
  for (const Strings& part : parts) {
    for (const std::string_view string : part) writer.append(string);
  }
  return writer.finish();
}

std::int64_t Strings::strings_in_row() const { return product(c10::IntArrayRef(sizes_).slice(1)); }

Strings::Sizes Strings::row_sizes() const {
  return dim() == 0 ? Sizes() : Sizes(sizes_.begin() + 1, sizes_.end());
}

bool operator==(const Strings& a, const Strings& b) {
  return a.sizes() == b.sizes() && std::equal(a.begin(), a.end(), b.begin());
}

std::ostream& operator<<(std::ostream& out, const Strings& strings) {
  constexpr std::int64_t kMost = 6;
  out << "Strings" << strings.sizes() << "{";
  for (std::int64_t i = 0; i < std::min(kMost, strings.numel()); ++i) {
    if (i > 0) out << ", ";
    print_quoted(out, strings[i]);
  }
  return out << (strings.numel() > kMost ? ", …}" : "}");
}

}  // namespace cohort::data
