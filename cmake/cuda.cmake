# cuda.cmake: optional CUDA. Sets FLASH_HAVE_CUDA; without nvcc every phase still runs, on the simulator.
# AUTO uses nvcc when it is found and can do C++20 (CUDA 12 or newer); ON insists; OFF does not look.
# cmake -B build -DFLASH_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90
set(FLASH_CUDA AUTO CACHE STRING "Compile the kernels for the GPU too: AUTO, ON or OFF")
set_property(CACHE FLASH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(FLASH_HAVE_CUDA OFF)

# flash_architectures(<result> <lowest>): of the architectures of the build those that have this capability. Where none
# has, the lowest itself: the kernel runs on no GPU of the build, but what names it must link.
function(flash_architectures result lowest)
  set(architectures)
  foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
    string(REGEX MATCH "^[0-9]+" capability ${architecture})
    if(NOT capability LESS lowest)
      list(APPEND architectures ${architecture})
    endif()
  endforeach()
  if(NOT architectures)
    set(architectures ${lowest})
  endif()
  set(${result} "${architectures}" PARENT_SCOPE)
endfunction()

if(NOT FLASH_CUDA)
  message(STATUS "CUDA: off (FLASH_CUDA=OFF); kernels run on the simulator")
  return()
endif()

# Every RTX card, A100 and H100. Not "native", which is a configure error on a machine without a GPU, and set before
# the language is enabled, because CMake would choose 52 or 75 alone.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(architectures "75;80;90")
  if(SKBUILD)  # a wheel is for all of them, and for later ones by the PTX of 80
    set(architectures "75-real;80;90-real")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES "${architectures}" CACHE STRING "Compute capabilities to compile for")
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(FLASH_NVCC nvcc HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(FLASH_NVCC)
    set(ENV{CUDACXX} "${FLASH_NVCC}")
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.0)
    set(FLASH_HAVE_CUDA ON)
  endif()
endif()

if(FLASH_HAVE_CUDA)
  # CMake 3.25.1 (Debian 12) does not know nvcc's C++20 flag; 3.25.2 does.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  message(STATUS "CUDA: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
elseif(FLASH_CUDA STREQUAL "AUTO")
  message(STATUS "CUDA: no working nvcc 12 or newer; kernels run on the simulator")
else()
  message(FATAL_ERROR "FLASH_CUDA is ON; expected a working nvcc 12 or newer; "
    "install the CUDA toolkit or pass -DFLASH_CUDA=OFF")
endif()
