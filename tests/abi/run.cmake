# The shipped llama plugin, built from the headers of every frozen version and from grown ones, writes what the tree's
# own does.
# Usage: cmake -D WORKER=... -D FOLDERS=... -P run.cmake
set(run ${WORKER} run -m embedded:haiku -p "The sea" -n 12 --temperature 0 --seed 1)
execute_process(COMMAND ${run} OUTPUT_VARIABLE wanted RESULT_VARIABLE result ERROR_QUIET)
file(GLOB folders LIST_DIRECTORIES true ${FOLDERS}/*)
if(NOT result EQUAL 0 OR wanted STREQUAL "" OR NOT folders)
  message(FATAL_ERROR "the tree's own: ${result}, \"${wanted}\", folders: ${folders}")
endif()
foreach(folder IN LISTS folders)
  execute_process(COMMAND ${WORKER} plugin list --plugin-dir ${folder} OUTPUT_VARIABLE list)
  if(NOT list MATCHES "\nfound +org.worker.llama [^\n]*${folder}/llama.so")
    message(SEND_ERROR "${folder}/llama.so is not the one that is used:\n${list}")
  endif()
  execute_process(COMMAND ${run} --plugin-dir ${folder} OUTPUT_VARIABLE said RESULT_VARIABLE result ERROR_VARIABLE text)
  if(NOT result EQUAL 0 OR NOT said STREQUAL wanted)
    message(SEND_ERROR "${folder}: ${result}, \"${said}\" instead of \"${wanted}\"\n${text}")
  endif()
endforeach()
