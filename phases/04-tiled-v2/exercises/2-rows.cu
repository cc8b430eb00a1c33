// 04.2 rows: attention row by row, with online softmax: all of it is yours
// An exercise of phase 04; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 04.2     Prove it: ./flash exercise --check 04.2

//# question
// The capstone of part 1: an empty function and a promise. Compute
//     O = softmax(scale Q K^T) V    and    LSE, of each row: log(sum of exp(s)), where s are the row's scaled scores.
// This is plain C++ for one thread. Matrices lie in memory row by row; Q, K, V, O and LSE are "HBM", whose bytes are
// counted, and local variables are free. Promise that
//     - O and LSE are right for any Sq and Sk from 1 on, and for scores of any size;
//     - each element of Q is read once, each element of O and LSE is written once, and none of them is read back;
//     - K and V are read at most once for every 16 rows of Q;
//     - there are at most 17 exps for every 16 keys of a row, or fewer, rounded up;
//     - local arrays do not grow with Sk: there may be more keys than fit on chip.

//# predict 4736 D = 8, Sq = 50, Sk = 37: how many bytes of K will your function read?

//# hint
// Which loop is outside? 16 rows of Q with their state m, l and o stay in local arrays while all keys pass by. The last
// rows and the last keys may fill no whole tile.
//# hint
// Take 16 keys at a time: load them, and for each row compute 16 scores, the new maximum, alpha = exp(m - m_new) once,
// and 16 times p = exp(s - m_new). The old l and o count alpha times.
//# hint
// Pages 02 and 04 have all the parts. After the last key: O = o / l, LSE = m + log(l).

//# because
// With 16 rows on chip, 50 rows are four groups, the last one of 2, and each reads 37 keys of 32 bytes. With 32 rows
// there are two groups, and half of the bytes: how many rows fit on chip decides what K and V cost.
//# next
// phases/04-tiled-v2/attention.hpp does it with matrices. Part 2 gives each row a thread of its own; its capstone is
// exercise 08.3.

//# code

constexpr int D = 8;

//# hole Write attention(). Helpers and constants are yours; they stand above it.
constexpr int Br = 16, Bc = 16;

__global__ void attention(const float* Q /*[Sq, D]*/, const float* K /*[Sk, D]*/, const float* V /*[Sk, D]*/,
                          float* O /*[Sq, D]*/, float* LSE /*[Sq]*/, int Sq, int Sk, float scale) {
  for (int first_row = 0; first_row < Sq; first_row += Br) {
    const int rows = min(Br, Sq - first_row);
    float q[Br][D], m[Br], l[Br] = {}, o[Br][D] = {};
    for (int r = 0; r < rows; ++r) m[r] = -INFINITY;
    for (int i = 0; i < rows * D; ++i) q[i / D][i % D] = scale * Q[first_row * D + i];

    for (int first_key = 0; first_key < Sk; first_key += Bc) {
      const int keys = min(Bc, Sk - first_key);
      float k[Bc][D], v[Bc][D];
      for (int i = 0; i < keys * D; ++i) k[i / D][i % D] = K[first_key * D + i];
      for (int i = 0; i < keys * D; ++i) v[i / D][i % D] = V[first_key * D + i];

      for (int r = 0; r < rows; ++r) {
        float s[Bc] = {}, m_new = m[r];
        for (int j = 0; j < keys; ++j) {
          for (int d = 0; d < D; ++d) s[j] += q[r][d] * k[j][d];
          m_new = fmaxf(m_new, s[j]);
        }
        const float alpha = expf(m[r] - m_new);
        m[r] = m_new;
        l[r] *= alpha;
        for (int d = 0; d < D; ++d) o[r][d] *= alpha;
        for (int j = 0; j < keys; ++j) {
          const float p = expf(s[j] - m_new);
          l[r] += p;
          for (int d = 0; d < D; ++d) o[r][d] += p * v[j][d];
        }
      }
    }
    for (int i = 0; i < rows * D; ++i) O[first_row * D + i] = o[i / D][i % D] / l[i / D];
    for (int r = 0; r < rows; ++r) LSE[first_row + r] = m[r] + logf(l[r]);
  }
}
//# skeleton: Nothing was written to O
//| __global__ void attention(const float* Q /*[Sq, D]*/, const float* K /*[Sk, D]*/, const float* V /*[Sk, D]*/,
//|                           float* O /*[Sq, D]*/, float* LSE /*[Sq]*/, int Sq, int Sk, float scale) {
//| }
//# wrong no-scale: The scores are not scaled
//~ scale * Q ==> Q
//# wrong no-maximum: too large for exp
//~ m_new = fmaxf(m_new, s[j]) ==> m_new = 0
//# wrong own-maximum: of the tiles before, too
//~ m_new = m[r]; ==> m_new = -INFINITY;
//# wrong m-from-0: they are smaller than the m that a row begins with
//~ m[r] = -INFINITY ==> m[r] = 0
//# wrong l-forgotten: l is not rescaled
//~ l[r] *= alpha; ==>
//# wrong o-forgotten: O is not rescaled
//~ for (int d = 0; d < D; ++d) o[r][d] *= alpha; ==>
//# wrong alpha-inverted: alpha is upside down
//~ expf(m[r] - m_new) ==> expf(m_new - m[r])
//# wrong undivided: O was never divided by l
//~ o[i / D][i % D] / l[i / D] ==> o[i / D][i % D]
//# wrong divided-each-time: O is divided by l after each tile
//~ m[r] = m_new; ==> m[r] = m_new; if (l[r] > 0) for (int d = 0; d < D; ++d) o[r][d] /= l[r];
//# wrong whole-keys: Sk is no multiple of your tile
//~ keys = min(Bc, Sk - first_key) ==> keys = Bc
//# wrong whole-rows: Sq is no multiple of your tile
//~ rows = min(Br, Sq - first_row) ==> rows = Br
//# wrong keys-dropped: The last keys, which fill no whole tile, are missing
//~ first_key < Sk ==> first_key + Bc <= Sk
//# wrong lse-of-l: LSE lacks the maximum
//~ m[r] + logf(l[r]) ==> logf(l[r])
//# wrong lse-base-2: LSE adds log2(l)
//~ logf(l[r]) ==> log2f(l[r])
//# wrong lse-without-log: LSE adds l itself
//~ m[r] + logf(l[r]) ==> m[r] + l[r]
//# wrong few-rows: K is read too often
//~ Br = 16 ==> Br = 8
//# wrong few-keys: alpha is needed once for many keys
//~ Bc = 16 ==> Bc = 4
//# wrong alpha-per-key: alpha is needed once for many keys
//~ const float p = ==> l[r] *= expf(m_new - m_new); const float p =
//# wrong q-again: Q is read more than once
//~ s[j] += q[r][d] * k[j][d] ==> s[j] += scale * Q[(first_row + r) * D + d] * k[j][d]
//# wrong o-in-hbm: O goes to HBM more than once
//~ m[r] = m_new; ==> m[r] = m_new; for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d];
//# wrong all-scores: a local array has Sk elements
//| __global__ void attention(const float* Q /*[Sq, D]*/, const float* K /*[Sk, D]*/, const float* V /*[Sk, D]*/,
//|                           float* O /*[Sq, D]*/, float* LSE /*[Sq]*/, int Sq, int Sk, float scale) {
//|   for (int first_row = 0; first_row < Sq; first_row += 16) {
//|     const int rows = min(16, Sq - first_row);
//|     float q[16][D], o[16][D] = {}, l[16] = {}, m[16], S[rows][Sk];
//|     for (int i = 0; i < rows * D; ++i) q[i / D][i % D] = scale * Q[first_row * D + i];
//|     for (int r = 0; r < rows; ++r) m[r] = -INFINITY;
//|     for (int j = 0; j < Sk; ++j) {
//|       float k[D];
//|       for (int d = 0; d < D; ++d) k[d] = K[j * D + d];
//|       for (int r = 0; r < rows; ++r) {
//|         S[r][j] = 0;
//|         for (int d = 0; d < D; ++d) S[r][j] += q[r][d] * k[d];
//|         m[r] = fmaxf(m[r], S[r][j]);
//|       }
//|     }
//|     for (int j = 0; j < Sk; ++j) {
//|       float v[D];
//|       for (int d = 0; d < D; ++d) v[d] = V[j * D + d];
//|       for (int r = 0; r < rows; ++r) {
//|         const float p = expf(S[r][j] - m[r]);
//|         l[r] += p;
//|         for (int d = 0; d < D; ++d) o[r][d] += p * v[d];
//|       }
//|     }
//|     for (int i = 0; i < rows * D; ++i) O[first_row * D + i] = o[i / D][i % D] / l[i / D];
//|     for (int r = 0; r < rows; ++r) LSE[first_row + r] = m[r] + logf(l[r]);
//|   }
//| }
//# also one-key-at-a-time
//| __global__ void attention(const float* Q /*[Sq, D]*/, const float* K /*[Sk, D]*/, const float* V /*[Sk, D]*/,
//|                           float* O /*[Sq, D]*/, float* LSE /*[Sq]*/, int Sq, int Sk, float scale) {
//|   for (int first_row = 0; first_row < Sq; first_row += 32) {
//|     const int rows = min(32, Sq - first_row);
//|     float q[32][D], o[32][D] = {}, l[32] = {}, m[32] = {};
//|     for (int i = 0; i < rows * D; ++i) q[i / D][i % D] = Q[first_row * D + i];
//|     for (int j = 0; j < Sk; ++j) {
//|       float k[D], v[D];
//|       for (int d = 0; d < D; ++d) k[d] = K[j * D + d], v[d] = V[j * D + d];
//|       for (int r = 0; r < rows; ++r) {
//|         float s = 0;
//|         for (int d = 0; d < D; ++d) s = fmaf(q[r][d], k[d], s);
//|         s *= scale;
//|         // The first key, or one beyond the maximum by far, makes a new one: most keys need no alpha.
//|         if (j == 0 || s > m[r] + 20) {
//|           const float alpha = j == 0 ? 0 : expf(m[r] - s);
//|           m[r] = s, l[r] *= alpha;
//|           for (int d = 0; d < D; ++d) o[r][d] *= alpha;
//|         }
//|         const float p = expf(s - m[r]);
//|         l[r] += p;
//|         for (int d = 0; d < D; ++d) o[r][d] = fmaf(p, v[d], o[r][d]);
//|       }
//|     }
//|     for (int r = 0; r < rows; ++r) {
//|       LSE[first_row + r] = m[r] + logf(l[r]);
//|       for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d] / l[r];
//|     }
//|   }
//| }
//# also merged
//| struct State {
//|   float m = -INFINITY, l = 0, o[D] = {};
//| };
//| __device__ void merge(State& a, const State& b) {
//|   const float m = fmaxf(a.m, b.m), alpha = expf(a.m - m), beta = b.m == m ? 1 : expf(b.m - m);
//|   a.l = alpha * a.l + beta * b.l;
//|   for (int d = 0; d < D; ++d) a.o[d] = alpha * a.o[d] + beta * b.o[d];
//|   a.m = m;
//| }
//| __global__ void attention(const float* Q /*[Sq, D]*/, const float* K /*[Sk, D]*/, const float* V /*[Sk, D]*/,
//|                           float* O /*[Sq, D]*/, float* LSE /*[Sq]*/, int Sq, int Sk, float scale) {
//|   for (int first_row = 0; first_row < Sq; first_row += 16) {
//|     const int rows = min(16, Sq - first_row);
//|     float q[16][D];
//|     State all[16];
//|     for (int i = 0; i < rows * D; ++i) q[i / D][i % D] = Q[first_row * D + i];
//|     for (int first_key = 0; first_key < Sk; first_key += 64) {
//|       const int keys = min(64, Sk - first_key);
//|       float k[64 * D], v[64 * D];
//|       for (int i = 0; i < keys * D; ++i) k[i] = K[first_key * D + i], v[i] = V[first_key * D + i];
//|       for (int r = 0; r < rows; ++r) {
//|         float s[64] = {};
//|         State tile;
//|         for (int i = 0; i < keys * D; ++i) s[i / D] += q[r][i % D] * k[i];
//|         for (int j = 0; j < keys; ++j) tile.m = fmaxf(tile.m, s[j] *= scale);
//|         for (int j = 0; j < keys; ++j) tile.l += s[j] = expf(s[j] - tile.m);
//|         for (int i = 0; i < keys * D; ++i) tile.o[i % D] += s[i / D] * v[i];
//|         merge(all[r], tile);
//|       }
//|     }
//|     for (int r = 0; r < rows; ++r) {
//|       LSE[first_row + r] = all[r].m + logf(all[r].l);
//|       for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = all[r].o[d] / all[r].l;
//|     }
//|   }
//| }
//# end

//# judge

void judge(Trial& t) {
  struct Case {
    int Sq, Sk;
    float size;  // of Q
  };
  for (const auto& [Sq, Sk, size] : {Case{64, 64, 1}, Case{50, 37, 1}, Case{1, 1, 1}, Case{16, 100, 500}}) {
    const bool whole = Sq == 64, large = size > 1;
    const std::string with = "Sq = " + std::to_string(Sq) + ", Sk = " + std::to_string(Sk) + ": ";
    const double scale = 0.4f;
    Floats Q = t.normal("Q", Sq * D);
    for (float& value : Q) value *= size;
    Floats K = t.normal("K", Sk * D);
    const Floats V = t.normal("V", Sk * D);
    for (int j = 0; large && j < Sk; ++j) K[j * D] = 20;
    for (int i = 0; large && i < Sq * D; ++i) Q[i] = i == D ? -1e36f : i / D == 1 || i % D == 0 ? 0 : Q[i];
    const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
    const auto o = t.alloc("O", Sq * D), lse = t.alloc("LSE", Sq);
    attention<<<1, 1>>>(q.data(), k.data(), v.data(), o.data(), lse.data(), Sq, Sk, float(scale));
    const std::string keys = with + "Sk is no multiple of your tile, and your code goes beyond the last key.",
                      rows = with + "Sq is no multiple of your tile, and your code goes beyond the last row.";
    if (whole) t.findings();
    t.findings({{"out of bounds: read of K[", keys},
                {"out of bounds: read of V[", keys},
                {"out of bounds: read of Q[", rows},
                {"out of bounds: write of O[", rows},
                {"out of bounds: write of LSE[", rows}});
    const Exact exact = exact_attention(Q, K, V, D, scale);
    const Floats O = t.download(o), LSE = t.download(lse);
    t.expect(!std::all_of(O.begin(), O.end(), [](float x) { return std::bit_cast<unsigned>(x) == 0xffffffffu; }),
             "Nothing was written to O.");
    const bool numbers = std::none_of(O.begin(), O.end(), [](float x) { return std::isnan(x); });
    t.expect(
        numbers || !whole,
        "O is NaN. Before the first tile m is -infinity: exp(m - m_new) is 0 then, but exp(m_new - m) is infinite, "
        "which means that alpha is upside down, or that -infinity was subtracted from itself.");
    t.expect(!large || !std::isnan(O[D]) || std::isnan(O[0]),
             "Row 1's scores are all below -10^36, and all equal: they are smaller than the m that a row begins with. "
             "-INFINITY is below each score.");
    t.expect(numbers || !large,
             "Scores of some thousand are too large for exp: subtract the largest of all scores so "
             "far, of the tiles before, too.");
    const double bar = large ? 1e-3 : 2e-5;
    t.answer("O", O, exact.O, D, slips(Q, K, V, D, scale), bar);
    t.answer("LSE", LSE, exact.LSE, 1, slips_of_lse(exact), bar);
    const std::uint64_t row = D * 4, groups = (Sq + 15) / 16;
    t.count(with + "the bytes read of Q", t.traffic("Q").read_bytes, Sq * row, "Q is read more than once.");
    t.count(with + "the bytes read of K", t.traffic("K").read_bytes, groups * Sk * row,
            "K is read too often: once for 16 rows was promised.");
    t.count(with + "the bytes read of V", t.traffic("V").read_bytes, groups * Sk * row,
            "V is read too often: once for 16 rows was promised.");
    t.count(with + "the traffic of O in bytes", t.traffic("O").written_bytes + t.traffic("O").read_bytes, Sq * row,
            "O goes to HBM more than once: it can stay in local arrays until it is done.");
    t.count(with + "the traffic of LSE in bytes", t.traffic("LSE").written_bytes + t.traffic("LSE").read_bytes, Sq * 4,
            "LSE goes to HBM more than once.");
    t.count(with + "the number of exps", t.ledger().exps, Sq * (Sk + (Sk + 15) / 16),
            "Each key of a row needs one exp; alpha is needed once for many keys.");
    if (Sq == 50) t.predicted(t.traffic("K").read_bytes);
  }
  t.demand(!t.uses("[Sk]") && !t.uses("(Sk)"),
           "a local array has Sk elements: it must not grow with the number of keys.");
  // More keys than anybody would make room for; all count alike.
  constexpr int Sk = 5000;
  Floats V(Sk * D);
  for (int i = 0; i < Sk * D; ++i) V[i] = i / D % 5 + i % D;
  const auto q = t.upload("Q", Floats(D, 1)), k = t.upload("K", Floats(Sk * D, 0)), v = t.upload("V", V);
  const auto o = t.alloc("O", D), lse = t.alloc("LSE", 1);
  attention<<<1, 1>>>(q.data(), k.data(), v.data(), o.data(), lse.data(), 1, Sk, 1);
  t.findings();
  t.answer("O, with Sq = 1 and Sk = 5000,", t.download(o), {2, 3, 4, 5, 6, 7, 8, 9}, D);
}
