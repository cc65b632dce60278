# Architectures of GPUs: of those here, and which of them a build may name.

set(worker_hopper 90a-real) # 9.0: wgmma, which large products and attention use, needs the a
# Of packages: every GPU that is served. 80 without -real has PTX besides machine code: the driver compiles it for a GPU
# that has no image here.
set(worker_architectures_all 80 86-real 89-real ${worker_hopper} 100-real 120-real)

# worker_gpu_architectures(OUT): the architectures of the GPUs that a driver answers for here, each once; empty: there
# is no driver, no GPU, or none of compute capability 8.0 or later.
function(worker_gpu_architectures out)
  unset(worker_gpu_status CACHE) # asked anew by every run of CMake: drivers and GPUs come and go
  unset(worker_gpu_compiled CACHE)
  try_run(worker_gpu_status worker_gpu_compiled ${CMAKE_BINARY_DIR}/gpu_capability
    ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/gpu_capability.c LINK_LIBRARIES ${CMAKE_DL_LIBS} RUN_OUTPUT_VARIABLE found)
  set(architectures)
  if(worker_gpu_compiled AND worker_gpu_status EQUAL 0)
    string(REGEX MATCHALL "[0-9]+" capabilities "${found}")
    foreach(capability ${capabilities})
      if(capability EQUAL 90)
        list(APPEND architectures ${worker_hopper})
      elseif(capability GREATER_EQUAL 80)
        list(APPEND architectures ${capability}-real)
      endif()
    endforeach()
    list(REMOVE_DUPLICATES architectures)
  endif()
  set(${out} "${architectures}" PARENT_SCOPE)
endfunction()

# worker_check_architectures(ARCHITECTURE...): ends with a message if one of them gives code that could not run as it
# should: kernels for Hopper exist only as 90a, the others are for 8.0 and later.
function(worker_check_architectures)
  foreach(architecture ${ARGN})
    if(architecture MATCHES "^90(-real|-virtual)?$")
      message(FATAL_ERROR "CUDA architecture ${architecture}: Hopper's tensor products (wgmma) exist only in code for "
        "90a; write 90a-real instead")
    elseif(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$")
      message(FATAL_ERROR "CUDA architecture ${architecture}: architectures by number are expected, as in "
        "-DWORKER_CUDA_ARCHITECTURES=\"80-real;90a-real\"")
    elseif(CMAKE_MATCH_1 LESS 80)
      message(FATAL_ERROR "CUDA architecture ${architecture}: 80 is the oldest that is served")
    endif()
  endforeach()
endfunction()
