# options.cmake: the compiler options of our own code, as one interface target, flash_options.
# Every target links it except kernels' checked builds, which have flags of their own (kernels.cmake).
# cmake -B build -DFLASH_NATIVE=ON -DFLASH_SANITIZE=ON
option(FLASH_NATIVE "Compile for this very CPU (-march=native): three times the speed of Eigen's matrix products" OFF)
option(FLASH_SANITIZE "Compile with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)

add_library(flash_options INTERFACE)
target_compile_options(flash_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>)

# GCC 12 warns falsely about "text" + std::string (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(flash_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# Warnings are errors where CI=true, never on a reader's machine. Not with -march=native: GCC 12 warns falsely inside its
# own AVX-512 headers, pages of it, so that one warning is off there.
if("$ENV{CI}" STREQUAL "true" AND NOT FLASH_NATIVE)
  target_compile_options(flash_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
# All instructions of this CPU, but in the generic order: what GCC 12 does for AMD's Zen in particular makes Eigen's
# matrix product a quarter slower (57 instead of 75 GFLOP/s).
if(FLASH_NATIVE)
  target_compile_options(flash_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-march=native;-mtune=generic;-Wno-maybe-uninitialized>")
endif()
if(FLASH_SANITIZE)
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
  target_compile_options(flash_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${sanitize};-fno-omit-frame-pointer>")
  target_link_options(flash_options INTERFACE ${sanitize})
endif()
