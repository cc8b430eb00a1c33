# run.cmake: installs FlashPhases from BUILD into WORK/prefix, then configures, builds and runs the consumer against it.
# Every failing step ends the script with that step's error.
# cmake -DBUILD=… -DWORK=… -DGENERATOR=… -DCXX=… -DEIGEN3_DIR=… -P run.cmake
file(REMOVE_RECURSE "${WORK}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/build" -G "${GENERATOR}"
  "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DEigen3_DIR=${EIGEN3_DIR}"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${WORK}/build/consumer" COMMAND_ERROR_IS_FATAL ANY)
