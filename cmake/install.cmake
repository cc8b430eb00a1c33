# install.cmake: phase 04 as a header-only library for other projects, the target flash::attention.
# The headers keep their paths, so that #include "phases/04-tiled-v2/attention.hpp" reads the same here and there.
# cmake --install build --prefix /usr/local; then find_package(flashphases) as in tests/consumer
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(flash_attention INTERFACE)
add_library(flash::attention ALIAS flash_attention)
set_target_properties(flash_attention PROPERTIES EXPORT_NAME attention)
target_compile_features(flash_attention INTERFACE cxx_std_20)
target_link_libraries(flash_attention INTERFACE Eigen3::Eigen Threads::Threads)
target_include_directories(flash_attention INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/flashphases>")

foreach(header IN ITEMS
    phases/04-tiled-v2/attention.hpp phases/common/matrix.hpp phases/common/problem.hpp phases/common/progress.hpp
    phases/common/softmax_row.hpp sim/error.hpp sim/ledger.hpp sim/memory/memory.hpp sim/number.hpp)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/flashphases/${folder}")
endforeach()

set(package "${CMAKE_INSTALL_LIBDIR}/cmake/flashphases")
install(TARGETS flash_attention EXPORT flashphases)
install(EXPORT flashphases NAMESPACE flash:: FILE flashphasesTargets.cmake DESTINATION "${package}")
configure_package_config_file(cmake/flashphasesConfig.cmake.in "${PROJECT_BINARY_DIR}/flashphasesConfig.cmake"
  INSTALL_DESTINATION "${package}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/flashphasesConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/flashphasesConfig.cmake" "${PROJECT_BINARY_DIR}/flashphasesConfigVersion.cmake"
  DESTINATION "${package}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/flashphases")
