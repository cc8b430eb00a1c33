// stages.cpp: see stages.hpp. A row for each reader, one for each place; below a place the phases of its mbarrier.
// Use: linked with flash_common.
#include "phases/pages/stages.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace flash::svg {

Lives lives(const Recording& recording, const std::vector<Place>& places) {
  using Kind = Recording::Kind;
  Lives lives{places, std::vector<std::vector<Stay>>(places.size()), {}, 0};
  for (const Recording::Step& step : recording.steps) {
    if (step.block != 0) continue;
    bool tells = step.released;
    for (const Recording::Part& part : step.parts)
      for (std::size_t i = 0; i < places.size(); ++i) {
        const bool copied = part.kind == Kind::copy, there = part.kind == Kind::landed;
        const bool read = part.kind == Kind::chip_read || part.kind == Kind::product;
        const bool inside =
            !part.spans.empty() && part.spans[0].first >= places[i].first && part.spans[0].first < places[i].end;
        if (!(copied || there || read || part.kind == Kind::multiplied) || !inside) continue;
        tells = true;
        std::vector<Stay>& stays = lives.stays[i];
        if (copied && (stays.empty() || stays.back().complete > 0))
          stays.push_back({.tile = part.from.empty() ? 0 : long(part.from[0].first / (places[i].end - places[i].first)),
                           .begun = lives.events});
        if (stays.empty()) continue;
        if (there) stays.back().complete = lives.events + 1;
        if (there) stays.back().bytes += static_cast<unsigned>(part.bytes);
        if (read) stays.back().readings.push_back({step.warp, lives.events, lives.events + 1});
        if (part.kind == Kind::multiplied)
          for (Stay::Reading& reading : stays.back().readings)
            if (reading.reader == step.warp) reading.end = lives.events + 1;
      }
    if (step.released) lives.barriers.push_back(lives.events);
    lives.events += tells;
  }
  return lives;
}

std::string stages(const std::string& title, const Lives& lives, const StagesOptions& options) {
  static constexpr const char* hues[] = {"#9ec9e6", "#7fb3a6"};  // of two kinds of use
  static constexpr const char* parities[] = {"#e6e6e6", "#d8c4e0"};
  std::map<std::string, std::size_t> uses;  // and their numbers
  std::map<int, std::size_t> readers;
  for (std::size_t i = 0; i < lives.places.size(); ++i) {
    uses.try_emplace(lives.places[i].use, uses.size());
    for (const Stay& stay : lives.stays[i])
      for (const Stay::Reading& reading : stay.readings) readers.try_emplace(reading.reader, 0);
  }
  std::size_t row = 0;
  for (auto& [warp, at] : readers) at = row++;

  const double left = 104, top = 48, unit = std::floor(640.0 / std::max(lives.events, 1));
  const double width = unit * lives.events, first_place = top + 28 * static_cast<double>(readers.size()) + 14;
  const double bottom = first_place + 46 * static_cast<double>(lives.places.size());
  Canvas canvas(std::max(left + width + 16, 620.0), bottom + 50, title);
  const auto x_of = [&](int event) { return left + unit * event; };
  const auto bar = [&](double y, double height, int begin, int end, const std::string& colour,
                       const std::string& text) {
    canvas.rect(x_of(begin), y, unit * (end - begin), height, "stroke=\"white\" fill=\"" + colour + "\"");
    if (!text.empty() && 6.5 * static_cast<double>(text.size()) < unit * (end - begin))
      canvas.text((x_of(begin) + x_of(end)) / 2, y + height / 2 + 4, text, "text-anchor=\"middle\" font-size=\"11\"");
  };
  for (const int event : lives.barriers)
    canvas.line(x_of(event) + unit / 2, top - 4, x_of(event) + unit / 2, bottom - 8,
                "stroke=\"#999\" stroke-dasharray=\"3 3\"");

  struct Use {
    int begin, end;
    std::size_t place;
  };
  std::map<int, std::vector<Use>> of_reader;
  for (std::size_t i = 0; i < lives.places.size(); ++i)
    for (const Stay& stay : lives.stays[i])
      for (const Stay::Reading& reading : stay.readings)
        of_reader[reading.reader].push_back({reading.begin, reading.end, i});
  for (auto& [warp, all] : of_reader) {
    std::sort(all.begin(), all.end(), [](const Use& a, const Use& b) { return a.begin < b.begin; });
    const double y = top + 28 * static_cast<double>(readers[warp]);
    canvas.text(16, y + 16, options.reader + " " + std::to_string(warp / options.warps_of_reader));
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::string& use = lives.places[all[k].place].use;
      bar(y, 24, all[k].begin, all[k].end, hues[uses[use] % 2], use);
      if (!options.between.empty() && k + 1 < all.size() && uses[use] == 0)
        bar(y, 24, all[k].end, all[k + 1].begin, "#f7e9a8", options.between);
    }
  }
  for (std::size_t i = 0; i < lives.places.size(); ++i) {
    const double y = first_place + 46 * static_cast<double>(i);
    canvas.text(16, y + 15, lives.places[i].name);
    canvas.text(16, y + 33, "its phase", "font-size=\"11\" fill=\"#666\"");
    canvas.rect(left, y, width, 22, "fill=\"#f4f4f4\"");
    int begin = 0, phase = 0;
    for (const Stay& stay : lives.stays[i]) {
      const int end = stay.complete > 0 ? stay.complete : lives.events;  // or nobody waited for it
      bar(y, 22, stay.begun, end, "#f2d0a4", std::to_string(stay.tile));
      for (const Stay::Reading& reading : stay.readings)
        bar(y, 22, reading.begin, reading.end, hues[uses[lives.places[i].use] % 2], "");
      bar(y + 22, 15, begin, end, parities[phase % 2], std::to_string(phase));
      begin = end, ++phase;
    }
    if (begin < lives.events) bar(y + 22, 15, begin, lives.events, parities[phase % 2], std::to_string(phase));
  }
  const auto legend = [&](double x, double y, const std::string& colour, const std::string& text) {
    canvas.rect(x, y - 11, 14, 14, "fill=\"" + colour + "\"");
    canvas.text(x + 20, y, text);
  };
  legend(left, bottom + 14, "#f2d0a4", "a copy of this tile is under way");
  legend(left, bottom + 36, parities[0], "a phase of parity 0");
  legend(left + 170, bottom + 36, parities[1], "of parity 1");
  if (options.between.empty()) legend(left + 280, bottom + 36, hues[0], lives.places[0].use);
  if (!options.between.empty()) legend(left + 280, bottom + 36, "#f7e9a8", options.between);
  canvas.line(left + 287, bottom + 2, left + 287, bottom + 18, "stroke=\"#999\" stroke-dasharray=\"3 3\"");
  canvas.text(left + 300, bottom + 14, "__syncthreads()");
  return canvas.str();
}

}  // namespace flash::svg
