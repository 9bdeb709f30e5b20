#include "cohort/device/device.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <ostream>
#include <tuple>
#include <vector>

#include "cohort/base/error.h"

namespace cohort {
namespace {

/// A device as text gives it: any part may be missing.
struct PartialDevice {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<DeviceType> type;
  std::optional<int> index;
};

[[noreturn]] void refuse(std::string_view text, const std::string& reason) {
  throw ValueError("Device", cat("malformed device \"", text, "\": ", reason,
                                 "; expected cpu:0, cuda:1, gpu:1, /cpu:0, /device:GPU:0, "
                                 "/job:worker/task:1 or "
                                 "/job:worker/replica:0/task:1/device:CPU:0"));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const auto end = text.find(separator);
    pieces.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

std::optional<DeviceType> device_type(std::string_view word) {
  std::string lower(word);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "cpu") return DeviceType::CPU;
  if (lower == "gpu" || lower == "cuda") return DeviceType::CUDA;
  return std::nullopt;
}

bool is_job_name(std::string_view word) {
  const auto is_letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  const auto may_follow = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  return !word.empty() && is_letter(word.front()) && std::ranges::all_of(word, may_follow);
}

/// Reads the parts of one text, each by the method with the part's name.
class DeviceParser {
 public:
  explicit DeviceParser(std::string_view text) : text_(text) {}

  PartialDevice parse() {
    for (const auto part : split(text_, '/')) {
      if (!part.empty()) read_part(part, split(part, ':'));
    }
    return result_;
  }

 private:
  void read_part(std::string_view part, const std::vector<std::string_view>& words) {
    const auto key = words.front();
    if (key == "job" && words.size() == 2) return read_job(words[1]);
    if (key == "replica" && words.size() == 2) return read_number(part, words[1], result_.replica);
    if (key == "task" && words.size() == 2) return read_number(part, words[1], result_.task);
    if (key == "device" && words.size() == 3) return read_device(part, words[1], words[2]);
    if (device_type(key) && words.size() <= 2) {
      return read_device(part, key, words.size() == 2 ? words[1] : "*");
    }
    refuse(text_, cat("\"", part, "\" is not a part of a device"));
  }

  void read_job(std::string_view word) {
    if (result_.job) refuse(text_, "it has two jobs");
    if (word == "*") return;
    if (!is_job_name(word)) refuse(text_, cat("\"", word, "\" is not a job name"));
    result_.job = word;
  }

  void read_number(std::string_view part, std::string_view word, std::optional<int>& number) {
    if (number) refuse(text_, cat("\"", part, "\" says again what was said before"));
    if (word == "*") return;
    int value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < 0) {
      refuse(text_, cat("\"", word, "\" is not a number from 0"));
    }
    number = value;
  }

  void read_device(std::string_view part, std::string_view type, std::string_view index) {
    if (result_.type) refuse(text_, "it has two device types");
    result_.type = device_type(type);
    if (!result_.type) refuse(text_, cat("\"", type, "\" is neither CPU nor GPU"));
    read_number(part, index, result_.index);
  }

  std::string_view text_;
  PartialDevice result_;
};

const char* tensorflow_name(DeviceType type) { return type == DeviceType::CPU ? "CPU" : "GPU"; }

auto identity(const Device& device) {
  return std::make_tuple(std::string_view(device.job()), device.replica(), device.task(),
                         static_cast<int>(device.type()), device.index());
}

}  // namespace

Device Device::complete(std::string_view text, std::string_view default_device) {
  const PartialDevice given = DeviceParser(text).parse();
  const PartialDevice fallback = DeviceParser(default_device).parse();
  Device device;
  const auto fill = [&](auto part, auto& into) {
    into = (given.*part).value_or((fallback.*part).value_or(into));
  };
  fill(&PartialDevice::job, device.job_);
  fill(&PartialDevice::replica, device.replica_);
  fill(&PartialDevice::task, device.task_);
  fill(&PartialDevice::type, device.type_);
  fill(&PartialDevice::index, device.index_);
  device.spelled_ = text;
  return device;
}

Device::Device(DeviceType type, int index) : type_(type), index_(index) {
  if (type != DeviceType::CPU && type != DeviceType::CUDA) {
    throw ValueError("Device", cat("expected the type CPU or CUDA, got ", type));
  }
  if (index < 0) throw ValueError("Device", cat("expected an index from 0, got ", index));
}

Device::Device(std::string_view text) : Device(parse(text)) {}
Device::Device(const std::string& text) : Device(parse(text)) {}
Device::Device(const char* text) : Device(parse(text ? text : "")) {}

Device Device::parse(std::string_view text) {
  if (text.empty()) refuse(text, "it is empty");
  return complete(text, {});
}

std::string Device::name() const {
  return cat("/job:", job_, "/replica:", replica_, "/task:", task_,
             "/device:", tensorflow_name(type_), ':', index_);
}

std::string Device::short_name() const {
  return cat(type_ == DeviceType::CPU ? "cpu:" : "cuda:", index_);
}

std::string Device::spelled() const { return spelled_.empty() ? short_name() : spelled_; }

Device Device::on_task(std::string_view job, int task) const {
  if (!is_job_name(job) || task < 0) {
    throw ValueError("Device.on_task",
                     cat("expected a job name and a task from 0, got \"", job, "\" and ", task));
  }
  Device moved = *this;
  moved.job_ = job;
  moved.task_ = task;
  moved.spelled_ = moved.name();
  return moved;
}

c10::Device Device::torch_device() const {
  if (type_ == DeviceType::CPU) return c10::Device(DeviceType::CPU);
  if (index_ > std::numeric_limits<c10::DeviceIndex>::max()) {
    throw ValueError("Device.torch_device", cat("LibTorch cannot count to ", short_name()));
  }
  return c10::Device(type_, static_cast<c10::DeviceIndex>(index_));
}

bool operator==(const Device& a, const Device& b) noexcept { return identity(a) == identity(b); }

std::strong_ordering operator<=>(const Device& a, const Device& b) noexcept {
  return identity(a) <=> identity(b);
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
  return out << (device.is_local() ? device.short_name() : device.name());
}

std::string canonicalize(std::string_view device, std::string_view default_device) {
  return Device::complete(device, default_device).name();
}

}  // namespace cohort

std::size_t std::hash<cohort::Device>::operator()(const cohort::Device& device) const noexcept {
  std::size_t hash = std::hash<std::string_view>()(device.job());
  for (const int part :
       {device.replica(), device.task(), static_cast<int>(device.type()), device.index()}) {
    hash = hash * 1000003 + static_cast<std::size_t>(part);
  }
  return hash;
}
