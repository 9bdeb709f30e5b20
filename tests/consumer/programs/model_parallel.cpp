// Model parallelism: one replica spread over several logical devices. The
// annotations say where a tensor lives; ordinary LibTorch operations follow.
#include <cohort/cohort.h>

#include "net.h"

int main() {
  // A TPU system of 2x2x1 chips with 2 cores each; "local" simulates it on this machine's cores.
  cohort::cluster::TPUClusterResolver resolver("local:2x2x1x2");
  auto topology = cohort::tpu::initialize_system(resolver);
  auto assignment = cohort::tpu::DeviceAssignment::build(
      topology, {.computation_shape = {1, 2, 1, 2}, .num_replicas = 2});
  cohort::TPUStrategy strategy(resolver, assignment);  // 2 replicas of 4 logical devices
  auto scope = strategy.scope();
  cohort::Model<Net> model;

  auto step = [&](const cohort::data::Example& example) {
    auto images = strategy.split_to_logical_devices(example.images,
                                                    {1, 1, 2, 2});  // height and width in halves
    auto logits = model(images);                                    // convolutions exchange halos
    logits = strategy.replicate_to_logical_devices(logits);
    auto labels = strategy.assign_to_logical_device(example.labels, 0);
    auto loss = torch::nn::functional::cross_entropy(logits, labels);
    loss.backward();
    return loss;
  };
  for (const auto& batch :
       strategy.distribute_dataset(cohort::data::fashion_mnist("train").batch(64).take(10)))
    strategy.run(step, batch);
}
