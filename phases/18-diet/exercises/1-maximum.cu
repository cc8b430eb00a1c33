// 18.1 maximum: the maximum of three integers, for floats: when are their bits in the wrong order?
// An exercise of phase 18; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 18.1     Prove it: ./flash exercise --check 18.1

//# question
// A lane has 16 scores of a row and m, the row's maximum so far. Hopper has an instruction for the maximum of three
// integers, __vimax3_s32, and none for three floats. The bits of a float, read as an integer, are ordered like the
// floats themselves, as long as not all of them are below zero:
//     1.0f is 0x3f800000, 2.0f is 0x40000000, -1.0f is 0xbf800000, -2.0f is 0xc0000000
// `top` is the maximum of the integers. Say when the warp has to calculate its maxima again, as floats: when it must,
// and not when it need not. All lanes of a warp go the same way. It is tried on seven tiles of 32 rows:
//     (a) all scores are above zero                        (e) as (c), but m is 1
//     (b) scores of both signs, and m is -infinity         (f) as (c), and m is -infinity, as in the beginning
//     (c) all scores are below zero, and so is m           (g) all scores are 0, and so is m
//     (d) one row is as in (c), the others as in (a)

//# predict 3 In how many of the seven tiles are floats needed?

//# hint
// Which bit says that an integer is negative, and which one that a float is?
//# hint
// If the largest integer is not negative, it belongs to a float that is not below zero, and is the largest of those
// too. If it is negative, all floats are below zero, and among those the order is the other way round.
//# hint
// __any_sync(0xffffffffu, __int_as_float(top) < 0).

//# because
// (c), (d) and (f). One row is enough, since the warp goes one way. Where m is 1 it wins, whatever is below zero. In
// attention the largest score of a row is hardly ever below zero, so the floats are hardly ever needed.
//# next
// phases/18-diet/notebook.cpp; the phase looks for maxima that are too large in the same vote.

//# code

constexpr int kScores = 16;

// The maximum of each row, one lane per row.
__global__ void maxima(const float* S /*[tiles, 32, kScores]*/, const float* so_far /*[tiles, 32]*/,
                       float* M /*[tiles, 32]*/, int tiles) {
  const int lane = threadIdx.x;
  for (int tile = 0; tile < tiles; ++tile) {
    const float* s = &S[(tile * 32 + lane) * kScores];
    float m = so_far[tile * 32 + lane];
    int top = __float_as_int(m);
    for (int i = 0; i < kScores; i += 2) top = __vimax3_s32(top, __float_as_int(s[i]), __float_as_int(s[i + 1]));
    //# hole Are floats needed?
    const bool floats_needed = __any_sync(0xffffffffu, __int_as_float(top) < 0);
    //# skeleton: Where all scores of a row are below zero
    //| const bool floats_needed = false;
    //# also as-integer
    //| const bool floats_needed = __any_sync(0xffffffffu, top < 0);
    //# wrong always: Floats are needed in 3 of them
    //| const bool floats_needed = true;
    //# wrong m-below-zero: Where all scores of a row are below zero
    //| const bool floats_needed = __any_sync(0xffffffffu, m < 0 && m > -INFINITY);
    //# wrong a-score-below-zero: Floats are needed in 3 of them
    //| bool below = false;
    //| for (int i = 0; i < kScores; ++i) below |= s[i] < 0;
    //| const bool floats_needed = __any_sync(0xffffffffu, below);
    //# wrong all-lanes: One row is enough
    //| const bool floats_needed = __all_sync(0xffffffffu, __int_as_float(top) < 0);
    //# wrong zero-too: Floats are needed in 3 of them
    //| const bool floats_needed = __any_sync(0xffffffffu, __int_as_float(top) <= 0);
    //# wrong lane-0-decides: One row is enough
    //| const bool floats_needed = __shfl_sync(0xffffffffu, __int_as_float(top), 0) < 0;
    //# wrong m-alone: Floats are needed in 3 of them
    //| const bool floats_needed = __any_sync(0xffffffffu, m < 0);
    //# wrong no-vote: All lanes of a warp go the same way
    //| const bool floats_needed = top < 0;
    //# also sign-bit
    //| const bool floats_needed = __any_sync(0xffffffffu, (top & 0x80000000) != 0);
    //# also reduced
    //| const bool floats_needed = __reduce_min_sync(0xffffffffu, top) < 0;
    //# also not-all-above
    //| const bool floats_needed = !__all_sync(0xffffffffu, top >= 0);
    //# also signbit
    //| const bool floats_needed = __any_sync(0xffffffffu, signbit(__int_as_float(top)));
    //# wrong all-scores-below: Floats are needed in 3 of them
    //| bool below = true;
    //| for (int i = 0; i < kScores; ++i) below &= s[i] < 0;
    //| const bool floats_needed = __any_sync(0xffffffffu, below);
    //# also all-below-with-m
    //| bool below = m < 0;
    //| for (int i = 0; i < kScores; ++i) below &= s[i] < 0;
    //| const bool floats_needed = __any_sync(0xffffffffu, below);
    //# also all-scores-checked
    //| float best = m;
    //| for (int i = 0; i < kScores; ++i) best = fmaxf(best, s[i]);
    //| const bool floats_needed = __any_sync(0xffffffffu, best < 0);
    //# wrong compared: Where all scores of a row are below zero
    //| const bool floats_needed = __any_sync(0xffffffffu, __int_as_float(top) < m);
    //# end
    if (floats_needed) {
      trace_mark("floats", tile);
      for (int i = 0; i < kScores; ++i) m = fmaxf(m, s[i]);
    } else {
      m = __int_as_float(top);
    }
    M[tile * 32 + lane] = m;
  }
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 7, kRows = kTiles * 32;
  Floats S = t.normal("S", kRows * kScores), so_far(kRows);
  for (int row = 0; row < kRows; ++row) {
    const char tile = "abcdefg"[row / 32];
    const bool below = tile == 'c' || tile == 'e' || tile == 'f' || (tile == 'd' && row % 32 == 17);
    for (int i = 0; i < kScores; ++i) {
      float& x = S[row * kScores + i];
      if (tile != 'b') x = tile == 'g' ? 0 : below ? -1 - std::abs(x) : std::abs(x);
    }
    if (tile == 'b') S[row * kScores + row % kScores] = 3, S[row * kScores + (row + 5) % kScores] = -9;
    so_far[row] = tile == 'e' ? 1 : tile == 'b' || tile == 'f' ? -INFINITY : tile == 'g' ? 0 : below ? -20 : 0.5f;
  }
  Doubles exact(kRows);
  for (int i = 0; i < kRows; ++i)
    exact[i] = std::max(so_far[i], *std::max_element(&S[i * kScores], &S[(i + 1) * kScores]));
  const auto s = t.upload("S", S), before = t.upload("so_far", so_far);
  const auto m = t.alloc("M", kRows);
  maxima<<<1, 32>>>(s.data(), before.data(), m.data(), kTiles);
  t.findings();
  const Floats got = t.download(m);
  int wrong = 0;
  for (int i = 0; i < kRows; ++i) wrong += !(double(got[i]) == exact[i]);
  t.expect(wrong != 1, "One row is enough: in tile (d) one row of the 32 is below zero, and the whole warp must turn.");
  t.expect(wrong == 0,
           "Where all scores of a row are below zero, and m too, the largest integer is the smallest float.");
  std::uint64_t floats = 0;
  for (const TraceEvent& event : t.machine.trace()) floats += event.name == "floats";
  t.demand(
      floats >= 3,
      "in tile (d) some lanes went one way and some the other. All lanes of a warp go the same way: it takes a vote.");
  t.demand(floats == 3, "floats were used in " + std::to_string(floats) +
                            " of the seven tiles. Floats are needed in 3 "
                            "of them: an integer that is not negative belongs to a float that is not below zero.");
  t.predicted(floats);
}
