#include "cohort/device/device.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <unordered_set>
#include <vector>

#include "cohort/base/error.h"

namespace cohort {
namespace {

std::string full(const std::string& device) {
  return "/job:localhost/replica:0/task:0/device:" + device;
}

std::string refusal_of(std::string_view text) {
  try {
    Device::parse(text);
  } catch (const ValueError& error) {
    return error.what();
  }
  return "";
}

std::vector<Device> as_a_strategy_takes_them(std::vector<Device> devices) { return devices; }

TEST(Device, IsTheFirstCpuSlotByDefault) {
  EXPECT_EQ(Device().name(), full("CPU:0"));
  EXPECT_EQ(Device().spelled(), "cpu:0");
}

TEST(Device, ReadsTheSpellingsOfLibTorchAndOfTensorFlow) {
  for (const auto* text : {"cpu", "cpu:0", "CPU:0", "Cpu:0", "/cpu:0", "/CPU:0", "/device:CPU:0",
                           "/device:cpu:0", "/cpu", "cpu:*", "/job:localhost", "/job:*/cpu:*"}) {
    EXPECT_EQ(Device(text).name(), full("CPU:0")) << text;
  }
  for (const auto* text :
       {"cuda:1", "gpu:1", "GPU:1", "/gpu:1", "/Gpu:1", "/device:GPU:1", "/device:CUDA:1"}) {
    EXPECT_EQ(Device(text).name(), full("GPU:1")) << text;
  }
}

TEST(Device, ReadsTheTaskInAnyOrder) {
  const Device device("/task:1/device:GPU:3/job:worker/replica:2");
  EXPECT_EQ(device.job(), "worker");
  EXPECT_EQ(device.replica(), 2);
  EXPECT_EQ(device.task(), 1);
  EXPECT_EQ(device.type(), DeviceType::CUDA);
  EXPECT_EQ(device.index(), 3);
}

TEST(Device, HasThreeNames) {
  const Device device("/GPU:2");
  EXPECT_EQ(device.name(), full("GPU:2"));
  EXPECT_EQ(device.short_name(), "cuda:2");
  EXPECT_EQ(device.spelled(), "/GPU:2");
}

TEST(Device, PrintsShortAtHomeAndInFullElsewhere) {
  const auto printed = [](const Device& device) { return cat(device); };
  EXPECT_EQ(printed("/device:CPU:1"), "cpu:1");
  EXPECT_EQ(printed("/job:worker/cpu:1"), "/job:worker/replica:0/task:0/device:CPU:1");
  EXPECT_EQ(printed("/task:1/cpu:1"), "/job:localhost/replica:0/task:1/device:CPU:1");
}

TEST(Device, MakesAListOutOfStrings) {
  const auto devices = as_a_strategy_takes_them({"cpu:0", "cpu:1"});
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1], "cpu:1");
  EXPECT_EQ(as_a_strategy_takes_them({"cpu:0"}).size(), 1u);
  EXPECT_EQ(as_a_strategy_takes_them({std::string("cpu:3")}).front().index(), 3);
}

TEST(Device, IsEqualHoweverItWasSpelled) {
  EXPECT_EQ(Device("gpu:0"), Device("/job:localhost/device:GPU:0"));
  EXPECT_EQ(std::hash<Device>()("gpu:0"), std::hash<Device>()("cuda:0"));
  EXPECT_NE(Device("cpu:0"), Device("gpu:0"));
  EXPECT_NE(Device("cpu:0"), Device("cpu:1"));
  EXPECT_NE(Device("cpu:0"), Device("/job:worker/cpu:0"));
  EXPECT_NE(Device("cpu:0"), Device("/replica:1/cpu:0"));
  EXPECT_NE(Device("cpu:0"), Device("/task:1/cpu:0"));
}

TEST(Device, WorksAsAKey) {
  const std::vector<Device> devices = {"cpu:1", "CPU:0", "/cpu:1", "gpu:0", "cpu:10", "cpu:2"};
  EXPECT_EQ(std::unordered_set<Device>(devices.begin(), devices.end()).size(), 5u);
  std::ostringstream order;
  for (const auto& device : std::set<Device>(devices.begin(), devices.end()))
    order << device << ' ';
  EXPECT_EQ(order.str(), "cpu:0 cpu:1 cpu:2 cpu:10 cuda:0 ");
}

TEST(Device, MovesToAnotherTask) {
  const Device device = Device("cpu:1").on_task("worker", 2);
  EXPECT_EQ(device.name(), "/job:worker/replica:0/task:2/device:CPU:1");
  EXPECT_EQ(device.spelled(), device.name());
  EXPECT_FALSE(device.is_local());
  EXPECT_TRUE(Device("cpu:1").is_local());
  EXPECT_THROW(Device().on_task("", 0), ValueError);
  EXPECT_THROW(Device().on_task("worker", -1), ValueError);
}

TEST(Device, MapsEveryCpuSlotToLibTorchsOneCpu) {
  EXPECT_EQ(Device("cpu:7").torch_device(), c10::Device(c10::kCPU));
  EXPECT_EQ(Device("gpu:1").torch_device(), c10::Device(c10::kCUDA, 1));
  EXPECT_EQ(Device("/job:ps/task:3/gpu:1").torch_device(), c10::Device(c10::kCUDA, 1));
  EXPECT_THROW(Device("gpu:100000").torch_device(), ValueError);
}

TEST(Device, IsMadeFromTypeAndIndex) {
  EXPECT_EQ(Device(DeviceType::CUDA, 1), "gpu:1");
  EXPECT_THROW(Device(DeviceType::CPU, -1), ValueError);
  EXPECT_THROW(Device(DeviceType::XLA, 0), ValueError);
}

TEST(MalformedDevice, IsRefused) {
  for (const auto* text : {"",
                           " ",
                           "cpu:-1",
                           "cpu:x",
                           "cpu:",
                           "cpu:1x",
                           "cpu:+1",
                           "cpu: 1",
                           "cpu:0.5",
                           "cpu:99999999999",
                           "cpu:0:1",
                           "cpu 0",
                           " cpu:0",
                           "cpu0",
                           "0",
                           ":0",
                           "tpu:0",
                           "/nonsense:x",
                           "/device:GPU",
                           "/device:TPU:0",
                           "/device:",
                           "device",
                           "/job:",
                           "/job",
                           "/job:7up",
                           "/job:a b",
                           "/job:worker:1",
                           "/task:",
                           "/task:-1",
                           "/task:one",
                           "/replica:",
                           "/cpu:0/gpu:0",
                           "cpu:0/cpu:0",
                           "/job:a/job:b",
                           "/task:0/task:1",
                           "/replica:0/replica:0",
                           "localhost:2222"}) {
    EXPECT_THROW(Device::parse(text), ValueError) << '"' << text << '"';
  }
  EXPECT_THROW(Device(static_cast<const char*>(nullptr)), ValueError);
}

TEST(MalformedDevice, IsToldWhatIsWrongAndWhatIsExpected) {
  EXPECT_EQ(refusal_of("/gpu:x"),
            "[Device] malformed device \"/gpu:x\": \"x\" is not a number from 0; expected cpu:0, "
            "cuda:1, gpu:1, /cpu:0, "
            "/device:GPU:0, /job:worker/task:1 or /job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_NE(refusal_of("tpu:0").find("\"tpu:0\" is not a part of a device"), std::string::npos);
  EXPECT_NE(refusal_of("/device:TPU:0").find("\"TPU\" is neither CPU nor GPU"), std::string::npos);
  EXPECT_NE(refusal_of("").find("it is empty"), std::string::npos);
}

/// What TensorFlow 2.21 printed: shared/oracle/expected/extended.json, cases device/*.
struct OracleCase {
  std::string device, default_device, expected;
};

TEST(Canonicalize, GivesWhatTensorFlowGives) {
  const OracleCase cases[] = {
      {"/cpu:0", "", full("CPU:0")},
      {"CPU:0", "", full("CPU:0")},
      {"/gpu:1", "", full("GPU:1")},
      {"/device:CPU:2", "", full("CPU:2")},
      {"/job:worker/task:1", "/gpu:0", "/job:worker/replica:0/task:1/device:GPU:0"},
      {"/job:worker/cpu:1", "/job:ps/task:3", "/job:worker/replica:0/task:3/device:CPU:1"},
      {"", "", full("CPU:0")},
      {"/replica:2", "", "/job:localhost/replica:2/task:0/device:CPU:0"},
      {"/gpu:2", "/job:worker/replica:0/task:5/device:CPU:0",
       "/job:worker/replica:0/task:5/device:GPU:2"},
      {"/job:w/replica:1/task:2/device:GPU:3", "", "/job:w/replica:1/task:2/device:GPU:3"},
      {"/device:CPU:*", "", full("CPU:0")},
      {"/job:worker", "", "/job:worker/replica:0/task:0/device:CPU:0"},
      {"/Gpu:0", "", full("GPU:0")},
  };
  for (const auto& [device, default_device, expected] : cases) {
    EXPECT_EQ(canonicalize(device, default_device), expected)
        << device << " with " << default_device;
  }
  EXPECT_THROW(canonicalize("/nonsense:x"), ValueError);
  EXPECT_THROW(canonicalize("/device:GPU"), ValueError);
}

TEST(Canonicalize, TakesEachMissingPartFromTheDefault) {
  EXPECT_EQ(canonicalize("", "/job:ps/replica:1/task:2/gpu:3"),
            "/job:ps/replica:1/task:2/device:GPU:3");
  EXPECT_EQ(canonicalize("/device:CPU:*", "/gpu:3"), full("CPU:3"));
  EXPECT_EQ(canonicalize("/job:localhost/replica:0/task:0/cpu:0", "/job:ps/replica:1/task:2/gpu:3"),
            full("CPU:0"));
}

TEST(Canonicalize, RefusesAMalformedDefaultToo) {
  EXPECT_THROW(canonicalize("cpu:0", "tpu:0"), ValueError);
}

TEST(Canonicalize, LeavesAFullNameAsItIs) {
  for (const auto* text : {"cpu:3", "/job:worker/task:1/gpu:0", "/replica:2"}) {
    EXPECT_EQ(canonicalize(canonicalize(text)), canonicalize(text));
  }
}

}  // namespace
}  // namespace cohort
