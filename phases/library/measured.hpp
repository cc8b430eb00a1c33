// measured.hpp: the figures by which a phase is chosen (automatic.hpp), from result files into a source file.
// The build makes it anew when one of these files changes; the root's CMakeLists.txt says which they are.
// Use: const std::string text = measured_source({"docs/results/h200-beside.json"});
#pragma once
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "phases/library/json.hpp"

namespace flash {

// A type as the sources call it.
inline std::string source_name(const std::string& type) {
  if (type == "float32") return "Float32";
  if (type == "float16") return "Float16";
  if (type == "bfloat16") return "BFloat16";
  throw Error("nobody knows the type '" + type + "'");
}

// A row's kernel: "19-beyond"; of a backward pass also "09 deterministic 64x32", "24-backward-fused".
struct MeasuredKernel {
  std::string phase, mode;
};
inline MeasuredKernel measured_kernel(const std::string& kernel) {
  MeasuredKernel found;
  std::istringstream words(kernel);
  words >> found.phase;
  for (std::string word; words >> word;)
    if (word == "deterministic" || word == "atomic") found.mode = word;
  return found;
}

// Phases' rows of the sweeps over phases; of each measurement the last file's where several have it. A file that has
// the same for several blocks names first what runs where nobody asks for others.
inline std::string measured_source(const std::vector<std::filesystem::path>& files) {
  std::string gpu, names;
  std::map<std::tuple<std::string, std::string, std::string, bool, double, double, double>, double> figures;
  for (const std::filesystem::path& path : files) {
    const Json file = read_json(path);
    const std::string &mine = file.at("environment").at("gpu").text, name = path.filename().string();
    if (!gpu.empty() && gpu != mine) throw Error(name + " is of " + mine + ", the files before it of " + gpu);
    gpu = mine, names += " " + name;
    decltype(figures) of_file;
    for (const Json& row : file.at("rows").items) {
      const Json *sweep = row.find("sweep"), *tflops = row.find("tflops");
      if (!sweep || !tflops) continue;
      const bool backward = sweep->text == "backward";
      if (!backward && sweep->text != "kernels" && sweep->text != "beside" && sweep->text != "few") continue;
      auto [phase, mode] = measured_kernel(row.at("kernel").text);
      if (!std::isdigit(static_cast<unsigned char>(phase[0]))) continue;  // a library's
      if (phase.find('/') != std::string::npos) continue;                 // a step on the way to the phase
      if (backward && mode.empty()) mode = "atomic";
      of_file.try_emplace({phase, mode, row.at("type").text, row.at("causal").truth, row.at("D").number,
                           row.at("N").number, row.at("B").number * row.at("H").number},
                          tflops->number);
    }
    of_file.merge(figures);
    figures = std::move(of_file);
  }
  std::string text = "// Made by flash-measured from these files of docs/results:" + names +
                     "\n#include <iterator>\n\n#include \"phases/library/automatic.hpp\"\n\nnamespace flash {\n\n" +
                     "const char* const measured_gpu = \"" + gpu + "\";\n\n" +
                     "// Phase, type, causal, D, N, B·H, TFLOP/s; of a backward pass its mode.\nstatic constexpr "
                     "Measured figures[] = {\n";
  for (const auto& [key, tflops] : figures) {
    const auto& [phase, mode, type, causal, D, N, heads] = key;
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, "%s, %.0f, %.0f, %.0f, %.6g", causal ? "true" : "false", D, N, heads,
                  tflops);
    text += "    {\"" + phase + "\", Type::" + source_name(type) + ", " + numbers;
    if (!mode.empty())
      text += std::string(", Direction::Backward, BackwardMode::") + (mode == "atomic" ? "Atomic" : "Deterministic");
    text += "},\n";
  }
  return text + "};\n\nconst std::vector<Measured>& measured_figures() {\n" +
         "  static const std::vector<Measured> all(std::begin(figures), std::end(figures));\n" +
         "  return all;\n}\n\n}  // namespace flash\n";
}

}  // namespace flash
