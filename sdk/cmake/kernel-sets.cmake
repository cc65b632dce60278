# Files of products, compiled once for each set of kernels, for the architectures that can run it
# (worker/cuda/kernel_set.cuh, whose rule is this one).

# worker_kernel_sets(OUT TARGET ARCHITECTURES list FILES file...): object libraries TARGET-base, TARGET-clusters,
# TARGET-wgmma, TARGET-large and TARGET-8x, those for which there is an architecture; OUT: their names. Libraries and
# options are the caller's to add.
function(worker_kernel_sets out target)
  cmake_parse_arguments(S "" "" "ARCHITECTURES;FILES" ${ARGN})
  set(for_base ${S_ARCHITECTURES})
  set(for_clusters)
  set(for_wgmma)
  set(for_8x)
  foreach(architecture ${S_ARCHITECTURES})
    if(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$")
      message(FATAL_ERROR "CUDA architecture ${architecture}: architectures by number are expected, as in "
        "\"80-real;90a-real\"")
    endif()
    if(CMAKE_MATCH_1 GREATER_EQUAL 90)
      list(APPEND for_clusters ${architecture})
    else()
      list(APPEND for_8x ${architecture})
    endif()
    if(CMAKE_MATCH_1 EQUAL 90)
      list(APPEND for_wgmma ${architecture})
    endif()
  endforeach()
  set(for_large ${for_wgmma})
  set(made)
  foreach(kernels base clusters wgmma large 8x)
    if(for_${kernels})
      add_library(${target}-${kernels} OBJECT ${S_FILES})
      string(TOUPPER ${kernels} name)
      target_compile_definitions(${target}-${kernels} PRIVATE WK_KERNEL_SET=WK_KERNEL_SET_${name})
      set_target_properties(${target}-${kernels} PROPERTIES CUDA_ARCHITECTURES "${for_${kernels}}")
      list(APPEND made ${target}-${kernels})
    endif()
  endforeach()
  set(${out} ${made} PARENT_SCOPE)
endfunction()
