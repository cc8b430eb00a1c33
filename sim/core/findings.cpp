// findings.cpp: see findings.hpp.
// Use: see findings.hpp.
#include "sim/core/findings.hpp"

namespace flash::simt {

RawFinding* FindingLog::repeated(const char* kind, std::uintptr_t side0, std::uintptr_t side1, unsigned block) {
  if (block != block_) seen_.clear();
  block_ = block;
  const auto [position, fresh] = seen_.try_emplace({kind, side0, side1}, findings_.size());
  if (fresh) return nullptr;
  ++findings_[position->second].count;
  return &findings_[position->second];
}

std::deque<RawFinding> FindingLog::take() {
  seen_.clear();
  return std::exchange(findings_, {});
}

std::string counted(std::uint64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace flash::simt
