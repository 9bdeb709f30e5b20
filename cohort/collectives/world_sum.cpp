#include "cohort/collectives/world_sum.h"

#include <algorithm>

namespace cohort {

using collectives::Node;

namespace {

/// Up to here one worker adds for all: two messages cost less than the bytes.
constexpr std::int64_t kSmallBytes = 16 << 10;

/// Ranges begin at whole cache lines, as far as elements do.
constexpr std::int64_t kLine = 64;

std::vector<Node> nodes_of_all(const World& world) {
  std::vector<Node> all;
  for (int w = 0; w < world.workers(); ++w) {
    all.insert(all.end(), world.nodes_of(w).begin(), world.nodes_of(w).end());
  }
  return all;
}

std::int64_t aligned(std::int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

WorldSum::WorldSum(const World& world, std::vector<Segment> segments)
    : world_(world), segments_(std::move(segments)), plan_(nodes_of_all(world)) {
  std::size_t nodes = 0;
  for (int w = 0; w < world.workers(); ++w) {
    first_node_of_.push_back(nodes);
    nodes += world.nodes_of(w).size();
  }
  cut();
  for (const Part& part : ranges_[world.index()]) {
    part_offsets_.push_back(range_bytes_);
    range_bytes_ += aligned((part.end - part.begin) * element_size(part.segment));
  }
  received_.resize(range_bytes_ * (nodes - world.nodes().size()) + kLine);
}

std::int64_t WorldSum::element_size(std::size_t segment) const {
  return static_cast<std::int64_t>(c10::elementSize(segments_[segment].dtype));
}

/// Evenly by bytes, at whole elements, at cache lines of each segment.
void WorldSum::cut() {
  std::int64_t total = 0;
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    total += segments_[s].count * element_size(s);
  }
  const int workers = world_.workers();
  ranges_.resize(workers);
  const int owners = total <= kSmallBytes ? 1 : workers;
  std::int64_t before = 0;  // bytes of the segments so far
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    const std::int64_t size = element_size(s), count = segments_[s].count;
    std::int64_t begin = 0;
    for (int w = 0; w < owners; ++w) {
      const std::int64_t ideal = total / owners * (w + 1) - before;  // bytes into this segment
      const std::int64_t here = std::max<std::int64_t>(ideal, 0) / kLine * kLine / size;
      const std::int64_t end = w + 1 == owners ? count : std::clamp(here, begin, count);
      if (end > begin) ranges_[w].push_back({s, begin, end});
      begin = end;
    }
    before += count * size;
  }
}

std::byte* WorldSum::at(void* segment, const Part& part) const {
  return static_cast<std::byte*>(segment) + part.begin * element_size(part.segment);
}

std::vector<MutableBytes> WorldSum::to_fill(std::span<void* const> addresses,
                                            const std::vector<Part>& parts) const {
  std::vector<MutableBytes> memory;
  for (const Part& part : parts) {
    memory.emplace_back(at(addresses[part.segment], part),
                        (part.end - part.begin) * element_size(part.segment));
  }
  return memory;
}

std::vector<ConstBytes> WorldSum::to_send(std::span<void* const> addresses,
                                          const std::vector<Part>& parts) const {
  const auto memory = to_fill(addresses, parts);
  return {memory.begin(), memory.end()};
}

std::byte* WorldSum::received(std::size_t node, std::size_t part) const {
  auto* const memory = const_cast<std::byte*>(received_.data());
  const auto misaligned = reinterpret_cast<std::uintptr_t>(memory) % kLine;
  return memory + (kLine - misaligned) % kLine + static_cast<std::int64_t>(node) * range_bytes_ +
         part_offsets_[part];
}

/// An owner of nothing still hears from everybody if it is the chief, who knows then that all have
/// come to this call.
void WorldSum::send_parts(WorldLane::Round& round,
                          std::span<const std::vector<void*>> nodes) const {
  for (int w = 0; w < world_.workers(); ++w) {
    if (w == world_.index() || (ranges_[w].empty() && w != 0)) continue;
    std::vector<ConstBytes> body;
    for (const auto& node : nodes) {
      const auto parts = to_send(node, ranges_[w]);
      body.insert(body.end(), parts.begin(), parts.end());
    }
    round.send(w, body);
  }
}

void WorldSum::expect_parts(WorldLane::Round& round) {
  const auto& own = ranges_[world_.index()];
  if (own.empty() && !world_.is_chief()) return;
  std::size_t node = 0;  // among those of others
  for (int w = 0; w < world_.workers(); ++w) {
    if (w == world_.index()) continue;
    std::vector<MutableBytes> into;
    for (std::size_t j = 0; j < world_.nodes_of(w).size(); ++j, ++node) {
      for (std::size_t p = 0; p < own.size(); ++p) {
        into.emplace_back(received(node, p),
                          (own[p].end - own[p].begin) * element_size(own[p].segment));
      }
    }
    round.expect(w, std::move(into));
  }
}

void WorldSum::add(std::span<const std::vector<void*>> nodes, std::span<void* const> results,
                   double divisor) const {
  const auto& own = ranges_[world_.index()];
  std::vector<const void*> leaves(plan_.leaves());
  for (std::size_t p = 0; p < own.size(); ++p) {
    std::size_t other = 0;
    for (int w = 0; w < world_.workers(); ++w) {
      for (std::size_t j = 0; j < world_.nodes_of(w).size(); ++j) {
        leaves[first_node_of_[w] + j] =
            w == world_.index() ? at(nodes[j][own[p].segment], own[p]) : received(other++, p);
      }
    }
    void* const output = at(results[own[p].segment], own[p]);
    const auto dtype = segments_[own[p].segment].dtype;
    const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
    collectives::ordered_sum(dtype, plan_, leaves, {&output, 1}, {0, own[p].end - own[p].begin},
                             integral ? 1 : divisor);
  }
}

void WorldSum::run(WorldLane& lane, std::string_view call,
                   std::span<const std::vector<void*>> nodes, std::span<void* const> results,
                   double divisor) {
  WorldLane::Round round(lane, call);
  send_parts(round, nodes);
  expect_parts(round);
  round.finish();
  add(nodes, results, divisor);
  const auto& own = ranges_[world_.index()];
  for (int w = 0; w < world_.workers(); ++w) {
    if (w == world_.index()) continue;
    // The chief's answer is also what says that all have come.
    if (!own.empty() || world_.is_chief()) round.send(w, to_send(results, own));
    if (!ranges_[w].empty() || w == 0) round.expect(w, to_fill(results, ranges_[w]));
  }
  round.finish();
}

}  // namespace cohort
