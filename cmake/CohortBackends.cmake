# The backends that a build may lack. Chooses their files among `sources`, and sets
# `backend_libraries` and COHORT_BACKEND_DEPENDENCIES, what the installed package looks for.

# cohort_backend(<name> <available> [LINK <libraries…>] [FIND <package>])
macro(cohort_backend name available)
  cmake_parse_arguments(backend "" "FIND" "LINK" ${ARGN})
  if(${available})
    cohort_choose_backend(sources ${name} TRUE)
    list(APPEND backend_libraries ${backend_LINK})
    if(backend_FIND)
      string(APPEND COHORT_BACKEND_DEPENDENCIES "find_dependency(${backend_FIND})\n")
    endif()
    list(APPEND backend_names ${name})
  else()
    cohort_choose_backend(sources ${name} FALSE)
  endif()
endmacro()

set(backend_libraries "")
set(COHORT_BACKEND_DEPENDENCIES "")
set(backend_names "")

find_package(gRPC CONFIG QUIET)
set(MPI_CXX_SKIP_MPICXX ON)  # MPI's C interface is enough
set(CMAKE_MESSAGE_LOG_LEVEL WARNING)  # FindMPI reports every place where it looked
find_package(MPI QUIET COMPONENTS CXX)
unset(CMAKE_MESSAGE_LOG_LEVEL)

#              name  available          libraries                  what find_package(cohort) needs
cohort_backend(grpc  gRPC_FOUND         LINK gRPC::grpc++          FIND gRPC)
cohort_backend(mpi   MPI_CXX_FOUND      LINK MPI::MPI_CXX          FIND MPI)
cohort_backend(cuda  COHORT_CUDA        LINK cohort::torch_cuda)
cohort_backend(nccl  COHORT_NCCL_FOUND  LINK cohort::torch_cuda)

list(JOIN backend_names ", " backend_names)
message(STATUS "Optional backends: ${backend_names}")
