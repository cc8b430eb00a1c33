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
    //# wrong each-growth: A maximum that has grown by little needs no rescale
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
    //# wrong alpha-upside-down: alpha is upside down
    //| if (__any_sync(0xffffffffu, top > m + 8)) {
    //|   const float alpha = exp2f(top - m);
    //|   m = top;
    //|   l *= alpha;
    //|   for (int d = 0; d < D; ++d) o[d] *= alpha;
    //| }
    //# also row-by-row
    //| if (top > m + 8) {
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
  // Column 0 makes the scores rise by 3 from tile to tile, the others add a little to each.
  Floats Q = t.normal("Q", kRows * D), K = t.normal("K", kKeys * D);
  for (float& x : Q) x *= 0.2f;
  for (float& x : K) x *= 0.2f;
  for (int i = 0; i < kRows; ++i) Q[i * D] = 1;
  for (int j = 0; j < kKeys; ++j) K[j * D] = float(3 * (j / Bc));
  const Floats V = t.normal("V", kKeys * D);
  const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
  const auto o = t.alloc("O", kRows * D);

  // The answer if key j of tile n, read behind tile `last`, counts for 2^(s - m) divided by what `rescaled` says.
  const auto answer = [&](int tiles, bool rescale_l, bool rescale_o, bool m_follows) {
    Doubles O(kRows * D);
    for (int i = 0; i < kRows; ++i) {
      double m = -INFINITY, l = 0, sum[D] = {};
      for (int n = 0; n < tiles; ++n) {
        double s[Bc] = {}, top = m;
        for (int j = 0; j < Bc; ++j) {
          for (int d = 0; d < D; ++d) s[j] += double(Q[i * D + d]) * K[(n * Bc + j) * D + d];
          top = std::max(top, s[j]);
        }
        if (m_follows || top > m + 8) {
          const double alpha = m_follows || n == 0 ? 1 : std::exp2(m - top);
          if (rescale_l) l *= alpha;
          for (double& x : sum) x *= rescale_o ? alpha : 1;
          m = top;
        }
        for (int j = 0; j < Bc; ++j) {
          const double p = std::exp2(s[j] - m);
          l += p;
          for (int d = 0; d < D; ++d) sum[d] += p * V[(n * Bc + j) * D + d];
        }
      }
      for (int d = 0; d < D; ++d) O[i * D + d] = sum[d] / l;
    }
    return O;
  };
  const auto has_nan = [](const Floats& values) {
    return std::any_of(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
  };
  for (const int tiles : {1, kTiles}) {
    attention<<<1, kRows>>>(q.data(), k.data(), v.data(), o.data(), tiles);
    t.findings();
    const Floats got = t.download(o);
    t.expect(tiles > 1 || !has_nan(got),
             "NaN after the first tile: alpha is upside down. m is -infinity there, so exp2f(m - top) is 0, but "
             "exp2f(top - m) is infinite, and 0 * infinity is NaN.");
    t.expect(!has_nan(got),
             "m lags too far behind: P has become infinite, since fp16 ends at 65504. Whenever a maximum is more than "
             "8 ahead, m has to follow.");
    t.answer("O", got, answer(tiles, true, true, false), D,
             {{answer(tiles, true, true, true),
               "m follows each maximum, but l and o keep the old one: what P, l and o are made with must be the same."},
              {answer(tiles, false, true, false), "l was not rescaled when m moved, so O is divided by too much."},
              {answer(tiles, true, false, false), "o was not rescaled when m moved: old keys keep too much weight."}},
             1e-3);
  }
  const std::uint64_t exps_of_p = std::uint64_t{kRows} * kKeys, rescales = (t.ledger().exps - exps_of_p) / kRows;
  t.count("the number of rescales", rescales, 4,
          "A maximum that has grown by little needs no rescale: 2^8 is in range.");
  t.predicted(rescales);
}
