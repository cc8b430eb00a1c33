// keys.hpp: what a site's key says: where in the program (sim/core/spot.hpp), and the kind of access in its upper bits.
// Use: whoever tells a Checker of an access; Checker::site() makes an index of a key.
#pragma once
#include <cstddef>
#include <cstdint>

#include "sim/core/spot.hpp"

namespace flash::simt {

// One instruction may move pieces of different sizes: the size belongs to the key, above the bits of an address.
constexpr int kPieceShift = kAddressWidth;
// No sizes of a piece: what cp.async writes; what other asynchronous operations write and read; uses of an mbarrier.
constexpr std::uintptr_t kOfCopy = std::uintptr_t{3} << kPieceShift, kOfAsyncWrite = std::uintptr_t{5} << kPieceShift,
                         kOfAsyncRead = std::uintptr_t{6} << kPieceShift,
                         kOfMbarrier = std::uintptr_t{7} << kPieceShift;
constexpr std::uintptr_t kPieceBits = std::uintptr_t{0xff} << kPieceShift;

// Calls f<bytes>() for one of these sizes, known only now.
template <unsigned... kSizes, class F>
void for_size(std::size_t bytes, const F& f) {
  (void)((bytes == kSizes && (f.template operator()<kSizes>(), true)) || ...);
}

}  // namespace flash::simt
