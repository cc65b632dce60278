# A test of an architecture plugin on the built shared object: arch_plugin_test(NAME PLUGIN [GOLDENS] SOURCES file...).
set(ARCH_TEST_DIR ${CMAKE_CURRENT_LIST_DIR})
function(arch_plugin_test name plugin)
  worker_test(${name} LABELS ${plugin} arch LINK test_support ${CMAKE_DL_LIBS} DEPENDS ${plugin} ${ARGN}
    ${ARCH_TEST_DIR}/arch_test.c ${ARCH_TEST_DIR}/arch_test_keys.c ${ARCH_TEST_DIR}/test_models.c)
endfunction()
