// main.cpp: the program behind ./flash run and ./flash tour. Bad input: one line on stderr, exit status 2.
#include <cstdio>
#include <exception>

#include "phases/app/commands.hpp"
#include "phases/app/registry.hpp"
#include "sim/error.hpp"

// One text for this program and for ./flash, which prints it without building anything.
static constexpr const char* usage =
#include "phases/app/usage.txt"
    ;

static int help() {
  std::printf("%s\n%-20s %-16s %-7s %-4s %s\n", usage + 1, "phase", "machines", "causal", "LSE", "what is new");
  for (const flash::PhaseInfo& p : flash::all_phases())
    std::printf("%-20s %-16s %-7s %-4s %s\n", p.features.phase,
                flash::is_kernel_phase(p.number) ? "sim checked gpu" : "sim", p.features.causal ? "yes" : "-",
                p.features.lse ? "yes" : "-", p.change);
  return 0;
}

int main(int count, char** words) {
  const std::vector<std::string> all(words + 1, words + count);
  try {
    if (all.empty() || all[0] == "help" || all[0] == "--help" || all.back() == "--help") return help();
    const std::vector<std::string> rest(all.begin() + 1, all.end());
    if (all[0] == "run") return flash::run_command(rest);
    if (all[0] == "tour") return flash::tour_command(rest);
    flash::refuse("command", "'" + all[0] + "'", "run, tour or help", "see ./flash run --help");
  } catch (const flash::Error& e) {
    std::fprintf(stderr, "flash: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {  // out of memory and the like: not the input's fault
    std::fprintf(stderr, "flash: %s\n", e.what());
    return 1;
  }
}
