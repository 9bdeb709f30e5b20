// How fast the input pipeline is: against a plain read, LibTorch's own loader, and no pipeline.
#include <cohort/cohort.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "harness.h"

namespace {

namespace data = cohort::data;
using bench::at_least;
using bench::at_most;
using torch::Tensor;

constexpr std::int64_t kBatch = 256;

/// A TFRecord file of records of one size, deleted in the end.
class RecordFile {
 public:
  RecordFile(std::int64_t record_bytes, std::int64_t total_bytes)
      : path_(cohort::cat(std::filesystem::temp_directory_path().string(), "/cohort_bench_",
                          getpid(), '_', record_bytes, ".tfrecord")) {
    cohort::io::TFRecordWriter writer(path_);
    std::string record(record_bytes, '\0');
    for (std::int64_t i = 0; i * record_bytes < total_bytes; ++i) {
      for (std::int64_t b = 0; b < record_bytes; b += 61) record[b] = static_cast<char>(i + b);
      writer.write(record);
    }
    writer.close();
  }
  ~RecordFile() { std::filesystem::remove(path_); }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

/// All bytes of the file, in blocks of 1 MiB into one buffer.
void plain_read(const std::string& path) {
  static std::vector<char> buffer(1 << 20);
  const int file = open(path.c_str(), O_RDONLY);
  while (read(file, buffer.data(), buffer.size()) > 0) {
  }
  close(file);
}

/// All records, as batches of Strings.
std::int64_t read_records(const std::string& path) {
  std::int64_t records = 0;
  for (const data::Strings& batch : data::tf_records(path).batch(kBatch)) records += batch.numel();
  return records;
}

/// A changed bit must be noticed: what is measured checks every payload.
bool notices_a_flipped_bit() {
  const RecordFile file(1024, 1 << 20);
  std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekp(500'000);
  const int before = bytes.peek();
  bytes.seekp(500'000);
  bytes.put(static_cast<char>(before ^ 4));
  bytes.close();
  try {
    read_records(file.path());
  } catch (const cohort::InvalidArgument&) {
    return true;
  }
  return false;
}

void tf_records(bench::Report& report) {
  if (!notices_a_flipped_bit()) throw cohort::RuntimeError("bench", "a flipped bit went unnoticed");
  for (const auto& [name, bytes] : {std::pair("1KiB", 1024), std::pair("100B", 100)}) {
    const RecordFile file(bytes, 64 << 20);
    const bench::Comparison comparison(
        {[&] { read_records(file.path()); }, [&] { plain_read(file.path()); }}, {.seconds = 6});
    const double rate =
        static_cast<double>(std::filesystem::file_size(file.path())) / comparison.time(0) / 1e6;
    report.add(cohort::cat("tfrecord/", name, "/vs_read"), comparison.ratio(1, 0), "ratio",
               cohort::cat("a plain read() of the file; here ", rate, " MB/s"),
               std::string(name) == "1KiB" ? at_least(0.5) : bench::Bar());
  }
}

/// Fashion-MNIST's images as numbers, as LibTorch's loader wants them.
class LibTorchDataset : public torch::data::datasets::Dataset<LibTorchDataset> {
 public:
  LibTorchDataset(Tensor images, Tensor labels) : images_(images), labels_(labels) {}
  torch::data::Example<> get(std::size_t index) override {
    return {images_[static_cast<std::int64_t>(index)], labels_[static_cast<std::int64_t>(index)]};
  }
  c10::optional<std::size_t> size() const override { return labels_.size(0); }

 private:
  Tensor images_, labels_;
};

void shuffle_and_batch(bench::Report& report) {
  const std::string folder = "/usr/share/datasets/fashion-mnist/";
  const Tensor images = cohort::io::read_idx(folder + "train-images-idx3-ubyte.gz");
  const Tensor labels = cohort::io::read_idx(folder + "train-labels-idx1-ubyte.gz");
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      LibTorchDataset(images, labels).map(torch::data::transforms::Stack<>()), kBatch);
  const auto ours = [&](std::int64_t buffer) {
    return [=, slices = data::from_tensor_slices(std::pair(images, labels))] {
      for (const auto& batch : slices.shuffle(buffer).batch(kBatch)) {
        if (!batch.first.defined()) throw cohort::RuntimeError("bench", "no images");
      }
    };
  };
  const auto theirs = [&] {
    for (auto& batch : *loader) {
      if (!batch.data.defined()) throw cohort::RuntimeError("bench", "no images");
    }
  };
  const bench::Comparison comparison({ours(10'000), ours(60'000), theirs}, {.seconds = 9});
  for (const int side : {0, 1}) {
    report.add(cohort::cat("shuffle_batch/", side == 0 ? "10000" : "60000", "/vs_libtorch"),
               comparison.ratio(2, side), "ratio",
               cohort::cat("samples/s of torch::data::make_data_loader; here ",
                           60'000 / comparison.time(side)),
               at_least(1));
  }
}

/// The bytes that the process holds, in MiB.
double resident() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void memory(bench::Report& report) {
  const auto dataset = data::fashion_mnist("test")
                           .shuffle(10'000)
                           .batch(kBatch)
                           .map([](const data::Example& batch) { return batch; }, {.parallel = 2})
                           .prefetch(2);
  double after_ten = 0;
  for (int epoch = 1; epoch <= 100; ++epoch) {
    for (const data::Example& batch : dataset) static_cast<void>(batch.image.size(0));
    if (epoch == 10) after_ten = resident();
  }
  report.add("memory/growth", resident() - after_ten, "MiB",
             "resident memory from epoch 10 to epoch 100", at_most(8));
}

}  // namespace

int main() {
  bench::Report report;
  tf_records(report);
  shuffle_and_batch(report);
  memory(report);
}
