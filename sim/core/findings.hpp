// findings.hpp: a defect of a kernel as the core and the checks find it, and the collector that keeps the first of each
// kind. Cheap: no symbol is looked up while blocks run. What a person reads is made of it later (sim/report).
// Use: worker.findings.add({"trap", what, remedy, {worker.side("calls", pc)}, worker.block});
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/simt.hpp"

namespace flash::simt {

// One line of a report. The site is a program counter (an access) or a source location (a barrier, a warp operation).
struct FindingSide {
  std::string what;
  const void* pc = nullptr;
  Site site{};
  bool has_site = true;
  unsigned block = 0, thread = 0;  // linear indices
  dim3 grid{0, 0, 0};              // of another launch; 0: of this one
};

struct RawFinding {
  std::string kind, what, remedy;
  std::vector<FindingSide> sides;
  unsigned block = 0;  // of the first side; findings are sorted by it
  std::uint64_t count = 1;
  unsigned distance = 0;    // of a race: 1 within a warp, 2 within a block, 3 between blocks
  bool same_value = false;  // of a race: all were stores, and none changed the value
};

// The findings of one worker during one launch, in the order of discovery; repetitions only count.
class FindingLog {
 public:
  // The finding with this kind and these sites that was seen in this block before (it is counted then); null: none.
  RawFinding* repeated(const char* kind, std::uintptr_t side0, std::uintptr_t side1, unsigned block);
  bool any(unsigned block) const { return !findings_.empty() && findings_.back().block == block; }
  RawFinding& add(RawFinding finding) { return findings_.emplace_back(std::move(finding)); }
  std::deque<RawFinding> take();
  const std::deque<RawFinding>& all() const { return findings_; }

 private:
  using Key = std::tuple<const char*, std::uintptr_t, std::uintptr_t>;
  std::map<Key, std::size_t> seen_;
  unsigned block_ = 0;
  std::deque<RawFinding> findings_;  // stay where they are
};

// "1 byte", "2 bytes".
std::string counted(std::uint64_t count, const char* what = "byte");

}  // namespace flash::simt
