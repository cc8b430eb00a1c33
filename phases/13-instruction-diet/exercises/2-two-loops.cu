// 13.2 two-loops: most tiles need no mask: up to which one may a block leave it out?
// An exercise of phase 13; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 13.2     Prove it: ./flash exercise --check 13.2

//# question
// A block has 16 rows of Q, and K/V arrive in tiles of 8 keys, from the last that the block sees to the first. Row i
// sees key j if j <= i + shift, and keys end at Sk. The step that multiplies a tile is compiled twice, with a mask and
// without. Of the tiles 0 to full - 1 every row of the block sees every key, so they go without it.
// Say what `full` is. It is tried with a bottom-right mask (shift = Sk - Sq), top-left (0), and none (shift = Sk).

//# predict 6 Bottom-right, Sq = 45, Sk = 60: how many tiles go through the masked loop, of all 3 blocks?

//# hint
// Which row of the block sees the fewest keys, and how many are they?
//# hint
// The first row sees the keys j <= first_row + shift, which are first_row + shift + 1. How many whole tiles are they?
//# hint
// min(first_row + shift + 1, Sk) / Bc, rounded down. Without Sk the tile in which K ends would count as whole.

//# because
// The first rows of the blocks see 16, 32 and 48 keys: 2, 4 and 6 full tiles of the 4, 6 and 8 that the blocks visit.
// 2 + 2 + 2 are left. However long K is, a block of 16 rows has no more than two or three of them.
//# next
// phases/13-instruction-diet/notebook.cpp, "Two loops". Why from the last tile to the first? So the ragged end of K and
// the diagonal both come first, and everything behind them is the same whole tile again and again.

//# code

constexpr int D = 8, Br = 16, Bc = 8;

// A thread per row.
__global__ void attention(const float* Q /*[Sq, D]*/, const float* K /*[Sk, D]*/, const float* V /*[Sk, D]*/,
                          float* O /*[Sq, D]*/, int Sq, int Sk, int shift, float scale) {
  __shared__ float K_tile[Bc][D], V_tile[Bc][D];
  const int first_row = blockIdx.x * Br, row = first_row + threadIdx.x;
  float q[D], o[D] = {}, m = -INFINITY, l = 0;
  for (int d = 0; d < D; ++d) q[d] = row < Sq ? Q[row * D + d] : 0.0f;

  // The last row sees the most keys. Tiles 0 to seen - 1 have one of them.
  const int seen = (min(min(first_row + Br, Sq) + shift, Sk) + Bc - 1) / Bc;
  //# hole Of which tiles, counted from the first, does every row of the block see every key?
  const int full = min(first_row + shift + 1, Sk) / Bc;
  //# skeleton: tiles are masked of which every row sees every key
  //| const int full = 0;
  //# wrong last-row: The row that sees the most
  //| const int full = min(min(first_row + Br, Sq) + shift, Sk) / Bc;
  //# wrong all-but-the-last: tile before the last one that the block visits
  //| const int full = seen - 1;
  //# wrong rounded-up: A tile that the first row sees in part
  //| const int full = (min(first_row + shift + 1, Sk) + Bc - 1) / Bc;
  //# wrong end-forgotten: K ends within its last tile
  //| const int full = (first_row + shift + 1) / Bc;
  //# wrong shift-forgotten: the first row sees the keys up to first_row + shift
  //| const int full = min(first_row + 1, Sk) / Bc;
  //# wrong one-less: which are first_row + shift + 1
  //| const int full = min(first_row + shift, Sk) / Bc;
  //# wrong seen-minus-2: Two masked tiles are not always enough
  //| const int full = seen - 2;
  //# wrong seen-minus-blocks: Two masked tiles are not always enough
  //| const int full = seen - Br / Bc;
  //# wrong seen-minus-3: a tile that does not exist
  //| const int full = seen - 3;
  //# wrong shift-rounded: tiles are masked of which every row sees every key
  //| const int full = min((first_row + 1) / Bc + shift / Bc, Sk / Bc);
  //# wrong own-row: The threads of a block load each tile together
  //| const int full = min(row + shift + 1, Sk) / Bc;
  //# wrong two-more: j <= x are x + 1 keys, no more
  //| const int full = min(first_row + shift + 2, Sk) / Bc;
  //# also minimum-of-quotients
  //| const int full = min((first_row + shift + 1) / Bc, Sk / Bc);
  //# also rounded-differently
  //| const int full = (min(first_row + shift, Sk - 1) + 1) / Bc;
  //# end

  int tile = seen - 1;
  const auto step = [&](auto masked) {
    constexpr bool kMasked = decltype(masked)::value;
    trace_mark(kMasked ? "masked" : "full", tile);
    for (int i = threadIdx.x; i < Bc * D; i += Br) {
      const bool inside = tile * Bc + i / D < Sk;
      K_tile[i / D][i % D] = inside ? K[tile * Bc * D + i] : 0.0f;
      V_tile[i / D][i % D] = inside ? V[tile * Bc * D + i] : 0.0f;
    }
    __syncthreads();
    for (int j = 0; j < Bc; ++j) {
      const int key = tile * Bc + j;
      if (kMasked && (key > row + shift || key >= Sk)) continue;
      float s = 0;
      for (int d = 0; d < D; ++d) s = fmaf(q[d], K_tile[j][d], s);
      s *= scale;
      const float m_new = fmaxf(m, s), alpha = expf(m - m_new), p = expf(s - m_new);
      l = fmaf(l, alpha, p);
      for (int d = 0; d < D; ++d) o[d] = fmaf(o[d], alpha, p * V_tile[j][d]);
      m = m_new;
    }
    __syncthreads();
  };
  for (; tile >= full; --tile) step(std::true_type());
  for (; tile >= 0; --tile) step(std::false_type());
  if (row < Sq)
    for (int d = 0; d < D; ++d) O[row * D + d] = o[d] / l;
}

//# judge

void judge(Trial& t) {
  const double scale = 1 / std::sqrt(D);
  const auto launch = [&](int Sq, int Sk, int shift, const std::string& mask) {
    const Floats Q = t.normal("Q", Sq * D), K = t.normal("K", Sk * D), V = t.normal("V", Sk * D);
    const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
    const auto o = t.alloc("O", Sq * D);
    t.machine.clear();
    attention<<<(Sq + Br - 1) / Br, Br>>>(q.data(), k.data(), v.data(), o.data(), Sq, Sk, shift, float(scale));
    t.findings({{"divergent",
                 "The threads of a block load each tile together, and wait: `full` must be the same for all its rows."},
                {"[-", "The loop goes on to a tile that does not exist: `full` is below 0."},
                {"out of bounds", "A block goes on without a mask where K has no keys: K ends at Sk."}});
    // Row i sees its own keys and, as no mask keeps them out, those of its block's first tiles; beyond Sk are zeros.
    const int whole = (Sk + Bc - 1) / Bc * Bc;
    Floats longer_K = K, longer_V = V;
    longer_K.resize(std::size_t(whole) * D), longer_V.resize(std::size_t(whole) * D);
    const auto taking = [&](auto full) {
      return exact_attention(Q, longer_K, longer_V, D, scale,
                             [=](int i) {
                               const int first = i / Br * Br, last = std::min(first + Br, Sq) - 1;
                               const int seen = (std::min(last + 1 + shift, Sk) + Bc - 1) / Bc;
                               return std::max(std::min(i + shift + 1, Sk), std::min(full(first, last), seen) * Bc);
                             })
          .O;
    };
    t.answer(
        "O", t.download(o), taking([](int, int) { return 0; }), D,
        {{taking([=](int, int last) { return std::min(last + 1 + shift, Sk) / Bc; }),
          "The row that sees the most keys decides, and rows above it see their future. (" + mask + ")"},
         {taking([=](int, int last) { return (std::min(last + 1 + shift, Sk) + Bc - 1) / Bc - 1; }),
          "The tile before the last one that the block visits lies on the diagonal, too: Br is 2 Bc. (" + mask + ")"},
         {taking([=](int first, int) { return std::min(first + 2 + shift, Sk) / Bc; }),
          "A tile counts as full of whose last key the first row sees nothing: j <= x are x + 1 keys, no more. (" +
              mask + ")"},
         {taking([=](int, int last) { return (std::min(last + 1 + shift, Sk) + Bc - 1) / Bc - 2; }),
          "Two masked tiles are not always enough: the first row may end in the third from the end. (" + mask + ")"},
         {taking([=](int first, int) { return (std::min(first + 1 + shift, Sk) + Bc - 1) / Bc; }),
          "A tile that the first row sees in part is not full: round down. (" + mask + ")"},
         {taking([=](int first, int) { return (first + 1 + shift) / Bc; }),
          "Keys that do not exist have been counted: K ends within its last tile. (" + mask + ")"}});
    std::uint64_t masked = 0;
    for (const TraceEvent& event : t.machine.trace()) masked += event.name == "masked";
    return masked;
  };
  launch(40, 60, 60, "without a mask");
  launch(60, 60, 0, "top-left");
  launch(48, 60, 12, "bottom-right, Sq = 48");
  launch(46, 60, 14, "bottom-right, Sq = 46");
  const std::uint64_t masked = launch(45, 60, 15, "bottom-right");
  t.count(
      "the number of masked tiles", masked, 6,
      "Some tiles are masked of which every row sees every key: the first row sees the keys up to first_row + shift, "
      "which are first_row + shift + 1.");
  t.predicted(masked);
}
