// findings.cpp: words and merges findings. Symbols are looked up after the launch, on the host's stack, once for each
// finding that is kept.
// Use: see findings.hpp.
#include "sim/report/findings.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sim/core/code_names.hpp"

namespace flash::simt {
namespace {

std::string coordinates(unsigned linear, const std::array<unsigned, 3>& grid) {
  return "(" + std::to_string(linear % grid[0]) + "," + std::to_string(linear / grid[0] % grid[1]) + "," +
         std::to_string(linear / (grid[0] * grid[1])) + ")";
}

// What the reader sees; `sites` are the sides'.
std::string text_of(const RawFinding& finding, const std::vector<std::string>& sites,
                    const std::array<unsigned, 3>& grid) {
  std::size_t wide = 0, wide_site = 0;
  for (std::size_t i = 0; i < sites.size(); ++i)
    wide = std::max(wide, finding.sides[i].what.size()), wide_site = std::max(wide_site, sites[i].size());
  std::string text = finding.kind + ": " + finding.what + "\n";
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const FindingSide& side = finding.sides[i];
    text += "  " + side.what + std::string(wide - side.what.size() + 2, ' ');
    if (wide_site > 0) text += sites[i] + std::string(wide_site - sites[i].size() + 2, ' ');
    const std::array<unsigned, 3> other{side.grid.x, side.grid.y, side.grid.z};
    text += "block " + coordinates(side.block, side.grid.x ? other : grid) + " warp " +
            std::to_string(side.thread / 32) + " lane " + std::to_string(side.thread % 32) + "\n";
  }
  text += "  remedy: ";
  text += finding.same_value ? "all store the same value: harmless on today's GPUs, but undefined; let one thread "
                               "store it, or use an atomic"
                             : finding.remedy;
  if (finding.count > 1) text += "\n  seen " + std::to_string(finding.count) + " times";
  return text;
}

// What the races and lockstep findings of one mistake have in common: the array, and of a race its two places. Who
// relies on lockstep does so all along a row of statements.
std::string cause_of(const RawFinding& finding, std::vector<std::string> sites) {
  const bool lockstep = finding.kind == "lockstep assumed";
  const std::size_t of = finding.what.find(" of ");
  if ((finding.kind != "race" && !lockstep) || of == std::string::npos) return "";
  std::string cause = finding.kind + finding.what.substr(of, finding.what.find_last_of("[+") - of);
  if (lockstep) return cause;
  std::sort(sites.begin(), sites.end());
  for (const std::string& site : sites) cause += "|" + site;
  for (const FindingSide& side : finding.sides)
    if (side.grid.x) cause += "|between launches";
  return cause;
}

}  // namespace

std::vector<Finding> worded(std::vector<RawFinding> raw, const std::array<unsigned, 3>& grid) {
  std::stable_sort(raw.begin(), raw.end(), [](const RawFinding& a, const RawFinding& b) { return a.block < b.block; });
  struct Merged {
    RawFinding finding;
    std::vector<std::string> sites;
  };
  std::vector<Merged> all;
  std::map<std::string, std::size_t> known;
  for (RawFinding& finding : raw) {
    std::vector<std::string> sites;
    std::string key = finding.kind;
    for (const FindingSide& side : finding.sides) {
      sites.push_back(!side.has_site ? "" : side.pc ? site_of(side.pc) : site_of(side.site));
      key += "|" + side.what + " " + sites.back();
    }
    if (finding.sides.size() == 1) key += "|" + finding.what.substr(0, finding.what.find(' '));
    const auto [position, fresh] = known.try_emplace(key, all.size());
    if (fresh) {
      all.push_back({std::move(finding), std::move(sites)});
      continue;
    }
    RawFinding& first = all[position->second].finding;
    finding.count += first.count;
    finding.same_value &= first.same_value;
    if (finding.distance > first.distance) std::swap(first, finding);
    first.count = std::max(first.count, finding.count), first.same_value &= finding.same_value;
  }
  std::vector<Finding> findings;
  for (const Merged& m : all)
    findings.push_back({m.finding.kind, text_of(m.finding, m.sites, grid), m.finding.count,
                        cause_of(m.finding, m.sites), m.finding.what.substr(0, m.finding.what.find(" of ")), m.sites,
                        m.finding.distance});
  return findings;
}

}  // namespace flash::simt
