# The checks of a quantization plugin, run on the built shared object: quant_plugin_test(PLUGIN [GOLDENS]
# [DATA file...]).
set(QUANT_TEST_DIR ${CMAKE_CURRENT_LIST_DIR})
function(quant_plugin_test plugin)
  if(NOT BUILD_TESTING)
    return()
  endif()
  worker_test(test-${plugin} LABELS ${plugin} quant SOURCES ${QUANT_TEST_DIR}/quant_test.c
    ${QUANT_TEST_DIR}/quant_test_product.c
    LINK m ${CMAKE_DL_LIBS} DEPENDS ${plugin} TIMEOUT 300 ${ARGN})
  target_compile_definitions(test-${plugin} PRIVATE QUANT_TEST_PLUGIN="${plugin}.so")
endfunction()
