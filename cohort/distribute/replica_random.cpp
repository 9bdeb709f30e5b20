#include "cohort/distribute/replica_random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "cohort/distribute/replica_context.h"

namespace cohort {
namespace {

thread_local const at::Generator* own_generator = nullptr;
thread_local const at::Generator* workers_generator = nullptr;

/// What the calling thread draws from, null for LibTorch's default generator.
const at::Generator* generator_or_null() {
  if (own_generator) return own_generator;
  ReplicaContext* const replica = replica_context_or_null();
  return replica && replica->in_run() ? &replica->generator() : workers_generator;
}

/// A function that takes a generator and was not given one gets the calling thread's.
void fill_in_generator(const c10::OperatorHandle& op, c10::DispatchKeySet,
                       torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t base = stack->size() - arguments.size();
  const at::Generator* const generator = generator_or_null();
  for (std::size_t i = 0; generator && i < arguments.size(); ++i) {
    auto& value = (*stack)[base + i];
    if (arguments[i].name() == "generator" && value.isNone()) value = *generator;
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

}  // namespace

namespace detail {

std::uint64_t replica_seed(std::uint64_t seed, std::uint64_t run, int replica) {
  return mix(seed, run, static_cast<std::uint64_t>(replica));
}

const at::Generator& thread_generator() {
  const at::Generator* const generator = generator_or_null();
  return generator ? *generator : at::detail::getDefaultCPUGenerator();
}

const at::Generator& generator_outside_of_runs() {
  return workers_generator ? *workers_generator : at::detail::getDefaultCPUGenerator();
}

ReplicaRandom::ReplicaRandom() : include_((register_mode_once(), kRandomKey)) {}

OwnGenerator::OwnGenerator(at::Generator generator)
    : generator_(std::move(generator)), before_(std::exchange(own_generator, &generator_)) {}
OwnGenerator::~OwnGenerator() { own_generator = before_; }

WorkersGenerator::WorkersGenerator(at::Generator generator)
    : generator_(std::move(generator)), before_(std::exchange(workers_generator, &generator_)) {}
WorkersGenerator::~WorkersGenerator() { workers_generator = before_; }

OutsideOfReplica::OutsideOfReplica() : own_(std::exchange(own_generator, nullptr)) {}
OutsideOfReplica::~OutsideOfReplica() { own_generator = own_; }

}  // namespace detail
}  // namespace cohort
