#include "cohort/device/allowed_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <string>

namespace cohort {
namespace {

/// A machine of which only the files are known.
class FakeMachine {
 public:
  FakeMachine& mounts(const std::string& line) { return add("/proc/self/mountinfo", line); }
  FakeMachine& is_in(const std::string& line) { return add("/proc/self/cgroup", line); }
  FakeMachine& has(const std::string& path, const std::string& line) { return add(path, line); }

  std::optional<double> quota() const {
    return cgroup_cpu_quota([this](const std::string& path) -> std::optional<std::string> {
      const auto file = files_.find(path);
      if (file == files_.end()) return std::nullopt;
      return file->second;
    });
  }

 private:
  FakeMachine& add(const std::string& path, const std::string& line) {
    files_[path] += line + "\n";
    return *this;
  }

  std::map<std::string, std::string> files_;
};

constexpr const char* kMountV2 =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
constexpr const char* kMountV1 =
    "33 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct";
constexpr const char* kMountMemoryV1 =
    "34 24 0:30 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory";

TEST(CgroupQuota, IsAbsentWhereThereIsNoCgroup) {
  EXPECT_EQ(FakeMachine().quota(), std::nullopt);
  EXPECT_EQ(FakeMachine().mounts(kMountV2).quota(), std::nullopt);
  EXPECT_EQ(FakeMachine().is_in("0::/job").quota(), std::nullopt);
}

TEST(CgroupQuota, ReadsVersion2) {
  FakeMachine machine;
  machine.mounts(kMountV2).is_in("0::/").has("/sys/fs/cgroup/cpu.max", "250000 100000");
  EXPECT_EQ(machine.quota(), 2.5);
}

TEST(CgroupQuota, IsAbsentWhereVersion2SaysMax) {
  FakeMachine machine;
  machine.mounts(kMountV2).is_in("0::/").has("/sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(machine.quota(), std::nullopt);
}

TEST(CgroupQuota, ReadsVersion1) {
  FakeMachine machine;
  machine.mounts(kMountMemoryV1).mounts(kMountV1);
  machine.is_in("5:memory:/other").is_in("4:cpu,cpuacct:/job");
  machine.has("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000");
  machine.has("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(machine.quota(), 0.5);
}

TEST(CgroupQuota, IsAbsentWhereVersion1SaysMinusOne) {
  FakeMachine machine;
  machine.mounts(kMountV1).is_in("4:cpu,cpuacct:/");
  machine.has("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  machine.has("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(machine.quota(), std::nullopt);
}

TEST(CgroupQuota, IsTheSmallestOnTheWayUp) {
  FakeMachine machine;
  machine.mounts(kMountV2).is_in("0::/slurm/job/step");
  machine.has("/sys/fs/cgroup/slurm/job/step/cpu.max", "800000 100000");
  machine.has("/sys/fs/cgroup/slurm/job/cpu.max", "300000 100000");
  machine.has("/sys/fs/cgroup/slurm/cpu.max", "max 100000");
  machine.has("/sys/fs/cgroup/slurm/job2/cpu.max", "100000 100000");
  EXPECT_EQ(machine.quota(), 3);
}

TEST(CgroupQuota, IsFoundInAContainerThatSeesOnlyItsOwnCgroup) {
  const std::string mount = "40 30 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw";
  for (const char* path : {"0::/docker/abc", "0::/", "0::/docker/abcdef", "0::/elsewhere"}) {
    FakeMachine machine;
    machine.mounts(mount).is_in(path).has("/sys/fs/cgroup/cpu.max", "200000 100000");
    EXPECT_EQ(machine.quota(), 2) << path;
  }
  FakeMachine machine;
  machine.mounts(mount).is_in("0::/docker/abc/inner");
  machine.has("/sys/fs/cgroup/inner/cpu.max", "100000 100000");
  EXPECT_EQ(machine.quota(), 1);
}

TEST(CgroupQuota, LooksAtBothVersionsWhereBothAreMounted) {
  FakeMachine machine;
  machine.mounts(kMountV1).mounts(
      "35 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate");
  machine.is_in("4:cpu,cpuacct:/").is_in("0::/");
  machine.has("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000");
  machine.has("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(machine.quota(), 4);
  machine.has("/sys/fs/cgroup/unified/cpu.max", "100000 100000");
  EXPECT_EQ(machine.quota(), 1);
}

TEST(CgroupQuota, DoesNotTakeCpuacctOrCpusetForCpu) {
  FakeMachine machine;
  machine.mounts("33 24 0:29 / /cg/cpuset rw - cgroup cgroup rw,cpuset");
  machine.is_in("4:cpuset:/").has("/cg/cpuset/cpu.cfs_quota_us", "1");
  machine.has("/cg/cpuset/cpu.cfs_period_us", "1");
  EXPECT_EQ(machine.quota(), std::nullopt);
}

TEST(CgroupQuota, IgnoresWhatItDoesNotUnderstand) {
  for (const char* text :
       {"", "\n", "many 100000", "100000", "100000 0", "0 100000", "-5 100000"}) {
    FakeMachine machine;
    machine.mounts("").mounts("garbage").mounts(kMountV2).is_in("").is_in(":").is_in("0::/a");
    machine.has("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(machine.quota(), std::nullopt) << text;
  }
}

TEST(AllowedCores, AreAtLeastOneAndFollowAffinity) {
  EXPECT_GE(allowed_cores(), 1);

  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(allowed_cores(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(allowed_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace cohort
