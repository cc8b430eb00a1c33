// memory_recorder.hpp: the recording of a CPU phase: a step for each load and store of the two-level memory, and one
// for the numbers that the phase shows in between.
// Use: MemoryRecorder recorder(recording); memory_observer = &recorder;
#pragma once
#include <algorithm>
#include <cstdint>

#include "sim/memory/memory.hpp"
#include "sim/report/recording.hpp"

namespace flash {

class MemoryRecorder : public MemoryObserver {
 public:
  explicit MemoryRecorder(Recording& out) : out_(out) {
    out_.launches.push_back({.kernel = "one thread", .chip_bytes = 0});
  }

  void begins() override { ++task_; }

  void tile(const char* name, std::int64_t rows, std::int64_t cols, std::int64_t at) override {
    Recording::Launch& chip = out_.launches[0];
    const auto place = Recording::Place{name, count(at), count(rows * cols * 4), 4, count(cols)};
    const auto known =
        std::find_if(chip.chip.begin(), chip.chip.end(), [&](const auto& p) { return p.at == place.at; });
    if (known == chip.chip.end()) chip.chip.push_back(place);
    chip.chip_bytes = std::max(chip.chip_bytes, place.at + place.bytes);
  }

  void moved(bool read, const ArrayTraffic& traffic, std::int64_t element_bytes, std::int64_t cols,
             std::int64_t all_rows, std::int64_t first, std::int64_t rows, std::int64_t tile) override {
    const std::uint64_t row = count(cols * element_bytes), bytes = row * count(rows);
    const std::size_t array = out_.array(traffic.name, row * count(all_rows), count(element_bytes), count(cols));
    const Recording::Spans there{{row * count(first), row * count(first + rows)}};
    Recording::Step& step = next();
    const Recording::Kind hbm = read ? Recording::Kind::read : Recording::Kind::write;
    if (step.blocks) {
      const auto same = [&](const Recording::Part& p) { return p.kind == hbm && p.place == array; };
      const auto known = std::find_if(step.parts.begin(), step.parts.end(), same);
      if (known == step.parts.end())
        step.parts.push_back({hbm, array, bytes});
      else
        known->bytes += bytes;
      return;
    }
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
  }

  void value(const char* name, std::int64_t row, float value) override {
    if (out_.steps.empty() || out_.steps.back().values.empty()) next();
    if (!out_.steps.back().blocks) out_.steps.back().values.push_back({name, static_cast<long>(row), value});
  }

 private:
  static constexpr std::size_t kMostSteps = 4000;  // all that comes after them is one step
  static std::uint64_t count(std::int64_t n) { return static_cast<std::uint64_t>(n); }
  Recording::Step& next() {
    if (out_.steps.size() < kMostSteps)
      out_.steps.push_back({.block = task_, .warp = 0});
    else if (out_.steps.size() == kMostSteps)
      out_.steps.push_back({.block = task_, .blocks = 1});
    return out_.steps.back();
  }
  Recording& out_;
  std::uint64_t task_ = ~std::uint64_t{0};
};

}  // namespace flash
