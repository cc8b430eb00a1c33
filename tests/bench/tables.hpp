// tables.hpp: Markdown tables from docs/results/*.json, written between two markers of a page:
//   <!-- results sectors h200-sectors.json -->  …  <!-- end of results -->
// The first word is the kind of table: one of kinds() below, or a sweep of cases.hpp; `range` is for a sentence.
// Words with = choose rows (beside.hpp). Files behind `else` serve while one before is missing. tables.cpp writes.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "phases/interface/phase.hpp"
#include "phases/pages/text.hpp"
#include "tests/bench/beside.hpp"

namespace flash::bench {

inline std::string cell(const Json& row) {
  if (const Json* bytes = row.find("out_of_memory_bytes"))
    return "out of memory (wants " + format("%.0f", bytes->number * 1e-9) + " GB)";
  return short_number(row.at("tflops").number) + " (" + short_number(row.at("median_ms").number) + " ms)";
}

// One table per series: a line per N, a column per kernel.
inline std::string sweep_tables(const std::string& sweep, const std::vector<Json>& all) {
  std::vector<Json> rows;
  for (const Json& row : all)
    if (row.find("sweep") && row.at("sweep").text == sweep) rows.push_back(row);
  if (rows.empty()) throw Error("no table and no sweep is called " + sweep);
  std::string text;
  for (const std::string& series : values_of(rows, series_of)) {
    std::vector<Json> in_series;
    for (const Json& row : rows)
      if (series_of(row) == series) in_series.push_back(row);
    const std::vector<std::string> kernels = values_of(in_series, kernel_of);
    std::vector<std::string> head{"N"};
    head.insert(head.end(), kernels.begin(), kernels.end());
    text += series + ", " + in_series[0].at("type").text + ": TFLOP/s (median time)\n\n" + table_head(head);
    for (const std::string& N : values_of(in_series, N_of)) {
      std::vector<std::string> cells{N};
      for (const std::string& kernel : kernels) {
        cells.push_back("");
        for (const Json& row : in_series)
          if (N_of(row) == N && kernel_of(row) == kernel) cells.back() = cell(row);
      }
      text += table_line(cells);
    }
    text += "\n";
  }
  return text;
}

// Every kernel at one shape, the largest of the kernels' sweep: TFLOP/s of its forward and backward pass, and how much
// that is of FlashAttention-2's and of cuDNN's. Of a phase's backward passes ("09 atomic 64x32") the fastest counts, of
// two measurements of one kernel the later.
inline std::string summary_table(const std::vector<Json>& all) {
  // By kernel: forward, forward causal, backward, backward causal.
  std::map<std::string, std::array<double, 4>> speeds;
  std::vector<Json> shown;
  for (const Json& row : all) {
    if (N_of(row) != "8192" || row.at("D").number != 64 || row.at("H").number != 48 || !row.find("tflops")) continue;
    if (row.at("sweep").text != "kernels" && row.at("sweep").text.rfind("summary", 0) != 0) continue;
    std::string kernel = kernel_of(row);
    bool backward = row.at("sweep").text == "summary-backward";
    if (kernel[2] == ' ')
      for (const Phase* phase : all_phases())
        if (std::string(phase->name).substr(0, 2) == kernel.substr(0, 2)) kernel = phase->name, backward = true;
    if (kernel == "torch efficient" || kernel == "torch math" || kernel == "naive") continue;
    double& speed = speeds[kernel][(backward ? 2 : 0) + row.at("causal").truth];
    speed = kernel_of(row)[2] == ' ' ? std::max(speed, row.at("tflops").number) : row.at("tflops").number;
    shown.push_back(row);
  }
  if (shown.empty()) throw Error("no row of the summary's shape");
  const std::string shape = series_of(shown[0]);
  std::string text = shape.substr(0, shape.rfind(' ')) + ", N = 8192, " + shown[0].at("type").text +
                     ": TFLOP/s (% of FlashAttention-2, % of cuDNN)\n\n" +
                     table_head({"kernel", "forward", "forward, causal", "backward", "backward, causal"});
  for (const auto& [kernel, own] : speeds) {
    std::vector<std::string> line{kernel};
    for (std::size_t i = 0; i < own.size(); ++i) {
      const double flash = speeds["torch flash"][i], cudnn = speeds["torch cudnn"][i];
      const auto share = [&](double of) { return format(own[i] < of / 10 ? "%.1f" : "%.0f", 100 * own[i] / of); };
      line.push_back(own[i] == 0 ? "" : short_number(own[i]) + " (" + share(flash) + ", " + share(cudnn) + ")");
    }
    text += table_line(line);
  }
  return text + "\n";
}

// The simulator's counters beside the hardware's: one number where they agree, both, in bold, where they do not.
inline std::string sectors_table(const std::vector<Json>& rows) {
  const Name case_of = [](const Json& row) { return row.at("case").text; };
  const Name counter_of = [](const Json& row) { return row.at("counter").text; };
  const std::vector<std::string> counters = values_of(rows, counter_of);
  std::vector<std::string> head{"phase and shape"};
  head.insert(head.end(), counters.begin(), counters.end());
  std::string text = table_head(head);
  const auto whole = [](const Json& n) { return grouped(static_cast<std::uint64_t>(n.number)); };
  for (const std::string& name : values_of(rows, case_of)) {
    std::vector<std::string> cells{name};
    for (const std::string& counter : counters) {
      cells.push_back("");
      for (const Json& row : rows) {
        if (case_of(row) != name || counter_of(row) != counter) continue;
        const Json &ours = row.at("simulator"), &theirs = row.at("gpu");
        if (ours.kind == Json::Null || theirs.kind == Json::Null)
          cells.back() = whole(ours.kind == Json::Null ? theirs : ours);
        else
          cells.back() = ours.number == theirs.number ? whole(ours) : "**" + whole(ours) + " / " + whole(theirs) + "**";
      }
    }
    text += table_line(cells);
  }
  return text + "\n";
}

// Predictions beside the measurements that they speak of, and the verdict that follows. A prediction is a row with a
// claim; `rows` selects measurements by the value of their fields (a list: any of these), `of` says what is taken from
// each, `low` and `high` are the range that was predicted.
inline bool matches(const Json& row, const Json& wanted) {
  const auto equal = [](const Json& a, const Json& b) {
    return a.kind == b.kind && a.text == b.text && a.number == b.number && a.truth == b.truth;
  };
  for (const auto& [name, value] : wanted.fields) {
    const Json* field = row.find(name);
    const std::vector<Json>& any = value.kind == Json::List ? value.items : std::vector<Json>{value};
    if (!field || std::none_of(any.begin(), any.end(), [&](const Json& v) { return equal(*field, v); })) return false;
  }
  return true;
}

// The field `name` of the row that differs from this one in N or in kernel alone; NaN where it was not measured.
inline double beside(const Json& row, const std::vector<Json>& rows, double N, const std::string& kernel,
                     const char* name) {
  for (const Json& other : rows)
    if (other.find("kernel") && other.at("sweep").text == row.at("sweep").text && other.at("N").number == N &&
        kernel_of(other) == kernel && series_of(other) == series_of(row) && other.find(name))
      return other.at(name).number;
  return std::nan("");
}

// What a prediction is about; NaN where the row does not have it, which no prediction survives.
inline double predicted_quantity(const std::string& of, const Json& row, const std::vector<Json>& rows) {
  const auto field = [&](const char* name) { return row.find(name) ? row.at(name).number : std::nan(""); };
  if (of == "TFLOP/s") return field("tflops");
  const std::string times = "times ", speed = "'s TFLOP/s";
  if (of.starts_with(times) && of.ends_with(speed))
    return times_as_fast(row, rows, of.substr(times.size(), of.size() - times.size() - speed.size()));
  if (of == "FLOP/clk/SM of mma") return field("mma_flop_per_clk");
  if (of == "B/clk/SM of ldmatrix") return field("ldmatrix_bytes_per_clk");
  if (of == "ex2/clk/SM") return field("ex2_per_clk");
  if (of == "GB wanted") return field("out_of_memory_bytes") * 1e-9;
  if (of == "times the TFLOP/s at N/2")
    return field("tflops") / beside(row, rows, row.at("N").number / 2, kernel_of(row), "tflops");
  const std::string time = "'s time";
  if (of.starts_with(times) && of.ends_with(time))
    return field("median_ms") / beside(row, rows, row.at("N").number,
                                       of.substr(times.size(), of.size() - times.size() - time.size()), "median_ms");
  throw Error("nobody knows how to take '" + of + "' from a row");
}

// Does a prediction speak of this kernel?
inline bool is_about(const Json& prediction, const std::string& kernel) {
  const Json* named = prediction.at("rows").find("kernel");
  if (!named) return false;
  const std::vector<Json>& any = named->kind == Json::List ? named->items : std::vector<Json>{*named};
  return std::any_of(any.begin(), any.end(), [&](const Json& each) { return each.text == kernel; });
}

// about=KERNEL: predictions of others are left out. Nothing of its sweep is there: not measured yet.
inline std::string predictions_table(std::vector<Json> rows, const Words& words) {
  if (words.count("about"))
    std::erase_if(rows, [&](const Json& row) { return row.find("claim") && !is_about(row, one_of(words, "about")); });
  const auto measured_sweep = [&](const Json& prediction) {
    const Json* sweep = prediction.at("rows").find("sweep");
    return !sweep || std::any_of(rows.begin(), rows.end(), [&](const Json& row) {
      return row.find("sweep") && row.at("sweep").text == sweep->text;
    });
  };
  std::string text = "| predicted | measured | verdict |\n|---|---|---|\n";
  for (const Json& prediction : rows) {
    if (!prediction.find("claim")) continue;
    const std::string& claim = prediction.at("claim").text;
    const std::string& of = prediction.at("of").text;
    const Json *low = prediction.find("low"), *high = prediction.find("high");
    double least = INFINITY, most = -INFINITY;
    int all = 0, below = 0, above = 0;
    for (const Json& row : rows) {
      if (row.find("claim") || !matches(row, prediction.at("rows"))) continue;
      const double x = predicted_quantity(of, row, rows);
      if (std::isnan(x)) throw Error("'" + claim + "': a row without " + of);
      least = std::min(least, x), most = std::max(most, x), ++all;
      below += low && !(x >= low->number), above += high && !(x <= high->number);
    }
    const std::string range = !low    ? "at most " + format("%g", high->number)
                              : !high ? "at least " + format("%g", low->number)
                                      : format("%g", low->number) + " to " + format("%g", high->number);
    if (!measured_sweep(prediction)) {
      text += table_line({claim + ": " + range + " " + of, "not yet", ""});
      continue;
    }
    if (all == 0) throw Error("'" + claim + "': no such row");
    const std::string measured = all == 1 ? short_number(most) : short_number(least) + " to " + short_number(most);
    std::string verdict = "as predicted";
    if (below + above > 0) {
      verdict = "**wrong**: " + std::to_string(below + above) + " of " + std::to_string(all);
      verdict += above == 0 ? " below" : below == 0 ? " above" : " outside";
    }
    text += table_line({claim + ": " + range + " " + of, measured, verdict});
  }
  return text + "\n";
}

// Errors of gradients in rounding floors (the error of the exact gradient rounded to its type), and whether the bar of
// the contract, in floors too, holds for all three.
inline double floors_of(const Json& row, std::size_t tensor) {
  return row.at("error").items.at(tensor).number / row.at("floor").items.at(tensor).number;
}

inline std::string gradients_table(const std::vector<Json>& rows) {
  std::string text = table_head({"inputs", "type", "gradients of", "dQ", "dK", "dV", "within the bar"});
  for (const Json& row : rows) {
    std::vector<std::string> cells{row.at("input").text, row.at("type").text, row.at("who").text};
    bool within = true;
    for (const std::size_t tensor : {0, 1, 2}) {
      const double floors = floors_of(row, tensor);
      cells.push_back(format("%.2e", row.at("error").items[tensor].number) + " (" + format("%.2f", floors) + " ×)");
      within = within && floors <= row.at("bar").number;
    }
    cells.push_back(within ? "yes" : "no");
    text += table_line(cells);
  }
  return text + "\n";
}

// dQ alone, in floors: a line per input, a column per type and author.
inline std::string dq_table(const std::vector<Json>& rows) {
  return grid_table(
      rows, {"inputs, dO alike"}, [](const Json& row) { return row.at("input").text; },
      [](const Json& row) { return row.at("type").text + ": " + row.at("who").text; },
      [](const Json& row) { return short_number(floors_of(row, 0)); });
}

// What compute-sanitizer's tools found in each phase.
inline std::string sanitizer_table(const std::vector<Json>& rows) {
  return grid_table(
      rows, {"phase", "type"}, [](const Json& row) { return row.at("phase").text + " | " + row.at("type").text; },
      [](const Json& row) { return row.at("tool").text; },
      [](const Json& row) { return format("%.0f", row.at("found").number); }, "not run");
}

// Wrong versions, and the test that noticed each.
inline std::string mutants_table(const std::vector<Json>& rows) {
  const Name kind_of = [](const Json& row) { return row.at("kind").text; };
  std::string text;
  for (const std::string& kind : values_of(rows, kind_of)) {
    std::string lines;
    int all = 0, caught = 0;
    for (const Json& row : rows) {
      if (kind_of(row) != kind) continue;
      const std::string& verdict = row.at("verdict").text;
      ++all, caught += verdict == "caught";
      lines += table_line(
          {row.at("mutant").text, verdict == "caught" ? "`" + row.at("by").text + "`" : "**" + verdict + "**"});
    }
    text += kind + ": " + std::to_string(caught) + " of " + std::to_string(all) + " caught\n\n";
    text += "| wrong version | noticed by |\n|---|---|\n" + lines + "\n";
  }
  return text;
}

// GPU simulators on one core. Ours come first; the others are compared with each of them.
inline std::string simulators_table(const std::vector<Json>& rows) {
  const auto speed = [](const Json& row) { return row.at("gflops").number; };
  std::vector<const Json*> ours;
  std::vector<std::string> head{"simulator", "checks that are on", "GFLOP/s", "rounds"};
  for (const Json& row : rows)
    if (row.at("ours").truth) ours.push_back(&row), head.push_back(row.at("simulator").text + " is faster by");
  std::string text = "|---|---|";
  for (std::size_t i = 2; i < head.size(); ++i) text += "---:|";
  text = table_line(head) + text + "\n";
  for (const Json& row : rows) {
    std::vector<std::string> cells{
        row.at("simulator").text, row.at("checks").text, format("%.2g", speed(row)),
        format("%.2g", row.at("slowest").number) + " to " + format("%.2g", row.at("fastest").number)};
    for (const Json* mine : ours)
      cells.push_back(row.at("ours").truth ? "" : "× " + format("%.0f", speed(*mine) / speed(row)));
    text += table_line(cells);
  }
  return text + "\n";
}

// The simulator's own speed: a line per build, a column per number of threads.
inline std::string speed_table(const std::vector<Json>& rows) {
  return grid_table(
      rows, {"GFLOP/s, N = " + N_of(rows[0])}, [](const Json& row) { return row.at("build").text; },
      [](const Json& row) { return format("%.0f", row.at("threads").number); },
      [](const Json& row) { return short_number(row.at("gflops").number); }, "",
      [](const std::string& threads) { return threads + (threads == "1" ? " thread" : " threads"); });
}

// Phase 04 beside another library on the CPU: how many times faster, a line per D and mask, a column per N.
inline std::string cpu_table(const std::vector<Json>& rows) {
  double share = 0;
  for (const Json& row : rows) share = std::max(share, row.at("ours_mib").number / row.at("torch_mib").number);
  const std::string table = grid_table(
      rows, {"torch's time / ours"},
      [](const Json& row) {
        return format("D %.0f, ", row.at("D").number) + (row.at("causal").truth ? "causal" : "no mask");
      },
      N_of, [](const Json& row) { return format("%.2f", row.at("ratio").number); }, "",
      [](const std::string& N) { return "N = " + N; });
  return table + "Memory beyond Q, K, V and O: at most " + format("%.2f", share) + " of torch's.\n\n";
}

// The staircase of phase 05: each step's time, and as a share of the time of the step before.
inline std::string steps_table(const std::vector<Json>& rows) {
  std::string text =
      table_head({"step, one head of N = " + N_of(rows[0]) + format(", D = %.0f", rows[0].at("D").number), "ms",
                  "TFLOP/s", "of the step before"});
  double before = 0;
  for (const Json& row : rows) {
    const double ms = row.at("median_ms").number;
    text += table_line({row.at("step").text, short_number(ms), short_number(row.at("tflops").number),
                        before > 0 ? format("%.2f", ms / before) : ""});
    before = ms;
  }
  return text + "\n";
}

// A picture that flash-tables draws beside the tables; link=PATH from the page, alt=TEXT.
inline std::string picture_link(const std::vector<Json>&, const Words& words) {
  return "![" + one_of(words, "alt") + "](" + one_of(words, "link") + ")\n\n";
}

// The staircase of phase 13: a table per mask, of each step the TFLOP/s for each N, the prediction in brackets, and how
// many times those of the step before. Rows with "predicted" are predictions; a measured row may do without one.
inline std::string diet_table(const std::vector<Json>& rows) {
  const auto find = [&](const std::string& kernel, const std::string& N, bool causal, const char* field) {
    for (const Json& row : rows)
      if (kernel_of(row) == kernel && N_of(row) == N && row.at("causal").truth == causal && row.find(field))
        return row.at(field).number;
    return 0.0;
  };
  std::string text;
  for (const bool causal : {false, true}) {
    const std::vector<std::string> lengths = values_of(rows, N_of);
    std::vector<std::string> head{causal ? "causal" : "no mask"};
    for (const std::string& N : lengths)
      head.insert(head.end(), {"N = " + N + ": TFLOP/s (predicted)", "of the step before"});
    head.push_back("within 10 % of the prediction");
    text += table_head(head);
    std::string before;
    for (const std::string& kernel : values_of(rows, kernel_of)) {
      std::vector<std::string> cells{kernel};
      int judged = 0, right = 0;
      for (const std::string& N : lengths) {
        const double predicted = find(kernel, N, causal, "predicted"), tflops = find(kernel, N, causal, "tflops");
        const double last = before.empty() ? 0 : find(before, N, causal, "tflops");
        cells.push_back(
            (tflops > 0 ? short_number(tflops) : "") +
            (predicted > 0 ? std::string(tflops > 0 ? " " : "") + "(" + short_number(predicted) + ")" : ""));
        cells.push_back(tflops > 0 && last > 0 ? "× " + format("%.2f", tflops / last) : "");
        const bool judge = tflops > 0 && predicted > 0;
        judged += judge, right += judge && std::abs(tflops / predicted - 1) <= 0.1;
      }
      const std::string verdict =
          right == judged ? "yes" : "**" + std::to_string(right) + " of " + std::to_string(judged) + "**";
      cells.push_back(judged == 0 ? "" : verdict);
      text += table_line(cells);
      before = kernel;
    }
    text += "\n";
  }
  return text;
}

// What the compiler made of each step: see tests/bench/sass.py.
inline std::string sass_table(const std::vector<Json>& rows) {
  std::string text = table_head({"step", "registers", "bytes spilled", "instructions of a whole tile", "of these mma",
                                 "instructions per mma", "ldmatrix right before their mma"});
  for (const Json& row : rows) {
    std::vector<std::string> cells{kernel_of(row)};
    for (const char* name : {"registers", "spilled", "instructions", "mma"})
      cells.push_back(format("%.0f", row.at(name).number));
    cells.push_back(format("%.2f", row.at("instructions").number / row.at("mma").number));
    cells.push_back(format("%.0f", row.at("waited_for").number) + " of " + format("%.0f", row.at("ldmatrix").number));
    text += table_line(cells);
  }
  return text + "\n";
}

// Kernels back to back: TFLOP/s, and in brackets the clock, the power, and the share of what the tensor cores of an
// H200's 132 multiprocessors, 4096 FLOP per clock each, could do at this clock.
inline std::string hot_cell(double tflops, double mhz, double watts) {
  return short_number(tflops) + format(" (%.0f MHz, ", mhz) + format("%.0f W, ", watts) +
         format("%.0f %%)", tflops * 1e6 / (132 * 4096 * mhz) * 100);
}

inline std::string hot_table(const std::vector<Json>& rows) {
  return grid_table(
      rows, {"back to back"},
      [](const Json& row) {
        return format("D %.0f, ", row.at("D").number) + (row.at("causal").truth ? "causal" : "no mask") +
               ", N = " + N_of(row);
      },
      kernel_of,
      [](const Json& row) {
        return hot_cell(row.at("tflops").number, row.at("nvml_mhz").number, row.at("power_w").number);
      });
}

// Kernels with one change: their speed over that of the kernel as it is, in brackets what was predicted. wrong=false:
// those whose results are right. wrong=true: the others, and how they run back to back.
inline const Json& unchanged(const Json& row, const std::vector<Json>& rows) {
  for (const Json& other : rows)
    if (kernel_of(other) == row.at("base").text && N_of(other) == N_of(row) &&
        other.at("causal").truth == row.at("causal").truth)
      return other;
  throw Error(kernel_of(row) + ": " + row.at("base").text + " was not measured");
}

inline std::string ablations_table(const std::vector<Json>& rows, const Words& words) {
  const bool wrong = one_of(words, "wrong") == "true";
  const Name shape_of = [](const Json& row) {
    return std::string(row.at("causal").truth ? "causal" : "no mask") + ", N = " + N_of(row);
  };
  const std::vector<std::string> shapes = values_of(rows, shape_of);
  std::vector<std::string> head{"change"};
  head.insert(head.end(), shapes.begin(), shapes.end());
  if (wrong) head.push_back("back to back, " + shapes[2]);
  std::string text = table_head(head);
  std::vector<std::string> kernels = values_of(rows, kernel_of);
  std::sort(kernels.begin(), kernels.end());  // by phase
  for (const std::string& kernel : kernels) {
    std::vector<std::string> cells{kernel};
    bool listed = false;
    std::string hot;
    for (const Json& row : rows) {
      if (kernel_of(row) != kernel) continue;
      const bool base = row.at("base").text == kernel;
      if (row.find("hot_tflops"))
        hot = hot_cell(row.at("hot_tflops").number, row.at("hot_mhz").number, row.at("hot_w").number);
      listed = base ? wrong && (listed || row.find("hot_tflops")) : row.at("wrong").truth == wrong;
      const double ratio = row.at("tflops").number / unchanged(row, rows).at("tflops").number;
      const Json& predicted = row.at("predicted");
      cells.push_back(base ? short_number(row.at("tflops").number) + " TFLOP/s"
                           : format("%.2f", ratio) +
                                 (predicted.kind == Json::Null ? "" : format(" (%.2f)", predicted.number)));
    }
    if (wrong) cells.push_back(hot);
    if (listed) text += table_line(cells);
  }
  return text + "\n";
}

using Table = std::function<std::string(const std::vector<Json>& rows, const Words& words)>;
inline const std::vector<std::pair<std::string, Table>>& kinds() {
  const auto plain = [](std::string (*table)(const std::vector<Json>&)) {
    return [table](const std::vector<Json>& rows, const Words&) { return table(rows); };
  };
  static const std::vector<std::pair<std::string, Table>> all = {{"summary", plain(summary_table)},
                                                                 {"sectors", plain(sectors_table)},
                                                                 {"predictions", predictions_table},
                                                                 {"gradients", plain(gradients_table)},
                                                                 {"dq", plain(dq_table)},
                                                                 {"sanitizer", plain(sanitizer_table)},
                                                                 {"mutants", plain(mutants_table)},
                                                                 {"simulators", plain(simulators_table)},
                                                                 {"speed", plain(speed_table)},
                                                                 {"cpu", plain(cpu_table)},
                                                                 {"staircase", plain(steps_table)},
                                                                 {"ceilings", plain(ceilings_table)},
                                                                 {"ratios", ratios_table},
                                                                 {"beside", beside_tables},
                                                                 {"fastest", fastest_table},
                                                                 {"picture", picture_link},
                                                                 {"diet", plain(diet_table)},
                                                                 {"sass", plain(sass_table)},
                                                                 {"hot", plain(hot_table)},
                                                                 {"ablations", ablations_table}};
  return all;
}

// "NVIDIA H200, driver 580, …;\nSM clock 1965 to 1980 MHz while timed; commit abc, 2025-11-21".
inline std::string environment_line(const Json& file) {
  std::string text, more;
  const auto say = [&](std::string& where, const char* separator, const char* label, const char* name) {
    const Json* value = file.at("environment").find(name);
    if (value && !value->text.empty()) where += (where.empty() ? "" : separator) + (label + value->text);
  };
  say(text, ", ", "", "gpu"), say(text, ", ", "", "cpu"), say(text, ", ", "driver ", "driver");
  say(text, ", ", "CUDA ", "cuda"), say(text, ", ", "torch ", "torch");
  double low = 0, high = 0;
  for (const Json& row : file.at("rows").items)
    if (const Json* mhz = row.find("sm_mhz")) {
      low = low == 0 ? mhz->number : std::min(low, mhz->number);
      high = std::max(high, mhz->number);
    }
  if (high > 0) more = "SM clock " + format("%.0f", low) + " to " + format("%.0f", high) + " MHz while timed";
  say(more, "; ", "", "note"), say(more, "; ", "commit ", "commit"), say(more, ", ", "", "date");
  return text + (text.empty() ? "" : ";\n") + more + "\n";
}

// A marker: the kind of table, words with =, and the files that are there, in `folder`.
struct Marker {
  std::string kind;
  Words words;
  std::vector<std::string> files, missing;
};

inline Marker read_marker(const std::string& text, const std::filesystem::path& folder) {
  Marker marker;
  std::istringstream line(text);
  line >> marker.kind;
  std::vector<std::string> named;
  for (std::string word; line >> word;) {
    const std::size_t equals = word.find('=');
    if (word == "else") {
      if (marker.missing.empty()) break;
      marker.files.clear(), marker.missing.clear(), named.clear();
    } else if (equals != std::string::npos) {
      std::string values = word.substr(equals + 1);
      std::replace(values.begin(), values.end(), '_', ' ');
      std::istringstream list(values);
      for (std::string value; std::getline(list, value, ',');) marker.words[word.substr(0, equals)].push_back(value);
    } else {
      named.push_back(word);
      (std::filesystem::exists(folder / word) ? marker.files : marker.missing).push_back(word);
    }
  }
  if (named.empty()) throw Error("a marker '" + text + "' without table or file");
  return marker;
}

inline std::vector<Json> rows_of(const Marker& marker, const std::filesystem::path& folder) {
  std::vector<Json> rows;
  for (const std::string& file : marker.files) {
    const std::vector<Json> more = read_json(folder / file).at("rows").items;
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

// What belongs between the markers.
inline std::string render(const Marker& marker, const std::filesystem::path& folder) {
  std::string sources, missing;
  for (const std::string& file : marker.files) {
    sources += (sources.empty() ? "" : "<br>\n") + file + ": " + environment_line(read_json(folder / file));
    sources.pop_back();
  }
  for (const std::string& file : marker.missing) missing += (missing.empty() ? "" : ", ") + file;
  if (!missing.empty()) missing = "Not measured yet: " + missing + " in docs/results.\n";
  const std::vector<Json> rows = rows_of(marker, folder);
  if (rows.empty()) return missing;
  const auto kind = std::find_if(kinds().begin(), kinds().end(), [&](const auto& k) { return k.first == marker.kind; });
  const std::string table = kind == kinds().end() ? sweep_tables(marker.kind, rows) : kind->second(rows, marker.words);
  return table + sources + "\n" + missing;
}

// Markers within a sentence: <!-- range WORDS FILES -->0.93 to 1.15<!-- end -->.
inline std::string with_ranges(const std::string& page, const std::filesystem::path& folder) {
  static const std::string begin = "<!-- range", close = "-->", end = "<!-- end -->";
  std::string out;
  std::size_t at = 0;
  for (std::size_t marker; (marker = page.find(begin, at)) != std::string::npos;) {
    const std::size_t head = page.find(close, marker), tail = page.find(end, marker);
    if (head == std::string::npos || tail == std::string::npos || tail < head)
      throw Error("a marker '" + begin + "…' without its '-->' or '" + end + "'");
    const Marker read = read_marker(page.substr(marker + 5, head - marker - 5), folder);
    out += page.substr(at, head + close.size() - at) + range_text(rows_of(read, folder), read.words);
    at = tail;
  }
  return out + page.substr(at);
}

// The page with all its tables and ranges renewed; the same text where none was stale.
inline std::string renewed(const std::string& page, const std::filesystem::path& folder) {
  static const std::string begin = "<!-- results ", close = " -->\n", end = "<!-- end of results -->";
  std::string out;
  std::size_t at = 0;
  for (std::size_t marker; (marker = page.find(begin, at)) != std::string::npos;) {
    const std::size_t head = page.find(close, marker), tail = page.find(end, marker);
    if (head == std::string::npos || tail == std::string::npos || tail < head)
      throw Error("a marker '" + begin + "…' without its ' -->' or '" + end + "'");
    const Marker read = read_marker(page.substr(marker + begin.size(), head - marker - begin.size()), folder);
    out += page.substr(at, head + close.size() - at) + "\n" + render(read, folder) + "\n";
    at = tail;
  }
  return with_ranges(out + page.substr(at), folder);
}

}  // namespace flash::bench
