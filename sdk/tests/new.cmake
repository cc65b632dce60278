# What `worker plugin new` writes builds at once with CMake and with make, passes its own tests, and these notice when
# the plugin is wrong. Two templates may lie side by side: each plugin has a name and a number of its own.
# Usage: cmake -D KIND=arch|quant -D PREFIX=... -D TEMPLATES=... -D WORK_DIR=... -D COMPILER=... -P new.cmake
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})
set(ENV{PATH} "${PREFIX}/bin:$ENV{PATH}") # as a user has it: CMake and make find the SDK beside the worker
set(ENV{CC} ${COMPILER})
set(ENV{CFLAGS} "-Wall -Wextra -Werror")
foreach(variable PKG_CONFIG_PATH WORKER_PLUGIN_PATH)
  unset(ENV{${variable}})
endforeach()

# run(STATUS FOLDER command...): STATUS is 0, or FAILS; what it says goes to `said`.
macro(run expected folder)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK_DIR}/${folder} RESULT_VARIABLE status OUTPUT_VARIABLE said
    ERROR_VARIABLE text)
  if(("${expected}" STREQUAL FAILS AND status EQUAL 0) OR ("${expected}" EQUAL 0 AND NOT status EQUAL 0))
    message(FATAL_ERROR "${ARGN} in ${WORK_DIR}/${folder}: status ${status}, expected ${expected}\n${said}${text}")
  endif()
endmacro()

macro(build_and_test expected folder)
  run(0 ${folder} ${CMAKE_COMMAND} -B build -D CMAKE_CUDA_COMPILER=NOTFOUND) # kernels: sdk.example.quant.cmake
  run(0 ${folder} ${CMAKE_COMMAND} --build build)
  run(${expected} ${folder} ${CMAKE_CTEST_COMMAND} --test-dir build --output-on-failure --no-tests=error)
endmacro()

# change(FILE from to): must be there.
macro(change file from to)
  file(READ ${WORK_DIR}/${file} source)
  string(REPLACE "${from}" "${to}" changed "${source}")
  if(changed STREQUAL source)
    message(FATAL_ERROR "${file} has no \"${from}\"")
  endif()
  file(WRITE ${WORK_DIR}/${file} "${changed}")
endmacro()

# The template's own words give the template, byte for byte.
run(0 . worker plugin new ${KIND} my${KIND})
file(GLOB_RECURSE files RELATIVE ${TEMPLATES}/template-${KIND} ${TEMPLATES}/template-${KIND}/*)
file(GLOB_RECURSE written RELATIVE ${WORK_DIR}/my${KIND} ${WORK_DIR}/my${KIND}/*)
if(NOT "${files}" STREQUAL "${written}")
  message(FATAL_ERROR "the template has ${files}; written: ${written}")
endif()
foreach(file IN LISTS files)
  run(0 . ${CMAKE_COMMAND} -E compare_files ${TEMPLATES}/template-${KIND}/${file} my${KIND}/${file})
endforeach()

# Under other words nothing of them is left, and it builds and passes.
run(0 . worker plugin new ${KIND} Some-2nd_name --id com.example-2.some)
file(GLOB_RECURSE written ${WORK_DIR}/Some-2nd_name/*)
foreach(file IN LISTS written)
  file(READ ${file} source)
  if("${file} ${source}" MATCHES "/my${KIND}|my${KIND}\\.|org\\.example|\"my${KIND}")
    message(FATAL_ERROR "${file}: \"${CMAKE_MATCH_0}\" was not replaced")
  endif()
endforeach()
build_and_test(0 Some-2nd_name)
file(STRINGS ${WORK_DIR}/Some-2nd_name/build/CMakeCache.txt written REGEX "^CMAKE_BUILD_TYPE:")
if(NOT written MATCHES "=Release$")
  message(FATAL_ERROR "an unset build type became ${written}")
endif()
run(0 Some-2nd_name ${CMAKE_COMMAND} --build build --target run)
if(NOT said MATCHES "\n[^\n]+\n")
  message(FATAL_ERROR "run says nothing: ${said}")
endif()
run(0 Some-2nd_name worker plugin info build/plugins/Some-2nd_name.so)
if(NOT said MATCHES "id +com\\.example-2\\.some\n")
  message(FATAL_ERROR "${said}")
endif()

# The same by make; without a worker on PATH and without pkg-config's help it says what to set.
run(0 my${KIND} make test)
run(0 my${KIND} make run)
run(0 my${KIND} make install DESTDIR=${WORK_DIR}/installed)
file(GLOB_RECURSE written RELATIVE ${WORK_DIR}/installed ${WORK_DIR}/installed/*.so)
if(NOT written MATCHES "worker/plugins/my${KIND}\\.so$")
  message(FATAL_ERROR "make install wrote ${written}")
endif()
run(0 my${KIND} make clean)
string(REPLACE "${PREFIX}/bin:" "" without "$ENV{PATH}")
run(FAILS my${KIND} ${CMAKE_COMMAND} -E env PATH=${without} make)
if(NOT text MATCHES "add PREFIX/bin to PATH, or set PKG_CONFIG_PATH to PREFIX/lib/pkgconfig")
  message(FATAL_ERROR "make without the SDK: ${text}")
endif()

# Its tests fail when the plugin computes something else.
set(wrong_arch "myarch.c|WK_ROPE_HALF|WK_ROPE_INTERLEAVED" "myarch.c|WK_GLU_SILU|WK_GLU_GELU_TANH"
  "myarch.c|.scale = 1.0f / sqrtf|.scale = 0.9f / sqrtf" "tiny_model.c|key_f32(f, \"myarch.rope|key_f32(f, \"myarch.rpe"
  "tiny_model.c|add(l, \"ffn_norm\", 0, E)|add(l, \"ffn_norm\", 0, E + 1)")
set(wrong_quant "reference.c|levels[b[2 + j] & 15]|levels[b[2 + j] & 7]" "reference.c|costs[i] * q * x[i]|q * x[i]"
  "products.h|183, 198|183, 197" "myquant.c|ggml:23226|ggml:23227")
foreach(row IN LISTS wrong_${KIND})
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 file)
  list(GET row 1 from)
  list(GET row 2 to)
  file(READ ${WORK_DIR}/my${KIND}/${file} right)
  change(my${KIND}/${file} "${from}" "${to}")
  run(FAILS my${KIND} make test)
  file(WRITE ${WORK_DIR}/my${KIND}/${file} "${right}")
endforeach()
run(0 my${KIND} make test)
