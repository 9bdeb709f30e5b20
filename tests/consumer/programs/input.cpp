// Input pipelines and how they are distributed.
#include <cohort/cohort.h>

namespace data = cohort::data;

int main(int argc, char** argv) {  // train-*.tfrecord features.npy
  cohort::MirroredStrategy strategy({"cpu:0", "cpu:1"});

  // Files: in a multi-worker job each worker reads its own files (AUTO -> FILE).
  auto records = data::tf_records(data::list_files(argv[1]), {.parallel_reads = 4})
                     .map(
                         [](const std::string& bytes) {
                           return data::parse_example(
                               bytes, {.features = {{"image", data::Feature::bytes()},
                                                    {"label", data::Feature::int64()}}});
                         },
                         {.parallel = 2})
                     .shuffle(10'000)
                     .batch(64)
                     .prefetch(2);
  auto distributed =
      strategy.distribute_dataset(records, {.auto_shard = data::AutoShardPolicy::FILE});
  std::cout << distributed.element_spec() << '\n';

  // One pipeline per worker, with the per-replica batch size.
  auto from_function =
      strategy.distribute_datasets_from_function([](const cohort::InputContext& input) {
        return data::range(1000)
            .shard(input.num_input_pipelines, input.input_pipeline_id)
            .batch(input.per_replica_batch_size(/*global_batch_size=*/8));
      });

  // Values without a dataset, and arrays that Python wrote.
  auto ids = strategy.distribute_values_from_function([](const cohort::ValueContext& value) {
    return torch::tensor(value.replica_id_in_sync_group);
  });
  auto array = strategy.make_numpy_dataset(argv[2]).batch(32);
}
