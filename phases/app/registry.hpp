// registry.hpp: the table of phases, for the programs that treat them all alike (run, tour).
// Adding a phase: one line in all_phases, one case in run_phase, one in predicted_hbm_bytes.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "phases/01-naive/attention.hpp"
#include "phases/02-online-softmax/attention.hpp"
#include "phases/03-tiled-v1/attention.hpp"
#include "phases/04-tiled-v2/attention.hpp"

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

struct Outcome {
  Ledger ledger;
  double seconds = 0;
};

// Runs a phase and takes the time.
template <class T>
Outcome run_phase(int number, const Problem<T>& p) {
  const auto begin = std::chrono::steady_clock::now();
  Outcome outcome;
  switch (number) {
    case 1:
      outcome.ledger = phase01::forward(p);
      break;
    case 2:
      outcome.ledger = phase02::forward(p);
      break;
    case 3:
      outcome.ledger = phase03::forward(p);
      break;
    case 4:
      outcome.ledger = phase04::forward(p);
      break;
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

// HBM bytes, read and written, from a formula of the sizes alone; the tour compares it with what was counted.
template <class T>
std::uint64_t predicted_hbm_bytes(int number, const Problem<T>& p) {
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = p.D(), e = sizeof(T), f = sizeof(float);
  const std::int64_t lse = p.lse ? Sq * f : 0;
  std::int64_t bytes = 0;  // of one head
  switch (number) {
    case 1:  // Q, K read, S written; S read, P written; P, V read, O written
      bytes = (2 * Sq + 2 * Sk) * D * e + 4 * Sq * Sk * f;
      break;
    case 2:  // Q, O and LSE once; K and V once per row, as far as the row sees
      bytes = 2 * Sq * D * e + lse;
      for (std::int64_t i = 0; i < Sq; ++i) bytes += 2 * p.visible(i) * D * e;
      break;
    case 3: {  // K, V once; Q, O, l, m once per K/V tile (T_c passes); O, l, m set to 0, 0, -inf before; O rounded last
      const std::int64_t Bc = phase03::choose_blocks(p.options, D).Bc, Tc = (Sk + Bc - 1) / Bc;
      const std::int64_t O = Sq * D * f, lm = 2 * Sq * f;
      bytes = 2 * Sk * D * e + Tc * (Sq * D * e + 2 * (O + lm)) + O + lm;  // O read and written in fp32 …
      bytes += Tc == 0 ? O + Sq * D * e : Sq * D * e - O;                  // … but for the last write
      break;
    }
    case 4: {  // Q, O and LSE once; per Q tile the K/V tiles that its last row sees
      const auto [Br, Bc] = phase04::choose_blocks(p.options, D);
      bytes = 2 * Sq * D * e + lse;
      for (std::int64_t i = 0; i < Sq; i += Br) {
        const std::int64_t seen = p.visible(std::min(i + Br, Sq) - 1), tiles = (seen + Bc - 1) / Bc;
        bytes += 2 * std::min(tiles * Bc, Sk) * D * e;
      }
      break;
    }
  }
  return static_cast<std::uint64_t>(bytes * p.B() * p.H());
}

}  // namespace flash
