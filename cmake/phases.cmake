# phases.cmake: flash_add_test() for one doctest program, flash_add_phase() for one phase.
# A phase is found by its names: phases/NN-name/{notebook.cpp, attention.cu} and tests/phase_NN_test.cpp.
# flash_add_phase(04 tiled-v2) makes the target phase04 and the CTest label phase04.

# flash_add_test(<name> <source> LABELS <label>… [LINK <library>…]): every TEST_CASE becomes one CTest test "<name>.<title>".
function(flash_add_test name source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LABELS;LINK")
  add_executable(${name}_test ${source})
  target_link_libraries(${name}_test PRIVATE doctest_main flash_common ${arg_LINK})
  doctest_discover_tests(${name}_test TEST_PREFIX "${name}.")
  # doctest_discover_tests loses all labels but the first; a script that CTest reads after the discovered list does not.
  set(script "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(WRITE "${script}" "foreach(t IN LISTS ${name}_test_TESTS)
  set_tests_properties(\"\${t}\" PROPERTIES LABELS \"${arg_LABELS}\" TIMEOUT 300
    SKIP_REGULAR_EXPRESSION \"skipped: no\")
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()

function(flash_add_phase number name)
  set(phase phase${number})
  set(folder "${PROJECT_SOURCE_DIR}/phases/${number}-${name}")
  set(test "${PROJECT_SOURCE_DIR}/tests/phase_${number}_test.cpp")
  set(kernel)
  set(programs)
  get_property(kernels GLOBAL PROPERTY flash_phase_kernels)
  list(POP_BACK kernels previous)

  # The kernel, once per machine.
  if(EXISTS "${folder}/attention.cu")
    set(kernel ${phase}_kernel)
    flash_add_kernel(${kernel} "${folder}/attention.cu")
    set_property(GLOBAL APPEND PROPERTY flash_phase_kernels ${kernel})
  endif()

  # The page of the course; it is a test too: it must run to its end.
  if(EXISTS "${folder}/notebook.cpp")
    add_executable(${phase}_notebook "${folder}/notebook.cpp")
    target_link_libraries(${phase}_notebook PRIVATE cell_main flash_common ${kernel} ${previous})
    add_test(NAME ${phase}.notebook COMMAND ${phase}_notebook)
    set_tests_properties(${phase}.notebook PROPERTIES LABELS "${phase};notebook" TIMEOUT 300)
    list(APPEND programs ${phase}_notebook)
  endif()

  # The proof, which compares the phase with the one before.
  if(EXISTS "${test}")
    flash_add_test(${phase} "${test}" LABELS ${phase} LINK ${kernel} ${previous})
    list(APPEND programs ${phase}_test)
  endif()

  add_custom_target(${phase} DEPENDS ${programs})
endfunction()
