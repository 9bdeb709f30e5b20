// Gradients that autograd hands over as conjugated views of other memory.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cohort.h"

namespace cohort {
namespace {

struct ConjugatingImpl : torch::nn::Module {
  ConjugatingImpl() {
    weight = register_parameter("weight", torch::zeros({2}, torch::kComplexDouble));
  }
  at::Tensor forward() { return weight.conj(); }
  at::Tensor weight;
};
TORCH_MODULE(Conjugating);

TEST(LazyGradients, AreSummedOverReplicasAsTheValuesThatTheyShow) {
  using Complex = c10::complex<double>;
  const at::Tensor upstream = torch::tensor({Complex(1, 2), Complex(3, -4)}, at::kComplexDouble);
  const Strategy strategy = MirroredStrategy({"cpu:0", "cpu:1"});
  const auto scope = strategy.scope();
  Model<Conjugating> model;
  Optimizer<torch::optim::SGD> optimizer(model, torch::optim::SGDOptions(1.0));
  strategy.run([&] {
    model().backward(upstream);
    EXPECT_TRUE(torch::equal(model->weight.grad(), upstream.conj() * 2)) << model->weight.grad();
    optimizer.step();
  });
  EXPECT_TRUE(torch::equal(model.state_dict().at("weight"), upstream.conj() * -2));
}

}  // namespace
}  // namespace cohort
