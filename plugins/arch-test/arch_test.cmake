# The checks of an architecture plugin, run on the built shared object: arch_plugin_test(PLUGIN SOURCES file...) is the
# test test_PLUGIN.
set(ARCH_TEST_DIR ${CMAKE_CURRENT_LIST_DIR})
function(arch_plugin_test plugin)
  worker_test(test_${plugin} LABELS ${plugin} arch LINK test_support ${CMAKE_DL_LIBS} DEPENDS ${plugin} ${ARGN}
    ${ARCH_TEST_DIR}/arch_test.c ${ARCH_TEST_DIR}/../../core/tape/test_models.c)
  if(TARGET test_${plugin})
    target_include_directories(test_${plugin} PRIVATE ${ARCH_TEST_DIR})
  endif()
endfunction()
