// doctest_main.cpp: the main() of every doctest program, compiled once (doctest's implementation takes 3.5 s).
// Test files include <doctest/doctest.h> and define no main.
// ./build/default/tests/… or: ctest --test-dir build/default -L phase03
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
