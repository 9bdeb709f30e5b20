# Uses Cohort as a user does. Called by ctest as
#
#   cmake -DHOW=installed|subdirectory -DBUILD=<build folder> -DCOMPILER=<c++> -DTORCH=<LibTorch>
#         -P run.cmake
#
# installed     installs the build folder, then configures, builds and runs tests/consumer with it
# subdirectory  configures tests/consumer with Cohort inside it, and compiles the programs, which
#               must give no warnings; building Cohort too would take minutes, and would build what
#               the other variant has tested

set(work "${BUILD}/consumer/${HOW}")
get_filename_component(source "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(configure "${CMAKE_COMMAND}" -G Ninja -S "${CMAKE_CURRENT_LIST_DIR}" -B "${work}/build"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" -DCMAKE_BUILD_TYPE=Release)

if(HOW STREQUAL "installed")
  file(REMOVE_RECURSE "${work}/prefix")  # else a header that is no longer installed would be found
  run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/prefix")
  run(${configure} "-DCMAKE_PREFIX_PATH=${work}/prefix")
  run("${CMAKE_COMMAND}" --build "${work}/build")
  run("${work}/build/consumer" "${work}")  # and it makes the files for the next
  run("${work}/build/input" "${work}/train-*.tfrecord" "${work}/features.npy")
  run("${work}/build/model_parallel")
  # A line for each of four jobs, which differ in the number of workers alone.
  execute_process(COMMAND "${work}/build/workers_as_threads" OUTPUT_VARIABLE lines
    COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
  message("${lines}")
  string(REGEX MATCHALL "workers: [^\n]+" fingerprints "${lines}")
  list(LENGTH fingerprints count)
  list(REMOVE_DUPLICATES fingerprints)
  list(LENGTH fingerprints different)
  if(NOT count EQUAL 4 OR NOT different EQUAL 1)
    message(FATAL_ERROR "expected four equal fingerprints, got ${different} different ones in "
                        "${count} lines")
  endif()
else()
  run(${configure} "-DCOHORT_SOURCE=${source}" "-DCOHORT_TORCH=${TORCH}")
  foreach(program IN ITEMS custom_loop input model_parallel workers_as_threads)
    list(APPEND objects "CMakeFiles/${program}.dir/programs/${program}.cpp.o")
  endforeach()
  run("${CMAKE_COMMAND}" --build "${work}/build" --target ${objects})
endif()
