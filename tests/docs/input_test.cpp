// The snippets of docs/guide/input.md, as they stand there.
#include "tests/docs/guide_fixture.h"

namespace data = cohort::data;

// clang-format off

TEST_F(Guide, DistributedInput) {
  cohort::MirroredStrategy strategy;

  auto dataset = data::fashion_mnist("test")
                     .shuffle(10'000, {.seed = 1})
                     .batch(64)  // the global batch
                     .take(3);
  auto distributed = strategy.distribute_dataset(dataset);
  std::cout << distributed.explain();
  for (const auto& batch : distributed) {
    strategy.run([](const data::Example& own) { assert(own.image.size(0) == 32); }, batch);
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
  cohort::MirroredStrategy strategy;

  auto from_function = strategy.distribute_datasets_from_function([](const cohort::InputContext& input) {
    return data::range(1000)
        .shard(input.num_input_pipelines, input.input_pipeline_id)
        .batch(input.per_replica_batch_size(8));
  });
  assert(from_function.cardinality() == 125);
}

TEST_F(Guide, PolicyOfTheCall) {
  cohort::MirroredStrategy strategy;

  auto by_data = strategy.distribute_dataset(data::range(100).batch(10),
                                             {.auto_shard = data::AutoShardPolicy::DATA});
  assert(by_data.cardinality() == 10);
}
