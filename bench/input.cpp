// How fast the input pipeline is: against a plain read, LibTorch's own loader, and no pipeline.
//
//     bench_input                          # all of them
//     bench_input write <folder>           # the files that other systems are compared on
//     bench_input <case> <folder> <seconds>   # prints elements/s; see tools/bench_peers
#include <cohort/cohort.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "../examples/fashion_net.h"
#include "harness.h"

namespace {

namespace data = cohort::data;
using bench::at_least;
using bench::at_most;
using torch::Tensor;

constexpr std::int64_t kBatch = 256;

void write_records(const std::string& path, std::int64_t record_bytes, std::int64_t total_bytes) {
  cohort::io::TFRecordWriter writer(path);
  std::string record(record_bytes, '\0');
  for (std::int64_t i = 0; i * record_bytes < total_bytes; ++i) {
    for (std::int64_t b = 0; b < record_bytes; b += 61) record[b] = static_cast<char>(i + b);
    writer.write(record);
  }
  writer.close();
}

/// A TFRecord file of records of one size, deleted in the end.
class RecordFile {
 public:
  RecordFile(std::int64_t record_bytes, std::int64_t total_bytes)
      : path_(cohort::cat(std::filesystem::temp_directory_path().string(), "/cohort_bench_",
                          getpid(), '_', record_bytes, ".tfrecord")) {
    write_records(path_, record_bytes, total_bytes);
  }
  ~RecordFile() { std::filesystem::remove(path_); }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

/// All bytes of the file, in blocks of 1 MiB into one buffer, which starts at a page: elsewhere the
/// kernel takes twice as long.
void plain_read(const std::string& path) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  static const auto buffer = cohort::io::BlockPool::allocate(kBytes);
  const int file = open(path.c_str(), O_RDONLY);
  while (read(file, buffer.get(), kBytes) > 0) {
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

/// Fashion-MNIST as it is in the files: [60000, 28, 28] of kByte, and [60000].
const std::pair<Tensor, Tensor>& fashion_mnist() {
  static const std::string folder = "/usr/share/datasets/fashion-mnist/";
  static const std::pair<Tensor, Tensor> all(
      cohort::io::read_idx(folder + "train-images-idx3-ubyte.gz"),
      cohort::io::read_idx(folder + "train-labels-idx1-ubyte.gz"));
  return all;
}

/// The same, as LibTorch's loader wants it.
class LibTorchDataset : public torch::data::datasets::Dataset<LibTorchDataset> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {fashion_mnist().first[row], fashion_mnist().second[row]};
  }
  c10::optional<std::size_t> size() const override { return fashion_mnist().second.size(0); }
};

/// Goes over all images once.
std::int64_t shuffle_and_batch(std::int64_t buffer) {
  static const auto slices = data::from_tensor_slices(fashion_mnist());
  std::int64_t samples = 0;
  for (const auto& batch : slices.shuffle(buffer).batch(kBatch)) samples += batch.first.size(0);
  return samples;
}

void shuffle_and_batch(bench::Report& report) {
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      LibTorchDataset().map(torch::data::transforms::Stack<>()), kBatch);
  const auto theirs = [&] {
    for (auto& batch : *loader) {
      if (!batch.data.defined()) throw cohort::RuntimeError("bench", "no images");
    }
  };
  const bench::Comparison comparison(
      {[] { shuffle_and_batch(10'000); }, [] { shuffle_and_batch(60'000); }, theirs},
      {.seconds = 9});
  for (const int side : {0, 1}) {
    report.add(cohort::cat("shuffle_batch/", side == 0 ? "10000" : "60000", "/vs_libtorch"),
               comparison.ratio(2, side), "ratio",
               cohort::cat("samples/s of torch::data::make_data_loader; here ",
                           60'000 / comparison.time(side)),
               at_least(1));
  }
  report.add("shuffle_batch/vs_libtorch", std::min(comparison.ratio(2, 0), comparison.ratio(2, 1)),
             "ratio", "the smaller of the two", at_least(1));
}

/// Fashion-MNIST as Examples of an image, as its bytes, and a label.
void write_examples(const std::string& path) {
  const auto& [images, labels] = fashion_mnist();
  cohort::io::TFRecordWriter writer(path);
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    const std::string_view image(static_cast<const char*>(images[i].data_ptr()), 28 * 28);
    writer.write(cohort::io::ExampleBuilder()
                     .bytes("image", image)
                     .int64("label", labels[i].item<std::int64_t>())
                     .serialize());
  }
  writer.close();
}

/// From the file to batches of tensors.
std::int64_t parse_examples(const std::string& path) {
  const data::ParseOptions options{
      .features = {{"image", data::Feature::raw(torch::kByte, {28, 28})},
                   {"label", data::Feature::int64()}}};
  const auto examples = data::tf_records(path).batch(kBatch).map([&](const data::Strings& records) {
    const auto parsed = data::parse_example(records, options);
    return data::Example{parsed.tensor("image"), parsed.tensor("label")};
  });
  std::int64_t count = 0;
  for (const data::Example& batch : examples) count += batch.images.size(0);
  return count;
}

/// Trains the main example, with batches from the pipeline or with one that is there.
class Training {
 public:
  Training()
      : strategy_(cohort::MirroredStrategy()),
        scope_(strategy_.scope()),
        optimizer_(model_, torch::optim::AdamOptions(2e-3)),
        batches_(strategy_.distribute_dataset(data::fashion_mnist("train")
                                                  .shuffle(60'000)
                                                  .batch(kBatch, {.drop_remainder = true})
                                                  .repeat())),
        pass_(batches_.iterator()),
        in_memory_(pass_.get_next()) {}

  void with_pipeline() { step(pass_.get_next()); }
  void in_memory() { step(in_memory_); }
  double waited() const { return pass_.waited().count(); }

 private:
  void step(const cohort::PerReplica<data::Example>& batch) {
    strategy_.run(
        [this](const data::Example& own) {
          optimizer_.zero_grad();
          const Tensor losses = torch::nn::functional::cross_entropy(
              model_(own.images), own.labels,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          cohort::average_loss(losses, kBatch).backward();
          optimizer_.step();
        },
        batch);
  }

  cohort::Strategy strategy_;
  cohort::Scope scope_;
  cohort::Model<Net> model_;
  cohort::Optimizer<torch::optim::Adam> optimizer_;
  cohort::DistributedDataset<data::Example> batches_;
  cohort::DistributedIterator<data::Example> pass_;
  const cohort::PerReplica<data::Example> in_memory_;
};

void pipeline(bench::Report& report) {
  Training training;
  const bench::Comparison comparison(
      {[&] { training.with_pipeline(); }, [&] { training.in_memory(); }},
      {.seconds = 16, .slice = 0.2});
  report.add("pipeline/vs_in_memory", comparison.ratio(1, 0), "ratio",
             cohort::cat("samples/s of the example with one batch in memory; steps waited ",
                         training.waited(), " s for input in all"),
             at_least(0.97));
}

void memory(bench::Report& report) {
  const auto dataset = data::fashion_mnist("test")
                           .shuffle(10'000)
                           .batch(kBatch)
                           .map([](const data::Example& batch) { return batch; }, {.parallel = 2})
                           .prefetch(2);
  double after_ten = 0;
  for (int epoch = 1; epoch <= 100; ++epoch) {
    for (const data::Example& batch : dataset) static_cast<void>(batch.images.size(0));
    if (epoch == 10) after_ten = bench::resident_mib();
  }
  report.add("memory/growth", bench::resident_mib() - after_ten, "MiB",
             "resident memory from epoch 10 to epoch 100", at_most(8));
}

/// For comparisons with other systems: the median of the passes.
void print_elements_per_second(const std::function<std::int64_t()>& pass, double seconds) {
  pass();
  std::vector<double> rates;
  for (const double begin = bench::seconds_now(); bench::seconds_now() - begin < seconds;) {
    const double before = bench::seconds_now();
    const auto elements = static_cast<double>(pass());
    rates.push_back(elements / (bench::seconds_now() - before));
  }
  std::cout << bench::median(rates) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "";
  const std::string folder = argc > 2 ? argv[2] : "";
  if (what == "write") {
    write_records(folder + "/tfrecord_1KiB", 1024, 256 << 20);
    write_records(folder + "/tfrecord_100B", 100, 64 << 20);
    write_examples(folder + "/parse_example");
    return 0;
  }
  if (!what.empty()) {
    const std::map<std::string, std::function<std::int64_t()>> cases{
        {"tfrecord_1KiB", [&] { return read_records(folder + "/tfrecord_1KiB"); }},
        {"tfrecord_100B", [&] { return read_records(folder + "/tfrecord_100B"); }},
        {"parse_example", [&] { return parse_examples(folder + "/parse_example"); }},
        {"shuffle_batch_10000", [] { return shuffle_and_batch(10'000); }},
        {"shuffle_batch_60000", [] { return shuffle_and_batch(60'000); }}};
    print_elements_per_second(cases.at(what), argc > 3 ? std::atof(argv[3]) : 3);
    return 0;
  }
  bench::Report report;
  tf_records(report);
  shuffle_and_batch(report);
  memory(report);
  pipeline(report);
}
