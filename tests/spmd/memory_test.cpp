// Each device holds its share: counted by an allocator that knows which device's thread asks.

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "cohort/base/torch_compat.h"
#include "cohort/device/configuration.h"
#include "cohort/optim/model.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "tests/spmd/agreement.h"

namespace cohort::spmd {
namespace {

using torch::Tensor;

/// Counts what each logical device holds, now and at most.
class DeviceBytes : public torch_compat::Allocator<> {
 public:
  explicit DeviceBytes(c10::Allocator& next) : next_(next) {}

  c10::DataPtr take(std::size_t bytes) const override {
    Count& count = counts_[current_logical_device() % counts_.size()];
    raise(count.peak, count.now += static_cast<std::int64_t>(bytes));
    raise(largest_, static_cast<std::int64_t>(bytes));
    c10::DataPtr data = next_.allocate(bytes);
    void* const memory = data.get();
    if (memory) {
      const std::lock_guard lock(mutex());
      blocks()[memory] = {std::move(data), &count, static_cast<std::int64_t>(bytes)};
    }
    return {memory, memory, &free_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  /// The most bytes that each of the devices held in `step`, beyond those held before.
  template <class F>
  std::vector<std::int64_t> peaks(int devices, F&& step) {
    std::vector<std::int64_t> before;
    for (Count& count : counts_) {
      before.push_back(count.now);
      count.peak = count.now.load();
    }
    largest_ = 0;
    step();
    std::vector<std::int64_t> peaks;
    for (int d = 0; d < devices; ++d) peaks.push_back(counts_[d].peak - before[d]);
    return peaks;
  }

  /// The most bytes at once that `step` asked for.
  std::int64_t largest() const { return largest_; }

 private:
  struct Count {
    std::atomic<std::int64_t> now{0}, peak{0};
  };
  struct Block {
    c10::DataPtr data;
    Count* count = nullptr;
    std::int64_t bytes = 0;
  };
  static void raise(std::atomic<std::int64_t>& most, std::int64_t value) {
    for (std::int64_t before = most;
         value > before && !most.compare_exchange_weak(before, value);) {
    }
  }
  static std::mutex& mutex() {
    static auto* const mutex = new std::mutex();
    return *mutex;
  }
  static std::map<void*, Block>& blocks() {
    static auto* const blocks = new std::map<void*, Block>();
    return *blocks;
  }
  static void free_block(void* memory) {
    if (!memory) return;
    const std::lock_guard lock(mutex());
    const auto entry = blocks().find(memory);
    entry->second.count->now -= entry->second.bytes;
    blocks().erase(entry);
  }

  c10::Allocator& next_;
  mutable std::array<Count, 8> counts_;
  mutable std::atomic<std::int64_t> largest_{0};
};

class Memory : public testing::Test {
 protected:
  Memory() { c10::SetCPUAllocator(&bytes_, /*priority=*/1); }
  ~Memory() override { c10::SetCPUAllocator(&plain_, 1); }

  c10::Allocator& plain_ = *c10::GetCPUAllocator();
  DeviceBytes& bytes_ = counted(plain_);

 private:
  static DeviceBytes& counted(c10::Allocator& plain) {
    static auto* const bytes = new DeviceBytes(plain);  // blocks outlive the tests
    return *bytes;
  }
};

/// Peaks are even, and a part of what one device would hold.
void expect_shares(const std::vector<std::int64_t>& whole, const std::vector<std::int64_t>& parts,
                   double slack) {
  const double share = static_cast<double>(whole[0]) / static_cast<double>(parts.size());
  for (const std::int64_t part : parts) EXPECT_LT(static_cast<double>(part), slack * share);
}

TEST_F(Memory, OfAnActivationIsShared) {
  constexpr int kDevices = 4;
  const auto step = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 3; ++i) y = (y * 1.5).tanh();
    y.sum().backward();
  };
  const Tensor plain = torch::rand({256, 1024}, torch::requires_grad());
  const auto whole = bytes_.peaks(1, [&] { step(plain); });
  const Tensor split = spmd::split(torch::rand({256, 1024}), test_mesh(kDevices), {2, 2})
                           .detach()
                           .set_requires_grad(true);
  const auto parts = bytes_.peaks(kDevices, [&] { step(split); });
  expect_shares(whole, parts, 1.1);
}

TEST_F(Memory, OfAMeansGradientIsShared) {
  constexpr int kDevices = 4;
  const Tensor split = spmd::split(torch::rand({64, 16, 64}), test_mesh(kDevices), {1, 1, 4})
                           .detach()
                           .set_requires_grad(true);
  const auto step = [&](auto&& reduce) {
    return bytes_.peaks(kDevices, [&] { reduce(split.tanh()).sum().backward(); });
  };
  const auto whole = step([](const Tensor& y) { return y.sum(); });
  for (const auto& parts :
       {step([](const Tensor& y) { return y.mean(); }), step([](const Tensor& y) {
          return y.mean(at::IntArrayRef({1, 2}));
        }),
        step([](const Tensor& y) { return y.mean(-1, true); })}) {
    for (int d = 0; d < kDevices; ++d) EXPECT_LT(parts[d], whole[d] + 16'384);
  }
}

TEST_F(Memory, OfSplitWeightsIsShared) {
  constexpr int kDevices = 4;
  const auto step = [](const Tensor& x, const Tensor& up, const Tensor& down) {
    torch::linear(torch::gelu(torch::linear(x, up)), down).sum().backward();
  };
  const Tensor x = torch::rand({64, 128});
  const auto leaf = [](const Tensor& tensor) { return tensor.detach().set_requires_grad(true); };
  const Tensor up = torch::rand({2048, 128}), down = torch::rand({128, 2048});
  const auto whole = bytes_.peaks(1, [&] { step(x, leaf(up), leaf(down)); });
  const auto& mesh = test_mesh(kDevices);
  const Tensor split_up = leaf(spmd::split(up, mesh, {kDevices, 1}));
  const Tensor split_down = leaf(spmd::split(down, mesh, {1, kDevices}));
  const auto parts = bytes_.peaks(kDevices, [&] { step(x, split_up, split_down); });
  expect_shares(whole, parts, 1.5);  // every device has a partial sum of the result
}

/// Weights of 8 MB each, of which two are made in the layout that they get.
struct LargeLayersImpl : torch::nn::Module {
  torch::nn::Embedding token = register_module("token", torch::nn::Embedding(1024, 2048));
  torch::nn::Linear up = register_module("up", torch::nn::Linear(1024, 2048));
  torch::nn::Linear down = register_module("down", torch::nn::Linear(2048, 1024));
};

TEST_F(Memory, OfAModelThatIsMadeInPartsIsSharedFromTheStart) {
  constexpr int kDevices = 4;
  constexpr std::int64_t kPart = std::int64_t{4} * 1024 * 2048 / kDevices;
  constexpr std::int64_t kSmall = std::int64_t{2} << 20;  // biases, and numbers that are drawn
  const ModelOptions options{.split_parameters = {{"token.weight", {kDevices, 1}},
                                                  {"up.weight", {kDevices, 1}},
                                                  {"down.weight", {1, kDevices}}},
                             .make_in_parts = true};
  configure({.cpu_devices = 2});
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = replicas == 1
                                                    ? std::vector<Device>{"cpu:0"}
                                                    : std::vector<Device>{"cpu:0", "cpu:1"},
                                     .replicas = replicas,
                                     .logical_devices_per_replica = kDevices});
    const auto scope = strategy.scope();
    int copies = 0;
    const auto peaks = bytes_.peaks(
        kDevices, [&] { copies = Model<LargeLayersImpl>(options).shared()->copies(); });
    EXPECT_EQ(copies, replicas);
    EXPECT_EQ(bytes_.largest(), kPart);
    for (const std::int64_t peak : peaks) {  // three weights of each, and one that moves
      EXPECT_LE(peak, (3 * replicas + 1) * kPart + kSmall) << replicas;
    }
  }
  configure({});
}

}  // namespace
}  // namespace cohort::spmd
