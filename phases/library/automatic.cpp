// automatic.cpp: see automatic.hpp.
// What it goes by is made of docs/results (measured.hpp).
// Use: choose_phase(problem, Where::Gpu).phase
#include "phases/library/automatic.hpp"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "phases/definition/phase.hpp"
#include "phases/interface/demands.hpp"

namespace flash {
namespace {

// How many times one is the other, 1 or more.
double ratio(double a, double b) {
  return std::max(a, b) / std::min(a, b);
}

// Tiles of 128 rows of Q, 1 at least: how far the work can be spread over a GPU.
double q_tiles(std::int64_t heads, std::int64_t rows) {
  return std::max(static_cast<double>(heads) * static_cast<double>((rows + 127) / 128), 1.0);
}

// What this figure lets one hope for.
double expected_tflops(const Measured& m, const AnyProblem& p) {
  return m.tflops * std::min(1.0, q_tiles(p.B() * p.H(), p.Sq()) / q_tiles(m.heads, m.N));
}

// Does the figure mean this phase, by its name or by its number?
bool is_of(std::string_view figure, std::string_view phase) {
  return figure == phase || figure == phase.substr(0, phase.find('-'));
}

// Of each phase the figure nearest to the problem, or null. One pass: this is done at each call of libflashphases.
std::vector<const Measured*> nearest(const std::vector<const Phase*>& phases, const AnyProblem& p,
                                     const std::vector<Measured>& figures) {
  const double D = static_cast<double>(std::max<std::int64_t>(p.D(), 1));
  const double tiles = q_tiles(p.B() * p.H(), p.Sq()), keys = static_cast<double>(std::max<std::int64_t>(p.Sk(), 1));
  const bool causal = p.options.mask.is_causal();
  const auto is_half = [](Type t) { return t != Type::Float32; };
  const auto distance = [&](const Measured& m) {
    return std::make_tuple(p.backward() && m.mode != p.options.mode, is_half(m.type) != is_half(p.type),
                           m.causal != causal, ratio(static_cast<double>(m.D), D),
                           ratio(q_tiles(m.heads, m.N), tiles) * ratio(static_cast<double>(m.N), keys),
                           m.type != p.type);
  };
  std::vector<const Measured*> best(phases.size());
  std::vector<decltype(distance(figures[0]))> least(phases.size());
  std::string_view name;
  std::size_t i = phases.size();  // the phase with this name
  for (const Measured& m : figures) {
    if (m.direction != p.direction) continue;
    if (m.phase != name) {
      name = m.phase;
      i = static_cast<std::size_t>(
          std::find_if(phases.begin(), phases.end(), [&](const Phase* phase) { return is_of(name, phase->name); }) -
          phases.begin());
    }
    if (i == phases.size()) continue;
    const auto here = distance(m);
    if (!best[i] || here <= least[i]) best[i] = &m, least[i] = here;
  }
  return best;
}

bool lists_blocks(const Features& can, const Options& o) {
  return std::any_of(can.blocks.begin(), can.blocks.end(), [&](const Blocks& b) {
    return (!o.block_q || o.block_q == b.Br) && (!o.block_k || o.block_k == b.Bc);
  });
}

bool can_do(const Features& can, const AnyProblem& p) {
  return can.types.contains(p.type) && !unmet(p, can.meets) && p.D() <= can.largest_D();
}

// What the problem asks for and no one phase has all of: "no phase has all of window, softcap, float16, D 24".
std::string missing_in_all(const AnyProblem& p) {
  std::string asked;
  for (const DemandRow& row : demands::rows)
    if (row.asked(p)) asked += std::string(row.word) + ", ";
  return "no phase has all of " + asked + name(p.type) + ", D " + std::to_string(p.D());
}

}  // namespace

Choice choose_phase(const AnyProblem& p, Where where, const std::vector<Measured>& figures) {
  Choice choice = choose_phase(
      p, [where](const Features& can) { return where != Where::Gpu || available(can, where); }, figures);
  const Features &can = pass_of(*choice.phase, p.direction).features,
                 &defined = pass_of(definition::phase, p.direction).features;
  if (where != Where::Sim || can_do(can, p) || !can_do(defined, p)) return choice;
  return {&definition::phase, {}, false, missing_in_all(p)};
}

Choice choose_phase(const AnyProblem& p, const std::function<bool(const Features&)>& runs,
                    const std::vector<Measured>& figures) {
  std::vector<const Phase*> able = all_phases();
  // Those that meet a demand; a demand that nobody meets is left to validate() or require(), which refuse it by name.
  const auto keep = [&](auto meets) {
    const auto good = [&](const Phase* phase) {
      return phase->pass(p.direction) && meets(phase->pass(p.direction)->features);
    };
    if (std::any_of(able.begin(), able.end(), good)) std::erase_if(able, std::not_fn(good));
  };
  keep([](const Features& can) { return can.kernel; });
  keep([&](const Features& can) { return can.types.contains(p.type); });
  for (const DemandRow& row : demands::rows)
    if (row.asked(p)) keep([&](const Features& can) { return can.meets(row.demand); });
  for (const DemandRow& row : demands::rows)
    if (met_by_variants(row.demand) && !row.asked(p)) keep([&](const Features& can) { return !can.meets(row.demand); });
  keep(runs);
  int largest_D = 0;  // a larger one, or 0, is refused by a phase that says this
  for (const Phase* phase : able) largest_D = std::max(largest_D, pass_of(*phase, p.direction).features.largest_D());
  const std::int64_t D = p.D() < 1 ? largest_D : std::min<std::int64_t>(p.D(), largest_D);
  keep([&](const Features& can) { return can.largest_D() >= D; });
  keep([&](const Features& can) { return lists_blocks(can, p.options); });

  Choice choice{able.back(), {}, able.size() == 1};
  const std::vector<const Measured*> found = nearest(able, p, figures);
  double best = 0;
  for (const Measured* m : found)
    if (m) best = std::max(best, expected_tflops(*m, p));
  for (std::size_t i = 0; i < able.size(); ++i)
    if (found[i] && expected_tflops(*found[i], p) >= 0.98 * best) choice.phase = able[i], choice.figure = *found[i];
  return choice;
}

std::string Choice::why() const {
  if (!missing.empty()) return "auto: " + missing;
  if (only) return "auto: no other can";
  if (figure.phase.empty()) return "auto: the newest that can; none of them was measured";
  char text[160];
  std::snprintf(text, sizeof text, "auto: %.3g TFLOP/s%s at B·H %lld, N %lld, D %lld, %s%s on %s", figure.tflops,
                figure.direction == Direction::Forward ? "" : " backward", static_cast<long long>(figure.heads),
                static_cast<long long>(figure.N), static_cast<long long>(figure.D), figure.causal ? "causal, " : "",
                name(figure.type), measured_gpu);
  return text;
}

}  // namespace flash
