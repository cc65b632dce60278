# Builds recorder.c and eights.c from the headers of every frozen version by every compiler that is there, from today's
# and from grown ones; the shipped llama plugin, which is C, likewise; and the variants that set what a host of today
# does not know.
# Usage: cmake -D VERSIONS=... -D TODAY=... -D GROWN=... -D SOURCE=... -D WORK_DIR=... -P build.cmake
file(REMOVE_RECURSE ${WORK_DIR})
include(${SOURCE}/sdk/tests/compilers.cmake)
set(built 0)

# Builds one plugin with the compiler of `row`. Further arguments: flags.
function(build row include folder source plugin)
  read_row(${row})
  file(MAKE_DIRECTORY ${folder})
  file(CHMOD ${WORK_DIR} ${folder} DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(extensions "")
  if(name STREQUAL "clang++") # designated initializers are C++20's; g++ has them before without a word
    set(extensions -Wno-c++20-designator)
  endif()
  execute_process(COMMAND ${compiler_${name}} -x ${language} -std=${standard} -Wall -Wextra -Werror
    -Wno-missing-field-initializers ${extensions} ${ARGN} -O2 -ffp-contract=off -fPIC -fvisibility=hidden -shared
    -I${include} -I${TODAY} -o ${folder}/${plugin}.so ${SOURCE}/${source}.c
    -Wl,--version-script=${SOURCE}/sdk/cmake/plugin.map -Wl,-z,defs,-z,now,-z,noexecstack -lm
    RESULT_VARIABLE result ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "${source}.c with ${include}, ${name} -std=${standard}:\n${text}")
  endif()
  file(CHMOD ${folder}/${plugin}.so PERMISSIONS OWNER_READ OWNER_WRITE)
  math(EXPR built "${built} + 1")
  set(built ${built} PARENT_SCOPE)
endfunction()

foreach(row IN LISTS compilers)
  string(REPLACE ":" "-" label ${row})
  set(sets ${VERSIONS})
  list(GET compilers 0 first)
  if(row STREQUAL first OR row MATCHES "c[+][+]20")
    list(APPEND sets ${TODAY} ${GROWN})
  endif()
  foreach(include IN LISTS sets)
    get_filename_component(of ${include} NAME)
    foreach(source recorder eights)
      build(${row} ${include} ${WORK_DIR}/same/${of}-${label} tests/abi/${source} ${source})
    endforeach()
    if(label MATCHES "^(gcc-c-c11|clang-c-c17)")
      build(${row} ${include} ${WORK_DIR}/run/${of}-${label} plugins/llama/llama llama)
    endif()
  endforeach()
endforeach()
list(GET compilers 0 row)
foreach(variant recorder:PLUGIN recorder:ARCH recorder:KEY recorder:ALIAS eights:QUANT eights:TYPE eights:PRODUCT)
  string(REPLACE ":" ";" parts ${variant})
  list(GET parts 0 source)
  list(GET parts 1 struct)
  string(TOLOWER ${struct} lower)
  build(${row} ${GROWN} ${WORK_DIR}/set tests/abi/${source} set_${lower} -DSET_${struct})
endforeach()
foreach(source recorder eights)
  build(${row} ${GROWN} ${WORK_DIR}/set tests/abi/${source} ${source})
endforeach()
# A plugin that asks for a minor that the headers do not have is told to take newer ones.
read_row(${row})
foreach(include IN LISTS VERSIONS TODAY)
  execute_process(COMMAND ${compiler_${name}} -std=c11 -DWORKER_ABI_MINOR=99 -I${include} -I${TODAY} -fsyntax-only
    ${SOURCE}/tests/abi/eights.c RESULT_VARIABLE result ERROR_VARIABLE text)
  if(result EQUAL 0 OR NOT text MATCHES "WORKER_ABI_MINOR is newer than this SDK: install a newer one")
    message(SEND_ERROR "WORKER_ABI_MINOR=99 with ${include}: ${result}, ${text}")
  endif()
endforeach()
message(STATUS "${built} plugins")
