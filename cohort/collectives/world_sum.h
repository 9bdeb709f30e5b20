#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cohort/collectives/ordered_sum.h"
#include "cohort/collectives/world_lane.h"

namespace cohort {

/// The sum over all workers of buffers that have the same layout everywhere, in tree order over the
/// replicas: what each worker's replicas have added up among themselves (its nodes of the tree) is
/// added to what the others have.
///
/// A worker's memory is cut into a range for each worker. Each sends its parts of a range to the
/// worker that owns it; the owner adds all nodes' parts in the order of the tree, and sends the sum
/// back. So a worker with p nodes sends (p + 1)(W - 1) / W of the bytes. Few bytes go to the chief,
/// which owns everything then: two messages instead of 2(W - 1).
///
/// Make it once for a layout and keep it: it keeps the memory that ranges are received in.
class WorldSum {
 public:
  /// Elements of one dtype that lie side by side.
  struct Segment {
    c10::ScalarType dtype;
    std::int64_t count;

    friend bool operator==(const Segment&, const Segment&) = default;
  };

  /// The dtypes must be ones that can be added.
  WorldSum(const World& world, std::vector<Segment> segments);

  /// True if these are its segments.
  bool is_for(const std::vector<Segment>& segments) const { return segments_ == segments; }

  /// `nodes[j]` has the addresses of the segments that hold the sum of this worker's j-th node
  /// (`World::nodes`), `results` those that get the sum of all; they may be the same. The sum of
  /// segments of floating point is divided by `divisor`. A collective of the lane.
  void run(WorldLane& lane, std::string_view call, std::span<const std::vector<void*>> nodes,
           std::span<void* const> results, double divisor = 1);

 private:
  /// Elements [begin, end) of a segment.
  struct Part {
    std::size_t segment;
    std::int64_t begin, end;
  };

  void cut();
  std::int64_t bytes_of(const std::vector<Part>& parts) const;
  std::int64_t element_size(std::size_t segment) const;
  std::byte* at(void* segment, const Part& part) const;
  std::vector<ConstBytes> to_send(std::span<void* const> addresses,
                                  const std::vector<Part>& parts) const;
  std::vector<MutableBytes> to_fill(std::span<void* const> addresses,
                                    const std::vector<Part>& parts) const;
  void send_parts(WorldLane::Round& round, std::span<const std::vector<void*>> nodes) const;
  void expect_parts(WorldLane::Round& round);
  void add(std::span<const std::vector<void*>> nodes, std::span<void* const> results,
           double divisor) const;
  std::byte* received(std::size_t node, std::size_t part) const;

  const World& world_;
  const std::vector<Segment> segments_;
  const collectives::SumPlan plan_;         // over the nodes of all workers
  std::vector<std::vector<Part>> ranges_;   // of each worker
  std::vector<std::int64_t> part_offsets_;  // of this worker's range in `received_`
  std::int64_t range_bytes_ = 0;            // of one node, aligned
  std::vector<std::size_t> first_node_of_;  // of each worker, among all
  std::vector<std::byte> received_;         // the other workers' nodes, each for this range
};

}  // namespace cohort
