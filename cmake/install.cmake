# install.cmake: phase 04 as a header-only library for other projects, the target flash::attention. The package that it
# belongs to has flash::library too, libflashphases (phases/library/CMakeLists.txt).
# The headers keep their paths, so that #include "phases/04-tiled-v2/attention.hpp" reads the same here and there.
# cmake --install build --prefix /usr/local; then find_package(flashphases) or pkg-config flashphases (tests/consumer)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(flash_attention INTERFACE)
add_library(flash::attention ALIAS flash_attention)
set_target_properties(flash_attention PROPERTIES EXPORT_NAME attention)
target_compile_features(flash_attention INTERFACE cxx_std_20)
target_link_libraries(flash_attention INTERFACE Eigen3::Eigen Threads::Threads)
target_include_directories(flash_attention INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/flashphases>")

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

# Phase 04's header and all that it includes, by whatever way.
set(headers phases/04-tiled-v2/attention.hpp)
set(new ${headers})
while(new)
  list(POP_FRONT new header)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/flashphases/${folder}")
  file(STRINGS "${PROJECT_SOURCE_DIR}/${header}" includes REGEX "^#include \"")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" include "${include}")
    if(NOT include IN_LIST headers)
      list(APPEND headers "${include}")
      list(APPEND new "${include}")
    endif()
  endforeach()
endwhile()

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/flashphases")
install(TARGETS flash_attention EXPORT flashphases)
install(EXPORT flashphases NAMESPACE flash:: FILE flashphasesTargets.cmake DESTINATION "${package}")
configure_package_config_file(cmake/flashphasesConfig.cmake.in "${PROJECT_BINARY_DIR}/flashphasesConfig.cmake"
  INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/flashphasesConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/flashphasesConfig.cmake" "${PROJECT_BINARY_DIR}/flashphasesConfigVersion.cmake"
  DESTINATION "${package}")
configure_file(cmake/flashphases.pc.in "${PROJECT_BINARY_DIR}/flashphases.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/flashphases.pc" DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/flashphases")
