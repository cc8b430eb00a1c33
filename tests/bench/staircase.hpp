// staircase.hpp: all phases in one picture: the bytes that each moves (its own formula) and, of kernels, the speed that
// was measured, with libraries beside them; the tensor-core phases in one, with what was predicted of them; and the
// last of these over N.
// Use: flash-tables writes staircase(root / "docs/results") to docs/results/staircase.svg; README.md, the book show it.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>

#include "phases/interface/phase.hpp"
#include "phases/pages/svg.hpp"
#include "tests/bench/tables.hpp"

namespace flash::bench {

// TFLOP/s at N = 8192, D = 64, no mask, fp16, by kernel: of the sweeps over kernels, and naive from its own.
inline std::map<std::string, double> speeds(const std::filesystem::path& results) {
  std::map<std::string, double> of;
  for (const char* name : {"h200-beside.json", "h200-phases.json", "h200-torch.json"}) {
    const Json file = read_json(results / name);
    for (const Json& row : file.at("rows").items) {
      const std::string kernel = kernel_of(row);
      const std::string& sweep = row.at("sweep").text;
      const bool swept = (kernel == "naive" ? sweep == "naive-vs-flash" : sweep == "kernels" || sweep == "beside") &&
                         row.at("type").text == "float16";
      if (swept && N_of(row) == "8192" && row.at("D").number == 64 && !row.at("causal").truth && row.find("tflops"))
        of[kernel] = row.at("tflops").number;
    }
  }
  return of;
}

// A bar from x on, as long as the logarithm of its value says, with the value behind it.
struct Scale {
  double x, width, low, high;
};
inline void draw_bar(svg::Canvas& canvas, const Scale& scale, double y, double value, const std::string& label,
                     const std::string& colour) {
  const double length = scale.width * std::log(value / scale.low) / std::log(scale.high / scale.low);
  canvas.rect(scale.x, y, length, 15, "fill=\"" + colour + "\"");
  canvas.text(scale.x + length + 5, y + 12, label);
}

// A line for each phase, bytes at the left and speed at the right, and for two libraries: narrow enough for a page.
inline std::string staircase(const std::filesystem::path& results) {
  const std::int64_t N = 8192, D = 64;
  std::map<std::string, double> tflops = speeds(results);
  const double line = 21, top = 92;
  const Scale bytes{166, 190, 0.05e9, 40e9}, speed{450, 220, 1, 600};
  svg::Canvas canvas(740, top + line * (double(forward_phases().size()) + 2) + 62, "FlashAttention, phase by phase");
  canvas.text(bytes.x, 56, "HBM bytes of one head", "font-weight=\"bold\"");
  canvas.text(bytes.x, 74, "N = 8192, D = 64, no cache");
  canvas.text(speed.x, 56, "TFLOP/s on an H200", "font-weight=\"bold\"");
  canvas.text(speed.x, 74, "N = 8192, D = 64, fp16, 64 to 192 heads");
  double y = top;
  const auto name_line = [&](const std::string& number, const std::string& name) {
    canvas.text(16, y + 12, number, "font-weight=\"bold\"");
    canvas.text(40, y + 12, name);
  };
  for (const Phase* phase : forward_phases()) {
    const std::string name = phase->name;
    const Blocks blocks = phase->kernel() ? *phase->forward->features.blocks.begin() : Blocks{};
    const Type type = phase->forward->features.types.contains(Type::Float32) ? Type::Float32 : Type::Float16;
    const HbmBytes moved = phase->forward->features.hbm_bytes({{1, 1, 1, N, N, D, D}, type, {}}, blocks);
    const double all = double(moved.read + moved.written);
    name_line(name.substr(0, 2), name.substr(3));
    draw_bar(canvas, bytes, y, all, short_number(all * 1e-9) + " GB", phase->kernel() ? "#56b4e9" : "#0072b2");
    if (phase == all_phases().front())
      draw_bar(canvas, speed, y, tflops.at("naive"), short_number(tflops.at("naive")) + " (*)", "#bbb");
    else if (tflops.count(name))
      draw_bar(canvas, speed, y, tflops[name], short_number(tflops[name]), "#e69f00");
    y += line;
  }
  for (const auto& [kernel, label] : {std::pair{"torch flash", "FlashAttention-2"}, {"torch cudnn", "cuDNN"}}) {
    name_line("", label);
    draw_bar(canvas, speed, y, tflops.at(kernel), short_number(tflops.at(kernel)), "#999");
    y += line;
  }
  canvas.text(16, y + 22,
              "Bytes: each phase's formula, equal to its counts; fp32, or fp16 where a phase takes no fp32.",
              "fill=\"#666\"");
  canvas.text(16, y + 40, "(*) phase 01's three steps as CUDA kernels. Both scales are logarithmic.", "fill=\"#666\"");
  return canvas.str();
}

// ---- The tensor-core phases -----------------------------------------------------------------------------------------

// What a prediction says of one kernel at D = 128, no mask: the middle of its range; NaN where it is about more or les
inline double predicted_tflops(const Json& prediction, const std::string& kernel, const std::string& N) {
  const Json& rows = prediction.at("rows");
  const Json *named = rows.find("kernel"), *length = rows.find("N"), *D = rows.find("D");
  if (prediction.at("of").text != "TFLOP/s" || !named || !length || !D || named->text != kernel || D->number != 128 ||
      text_of(*length) != N || !prediction.find("low") || !prediction.find("high"))
    return std::nan("");
  return (prediction.at("low").number + prediction.at("high").number) / 2;
}

// A pair of bars per kernel, N = 2048 and 8192, at D = 128, no mask, bf16; a line where the prediction was. `rows`: of
// the sweep beside, and predictions. 13's own steps, 13a and so on, stand before it; the libraries come last.
inline std::string tensor_core_staircase(const std::vector<Json>& rows) {
  const std::vector<std::string> lengths{"2048", "8192"};
  const std::vector<const char*> colours{"#f0c875", "#e69f00"}, greys{"#bbb", "#888"};
  const auto is_ours = [](const std::string& kernel) { return std::isdigit(static_cast<unsigned char>(kernel[0])); };
  const auto order = [&](const Json& row) {
    std::string name = kernel_of(row);
    if (is_ours(name) && name[2] == '-') name[2] = '~';  // 13 itself behind 13a, 13b, …
    return name == "torch cudnn" ? "torch~" : name;
  };
  std::vector<Json> shown;
  for (const Json& row : rows)
    if (row.find("kernel") && row.find("tflops") && row.at("D").number == 128 && !row.at("causal").truth &&
        row.at("type").text == "bfloat16" && std::count(lengths.begin(), lengths.end(), N_of(row)) &&
        (is_ours(kernel_of(row)) || kernel_of(row) == "torch flash" || kernel_of(row) == "torch cudnn"))
      shown.push_back(row);
  if (shown.empty()) throw Error("no row at D = 128, no mask, N = 2048 or 8192 in bf16");
  std::stable_sort(shown.begin(), shown.end(), [&](const Json& a, const Json& b) { return order(a) < order(b); });
  double most = 0;
  for (const Json& row : shown) most = std::max(most, row.at("tflops").number);

  const std::vector<std::string> kernels = values_of(shown, kernel_of);
  const double column = 96, bar = 38, bottom = 300, height = 210;
  svg::Canvas canvas(40 + column * double(kernels.size()), 350, "Tensor cores, step by step");
  canvas.text(16, 46, "TFLOP/s on an H200, bf16, D = 128, no mask, 16384 tokens in 16 heads: measured");
  canvas.raw("<rect x=\"16\" y=\"56\" width=\"10\" height=\"10\" fill=\"" + std::string(colours[0]) + "\"/>");
  canvas.raw("<rect x=\"106\" y=\"56\" width=\"10\" height=\"10\" fill=\"" + std::string(colours[1]) + "\"/>");
  canvas.text(30, 65, "N = 2048", "font-size=\"11\""), canvas.text(120, 65, "N = 8192", "font-size=\"11\"");
  canvas.line(196, 61, 214, 61, "stroke=\"#000\" stroke-width=\"2\"");
  canvas.text(220, 65, "predicted", "font-size=\"11\"");
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    const double x = 24 + column * double(k), middle = x + bar + 1;
    const bool ours = is_ours(kernels[k]);
    for (std::size_t n = 0; n < lengths.size(); ++n) {
      const double left = x + (bar + 2) * double(n);
      double top = bottom;
      for (const Json& row : shown) {
        if (kernel_of(row) != kernels[k] || N_of(row) != lengths[n]) continue;
        top = bottom - height * row.at("tflops").number / most;
        canvas.rect(left, top, bar, bottom - top, "fill=\"" + std::string((ours ? colours : greys)[n]) + "\"");
        double above = top;
        for (const Json& prediction : rows) {
          const double tflops =
              prediction.find("claim") ? predicted_tflops(prediction, kernels[k], lengths[n]) : std::nan("");
          if (std::isnan(tflops)) continue;
          const double y = bottom - height * tflops / most;
          canvas.line(left - 1, y, left + bar + 1, y, "stroke=\"#000\" stroke-width=\"2\"");
          above = std::min(above, y);
        }
        canvas.text(left + bar / 2, above - 5, short_number(row.at("tflops").number),
                    "text-anchor=\"middle\" font-size=\"11\"");
      }
    }
    const std::size_t dash = ours ? kernels[k].find('-') : std::string::npos;
    const std::string name = kernels[k] == "torch flash"   ? "FlashAttention-2"
                             : kernels[k] == "torch cudnn" ? "cuDNN"
                                                           : kernels[k].substr(0, dash);
    canvas.text(middle, bottom + 18, name,
                std::string("text-anchor=\"middle\" font-weight=\"bold\"") + (ours ? "" : " font-size=\"10\""));
    if (dash != std::string::npos)
      canvas.text(middle, bottom + 32, kernels[k].substr(dash + 1), "text-anchor=\"middle\" font-size=\"10\"");
  }
  canvas.line(16, bottom, 24 + column * double(kernels.size()), bottom, "stroke=\"#999\"");
  return canvas.str();
}

// Lines over N at D = 128, bf16, no mask and causal: the phases from `first` on ("13"), and two libraries, dashed.
// `rows`: of the sweep beside.
inline std::string speed_lines(const std::string& first, const std::vector<Json>& rows) {
  static constexpr const char* colours[] = {"#b07800", "#56b4e9", "#0072b2", "#009e73",
                                            "#cc79a7", "#d55e00", "#8a3d70"};
  const double panel = 264, top = 84, height = 270;
  std::map<std::string, std::string> shown;  // kernel: label, ours by their numbers
  std::vector<double> lengths;
  double low = INFINITY, high = 0;
  const auto fits = [](const Json& row) {
    return row.find("kernel") && row.find("tflops") && row.at("D").number == 128 && row.at("type").text == "bfloat16";
  };
  for (const Json& row : rows) {
    if (!fits(row)) continue;
    const std::string kernel = kernel_of(row);
    const bool ours = std::isdigit(static_cast<unsigned char>(kernel[0])) && kernel[2] == '-';
    if (ours && kernel.substr(0, 2) >= first) shown[kernel] = kernel.substr(0, 2);
    if (kernel == "torch cudnn") shown[kernel] = "cuDNN";
    if (kernel == "torch flash") shown[kernel] = "FA-2";
    if (!shown.count(kernel)) continue;
    lengths.push_back(row.at("N").number);
    low = std::min(low, row.at("tflops").number), high = std::max(high, row.at("tflops").number);
  }
  if (shown.empty()) throw Error("no row of a phase from " + first + " on at D = 128 in bf16");
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  low = 100 * std::floor(low / 100), high = 100 * std::ceil(high / 100);
  const auto y_of = [&](double tflops) { return top + height * (high - tflops) / (high - low); };
  svg::Canvas canvas(760, top + height + 46,
                     "Phases " + first + " to " + std::prev(shown.end(), 3)->second + " over N");
  canvas.text(16, 46, "TFLOP/s on an H200, bf16, D = 128, 16384 tokens in 16 heads: measured");
  for (const bool causal : {false, true}) {
    const double left = causal ? 430 : 44;
    const auto x_of = [&](double N) {
      return left + 12 + (panel - 24) * std::log2(N / lengths[0]) / std::log2(lengths.back() / lengths[0]);
    };
    canvas.text(left, 74, causal ? "causal" : "no mask", "font-weight=\"bold\"");
    for (double t = low; t <= high; t += 100) {
      canvas.line(left, y_of(t), left + panel, y_of(t), "stroke=\"#ddd\"");
      canvas.text(left - 6, y_of(t) + 4, svg::num(t), "text-anchor=\"end\" fill=\"#666\"");
    }
    for (const double N : lengths)
      canvas.text(x_of(N), top + height + 18, svg::short_number(N),
                  "text-anchor=\"middle\" fill=\"#666\" font-size=\"11\"");
    canvas.text(left + panel / 2, top + height + 38, "N", "text-anchor=\"middle\"");
    std::multimap<double, std::pair<std::string, std::string>> ends;  // y: label, colour
    std::size_t number = 0;
    for (const auto& [kernel, label] : shown) {
      const bool ours = label == kernel.substr(0, 2);
      const std::string colour = ours ? colours[number++ % std::size(colours)] : "#555";
      std::map<double, double> at;
      for (const Json& row : rows)
        if (fits(row) && kernel_of(row) == kernel && row.at("causal").truth == causal)
          at[row.at("N").number] = row.at("tflops").number;
      std::string points;
      for (const auto& [N, tflops] : at) points += svg::num(x_of(N)) + "," + svg::num(y_of(tflops)) + " ";
      canvas.path(points, "stroke-width=\"2\" stroke=\"" + colour + (ours ? "\"" : "\" stroke-dasharray=\"5 4\""));
      if (!at.empty()) ends.insert({y_of(at.rbegin()->second), {label, colour}});
    }
    double lowest = 0;
    for (const auto& [y, end] : ends) {  // from the top down, a line of text apart
      lowest = std::max(lowest + 14, y);
      canvas.text(left + panel + 4, lowest + 4, end.first, "font-weight=\"bold\" fill=\"" + end.second + "\"");
    }
  }
  return canvas.str();
}

}  // namespace flash::bench
