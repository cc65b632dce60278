# CUDA: optional. WORKER_CUDA=auto builds the device module and the plugins' kernels where nvcc is found and a GPU's
# driver answers, for the GPUs that are here; on: wherever nvcc is found, or else it is an error, for every GPU that is
# served (packages, CI); off: not; emulated links the emulator of tests/emulator instead of the CUDA runtime and keeps
# the kernels as PTX, so that the GPU's tests run on the processor. WORKER_CUDA_ARCHITECTURES names other architectures.
include(WorkerGpu)
include(${CMAKE_SOURCE_DIR}/sdk/cmake/kernel-sets.cmake)

set(WORKER_CUDA auto CACHE STRING "build for CUDA: auto, on, off or emulated")
set_property(CACHE WORKER_CUDA PROPERTY STRINGS auto on off emulated)
set(WORKER_CUDA_ARCHITECTURES "" CACHE STRING
  "GPU architectures to compile kernels for; empty: with auto those of the GPUs here, with on every one that is served")

string(TOLOWER "${WORKER_CUDA}" worker_cuda)
set(WORKER_HAS_CUDA OFF)
set(worker_cuda_why "WORKER_CUDA=off")
if(NOT worker_cuda STREQUAL "off")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(WORKER_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(WORKER_NVCC)
      set(CMAKE_CUDA_COMPILER ${WORKER_NVCC})
    endif()
  endif()
  if(worker_cuda STREQUAL "auto" AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(worker_cuda_why "no nvcc")
  else()
    if(worker_cuda STREQUAL "emulated")
      set(worker_architectures 90a-virtual)
    elseif(worker_cuda STREQUAL "on")
      set(worker_architectures ${worker_architectures_all})
    else()
      worker_gpu_architectures(worker_architectures)
      set(worker_cuda_why "no driver answers for a GPU of compute capability 8.0 or later; WORKER_CUDA=on builds it")
    endif()
    if(worker_architectures AND WORKER_CUDA_ARCHITECTURES)
      set(worker_architectures ${WORKER_CUDA_ARCHITECTURES})
    endif()
    if(worker_cuda STREQUAL "emulated" AND NOT worker_architectures MATCHES "^[0-9]+a?-virtual$")
      message(FATAL_ERROR "WORKER_CUDA=emulated takes one architecture, as PTX: ${worker_architectures} instead of "
        "80-virtual, 90a-virtual or 120-virtual")
    endif()
    if(worker_architectures)
      worker_check_architectures(${worker_architectures})
      check_language(CUDA)
      if(NOT CMAKE_CUDA_COMPILER)
        message(FATAL_ERROR
          "WORKER_CUDA=${WORKER_CUDA}, but no CUDA compiler was found: install the CUDA toolkit or set CUDACXX")
      endif()
      set(CMAKE_CUDA_ARCHITECTURES ${worker_architectures})
      enable_language(CUDA)
      find_package(CUDAToolkit REQUIRED)
      set(WORKER_HAS_CUDA ON)
      set(worker_cuda_why "${worker_architectures}")
    endif()
  endif()
endif()
message(STATUS "CUDA: ${WORKER_HAS_CUDA} (${worker_cuda_why})")

if(WORKER_HAS_CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  add_library(worker_cuda_flags INTERFACE)
  target_compile_options(worker_cuda_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr;-Werror=all-warnings;-Xptxas=-v>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow=local,-fvisibility=hidden>")
  if(worker_cuda STREQUAL "emulated")
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)
    set(WORKER_CUDART cuda_emulator)
    set(WORKER_CUBLASLT cuda_emulator)
    set(WORKER_CUDA_LABEL emulator) # of the tests that need a GPU or this
    target_compile_options(worker_cuda_flags INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--no-compress>")
    target_link_libraries(worker_cuda_flags INTERFACE cuda_emulator)
    add_custom_target(emulator_tests) # all that ctest -L emulator runs
    add_subdirectory(${CMAKE_SOURCE_DIR}/tests/emulator ${CMAKE_BINARY_DIR}/tests/emulator)
  else()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(WORKER_CUDART CUDA::cudart_static)
    set(WORKER_CUBLASLT CUDA::cublasLt)
    set(WORKER_CUDA_LABEL gpu)
  endif()
endif()

# worker_cuda_kernels(TARGET): what the kernels of a quantization plugin are compiled with, as worker_add_plugin_cuda of
# the installed SDK does it.
function(worker_cuda_kernels target)
  target_link_libraries(${target} PRIVATE worker_sdk worker_flags_c worker_cuda_flags)
  string(REPLACE ";" " " built "${CMAKE_CUDA_ARCHITECTURES}")
  target_compile_definitions(${target} PRIVATE "WK_CUDA_BUILT=\"${built}\"") # for the text of a refusal
  set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden)
endfunction()

# worker_cuda_module_options(TARGET): the same for a module, and how it is linked.
function(worker_cuda_module_options target)
  worker_cuda_kernels(${target})
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY ${WORKER_PLUGIN_BUILD_DIR}
    SKIP_BUILD_RPATH ON # the loader refuses a file that says where its libraries are
    LINKER_LANGUAGE CUDA LINK_DEPENDS ${CMAKE_SOURCE_DIR}/sdk/cmake/plugin-cuda.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${CMAKE_SOURCE_DIR}/sdk/cmake/plugin-cuda.map
    LINKER:-z,now LINKER:-z,noexecstack)
  add_custom_command(TARGET ${target} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${target}>
    $<TARGET_FILE_DIR:${target}>)
endfunction()

# worker_plugin_cuda(PLUGIN C FILE KERNELS file... [PRODUCTS file...]): PLUGIN-cuda.so beside PLUGIN.so: its kernels,
# and in C the exported struct; PRODUCTS: a format's families, compiled by sets of kernels. The property
# worker_kernels_PLUGIN has all objects with kernels: tests link what the module is made of, compiled once.
function(worker_plugin_cuda plugin)
  if(NOT WORKER_HAS_CUDA)
    return()
  endif()
  cmake_parse_arguments(P "" "C" "KERNELS;PRODUCTS" ${ARGN})
  if(NOT P_C OR NOT P_KERNELS OR P_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "worker_plugin_cuda(${plugin} C file KERNELS file... [PRODUCTS file...])")
  endif()
  add_library(${plugin}-kernels OBJECT ${P_KERNELS})
  set(sets)
  if(P_PRODUCTS)
    worker_kernel_sets(sets ${plugin}-products ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} FILES ${P_PRODUCTS})
  endif()
  set(objects)
  foreach(target ${plugin}-kernels ${sets})
    worker_cuda_kernels(${target})
    list(APPEND objects $<TARGET_OBJECTS:${target}>)
  endforeach()
  set_property(GLOBAL PROPERTY worker_kernels_${plugin} ${objects})
  add_library(${plugin}-cuda MODULE ${P_C} ${objects})
  worker_cuda_module_options(${plugin}-cuda)
  install(TARGETS ${plugin}-cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/worker/plugins COMPONENT worker)
endfunction()

# worker_cuda_program(NAME SOURCES file... [LINK target...]): a test or benchmark with kernels in it; needs a GPU to
# run.
function(worker_cuda_program name)
  if(NOT WORKER_HAS_CUDA OR NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(T "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE worker_core worker_flags_c worker_cuda_flags ${T_LINK})
endfunction()

# worker_cuda_test(NAME SOURCES file... [LINK target...] [DEPENDS target...] [TIMEOUT s] [ARGS arg...] [DATA file...]
#   [SLOW_EMULATED]): the same as a test, label gpu, or emulator where that is linked (and slow, for those of minutes
# there); exit status 77: no GPU here. DATA: as of worker_test.
function(worker_cuda_test name)
  if(NOT WORKER_HAS_CUDA OR NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(T "SLOW_EMULATED" "TIMEOUT" "SOURCES;LINK;DEPENDS;ARGS;DATA" ${ARGN})
  worker_cuda_program(${name} SOURCES ${T_SOURCES} LINK PkgConfig::CMOCKA ${T_LINK})
  if(T_DEPENDS)
    add_dependencies(${name} ${T_DEPENDS})
  endif()
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
  set(tests ${name})
  worker_data_present(present ${T_DATA})
  if(present)
    add_test(NAME ${name}.data COMMAND ${name} data)
    list(APPEND tests ${name}.data)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${tests} PROPERTIES LABELS ${WORKER_CUDA_LABEL} TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "WORKER_TEST_DATA=${WORKER_TEST_DATA};WORKER_PLUGIN_PATH=${WORKER_PLUGIN_BUILD_DIR}")
  if(TARGET emulator_tests)
    add_dependencies(emulator_tests ${name})
    set_tests_properties(${tests} PROPERTIES TIMEOUT 3600) # ends what hangs; no test is about time
    foreach(test ${tests})
      set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT KERNEL_REPEATS=3) # a hundred on a GPU
    endforeach()
    if(T_SLOW_EMULATED)
      set_tests_properties(${tests} PROPERTIES LABELS "emulator;slow")
    endif()
  else()
    set_tests_properties(${tests} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()
