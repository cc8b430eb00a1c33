// staircase.hpp: all phases in one picture: the bytes that each moves (its own formula) and, of kernels, the speed that
// was measured, with the best library beside them. Written by flash-tables, shown by README.md and the book.
// Use: write(root / "docs/results/staircase.svg", staircase(root / "docs/results"));
#pragma once
#include <algorithm>
#include <cmath>
#include <map>

#include "phases/common/phase.hpp"
#include "phases/common/svg.hpp"
#include "tests/bench/tables.hpp"

namespace flash::bench {

// TFLOP/s at N = 8192, D = 64, no mask, by kernel: of the sweep over kernels, and naive from its own.
inline std::map<std::string, double> speeds(const std::filesystem::path& results) {
  std::map<std::string, double> of;
  for (const char* name : {"h200-phases.json", "h200-torch.json"}) {
    std::ostringstream text;
    if (!(text << std::ifstream(results / name, std::ios::binary).rdbuf()))
      throw Error(std::string("cannot read ") + name);
    const Json file = parse_json(text.str(), name);
    for (const Json& row : file.at("rows").items) {
      const std::string kernel = kernel_of(row);
      const bool swept = row.at("sweep").text == (kernel == "naive" ? "naive-vs-flash" : "kernels");
      if (swept && N_of(row) == "8192" && row.at("D").number == 64 && !row.at("causal").truth && row.find("tflops"))
        of[kernel] = row.at("tflops").number;
    }
  }
  return of;
}

// A column per entry, as tall as the logarithm of its value says, with the value above it.
struct Bar {
  double value;
  std::string label, colour;
};
inline void draw_bars(svg::Canvas& canvas, double width, double top, double height, double low, double high,
                      const std::map<int, Bar>& bars) {
  for (const auto& [column, bar] : bars) {
    const double h = height * std::log(bar.value / low) / std::log(high / low), x = 24 + 78.0 * column;
    canvas.rect(x, top + height - h, 62, h, "fill=\"" + bar.colour + "\"");
    canvas.text(x + 31, top + height - h - 5, bar.label, "text-anchor=\"middle\" font-size=\"11\"");
  }
  canvas.line(16, top + height, width - 18, top + height, "stroke=\"#999\"");
}

inline std::string staircase(const std::filesystem::path& results) {
  const std::int64_t N = 8192, D = 64;
  std::map<std::string, double> tflops = speeds(results);
  std::map<int, Bar> bytes, speed;
  const double width = 42 + 78.0 * (double(all_phases().size()) + 2);  // an empty column, then the library
  svg::Canvas canvas(width, 470, "FlashAttention, phase by phase");
  canvas.text(
      16, 52,
      "HBM bytes, one head, N = 8192, D = 64, no cache: each phase's formula, equal to its counts; fp32, or fp16 "
      "where a phase takes no fp32");
  canvas.text(16, 262, "TFLOP/s on an H200, fp16, B = 4, H = 48 (naive: 32): measured");
  int column = 0;
  for (const Phase* phase : all_phases()) {
    const std::string name = phase->features.phase;
    const Blocks blocks = phase->features.kernel ? *phase->features.blocks.begin() : Blocks{};
    const std::int64_t element = phase->features.types.contains(Type::Float32) ? 4 : 2;
    const HbmBytes moved = phase->hbm_bytes({1, 1, N, N, D, element, false, {}}, blocks);
    const double all = double(moved.read + moved.written);
    bytes[column] = {all, short_number(all * 1e-9) + " GB", phase->features.kernel ? "#56b4e9" : "#0072b2"};
    if (tflops.count(name)) speed[column] = {tflops[name], short_number(tflops[name]), "#e69f00"};
    canvas.text(24 + 78.0 * column + 31, 446, name.substr(0, 2), "text-anchor=\"middle\" font-weight=\"bold\"");
    canvas.text(24 + 78.0 * column + 31, 460, name.substr(3), "text-anchor=\"middle\" font-size=\"9\"");
    ++column;
  }
  speed[0] = {tflops.at("naive"), short_number(tflops.at("naive")) + " (*)", "#bbb"};
  speed[column + 1] = {tflops.at("torch cudnn"), short_number(tflops.at("torch cudnn")), "#999"};
  canvas.text(24 + 78.0 * (column + 1) + 31, 446, "cuDNN", "text-anchor=\"middle\" font-weight=\"bold\"");
  draw_bars(canvas, width, 76, 140, 0.05e9, 40e9, bytes);
  draw_bars(canvas, width, 290, 140, 1, 500, speed);
  canvas.text(330, 282, "(*) phase 01's three steps as CUDA kernels. Both scales are logarithmic.",
              "font-size=\"10\" fill=\"#666\"");
  return canvas.str();
}

}  // namespace flash::bench
