// museum_main.cpp: runs exhibits of the bug museum. On the GPU: one, in a process that other tools can watch.
// On the simulator: all, and prints as CSV what it found; sanitizer_table.py puts the two side by side.
// Run: museum --list | museum loop_carried_war bug (under compute-sanitizer) | museum_checked --all
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "tests/simt/museum.hpp"

#ifndef FLASH_MUSEUM_MACHINE
#define FLASH_MUSEUM_MACHINE on_gpu
#endif

namespace {

using flash::Exhibit, flash::Finding, flash::Variant, flash::FLASH_MUSEUM_MACHINE::run_exhibit;

void print_all() {
  std::printf("exhibit,variant,tool,kinds\n");
  for (const Exhibit& e : flash::exhibits)
    for (Variant variant : {Variant::bug, Variant::twin}) {
      std::string kinds;
      for (const Finding& f : run_exhibit(e.name, variant, {.threads = 1, .keep_going = true}))
        if (kinds.find(f.kind) == std::string::npos) kinds += (kinds.empty() ? "" : "; ") + f.kind;
      std::printf("%s,%s,%s,%s\n", e.name, variant == Variant::bug ? "bug" : "twin", e.tool, kinds.c_str());
    }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  try {
    if (argc == 2 && first == "--list") {
      for (const Exhibit& e : flash::exhibits) std::printf("%s\t%s\t%s\n", e.name, e.tool, e.bug);
    } else if (argc == 2 && first == "--all") {
      print_all();
    } else if (argc == 3) {
      run_exhibit(first, std::strcmp(argv[2], "twin") == 0 ? Variant::twin : Variant::bug, {});
    } else {
      std::fprintf(stderr, "usage: museum --list | museum --all | museum NAME bug|twin\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "museum: %s\n", error.what());
    return 3;  // the device reported an error
  }
  return 0;
}
