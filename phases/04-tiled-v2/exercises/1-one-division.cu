// 04.1 one-division: Q outside, K and V inside: when is O divided by l, and when does it go to HBM?
// An exercise of phase 04; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 04.1     Prove it: ./flash exercise --check 04.1

//# question
// A tile of 16 rows meets K and V in tiles of 8 keys. m, l and o stay on chip all the time: that is what
// FlashAttention-2 gains over FlashAttention-1, which brings them back from HBM for each tile.
// Finish it: end the loop over the K/V tiles, and write the rows of O, divided by l. The budget in HBM bytes is tight.
// This is plain C++; one thread of the simulator runs it for each Q tile.

//# predict 8192 How many bytes of K are read, in all, for N = 64 and D = 8?

//# hint
// o is a sum that is not divided yet. Does the next K/V tile need it divided?
//# hint
// The brace that ends the loop over tiles can stand before the division.
//# hint
// }  and then, for each row r and column d: O[(first_row + r) * D + d] = o[r][d] / l[r];

//# because
// Each of the 4 Q tiles reads all of K: 4 * 64 * 8 * 4 bytes. Twice the rows per tile would be half the bytes; V the
// same. O is written once: 64 * 8 * 4 bytes.
//# next
// phases/04-tiled-v2/notebook.cpp puts both orders of the loops side by side.

//# code

constexpr int D = 8, Br = 16, Bc = 8;

__global__ void forward(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                        float* O /*[N, D]*/, int N, float scale) {
  const int first_row = blockIdx.x * Br;
  float q[Br][D], k[Bc][D], v[Bc][D];      // what a CPU phase calls SRAM
  float m[Br], l[Br] = {}, o[Br][D] = {};  // the state of each row
  for (int r = 0; r < Br; ++r) m[r] = -INFINITY;
  for (int i = 0; i < Br * D; ++i) q[i / D][i % D] = Q[first_row * D + i];

  for (int first_key = 0; first_key < N; first_key += Bc) {
    for (int i = 0; i < Bc * D; ++i) k[i / D][i % D] = K[first_key * D + i], v[i / D][i % D] = V[first_key * D + i];
    for (int r = 0; r < Br; ++r) {
      float s[Bc] = {}, m_new = m[r];
      for (int j = 0; j < Bc; ++j) {
        for (int d = 0; d < D; ++d) s[j] = fmaf(q[r][d], k[j][d], s[j]);
        s[j] *= scale;
        m_new = fmaxf(m_new, s[j]);
      }
      const float alpha = expf(m[r] - m_new);
      l[r] *= alpha;
      m[r] = m_new;
      for (int d = 0; d < D; ++d) o[r][d] *= alpha;
      for (int j = 0; j < Bc; ++j) {
        const float p = expf(s[j] - m_new);
        l[r] += p;
        for (int d = 0; d < D; ++d) o[r][d] = fmaf(p, v[j][d], o[r][d]);
      }
    }
    //# hole End the loop over K/V tiles here, or later; divide by l, and write O.
  }
  for (int r = 0; r < Br; ++r)
    for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d] / l[r];
  //# skeleton: O was never divided by l
  //| }
  //| for (int r = 0; r < Br; ++r)
  //|   for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d];
  //# wrong written-each-time: O goes to HBM once per K/V tile
  //|   for (int r = 0; r < Br; ++r)
  //|     for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d] / l[r];
  //| }
  //# wrong divided-each-time: O is divided by l after each tile
  //|   for (int r = 0; r < Br; ++r)
  //|     for (int d = 0; d < D; ++d) o[r][d] /= l[r];
  //| }
  //| for (int r = 0; r < Br; ++r)
  //|   for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d];
  //# wrong first-rows: Two Q tiles write the same rows of O
  //| }
  //| for (int r = 0; r < Br; ++r)
  //|   for (int d = 0; d < D; ++d) O[r * D + d] = o[r][d] / l[r];
  //# wrong divided-and-written-each-time: O is divided by l after each tile
  //|   for (int r = 0; r < Br; ++r)
  //|     for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d] /= l[r];
  //| }
  //# also if-last
  //|   if (first_key + Bc == N)
  //|     for (int r = 0; r < Br; ++r)
  //|       for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d] / l[r];
  //| }
  //# also reciprocal
  //| }
  //| for (int r = 0; r < Br; ++r) {
  //|   const float one_over_l = 1 / l[r];
  //|   for (int d = 0; d < D; ++d) O[(first_row + r) * D + d] = o[r][d] * one_over_l;
  //| }
  //# end
}

//# judge

void judge(Trial& t) {
  constexpr int N = 64;
  const double scale = 1 / std::sqrt(D);
  const Floats Q = t.normal("Q", N * D), K = t.normal("K", N * D), V = t.normal("V", N * D);
  const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
  const auto o = t.alloc("O", N * D);
  forward<<<N / Br, 1>>>(q.data(), k.data(), v.data(), o.data(), N, float(scale));
  t.findings({{"race", "Two Q tiles write the same rows of O: this tile's begin at first_row."}});
  const Exact exact = exact_attention(Q, K, V, D, scale);
  // o not divided: exact O times l = exp(LSE - m). o divided after each tile and then taken for the sum: replayed.
  Doubles undivided(N * D), again(N * D);
  for (int i = 0; i < N; ++i) {
    double m = -INFINITY, l = 0, sum[D] = {}, divided[D] = {};
    for (int first = 0; first < N; first += Bc) {
      double s[Bc] = {}, m_new = m;
      for (int j = 0; j < Bc; ++j) {
        for (int d = 0; d < D; ++d) s[j] += scale * Q[i * D + d] * K[(first + j) * D + d];
        m_new = std::max(m_new, s[j]);
      }
      const double alpha = std::exp(m - m_new);
      l *= alpha;
      for (int d = 0; d < D; ++d) sum[d] *= alpha, divided[d] *= alpha;
      for (int j = 0; j < Bc; ++j) {
        const double p = std::exp(s[j] - m_new);
        l += p;
        for (int d = 0; d < D; ++d) sum[d] += p * V[(first + j) * D + d], divided[d] += p * V[(first + j) * D + d];
      }
      for (int d = 0; d < D; ++d) divided[d] /= l;
      m = m_new;
    }
    for (int d = 0; d < D; ++d) undivided[i * D + d] = sum[d], again[i * D + d] = divided[d];
  }
  t.answer("O", t.download(o), exact.O, D,
           {{undivided, "O was never divided by l: it is a sum of weights times values, not yet a mean."},
            {again,
             "O is divided by l after each tile, and the next tile adds undivided terms to it: divide once, at "
             "the end, or multiply back as FlashAttention-1 does."}});
  t.count("the traffic of O in bytes", t.traffic("O").written_bytes, N * D * 4,
          "O goes to HBM once per K/V tile: nobody reads it before the last one.");
  t.count("what is read from HBM, in bytes,", t.ledger().hbm_read_bytes(), (N / Br * 2 + 1) * N * D * 4,
          "Something is read again that was on chip already.");
  t.predicted(t.traffic("K").read_bytes);
}
