#include "cohort/input/distributed_dataset.h"

#include "cohort/base/error.h"
#include "cohort/base/exception_note.h"

namespace cohort::detail {

void require_outside_of_replicas(const char* where) {
  if (!replica_context_or_null() || !has_strategy()) return;
  throw ValueError(where,
                   "should be called from outside of replica_fn: take the element first, and give "
                   "it to strategy.run(fn, element)");
}

void throw_end_of_data() {
  throw OutOfRange("iterator.get_next",
                   "end of the dataset; get_next_as_optional() gives nothing there, and a "
                   "range-based loop ends");
}

void move_to(at::Tensor& tensor, const Device& device) {
  const at::Device target = device.torch_device();
  if (tensor.defined() && tensor.device() != target) tensor = tensor.to(target, true);
}

DeviceList element_devices(const InputReplicas& replicas, const InputOptions& options) {
  std::vector<Device> devices = replicas.devices();
  if (!options.fetch_to_device && !options.place_dataset_on_device) {
    for (Device& device : devices) {
      device = Device(DeviceType::CPU, 0).on_task(device.job(), device.task());
    }
  }
  return std::make_shared<const std::vector<Device>>(std::move(devices));
}

void tell_workers(const InputReplicas& replicas, const std::exception_ptr& error) {
  const std::string text = text_of(error);
  try {
    agree(replicas.lane(), {.failure = text.empty() ? "an exception without a text" : text});
  } catch (const std::exception&) {  // what they all get; this worker has the error itself
  }
}

}  // namespace cohort::detail
