// The snippets of docs/guide/input.md, as they stand there.
#include "tests/docs/guide_fixture.h"

#include <filesystem>
#include <fstream>

#include "tests/io/scratch_folder.h"

namespace data = cohort::data;

// clang-format off

TEST_F(Guide, DistributedInput) {
  namespace data = cohort::data;
  cohort::MirroredStrategy strategy({.replicas = 2});

  auto dataset = data::fashion_mnist("test")
                     .shuffle(10'000, {.seed = 1})
                     .batch(64)  // the global batch
                     .take(3);
  auto distributed = strategy.distribute_dataset(dataset);
  std::cout << distributed.explain();
  for (const auto& batch : distributed) {
    strategy.run([](const data::Example& own) { assert(own.images.size(0) == 32); }, batch);
  }
}

TEST_F(Guide, ElementsOfStructs) {
  struct Point {
    torch::Tensor x;
    data::Strings name;
  };
  auto points = data::range(10)
                    .filter([](std::int64_t i) { return i % 2 == 0; })
                    .map([](std::int64_t i) {
                      return Point{torch::full({3}, i), data::Strings::scalar(std::to_string(i))};
                    }, {.parallel = 2})
                    .batch(2);
  for (const Point& batch : points) assert(batch.x.size(0) == batch.name.size(0));
}

TEST_F(Guide, ErrorsOfFunctions) {
  auto halves = data::from_tensor_slices(std::vector<std::string>{"0.5", "half"}).map([](const std::string& text) {
    return std::stof(text);
  });
  data::ErrorCount left_out;
  for (float half : halves.ignore_errors({.count = left_out})) assert(half == 0.5f);
  assert(left_out.get() == 1);
  try {
    for (float half : halves) assert(half == 0.5f);
  } catch (const std::invalid_argument& error) {
    assert(std::string(error.what()) == "stof (element 1 of map)");
  }
}

TEST_F(Guide, ElementsTakenApart) {
  cohort::MirroredStrategy strategy({.replicas = 2});

  auto zipped = strategy.distribute_dataset(data::zip(data::range(8), data::range(8, 16)).batch(4));
  for (const auto& [x, y] : zipped) {
    strategy.run([](torch::Tensor x, torch::Tensor y) { assert(torch::equal(x + 8, y)); }, x, y);
  }
  for (const auto& pair : zipped) {
    strategy.run([](const std::pair<torch::Tensor, torch::Tensor>& own) { assert(own.first.size(0) == 2); }, pair);
  }
}

TEST_F(Guide, RandomNumbersAndPositions) {
  auto noisy = data::range(100).map([](std::int64_t i, at::Generator generator) {
    return torch::full({2}, i) + torch::rand({2}, generator);
  }, {.parallel = 2});

  auto iterator = noisy.iterator();
  iterator.next();
  const std::string saved = iterator.position().bytes();  // seeds and counts, no elements

  auto resumed = noisy.iterator();
  resumed.restore(data::Position::from_bytes(saved));
  assert(torch::equal(*iterator.next(), *resumed.next()));
}

TEST_F(Guide, OneDatasetAWorker) {
  cohort::MirroredStrategy strategy({.replicas = 2});

  auto from_function = strategy.distribute_datasets_from_function([](const cohort::InputContext& input) {
    return data::range(1000)
        .shard(input.num_input_pipelines, input.input_pipeline_id)
        .batch(input.per_replica_batch_size(8));
  });
  assert(from_function.cardinality() == 125);
}

TEST_F(Guide, UnevenWorkers) {
  auto own_shard = [](const cohort::InputContext& input) {  // input_pipeline_id is the replica's id in the job
    return data::range(1000).shard(input.num_input_pipelines, input.input_pipeline_id).batch(4);
  };
  cohort::run_workers(3, [&](const cohort::Worker& worker) {
    cohort::MultiWorkerMirroredStrategy job({.worker = worker, .replicas = 8});  // 0-2, 3-5, 6 and 7
    auto by_data = job.distribute_dataset(data::range(1000).batch(64));
    auto by_replica = job.distribute_datasets_from_function(
        own_shard, {.replication_mode = cohort::InputReplicationMode::PER_REPLICA});
    assert(by_data.iterator().get_next().size() == std::size_t(worker.index() < 2 ? 3 : 2));
    assert(by_replica.iterator().get_next().values()[0].size(0) == 4);
  });
}

/// Works in a folder of its own, since the snippets name files as users do.
class GuideWithFiles : public Guide {
 protected:
  GuideWithFiles() { std::filesystem::current_path(folder_.path(".")); }
  ~GuideWithFiles() override { std::filesystem::current_path(before_); }

  const std::filesystem::path before_ = std::filesystem::current_path();
  cohort::ScratchFolder folder_;
};

TEST_F(GuideWithFiles, OfTextAndArrays) {
  std::ofstream("lines.txt") << "one\ntwo\n";
  std::ofstream("table.csv") << "height,name\n1.5,ada\n1.7,grace\n";

  auto lines = data::text_lines("lines.txt");                     // "one", "two"
  auto rows = data::csv("table.csv", {.header = true});           // {"1.5", "ada"}, {"1.7", "grace"}
  auto heights = rows.map([](const std::vector<std::string>& row) { return std::stof(row[0]); });
  auto fours = data::fixed_length_records("lines.txt", {.record_bytes = 4});  // "one\n", "two\n"
  assert(lines.batch(2).iterator().next()->numel() == 2 && heights.iterator().next() == 1.5f);
  assert(fours.iterator().next() == "one\n");

  cohort::io::write_npy("features.npy", torch::rand({100, 8}));   // or numpy.save()
  auto features = data::npy("features.npy").shuffle(100).batch(32);
  assert(features.iterator().next()->sizes() == torch::IntArrayRef({32, 8}));
}

TEST_F(GuideWithFiles, TFRecordsAndPolicies) {
  for (int file = 0; file < 4; ++file) {
    cohort::io::TFRecordWriter writer("train-" + std::to_string(file) + ".tfrecord");
    for (int label = 0; label < 10; ++label) {
      const std::string pixels(28 * 28, static_cast<char>(label));
      writer.write(cohort::io::ExampleBuilder().bytes("image", pixels).int64("label", label).serialize());
    }
    writer.close();
  }

  auto examples =
      data::tf_records(data::list_files("train-*.tfrecord"), {.parallel_reads = 2})
          .batch(8)  // parsing many at once is fast
          .map([](const data::Strings& records) {
            auto parsed = data::parse_example(records, {.features = {
                {"image", data::Feature::raw(torch::kByte, {28, 28})},
                {"label", data::Feature::int64()},
                {"weight", data::Feature::float32().default_value(1)}}});
            return data::Example{parsed.tensor("image"), parsed.tensor("label")};
          }, {.parallel = 2})
          .prefetch();
  for (const data::Example& batch : examples) assert(batch.images.size(1) == 28);

  cohort::MirroredStrategy strategy({.replicas = 2});
  auto files = data::list_files("train-*.tfrecord");
  auto batches = data::tf_records(files).batch(8);
  using data::AutoShardPolicy;
  auto by_file = strategy.distribute_dataset(batches, {.auto_shard = AutoShardPolicy::FILE});
  auto by_replica = strategy.distribute_dataset(batches, {.auto_shard = AutoShardPolicy::FILE_BY_REPLICA});
  auto by_data = strategy.distribute_dataset(batches, {.auto_shard = AutoShardPolicy::DATA});
  auto all = strategy.distribute_dataset(batches.options({.auto_shard = AutoShardPolicy::OFF}));
  auto by_hint = strategy.distribute_dataset(
      data::tf_records(files.shard(data::SHARD_HINT)).batch(8), {.auto_shard = AutoShardPolicy::HINT});
  std::cout << by_replica.explain();
  for (const auto& batch : by_replica) {
    strategy.run([](const data::Strings& own) { assert(own.numel() <= 4); }, batch);
  }
}

TEST_F(GuideWithFiles, OtherSourcesAndCaches) {
  auto counted = data::from_generator([] {
    return [i = 0]() mutable { return i < 3 ? std::optional(i++) : std::nullopt; };  // nullopt: the end
  });
  auto ones = data::from_tensors(torch::ones({2})).repeat(3);
  auto pairs = data::from_tensor_slices(std::pair(torch::rand({6, 2}), torch::arange(6)));
  auto mnist = data::from_torch(torch::data::datasets::TensorDataset(torch::rand({5, 2})));
  assert(ones.cardinality() == 3 && pairs.cardinality() == 6 && mnist.cardinality() == 5);
  assert(data::zip(counted, ones).batch(3).iterator().next()->second.size(0) == 3);

  auto slow = pairs.map([](const torch::Tensor& x, const torch::Tensor& y) { return x.sum() + y; });
  auto in_memory = slow.cache();              // made once in this process
  auto in_a_file = slow.cache("slow.cache");  // made once; delete the file when the input has changed
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& x : in_a_file) assert(x.dim() == 0);
  }
}
