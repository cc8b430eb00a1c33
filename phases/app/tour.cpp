// tour.cpp: ./flash tour walks every phase on a real input: one attention layer of a sentence encoder (docs/data).
// Per phase: what changed, HBM bytes predicted and counted, what was on chip, arithmetic, errors, time. All phases with
// tiles take the same ones. Kernels run on the checked simulator, which counts. At the end one table and a report with
// pictures. A wrong prediction or a missed error bar makes it fail.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "phases/app/commands.hpp"
#include "phases/app/options.hpp"
#include "phases/interface/phase.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/svg.hpp"
#include "phases/pages/text.hpp"
#include "phases/pages/tile_walk.hpp"

namespace flash {
namespace {

constexpr Blocks tiles{16, 16};  // of all phases that have such: the kernels' smallest, four of each in this sentence

struct Step {
  const Phase* phase = nullptr;
  std::string name;  // the phase's, or "backward-pass"
  Run run;
  Blocks tiles{};
  Type type = Type::Float32;    // of the input
  std::uint64_t predicted = 0;  // 0: no formula
  double error = 0;             // relative Frobenius error against fp64
  double bar = 2e-6;            // that it may not exceed
  double previous = 0;          // largest |difference| from the phase before; 0 for the first
  bool good = false;
};

// P of head h, exactly: [Sq, Sk].
RowMajor<double> weights(const Example& input, std::int64_t h) {
  return exact_softmax(scores<double>(input, h));
}

// "her (11) -> alice 54 %, sister 20 %, her 5 %"
void print_top_words(const RowMajor<double>& P, const std::vector<std::string>& tokens, std::int64_t row) {
  std::vector<std::int64_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + 3, order.end(),
                    [&](std::int64_t a, std::int64_t b) { return P(row, a) > P(row, b); });
  std::printf("      %-8s (%2d) looks at", tokens[row].c_str(), static_cast<int>(row));
  for (int n = 0; n < 3; ++n)
    std::printf("%s %s %.0f %%", n ? "," : "", tokens[order[n]].c_str(), 100.0 * P(row, order[n]));
  std::printf("\n");
}

// Those of fmaf and of tensor cores.
std::uint64_t flops(const Ledger& l) {
  return l.flops + l.tensor_flops;
}

void print_step(const Step& s, std::size_t place) {
  const Ledger& l = s.run.ledger;
  const Features& can = s.phase->forward->features;
  std::printf("\nPhase %s  (%zu of %zu)\n  %s.\n", s.phase->name, place, all_phases().size(), s.phase->change);
  if (s.type != Type::Float32)
    std::printf("  input       as %s, which holds it exactly; this phase takes no float32\n", name(s.type));
  if (!can.hbm_bytes && !can.kernel) {
    std::printf("  HBM bytes   and arithmetic are not counted in this phase\n");
  } else {
    const std::string predicted = s.predicted ? "predicted " + grouped(s.predicted) + ", " : "";
    std::printf("  HBM bytes   %scounted %s (%s read, %s written)%s\n", predicted.c_str(),
                grouped(l.hbm_bytes()).c_str(), grouped(l.hbm_read_bytes()).c_str(),
                grouped(l.hbm_written_bytes()).c_str(),
                !s.run.counted                 ? " (not counted in this build)"
                : !s.predicted                 ? " (no formula: they go by the sequences' lengths)"
                : l.hbm_bytes() == s.predicted ? ""
                                               : "  <-- THEY DIFFER");
    for (const ArrayTraffic& a : l.arrays)
      if (a.read_bytes + a.written_bytes)
        std::printf("    %-4s %12s read %12s written\n", a.name.c_str(), grouped(a.read_bytes).c_str(),
                    grouped(a.written_bytes).c_str());
    std::printf("  on chip     %s bytes at most\n", grouped(l.shared_bytes_peak).c_str());
    std::printf("  arithmetic  %s FLOPs, %s exps", grouped(flops(l)).c_str(), grouped(l.exps).c_str());
    if (l.tensor_flops) std::printf("; %s of the FLOPs on tensor cores", grouped(l.tensor_flops).c_str());
    if (can.kernel)
      std::printf("; %s bank conflicts, %s barriers\n", grouped(l.bank_conflicts()).c_str(),
                  grouped(l.barriers).c_str());
    else
      std::printf(" and %s rescales of a row, both as declared\n", grouped(l.rescales).c_str());
  }
  std::printf("  error       %.1e relative to fp64", s.error);
  if (!(s.error <= s.bar)) std::printf("  <-- OVER THE BAR OF %.0e", s.bar);
  if (place > 1) std::printf(", %.1e at most from the phase before", s.previous);
  std::printf("\n  time        %.1f ms%s\n", s.run.milliseconds, can.kernel ? " on the simulator" : "");
}

// The tiles that a phase takes here, with heads of 32: 16 x 16, or the last of those that it lists instead.
Blocks tiles_of(const Features& can) {
  if (can.blocks.size() == 0 || can.blocks.contains(tiles)) return tiles;
  Blocks last = can.blocks[0];
  for (const Blocks& blocks : can.blocks)
    if (can.has(can.padded(32), blocks)) last = blocks;
  return last;
}

template <class T>
Problem<T> with_tiles(const Problem<T>& p, const Features& can) {
  Problem<T> out = p;
  if (can.tiles) out.options.block_q = tiles_of(can).Br, out.options.block_k = tiles_of(can).Bc;
  return out;
}

// 0: there is no formula.
template <class T>
std::uint64_t predicted_hbm_bytes(const Phase& phase, const Problem<T>& p) {
  if (!phase.forward->features.hbm_bytes) return 0;
  const HbmBytes bytes = phase.forward->features.hbm_bytes(p, {p.options.block_q, p.options.block_k});
  return bytes.read + bytes.written;
}

// Is this the first kernel that can do it?
template <class F>
bool new_in(const Phase& phase, const F& can) {
  for (const Phase* p : all_phases())
    if (p->kernel() && can(*p)) return p == &phase;
  return false;
}
auto meets(Demand demand) {
  return [demand](const Phase& phase) { return phase.forward->features.meets(demand); };
}

// The same with its mask on: what it saves. False when the prediction or the error bar is missed.
bool print_causal(const Phase& phase, const Problem<float>& full, Where machine) {
  Problem<float> causal = full;
  causal.options.mask = Mask::top_left();
  const Run run = forward(phase, causal, machine);
  const double error = relative_error_of(widened(full.o), exact_attention(causal).o);
  std::printf("  with a causal mask: %s tiles whole, %s masked, %s never loaded; error %.1e\n",
              grouped(run.tiles.full).c_str(), grouped(run.tiles.masked).c_str(), grouped(run.tiles.skipped).c_str(),
              error);
  std::printf("    HBM bytes predicted %s, counted %s, without the mask %s\n",
              grouped(predicted_hbm_bytes(phase, causal)).c_str(), grouped(run.ledger.hbm_bytes()).c_str(),
              grouped(predicted_hbm_bytes(phase, full)).c_str());
  return error <= 2e-6 && (!run.counted || run.ledger.hbm_bytes() == predicted_hbm_bytes(phase, causal));
}

// The backward pass for dO = O (the loss ½‖O‖²), against the naive backward in fp64. Needs O and LSE.
Step print_backward(const Phase& phase, const Problem<float>& p, Where machine) {
  const std::array<std::int64_t, 4> shape = p.q.shape;
  Tensor<float> dq = make_tensor<float>(shape), dk = make_tensor<float>(shape), dv = make_tensor<float>(shape);
  GradientProblem<float> g;
  g.q = p.q;
  g.k = p.k;
  g.v = p.v;
  g.o = g.dout = p.o;
  g.dq = view(dq);
  g.dk = view(dk);
  g.dv = view(dv);
  g.lse = p.lse;
  g.options = p.options;
  Step s{.phase = &phase, .name = "backward-pass", .run = backward(phase, g, machine), .tiles = tiles, .good = true};

  const ExactGradients exact = exact_gradients(g);

  std::printf("  backward    dO = O;");
  const auto report = [&](const char* name, const View<float>& got, const RowMajor<double>& want) {
    const double error = relative_error_of(widened(got), want);
    s.good = s.good && error <= 5e-6;
    if (!(error <= s.error)) s.error = error;
    std::printf(" %s off by %.1e%s", name, error, error <= 5e-6 ? "" : " <-- OVER THE BAR OF 5e-6");
  };
  report("dQ", g.dq, exact.dq);
  report("dK", g.dk, exact.dk);
  report("dV", g.dv, exact.dv);
  std::printf(" relative to fp64\n              HBM bytes %s read, %s written; %s FLOPs, %.1f ms on the simulator\n",
              grouped(s.run.ledger.hbm_read_bytes()).c_str(), grouped(s.run.ledger.hbm_written_bytes()).c_str(),
              grouped(s.run.ledger.flops).c_str(), s.run.milliseconds);
  return s;
}

constexpr const char* columns[] = {"phase", "tiles",    "HBM bytes", "predicted", "on chip",     "FLOPs",
                                   "exps",  "rescales", "error",     "CPU ms",    "simulator ms"};

// One row of the table. The time of a simulated kernel says nothing about a kernel's, so it has a column of its own.
std::vector<std::string> cells_of(const Step& s) {
  const Ledger& l = s.run.ledger;
  const bool kernel = s.phase->kernel();
  char error[32], milliseconds[32];
  std::snprintf(error, sizeof error, "%.1e", s.error);
  std::snprintf(milliseconds, sizeof milliseconds, "%.1f", s.run.milliseconds);
  return {s.name,
          s.phase->forward->features.tiles ? std::to_string(s.tiles.Br) + "x" + std::to_string(s.tiles.Bc) : "-",
          grouped(l.hbm_bytes()),
          s.predicted ? grouped(s.predicted) : "-",
          grouped(l.shared_bytes_peak),
          grouped(flops(l)),
          grouped(l.exps),
          kernel ? "-" : grouped(l.rescales),  // kernels do not count them
          error,
          kernel ? "-" : milliseconds,
          kernel ? milliseconds : "-"};
}

std::string table_text(const std::vector<Step>& steps) {
  constexpr int widths[] = {-19, 6, 11, 11, 8, 11, 9, 9, 8, 7, 13};
  std::string text;
  const auto add = [&](const auto& cells) {
    for (std::size_t i = 0; i < std::size(widths); ++i) {
      char cell[64];
      std::snprintf(cell, sizeof cell, "%*s%s", widths[i], std::string(cells[i]).c_str(),
                    i + 1 < std::size(widths) ? " " : "\n");
      text += cell;
    }
  };
  add(columns);
  for (const Step& s : steps) add(cells_of(s));
  return text;
}

// HBM bytes of one head against N, from the formulas that the counts above confirmed.
std::string bytes_chart(const Problem<float>& real) {
  std::vector<svg::Line> lines;
  Problem<float> p = real;
  p.options = {.block_q = 128, .block_k = 128};  // on 192 KiB, as a GPU has them
  for (const Phase* phase : all_phases()) {
    if (phase->kernel()) break;  // the kernels move what 04 moves with their blocks
    svg::Line line{.label = phase->name, .points = {}};
    for (std::int64_t N = 64; N <= 8192; N *= 2) {
      p.q.shape = p.k.shape = p.v.shape = {1, 1, N, real.D()};
      line.points.push_back({static_cast<double>(N), static_cast<double>(predicted_hbm_bytes(*phase, p))});
    }
    lines.push_back(line);
  }
  return svg::chart({.title = "HBM bytes against N, by formula (one head, d = " + std::to_string(real.D()) +
                              ", tiles 128 x 128, " + std::to_string(p.options.sram_bytes / 1024) + " KiB on chip)",
                     .x = "N",
                     .y = "bytes"},
                    lines);
}

// What each array moved, as counted.
std::string traffic_picture(const Step& s) {
  std::vector<std::pair<std::string, std::uint64_t>> values;
  for (const ArrayTraffic& a : s.run.ledger.arrays) {
    if (a.read_bytes) values.emplace_back(a.name + " read", a.read_bytes);
    if (a.written_bytes) values.emplace_back(a.name + " written", a.written_bytes);
  }
  return svg::bars(s.name + ": HBM bytes of each array", values);
}

// The way over the tiles of S. K that is read once per head says that the loop over K/V tiles is the outer one.
std::string walk_picture(const Step& s, const Problem<float>& p) {
  const int rows = static_cast<int>((p.Sq() + s.tiles.Br - 1) / s.tiles.Br),
            along = static_cast<int>((p.Sk() + s.tiles.Bc - 1) / s.tiles.Bc);
  Ledger ledger = s.run.ledger;
  const std::int64_t once = p.B() * p.H() * p.Sk() * p.D() * (s.type == Type::Float32 ? 4 : 2);
  const bool down = ledger.array("K").read_bytes == static_cast<std::uint64_t>(once);
  svg::Walk walk{.title = down ? "K, V outside: down the columns" : "Q outside: along the rows",
                 .rows = rows,
                 .columns = along,
                 .outer = down ? 1 : 0};
  for (int n = 0; n < rows * along; ++n)
    walk.order.push_back(down ? std::array{n % rows, n / rows} : std::array{n / along, n % along});
  return svg::tile_walks(s.name + ": the tiles of S (×n: how often a tile comes on chip)", {walk});
}

void write_report(const std::string& path, const std::vector<Step>& steps, const Problem<float>& p,
                  const Example& input, const std::vector<std::string>& tokens) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>FlashPhases tour</title>\n"
      "<style>:root{color-scheme:light dark}body{font:15px sans-serif;max-width:1150px;margin:2em auto;padding:0 1em;"
      "background:#fff;color:#222}.wide{overflow-x:auto}table{border-collapse:collapse}td,th{padding:.3em .7em;"
      "border-bottom:1px solid #8886;text-align:right;white-space:nowrap}td:first-child,th:first-child{text-align:left}"
      "svg{max-width:100%;height:auto;border-radius:4px}"
      "@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}svg{filter:brightness(.85)}}</style>\n"
      "<h1>The tour, phase by phase</h1>\n<p>Input: Q, K, V of one layer of all-MiniLM-L6-v2 on one sentence, " +
      svg::escape(shape_text(p.q.shape)) +
      " as [B, H, S, D]. HBM bytes are requested bytes, no cache; predicted by formula, counted by the machine; "
      "error is relative to fp64. FLOPs are those of multiply-adds and of tensor cores together. Phases that take no "
      "float32 get the same numbers as float16. Exps and rescales of the CPU phases are declared by their code, beside "
      "the statement "
      "that does them; all else is counted. A simulator's time says nothing about a GPU's.</p>\n<div "
      "class=\"wide\"><table><tr>";
  for (const char* column : columns) html += std::string("<th>") + column + "</th>";
  html += "</tr>\n";
  for (const Step& s : steps) {
    html += "<tr>";
    for (const std::string& cell : cells_of(s)) html += "<td>" + cell + "</td>";
    html += "</tr>\n";
  }
  html += "</table></div>\n" + bytes_chart(p);
  for (const Step& s : steps) {
    const bool backward = s.name != s.phase->name;
    html += "<h2>" + s.name + "</h2>\n";
    if (!backward) html += "<p>" + svg::escape(s.phase->change) + ".</p>\n";
    if (s.run.counted) html += traffic_picture(s);
    if (s.run.counted && s.phase->forward->features.tiles && !backward) html += walk_picture(s, p);
  }
  html += "<h2>Where each word looks</h2>\n";
  for (const std::int64_t h : {3, 7, 8}) {
    const RowMajor<double> P = weights(input, h);
    html += svg::heat_map("P of head " + std::to_string(h) + ": where each word looks", {P.data(), P.data() + P.size()},
                          tokens, tokens);
  }
  write_file(path, html + "</html>\n");
}

}  // namespace

int tour_command(const std::vector<std::string>& words) {
  const Arguments args(words, {"out"});
  if (args.positional.size() > 1) refuse("argument", "'" + args.positional[1] + "'", "at most one phase", "omit it");
  const Phase* only = args.positional.empty() ? nullptr : &find_phase(args.positional[0]);
  const std::string folder = args.text("out", "flash-tour");
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed || !std::filesystem::is_directory(folder))
    refuse("--out", folder, "a folder that can be made (" + (failed ? failed.message() : "it is a file") + ")",
           "choose another");

  Example input = sentence();
  const std::vector<std::string> tokens = sentence_words();
  Tensor<float>& o = input.o;
  Problem<float> p = input.problem();
  std::vector<float> lse(static_cast<std::size_t>(p.B() * p.H() * p.Sq()));
  p.options.sram_bytes = 16 * 1024;
  if (static_cast<std::int64_t>(tokens.size()) != p.Sq())
    refuse("minilm_tokens.txt", tokens.size(), std::to_string(p.Sq()) + " lines", "restore docs/data");
  const Exact want = exact_attention(p);

  std::printf("Input: Q, K, V of one layer of all-MiniLM-L6-v2, %s = [B, H, S, D], on the sentence\n ",
              shape_text(p.q.shape).c_str());
  for (std::size_t i = 1; i + 1 < tokens.size(); ++i)
    std::printf("%s%s", tokens[i].rfind("##", 0) == 0 ? "" : " ",
                tokens[i].c_str() + (tokens[i].rfind("##", 0) ? 0 : 2));
  std::printf("\nMachine: two levels, HBM and %s bytes of SRAM: small, so that even this short sentence needs tiles.\n",
              grouped(static_cast<std::uint64_t>(p.options.sram_bytes)).c_str());

  const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;  // of the kernels
  std::vector<Step> steps;
  RowMajor<double> before;
  for (std::size_t i = 0; i < all_phases().size(); ++i) {
    const Phase& phase = *all_phases()[i];
    const Features& can = phase.forward->features;
    const bool shown = !only || only == &phase;
    if (!shown && !(i + 1 < all_phases().size() && only == all_phases()[i + 1])) continue;  // it, and the one before
    o.fill(std::numeric_limits<float>::quiet_NaN());
    Step s;
    s.phase = &phase, s.name = phase.name, s.tiles = tiles_of(can);
    const Problem<float> problem = [&] {
      Problem<float> whole = with_tiles(p, can);
      if (can.kernel && can.meets(Demand::Lse)) whole.lse = lse.data();
      return whole;
    }();
    RowMajor<double> got;
    const auto take = [&]<class T>(const Problem<T>& given) {
      s.run = forward(phase, given, can.kernel ? machine : Where::Sim);
      s.predicted = predicted_hbm_bytes(phase, given);
      got = widened(given.o);
    };
    if (can.types.contains(Type::Float32)) {
      take(problem);
    } else {
      Rounded<half> rounded(input);
      s.type = Type::Float16;
      s.bar = 1.5 * rounding_floor<half>(want.o) + 0x1p-24;  // docs/conventions.md
      take(with_tiles(rounded.problem(), can));
    }
    s.error = relative_error_of(got, want.o);
    if (before.size() > 0) s.previous = (got - before).cwiseAbs().maxCoeff();
    s.good = s.error <= s.bar && (!s.run.counted || !s.predicted || s.run.ledger.hbm_bytes() == s.predicted);
    before = got;
    if (!shown) continue;
    print_step(s, i + 1);
    if (i == 0) {
      std::printf("  which words attend to which, from P (head 3: who is meant; head 7: what the phrase heads for)\n");
      const RowMajor<double> who = weights(input, 3), what = weights(input, 7);
      for (const std::int64_t row : {11, 27, 34}) print_top_words(who, tokens, row);
      for (const std::int64_t row : {5, 13, 41}) print_top_words(what, tokens, row);
    }
    if (new_in(phase, meets(Demand::Lse))) {
      bool lse_good = true;
      for (std::size_t row = 0; row < lse.size(); ++row)
        lse_good = lse_good && std::abs(lse[row] - want.lse[row]) <= 2e-6 * std::max(1.0, std::abs(want.lse[row]));
      std::printf("  LSE         %s\n", lse_good ? "within 2e-6 of fp64, every row" : "<-- OFF BY MORE THAN 2e-6");
      s.good = s.good && lse_good;
    }
    if (new_in(phase, meets(Demand::Causal)))
      s.good = print_causal(phase, problem, machine) && s.good;
    steps.push_back(s);
    if (new_in(phase, [](const Phase& p) { return p.backward != nullptr; }))
      steps.push_back(print_backward(phase, problem, machine));
  }

  const std::string report = folder + "/report.html";
  write_report(report, steps, p, input, tokens);
  std::printf("\n%s\n", table_text(steps).c_str());
  if (std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.type != Type::Float32; }))
    std::printf("Phases that take no float32 got the same numbers as float16: half the bytes per element.\n");
  std::printf("report: %s\n", std::filesystem::absolute(report).c_str());
  for (const Step& s : steps)
    if (!s.good) return std::fprintf(stderr, "flash: %s missed its prediction or its error bar\n", s.name.c_str()), 1;
  return 0;
}

}  // namespace flash
