# The vocabulary of this repository's CMakeLists.txt files.
#
#   cohort_warnings(<target>)
#       The warnings that our own code is held to. LibTorch's headers are SYSTEM and exempt.
#
#   cohort_program(<name> SOURCES <files…> [LINK <libraries…>])
#       A program on Cohort: a test, an example, a benchmark. All of them share one precompiled
#       <torch/torch.h>, which is 630 MB and takes half a minute: it is built once.
#
#   cohort_choose_backend(<variable> <name> <available>)
#       Of the sources in <variable>: a backend is a folder with a file no_<name>.cpp, which says at run time what to install.
#       Keeps that file, or everything else in the folder.

function(cohort_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Wsuggest-override
    -Wno-missing-field-initializers  # options are structs with defaults: {.replicas = 8}
    -Werror=return-type
    $<$<BOOL:${COHORT_WERROR}>:-Werror>
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
  if(COHORT_SANITIZE)  # false alarms in instrumented code
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
  endif()
endfunction()

function(cohort_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  if(NOT TARGET cohort_torch_header)  # the target that the precompiled header belongs to
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/torch_header.cpp" CONTENT "")
    add_library(cohort_torch_header OBJECT "${PROJECT_BINARY_DIR}/torch_header.cpp")
    target_link_libraries(cohort_torch_header PRIVATE cohort::cohort)
    cohort_warnings(cohort_torch_header)
    target_precompile_headers(cohort_torch_header PRIVATE <torch/torch.h>)
    set_target_properties(cohort_torch_header PROPERTIES UNITY_BUILD OFF)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE cohort::cohort ${arg_LINK})
  cohort_warnings(${name})
  target_precompile_headers(${name} REUSE_FROM cohort_torch_header)
endfunction()

function(cohort_choose_backend variable name available)
  set(chosen "")
  foreach(file IN LISTS ${variable})
    cmake_path(GET file PARENT_PATH folder)
    if(NOT EXISTS "${folder}/no_${name}.cpp")
      list(APPEND chosen "${file}")
    elseif(available AND NOT file MATCHES "/no_${name}\\.cpp$")
      list(APPEND chosen "${file}")
    elseif(NOT available AND file MATCHES "/no_${name}\\.cpp$")
      list(APPEND chosen "${file}")
    endif()
  endforeach()
  set(${variable} "${chosen}" PARENT_SCOPE)
endfunction()
