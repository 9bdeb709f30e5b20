# Finds LibTorch, 1.13 or later, and makes of it the targets
#
#   cohort::torch       tensors, autograd, modules and optimizers on the CPU
#   cohort::torch_cuda  with COHORT_CUDA: streams, events and NCCL for host code (no nvcc needed)
#
# It takes the first LibTorch of this list, and says which:
#
#   named    COHORT_TORCH, Torch_DIR, Torch_ROOT (CMake or environment), CMAKE_PREFIX_PATH
#   python   `torch` of the active virtual or conda environment (located, not imported)
#   system   /usr/local, /usr
#
# Sets COHORT_TORCH_PREFIX, COHORT_TORCH_VERSION and COHORT_TORCH_INCLUDE_DIRS.
# find_package(Torch) is not used: a PyPI LibTorch's stops on a machine without the CUDA toolkit,
# and links all of CUDA. Installed beside cohort-config.cmake, which finds the same LibTorch with it.

if(TARGET cohort::torch)
  return()
endif()

set(COHORT_TORCH "" CACHE PATH "LibTorch: the folder with include/ and lib/; empty: search")
set(_cohort_probe include/torch/csrc/api/include/torch/version.h)

# Sets <result> to the LibTorch prefix that <path> means, or to "". A path may be the prefix itself,
# its share/cmake or share/cmake/Torch, or a folder of Python packages.
function(cohort_torch_prefix result path)
  set(${result} "" PARENT_SCOPE)
  foreach(candidate IN ITEMS "${path}" "${path}/torch" "${path}/../.." "${path}/../../..")
    if(path AND EXISTS "${candidate}/${_cohort_probe}")
      file(REAL_PATH "${candidate}" candidate)
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Sets <result> to the folder of the active Python environment's `torch`, or to "".
function(cohort_torch_of_python result)
  set(folder "")
  if(DEFINED ENV{VIRTUAL_ENV} OR DEFINED ENV{CONDA_PREFIX})
    find_program(python NAMES python3 python NO_CACHE
      HINTS "$ENV{VIRTUAL_ENV}/bin" "$ENV{CONDA_PREFIX}/bin")
    execute_process(
      COMMAND "${python}" -c "import importlib.util as u; s = u.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

# Sets COHORT_TORCH_PREFIX and _cohort_torch_how.
macro(cohort_search_torch)
  set(COHORT_TORCH_PREFIX "")
  foreach(_cohort_path IN ITEMS "${COHORT_TORCH}" "$ENV{COHORT_TORCH}" "${Torch_DIR}"
          "$ENV{Torch_DIR}" "${Torch_ROOT}" "$ENV{Torch_ROOT}" LISTS CMAKE_PREFIX_PATH)
    if(NOT COHORT_TORCH_PREFIX)
      cohort_torch_prefix(COHORT_TORCH_PREFIX "${_cohort_path}")
      set(_cohort_torch_how named)
    endif()
    if(COHORT_TORCH AND NOT COHORT_TORCH_PREFIX)
      message(FATAL_ERROR "COHORT_TORCH=${COHORT_TORCH}: no LibTorch there, ${_cohort_probe} is missing")
    endif()
  endforeach()
  if(NOT COHORT_TORCH_PREFIX)
    cohort_torch_of_python(_cohort_path)
    cohort_torch_prefix(COHORT_TORCH_PREFIX "${_cohort_path}")
    set(_cohort_torch_how python)
  endif()
  foreach(_cohort_path IN ITEMS /usr/local /usr)
    if(NOT COHORT_TORCH_PREFIX)
      cohort_torch_prefix(COHORT_TORCH_PREFIX "${_cohort_path}")
      set(_cohort_torch_how system)
    endif()
  endforeach()
  if(NOT COHORT_TORCH_PREFIX)
    message(FATAL_ERROR "No LibTorch found. On Debian: apt-get install libtorch-dev. Elsewhere: "
      "`pip install torch` in the active environment, or -DCOHORT_TORCH=<folder of LibTorch>.")
  endif()
endmacro()

# Sets COHORT_TORCH_VERSION, and stops where this LibTorch and this compiler cannot work together.
macro(cohort_check_torch_version)
  set(_cohort_header "${COHORT_TORCH_PREFIX}/include/torch/headeronly/version.h")  # since 2.9
  if(NOT EXISTS "${_cohort_header}")
    set(_cohort_header "${COHORT_TORCH_PREFIX}/${_cohort_probe}")
  endif()
  file(STRINGS "${_cohort_header}" _cohort_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" COHORT_TORCH_VERSION
    "${_cohort_lines}")
  if(COHORT_TORCH_VERSION VERSION_LESS 1.13)
    message(FATAL_ERROR
      "LibTorch ${COHORT_TORCH_VERSION} in ${COHORT_TORCH_PREFIX}: 1.13 or later is needed")
  endif()
  if(COHORT_TORCH_VERSION VERSION_LESS 2.0 AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "LibTorch ${COHORT_TORCH_VERSION}'s headers are not C++20 for Clang: "
      "use g++, or LibTorch 2 (make LIBTORCH=pypi)")
  endif()
endmacro()

# Sets <result> to the full path of the library <name> of this LibTorch, or to "…-NOTFOUND".
macro(cohort_torch_library result name)
  find_library(${result} ${name} NO_CACHE NO_DEFAULT_PATH
    HINTS "${COHORT_TORCH_PREFIX}/lib" "${COHORT_TORCH_PREFIX}/lib/${CMAKE_LIBRARY_ARCHITECTURE}"
    ${ARGN})
endmacro()

macro(cohort_add_torch)
  cohort_torch_library(_cohort_torch_cpu torch_cpu REQUIRED)
  cohort_torch_library(_cohort_c10 c10 REQUIRED)
  set(COHORT_TORCH_INCLUDE_DIRS "${COHORT_TORCH_PREFIX}/include"
    "${COHORT_TORCH_PREFIX}/include/torch/csrc/api/include")
  add_library(cohort::torch INTERFACE IMPORTED GLOBAL)
  target_compile_features(cohort::torch INTERFACE cxx_std_20)
  target_include_directories(cohort::torch SYSTEM INTERFACE ${COHORT_TORCH_INCLUDE_DIRS})
  target_link_libraries(cohort::torch INTERFACE "${_cohort_torch_cpu}" "${_cohort_c10}")
  # A CUDA build's libtorch_cpu needs libcudart and libcupti. It finds them itself when the program
  # runs; the linker must be told. In a PyPI LibTorch they lie in the folder beside it.
  file(GLOB _cohort_nvidia LIST_DIRECTORIES true "${COHORT_TORCH_PREFIX}/../nvidia/*/lib")
  foreach(_cohort_path IN LISTS _cohort_nvidia)
    target_link_options(cohort::torch INTERFACE "LINKER:-rpath-link,${_cohort_path}")
  endforeach()
endmacro()

# Host code only. The headers are the CUDA toolkit's, else those of the wheels nvidia-cuda-runtime
# and nvidia-cuda-crt; the libraries are those that this LibTorch was built with.
macro(cohort_add_torch_cuda)
  cohort_torch_library(_cohort_torch_cuda torch_cuda)
  cohort_torch_library(_cohort_c10_cuda c10_cuda)
  if(NOT _cohort_torch_cuda OR NOT _cohort_c10_cuda)
    message(FATAL_ERROR "COHORT_CUDA=ON, but the LibTorch in ${COHORT_TORCH_PREFIX} is a CPU build")
  endif()
  set(_cohort_nvidia "${COHORT_TORCH_PREFIX}/../nvidia")
  file(GLOB _cohort_cudart "${_cohort_nvidia}/cu*/lib/libcudart.so.*"
    "${COHORT_TORCH_PREFIX}/lib/libcudart*.so.*")
  if(NOT _cohort_cudart)
    find_package(CUDAToolkit REQUIRED)
    set(_cohort_cudart CUDA::cudart)
  endif()
  list(GET _cohort_cudart 0 _cohort_cudart)
  file(GLOB _cohort_path LIST_DIRECTORIES true "${_cohort_nvidia}/cu*/include")
  find_path(_cohort_cuda_include crt/host_defines.h NO_CACHE REQUIRED HINTS ${_cohort_path}
    "$ENV{CUDA_HOME}/include" "$ENV{CUDA_PATH}/include" /usr/local/cuda/include)

  add_library(cohort::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(cohort::torch_cuda SYSTEM INTERFACE "${_cohort_cuda_include}")
  target_link_libraries(cohort::torch_cuda INTERFACE cohort::torch "${_cohort_cudart}")
  foreach(_cohort_library IN ITEMS "${_cohort_torch_cuda}" "${_cohort_c10_cuda}")
    # Nothing names a symbol of the kernels' library: they register themselves when it is loaded.
    target_link_libraries(cohort::torch_cuda INTERFACE
      "-Wl,--push-state,--no-as-needed,${_cohort_library},--pop-state" "${_cohort_library}")
  endforeach()

  find_path(_cohort_nccl_include nccl.h NO_CACHE
    HINTS "${_cohort_nvidia}/nccl/include" "${_cohort_cuda_include}")
  find_library(_cohort_nccl NAMES libnccl.so.2 nccl NO_CACHE HINTS "${_cohort_nvidia}/nccl/lib")
  if(_cohort_nccl_include AND _cohort_nccl)
    target_include_directories(cohort::torch_cuda SYSTEM INTERFACE "${_cohort_nccl_include}")
    target_link_libraries(cohort::torch_cuda INTERFACE "${_cohort_nccl}")
    set(COHORT_NCCL_FOUND TRUE)
  endif()
endmacro()

cohort_search_torch()
cohort_check_torch_version()
message(STATUS "LibTorch ${COHORT_TORCH_VERSION} (${_cohort_torch_how}): ${COHORT_TORCH_PREFIX}")
cohort_add_torch()
if(COHORT_CUDA)
  cohort_add_torch_cuda()
endif()
