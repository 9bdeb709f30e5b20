#pragma once

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cohort/device/configuration.h"
#include "cohort/distribute/default_strategy.h"
#include "cohort/distribute/strategy.h"
#include "cohort/strategies/mirrored_strategy.h"
#include "tests/base/failing.h"

namespace cohort {

/// How replicas lie on devices. What is promised holds for every layout.
struct Layout {
  const char* name;
  int devices;
  int replicas;
};

inline void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

inline Strategy mirrored(int devices, int replicas = 0) {
  configure({.cpu_devices = 8});
  std::vector<Device> all;
  for (int i = 0; i < devices; ++i) all.emplace_back(DeviceType::CPU, i);
  return MirroredStrategy({.devices = all, .replicas = replicas});
}

inline int id() { return get_replica_context().replica_id_in_sync_group(); }

template <class T>
std::vector<T> values_of(const PerReplica<T>& value) {
  return {value.values().begin(), value.values().end()};
}

/// A test that runs with one replica, with two, and with eight on two devices.
class OnLayouts : public testing::TestWithParam<Layout> {
 protected:
  const Strategy strategy = mirrored(GetParam().devices, GetParam().replicas);
  const int n = GetParam().replicas;
  const int last = n - 1;

  /// The numbers of the replicas.
  std::vector<int> ids() const {
    std::vector<int> all(n);
    for (int i = 0; i < n; ++i) all[i] = i;
    return all;
  }

  /// After whatever happened, a run with a collective must work as ever.
  void expect_usable() const {
    const auto sums = strategy.run([] {
      const at::Tensor own = at::full({3}, id() + 1., at::kDouble);
      return get_replica_context().all_reduce("SUM", own).sum().item<double>();
    });
    EXPECT_THAT(values_of(sums), testing::Each(3. * n * (n + 1) / 2));
  }
};

/// Instantiates the tests of a suite derived from OnLayouts.
#define ON_ALL_LAYOUTS(Suite)                                                               \
  INSTANTIATE_TEST_SUITE_P(, Suite,                                                         \
                           testing::Values(Layout{"OneReplica", 1, 1}, Layout{"Two", 2, 2}, \
                                           Layout{"EightOnTwo", 2, 8}),                     \
                           [](const auto& info) { return info.param.name; })

}  // namespace cohort
