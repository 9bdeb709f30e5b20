#include "cohort/device/machine.h"

#include <torch/version.h>

#include "cohort/base/error.h"
#include "cohort/base/log.h"
#include "cohort/device/allowed_cores.h"
#include "cohort/device/loaded_symbol.h"
#include "cohort/device/logical_devices.h"

namespace cohort {
namespace {

constexpr const char* kReferenceBlas = "reference BLAS";

std::string without_trailing_spaces(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

}  // namespace

std::string libtorch_version() { return TORCH_VERSION; }

std::string blas_name() {
  if (auto* describe = loaded_symbol<char*()>("openblas_get_config")) {
    return without_trailing_spaces(describe());  // begins with "OpenBLAS"
  }
  if (auto* describe = loaded_symbol<void(char*, int)>("MKL_Get_Version_String")) {
    char text[256] = {};
    describe(text, sizeof text - 1);
    return without_trailing_spaces(text);
  }
  if (loaded_symbol<int(int)>("MKL_Set_Num_Threads_Local")) return "MKL";
  if (auto* describe = loaded_symbol<const char*()>("bli_info_get_version_str")) {
    return cat("BLIS ", describe());
  }
  return kReferenceBlas;
}

void warn_if_reference_blas() {
  if (blas_name() != kReferenceBlas || !log::first("reference-blas")) return;
  log::warning(
      "LibTorch multiplies matrices with the reference BLAS, which is some 20 times slower than "
      "OpenBLAS; on Debian and Ubuntu: apt-get install libopenblas0-pthread");
}

std::string describe_machine() {
  std::string devices;
  for (const auto& device : list_logical_devices()) devices += cat(' ', device);
  return cat("LibTorch: ", libtorch_version(), "\nBLAS: ", blas_name(),
             "\ncores allowed: ", allowed_cores(), "\ndevices:", devices, '\n');
}

}  // namespace cohort
