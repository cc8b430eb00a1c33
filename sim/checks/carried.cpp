// carried.cpp: unwritten memory that a copy takes along. A box of TMA may have rows that a kernel never uses, such as
// those behind the last one of a KV cache. So a copy (cp.async, TMA) of memory that is partly unwritten is no defect;
// what it brings counts as unwritten where it lies then, and who uses that is accused, with the copy.
// Use: see checker.hpp; the rule for wgmma stands at product_adds().
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "sim/checks/checker.hpp"
#include "sim/checks/keys.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {
namespace {

// Which bytes of a word an access to so many bytes touches, a bit for each.
unsigned bytes_of(std::size_t word, std::size_t offset, std::size_t bytes) {
  const std::size_t first = std::max(word * 4, offset), end = std::min(word * 4 + 4, offset + bytes);
  return ((1u << (end - first)) - 1) << first % 4;
}

}  // namespace

// A copy reads unwritten memory. Nothing of the whole array, or of the tile, has been written: then it was forgotten.
bool Checker::may_carry(const std::byte* address) const {
  if (!global_.memory.contains(address)) return tile_written_;
  return global_.any_written(global_.memory.arrays[global_.memory.owner(address)]);
}

bool GlobalShadow::any_written(const DeviceArray& array) {
  const std::lock_guard lock(mutex);
  if (written_.contains(array.begin)) return true;
  const std::size_t first = memory.offset(array.begin) / 4, end = first + (array.bytes + 3) / 4;
  for (std::size_t word = first; word < end; ++word) {
    const unsigned state = cells.state[word];
    for (const unsigned byte : {0u, 1u, 2u, 3u}) {
      if (byte > 0 && (state & Cells::kLevel) == 0) break;
      const Cells::Plane& plane = cells.planes[byte];
      Epoch any = __atomic_load_n(&plane.write[word], __ATOMIC_RELAXED);
      if (state & Cells::kUnusual) any |= plane.atomics[word].one | plane.stores[word].one;
      if (any != 0) return written_.insert(array.begin), true;
    }
  }
  return false;
}

// What lies at this byte, if a copy has brought it from unwritten memory; the caller knows that its word has some.
Carried Checker::carried_at(const std::byte* at) const {
  const Outside outside;
  const bool global = global_.memory.contains(at);
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (global) lock.lock();
  const Checker& home = home_of(at);
  const std::size_t offset = global ? global_.memory.offset(at) : static_cast<std::size_t>(at - home.shared_);
  const auto& all = global ? global_.carried : home.carried_;
  const auto found = all.find(offset / 4);
  return found != all.end() && found->second.bytes >> offset % 4 & 1 ? found->second : Carried{};
}

void Checker::carries(const AsyncOperation& copy, const std::byte* to, const std::byte* from, std::size_t bytes) {
  const Outside outside;
  const bool into_global = global_.memory.contains(to), of_global = global_.memory.contains(from);
  Checker& home = home_of(to);
  if (into_global && global_.memory.arrays[global_.memory.owner(to)].initialised) return;
  if (of_global && global_.memory.arrays[global_.memory.owner(from)].initialised) return;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (written(from + i)) continue;
    const Carried before = carried_at(from + i);
    const std::byte* const origin = before.bytes ? before.from : of_global ? from + i : nullptr;
    std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
    if (into_global) lock.lock(), global_.any_carried = true;
    const std::size_t offset =
        into_global ? global_.memory.offset(to + i) : static_cast<std::size_t>(to + i - home.shared_);
    Carried& carried = (into_global ? global_.carried : home.carried_)[offset / 4];
    if (carried.bytes == 0) carried = {0, origin, copy.instruction, copy.site, worker_.block, copy.thread};
    carried.bytes |= static_cast<std::uint8_t>(1u << offset % 4);
    (into_global ? global_.cells : home.cells_).set(offset / 4, Cells::kCarried);
  }
  home.any_state_ = true;
}

// These bytes are written anew, by a copy.
void Checker::forget_carried(const std::byte* begin, std::size_t bytes) {
  const bool global = global_.memory.contains(begin);
  Checker& home = home_of(begin);
  if (global ? !global_.any_carried.load() : home.carried_.empty()) return;
  const auto offset = global ? global_.memory.offset(begin) : static_cast<std::size_t>(begin - home.shared_);
  const std::size_t end = (offset + bytes + 3) / 4, words = (global ? DeviceMemory::kSpan : kSharedSpan) / 4;
  for (std::size_t word = offset / 4; word < end && word < words; ++word)
    if ((global ? global_.cells : home.cells_).state[word] & Cells::kCarried)
      home.take_carried(global, word, bytes_of(word, offset, bytes), true);
}

// What a word of global or of this block's memory has among these of its bytes; where they are written, no more from
// here on.
Carried Checker::take_carried(bool global, std::size_t word, unsigned bytes, bool written) {
  const Outside outside;
  std::unique_lock<std::mutex> lock(global_.mutex, std::defer_lock);
  if (global) lock.lock();
  auto& all = global ? global_.carried : carried_;
  const auto found = all.find(word);
  if (found == all.end()) return {};
  Carried here = found->second;
  here.bytes &= static_cast<std::uint8_t>(bytes);
  if (!written || (found->second.bytes &= static_cast<std::uint8_t>(~bytes)) != 0) return here;
  all.erase(found);
  return here;
}

// An access to a word that has such bytes; true: it uses one of them, and that was said.
bool Checker::meets_carried(bool global, std::size_t word, Access access_, Epoch mine, const void* address,
                            std::size_t bytes) {
  if (global ? !global_.any_carried.load() : home_->carried_.empty()) return false;
  if (copying_ || is_of_companion(mine)) {  // what is written was forgotten when the copy began
    read_unwritten_ |= is_read(access_);
    return false;
  }
  const auto* at = static_cast<const std::byte*>(address);
  const std::size_t offset = global ? global_.memory.offset(at) : static_cast<std::size_t>(at - home_->shared_);
  const Carried here = home_->take_carried(global, word, bytes_of(word, offset, bytes), is_write(access_));
  if (here.bytes == 0 || !needs_value(access_)) return false;
  const Outside outside;
  if (worker_.findings.repeated("uninitialised", site_index_of(mine), 0, worker_.block)) return true;
  const char* const use = named(mine, access_);
  uses_carried(here, std::string(use) + " of " + element(address, bytes) + " (" + counted(bytes) + ")",
               "write it before it is copied, or do not read what was copied from there: fresh memory holds NaN",
               side(use, mine));
  return true;
}

void Checker::uses_carried(const Carried& carried, const std::string& what, const char* remedy, FindingSide user) {
  const DeviceMemory& memory = global_.memory;
  const bool named_source = carried.from && memory.owner(carried.from) < memory.arrays.size();
  worker_.findings.add(
      {"uninitialised",
       what + ", copied from " + (named_source ? element(carried.from, 2) : "shared memory") +
           ", which nobody had written",
       remedy,
       {std::move(user), {carried.instruction, nullptr, carried.site, true, carried.block, carried.thread}},
       worker_.block});
}

// A product whose tiles have such elements. An element of D is a sum over k. Where a whole row of A or column of B is
// unwritten, in all products that are added, the elements of D that it gives are nobody's numbers, and a kernel may
// throw them away: scores of keys that are not there. Where unwritten elements are added to written ones the sum is
// lost: a row of V that is not there, whose weight is 0, because 0 times NaN is NaN.
void Checker::product_adds(const Product& product) {
  Accumulators& sums = *product.accumulators;
  const bool first = sums.under_way == 1;
  if (first || !product.of.accumulate) sums.summed = false, sums.unwritten.clear();
  if (!read_unwritten_ && sums.unwritten.empty()) {
    sums.summed = true;
    return;
  }
  const Outside outside;
  constexpr unsigned kRows = 64, kDepth = 16;
  const unsigned columns = product.of.columns;
  // How many of the 16 elements of each row of A and column of B are unwritten, and where the first of them is.
  struct Line {
    unsigned unwritten = 0;
    const std::byte* at = nullptr;
  };
  std::array<Line, kRows> rows;
  std::vector<Line> lines(columns);
  const auto look = [this](Line& line, const std::byte* at) {
    if (!(cells_.state[static_cast<std::size_t>(at - shared_) / 4] & Cells::kCarried)) return;
    if (!carried_at(at).bytes && !carried_at(at + 1).bytes) return;
    if (line.unwritten++ == 0) line.at = at;
  };
  for (std::size_t i = 0; i < product.a_chunks.size(); ++i)
    for (unsigned j = 0; j < 8; ++j) look(rows[i / 2], product.a_chunks[i] + 2 * j);
  for (std::size_t i = 0; i < product.b_chunks.size(); ++i)
    for (unsigned j = 0; j < 8; ++j)
      look(lines[product.of.b_mn_major ? i % (columns / 8) * 8 + j : i / 2], product.b_chunks[i] + 2 * j);

  // What each element of D is: no number yet, numbers, sums of unwritten memory; and what this product makes of it.
  // What the registers held before is a number, too, but may be a bias of scores: it counts where no column is left.
  const float* const values = sums.matrix();
  const bool nothing_left = std::ranges::all_of(lines, [](const Line& line) { return line.unwritten == kDepth; });
  std::vector<bool> after(columns * kRows);
  const Line* lost = nullptr;
  bool mixed = false;
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned m = 0; m < kRows; ++m) {
      const std::size_t element = n * kRows + m;
      const Line &row = rows[m], &column = lines[n];
      const bool was_unwritten = !sums.unwritten.empty() && sums.unwritten[element];
      const float value = values[element];
      const bool was_number =
          !was_unwritten &&
          (sums.summed || (product.of.accumulate && nothing_left && value != 0 && !std::isnan(value)));
      const bool none = row.unwritten == kDepth || column.unwritten == kDepth,
                 all = row.unwritten + column.unwritten == 0;
      after[element] = was_unwritten || !all;
      if (mixed || (none ? !was_number : all && !was_unwritten)) continue;
      mixed = true;
      lost = row.at ? &row : column.at ? &column : nullptr;
    }
  sums.summed = true, sums.unwritten = std::move(after);
  if (!mixed || worker_.findings.repeated("uninitialised", std::uintptr_t{product.site.line()} << 1 | 1,
                                          product.site.column(), worker_.block))
    return;
  const char kRemedy[] =
      "let the copy bring zeros (a tensor map that ends before them) or fill them: 0 times NaN is NaN";
  FindingSide user{"wgmma", nullptr, product.site, true, worker_.block, worker_.current};
  if (lost)
    return uses_carried(carried_at(carried_at(lost->at).bytes ? lost->at : lost->at + 1),
                        "wgmma sums over " + element(lost->at, 2) + " (2 bytes)", kRemedy, std::move(user));
  worker_.findings.add({"uninitialised",
                        "wgmma adds to a sum over memory that nobody had written",
                        kRemedy,
                        {std::move(user)},
                        worker_.block});
}

}  // namespace flash::simt
