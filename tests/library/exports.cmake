# exports.cmake: LIBRARY exports the functions that HEADER declares, and nothing else. NM: the program nm.
# CTest: library.exports.
# cmake -DNM=nm -DLIBRARY=… -DHEADER=… -P exports.cmake
execute_process(COMMAND "${NM}" -D --defined-only "${LIBRARY}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n ]+\n" exported "${symbols}")
list(TRANSFORM exported REPLACE "@.*|\n" "")
list(FILTER exported EXCLUDE REGEX "^FLASHPHASES_[0-9.]+$")  # the version's own symbol
list(SORT exported)

file(READ "${HEADER}" text)
string(REGEX MATCHALL "FLASHPHASES_API [a-z* ]+(flashphases_[a-z_]+)\\(" declared "${text}")
list(TRANSFORM declared REPLACE ".*(flashphases_[a-z_]+)\\(" "\\1")
list(SORT declared)

list(LENGTH declared count)
if(count LESS 5 OR NOT exported STREQUAL declared)
  message(FATAL_ERROR "exported: ${exported}\ndeclared: ${declared}")
endif()
message(STATUS "exported: ${exported}")
