# CUDA: optional. WORKER_CUDA=auto builds the device module and the plugins' kernels where nvcc is found; on insists;
# off does not look; emulated links the emulator of tests/emulator instead of the CUDA runtime and keeps the kernels as
# PTX, so that the GPU's tests run on the processor.

set(WORKER_CUDA auto CACHE STRING "build for CUDA: auto, on, off or emulated")
set_property(CACHE WORKER_CUDA PROPERTY STRINGS auto on off emulated)
set(WORKER_CUDA_ARCHITECTURES "80-real;86-real;89-real;90a-real" CACHE STRING
  "GPU architectures to compile kernels for; machine code only, nothing is compiled at run time")

string(TOLOWER "${WORKER_CUDA}" worker_cuda)
set(WORKER_HAS_CUDA OFF)
if(NOT worker_cuda STREQUAL "off")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(WORKER_NVCC nvcc HINTS /usr/local/cuda/bin)
    if(WORKER_NVCC)
      set(CMAKE_CUDA_COMPILER ${WORKER_NVCC})
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(worker_cuda STREQUAL "emulated")
      set(CMAKE_CUDA_ARCHITECTURES 90a-virtual)
    else()
      set(CMAKE_CUDA_ARCHITECTURES ${WORKER_CUDA_ARCHITECTURES})
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(WORKER_HAS_CUDA ON)
  elseif(worker_cuda STREQUAL "on" OR worker_cuda STREQUAL "emulated")
    message(FATAL_ERROR
      "WORKER_CUDA=${WORKER_CUDA}, but no CUDA compiler was found: install the CUDA toolkit or set CUDACXX")
  endif()
endif()
message(STATUS "CUDA: ${WORKER_HAS_CUDA}")

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

# What every CUDA module of a quantization plugin is built with, as worker_add_plugin_cuda of the installed SDK does.
function(worker_cuda_module_options target)
  target_link_libraries(${target} PRIVATE worker_sdk worker_flags_c worker_cuda_flags)
  string(REPLACE ";" " " built "${CMAKE_CUDA_ARCHITECTURES}")
  target_compile_definitions(${target} PRIVATE "WK_CUDA_BUILT=\"${built}\"") # for the text of a refusal
  set_target_properties(${target} PROPERTIES PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY ${WORKER_PLUGIN_BUILD_DIR}
    CUDA_VISIBILITY_PRESET hidden
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/sdk/cmake/plugin-cuda.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${CMAKE_SOURCE_DIR}/sdk/cmake/plugin-cuda.map
    LINKER:-z,now LINKER:-z,noexecstack)
  add_custom_command(TARGET ${target} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${target}>
    $<TARGET_FILE_DIR:${target}>)
endfunction()

# worker_plugin_cuda(PLUGIN source...): PLUGIN-cuda.so beside PLUGIN.so: its kernels, and in C the exported struct.
function(worker_plugin_cuda plugin)
  if(NOT WORKER_HAS_CUDA)
    return()
  endif()
  add_library(${plugin}-cuda MODULE ${ARGN})
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

# worker_cuda_test(NAME SOURCES file... [LINK target...] [DEPENDS target...] [TIMEOUT s] [SLOW_EMULATED]): the same as a
# test, label gpu, or emulator where that is linked (and slow, for those of minutes there); exit status 77: no GPU here.
function(worker_cuda_test name)
  if(NOT WORKER_HAS_CUDA OR NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(T "SLOW_EMULATED" "TIMEOUT" "SOURCES;LINK;DEPENDS" ${ARGN})
  worker_cuda_program(${name} SOURCES ${T_SOURCES} LINK PkgConfig::CMOCKA ${T_LINK})
  if(T_DEPENDS)
    add_dependencies(${name} ${T_DEPENDS})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS ${WORKER_CUDA_LABEL} TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "WORKER_TEST_DATA=${WORKER_TEST_DATA};WORKER_PLUGIN_PATH=${WORKER_PLUGIN_BUILD_DIR}")
  if(TARGET emulator_tests)
    add_dependencies(emulator_tests ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 3600) # ends what hangs; no test is about time
    if(T_SLOW_EMULATED)
      set_tests_properties(${name} PROPERTIES LABELS "emulator;slow")
    endif()
  else()
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()
