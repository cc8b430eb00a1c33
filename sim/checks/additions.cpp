// additions.cpp: what the checks make of atomic additions: whether their order is fixed, what is told where it is not.
// Use: see additions.hpp.
#include "sim/checks/additions.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "sim/checks/accesses.hpp"
#include "sim/checks/keys.hpp"
#include "sim/core/code_names.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {
namespace {

// A mark without its two bits (Additions), with what they said of a companion's.
Epoch as_issued(Epoch epoch) {
  return is_of_companion(epoch) ? epoch | kInOrderEpoch : epoch;
}

// +0 or -0.
bool holds_zero(const std::byte* at, unsigned bytes) {
  if (bytes == 2) return static_cast<std::uint16_t>(*reinterpret_cast<const std::uint16_t*>(at) << 1) == 0;
  if (bytes == 4) return *reinterpret_cast<const std::uint32_t*>(at) << 1 == 0;
  return *reinterpret_cast<const std::uint64_t*>(at) << 1 == 0;
}

}  // namespace

void Additions::forget(std::size_t first, std::size_t words) {
  for (Plane& plane : planes_) plane.last.forget(first, words), plane.other.forget(first, words);
}

void Checker::adds(const void* address, std::size_t bytes, unsigned element, Site site_) {
  const auto key = spot(site_) | std::uintptr_t{bytes} << kPieceShift;
  const Epoch mine = running_ | Epoch{site(key)} << kThreadBits;
  const auto* const begin = static_cast<const std::byte*>(address);
  if (element == sizeof(float) && bytes > element && !global_.memory.contains(address))
    worker_.misuse("out of bounds", "addition of a vector of floats to " + this->element(address, bytes),
                   "vectors are added in global memory only: add the floats one by one", {side("adds", mine)});
  for (std::size_t at = 0; at < bytes; at += element) adds_one(begin + at, element, mine);
  // Each element is an atomic of its own: what a fence released goes with every one of them.
  for (std::size_t at = element; at < bytes; at += element) publish(begin + at, true);
  added_ = {bytes, element};
}

void Checker::adds_one(const std::byte* at, unsigned bytes, Epoch mine) {
  const auto judge = [&]<int kSpace>(Additions& additions, std::size_t offset, Epoch begin) {
    const auto is_ordered = [this](Epoch earlier) { return ordered<kSpace>(as_issued(earlier)); };
    const Epoch earlier = additions.add(offset, mine, begin, is_ordered, [=] { return holds_zero(at, bytes); });
    if (earlier) no_order(earlier, mine, at, bytes);
  };
  if (global_.memory.contains(at))
    return judge.operator()<kGlobalMemory>(global_.additions, global_.memory.offset(at), global_.own_begin);
  Checker& home = home_of(at);
  const auto offset = static_cast<std::size_t>(at - home.shared_);
  if (offset >= shared_bytes_) return;
  if (worker_.cluster)
    judge.operator()<kCluster>(home.additions_, offset, block_begin_);
  else
    judge.operator()<kOwn>(additions_, offset, block_begin_);
}

// An asynchronous operation's additions, in order before those of who has waited for its bulk group.
void Checker::adds(const AsyncOperation& operation, Epoch mine) {
  for (const AsyncPiece& piece : operation.pieces)
    for (std::size_t at = 0; at < piece.bytes; at += operation.adds) {
      std::unique_lock<std::mutex> lock;
      if (global_.parallel) lock = global_.lock_value(piece.begin + at);
      adds_one(piece.begin + at, operation.adds, mine);
    }
}

// An addition to which this one has no order: told in the report, and a finding where the order is to be fixed.
void Checker::no_order(Epoch earlier, Epoch mine, const std::byte* at, unsigned bytes) {
  const Outside outside;
  const bool global = global_.memory.contains(at);
  const std::size_t array = global ? global_.memory.owner(at) : kInShared;
  ++unordered_[{array, site_index_of(earlier), site_index_of(mine)}];
  if (!worker_.launch->deterministic) return;
  const std::uintptr_t sites = std::uintptr_t{site_index_of(mine)} << 16 | site_index_of(earlier);
  const unsigned far = distance(mine, earlier, global || worker_.cluster);
  RawFinding* const known = worker_.findings.repeated("nondeterministic", sites, 0, worker_.block);
  if (known && known->distance >= far) return;
  FindingSide earlier_side = side("adds", earlier);
  if (global || worker_.cluster) earlier_side.block = global_.block_of(clock_of(earlier));
  RawFinding found{
      "nondeterministic",
      "additions to " + element(at, bytes) + " (" + counted(bytes) + ") in no fixed order",
      is_of_companion(earlier)
          ? "fix the order: signal the next block behind the full wait (cp_async_bulk_wait), or add up in a second pass"
          : "fix the order: let threads take turns at a semaphore, or store the parts and add them up in a second pass",
      {side("adds", mine), std::move(earlier_side)},
      worker_.block};
  found.distance = far;
  if (known)
    found.count = known->count, *known = std::move(found);
  else
    worker_.findings.add(std::move(found));
}

// Of each array one pair of lines, which no schedule chooses, and how many elements there are.
std::vector<UnorderedAdditions> GlobalShadow::unordered(const std::vector<Checker*>& checkers) {
  const auto line_of = [this](unsigned index) {
    const std::uintptr_t key = site_key(index);
    return key & kSourceLocation ? site_of(site_at(key)) : "?";
  };
  std::map<std::size_t, UnorderedAdditions> of_array;
  for (const Checker* checker : checkers)
    for (const auto& [where, elements] : checker->unordered_) {
      const auto& [array, earlier, later] = where;
      const std::pair<std::string, std::string> lines = std::minmax({line_of(earlier), line_of(later)});
      UnorderedAdditions& all = of_array[array];
      if (all.elements == 0 || lines < std::pair(all.first, all.second))
        all.first = lines.first, all.second = lines.second;
      all.elements += elements;
      all.array = array == Checker::kInShared ? "shared memory" : memory.arrays[array].name;
    }
  std::vector<UnorderedAdditions> all;
  for (const auto& [array, unordered] : of_array) all.push_back(unordered);
  return all;
}

}  // namespace flash::simt
