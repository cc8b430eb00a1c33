// Phase 30: which rows and keys of a long sequence each rank holds, and what it sees of another rank's keys. Whatever
// two ranks hold, what the one's rows see of the other's keys is one mask again: a step is one ordinary call.
// Use: const Split split(p, 4);  split.rows(1)[0];  const Section part = split.section(1, 0 /*whose keys*/);
#pragma once
#include "phases/interface/problem.hpp"
#include "sim/error.hpp"

namespace flash::phase30 {

// #region share
// Tokens of one rank, in rising order: `count` from `first` on, each `step`-th, then `more` from `second` on.
struct Share {
  std::int64_t first = 0, count = 0, second = 0, more = 0, step = 1;

  std::int64_t size() const { return count + more; }
  std::int64_t operator[](std::int64_t i) const { return i < count ? first + i * step : second + (i - count) * step; }
};

// Rows q0 … q0 + rows - 1 of a rank beside keys k0 … k0 + keys - 1 of a rank's: a call with this mask. Nothing to do
// where rows or keys are 0.
struct Section {
  std::int64_t q0 = 0, rows = 0, k0 = 0, keys = 0;
  Mask mask = {};

  bool empty() const { return rows == 0 || keys == 0; }
  // Pairs of a row and a key that it sees.
  std::int64_t pairs() const {
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < rows; ++i) n += mask.visible(i, rows, keys).size();
    return n;
  }
};
// #endregion

// #region split
class Split {
 public:
  Split(const AnyProblem& whole, int ranks)
      : Split(whole.options.ring.layout, ranks, whole.Sq(), whole.Sk(), whole.options.mask) {}
  // Refuses what zig-zag cannot be: a window cuts the piece from the front and the one from the back in different ways.
  Split(RingLayout layout, int ranks, std::int64_t Sq, std::int64_t Sk, const Mask& mask)
      : layout_(layout), n_(ranks), Sq_(Sq), Sk_(Sk), mask_(mask) {
    if (layout == RingLayout::ZigZag && mask.is_window())
      refuse("layout", name(layout), "contiguous or striped with a window", "pass --layout striped");
    if (mask_ == Mask::none()) return;
    // The diagonal goes through row 0 and key `shift`. Rows and keys get places on one axis, so that a row lies where
    // its key on the diagonal does. A diagonal that no row or every row is behind may as well be nearer.
    std::int64_t shift = mask.shift + (mask.alignment == Alignment::BottomRight ? Sk - Sq : 0);
    if (!mask.is_window()) shift += mask.right, mask_.right = 0;
    if (!mask.is_window()) shift = std::clamp(shift, -Sq, Sk);
    row_place_ = std::max<std::int64_t>(shift, 0), key_place_ = std::max<std::int64_t>(-shift, 0);
  }

  std::int64_t Sq() const { return Sq_; }
  std::int64_t Sk() const { return Sk_; }
  Share rows(int rank) const { return share(rank, Sq_, row_place_); }
  Share keys(int rank) const { return share(rank, Sk_, key_place_); }
  // #endregion

  // #region section
  // What the rows of `rank` see of the keys of rank `from`.
  Section section(int rank, int from) const {
    const Share q = rows(rank), k = keys(from);
    Section p{0, q.size(), 0, k.size(), Mask::none()};
    if (mask_ != Mask::none()) {
      switch (layout_) {
        case RingLayout::Ulysses:
        case RingLayout::Contiguous:  // the same band, seen from row q.first and key k.first
          p.mask = moved(mask_.left, mask_.right, place(q, true) - place(k, false));
          break;
        case RingLayout::Striped: {  // k + n·j <= q + n·i + right  <=>  j <= i + ⌊(q - k + right) / n⌋
          const std::int64_t apart = place(q, true) - place(k, false);
          const std::int64_t right = mask_.right == Mask::all ? Mask::all : floor(apart + mask_.right);
          p.mask = moved(mask_.left == Mask::all ? Mask::all : floor(mask_.left - apart), right, 0);
          break;
        }
        case RingLayout::ZigZag:
          if (from < rank)
            p.keys = k.count;  // of whose keys all the front piece, and none of the back
          else if (from > rank)
            p.q0 = q.count, p.rows = q.more;  // the front sees nothing of it, the back all
          else  // rows and keys rise together: the diagonal of the last rows is that of all
            p.mask = moved(Mask::all, 0,
                           q.more && k.more ? k.count - q.count + place_of(q.second, true) - place_of(k.second, false)
                                            : place(q, true) - place(k, false));
      }
    }
    return trimmed(p);
  }

 private:
  std::int64_t floor(std::int64_t x) const { return x / n_ - (x % n_ < 0); }
  std::int64_t place_of(std::int64_t token, bool row) const { return token + (row ? row_place_ : key_place_); }
  std::int64_t place(const Share& s, bool row) const { return place_of(s.first, row); }

  // Keys i - left + by … i + right + by, as the mask that phases without windows have where left is without a bound.
  static Mask moved(std::int64_t left, std::int64_t right, std::int64_t by) {
    if (right == Mask::all) return Mask{.left = left == Mask::all ? left : left - by};
    return Mask{.left = left == Mask::all ? left : left + right, .right = 0}.shifted(right + by);
  }
  // Without a mask where it hides nothing; empty where it hides all.
  static Section trimmed(Section p) {
    if (p.empty()) return {};
    const Band<std::int64_t> band = p.mask.band(p.rows, p.keys);
    if (band.left + band.right < 0 || band.right <= -p.rows || band.left <= -p.keys) return {};
    if (!band.cuts_left() && !band.cuts_right()) p.mask = Mask::none();
    return p;
  }
  // #endregion

  // #region layouts
  // Piece c of `pieces` nearly equal ones of 0 … length - 1; the first ones are longer by 1.
  static std::int64_t bound(std::int64_t c, std::int64_t pieces, std::int64_t length) {
    return c * (length / pieces) + std::min(c, length % pieces);
  }
  // Of S tokens that lie at place, place + 1 … of the axis.
  Share share(int rank, std::int64_t S, std::int64_t place) const {
    const std::int64_t length = std::max(row_place_ + Sq_, key_place_ + Sk_);
    // Those of piece c of the axis, cut into so many.
    const auto cut = [&](std::int64_t c, std::int64_t pieces) {
      const auto token = [&](std::int64_t at) { return std::clamp<std::int64_t>(at - place, 0, S); };
      return std::pair(token(bound(c, pieces, length)), token(bound(c + 1, pieces, length)));
    };
    switch (layout_) {
      case RingLayout::Ulysses:
      case RingLayout::Contiguous: {  // rows and keys, each in n pieces
        const std::int64_t first = bound(rank, n_, S);
        return {first, bound(rank + 1, n_, S) - first};
      }
      case RingLayout::Striped: {  // places rank, rank + n, …
        const std::int64_t first = ((rank - place) % n_ + n_) % n_;
        return {.first = first, .count = std::max<std::int64_t>((S - first + n_ - 1) / n_, 0), .step = n_};
      }
      case RingLayout::ZigZag:
        break;
    }
    const auto [front, front_end] = cut(rank, 2 * n_);
    const auto [back, back_end] = cut(2 * n_ - 1 - rank, 2 * n_);
    return {front, front_end - front, back, back_end - back};
  }

  RingLayout layout_;
  int n_;
  std::int64_t Sq_, Sk_;
  Mask mask_;
  std::int64_t row_place_ = 0, key_place_ = 0;
};
// #endregion

}  // namespace flash::phase30
