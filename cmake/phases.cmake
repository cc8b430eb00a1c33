# phases.cmake: flash_add_test() for one doctest program, flash_add_phase() for one phase.
# A phase is found by its names: phases/NN-name/{notebook.cpp, attention.cuh, steps/host.cu}, tests/phase_NN_test.cpp.
# flash_add_phase(04 tiled-v2) makes the targets phase04 and phase04_pages and the CTest label phase04.

# How tests and notebooks are compiled: lightly, since that takes longer than running them, and with the headers of the
# C++ library, Eigen and xtensor, which never change, read once for all of them (CMakeLists.txt).
function(flash_compile_lightly target)
  target_compile_options(${target} PRIVATE -O1)
  target_precompile_headers(${target} REUSE_FROM cell_main)
endfunction()

# flash_add_test(<name> <source> LABELS <label>… [LINK <library>…]): a TEST_CASE becomes a CTest test "<name>.<title>".
function(flash_add_test name source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LABELS;LINK")
  add_executable(${name}_test ${source})
  target_link_libraries(${name}_test PRIVATE doctest_main flash_common ${arg_LINK})
  flash_compile_lightly(${name}_test)
  if(CMAKE_CROSSCOMPILING)  # who can run it would be asked for its test cases
    return()
  endif()
  doctest_discover_tests(${name}_test TEST_PREFIX "${name}.")
  # doctest_discover_tests loses all labels but the first; a script that CTest reads after the discovered list does not.
  set(script "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(WRITE "${script}" "foreach(t IN LISTS ${name}_test_TESTS)
  set_tests_properties(\"\${t}\" PROPERTIES LABELS \"${arg_LABELS}\" TIMEOUT 300
    SKIP_RETURN_CODE 77)
endforeach()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()

# flash_add_phase(<number> <name> [AUTOMATIC] [GRADIENTS] [FEATURE] [CAPABILITY <nn>] [FORWARD <number>]
# [USES <number>…] [NOTEBOOKS <name>…]): its objects, pages and proof. AUTOMATIC: `auto` (phases/library/automatic.hpp)
# takes it for some problem on some GPU; automatic_test tries which it takes. GRADIENTS: it has a backward pass.
# FEATURE: it gives a feature to the kernels of earlier phases: without the feature it has their bits, with it it is
# proved by tests/features.hpp. Its folder has mma.cu, too, the same for all GPUs with mma.sync: phase <number>m, which
# the lists have before it. CAPABILITY: the lowest that its kernel is compiled for. FORWARD: its forward pass is that of
# another phase, and is proved there. The phase before is always at hand; USES names further phases that the pages or
# the proof compare with. NOTEBOOKS: the pages in their order, <name>.cpp; notebook alone where nothing is said.
function(flash_add_phase number name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "GRADIENTS;FEATURE;AUTOMATIC" "CAPABILITY;FORWARD" "USES;NOTEBOOKS")
  if(NOT arg_NOTEBOOKS)
    set(arg_NOTEBOOKS notebook)
  endif()
  if(arg_AUTOMATIC)
    set_property(GLOBAL APPEND PROPERTY flash_automatic_phases ${number})
  endif()
  set(phase phase${number})
  set(folder "${PROJECT_SOURCE_DIR}/phases/${number}-${name}")
  set(test "${PROJECT_SOURCE_DIR}/tests/phase_${number}_test.cpp")
  set(objects ${phase}_objects)
  get_property(all GLOBAL PROPERTY flash_phases)
  list(POP_BACK all compared)
  foreach(other IN LISTS arg_FORWARD arg_USES)
    list(APPEND compared phase${other}_objects)
  endforeach()

  # What of it runs on the host, and its kernel once per machine: all that a program must
  # link to run it. A CPU phase whose entry points are its own has them in phase.cpp.
  file(GLOB host CONFIGURE_DEPENDS "${folder}/*.cpp")
  foreach(page IN LISTS arg_NOTEBOOKS)
    list(REMOVE_ITEM host "${folder}/${page}.cpp")
  endforeach()
  if(NOT EXISTS "${folder}/attention.cuh" AND NOT EXISTS "${folder}/phase.cpp")
    set(entry "${CMAKE_CURRENT_BINARY_DIR}/${phase}/attention.cpp")
    configure_file("${PROJECT_SOURCE_DIR}/cmake/attention.cpp.in" "${entry}" @ONLY)
    list(APPEND host "${entry}")
  endif()
  add_library(${objects} INTERFACE)
  target_link_libraries(${objects} INTERFACE flash_common)
  if(host)
    add_library(${objects}_host OBJECT ${host})
    target_link_libraries(${objects}_host PUBLIC flash_common)
    flash_for_library(${objects}_host)
    set_property(GLOBAL APPEND PROPERTY flash_phase_hosts ${objects}_host)
    target_sources(${objects} INTERFACE $<TARGET_OBJECTS:${objects}_host>)
  endif()
  set(promises)
  if(NOT arg_FORWARD AND NOT arg_FEATURE)
    list(APPEND promises flash_promises)
  endif()
  if(arg_GRADIENTS AND NOT arg_FEATURE)  # promises.cpp knows whether that is true
    list(APPEND promises flash_backward_promises)
  endif()
  set(capability)
  if(EXISTS "${folder}/attention.cuh")
    if(NOT arg_FORWARD AND NOT arg_FEATURE)
      list(APPEND promises flash_kernel_promises)
    endif()
    if(arg_CAPABILITY)
      set(capability LOWEST_CAPABILITY ${arg_CAPABILITY})
    else()
      set(arg_CAPABILITY 75)
    endif()
    # What adds its entry points: a file of its own where it has more than a forward pass, else one that is made here.
    set(kernel "${folder}/attention.cu")
    if(NOT EXISTS "${kernel}")
      set(kernel "${CMAKE_CURRENT_BINARY_DIR}/${phase}/attention.cu")
      configure_file("${PROJECT_SOURCE_DIR}/cmake/attention.cu.in" "${kernel}" @ONLY)
    endif()
    flash_add_kernel(${phase}_kernel "${kernel}" ${capability})
    target_link_libraries(${objects} INTERFACE ${phase}_kernel flash_host)
    set_property(GLOBAL APPEND PROPERTY flash_phase_kernels ${phase}_kernel)
  endif()
  if(arg_FEATURE)
    flash_add_kernel(${phase}m_kernel "${folder}/mma.cu" LOWEST_CAPABILITY 80)
    target_link_libraries(${objects} INTERFACE ${phase}m_kernel)
    set_property(GLOBAL APPEND PROPERTY flash_phase_kernels ${phase}m_kernel)
    set_property(GLOBAL APPEND_STRING PROPERTY flash_phase_objects "&${phase}m::phase, ")
    list(APPEND promises flash_contract)
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY flash_phase_objects "&${phase}::phase, ")
  set_property(GLOBAL APPEND PROPERTY flash_phases ${objects})
  set_property(GLOBAL APPEND PROPERTY flash_phase_folders "${number}-${name}")
  if(NOT FLASHPHASES_BUILD_TESTS)
    return()
  endif()

  # Kernels on the way to the phase's own: its pages and its proof run them, the phase does not.
  set(steps)
  if(EXISTS "${folder}/steps/host.cu")
    set(steps ${phase}_steps_kernel)
    flash_add_kernel(${steps} "${folder}/steps/host.cu" ${capability})
  endif()

  # The pages of the course. Each is a test too: it must run to its end, and its quotations must be there.
  add_custom_target(${phase}_pages)
  foreach(page IN LISTS arg_NOTEBOOKS)
    add_executable(${phase}_${page} "${folder}/${page}.cpp")
    target_link_libraries(${phase}_${page} PRIVATE cell_main ${objects} ${steps} ${compared})
    flash_compile_lightly(${phase}_${page})
    add_dependencies(${phase}_pages ${phase}_${page})
    add_test(NAME ${phase}.${page} COMMAND ${phase}_${page} --page)
    set_tests_properties(${phase}.${page} PROPERTIES LABELS "${phase};notebook" TIMEOUT 300)
    set_property(GLOBAL APPEND_STRING PROPERTY flash_pages
      "${number} phases/${number}-${name}/${page}.cpp bin/${phase}_${page}\n")
  endforeach()

  # The proof: what all phases promise, and what is this one's alone.
  flash_add_test(${phase} "${test}" LABELS ${phase} LINK ${objects} ${steps} ${compared} ${promises})

  add_custom_target(${phase} DEPENDS ${phase}_pages ${phase}_test)
endfunction()

# The pages of the book in order, for ./flash book and ./flash notebook: number, source, program; and a target for all.
function(flash_add_pages)
  get_property(pages GLOBAL PROPERTY flash_pages)
  file(WRITE "${PROJECT_BINARY_DIR}/pages" "${pages}")
  get_property(folders GLOBAL PROPERTY flash_phase_folders)
  add_custom_target(pages DEPENDS flash-recordings)
  foreach(folder IN LISTS folders)
    string(SUBSTRING "${folder}" 0 2 number)
    add_dependencies(pages phase${number}_pages)
  endforeach()
endfunction()

# flash_add_registry(MEASURED <file>…): the list of all phases as a source file, with what they need to run, and the
# definition (phases/definition), which is taken where none of them can; and how one of them is chosen: by what these
# files of docs/results say, which a program of the build turns into another source.
function(flash_add_registry)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "MEASURED")
  list(TRANSFORM arg_MEASURED PREPEND "${PROJECT_SOURCE_DIR}/docs/results/")
  set_property(GLOBAL PROPERTY flash_measured "${arg_MEASURED}")
  add_executable(flash-measured "${PROJECT_SOURCE_DIR}/phases/library/measured.cpp")
  target_include_directories(flash-measured PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(flash-measured PRIVATE flash_options)
  target_compile_options(flash-measured PRIVATE -O0)  # runs for 30 ms
  set(measured "${CMAKE_CURRENT_BINARY_DIR}/measured_figures.cpp")
  add_custom_command(OUTPUT "${measured}" COMMAND ${FLASH_MEASURED} "${measured}" ${arg_MEASURED}
    DEPENDS flash-measured ${arg_MEASURED} VERBATIM)

  get_property(folders GLOBAL PROPERTY flash_phase_folders)
  get_property(phases GLOBAL PROPERTY flash_phase_objects)
  set(includes)
  foreach(folder IN LISTS folders)
    string(APPEND includes "#include \"phases/${folder}/phase.hpp\"\n")
  endforeach()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/registry.cpp.in" "${CMAKE_CURRENT_BINARY_DIR}/registry.cpp" @ONLY)
  add_library(flash_registry_list OBJECT "${CMAKE_CURRENT_BINARY_DIR}/registry.cpp" "${measured}"
    "${PROJECT_SOURCE_DIR}/phases/library/automatic.cpp")
  target_link_libraries(flash_registry_list PUBLIC flash_common)
  flash_for_library(flash_registry_list)
  add_library(flash_registry INTERFACE)
  target_sources(flash_registry INTERFACE $<TARGET_OBJECTS:flash_registry_list>)
  get_property(objects GLOBAL PROPERTY flash_phases)
  target_link_libraries(flash_registry INTERFACE ${objects} flash_definition)
endfunction()
