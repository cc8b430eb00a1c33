# dependencies.cmake: Eigen, doctest, xtensor (+ xtl): the system's package if there is one, else a pinned download.
# A wheel needs Eigen alone.
# Headers only: none of their own build files run. Without a network: put the archives named below into
# <build>/downloads, or point FETCHCONTENT_SOURCE_DIR_<NAME> (EIGEN3, DOCTEST, XTL, XTENSOR) at an unpacked tree.
# What is found here is GLOBAL: a project that this one is part of links it too, through flash::attention.
include(FetchContent)
if(NOT TARGET Threads::Threads)
  find_package(Threads REQUIRED GLOBAL)
endif()

# flash_find(<package> <version> <apt package> <archive> <sha256> <url>): sets <package>_FOUND, or <package>_SOURCE_DIR.
# One that is older counts as none (Ubuntu 22.04). Eigen's is asked for by "" and looked at below: Eigen 3.4 refuses
# "3.4...5", and Eigen 5 refuses "3.4".
macro(flash_find package version apt archive sha256 url)
  string(TOUPPER ${package} upper)
  if(NOT FETCHCONTENT_SOURCE_DIR_${upper})
    find_package(${package} ${version} QUIET CONFIG GLOBAL)
  endif()
  if(NOT ${package}_FOUND)
    # One attempt and one line: FetchContent alone would retry for more than a minute and end in a page of log.
    set(file "${CMAKE_BINARY_DIR}/downloads/${archive}")
    if(NOT FETCHCONTENT_SOURCE_DIR_${upper} AND NOT EXISTS "${file}")
      message(STATUS "${package} ${version}: not installed (${apt}), or an older one; downloading ${url}")
      file(DOWNLOAD "${url}" "${file}" STATUS status INACTIVITY_TIMEOUT 20)
      if(NOT status MATCHES "^0;")
        file(REMOVE "${file}")
        message(FATAL_ERROR "${package} is missing and cannot be downloaded (${status}); "
          "install ${apt}, or put ${url} at ${file}")
      endif()
    endif()
    # A SOURCE_SUBDIR that does not exist keeps the package's own CMakeLists.txt out of this build.
    FetchContent_Declare(${package} URL "${file}" URL_HASH SHA256=${sha256} SOURCE_SUBDIR headers-only
                         DOWNLOAD_EXTRACT_TIMESTAMP ON)
    FetchContent_MakeAvailable(${package})
    FetchContent_GetProperties(${package} SOURCE_DIR ${package}_SOURCE_DIR)
    message(STATUS "${package}: headers of ${${package}_SOURCE_DIR}")
  endif()
endmacro()

# The hashes are those of the upstream archives that Debian 13's source index lists as its .orig files (the same values
# stand in Homebrew's, Arch's and xmake's recipes); Eigen's and doctest's were checked on the archives' bytes as well.
flash_find(Eigen3 "" libeigen3-dev eigen-3.4.0.tar.bz2
  b4c198460eba6f28d34894e3a5710998818515104d6e74e5cc331ce31e46e626
  https://gitlab.com/libeigen/eigen/-/archive/3.4.0/eigen-3.4.0.tar.bz2)
if(NOT TARGET Eigen3::Eigen)
  add_library(Eigen3::Eigen INTERFACE IMPORTED GLOBAL)
  target_include_directories(Eigen3::Eigen INTERFACE "${Eigen3_SOURCE_DIR}")
elseif(Eigen3_VERSION AND Eigen3_VERSION VERSION_LESS 3.4)
  message(FATAL_ERROR "Eigen is ${Eigen3_VERSION}; expected 3.4 or newer; point Eigen3_DIR at one")
endif()
if(NOT FLASHPHASES_BUILD_PHASES)
  return()
endif()

add_library(flash_xtensor INTERFACE)  # one name for xtensor with xtl, wherever they come from
if(SKBUILD)  # a wheel is the library alone, which has no other tensors than its caller's
  return()
endif()
flash_find(doctest 2.4.9 doctest-dev doctest-2.4.11.tar.gz
  632ed2c05a7f53fa961381497bf8069093f0d6628c5f26286161fbd32a560186
  https://github.com/doctest/doctest/archive/refs/tags/v2.4.11.tar.gz)
flash_find(xtensor 0.24.3 libxtensor-dev xtensor-0.25.0.tar.gz
  32d5d9fd23998c57e746c375a544edf544b74f0a18ad6bc3c38cbba968d5e6c7
  https://github.com/xtensor-stack/xtensor/archive/refs/tags/0.25.0.tar.gz)
# A downloaded xtensor needs a newer one than Debian 12's goes with.
set(xtl 0.7.2)
if(NOT xtensor_FOUND)
  set(xtl 0.7.5)
endif()
flash_find(xtl "${xtl}" xtl-dev xtl-0.7.7.tar.gz
  44fb99fbf5e56af5c43619fc8c29aa58e5fad18f3ba6e7d9c55c111b62df1fbb
  https://github.com/xtensor-stack/xtl/archive/refs/tags/0.7.7.tar.gz)

if(doctest_FOUND)
  include(doctest)
else()
  add_library(doctest::doctest INTERFACE IMPORTED)
  target_include_directories(doctest::doctest INTERFACE "${doctest_SOURCE_DIR}")
  include("${doctest_SOURCE_DIR}/scripts/cmake/doctest.cmake")
endif()

foreach(package IN ITEMS xtl xtensor)
  if(${package}_FOUND)
    target_link_libraries(flash_xtensor INTERFACE ${package})
  else()
    target_include_directories(flash_xtensor SYSTEM INTERFACE "${${package}_SOURCE_DIR}/include")
  endif()
endforeach()
