# kernels.cmake: compiles one kernel file for each machine: simulator fast, simulator checked, CUDA.
# Defines the library flash_simt (the simulator) and the function flash_add_kernel.
# Use: include(cmake/kernels.cmake); flash_add_kernel(transpose transpose.cu); target_link_libraries(test transpose)
include(CheckCXXSourceCompiles)
include(CheckCXXSourceRuns)
find_package(Threads REQUIRED)

set(FLASH_ROOT ${CMAKE_CURRENT_LIST_DIR}/..)

# Kernel files use fused multiply-adds and half conversions of the processor that builds them, when it has them:
# fmaf is a library call otherwise, several times slower, with the same bits.
set(FLASH_KERNEL_FLAGS "")
set(CMAKE_REQUIRED_FLAGS "-mavx2 -mfma -mf16c")
check_cxx_source_runs("
  int main() { return __builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\") &&
                      __builtin_cpu_supports(\"f16c\") ? 0 : 1; }" FLASH_HAS_AVX2_FMA_F16C)
unset(CMAKE_REQUIRED_FLAGS)
if(FLASH_HAS_AVX2_FMA_F16C)
  set(FLASH_KERNEL_FLAGS -mavx2 -mfma -mf16c)
endif()

# g++ has its own folders for libbacktrace, which clang does not look into; the header lies among many that are g++'s.
set(FLASH_LIBBACKTRACE backtrace)
if(NOT FLASH_GXX STREQUAL CMAKE_CXX_COMPILER)
  foreach(file IN ITEMS include libbacktrace.a)
    execute_process(COMMAND "${FLASH_GXX}" "-print-file-name=${file}"
      OUTPUT_VARIABLE ${file} OUTPUT_STRIP_TRAILING_WHITESPACE)
  endforeach()
  set(FLASH_LIBBACKTRACE "${libbacktrace.a}")
  if(EXISTS "${include}/backtrace.h")
    set(CMAKE_REQUIRED_INCLUDES "${PROJECT_BINARY_DIR}/g++")
    file(COPY "${include}/backtrace.h" "${include}/backtrace-supported.h" DESTINATION "${CMAKE_REQUIRED_INCLUDES}")
  endif()
endif()
set(CMAKE_REQUIRED_LIBRARIES "${FLASH_LIBBACKTRACE}")
check_cxx_source_compiles("
  #include <backtrace.h>
  int main() { return backtrace_create_state(nullptr, 1, nullptr, nullptr) == nullptr; }" FLASH_HAS_LIBBACKTRACE)
unset(CMAKE_REQUIRED_LIBRARIES)
unset(CMAKE_REQUIRED_INCLUDES)

# Objects that become part of libflashphases too (phases/library).
function(flash_for_library target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

# The simulator itself is always optimised: kernels run inside it. Its own flags follow the build's sanitizers.
file(GLOB simulator CONFIGURE_DEPENDS ${FLASH_ROOT}/sim/*.cpp ${FLASH_ROOT}/sim/*/*.cpp)
file(GLOB FLASH_LAUNCHES_SOURCE CONFIGURE_DEPENDS ${FLASH_ROOT}/sim/compiler/*.cpp)
list(REMOVE_ITEM simulator ${FLASH_LAUNCHES_SOURCE})
add_library(flash_simt STATIC ${simulator})
flash_for_library(flash_simt)
target_include_directories(flash_simt PUBLIC ${FLASH_ROOT})
target_compile_features(flash_simt PUBLIC cxx_std_20)
# Findings and gdb name lines by -g1, and gdb can print threadIdx by -g in the file that has it. The rest of debug
# information is what a third of compiling goes into; a build of the types Debug and RelWithDebInfo has it.
if(NOT CMAKE_BUILD_TYPE MATCHES "Deb")
  set(FLASH_LINES -g1)
endif()
target_compile_options(flash_simt PRIVATE -O2 ${FLASH_LINES} ${FLASH_KERNEL_FLAGS})
# The player's page becomes part of it.
set_source_files_properties(${FLASH_ROOT}/sim/report/recording.cpp PROPERTIES
  COMPILE_DEFINITIONS "FLASH_PLAYER_HTML=\"${FLASH_ROOT}/sim/report/player.html\""
  OBJECT_DEPENDS ${FLASH_ROOT}/sim/report/player.html)
# Its loops are to become vectors.
set_source_files_properties(${FLASH_ROOT}/sim/core/tensor_core.cpp PROPERTIES COMPILE_OPTIONS -O3)
set_source_files_properties(${FLASH_ROOT}/sim/core/block.cpp PROPERTIES COMPILE_OPTIONS "-g;-fno-var-tracking")
# What most of its files include of the C++ library is read once. Not by those that are compiled otherwise.
target_precompile_headers(flash_simt PRIVATE <algorithm> <array> <cstdint> <cstring> <map> <memory> <mutex> <string>
  <utility> <vector>)
set_source_files_properties(${FLASH_ROOT}/sim/core/tensor_core.cpp ${FLASH_ROOT}/sim/core/block.cpp PROPERTIES
  SKIP_PRECOMPILE_HEADERS ON)
target_link_libraries(flash_simt PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
if(TARGET flash_options)  # warnings, sanitizers
  target_link_libraries(flash_simt PRIVATE flash_options)
endif()
if(FLASH_HAS_LIBBACKTRACE)
  target_link_libraries(flash_simt PUBLIC "${FLASH_LIBBACKTRACE}")
  if(EXISTS "${PROJECT_BINARY_DIR}/g++/backtrace.h")
    set_source_files_properties(${FLASH_ROOT}/sim/core/code_names.cpp PROPERTIES
      INCLUDE_DIRECTORIES "${PROJECT_BINARY_DIR}/g++")
  endif()
endif()

# The program that turns CUDA's launches and variables into C++ for g++; it stands before the compiler of kernel files.
add_executable(flash-launches ${FLASH_LAUNCHES_SOURCE})
target_include_directories(flash-launches PRIVATE ${FLASH_ROOT})
target_compile_features(flash-launches PRIVATE cxx_std_20)
target_compile_options(flash-launches PRIVATE -O2)
if(TARGET flash_options)
  target_link_libraries(flash-launches PRIVATE flash_options)
endif()

# Where the build's compiler is clang, it is told to take g++.
set(FLASH_LAUNCHER)
if(NOT FLASH_GXX STREQUAL CMAKE_CXX_COMPILER)
  set(FLASH_LAUNCHER --by "${FLASH_GXX}")
endif()
# A build for another processor (cmake/aarch64.cmake) runs the programs of one for this computer.
set(FLASH_LAUNCHES $<TARGET_FILE:flash-launches>)
set(FLASH_MEASURED flash-measured)
if(CMAKE_CROSSCOMPILING)
  foreach(program IN ITEMS launches measured)
    string(TOUPPER ${program} upper)
    set(FLASH_${upper} "${FLASH_HOST_BUILD}/bin/flash-${program}")
    if(NOT EXISTS "${FLASH_${upper}}")
      message(FATAL_ERROR "FLASH_HOST_BUILD is '${FLASH_HOST_BUILD}'; expected a build for this computer with "
        "bin/flash-${program}; cmake --build FOLDER --target flash-launches flash-measured makes it")
    endif()
  endforeach()
endif()

# g++ cannot combine the address and the thread sanitizer's instrumentation: checked kernels are left out then.
set(FLASH_CHECKED_KERNELS ON)
if(FLASH_SANITIZE OR "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}}" MATCHES "-fsanitize=[a-z,]*address")
  set(FLASH_CHECKED_KERNELS OFF)
endif()

# Same bits on both machines: no contraction, multiply-adds are written fmaf. Kernels read two halves as one word, as
# nvcc lets them. #pragma unroll is nvcc's. Variables that
# a kernel declares extern thread_local have no initialiser to call. A large frame touches its pages one by one, so that
# a stack that is too small is noticed (sim/core/faults.cpp).
set(FLASH_BOTH_FLAGS -ffp-contract=off -fno-strict-aliasing -fno-extern-tls-init -fstack-clash-protection
  -Wno-unknown-pragmas -Wno-psabi ${FLASH_KERNEL_FLAGS})
if(FLASH_LAUNCHER)
  list(APPEND FLASH_BOTH_FLAGS -Wno-restrict)  # cmake/options.cmake
endif()
# On ARM: char has a sign, as for CUDA on x86-64; variables are not addressed by way of their neighbours, across our red
# zones; division by zero is noticed (sim/core/faults.cpp), and a stack is touched every 64 KiB (sim/core/fiber.hpp).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)")
  list(APPEND FLASH_BOTH_FLAGS -fsigned-char -fno-section-anchors -fsanitize=integer-divide-by-zero
    --param=stack-clash-protection-guard-size=16)
endif()
# -Og keeps accesses as the source has them; the hooks are ours (sim/checks/hooks.cpp), not the sanitizer's. Frame
# pointers tell by which calls a thread came to a barrier; -fsanitize=alignment tells of a float4* that is no multiple
# of 16 where only a member is read (nvcc may read the whole).
# -fno-gnu-unique: flash-launches makes copies of what headers define ordinary definitions (sim/compiler/main.cpp).
set(FLASH_CHECKED_FLAGS -Og -fno-optimize-sibling-calls -fno-omit-frame-pointer -fno-gnu-unique
  -fsanitize=thread,alignment --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1)

# What ./flash check needs (sim/cuda/check.sh): the simulator, the translator, and how programs are compiled.
set(libraries -pthread)
foreach(library IN LISTS CMAKE_DL_LIBS)
  string(APPEND libraries " -l${library}")
endforeach()
if(FLASH_HAS_LIBBACKTRACE)
  string(APPEND libraries " -lbacktrace")
endif()
list(JOIN FLASH_BOTH_FLAGS " " both)
list(JOIN FLASH_CHECKED_FLAGS " " checked)
# Calls of these functions are counted (sim/cuda/mathematics.cpp), so g++ may not expand them.
set(counted "")
set(wrapped "")
foreach(function IN ITEMS fmaf fma expf exp exp2f exp2 exp10f)
  string(APPEND counted " -fno-builtin-${function}")
  string(APPEND wrapped " -Wl,--wrap=${function}")
endforeach()
# -fconcepts: programs are C++17 unless they say otherwise, the simulator's headers are not (sim/cuda/cxx17.hpp).
set(FLASH_CHECKED_PROGRAM
  "-std=c++20 -fconcepts -g1 ${both} ${checked} ${counted} -DFLASH_CHECKED -DFLASH_MACHINE=on_checked")
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/check.settings CONTENT "CXX='${FLASH_GXX}'
ROOT='${PROJECT_SOURCE_DIR}'
LIBRARY='$<TARGET_FILE:flash_simt>'
LAUNCHES='$<TARGET_FILE:flash-launches>'
LIBRARIES='${libraries}'
WRAPPED='${wrapped}'
FLAGS_checked='${FLASH_CHECKED_PROGRAM}'
FLAGS_sim='-std=c++20 -fconcepts -g1 ${both} -O2 -DFLASH_MACHINE=on_sim'
")
add_custom_target(flash-check DEPENDS flash_simt flash-launches)

# One kernel file as object libraries <name>_sim, <name>_checked and (with CUDA) <name>_gpu, and <name> for all of them.
# LOWEST_CAPABILITY 80: its instructions need that; for the GPU it is compiled for those architectures that have it.
# 90: it uses gpu/hopper.cuh, whose instructions sm_90a alone has, whatever else the build is for.
function(flash_add_kernel name file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "LOWEST_CAPABILITY" "")
  get_filename_component(path ${file} ABSOLUTE)
  set(machines sim)
  if(FLASH_CHECKED_KERNELS)
    list(APPEND machines checked)
  endif()
  add_library(${name} INTERFACE)
  target_link_libraries(${name} INTERFACE flash_simt)
  if(NOT FLASH_CHECKED_KERNELS)
    target_compile_definitions(${name} INTERFACE FLASH_NO_CHECKED_KERNELS)  # phases/interface/where.hpp
  endif()
  foreach(machine IN LISTS machines)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}_${machine}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${path}\"\n" @ONLY)
    set_property(SOURCE ${source} APPEND PROPERTY OBJECT_DEPENDS ${path} ${FLASH_LAUNCHES_SOURCE})
    add_library(${name}_${machine} OBJECT ${source})
    flash_for_library(${name}_${machine})
    target_link_libraries(${name}_${machine} PUBLIC flash_simt)
    target_compile_definitions(${name}_${machine} PRIVATE FLASH_MACHINE=on_${machine} FLASH_KERNEL_FILE="${path}")
    target_compile_options(${name}_${machine} PRIVATE ${FLASH_BOTH_FLAGS})
    set_property(TARGET ${name}_${machine} PROPERTY
      CXX_COMPILER_LAUNCHER ${FLASH_LAUNCHES} ${FLASH_LAUNCHER} ${CMAKE_CXX_COMPILER_LAUNCHER})
    add_dependencies(${name}_${machine} flash-launches)
    target_sources(${name} INTERFACE $<TARGET_OBJECTS:${name}_${machine}>)
  endforeach()
  # A kernel begins with a cache line: where it fell otherwise was worth 8 % of simt-speed. What tensor cores do, the
  # simulator's own functions do: such a kernel is no slower at -O1, and compiles in two thirds of the time. One that
  # multiplies by itself would be 3.5 times slower.
  set(optimisation -O2)
  if(arg_LOWEST_CAPABILITY)
    set(optimisation -O1)
  endif()
  target_compile_options(${name}_sim PRIVATE ${optimisation} ${FLASH_LINES} -falign-functions=64)
  if(TARGET flash_options)
    target_link_libraries(${name}_sim PRIVATE flash_options)
  endif()
  if(FLASH_CHECKED_KERNELS)
    target_compile_definitions(${name}_checked PRIVATE FLASH_CHECKED)
    target_compile_options(${name}_checked PRIVATE ${FLASH_CHECKED_FLAGS} ${FLASH_LINES})
  endif()
  if(FLASH_HAVE_CUDA)
    find_package(CUDAToolkit REQUIRED)
    add_library(${name}_gpu OBJECT ${path})
    if(arg_LOWEST_CAPABILITY EQUAL 90)  # machine code alone: no other GPU can take PTX of 90a
      set_target_properties(${name}_gpu PROPERTIES CUDA_ARCHITECTURES 90a-real)
    elseif(arg_LOWEST_CAPABILITY)
      flash_architectures(architectures ${arg_LOWEST_CAPABILITY})
      set_target_properties(${name}_gpu PROPERTIES CUDA_ARCHITECTURES "${architectures}")
    endif()
    flash_for_library(${name}_gpu)
    target_include_directories(${name}_gpu PRIVATE ${FLASH_ROOT})
    target_compile_options(${name}_gpu PRIVATE -fmad=false --expt-relaxed-constexpr)
    if(SKBUILD AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)  # a wheel: 2.6 times smaller
      target_compile_options(${name}_gpu PRIVATE -compress-mode=size)
    endif()
    target_sources(${name} INTERFACE $<TARGET_OBJECTS:${name}_gpu>)
    target_link_libraries(${name} INTERFACE CUDA::cudart)
    target_compile_definitions(${name} INTERFACE FLASH_HAVE_CUDA)  # phases/interface/where.hpp
  endif()
endfunction()
