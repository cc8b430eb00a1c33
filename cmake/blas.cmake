# blas.cmake: matrix products of the CPU phases by OpenBLAS instead of Eigen's own code, where somebody asks for it.
# Off by default: results must not depend, not even in their last bits, on what a machine happens to have installed.
# cmake -B build -DFLASH_BLAS=ON [-DFLASH_OPENBLAS=/path/to/libopenblas.so]; the preset "release" asks for it
option(FLASH_BLAS "Let OpenBLAS, if it is installed, do Eigen's matrix products" OFF)

# Nothing but OpenBLAS: the reference BLAS that Debian installs by the same name is many times slower than Eigen.
if(FLASH_BLAS)
  find_library(FLASH_OPENBLAS openblas DOC "libopenblas.so or libopenblas.a")
  if(FLASH_OPENBLAS)
    message(STATUS "matrix products: ${FLASH_OPENBLAS}")
    target_compile_definitions(flash_common PUBLIC FLASH_BLAS EIGEN_USE_BLAS)
    target_link_libraries(flash_common PUBLIC "${FLASH_OPENBLAS}")
  else()
    message(STATUS "matrix products: Eigen's own, since there is no OpenBLAS (apt-get install libopenblas-dev)")
  endif()
endif()
