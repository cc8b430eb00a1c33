// main.cpp: the program behind ./flash run and ./flash tour. Bad input: one line on stderr, exit status 2.
#include <cstdio>
#include <exception>

#include "phases/app/commands.hpp"
#include "phases/definition/phase.hpp"
#include "phases/interface/demands.hpp"
#include "phases/interface/phase.hpp"
#include "phases/pages/text.hpp"
#include "sim/error.hpp"

// One text for this program and for ./flash, which prints it without building anything.
static constexpr const char* usage =
#include "phases/app/usage.txt"
    ;

// Types, blocks and demands that a pass meets, on one line.
static void print_pass(const char* name, const flash::Features& can) {
  std::printf("      %s types:", name);
  for (const flash::Type type : can.types) std::printf(" %s", flash::name(type));
  std::printf("; blocks:%s", can.blocks.size() ? "" : " any");
  for (const flash::Blocks& b : can.blocks)
    std::printf(" %lldx%lld", static_cast<long long>(b.Br), static_cast<long long>(b.Bc));
  const char* before = "; also: ";
  for (const flash::DemandRow& row : flash::demands::rows)
    if (can.meets(row.demand)) std::printf("%s%s", before, row.word), before = ", ";
  std::printf("\n");
}

// What its forward pass moves by its formula, with the first of its types and blocks; or whose pass that is. The table
// of phases and the picture of all of them are made of these lines (docs/results/tables.py).
static void print_bytes(const flash::Phase& phase) {
  for (const flash::Phase* other : flash::forward_phases())
    if (other != &phase && other->forward == phase.forward) {
      std::printf("      HBM bytes: those of %s\n", other->name);
      return;
    }
  const flash::Features& can = phase.forward->features;
  if (!can.hbm_bytes) return;
  const flash::AnyProblem head{{1, 1, 1, 8192, 8192, 64, 64}, can.types[0], {}};
  const flash::HbmBytes moved = can.hbm_bytes(head, can.blocks.size() ? can.blocks[0] : flash::Blocks{});
  std::printf("      HBM bytes: %s for a head with N = 8192, D = 64\n",
              flash::grouped(moved.read + moved.written).c_str());
}

static void print_phase(const flash::Phase& phase) {
  std::printf("  %-20s %s\n      machines: %s\n", phase.name, phase.change, phase.kernel() ? "sim checked gpu" : "sim");
  print_bytes(phase);
  print_pass("forward:  ", phase.forward->features);
  if (phase.backward) print_pass("gradients:", phase.backward->features);
}

static int help() {
  std::printf("%s\nphases\n", usage + 1);
  for (const flash::Phase* phase : flash::all_phases()) print_phase(*phase);
  std::printf("\nwhat no phase can, --phase auto leaves on machine sim to\n");
  print_phase(flash::definition::phase);
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
