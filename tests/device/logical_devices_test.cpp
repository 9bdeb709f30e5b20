#include "cohort/device/logical_devices.h"

#include <gtest/gtest.h>

#include <string>

#include "cohort/base/error.h"
#include "cohort/device/allowed_cores.h"
#include "tests/base/scoped_environment.h"

namespace cohort {
namespace {

class LogicalDevices : public testing::Test {
 protected:
  ~LogicalDevices() override { configure({}); }

  static int cpu_slots() { return static_cast<int>(list_logical_devices(DeviceType::CPU).size()); }
  static int gpus() { return static_cast<int>(list_logical_devices(DeviceType::CUDA).size()); }

  static std::string refusal_of(const std::vector<Device>& devices) {
    try {
      resolve_devices(devices, "MirroredStrategy");
    } catch (const ValueError& error) {
      return error.what();
    }
    return "";
  }

  ScopedEnvironment no_slots_{"COHORT_CPU_DEVICES", nullptr};
};

TEST_F(LogicalDevices, AreOnePerAllowedCoreIfNobodySaysOtherwise) {
  EXPECT_EQ(cpu_slots(), allowed_cores());
}

TEST_F(LogicalDevices, AreAsManyAsTheEnvironmentSays) {
  const ScopedEnvironment slots("COHORT_CPU_DEVICES", "3");
  EXPECT_EQ(list_logical_devices(DeviceType::CPU),
            (std::vector<Device>{"cpu:0", "cpu:1", "cpu:2"}));
}

TEST_F(LogicalDevices, AreAsManyAsTheProgramSaysFirstOfAll) {
  const ScopedEnvironment slots("COHORT_CPU_DEVICES", "3");
  configure({.cpu_devices = 8});
  EXPECT_EQ(cpu_slots(), 8);
  configure({});
  EXPECT_EQ(cpu_slots(), 3);
}

TEST_F(LogicalDevices, RefuseABadNumberInTheEnvironmentByName) {
  for (const char* text : {"0", "-1", "two", "2 ", "1e3", "4097"}) {
    const ScopedEnvironment slots("COHORT_CPU_DEVICES", text);
    try {
      list_logical_devices(DeviceType::CPU);
      ADD_FAILURE() << text;
    } catch (const ValueError& error) {
      EXPECT_NE(std::string(error.what()).find("COHORT_CPU_DEVICES"), std::string::npos);
    }
  }
}

TEST_F(LogicalDevices, ABadNumberChangesNothing) {
  configure({.cpu_devices = 5});
  EXPECT_THROW(configure({.cpu_devices = -1}), ValueError);
  EXPECT_THROW(configure({.cpu_devices = kMaxCpuDevices + 1}), ValueError);
  EXPECT_EQ(cpu_slots(), 5);
  EXPECT_EQ(current_configuration().cpu_devices, 5);
}

TEST_F(LogicalDevices, ListTheCpuBeforeTheGpus) {
  configure({.cpu_devices = 2});
  const auto all = list_logical_devices();
  EXPECT_EQ(static_cast<int>(all.size()), 2 + gpus());
  EXPECT_EQ(all.at(1), "cpu:1");
  EXPECT_THROW(list_logical_devices(DeviceType::XLA), ValueError);
}

TEST_F(LogicalDevices, ExistUpToTheirNumber) {
  configure({.cpu_devices = 2});
  EXPECT_TRUE(logical_device_exists("cpu:1"));
  EXPECT_TRUE(logical_device_exists("/job:localhost/replica:0/task:0/device:CPU:1"));
  EXPECT_FALSE(logical_device_exists("cpu:2"));
  EXPECT_FALSE(logical_device_exists(Device(DeviceType::CUDA, gpus())));
  EXPECT_FALSE(logical_device_exists("/job:worker/task:0/cpu:0"));
  EXPECT_FALSE(logical_device_exists("/task:1/cpu:0"));
}

TEST_F(LogicalDevices, AStrategyThatIsNotToldTakesAllGpusElseAllSlots) {
  configure({.cpu_devices = 4});
  EXPECT_EQ(static_cast<int>(default_devices().size()), gpus() > 0 ? gpus() : 4);
  EXPECT_EQ(resolve_devices({}), default_devices());
}

TEST_F(LogicalDevices, AreReturnedAsGivenIfTheyExist) {
  configure({.cpu_devices = 2});
  const auto devices = resolve_devices({"/cpu:1", "CPU:0", "cpu:1"});
  EXPECT_EQ(devices, (std::vector<Device>{"cpu:1", "cpu:0", "cpu:1"}));
  EXPECT_EQ(devices[0].spelled(), "/cpu:1");
}

TEST_F(LogicalDevices, SayWhatExistsAndHowToGetMoreSlots) {
  configure({.cpu_devices = 2});
  if (gpus() > 0) GTEST_SKIP() << "the text is for a machine without GPUs";
  EXPECT_EQ(
      refusal_of({"cpu:0", "/CPU:9"}),
      "[MirroredStrategy] there is no device \"/CPU:9\": this process has cpu:0 … cpu:1 and no "
      "GPU; for more CPU slots call cohort::configure({.cpu_devices = 10}) before the strategy "
      "is made, or set COHORT_CPU_DEVICES=10");
}

TEST_F(LogicalDevices, GiveNoAdviceThatCannotHelp) {
  configure({.cpu_devices = 1});
  EXPECT_NE(refusal_of({"gpu:99"}).find("LibTorch must see the GPU"), std::string::npos);
  EXPECT_NE(refusal_of({"cpu:5000"}).find("4096 CPU slots at most"), std::string::npos);
  EXPECT_NE(refusal_of({"/job:worker/cpu:0"}).find("job localhost"), std::string::npos);
}

}  // namespace
}  // namespace cohort
