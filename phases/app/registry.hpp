// registry.hpp: the table of phases, for the programs that treat them all alike (run, tour, bench).
// Adding a phase: one line in all_phases, one in run_phase; a new pattern of traffic also one in predicted_hbm_bytes.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "phases/01-naive/attention.hpp"
#include "phases/02-online-softmax/attention.hpp"
#include "phases/03-tiled-v1/attention.hpp"
#include "phases/04-tiled-v2/attention.hpp"
#include "phases/05-first-kernel/attention.hpp"
#include "phases/06-4d-grid/attention.hpp"
#include "phases/07-causal/attention.hpp"
#include "phases/08-lse/attention.hpp"
#include "phases/09-backward/attention.hpp"
#include "phases/common/where.hpp"

namespace flash {

struct PhaseInfo {
  int number;
  Features features;
  const char* change;  // what is new since the phase before, one sentence
};

inline const std::vector<PhaseInfo>& all_phases() {
  static const std::vector<PhaseInfo> phases = {
      {1, phase01::features, "S = QK^T and P = softmax(S) as whole matrices: every element is written and read back"},
      {2, phase02::features, "one pass with the state (m, l, o): S and P are gone, but K and V pass once per row"},
      {3, phase03::features,
       "keys arrive in tiles, K/V outside: O, l and m are re-read and re-written for each K/V tile"},
      {4, phase04::features, "the loops change places, Q outside: O, l and m stay on chip, one division at the end"},
      {5, phase05::features, "the same algorithm as a CUDA kernel for one head: a block per Q tile, a thread per row"},
      {6, phase06::features,
       "a kernel that takes [B, H, S, D] with any strides: one grid for all Q tiles of all heads"},
      {7, phase07::features, "causal: K/V tiles right of the diagonal are never loaded, only those on it are masked"},
      {8, phase08::features, "LSE = m + log l, one number per row: what merging and the backward pass need"},
      {9, phase09::features, "the backward pass (--dout); its forward pass keeps P in fp32, and O's low bits for it"},
  };
  return phases;
}

// "4", "04" or "04-tiled-v2"; anything else is refused.
inline const PhaseInfo& find_phase(const std::string& text) {
  for (const PhaseInfo& p : all_phases()) {
    const std::string name = p.features.phase;
    if (text == name || text == name.substr(0, 2) || text == std::to_string(p.number)) return p;
  }
  refuse("phase", "'" + text + "'", "one of 01 to " + std::string(all_phases().back().features.phase).substr(0, 2),
         "run ./flash help for the list");
}

// Phases 01-04 run on the two-level memory model; from 05 on a phase is a kernel and runs on any machine.
inline bool is_kernel_phase(int number) {
  return number >= 5;
}

struct Outcome {
  Ledger ledger;
  bool counted = false;  // does the ledger hold counts? The fast simulator and the GPU do not count
  double seconds = 0;    // kernel phases: without the copies to and from the device
  TileCounts tiles;
};

// Runs a phase and takes the time.
template <class T>
Outcome run_phase(int number, const Problem<T>& p, Where where = Where::Sim) {
  if (is_kernel_phase(number)) {
    const Run run = number == 5   ? phase05::forward(p, where)
                    : number == 6 ? phase06::forward(p, where)
                    : number == 7 ? phase07::forward(p, where)
                    : number == 8 ? phase08::forward(p, where)
                                  : phase09::forward(p, where);
    return {run.ledger, where == Where::Checked, run.milliseconds / 1e3, run.tiles};
  }
  const auto begin = std::chrono::steady_clock::now();
  const Ledger ledger = number == 1   ? phase01::forward(p)
                        : number == 2 ? phase02::forward(p)
                        : number == 3 ? phase03::forward(p)
                                      : phase04::forward(p);
  return {ledger, true, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), {}};
}

// HBM bytes, read and written, from a formula of the sizes alone; the tour compares it with what was counted.
template <class T>
std::uint64_t predicted_hbm_bytes(int number, const Problem<T>& p) {
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), e = sizeof(T), f = sizeof(float);
  const std::int64_t lse = p.lse ? Sq * f : 0;
  std::int64_t bytes = 0;  // of one head
  if (number == 1) {       // Q, K read, S written; S read, P written; P, V read, O written
    bytes = (2 * Sq + 2 * Sk) * D * e + 4 * Sq * Sk * f;
  } else if (number == 2) {  // Q, O and LSE once; K and V once per row, as far as the row sees
    bytes = 2 * Sq * D * e + lse;
    for (std::int64_t i = 0; i < Sq; ++i) bytes += 2 * p.visible(i) * D * e;
  } else if (number ==
             3) {  // K, V once; Q, O, l, m once per K/V tile; O, l, m set to 0, 0, -inf before; O rounded last
    const std::int64_t Bc = phase03::choose_blocks(p.options, D).Bc, Tc = (Sk + Bc - 1) / Bc;
    const std::int64_t O = Sq * D * f, lm = 2 * Sq * f;
    bytes = 2 * Sk * D * e + Tc * (Sq * D * e + 2 * (O + lm)) + O + lm;  // O read and written in fp32 …
    bytes += Tc == 0 ? O + Sq * D * e : Sq * D * e - O;                  // … but for the last write
  } else {  // Q, O and LSE once; per Q tile the K/V tiles that its last row sees
    const auto cpu = phase04::choose_blocks(p.options, D);
    const std::int64_t Br = !is_kernel_phase(number) ? cpu.Br : p.options.block_q ? p.options.block_q : 64;
    const std::int64_t Bc = !is_kernel_phase(number) ? cpu.Bc : p.options.block_k ? p.options.block_k : 32;
    bytes = 2 * Sq * D * e + lse;
    for (std::int64_t i = 0; i < Sq; i += Br) {
      const std::int64_t seen = p.visible(std::min(i + Br, Sq) - 1), tiles = (seen + Bc - 1) / Bc;
      bytes += 2 * std::min(tiles * Bc, Sk) * D * e;
    }
  }
  return static_cast<std::uint64_t>(bytes * p.B() * p.H());
}

}  // namespace flash
