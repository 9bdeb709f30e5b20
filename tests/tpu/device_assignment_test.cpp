#include "cohort/tpu/device_assignment.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>

#include "tests/base/captured_log.h"
#include "tests/base/failing.h"

namespace cohort::tpu {
namespace {

using Places = std::vector<std::vector<Coordinates>>;

/// 2x2x1 chips with 2 cores each.
const std::vector<int> kSmall{2, 2, 1, 2};

Places places(const std::vector<int>& mesh, const AssignmentOptions& options) {
  return DeviceAssignment::build(Topology::full_mesh(mesh), options).core_assignment();
}

/// The first core of each replica, for replicas whose other cores follow from it.
std::vector<Coordinates> starts(const std::vector<int>& mesh, const AssignmentOptions& options) {
  std::vector<Coordinates> starts;
  for (const auto& replica : places(mesh, options)) starts.push_back(replica[0]);
  return starts;
}

/// 2x2x1 chips with one core each; the one at x = 1, y = 0 is missing.
Topology mesh_with_a_gap() {
  return Topology({2, 2, 1, 1}, {{{0, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}}});
}

TEST(DeviceAssignment, GivesOfATemporaryWhatTheCallerKeeps) {
  const auto made = [] {
    return DeviceAssignment::build(Topology::full_mesh(kSmall), {.num_replicas = 2});
  };
  static_assert(!std::is_reference_v<decltype(made().topology())>);
  static_assert(!std::is_reference_v<decltype(made().core_assignment())>);
  static_assert(!std::is_reference_v<decltype(made().coordinates(0, 0))>);
  static_assert(!std::is_reference_v<decltype(made().lookup_replicas(0, 0))>);
  const Topology& topology = made().topology();
  EXPECT_EQ(topology.mesh_shape(), kSmall);
  const Coordinates& place = made().coordinates(0, 0);
  EXPECT_EQ(place, (Coordinates{0, 0, 0, 0}));
  const std::vector<int>& replicas = made().lookup_replicas(0, 0);
  EXPECT_EQ(replicas, (std::vector{0, 1}));
  std::size_t cores = 0;
  for (const auto& replica : made().core_assignment()) cores += replica.size();
  EXPECT_EQ(cores, 2u);
}

TEST(BuildAssignment, IsOneReplicaOnTheFirstCoreIfNothingIsAsked) {
  const auto assignment = DeviceAssignment::build(Topology::full_mesh(kSmall));
  EXPECT_EQ(assignment.core_assignment(), (Places{{{0, 0, 0, 0}}}));
  EXPECT_EQ(assignment.num_replicas(), 1);
  EXPECT_EQ(assignment.num_cores_per_replica(), 1);
}

TEST(BuildAssignment, FillsTheCoresOfAChipThenXThenY) {
  EXPECT_EQ(starts(kSmall, {.num_replicas = 2}),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {0, 0, 0, 1}}));
  EXPECT_EQ(starts(kSmall, {.num_replicas = 4}),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1}}));
  EXPECT_EQ(starts(kSmall, {.num_replicas = 8}), (std::vector<Coordinates>{{0, 0, 0, 0},
                                                                           {0, 0, 0, 1},
                                                                           {1, 0, 0, 0},
                                                                           {1, 0, 0, 1},
                                                                           {0, 1, 0, 0},
                                                                           {0, 1, 0, 1},
                                                                           {1, 1, 0, 0},
                                                                           {1, 1, 0, 1}}));
}

TEST(BuildAssignment, MakesAGridCloseToACube) {
  // 8 of 64 chips: 2 along each axis.
  EXPECT_EQ(starts({4, 4, 4, 1}, {.num_replicas = 8}), (std::vector<Coordinates>{{0, 0, 0, 0},
                                                                                 {1, 0, 0, 0},
                                                                                 {0, 1, 0, 0},
                                                                                 {1, 1, 0, 0},
                                                                                 {0, 0, 1, 0},
                                                                                 {1, 0, 1, 0},
                                                                                 {0, 1, 1, 0},
                                                                                 {1, 1, 1, 0}}));
  // 5 of 16: z and the core axis have room for one, so x takes the root of 5 rounded up: 3 of 4.
  EXPECT_EQ(starts({4, 4, 1, 1}, {.num_replicas = 5}),
            (std::vector<Coordinates>{
                {0, 0, 0, 0}, {1, 0, 0, 0}, {2, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}}));
  // 27 of 125: 3 along each axis.
  EXPECT_EQ(starts({5, 5, 5, 1}, {.num_replicas = 27}).back(), (Coordinates{2, 2, 2, 0}));
}

TEST(BuildAssignment, GivesTheCoresOfABlockWithTheLastAxisFastest) {
  EXPECT_EQ(places(kSmall, {.computation_shape = {2, 1, 1, 1}, .num_replicas = 2}),
            (Places{{{0, 0, 0, 0}, {1, 0, 0, 0}}, {{0, 0, 0, 1}, {1, 0, 0, 1}}}));
  EXPECT_EQ(places({4, 4, 1, 2}, {.computation_shape = {2, 2, 1, 1}})[0],
            (std::vector<Coordinates>{{0, 0, 0, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}}));
  EXPECT_EQ(places(kSmall, {.computation_shape = {1, 2, 1, 2}, .num_replicas = 1})[0],
            (std::vector<Coordinates>{{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 1, 0, 0}, {0, 1, 0, 1}}));
}

TEST(BuildAssignment, InterleavesReplicasThatHaveAStride) {
  EXPECT_EQ(places({8, 1, 1, 1}, {.computation_shape = {2, 1, 1, 1},
                                  .computation_stride = {2, 1, 1, 1},
                                  .num_replicas = 4}),
            (Places{{{0, 0, 0, 0}, {2, 0, 0, 0}},
                    {{1, 0, 0, 0}, {3, 0, 0, 0}},
                    {{4, 0, 0, 0}, {6, 0, 0, 0}},
                    {{5, 0, 0, 0}, {7, 0, 0, 0}}}));
}

TEST(BuildAssignment, IsARingWhereWholeChipsFillTheMesh) {
  const AssignmentOptions chips{.computation_shape = {1, 1, 1, 2}, .num_replicas = 4};
  EXPECT_EQ(starts(kSmall, chips),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}, {0, 1, 0, 0}}));
  EXPECT_EQ(places(kSmall, chips)[2], (std::vector<Coordinates>{{1, 1, 0, 0}, {1, 1, 0, 1}}));
  EXPECT_EQ(starts({2, 2, 2, 1}, {.num_replicas = 8}), (std::vector<Coordinates>{{0, 0, 0, 0},
                                                                                 {1, 0, 0, 0},
                                                                                 {1, 1, 0, 0},
                                                                                 {0, 1, 0, 0},
                                                                                 {0, 1, 1, 0},
                                                                                 {1, 1, 1, 0},
                                                                                 {1, 0, 1, 0},
                                                                                 {0, 0, 1, 0}}));
}

TEST(BuildAssignment, IsARingInsideOfTheReplicaTooCoresOfAChipTogether) {
  EXPECT_EQ(places(kSmall, {.computation_shape = {2, 2, 1, 2}}), (Places{{{0, 0, 0, 0},
                                                                          {0, 0, 0, 1},
                                                                          {1, 0, 0, 0},
                                                                          {1, 0, 0, 1},
                                                                          {1, 1, 0, 0},
                                                                          {1, 1, 0, 1},
                                                                          {0, 1, 0, 0},
                                                                          {0, 1, 0, 1}}}));
  EXPECT_EQ(places({4, 2, 1, 1}, {.computation_shape = {2, 2, 1, 1}, .num_replicas = 2}),
            (Places{{{0, 0, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}, {0, 1, 0, 0}},
                    {{2, 0, 0, 0}, {3, 0, 0, 0}, {3, 1, 0, 0}, {2, 1, 0, 0}}}));
}

TEST(BuildAssignment, IsNoRingInAutoWhenPlacesAreLeftOrChipsAreSharedOrStrided) {
  EXPECT_EQ(starts(kSmall, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 2}),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {1, 0, 0, 0}}));
  EXPECT_EQ(starts(kSmall, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 3}),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}}));
  EXPECT_EQ(places({4, 2, 1, 1}, {.computation_shape = {2, 1, 1, 1},
                                  .computation_stride = {2, 1, 1, 1},
                                  .num_replicas = 4})[2],
            (std::vector<Coordinates>{{0, 1, 0, 0}, {2, 1, 0, 0}}));
}

TEST(BuildAssignment, IsAMeshWhenAskedForOne) {
  EXPECT_EQ(starts(kSmall, {.computation_shape = {1, 1, 1, 2},
                            .num_replicas = 4,
                            .order = DeviceOrderMode::MESH}),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {1, 1, 0, 0}}));
}

TEST(BuildAssignment, IsARingWhenAskedForOneThatExists) {
  EXPECT_EQ(starts(kSmall, {.computation_shape = {1, 1, 1, 2},
                            .num_replicas = 4,
                            .order = DeviceOrderMode::RING}),
            (std::vector<Coordinates>{{0, 0, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}, {0, 1, 0, 0}}));
  EXPECT_FAILS(places(kSmall, {.computation_shape = {1, 1, 1, 2},
                               .num_replicas = 2,
                               .order = DeviceOrderMode::RING}),
               ValueError, "RING is not compatible");
  EXPECT_FAILS(places(kSmall, {.num_replicas = 8, .order = DeviceOrderMode::RING}), ValueError,
               "got computation_shape=[1, 1, 1, 1], computation_stride=[1, 1, 1, 1] and "
               "num_replicas=8; use AUTO");
}

TEST(BuildAssignment, WarnsOfAnOddSizeAndGoesRowByRow) {
  const CapturedLog log;
  EXPECT_EQ(starts({3, 2, 1, 1}, {.num_replicas = 6})[3], (Coordinates{0, 1, 0, 0}));
  EXPECT_EQ(log.count(log::Level::WARNING, "Odd dimension"), 1);
}

TEST(BuildAssignment, NeverPutsTwoReplicasOnOneCore) {
  for (const auto& stride : {std::vector{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {2, 2, 2, 1}}) {
    for (int replicas = 1; replicas <= 16; ++replicas) {
      std::set<Coordinates> used;
      const AssignmentOptions options{.computation_shape = {2, 1, 1, 2},
                                      .computation_stride = stride,
                                      .num_replicas = replicas};
      for (const auto& replica : places({4, 4, 2, 2}, options)) {
        used.insert(replica.begin(), replica.end());
      }
      EXPECT_EQ(used.size(), replicas * 4U);
    }
  }
}

TEST(BuildAssignment, NeedsShapesAndStridesOfFourPositiveNumbers) {
  EXPECT_FAILS(places(kSmall, {.computation_shape = {1, 1, 2}}), ValueError,
               "computation_shape must be 4 positive numbers");
  EXPECT_FAILS(places(kSmall, {.computation_shape = {}}), ValueError, "computation_shape=[]");
  EXPECT_FAILS(places(kSmall, {.computation_stride = {1, 1, 1, 1, 1}}), ValueError,
               "computation_stride must be 4 positive numbers");
  EXPECT_FAILS(places(kSmall, {.computation_shape = {0, 1, 1, 1}}), ValueError,
               "computation_shape=[0, 1, 1, 1]");
  EXPECT_FAILS(places(kSmall, {.computation_stride = {1, -1, 1, 1}}), ValueError,
               "computation_stride=[1, -1, 1, 1]");
}

TEST(BuildAssignment, NeedsAReplicaThatFitsIntoTheMesh) {
  EXPECT_FAILS(places(kSmall, {.computation_shape = {4, 1, 1, 1}}), ValueError,
               "does not fit in the TPU mesh of shape [2, 2, 1, 2]");
  EXPECT_FAILS(
      places(kSmall, {.computation_shape = {1, 2, 1, 1}, .computation_stride = {1, 2, 1, 1}}),
      ValueError, "does not fit");
  const int huge = std::numeric_limits<int>::max();
  EXPECT_FAILS(
      places(kSmall, {.computation_shape = {huge, 1, 1, 1}, .computation_stride = {huge, 1, 1, 1}}),
      ValueError, "does not fit");
}

TEST(BuildAssignment, NeedsAsManyReplicasAsFit) {
  EXPECT_FAILS(places(kSmall, {.num_replicas = 9}), ValueError,
               "requested 9 replicas but only 8 replicas with shape [1, 1, 1, 1]");
  // 3 // (2 * 1) * 1 = 1 block along x.
  EXPECT_FAILS(places({3, 1, 1, 1}, {.computation_shape = {2, 1, 1, 1}, .num_replicas = 2}),
               ValueError, "requested 2 replicas but only 1");
  // 5 // (1 * 2) * 2 = 4 along x: the fifth core stays empty.
  EXPECT_FAILS(places({5, 1, 1, 1}, {.computation_stride = {2, 1, 1, 1}, .num_replicas = 5}),
               ValueError, "requested 5 replicas but only 4");
  EXPECT_FAILS(places(kSmall, {.num_replicas = -1}), ValueError, "must not be negative, got -1");
}

TEST(BuildAssignment, MayHaveNoReplicas) {
  const auto assignment = DeviceAssignment::build(
      Topology::full_mesh(kSmall), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 0});
  EXPECT_EQ(assignment.num_replicas(), 0);
  EXPECT_EQ(assignment.num_cores_per_replica(), 2);
}

TEST(BuildAssignment, TakesTheDevicesInTheirOrderWhenSomeAreMissing) {
  EXPECT_EQ(DeviceAssignment::build(mesh_with_a_gap(), {.num_replicas = 2}).core_assignment(),
            (Places{{{0, 0, 0, 0}}, {{0, 1, 0, 0}}}));
  const Topology two_tasks({2, 2, 1, 2},
                           {{{1, 1, 0, 0}, {1, 1, 0, 1}}, {{0, 1, 0, 1}, {0, 0, 0, 0}}});
  EXPECT_EQ(DeviceAssignment::build(two_tasks, {.computation_shape = {1, 1, 1, 2},
                                                .num_replicas = 2,
                                                .order = DeviceOrderMode::RING})
                .core_assignment(),
            (Places{{{1, 1, 0, 0}, {1, 1, 0, 1}}, {{0, 1, 0, 1}, {0, 0, 0, 0}}}));
}

TEST(BuildAssignment, HasNoStrideAndNoMoreReplicasThanDevicesWhenSomeAreMissing) {
  EXPECT_FAILS(DeviceAssignment::build(mesh_with_a_gap(), {.num_replicas = 4}), ValueError,
               "devices of the TPU mesh are missing: it has 3");
  EXPECT_FAILS(DeviceAssignment::build(mesh_with_a_gap(),
                                       {.computation_shape = {2, 1, 1, 1}, .num_replicas = 2}),
               ValueError, "requested 2 replicas of 2 cores");
  EXPECT_FAILS(DeviceAssignment::build(mesh_with_a_gap(), {.computation_stride = {2, 1, 1, 1}}),
               ValueError, "computation_stride=[2, 1, 1, 1]");
  EXPECT_FAILS(DeviceAssignment::build(mesh_with_a_gap(), {.num_replicas = 0}), ValueError,
               "num_replicas=0");
}

TEST(DeviceAssignment, AnswersForEachLogicalCore) {
  const auto assignment = DeviceAssignment::build(
      Topology::full_mesh(kSmall, 2), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
  EXPECT_EQ(assignment.num_replicas(), 4);
  EXPECT_EQ(assignment.num_cores_per_replica(), 2);
  EXPECT_EQ(assignment.topology().num_tasks(), 2);
  EXPECT_EQ(assignment.coordinates(2, 0), (Coordinates{1, 1, 0, 0}));
  EXPECT_EQ(assignment.tpu_ordinal(2, 1), 3);
  EXPECT_EQ(assignment.tpu_ordinal(), 0);
  EXPECT_EQ(assignment.tpu_device(), "/task:0/device:TPU:0");
  EXPECT_EQ(assignment.tpu_device(3, 1), "/task:1/device:TPU:1");
  EXPECT_EQ(assignment.tpu_device(1, 1, "j"), "/job:j/task:0/device:TPU:3");
  EXPECT_EQ(assignment.host_device(), "/task:0/device:CPU:0");
  EXPECT_EQ(assignment.host_device(2, 0, "j"), "/job:j/task:1/device:CPU:0");
}

TEST(DeviceAssignment, RefusesNumbersOfReplicasAndCoresThatDoNotExist) {
  const auto assignment = DeviceAssignment::build(Topology::full_mesh(kSmall), {.num_replicas = 2});
  EXPECT_FAILS(assignment.coordinates(2, 0), ValueError, "no logical core 0 of replica 2");
  EXPECT_FAILS(assignment.coordinates(-1, 0), ValueError, "of replica -1");
  EXPECT_FAILS(assignment.tpu_ordinal(0, 1), ValueError, "no logical core 1 of replica 0");
  EXPECT_FAILS(assignment.tpu_device(0, -1), ValueError, "no logical core -1");
  EXPECT_FAILS(assignment.host_device(5), ValueError, "2 replicas have 1 each");
}

TEST(DeviceAssignment, LooksUpTheReplicasOfATask) {
  const auto assignment = DeviceAssignment::build(
      Topology::full_mesh(kSmall, 2), {.computation_shape = {1, 2, 1, 1}, .num_replicas = 4});
  EXPECT_EQ(assignment.lookup_replicas(0, 0), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(assignment.lookup_replicas(1, 1), (std::vector{0, 1, 2, 3}));
  EXPECT_FAILS(assignment.lookup_replicas(1, 0), ValueError, "logical core 0 in task 1");
  EXPECT_FAILS(assignment.lookup_replicas(5, 0), ValueError, "in task 5: replicas have 2");
}

TEST(DeviceAssignment, CanBeGivenPlaceByPlace) {
  const DeviceAssignment assignment(Topology::full_mesh(kSmall, 2),
                                    {{{1, 1, 0, 0}}, {{0, 0, 0, 1}}, {{0, 0, 0, 1}}});
  EXPECT_EQ(assignment.num_replicas(), 3);
  EXPECT_EQ(assignment.tpu_device(0), "/task:1/device:TPU:2");
  EXPECT_EQ(assignment.lookup_replicas(0, 0), (std::vector{1, 2}));
}

TEST(DeviceAssignment, CanBeGivenPlacesWithoutADevice) {
  const DeviceAssignment assignment(mesh_with_a_gap(), Places{{{0, 0, 0, 0}}, {{1, 0, 0, 0}}});
  EXPECT_EQ(assignment.tpu_ordinal(1), -1);
  EXPECT_EQ(assignment.tpu_device(1), "/task:-1/device:TPU:-1");
  EXPECT_EQ(assignment.lookup_replicas(0, 0), (std::vector{0}));
  EXPECT_EQ(assignment.lookup_replicas(-1, 0), (std::vector{1}));
}

TEST(DeviceAssignment, NeedsPlacesInTheMeshAsManyForEachReplica) {
  const Topology topology = Topology::full_mesh(kSmall);
  EXPECT_FAILS(DeviceAssignment(topology, Places{}), ValueError, "at least one replica");
  EXPECT_FAILS(DeviceAssignment(topology, Places{}), ValueError, "got no replicas");
  EXPECT_FAILS(DeviceAssignment(topology, Places{{}}), ValueError, "at least one core");
  EXPECT_FAILS(DeviceAssignment(topology, Places{{{0, 0, 0, 0}}, {{0, 0, 0, 0}, {0, 0, 0, 1}}}),
               ValueError, "replica 0 has 1, replica 1 has 2");
  EXPECT_FAILS(DeviceAssignment(topology, Places{{{0, 0, 0}}}), ValueError, "got [0, 0, 0]");
  EXPECT_FAILS(DeviceAssignment(topology, Places{{{2, 0, 0, 0}}}), ValueError, "[2, 0, 0, 0]");
}

}  // namespace
}  // namespace cohort::tpu
