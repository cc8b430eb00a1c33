// keys.hpp: what a site's key says: a program counter or a source location, and the kind of access in its upper bits.
// Use: sim/checks/shadow.cpp and async.cpp; Checker::site() makes an index of a key.
#pragma once
#include <cstddef>
#include <cstdint>

namespace flash::simt {

// Sites are program counters or, with this bit, source locations.
constexpr std::uintptr_t kSourceLocation = std::uintptr_t{1} << 63;
// One instruction may move pieces of different sizes: the size belongs to the key, above the bits of an address.
constexpr int kPieceShift = 48;
// No sizes of a piece: what cp.async writes; what other asynchronous operations write and read; uses of an mbarrier.
constexpr std::uintptr_t kOfCopy = std::uintptr_t{3} << kPieceShift, kOfAsyncWrite = std::uintptr_t{5} << kPieceShift,
                         kOfAsyncRead = std::uintptr_t{6} << kPieceShift,
                         kOfMbarrier = std::uintptr_t{7} << kPieceShift;
constexpr std::uintptr_t kPieceBits = std::uintptr_t{0xff} << kPieceShift;
constexpr std::uintptr_t kAddressBits = (std::uintptr_t{1} << kPieceShift) - 1;

// Calls f<bytes>() for one of these sizes, known only now.
template <unsigned... kSizes, class F>
void for_size(std::size_t bytes, const F& f) {
  ((bytes == kSizes && (f.template operator()<kSizes>(), true)) || ...);
}

}  // namespace flash::simt
