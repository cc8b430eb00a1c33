// settled.hpp: words at which a plain read has nothing to find and leaves nothing behind: they were written before the
// last barrier, and the marks of two readers are there that another one would not displace (Checker::enough,
// Checker::read_by_others).
// That holds in shared memory for one warp until the next synchronisation, in global memory for one block; a write ends
// it. A small cache by lines of 64 bytes, since most reads are of what was read before.
// Use: Checker adds what it has looked at, and looks no more.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace flash::simt {

class Settled {
 public:
  // Of shared memory, or of all: nothing holds any more.
  void forget_shared() { renew(shared_); }
  void forget_all() { renew(shared_), renew(global_); }
  void select(unsigned warp) { warp_ = std::uint64_t{warp} << kLineBits; }  // whose thread runs

  // The words of an access, as bits of its line. It begins at a multiple of its size, 4, 8 or 16 bytes.
  static constexpr std::uintptr_t kLine = 64;
  static std::uint32_t words(std::uintptr_t address, unsigned bytes) {
    return ((1u << (bytes + 3) / 4) - 1) << (address / 4 % 16);
  }
  // Words of the line that has this address. `space`: as the counters name it.
  void add(std::uintptr_t address, std::uint32_t settled, bool shared, unsigned space) {
    Line& line = line_of(address);
    if (line.key != key(address, shared)) line = {key(address, shared), 0, space};
    line.words |= settled;
  }
  // A write. Was it to settled words, of whatever warp?
  bool remove(std::uintptr_t address, unsigned bytes, bool shared) {
    constexpr std::uint64_t kWarp = ((std::uint64_t{1} << kWarpBits) - 1) << kLineBits;
    Line& line = line_of(address);
    const bool there = ((line.key ^ key(address, shared)) & ~kWarp) == 0;
    const std::uint32_t gone = there ? line.words & words(address, bytes) : 0;
    line.words ^= gone;
    return gone != 0;
  }
  bool has(std::uintptr_t address, unsigned bytes, bool shared) const {
    const Line& line = line_of(address);
    return line.key == key(address, shared) && (~line.words & words(address, bytes)) == 0;
  }
  unsigned space(std::uintptr_t address) const { return line_of(address).space; }
  // How many of these accesses, a step from one to the next, are settled, up to the first that is not?
  std::uint32_t count(std::uintptr_t address, std::int64_t step, std::uint32_t accesses, unsigned bytes,
                      bool shared) const;

 private:
  // The key of a line is its number and, above it, when it was added: which warp's or block's it is.
  static constexpr int kLineBits = 41, kWarpBits = 5, kSizeBits = 12;
  struct Line {
    std::uint64_t key;
    std::uint32_t words;  // a bit for each
    std::uint32_t space;
  };
  std::uint64_t key(std::uintptr_t address, bool shared) const {
    return address / kLine + (shared ? shared_ + warp_ : global_);
  }
  Line& line_of(std::uintptr_t address) { return lines_[address / kLine * 0x9e3779b97f4a7c15u >> (64 - kSizeBits)]; }
  const Line& line_of(std::uintptr_t address) const {
    return lines_[address / kLine * 0x9e3779b97f4a7c15u >> (64 - kSizeBits)];
  }
  void renew(std::uint64_t& since) {
    since += std::uint64_t{1} << (kLineBits + kWarpBits);
    if (since == 0) lines_.fill({});  // it begins anew
  }

  std::uint64_t shared_ = 0, global_ = 0, warp_ = 0;
  std::array<Line, 1u << kSizeBits> lines_{};
};

inline std::uint32_t Settled::count(std::uintptr_t address, std::int64_t step, std::uint32_t accesses, unsigned bytes,
                                    bool shared) const {
  std::uint32_t settled = 0;
  while (settled < accesses && has(address, bytes, shared)) {
    if (step != std::int64_t{bytes}) {
      ++settled, address += static_cast<std::uintptr_t>(step);
      continue;
    }
    const auto more = static_cast<unsigned>(std::countr_one(line_of(address).words >> address / 4 % 16)) * 4 / bytes;
    settled += more, address += std::uintptr_t{more} * bytes;
  }
  return std::min(settled, accesses);
}

}  // namespace flash::simt
