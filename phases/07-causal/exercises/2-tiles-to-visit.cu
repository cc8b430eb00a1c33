// 07.2 tiles-to-visit: half of the tiles need not be loaded: which ones?
// An exercise of phase 07; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 07.2     Prove it: ./flash exercise --check 07.2

//# question
// A block has 16 rows of Q, and K/V arrive in tiles of 8 keys. The mask, j <= i, is applied key by key below, so the
// answer is right already, when all tiles are visited. But tiles that no row of the block sees should not be loaded.
// Say how many tiles the block visits.

//# predict 20 N = 64: how many of the 4 * 8 tiles are loaded, in all?

//# hint
// Which row of the block sees the most keys, and how many are they?
//# hint
// The last row is first_row + Br - 1, and it sees one key more than that. How many tiles have these keys, rounded up?
//# hint
// (first_row + Br + Bc - 1) / Bc, and never more than there are: the last block may have rows beyond N.

//# because
// 2 + 4 + 6 + 8: the block at rows 16 b to 16 b + 15 needs 2 (b + 1) tiles. Of N x N it approaches one half.
//# next
// phases/07-causal/notebook.cpp: full tiles, tiles on the diagonal, skipped ones. Only those on the diagonal are masked
// there.

//# code

constexpr int D = 8, Br = 16, Bc = 8;

__global__ void attention(const float* Q /*[N, D]*/, const float* K /*[N, D]*/, const float* V /*[N, D]*/,
                          float* O /*[N, D]*/, int N, float scale) {
  __shared__ float K_tile[Bc][D], V_tile[Bc][D];
  const int first_row = blockIdx.x * Br, row = first_row + threadIdx.x;
  float q[D], o[D] = {}, m = -INFINITY, l = 0;
  for (int d = 0; d < D; ++d) q[d] = Q[row * D + d];

  //# hole How many K/V tiles must this block visit? N is a multiple of Br here.
  const int tiles = (first_row + Br + Bc - 1) / Bc;
  //# skeleton: tiles are loaded that no row sees
  //| const int tiles = N / Bc;
  //# wrong first-row: One tile is missing
  //| const int tiles = first_row / Bc + 1;
  //# wrong half-of-all: tiles are loaded that no row sees
  //| const int tiles = max(N / Bc / 2, (first_row + Br) / Bc);
  //# wrong one-more: tiles are loaded that no row sees
  //| const int tiles = min((first_row + Br) / Bc + 1, N / Bc);
  //# wrong rows-for-keys: A tile has Bc keys
  //| const int tiles = blockIdx.x + 1;
  //# wrong first-row-no-one: visits no tile at all
  //| const int tiles = first_row / Bc;
  //# wrong last-row-no-one: One tile is missing
  //| const int tiles = (first_row + Br - 1) / Bc;
  //# wrong own-row: must agree
  //| const int tiles = row / Bc + 1;
  //# also exact
  //| const int tiles = (blockIdx.x + 1) * (Br / Bc);
  //# also clamped
  //| const int tiles = min((first_row + Br - 1) / Bc + 1, N / Bc);
  //# end
  for (int tile = 0; tile < tiles; ++tile) {
    for (int i = threadIdx.x; i < Bc * D; i += Br) {
      K_tile[i / D][i % D] = K[tile * Bc * D + i];
      V_tile[i / D][i % D] = V[tile * Bc * D + i];
    }
    __syncthreads();
    for (int j = 0; j < Bc && tile * Bc + j <= row; ++j) {
      float s = 0;
      for (int d = 0; d < D; ++d) s = fmaf(q[d], K_tile[j][d], s);
      s *= scale;
      const float m_new = fmaxf(m, s), alpha = expf(m - m_new), p = expf(s - m_new);
      l = fmaf(l, alpha, p);
      for (int d = 0; d < D; ++d) o[d] = fmaf(o[d], alpha, p * V_tile[j][d]);
      m = m_new;
    }
    __syncthreads();
  }
  for (int d = 0; d < D; ++d) O[row * D + d] = o[d] / l;
}

//# judge

void judge(Trial& t) {
  constexpr int N = 64;
  const double scale = 1 / std::sqrt(D);
  const Floats Q = t.normal("Q", N * D), K = t.normal("K", N * D), V = t.normal("V", N * D);
  const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
  const auto o = t.alloc("O", N * D);
  attention<<<N / Br, Br>>>(q.data(), k.data(), v.data(), o.data(), N, float(scale));
  t.findings({{"out of bounds", "There are only N / Bc tiles."},
              {"barrier", "The threads of a block must agree how many tiles it visits: they load them together."}});
  // Row i sees its past, of the keys that its block visits.
  const auto visiting = [&](auto keys) {
    return exact_attention(Q, K, V, D, scale, [=](int i) { return std::min(i + 1, keys(i / Br)); }).O;
  };
  const Floats got = t.download(o);
  t.expect(
      !std::isnan(got[0]),
      "The block that begins with row 0 visits no tile at all, and yet each row sees itself: its last row decides.");
  t.answer("O", got, visiting([](int) { return N; }), D,
           {{visiting([](int b) { return (b * Br / Bc + 1) * Bc; }),
             "One tile is missing: these are as many as the block's first row sees, and its last row sees more keys."},
            {visiting([](int b) { return (b + 1) * Bc; }),
             "A tile has Bc keys, not Br: a block of 16 rows moves the diagonal on by two tiles."}});
  const std::uint64_t tile_bytes = Bc * D * 4;
  t.count("the number of tiles", t.traffic("K").read_bytes / tile_bytes, 20,
          "Some tiles are loaded that no row sees: the last row of a block sees first_row + Br keys.");
  t.predicted(t.traffic("K").read_bytes / tile_bytes);
}
