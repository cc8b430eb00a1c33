// 05.8 ragged-tail: the last K/V tile is not full: what do its missing keys do to the softmax?
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.8     Prove it: ./flash exercise --check 05.8

//# question
// There are 40 keys, and K/V tiles of 16: the third tile has 8. The loader has filled its other rows with zeros, so the
// scores s[8] to s[15] are 0, as if there were keys that nobody has asked for.
// Make the softmax as if they were not there. `keys` is how many the tile has.

//# predict 48 How many times is exp called for a row's P, when each tile is treated alike (alpha aside)?

//# hint
// V's rows are 0 there: o takes no harm. Which other number is a sum over keys?
//# hint
// A weight of 0 is what these keys must get. Which score has exp(s - m) = 0? And which score does no harm to m?
//# hint
// s[j] = -INFINITY for j >= keys, before the maximum is taken. A large negative number would do until all real scores
// are more negative.

//# because
// Three tiles of 16, and 8 of the exps are of -infinity. An if inside the loop would save them, and on a GPU the warp
// waits all the same.
//# next
// phases/05-first-kernel/attention.cuh does it, and does not multiply those keys at all: V could hold NaN there.

//# code

constexpr int D = 8, Br = 32, Bc = 16;

// A block per 32 rows, a thread per row.
__global__ void attention(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                          float* O /*[N, D]*/, int N, float scale) {
  __shared__ float K_tile[Bc][D], V_tile[Bc][D];
  const int row = blockIdx.x * Br + threadIdx.x;
  float q[D], o[D] = {}, m = -INFINITY, l = 0;
  for (int d = 0; d < D; ++d) q[d] = row < N ? Q[row * D + d] : 0.0f;

  for (int first_key = 0; first_key < N; first_key += Bc) {
    for (int i = threadIdx.x; i < Bc * D; i += Br) {
      const bool inside = first_key + i / D < N;
      K_tile[i / D][i % D] = inside ? K[first_key * D + i] : 0.0f;
      V_tile[i / D][i % D] = inside ? V[first_key * D + i] : 0.0f;
    }
    __syncthreads();
    const int keys = min(N - first_key, Bc);  // that this tile has

    float s[Bc] = {};
    for (int j = 0; j < Bc; ++j) {
      for (int d = 0; d < D; ++d) s[j] = fmaf(q[d], K_tile[j][d], s[j]);
      s[j] *= scale;
    }
    //# hole Take the keys out that are not there.
    for (int j = keys; j < Bc; ++j) s[j] = -INFINITY;
    //# skeleton: l counts keys that are not there
    //|
    //# wrong zeroed: l counts keys that are not there
    //| for (int j = keys; j < Bc; ++j) s[j] = 0;
    //# wrong off-by-one: One key too few
    //| for (int j = keys - 1; j < Bc; ++j) s[j] = -INFINITY;
    //# wrong one-left: One key that is not there is left
    //| for (int j = keys + 1; j < Bc; ++j) s[j] = -INFINITY;
    //# wrong finite-sentinel: A large negative number is a score like others
    //| for (int j = keys; j < Bc; ++j) s[j] = -1e10f;
    //# also lowest-float
    //| for (int j = keys; j < Bc; ++j) s[j] = -3.40282347e38f;
    //# wrong global-index: l counts keys that are not there
    //| for (int j = 0; j < Bc; ++j)
    //|   if (j >= N) s[j] = -INFINITY;
    //# also by-key
    //| for (int j = 0; j < Bc; ++j)
    //|   if (first_key + j >= N) s[j] = -INFINITY;
    //# also ternary
    //| for (int j = 0; j < Bc; ++j) s[j] = j < keys ? s[j] : -INFINITY;
    //# end

    float m_new = m;
    for (int j = 0; j < Bc; ++j) m_new = fmaxf(m_new, s[j]);
    const float alpha = expf(m - m_new);
    l *= alpha;
    for (int d = 0; d < D; ++d) o[d] *= alpha;
    for (int j = 0; j < Bc; ++j) {
      const float p = expf(s[j] - m_new);
      l += p;
      for (int d = 0; d < D; ++d) o[d] = fmaf(p, V_tile[j][d], o[d]);
    }
    m = m_new;
    __syncthreads();
  }
  if (row >= N) return;
  for (int d = 0; d < D; ++d) O[row * D + d] = o[d] / l;
}

//# judge

void judge(Trial& t) {
  constexpr int N = 40, kBlocks = (N + Br - 1) / Br;
  const double scale = 1 / std::sqrt(D);
  Floats Q = t.normal("Q", N * D), K = t.normal("K", N * D);
  const Floats V = t.normal("V", N * D);
  for (int j = 0; j < N; ++j) K[j * D] = 20;
  for (int i = 0; i < N * D; ++i) Q[i] = i == D ? -1e36f : i / D == 1 || i % D == 0 ? 0 : Q[i];  // row 1: all -7e36
  const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
  const auto o = t.alloc("O", N * D);
  attention<<<kBlocks, Br>>>(q.data(), k.data(), v.data(), o.data(), N, float(scale));
  t.findings();
  // As if `extra` keys with V = 0 and this score were there.
  const auto with = [&](int extra, double score) {
    Exact exact = exact_attention(Q, K, V, D, scale);
    for (int i = 0; extra && i < N; ++i)
      for (int d = 0; d < D; ++d) exact.O[i * D + d] /= 1 + extra * std::exp(score - exact.LSE[i]);
    return exact.O;
  };
  // Without the last key of each tile.
  Floats K_fewer, V_fewer;
  for (int j = 0; j < N; ++j) {
    if (j % Bc == Bc - 1 || j == N - 1) continue;
    K_fewer.insert(K_fewer.end(), &K[j * D], &K[j * D] + D);
    V_fewer.insert(V_fewer.end(), &V[j * D], &V[j * D] + D);
  }
  t.answer("O", t.download(o), with(0, 0), D,
           {{with(8, 0), "l counts keys that are not there: their scores are 0, and exp(0 - m) is not."},
            {with(1, 0), "One key that is not there is left: the first of them is s[keys]."},
            {exact_attention(Q, K_fewer, V_fewer, D, scale).O,
             "One key too few in each tile: keys 0 to keys - 1 are there."},
            {with(8, -1e10),
             "A large negative number is a score like others: all of row 1's are far below it, so the "
             "missing keys have won. -INFINITY is below each score."}});
  t.predicted(t.ledger().exps / (kBlocks * Br) - (N + Bc - 1) / Bc);  // without one alpha per tile
}
