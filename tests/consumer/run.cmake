# run.cmake: installs FlashPhases from BUILD into WORK/prefix, then configures, builds and runs the consumer against it;
# then with the sources as a part of the consumer (which must stay as it was), and by pkg-config where there is one.
# Last libflashphases from C, where SANITIZE is off. Every failing step ends the script with that step's error.
# cmake -DBUILD=… -DWORK=… -DGENERATOR=… -DCXX=… -DEIGEN3_DIR=… -DCUDA=ON -DSANITIZE=OFF -P run.cmake
file(REMOVE_RECURSE "${WORK}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix" COMMAND_ERROR_IS_FATAL ANY)

# consumer(NAME ARGUMENT…): configured with these arguments, built, run.
function(consumer name)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/${name}" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${CXX}" "-DEigen3_DIR=${EIGEN3_DIR}" ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/${name}" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${WORK}/${name}/consumer" COMMAND_ERROR_IS_FATAL ANY)
endfunction()
consumer(installed "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
cmake_path(SET source NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../..")
string(REGEX REPLACE "/$" "" source "${source}")
consumer(part "-DSOURCE=${source}")

find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  set(ENV{PKG_CONFIG_PATH} "${WORK}/prefix/share/pkgconfig")
  execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs flashphases OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  execute_process(COMMAND "${CXX}" -std=c++20 -o "${WORK}/by-pkg-config" "${CMAKE_CURRENT_LIST_DIR}/main.cpp" ${flags}
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${WORK}/by-pkg-config" COMMAND_ERROR_IS_FATAL ANY)
endif()

# The example that was installed. Without a GPU it ends with 77 and says why.
if(SANITIZE)
  return()
endif()
function(run_example program)
  set(ENV{LD_LIBRARY_PATH} "${library_folder}")
  execute_process(COMMAND "${program}" RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  message(STATUS "${text}")
  if(NOT status EQUAL 0 AND
     NOT (status EQUAL 77 AND text MATCHES "built without CUDA|the GPU is missing|^CUDA: no CUDA|^CUDA: CUDA driver"))
    message(FATAL_ERROR "the example ended with ${status}")
  endif()
endfunction()
file(GLOB_RECURSE example "${WORK}/prefix/*/example.c")
file(GLOB_RECURSE library "${WORK}/prefix/libflashphases.so")
get_filename_component(library_folder "${library}" DIRECTORY)
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/c" -B "${WORK}/c" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DEXAMPLE=${example}" "-DCUDA=${CUDA}" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/c" COMMAND_ERROR_IS_FATAL ANY)
run_example("${WORK}/c/consumer")
if(PKG_CONFIG)
  set(ENV{PKG_CONFIG_PATH} "${library_folder}/pkgconfig")
  execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs libflashphases OUTPUT_VARIABLE flags
    COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  execute_process(COMMAND "${CXX}" -x c -std=c99 -DWITHOUT_CUDA -o "${WORK}/c-by-pkg-config" "${example}"
    -x none ${flags} -lm COMMAND_ERROR_IS_FATAL ANY)
  run_example("${WORK}/c-by-pkg-config")
endif()
