// museum_main.cpp: runs one exhibit of the bug museum on the GPU, in a process that other tools can watch.
// sanitizer_table.sh puts compute-sanitizer's verdicts beside the simulator's.
// Run: museum --list      or      compute-sanitizer --tool racecheck museum loop_carried_war bug
#include <cstdio>
#include <cstring>
#include <exception>

#include "tests/simt/museum.hpp"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const flash::Exhibit& e : flash::exhibits) std::printf("%s\t%s\t%s\n", e.name, e.tool, e.bug);
    return 0;
  }
  if (argc != 3) {
    std::fprintf(stderr, "usage: museum --list | museum NAME bug|twin\n");
    return 2;
  }
  try {
    const auto variant = std::strcmp(argv[2], "twin") == 0 ? flash::Variant::twin : flash::Variant::bug;
    flash::on_gpu::run_exhibit(argv[1], variant, {});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "museum: %s\n", error.what());
    return 3;  // the device reported an error
  }
  return 0;
}
