// moves.hpp: what a tiled CPU phase moved between HBM and the chip, step by step. A step is one tile of S.
// The memory model tells whoever observes it; a step ends with the first load after its rows' m and l were shown.
// Use:  Moves moves;  phase03::forward(e.problem({.threads = 1}));  moves.steps[6]  moves.tiles["K_j"]
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "sim/memory/memory.hpp"

namespace flash {

struct Moved {
  std::string array;
  bool read;
  std::uint64_t bytes;
};

// Observes what this thread's memory does, for as long as it lives.
class Moves : public MemoryObserver {
 public:
  Moves() { memory_observer = this; }
  Moves(const Moves&) = delete;
  ~Moves() override { memory_observer = nullptr; }

  std::vector<std::vector<Moved>> steps;
  std::map<std::string, std::uint64_t> tiles;  // name -> numbers that it has room for

  std::uint64_t bytes(std::size_t step) const {
    std::uint64_t sum = 0;
    for (const Moved& move : steps[step]) sum += move.bytes;
    return sum;
  }
  bool moves(std::size_t step, const std::string& array, bool read) const {
    return std::any_of(steps[step].begin(), steps[step].end(),
                       [&](const Moved& m) { return m.array == array && m.read == read; });
  }
  // Whether the array lies in HBM at all.
  bool knows(const std::string& array) const {
    for (std::size_t s = 0; s < steps.size(); ++s)
      if (moves(s, array, true) || moves(s, array, false)) return true;
    return false;
  }

 private:
  void begins() override { computed_ = true; }
  void tile(const char* name, std::int64_t rows, std::int64_t cols, std::int64_t, const float*) override {
    tiles[name] = static_cast<std::uint64_t>(rows * cols);
  }
  void moved(bool read, const ArrayTraffic& array, std::int64_t element_bytes, std::int64_t cols, std::int64_t,
             std::int64_t, std::int64_t rows, std::int64_t tile, const Site&) override {
    if (tile < 0) return;  // nothing that comes on chip: O is set to zero in HBM
    if (read && computed_) steps.emplace_back(), computed_ = false;
    steps.back().push_back({array.name, read, static_cast<std::uint64_t>(rows * cols * element_bytes)});
  }
  void value(const char*, std::int64_t, float, const Site&) override { computed_ = true; }
  void freed(const float*) override {}
  void reaches(const Site&, bool) override {}
  void product(bool, std::int64_t, const float*, const float*, const Site&) override {}

  bool computed_ = true;
};

}  // namespace flash
