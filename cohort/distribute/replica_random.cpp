#include "cohort/distribute/replica_random.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <atomic>
#include <optional>
#include <vector>

#include "cohort/base/mutex.h"
#include "cohort/distribute/replica_context.h"

namespace cohort {
namespace {

struct Seed {
  Mutex mutex;
  std::optional<std::uint64_t> value COHORT_GUARDED_BY(mutex);
};

Seed& chosen_seed() {
  static Seed seed;
  return seed;
}

/// A function that takes a generator and was not given one gets the replica's.
void fill_in_generator(const c10::OperatorHandle& op, c10::DispatchKeySet,
                       torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t base = stack->size() - arguments.size();
  ReplicaContext* replica = replica_context_or_null();
  for (std::size_t i = 0; replica && i < arguments.size(); ++i) {
    auto& value = (*stack)[base + i];
    if (arguments[i].name() == "generator" && value.isNone()) value = replica->generator();
  }
  const c10::impl::ExcludeDispatchKeyGuard below(detail::kRandomKey);
  op.callBoxed(stack);
}

bool takes_generator(const c10::OperatorHandle& op) {
  for (const auto& argument : op.schema().arguments()) {
    if (argument.name() == "generator") return true;
  }
  return false;
}

/// What the dispatcher is told, and keeps while the handles live.
std::vector<c10::RegistrationHandleRAII> register_mode() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::RegistrationHandleRAII> handles;
  handles.push_back(dispatcher.registerFallback(
      detail::kRandomKey, c10::KernelFunction::makeFallthrough(), "cohort: replicas' generators"));
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || name.name.rfind("aten::", 0) != 0) continue;
    if (!takes_generator(*op)) continue;
    handles.push_back(dispatcher.registerImpl(
        name, detail::kRandomKey, c10::KernelFunction::makeFromBoxedFunction<&fill_in_generator>(),
        c10::nullopt, nullptr, "cohort: replicas' generators"));
  }
  return handles;
}

/// For the life of the process: libraries are unloaded in no order that could be known.
void register_mode_once() {
  [[gnu::used]] static const auto* const handles =  // kept, so that nothing looks leaked
      new std::vector<c10::RegistrationHandleRAII>(register_mode());
}

std::uint64_t mix(std::uint64_t x) {  // SplitMix64's finalizer (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

void set_seed(std::uint64_t seed) {
  const MutexLock lock(chosen_seed().mutex);
  chosen_seed().value = seed;
}

std::uint64_t seed() {
  auto& chosen = chosen_seed();
  const MutexLock lock(chosen.mutex);
  if (chosen.value) return *chosen.value;
  return at::globalContext().defaultGenerator(at::kCPU).current_seed();
}

namespace detail {

std::uint64_t replica_seed(std::uint64_t seed, std::uint64_t run, int replica) {
  return mix(mix(mix(seed) ^ run) ^ static_cast<std::uint64_t>(replica));
}

ReplicaRandom::ReplicaRandom() : include_((register_mode_once(), kRandomKey)) {}

}  // namespace detail
}  // namespace cohort
