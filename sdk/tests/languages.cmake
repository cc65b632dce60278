# A plugin of each language and compiler that is there is mapped and started by the worker.
# Usage: cmake -D INCLUDE_DIR=... -D MAP=... -D SOURCE=... -D WORK_DIR=... -D WORKER=... -P languages.cmake
file(MAKE_DIRECTORY ${WORK_DIR})
file(CHMOD ${WORK_DIR} DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
include(${CMAKE_CURRENT_LIST_DIR}/compilers.cmake)
set(checked 0)
foreach(row IN LISTS compilers)
  read_row(${row})
  set(plugin ${WORK_DIR}/${name}-${standard}.so)
  set(extensions "")
  if(name STREQUAL "clang++") # designated initializers are C++20's; g++ has them before without a word
    set(extensions -Wno-c++20-designator)
  endif()
  execute_process(COMMAND ${compiler_${name}} -x ${language} -std=${standard} -Wall -Wextra -Werror
    -Wno-missing-field-initializers ${extensions} -O2 -ffp-contract=off -fPIC -fvisibility=hidden
    -shared -I${INCLUDE_DIR} -o ${plugin} ${SOURCE} -Wl,--version-script=${MAP} -Wl,-z,defs,-z,now,-z,noexecstack -lm
    RESULT_VARIABLE result ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "${name} -std=${standard}:\n${text}")
    continue()
  endif()
  file(CHMOD ${plugin} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  execute_process(COMMAND ${WORKER} plugin check ${plugin} RESULT_VARIABLE result OUTPUT_VARIABLE said
    ERROR_VARIABLE text)
  if(NOT result EQUAL 0 OR NOT said MATCHES " 0 failed\n$")
    message(SEND_ERROR "${name} -std=${standard}: status ${result}, ${said}${text}")
  endif()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no compiler was found")
endif()
message(STATUS "${checked} plugins")
