#include "cohort/optim/fingerprint.h"

#include <ATen/ATen.h>

#include <cstdio>

#include "cohort/base/hash.h"
#include "cohort/base/whole_tensor.h"

namespace cohort {
std::string fingerprint(const StateDict& state) {
  Hash hash;
  for (const auto& [name, tensor] : state) {
    const at::Tensor value = as_read(tensor.detach().cpu());
    hash.add(name);
    hash.add(c10::toString(value.scalar_type()));
    for (const std::int64_t size : value.sizes()) hash.add_number(size);
    hash.add(value.data_ptr(), value.nbytes());
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash.value()));
  return text;
}

}  // namespace cohort
