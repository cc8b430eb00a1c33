// mask.hpp: which keys a query row sees: an interval around a diagonal. No mask, both causal masks, windows, a shard of
// a longer sequence and decoding are all of this form. Host, kernels and formulas ask here and nowhere else.
// Use: Mask::bottom_right().visible(i, Sq, Sk).end;  const Band<int> band = mask.band<int>(Sq, Sk);  band.visible(i)
#pragma once
#include <compare>
#include <cstdint>

namespace flash {

// Keys begin … end - 1; no key: {0, 0}.
template <class Int>
struct KeyRange {
  Int begin, end;
  constexpr bool operator==(const KeyRange&) const = default;
  constexpr Int size() const { return end - begin; }
  constexpr bool contains(Int j) const { return begin <= j && j < end; }
};

// #region band
// A mask of a sequence whose lengths are known; Int is what its rows are counted in. Row i sees the keys from i - left
// to i + right that exist: of S, a band along the diagonal. Both distances are small enough to be added to a row.
template <class Int>
struct Band {
  Int left, right;  // either may be negative
  Int Sq, Sk;

  // One past the last key that row i may see: without a bound on the left, how many keys it sees.
  constexpr Int end(Int i) const {
    const Int past = i + 1 + right;
    return past <= 0 ? 0 : past < Sk ? past : Sk;
  }
  // The first key that row i may see, if there is one.
  constexpr Int begin(Int i) const {
    const Int first = i - left;
    return first > 0 ? first : 0;
  }
  constexpr KeyRange<Int> visible(Int i) const { return seen(i, i); }
  // The keys that some of the rows first … last see. Where a row sees a key they have no gaps.
  constexpr KeyRange<Int> seen(Int first, Int last) const {
    return end(last) > begin(first) ? KeyRange<Int>{begin(first), end(last)} : KeyRange<Int>{0, 0};
  }
  // Is there a key on the right that some row does not see? And one on the left?
  constexpr bool cuts_right() const { return right < Sk - 1; }
  constexpr bool cuts_left() const { return left < Sq - 1; }
};
// #endregion

// On which diagonal row i lies: the name stays a name until a sequence's own lengths are known.
enum class Alignment {
  TopLeft,      // key i:           PyTorch SDPA's is_causal, Triton's tutorial
  BottomRight,  // key i + Sk - Sq: flash-attn since 2.1
};

// Row i sees the keys d(i) - left … d(i) + right, d(i) = its key on the diagonal + shift.
struct Mask {
  static constexpr std::int64_t all = std::int64_t{1} << 60;  // no bound on this side

  std::int64_t left = all, right = all;
  Alignment alignment = Alignment::TopLeft;
  std::int64_t shift = 0;

  constexpr auto operator<=>(const Mask&) const = default;

  static constexpr Mask none() { return {}; }
  static constexpr Mask top_left() { return {.right = 0}; }  // j <= i
  static constexpr Mask bottom_right() {
    return {.right = 0, .alignment = Alignment::BottomRight};
  }  // j <= i + Sk - Sq
  // Rows that are `by` further down in their sequence than their numbers say: a shard's.
  constexpr Mask shifted(std::int64_t by) const { return {left, right, alignment, shift + by}; }

  constexpr bool is_causal() const { return right < all; }
  constexpr bool is_window() const { return left < all; }

  // Distances beyond the sequence are cut to its length, so that sums with a row stay in Int. A window that begins
  // behind its end has no key: it is far away on both sides, so that no two rows seem to have keys between theirs.
  template <class Int = std::int64_t>
  constexpr Band<Int> band(std::int64_t Sq, std::int64_t Sk) const {
    const std::int64_t diagonal = shift + (alignment == Alignment::BottomRight ? Sk - Sq : 0);
    const auto cut = [](std::int64_t distance, std::int64_t least, std::int64_t most) {
      return static_cast<Int>(distance < least ? least : distance > most ? most : distance);
    };
    Int before = cut(left == all ? all : left - diagonal, -Sk, Sq),
        behind = cut(right == all ? all : right + diagonal, -Sq, Sk - 1);
    if (before + behind < 0) before = cut(-Sk, -Sk, Sq), behind = cut(-Sq, -Sq, Sk - 1);
    return {before, behind, static_cast<Int>(Sq), static_cast<Int>(Sk)};
  }
  constexpr KeyRange<std::int64_t> visible(std::int64_t i, std::int64_t Sq, std::int64_t Sk) const {
    return band(Sq, Sk).visible(i);
  }
};

// "none", "top-left", "bottom-right" as on the command line; what has no name is spelled out.
inline const char* name(const Mask& mask) {
  return mask == Mask::none()           ? "none"
         : mask == Mask::top_left()     ? "top-left"
         : mask == Mask::bottom_right() ? "bottom-right"
                                        : "another mask";
}

}  // namespace flash
