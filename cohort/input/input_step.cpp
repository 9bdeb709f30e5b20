// A step as bytes: numbers of 8 bytes, in the order of the machine, and texts, which are their
// length and their characters.
//
//     1 if there is data · the digest · the failure · how many leaves an element has + 1, or 0
//     for each leaf: its dtype · how many dimensions · each of them · how many are sparse

#include "cohort/input/input_step.h"

#include <algorithm>
#include <cstring>

#include "cohort/base/error.h"

namespace cohort {
namespace {

using Bytes = WorldLane::Bytes;

class StepWriter {
 public:
  void put(std::uint64_t number) { append(&number, sizeof number); }
  void put(std::int64_t number) { put(static_cast<std::uint64_t>(number)); }
  void put(const std::string& text) {
    put(std::uint64_t{text.size()});
    append(text.data(), text.size());
  }
  Bytes take() { return std::move(bytes_); }

 private:
  void append(const void* data, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  Bytes bytes_;
};

class StepReader {
 public:
  explicit StepReader(const Bytes& bytes) : left_(bytes) {}

  std::uint64_t number() {
    std::uint64_t number = 0;
    const auto bytes = take(sizeof number);
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }
  std::string text() {
    const auto bytes = take(number());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  ConstBytes take(std::size_t size) {
    const ConstBytes taken = left_.first(std::min(size, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  ConstBytes left_;
};

Bytes bytes_of(const InputStep& step) {
  StepWriter out;
  out.put(std::uint64_t{step.has_data});
  out.put(step.digest);
  out.put(step.failure);
  out.put(step.look ? std::uint64_t{step.look->size()} + 1 : std::uint64_t{0});
  if (!step.look) return out.take();
  for (const LeafLook& leaf : *step.look) {
    out.put(leaf.spec.dtype);
    out.put(std::uint64_t{leaf.spec.shape.size()});
    for (const std::int64_t size : leaf.spec.shape) out.put(size);
    out.put(leaf.sparse_dims);
  }
  return out.take();
}

InputStep step_in(const Bytes& bytes) {
  StepReader in(bytes);
  InputStep step;
  step.has_data = in.number() != 0;
  step.digest = in.number();
  step.failure = in.text();
  const std::uint64_t leaves = in.number();
  if (leaves == 0) return step;
  step.look.emplace(leaves - 1);
  for (LeafLook& leaf : *step.look) {
    leaf.spec.dtype = in.text();
    leaf.spec.shape.resize(in.number());
    for (std::int64_t& size : leaf.spec.shape) size = static_cast<std::int64_t>(in.number());
    leaf.sparse_dims = static_cast<std::int64_t>(in.number());
  }
  return step;
}

}  // namespace

InputStep common_step(std::span<const InputStep> steps, const World& world) {
  InputStep all;
  for (std::size_t w = 0; w < steps.size(); ++w) {
    const InputStep& step = steps[w];
    if (!step.failure.empty()) {
      throw Cancelled("distribute_dataset", cat("the input of ", world.name(static_cast<int>(w)),
                                                " has failed: ", step.failure));
    }
    all.has_data = all.has_data || step.has_data;
    if (!all.look) all.look = step.look;
  }
  for (std::size_t w = 1; w < steps.size(); ++w) {
    if (steps[w].digest == steps[0].digest) continue;
    throw InvalidArgument(
        "distribute_dataset",
        cat(world.name(static_cast<int>(w)), " cuts other batches than ", world.name(0),
            ": under the policy DATA every worker must read the same elements in the same order; "
            "look for what differs between them (files, a random number without a seed), or use "
            "the policy FILE"));
  }
  return all;
}

InputStep agree(WorldLane& lane, const InputStep& mine) {
  std::vector<InputStep> steps;
  for (const Bytes& each : lane.all_gather("iterator.get_next", bytes_of(mine))) {
    steps.push_back(step_in(each));
  }
  return common_step(steps, lane.world());
}

}  // namespace cohort
