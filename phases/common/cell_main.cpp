// cell_main.cpp: the main of every notebook: runs its cells in order and fails when a claim is false.
// One object file for all notebooks; each notebook.cpp is linked with it and has no main of its own.
// Use:  phase01_notebook [--list] [--cell N] [--svg DIR]     pictures go to DIR, ./out unless said otherwise
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "phases/common/cell.hpp"
#include "phases/common/npy.hpp"
#include "sim/error.hpp"

namespace flash {

static std::string picture_folder;
static int false_claims;

void expect(bool holds, const std::string& claim, const char* file, int line) {
  if (holds) {
    std::printf("✓ %s\n", claim.c_str());
  } else {
    std::printf("✗ FALSE: %s   (%s:%d)\n", claim.c_str(), file, line);
    ++false_claims;
  }
}

void picture(const std::string& name, const std::string& svg) {
  std::error_code error;
  std::filesystem::create_directories(picture_folder, error);
  if (error) refuse("--svg", picture_folder, "a folder that can be made (" + error.message() + ")", "name another");
  const std::string path = (std::filesystem::path(picture_folder) / (name + ".svg")).string();
  write_file(path, svg);
  std::printf("picture: %s\n", path.c_str());
}

// The number of the one cell to run, or 0 for all; -1 when only the list was wanted.
static int read_options(int argc, char** argv) {
  int only = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (option == "--list") {
      only = -1;
    } else if (option == "--cell") {
      const int last = static_cast<int>(cells().size());
      const auto end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data(), end, only);
      if (error != std::errc() || stop != end || only < 1 || only > last)
        refuse("--cell", '"' + value + '"', "1 to " + std::to_string(last), "see --list");
      ++i;
    } else if (option == "--svg") {
      if (value.empty()) refuse("--svg", "\"\"", "a folder", "pass --svg out");
      picture_folder = value;
      ++i;
    } else {
      refuse("option", '"' + option + '"', "--list, --cell N or --svg DIR", "pass none to run all cells");
    }
  }
  return only;
}

}  // namespace flash

int main(int argc, char** argv) {
  flash::picture_folder = "out";
  flash::false_claims = 0;
  int only = 0;
  try {
    only = flash::read_options(argc, argv);
  } catch (const flash::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  int number = 0;
  for (const flash::Cell& cell : flash::cells()) {
    ++number;
    if (only == -1) std::printf("%2d  %s:%d  %s\n", number, cell.file, cell.line, cell.title);
    if (only != 0 && only != number) continue;
    std::printf("%s── %d. %s ──\n", number > 1 && only == 0 ? "\n" : "", number, cell.title);
    try {
      cell.run();
    } catch (const std::exception& error) {
      std::fflush(stdout);
      std::fprintf(stderr, "cell %d, \"%s\": %s\n", number, cell.title, error.what());
      return 1;
    }
    std::fflush(stdout);
  }
  if (flash::false_claims) std::printf("\n%d false claim(s)\n", flash::false_claims);
  return flash::false_claims ? 1 : 0;
}
