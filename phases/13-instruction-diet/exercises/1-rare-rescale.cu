// 13.1 rare-rescale: m may lag behind the maximum: by how much, and what must follow when it moves?
// An exercise of phase 13; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 13.1     Prove it: ./flash exercise --check 13.1

//# question
// Online softmax gives the right answer with any m, as long as P, l and o are made with the same one; m only keeps the
// exponentials in range. So m need not follow each new maximum. Here scores are in base 2, a thread has one row of a
// warp's 32, and P is rounded to fp16, whose largest number is 65504.
// `top` is the row's maximum with this tile. Let the warp rescale only if some row's top has outgrown its m by more
// than 8, that is if P would exceed 2^8. Then every row of the warp brings m, l and o up to date.

//# predict 4 Scores rise by 3 from tile to tile, 12 tiles: with how many tiles does the warp rescale?

//# hint
// __any_sync(0xffffffffu, condition) is true for the whole warp if the condition holds in one of its lanes.
//# hint
// Before the first tile m is -infinity: top > m + 8 holds for any score, and exp2f(m - top) is 0. No special case.
//# hint
// if (__any_sync(0xffffffffu, top > m + 8)) { alpha = exp2f(m - top); m = top; and l and each o[d] are multiplied by
// alpha }. Outside of the if nothing moves.

//# because
// With tiles 0, 3, 6 and 9: after a rescale the maximum has to grow by 3 three times before it is more than 8 ahead.
// Random scores are kinder: their maximum hardly grows after the first tile, so a warp rescales once.
//# next
// phases/13-instruction-diet/notebook.cpp, "The maximum": why the bound holds from the first whole tile on, and what it
// costs in precision.

//# code

constexpr int D = 8, Bc = 8;

// A thread per row, one warp.
__global__ void attention(const float* Q /*[32, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                          float* O /*[32, D]*/, int tiles) {
  const int row = threadIdx.x;
  float m = -INFINITY, l = 0, o[D] = {};
  for (int tile = 0; tile < tiles; ++tile) {
    float s[Bc] = {}, top = m;
    for (int j = 0; j < Bc; ++j) {
      for (int d = 0; d < D; ++d) s[j] = fmaf(Q[row * D + d], K[(tile * Bc + j) * D + d], s[j]);
      top = fmaxf(top, s[j]);
    }
    //# hole If a row of the warp has outgrown its m by more than 8: bring m, l and o up to date.
    if (__any_sync(0xffffffffu, top > m + 8)) {
      const float alpha = exp2f(m - top);
      m = top;
      l *= alpha;
      for (int d = 0; d < D; ++d) o[d] *= alpha;
    }
    //# skeleton: m follows each maximum, but l and o keep the old one
    //| m = top;
    //# wrong each-growth: has grown by 8 or less
    //| if (__any_sync(0xffffffffu, top > m)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong l-forgotten: l was not rescaled
    //| if (__any_sync(0xffffffffu, top > m + 8)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong o-forgotten: o was not rescaled
    //| if (__any_sync(0xffffffffu, top > m + 8)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //| }
    //# wrong m-moves-outside: m follows each maximum, but l and o keep the old one
    //| if (__any_sync(0xffffffffu, top > m + 8)) {
    //|   const float alpha = exp2f(m - top);
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //| m = top;
    //# wrong first-tile-only: m lags too far behind
    //| if (m == -INFINITY) m = top;
    //# wrong beyond-20: m lags too far behind
    //| if (__any_sync(0xffffffffu, top > m + 20)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong alpha-upside-down: Upside down it is infinite
    //| if (__any_sync(0xffffffffu, top > m + 8)) {
    //|   const float alpha = exp2f(top - m);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong row-by-row: the rows of the warp go their own ways
    //| if (top > m + 8) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong all-rows: One row is enough
    //| if (__all_sync(0xffffffffu, top > m + 8)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong beyond-16: m lags too far behind
    //| if (__any_sync(0xffffffffu, top > m + 16)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong beyond-7: has grown by 8 or less
    //| if (__any_sync(0xffffffffu, top > m + 7)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong beyond-9: m lags too far behind
    //| if (__any_sync(0xffffffffu, top > m + 9)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong m-forgotten: m has not moved
    //| if (__any_sync(0xffffffffu, top > m + 8)) {
    //|   const float alpha = exp2f(m - top);
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong m-first: Neither l nor o was rescaled
    //| if (__any_sync(0xffffffffu, top > m + 8)) {
    //|   m = top;
    //|   const float alpha = exp2f(m - top);
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong nothing-rescaled: Neither l nor o was rescaled
    //| if (__any_sync(0xffffffffu, top > m + 8)) m = top;
    //# wrong own-rows-in-a-vote: the rows of the warp go their own ways
    //| if (__any_sync(0xffffffffu, top > m + 8) && top > m + 8) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong absolute: Has m become top there
    //| if (__any_sync(0xffffffffu, top > 8)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# also difference
    //| if (__any_sync(0xffffffffu, top - m > 8)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# also ballot
    //| if (__ballot_sync(0xffffffffu, top > m + 8) != 0) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# wrong lane-0: m lags too far behind
    //| if (__shfl_sync(0xffffffffu, top - m, 0) > 8) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# also by-P
    //| if (__any_sync(0xffffffffu, top - 8.0f > m)) {
    //|   const float alpha = exp2f(m - top);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# end
    for (int j = 0; j < Bc; ++j) {
      const float p = exp2f(s[j] - m);
      l += p;
      for (int d = 0; d < D; ++d) o[d] = fmaf(__half2float(__float2half(p)), V[(tile * Bc + j) * D + d], o[d]);
    }
  }
  for (int d = 0; d < D; ++d) O[row * D + d] = o[d] / l;
}

//# judge

void judge(Trial& t) {
  constexpr int kRows = 32, kTiles = 12, kKeys = kTiles * Bc;
  // Column 0 makes the scores rise from tile to tile, in odd rows eight times as fast as in even ones; the others add
  // a little to each.
  Floats Q = t.normal("Q", kRows * D), K = t.normal("K", kKeys * D);
  for (float& x : Q) x *= 0.1f;
  for (float& x : K) x *= 0.1f;
  for (int i = 0; i < kRows; ++i) Q[i * D] = i % 2 ? 1 : 0.125f;
  const Floats V = t.normal("V", kKeys * D);
  const auto q = t.upload("Q", Q), v = t.upload("V", V);

  // What comes of it if l and o are rescaled, or not; or if m follows each maximum and nothing is rescaled.
  const auto answer = [&](int tiles, bool rescale_l, bool rescale_o, bool m_follows) {
    Doubles O(kRows * D), m(kRows, -INFINITY), top(kRows), l(kRows), s(kRows * Bc);
    for (int n = 0; n < tiles; ++n) {
      bool vote = m_follows;
      for (int i = 0; i < kRows; ++i) {
        top[i] = m[i];
        for (int j = 0; j < Bc; ++j) {
          double& score = s[i * Bc + j] = 0;
          for (int d = 0; d < D; ++d) score += double(Q[i * D + d]) * K[(n * Bc + j) * D + d];
          top[i] = std::max(top[i], score);
        }
        vote |= top[i] > m[i] + 8;
      }
      for (int i = 0; i < kRows; ++i) {
        const double alpha = m_follows || n == 0 ? 1 : std::exp2(m[i] - top[i]);
        if (vote) m[i] = top[i];
        if (vote && rescale_l) l[i] *= alpha;
        for (int d = 0; d < D; ++d) O[i * D + d] *= vote && rescale_o ? alpha : 1;
        for (int j = 0; j < Bc; ++j) {
          const double p = std::exp2(s[i * Bc + j] - m[i]);
          l[i] += p;
          for (int d = 0; d < D; ++d) O[i * D + d] += p * V[(n * Bc + j) * D + d];
        }
      }
    }
    for (int i = 0; i < kRows * D; ++i) O[i] /= l[i / D];
    return O;
  };
  // Of so many tiles that rise so much, the warp must rescale with `needed`. A row's exps of alpha, as counted.
  const auto launch = [&](int tiles, float rise, std::uint64_t needed) {
    for (int j = 0; j < kKeys; ++j) K[j * D] = rise * float(j / Bc);
    const auto k = t.upload("K", K);
    const auto o = t.alloc("O", kRows * D);
    attention<<<1, kRows>>>(q.data(), k.data(), v.data(), o.data(), tiles);
    t.findings();
    const Floats got = t.download(o);
    const bool finite = std::all_of(got.begin(), got.end(), [](float x) { return std::isfinite(x); });
    t.expect(finite || tiles > 1,
             t.uses("m = ") + t.uses("m=") < 2  // the one that is there, m = -INFINITY
                 ? "NaN after the first tile: m has not moved. It is -infinity, and P = 2^(s - m) is infinite."
                 : "NaN after the first tile, before which m is -infinity. Has m become top there? And is alpha "
                   "exp2f(m - top), which is 0 there? Upside down it is infinite, and 0 * infinity is NaN.");
    t.expect(finite, t.uses("__all_sync")
                         ? "One row is enough: P has become infinite in rows that have outgrown their m alone."
                         : "m lags too far behind: P has become infinite, since fp16 ends at 65504. Whenever a "
                           "maximum is more than 8 ahead, m has to follow.");
    t.answer("O", got, answer(tiles, true, true, false), D,
             {{answer(tiles, true, true, true),
               "m follows each maximum, but l and o keep the old one: what P, l and o are made with must be the same."},
              {answer(tiles, false, false, false),
               "Neither l nor o was rescaled when m moved. Is alpha made of the m that was there before?"},
              {answer(tiles, false, true, false), "l was not rescaled when m moved, so O is divided by too much."},
              {answer(tiles, true, false, false), "o was not rescaled when m moved: old keys keep too much weight."}},
             1e-3);
    if (tiles == 1) return needed;
    const std::uint64_t exps = t.ledger().exps - std::uint64_t(kRows) * tiles * Bc, of_a_row = exps / kRows;
    t.demand(exps % kRows == 0,
             "the rows of the warp go their own ways: where some row's top has outgrown its m, every row of the warp "
             "brings m, l and o up to date. It takes a vote.");
    t.count("the number of exps that a row spends on alpha", of_a_row, needed,
            "A maximum that has grown by 8 or less needs none: 2^8 is in range.");
    t.demand(of_a_row == needed, "m lags too far behind: the warp rescales with " + std::to_string(of_a_row) +
                                     " tiles, where a bound of 8 asks for " + std::to_string(needed) + ".");
    return of_a_row;
  };
  launch(1, 3, 1);
  const std::uint64_t rescales = launch(kTiles, 3, 4);
  launch(kTiles, 3.9f, 4);  // 7.8 with the second tile behind a rescale: not yet
  launch(kTiles, 4.1f, 6);  // 8.2: now
  t.predicted(rescales);
}
