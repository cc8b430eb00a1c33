// memory_recorder.hpp: the recording of a CPU phase: a step for each load and store of the two-level memory, one for
// each product of tiles, and one for what a phase calculates in between. What it calculates is seen in the tiles: those
// numbers that are others than at the last call. Lines between two calls are those that ran, where they stand in order.
// Use: MemoryRecorder recorder(recording); memory_observer = &recorder;
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "sim/memory/memory.hpp"
#include "sim/report/lines.hpp"
#include "sim/report/recording.hpp"

namespace flash {

class MemoryRecorder : public MemoryObserver {
 public:
  explicit MemoryRecorder(Recording& out) : out_(out) {
    out_.launches.push_back({.kernel = "one thread", .chip_bytes = 0});
  }

  void begins() override { ++task_, calculates_ = false, last_.reset(); }

  void tile(const char* name, std::int64_t rows, std::int64_t cols, std::int64_t at, const float* data) override {
    Recording::Launch& chip = out_.launches[0];
    const auto place = Recording::Place{name, count(at), count(rows * cols * 4), 4, count(cols)};
    auto known = std::find_if(chip.chip.begin(), chip.chip.end(), [&](const auto& p) { return p.at == place.at; });
    if (known == chip.chip.end()) known = chip.chip.insert(known, place);
    chip.chip_bytes = std::max(chip.chip_bytes, place.at + place.bytes);
    live_.push_back({data, static_cast<std::size_t>(known - chip.chip.begin()), rows, cols, {}});
    live_.back().seen.assign(data, data + rows * cols);
  }

  void freed(const float* data) override {
    std::erase_if(live_, [&](const Live& tile) { return tile.data == data; });
  }

  void reaches(const Site& site, bool counts) override {
    const bool changed = see(site);
    if (counts && (changed || calculates_)) stands_at(site);
    last_ = site;
  }

  void moved(bool read, const ArrayTraffic& traffic, std::int64_t element_bytes, std::int64_t cols,
             std::int64_t all_rows, std::int64_t first, std::int64_t rows, std::int64_t tile,
             const Site& site) override {
    const std::uint64_t row = count(cols * element_bytes), bytes = row * count(rows);
    const std::size_t array = out_.array(traffic.name, row * count(all_rows), count(element_bytes), count(cols));
    const Recording::Spans there{{row * count(first), row * count(first + rows)}};
    Recording::Step& step = next();
    calculates_ = false, last_ = site;
    const Recording::Kind hbm = read ? Recording::Kind::read : Recording::Kind::write;
    if (step.blocks) {
      part(step, hbm, array).bytes += bytes;
      return;
    }
    stands_at(site);
    step.parts.push_back({hbm, array, bytes, there});
    if (tile < 0) return;
    const auto& chip = out_.launches[0].chip;
    const auto place = std::find_if(chip.begin(), chip.end(), [&](const auto& p) { return p.at == count(tile); });
    const std::uint64_t on_chip = count(rows * cols * 4);
    Recording::Part part{read ? Recording::Kind::chip_write : Recording::Kind::chip_read,
                         static_cast<std::size_t>(place - chip.begin()),
                         on_chip,
                         {{place->at, place->at + on_chip}}};
    if (read) part.source = static_cast<std::ptrdiff_t>(array), part.from = there;
    step.parts.push_back(part);
    for (Live& live : live_)
      if (live.place == part.place) live.seen.assign(live.data, live.data + live.rows * live.cols);
  }

  // A product of tiles is a step of its own; that of a row, one of many, belongs to what its loop calculates.
  void product(bool done, std::int64_t rows, const float* a, const float* b, const Site& site) override {
    if (!done) {
      see(site);
      if (rows > 1) calculates_ = false;
      last_ = site;
      return;
    }
    Recording::Step& step = calculation();
    see(site);
    stands_at(site);
    if (!step.blocks)
      for (const Live& tile : live_)
        for (const float* operand : {a, b}) {
          if (operand < tile.data || operand >= tile.data + tile.rows * tile.cols) continue;
          Recording::Part& read = part(step, Recording::Kind::chip_read, tile.place);
          const Recording::Place& place = out_.launches[0].chip[tile.place];
          const std::uint64_t filled = rows_of(tile) * row_bytes(tile);
          read.bytes += filled, read.spans = {{place.at, place.at + filled}};
        }
    if (rows > 1) calculates_ = false;
  }

  void value(const char* name, std::int64_t row, float value, const Site& site) override {
    Recording::Step& step = calculation();
    reaches(site, true);
    if (!step.blocks) step.values.push_back({name, static_cast<long>(row), value});
  }

 private:
  static constexpr std::size_t kMostSteps = 4000;  // all that comes after them is one step
  static constexpr unsigned kMostBetween = 40;     // lines
  struct Live {                                    // a tile
    const float* data;
    std::size_t place;
    std::int64_t rows, cols;
    std::vector<float> seen;  // its numbers at the last call
  };
  static std::uint64_t count(std::int64_t n) { return static_cast<std::uint64_t>(n); }
  static std::uint64_t row_bytes(const Live& tile) { return count(tile.cols) * sizeof(float); }
  static std::uint64_t rows_of(const Live& tile) { return count(tile.rows); }

  Recording::Step& next() {
    if (out_.steps.size() < kMostSteps)
      out_.steps.push_back({.block = task_, .warp = 0});
    else if (out_.steps.size() == kMostSteps)
      out_.steps.push_back({.block = task_, .blocks = 1});
    return out_.steps.back();
  }

  // The step of what is calculated between two others.
  Recording::Step& calculation() {
    if (!calculates_) next(), calculates_ = true;
    return out_.steps.back();
  }

  static Recording::Part& part(Recording::Step& step, Recording::Kind kind, std::size_t place) {
    for (Recording::Part& p : step.parts)
      if (p.kind == kind && p.place == place) return p;
    return step.parts.emplace_back(Recording::Part{.kind = kind, .place = place});
  }

  void stands_at(const Site& site) { stands_at(site.file_name(), site.line()); }
  void stands_at(const char* path, unsigned number) {
    if (out_.steps.back().blocks) return;
    std::vector<std::size_t>& at = out_.steps.back().at;
    const std::size_t line = out_.line(path, number);
    if (out_.is_code(line) && std::find(at.begin(), at.end(), line) == at.end()) at.push_back(line);
  }

  // What has been calculated since the last call, up to this one.
  bool see(const Site& now) {
    bool any = false;
    for (Live& tile : live_)
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        const float* is = tile.data + r * tile.cols;
        float* was = tile.seen.data() + r * tile.cols;
        if (std::memcmp(is, was, row_bytes(tile)) == 0) continue;
        std::memcpy(was, is, row_bytes(tile));
        any = true;
        Recording::Step& step = calculation();
        if (step.blocks) continue;
        Recording::Part& write = part(step, Recording::Kind::chip_write, tile.place);
        const std::uint64_t at = out_.launches[0].chip[tile.place].at + count(r) * row_bytes(tile);
        write.bytes += row_bytes(tile);
        add_span(write.spans, at, at + row_bytes(tile));
        tidy(write.spans);
      }
    if (any && last_ && std::strcmp(last_->file_name(), now.file_name()) == 0 && now.line() > last_->line() &&
        now.line() - last_->line() <= kMostBetween)
      for (unsigned line = last_->line() + 1; line < now.line(); ++line) stands_at(now.file_name(), line);
    return any;
  }

  Recording& out_;
  std::uint64_t task_ = ~std::uint64_t{0};
  std::vector<Live> live_;
  bool calculates_ = false;   // the last step is one of calculations
  std::optional<Site> last_;  // where the last call was
};

}  // namespace flash
