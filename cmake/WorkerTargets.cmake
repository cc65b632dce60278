# Warnings, sanitizers and the three kinds of targets that the project has: modules of the core, plugins, tests.

add_library(worker_flags INTERFACE)
# One source of floating-point truth: no contraction behind our back; kernels ask for FMA by name.
target_compile_options(worker_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wvla -Werror -ffp-contract=off
  -fno-math-errno)
target_compile_definitions(worker_flags INTERFACE _GNU_SOURCE)
# The same for the C files of a target that has CUDA files as well.
add_library(worker_flags_c INTERFACE)
target_compile_options(worker_flags_c INTERFACE
  "$<$<COMPILE_LANGUAGE:C>:-Wall;-Wextra;-Wconversion;-Wshadow;-Wvla;-Werror;-ffp-contract=off;-fno-math-errno>")
target_compile_definitions(worker_flags_c INTERFACE "$<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>")

set(WORKER_SANITIZE "" CACHE STRING "sanitizers to build with: address,undefined or thread")
if(WORKER_SANITIZE)
  target_compile_options(worker_flags INTERFACE -fsanitize=${WORKER_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g)
  target_link_options(worker_flags INTERFACE -fsanitize=${WORKER_SANITIZE})
  if(CMAKE_C_COMPILER_ID STREQUAL GNU)
    # instrumented code hides initialization from gcc
    target_compile_options(worker_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

option(WORKER_FUZZ "build the libFuzzer targets (clang only)" OFF)

set(WORKER_PLUGIN_BUILD_DIR ${CMAKE_BINARY_DIR}/plugins)

# worker_plugin(NAME source...): a plugin of this project, built exactly as the installed SDK's worker_add_plugin builds
# one.
function(worker_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE worker_sdk worker_flags m)
  set_target_properties(${name} PROPERTIES PREFIX "" SUFFIX ".so" LIBRARY_OUTPUT_DIRECTORY ${WORKER_PLUGIN_BUILD_DIR}
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/sdk/cmake/plugin.map)
  target_link_options(${name} PRIVATE LINKER:--version-script=${CMAKE_SOURCE_DIR}/sdk/cmake/plugin.map LINKER:-z,now
    LINKER:-z,noexecstack)
  if(NOT WORKER_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
  # The loader refuses what others could have written to, and a umask of 002 makes just that.
  add_custom_command(TARGET ${name} POST_BUILD COMMAND chmod go-w $<TARGET_FILE:${name}> $<TARGET_FILE_DIR:${name}>)
  install(TARGETS ${name} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/worker/plugins COMPONENT worker)
endfunction()

# worker_test(NAME LABELS label... SOURCES file... [LINK target...] [DEPENDS target...] [TIMEOUT s] [ARGS arg...]
#   [GOLDENS] [DATA file...]): a cmocka program.
# GOLDENS: it reads what the test goldens makes, WORKER_GOLDENS. DATA: where these files of the test data are present, a
# second test, NAME.data, runs the program with the argument "data" (test_data.h); elsewhere there is no such test.
function(worker_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(T "GOLDENS" "TIMEOUT" "SOURCES;LABELS;LINK;DEPENDS;ARGS;DATA" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support)
  target_link_libraries(${name} PRIVATE worker_core worker_flags PkgConfig::CMOCKA ${T_LINK})
  if(T_DEPENDS)
    add_dependencies(${name} ${T_DEPENDS})
  endif()
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600) # ends what hangs; no test is about time
  endif()
  set(tests ${name})
  worker_data_present(present ${T_DATA})
  if(present)
    add_test(NAME ${name}.data COMMAND ${name} data)
    list(APPEND tests ${name}.data)
  endif()
  set(environment "WORKER_TEST_DATA=${WORKER_TEST_DATA}" "WORKER_PLUGIN_PATH=${WORKER_PLUGIN_BUILD_DIR}"
    "WORKER_GOLDENS=${WORKER_GOLDENS}")
  set_tests_properties(${tests} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "${environment}"
    FAIL_REGULAR_EXPRESSION "ERROR: (Address|Thread|Undefined|Leak)Sanitizer")
  if(T_GOLDENS)
    set_tests_properties(${tests} PROPERTIES FIXTURES_REQUIRED goldens)
  endif()
endfunction()

# worker_data_present(RESULT file...): are all of these among the test data? False for none.
function(worker_data_present result)
  set(present OFF)
  foreach(file ${ARGN})
    set(present ON)
    if(NOT EXISTS ${WORKER_TEST_DATA}/${file})
      set(${result} OFF PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} ${present} PARENT_SCOPE)
endfunction()

# What the test goldens makes: models, logits and blocks that every clone has.
set(WORKER_GOLDENS ${CMAKE_BINARY_DIR}/goldens)

# Where more golden data lie, of real models; tests that need them are added only where they are present.
if(DEFINED ENV{WORKER_TEST_DATA})
  set(WORKER_TEST_DATA_DEFAULT $ENV{WORKER_TEST_DATA})
else()
  set(WORKER_TEST_DATA_DEFAULT ${CMAKE_SOURCE_DIR}/../shared/data)
endif()
set(WORKER_TEST_DATA ${WORKER_TEST_DATA_DEFAULT} CACHE PATH "folder with golden test data")
