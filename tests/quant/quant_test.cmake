# The checks of a quantization plugin, run on the built shared object: those that every author has (worker plugin
# check), and those of what this project's encoders promise: quant_plugin_test(PLUGIN [GOLDENS] [DATA file...]).
set(QUANT_TEST_DIR ${CMAKE_CURRENT_LIST_DIR})
function(quant_plugin_test plugin)
  if(NOT BUILD_TESTING)
    return()
  endif()
  add_test(NAME check-${plugin} COMMAND worker plugin check $<TARGET_FILE:${plugin}>)
  set_tests_properties(check-${plugin} PROPERTIES LABELS "${plugin};quant" TIMEOUT 300)
  worker_test(test-${plugin} LABELS ${plugin} quant SOURCES ${QUANT_TEST_DIR}/quant_test.c
    LINK m ${CMAKE_DL_LIBS} DEPENDS ${plugin} TIMEOUT 300 ${ARGN})
  target_compile_definitions(test-${plugin} PRIVATE QUANT_TEST_PLUGIN="${plugin}.so")
endfunction()
