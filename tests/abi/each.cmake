# Runs PROGRAM with every folder of FOLDERS.
file(GLOB folders LIST_DIRECTORIES true ${FOLDERS}/*)
execute_process(COMMAND ${PROGRAM} ${folders} RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT folders)
  message(FATAL_ERROR "${PROGRAM}: ${result}")
endif()
