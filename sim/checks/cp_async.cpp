// cp_async.cpp: the checks of cp.async.
// TMA and wgmma: async.cpp.
// Use: see checker.hpp; PTX ISA, "cp.async".
#include <cstdint>

#include "sim/checks/accesses.hpp"
#include "sim/checks/keys.hpp"

namespace flash::simt {

// An asynchronous copy: its thread writes the destination and reads the source when it begins, and does both again when
// it has waited, which is what others may not overtake. In between nobody may touch the one or write the other.
void Checker::copy_begins(const Copy& copy) {
  const auto key = spot(copy.site);
  const std::uintptr_t whole = key | std::uintptr_t{copy.bytes} << kPieceShift;
  auto* const from = const_cast<std::byte*>(copy.from);
  copying_ = true, read_unwritten_ = false;
  if (copy.source_bytes > 0 && copy.source_bytes < copy.bytes &&
      reinterpret_cast<std::uintptr_t>(from) % copy.bytes != 0)
    misaligned(from, "a source of cp.async", copy.bytes, key);
  if (copy.source_bytes < copy.bytes)
    range(from, copy.source_bytes, copy.bytes, Access::read, key);
  else
    for_size<4, 8, 16>(copy.bytes, [&]<unsigned kBytes>() { access<kBytes, Access::read>(from, whole); });
  const std::size_t offset = in_shared(copy.to, copy.bytes, Access::write, key | kOfCopy);
  forget_carried(copy.to, copy.bytes);
  write_by_copy(copy);
  copying_ = false;
  if (read_unwritten_)
    carries({"cp.async", "", true, copy.site, copy.thread, {}}, copy.to, copy.from, copy.source_bytes);
  for (std::size_t i = 0; i < copy.bytes; i += 4) cells_.state[(offset + i) / 4] |= Cells::kInFlight;
  any_state_ = true;
}

void Checker::copy_ends(const Copy& copy, Site) {
  const auto offset = static_cast<std::size_t>(copy.to - shared_);
  for (std::size_t i = 0; i < copy.bytes; i += 4)
    cells_.state[(offset + i) / 4] &= static_cast<std::uint8_t>(~Cells::kInFlight);
  copying_ = true;
  write_by_copy(copy);
  copying_ = false;
  const auto key = spot(copy.site);
  const Epoch mine = running_ | Epoch{site(key | std::uintptr_t{copy.bytes} << kPieceShift)} << kThreadBits;
  for (unsigned i = 0; i + 4 <= copy.source_bytes; i += 4)  // whole words: those of a tail were judged at the beginning
    if (global_.memory.contains(copy.from))
      touch_all<true, 4, Access::read>(global_.cells, global_.memory.offset(copy.from + i), mine, true, copy.from + i);
}

void Checker::write_by_copy(const Copy& copy) {
  const unsigned s = site(spot(copy.site) | kOfCopy);
  const Epoch mine = running_ | Epoch{s} << kThreadBits;
  const auto offset = static_cast<std::size_t>(copy.to - shared_);
  for_size<4, 8, 16>(copy.bytes, [&]<unsigned kBytes>() {
    touch_all<false, kBytes, Access::write>(cells_, offset, mine, false, copy.to);
  });
}

bool Checker::is_of_copy(Epoch epoch) const {
  const std::uintptr_t key = global_.site_key(site_index_of(epoch));
  return key & kSourceLocation && (key & kPieceBits) == kOfCopy;
}

}  // namespace flash::simt
