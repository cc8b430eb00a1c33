# aarch64.cmake: builds for 64-bit ARM with Debian's cross compiler (g++-aarch64-linux-gnu): no program of it runs here.
# What the build itself runs, flash-launches and flash-measured, comes from a build for this computer, FLASH_HOST_BUILD.
# ./flash test --cross
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# Headers alone, which Debian keeps in the folder of its own processor.
file(GLOB xtensor_DIR /usr/lib/*-linux-gnu/cmake/xtensor)
