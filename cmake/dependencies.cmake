# dependencies.cmake: Eigen, doctest, xtensor (+ xtl): the system's package, else a pinned download. Headers only.
# Offline without packages: put the archives named below into <build>/downloads, or set FETCHCONTENT_SOURCE_DIR_<NAME>
# to an unpacked tree. Google Benchmark is optional.
include(FetchContent)
find_package(Threads REQUIRED)
find_package(Eigen3 QUIET CONFIG REQUIRED)
find_package(doctest QUIET CONFIG REQUIRED)
find_package(xtensor QUIET CONFIG REQUIRED)
include(doctest)
add_library(flash_xtensor INTERFACE)
target_link_libraries(flash_xtensor INTERFACE xtensor)
