// main.cpp: the program behind ./flash run and ./flash tour. Bad input: one line on stderr, exit status 2.
#include <cstdio>
#include <exception>

#include "phases/app/commands.hpp"
#include "phases/app/registry.hpp"
#include "sim/error.hpp"

static int help() {
  std::printf(
      "usage: flash-phases run --phase NN --q Q.npy --k K.npy --v V.npy --o O.npy [--lse LSE.npy]\n"
      "                        [--causal none|top-left|bottom-right] [--scale X] [--machine sim|checked|gpu]\n"
      "                        [--block-q N] [--block-k N] [--sram BYTES] [--threads N] [--report REPORT.json]\n"
      "       flash-phases tour [NN] [--out FOLDER]\n"
      "phases:\n");
  for (const flash::PhaseInfo& p : flash::all_phases()) std::printf("  %-20s %s\n", p.features.phase, p.change);
  return 0;
}

int main(int count, char** words) {
  const std::vector<std::string> all(words + 1, words + count);
  try {
    if (all.empty() || all[0] == "help" || all[0] == "--help") return help();
    const std::vector<std::string> rest(all.begin() + 1, all.end());
    if (all[0] == "run") return flash::run_command(rest);
    if (all[0] == "tour") return flash::tour_command(rest);
    flash::refuse("command", "'" + all[0] + "'", "run, tour or help", "see ./flash help");
  } catch (const flash::Error& e) {
    std::fprintf(stderr, "flash: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {  // out of memory and the like: not the input's fault
    std::fprintf(stderr, "flash: %s\n", e.what());
    return 1;
  }
}
