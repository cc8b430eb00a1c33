// additions.hpp: in which order floating-point numbers are added to one element by atomics (atomicAdd, red, reductions
// by bulk copies). Rounding makes the bits of a sum depend on that order, so it is fixed only where each addition
// happened before the next one. That an atomic reads another's value says nothing: which comes first is chance.
// Two additions to 0 give the same bits in either order, so they need no order; a third one does, after both.
// Use: Checker::adds() and async_begins(); one Additions for global memory, one for a block's shared memory.
#pragma once
#include <array>
#include <cstddef>

#include "sim/checks/cells.hpp"

namespace flash::simt {

class Additions {
 public:
  static constexpr std::size_t kBytes = 2 * 2 * sizeof(Epoch);  // for each word
  Additions(Space& space, std::size_t words) : planes_{Plane(space, words), Plane(space, words)} {}
  // Back to what fresh memory has.
  void forget(std::size_t first_word, std::size_t words);

  // An addition to the element at this offset in bytes. Epochs below `begin` are of earlier launches, or blocks, and
  // before everything; ordered(earlier) says whether another addition happened before this one, is_zero() whether the
  // element is 0 now. Gives an addition to which this one has no order, once for each element; 0: there is none.
  template <class Ordered, class IsZero>
  Epoch add(std::size_t offset, Epoch mine, Epoch begin, const Ordered& ordered, const IsZero& is_zero);

 private:
  // What is known of an element's additions since the last one that comes after all others, in the two bits between an
  // epoch's site and its clock: they came onto a value, one came onto 0, two did; there is no order, which was said.
  // Additions of companions are those of bulk groups, so that no mark lacks what its two bits said.
  static constexpr Epoch kState = kFlagEpoch | kBlockEpoch;
  static constexpr Epoch kOntoValue = 0, kOntoZero = kFlagEpoch, kTwoOntoZero = kBlockEpoch, kSaid = kState;

  // Elements begin at even bytes: those at the second half of a word have a plane of their own.
  struct Plane {
    Plane(Space& space, std::size_t words) : last(space, words), other(space, words) {}
    Table<Epoch> last;   // the last addition, and the state
    Table<Epoch> other;  // of kTwoOntoZero: the one before
  };
  const Plane& plane(std::size_t offset) const { return planes_[offset / 2 % 2]; }
  std::array<Plane, 2> planes_;
};

template <class Ordered, class IsZero>
Epoch Additions::add(std::size_t offset, Epoch mine, Epoch begin, const Ordered& ordered, const IsZero& is_zero) {
  Epoch &last = plane(offset).last[offset / 4], &other = plane(offset).other[offset / 4];
  const Epoch state = last & kState, before = last & ~kState;
  mine &= ~kState;
  if (before >= begin) {
    if (state == kSaid) return 0;
    const bool two = state == kTwoOntoZero, after_last = ordered(before);
    if (!after_last || (two && !ordered(other))) {
      if (state == kOntoZero) {
        other = before;
        last = mine | kTwoOntoZero;
        return 0;
      }
      last = mine | kSaid;
      return after_last ? other : before;
    }
  }
  last = mine | (is_zero() ? kOntoZero : kOntoValue);
  return 0;
}

}  // namespace flash::simt
