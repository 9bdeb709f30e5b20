#include "cohort/tpu/topology.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "cohort/tpu/topology_proto.h"
#include "tests/base/failing.h"

namespace cohort::tpu {
namespace {

using Tasks = std::vector<std::vector<Coordinates>>;

constexpr int kHuge = std::numeric_limits<int>::max();

/// 2x2x1 chips with one core each; the one at x = 1, y = 0 is missing.
Topology with_a_gap() {
  return Topology({2, 2, 1, 1}, {{{0, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}}});
}

/// What parse says of bytes with these fields.
std::string refusal_of(const TopologyProto& proto) {
  return failure_of([&] { Topology::parse(write_topology_proto(proto)); });
}

TEST(Topology, KnowsItsShapeAndItsTasks) {
  const Topology topology({2, 1, 1, 2},
                          {{{0, 0, 0, 0}, {0, 0, 0, 1}}, {{1, 0, 0, 0}, {1, 0, 0, 1}}});
  EXPECT_EQ(topology.mesh_shape(), (std::vector{2, 1, 1, 2}));
  EXPECT_EQ(topology.mesh_rank(), 4);
  EXPECT_EQ(topology.num_tasks(), 2);
  EXPECT_EQ(topology.num_tpus_per_task(), 2);
  EXPECT_EQ(topology.device_coordinates()[1][0], (Coordinates{1, 0, 0, 0}));
}

TEST(Topology, GivesOfATemporaryWhatTheCallerKeeps) {
  static_assert(!std::is_reference_v<decltype(with_a_gap().mesh_shape())>);
  static_assert(!std::is_reference_v<decltype(with_a_gap().device_coordinates())>);
  int cores = 1;
  for (const int size : with_a_gap().mesh_shape()) cores *= size;
  EXPECT_EQ(cores, 4);
  const auto& tasks = with_a_gap().device_coordinates();
  EXPECT_EQ(tasks[0][1], (Coordinates{0, 1, 0, 0}));
}

TEST(Topology, NeedsAMeshOfFourPositiveNumbers) {
  EXPECT_FAILS(Topology({2, 2, 1}, {{{0, 0, 0, 0}}}), ValueError,
               "mesh_shape must be 4 positive numbers");
  EXPECT_FAILS(Topology({2, 2, 1}, {}), ValueError, "got [2, 2, 1]");
  EXPECT_FAILS(Topology({2, 2, 1, 1, 1}, {}), ValueError, "mesh_shape");
  EXPECT_FAILS(Topology({2, 0, 1, 1}, {}), ValueError, "got [2, 0, 1, 1]");
  EXPECT_FAILS(Topology({2, 2, -1, 1}, {}), ValueError, "mesh_shape");
  EXPECT_FAILS(Topology({}, {}), ValueError, "got []");
  EXPECT_FAILS(Topology({kHuge, kHuge, kHuge, kHuge}, {}), ValueError, "has more than");
}

TEST(Topology, NeedsFourCoordinatesOfEachDevice) {
  EXPECT_FAILS(Topology({2, 2, 1, 1}, {{{0, 0, 0}}}), ValueError, "got [0, 0, 0]");
  EXPECT_FAILS(Topology({2, 2, 1, 1}, {{{0, 0, 0, 0, 0}}}), ValueError, "expected the 4 coord");
}

TEST(Topology, NeedsDevicesInsideOfTheMesh) {
  EXPECT_FAILS(Topology({2, 2, 1, 1}, {{{0, 2, 0, 0}}}), ValueError,
               "in the mesh [2, 2, 1, 1], got [0, 2, 0, 0]");
  EXPECT_FAILS(Topology({2, 2, 1, 1}, {{{0, -1, 0, 0}}}), ValueError, "got [0, -1, 0, 0]");
}

TEST(Topology, NeedsAsManyDevicesInEachTask) {
  EXPECT_FAILS(Topology({2, 2, 1, 1}, {{{0, 0, 0, 0}}, {}}), ValueError,
               "task 0 has 1, task 1 has 0");
}

TEST(Topology, MissesTheMeshPointsWithoutADevice) {
  EXPECT_EQ(with_a_gap().missing_devices(), (std::vector<Coordinates>{{1, 0, 0, 0}}));
  EXPECT_EQ(Topology({1, 2, 1, 2}, {{{0, 0, 0, 1}}}).missing_devices(),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {0, 1, 0, 0}, {0, 1, 0, 1}}));
  EXPECT_TRUE(Topology::full_mesh({2, 2, 2, 2}).missing_devices().empty());
}

TEST(Topology, FindsTheTaskAndTheDeviceAtAPlace) {
  const Topology topology = Topology::full_mesh({2, 2, 1, 2}, 2);
  EXPECT_EQ(topology.task_ordinal_at_coordinates({0, 1, 0, 0}), 1);
  EXPECT_EQ(topology.tpu_device_ordinal_at_coordinates({0, 1, 0, 0}), 0);
  EXPECT_EQ(topology.tpu_device_ordinal_at_coordinates({1, 1, 0, 1}), 3);
}

TEST(Topology, NamesDevicesAndTheirHosts) {
  const Topology topology = Topology::full_mesh({2, 2, 1, 2}, 2);
  EXPECT_EQ(topology.tpu_device_name_at_coordinates({1, 1, 0, 0}), "/task:1/device:TPU:2");
  EXPECT_EQ(topology.cpu_device_name_at_coordinates({1, 1, 0, 0}), "/task:1/device:CPU:0");
  EXPECT_EQ(topology.tpu_device_name_at_coordinates({0, 1, 0, 0}, "w"),
            "/job:w/task:1/device:TPU:0");
  EXPECT_EQ(topology.cpu_device_name_at_coordinates({0, 1, 0, 0}, "w"),
            "/job:w/task:1/device:CPU:0");
}

TEST(Topology, NumbersTheTaskAndTheDeviceAtAGapMinusOne) {
  const Coordinates gap{1, 0, 0, 0};
  EXPECT_EQ(with_a_gap().task_ordinal_at_coordinates(gap), -1);
  EXPECT_EQ(with_a_gap().tpu_device_ordinal_at_coordinates(gap), -1);
  EXPECT_EQ(with_a_gap().tpu_device_name_at_coordinates(gap), "/task:-1/device:TPU:-1");
  EXPECT_EQ(with_a_gap().cpu_device_name_at_coordinates(gap, "w"), "/job:w/task:-1/device:CPU:0");
}

TEST(Topology, RefusesPlacesOutsideOfTheMesh) {
  const Topology topology = Topology::full_mesh({2, 2, 1, 2});
  EXPECT_FAILS(topology.task_ordinal_at_coordinates({2, 0, 0, 0}), ValueError, "got [2, 0, 0, 0]");
  EXPECT_FAILS(topology.tpu_device_ordinal_at_coordinates({0, 0, 0, -1}), ValueError, "-1]");
  EXPECT_FAILS(topology.tpu_device_name_at_coordinates({0, 0, 0}), ValueError, "4 coordinates");
  EXPECT_FAILS(topology.cpu_device_name_at_coordinates({}), ValueError, "got []");
}

TEST(Topology, CountsTheLaterOfTwoDevicesAtOnePlace) {
  const Topology topology({1, 1, 1, 1}, {{{0, 0, 0, 0}, {0, 0, 0, 0}}});
  EXPECT_EQ(topology.tpu_device_ordinal_at_coordinates({0, 0, 0, 0}), 1);
}

TEST(FullMesh, NumbersCoresOfAChipThenXThenYThenZ) {
  EXPECT_EQ(Topology::full_mesh({2, 2, 2, 1}).device_coordinates(), (Tasks{{{0, 0, 0, 0},
                                                                            {1, 0, 0, 0},
                                                                            {0, 1, 0, 0},
                                                                            {1, 1, 0, 0},
                                                                            {0, 0, 1, 0},
                                                                            {1, 0, 1, 0},
                                                                            {0, 1, 1, 0},
                                                                            {1, 1, 1, 0}}}));
  EXPECT_EQ(Topology::full_mesh({2, 1, 1, 2}, 2).device_coordinates(),
            (Tasks{{{0, 0, 0, 0}, {0, 0, 0, 1}}, {{1, 0, 0, 0}, {1, 0, 0, 1}}}));
}

TEST(FullMesh, NeedsTasksThatTheCoresCanBeDealtOutTo) {
  EXPECT_FAILS(Topology::full_mesh({2, 2, 1, 2}, 3), ValueError, "8 cores");
  EXPECT_FAILS(Topology::full_mesh({2, 2, 1, 2}, 0), ValueError, "to 0 tasks");
  EXPECT_FAILS(Topology::full_mesh({2, 2}), ValueError, "mesh_shape");
}

TEST(SerializedTopology, IsTensorFlowsMessage) {
  const std::string bytes = Topology({2, 1, 1, 1}, {{{0, 0, 0, 0}}, {{1, 0, 0, 0}}}).serialized();
  EXPECT_EQ(bytes, std::string("\x0a\x04\x02\x01\x01\x01"                  // mesh_shape
                               "\x10\x02\x18\x01"                          // 2 tasks of 1 device
                               "\x22\x08\x00\x00\x00\x00\x01\x00\x00\x00"  // device_coordinates
                               ,
                               20));
}

TEST(SerializedTopology, IsReadBack) {
  for (const Topology& topology :
       {Topology::full_mesh({2, 2, 1, 2}, 2), Topology::full_mesh({200, 1, 1, 2}), with_a_gap(),
        Topology({2, 2, 1, 1}, {})}) {
    const Topology again = Topology::parse(topology.serialized());
    EXPECT_EQ(again.mesh_shape(), topology.mesh_shape());
    EXPECT_EQ(again.device_coordinates(), topology.device_coordinates());
    EXPECT_EQ(again.missing_devices(), topology.missing_devices());
    EXPECT_EQ(again.serialized(), topology.serialized());
  }
}

TEST(SerializedTopology, MayHaveItsListsNumberByNumberAndFieldsThatAreUnknown) {
  const std::string bytes(
      "\x08\x01\x08\x01\x08\x01\x08\x02"  // mesh_shape 1 1 1 2
      "\x10\x01\x18\x01"                  // 1 task of 1 device
      "\x20\x00\x20\x00\x20\x00\x20\x01"  // device_coordinates
      "\x2a\x02\x08\x01"                  // tpu_hardware_feature
      ,
      24);
  const Topology topology = Topology::parse(bytes);
  EXPECT_EQ(topology.mesh_shape(), (std::vector{1, 1, 1, 2}));
  EXPECT_EQ(topology.device_coordinates(), (Tasks{{{0, 0, 0, 1}}}));
  EXPECT_EQ(topology.serialized(), bytes);
}

TEST(SerializedTopology, IsRefusedWithABadMesh) {
  EXPECT_FAILS(Topology::parse(""), ValueError, "mesh_shape must be 4 positive numbers");
  const auto refusal = refusal_of({{2, 2, 1}, 0, 0, {}});
  EXPECT_TRUE(refusal.starts_with("ValueError") && refusal.find("[2, 2, 1]") != std::string::npos);
  EXPECT_NE(refusal_of({{2, -2, 1, 1}, 0, 0, {}}).find("got [2, -2, 1, 1]"), std::string::npos);
}

TEST(SerializedTopology, IsRefusedWithNegativeNumbers) {
  const std::vector one{1, 1, 1, 1};
  EXPECT_NE(refusal_of({one, -1, 1, {}}).find("num_tasks must be"), std::string::npos);
  EXPECT_NE(refusal_of({one, 1, -1, {}}).find("num_tpu_devices_per_task must be"),
            std::string::npos);
  EXPECT_NE(refusal_of({one, 1, 1, {0, 0, -1, 0}}).find("got [0, 0, -1, 0]"), std::string::npos);
}

TEST(SerializedTopology, IsRefusedWithAWrongNumberOfCoordinates) {
  const std::vector one{1, 1, 1, 1};
  EXPECT_NE(refusal_of({one, 1, 2, {0, 0, 0, 0}}).find("4 numbers, got 4"), std::string::npos);
  EXPECT_NE(refusal_of({one, 1, 1, {}}).find("4 numbers, got 0"), std::string::npos);
  EXPECT_NE(refusal_of({one, kHuge, kHuge, {}}).find("num_tasks must be"), std::string::npos);
}

TEST(SerializedTopology, IsRefusedWhenCutOff) {
  const std::string bytes = Topology::full_mesh({2, 2, 1, 2}).serialized();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    if (size == 6 || size == 8) continue;  // up to num_tasks: a mesh without devices
    EXPECT_FAILS(Topology::parse(bytes.substr(0, size)), ValueError, "[Topology");
  }
  EXPECT_FAILS(Topology::parse("\x0a\x7f"), ValueError, "expected the bytes of a TopologyProto");
}

TEST(SerializedTopology, CanHaveAnyBytes) {
  std::minstd_rand random(1);
  const std::string good = Topology::full_mesh({2, 2, 1, 2}, 2).serialized();
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    for (int changes = 0; changes < 1 + round % 4; ++changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    }
    const std::string failure = failure_of([&] { Topology::parse(bytes); });
    EXPECT_TRUE(failure == "nothing" || failure.starts_with("ValueError")) << failure;
  }
}

}  // namespace
}  // namespace cohort::tpu
