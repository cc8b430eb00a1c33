// 16.1 order: two products under way: in which order are they begun, and what waits for which?
// An exercise of phase 16; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 16.1     Prove it: ./flash exercise --check 16.1

//# question
// A warpgroup computes attention of 64 rows over tiles of 64 keys, which are all in shared memory. The loop below does
// one step after the other, and while the softmax is calculated the tensor cores have nothing to do. Five steps make a
// round, and you may call them in any order:
//     begin_scores(tile)         begins s = Q Kᵀ
//     begin_output(tile)         begins o += p V
//     softmax(tile)              turns s into probabilities, and says in alpha how o must be rescaled
//     rescale_and_round()        o *= alpha, and p = s rounded: the left operand of o += p V
//     wait_for<n>(arrays...)     all products but the last n are done; names the arrays that may be used now
// Products are done in the order in which they were begun. Let o += p V of the tile before run while softmax(tile) is
// calculated. The first softmax and the last product stand outside of the loop.

//# predict 3 There are four tiles: during how many of the four softmaxes is a product under way?

//# hint
// What does softmax(tile) need, and what does it not touch? s of this tile must be there; p and o may still be in use
// for the tile before.
//# hint
// wait_for<1> leaves the product under way that was begun last. Which of the two do you need first?
//# hint
// begin_scores(tile); begin_output(tile - 1); wait_for<1>(s); softmax(tile); wait_for<0>(o, p); rescale_and_round();

//# because
// All but the first, before which there is no P. In an attention of 100 tiles that is 99 of 100.
//# next
// phases/16-overlap/notebook.cpp, "Two products under way". Phase 18 fills the gap at the beginning of a Q tile, too.

//# code

constexpr int D = 64, kKeys = 64;

struct Tiles {
  alignas(1024) __half Q[64][D], K[4][kKeys][D], V[4][kKeys][D];
  std::uint64_t full;
};

template <int kPending, class... Arrays>
__device__ void wait_for(Arrays&... arrays) {
  trace_mark("all but", kPending);
  (trace_mark("named", std::rank_v<Arrays>), ...);  // 2: p
  wgmma_wait<kPending>(arrays...);
}

__global__ void __launch_bounds__(128)
    attention(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
              const __grid_constant__ TensorMap V_map, float* O /*[64, D]*/, int tiles) {
  Tiles& shared_tiles = shared<Tiles>();
  if (threadIdx.x == 0) {
    mbarrier_init(&shared_tiles.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&shared_tiles.full, sizeof shared_tiles.Q + 2 * tiles * sizeof shared_tiles.K[0]);
    cp_async_bulk_tensor(shared_tiles.Q, &Q_map, &shared_tiles.full, 0, 0);
    for (int tile = 0; tile < tiles; ++tile) {
      cp_async_bulk_tensor(shared_tiles.K[tile], &K_map, &shared_tiles.full, 0, tile * kKeys);
      cp_async_bulk_tensor(shared_tiles.V[tile], &V_map, &shared_tiles.full, 0, tile * kKeys);
    }
  }
  __syncthreads();  // the barrier is there
  mbarrier_wait(&shared_tiles.full, 0);

  // Element i of s, and of o, is one of the lane's row i / 2 % 2.
  float s[kKeys / 2], o[D / 2] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {}, alpha[2];
  unsigned p[kKeys / 16][4];
  const auto begin_scores = [&](int tile) {
    trace_mark("S", tile);
    const MatrixDescriptor q = matrix_descriptor(shared_tiles.Q), k = matrix_descriptor(shared_tiles.K[tile]);
    wgmma_fence();
    for (int d = 0; d < D; d += 16) wgmma_m64nNk16<__half>(s, q + d * 2, k + d * 2, d != 0);
    wgmma_commit();
  };
  const auto begin_output = [&](int tile) {
    trace_mark("PV", tile);
    const MatrixDescriptor v = matrix_descriptor(shared_tiles.V[tile]);
    wgmma_fence();
    for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
    wgmma_commit();
  };
  const auto softmax = [&](int tile) {
    trace_mark("softmax", tile);
    float top[2] = {m[0], m[1]}, sum[2] = {};
    for (int i = 0; i < kKeys / 2; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
    for (float& x : top) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1)), x = fmaxf(x, __shfl_xor_sync(~0u, x, 2));
    for (int i = 0; i < kKeys / 2; ++i) sum[i / 2 % 2] += s[i] = exp2f(s[i] - top[i / 2 % 2]);
    for (int r = 0; r < 2; ++r) {
      alpha[r] = exp2f(m[r] - top[r]);
      l[r] = l[r] * alpha[r] + sum[r], m[r] = top[r];
    }
  };
  const auto rescale_and_round = [&] {
    trace_mark("round");
    for (int i = 0; i < D / 2; ++i) o[i] *= alpha[i / 2 % 2];
    for (int i = 0; i < kKeys / 4; ++i) {
      const unsigned low = __half_as_ushort(__float2half(s[2 * i]));
      p[i / 4][i % 4] = low | unsigned{__half_as_ushort(__float2half(s[2 * i + 1]))} << 16;
    }
  };

  begin_scores(0);
  wait_for<0>(s);
  softmax(0);
  rescale_and_round();
  for (int tile = 1; tile < tiles; ++tile) {
    //# hole Let the product with V of the tile before run while softmax(tile) is calculated.
    begin_scores(tile);
    begin_output(tile - 1);
    wait_for<1>(s);
    softmax(tile);
    wait_for<0>(o, p);
    rescale_and_round();
    //# skeleton: nothing is multiplied while a softmax is calculated
    //| begin_output(tile - 1);
    //| wait_for<0>(o, p);
    //| begin_scores(tile);
    //| wait_for<0>(s);
    //| softmax(tile);
    //| rescale_and_round();
    //# wrong wait-for-both: nothing is multiplied while a softmax is calculated
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<0>(s, o, p);
    //| softmax(tile);
    //| rescale_and_round();
    //# wrong output-first: leaves a product under way whose array it names
    //| begin_output(tile - 1);
    //| begin_scores(tile);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //| rescale_and_round();
    //# wrong all-at-once: leaves a product under way whose array it names
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s, o, p);
    //| softmax(tile);
    //| rescale_and_round();
    //# wrong output-not-waited-for: o and p are still in use
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| rescale_and_round();
    //| wait_for<0>(o, p);
    //# wrong not-named: o and p are still in use
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>();
    //| rescale_and_round();
    //# wrong output-of-this-tile: P of one tile was multiplied by V of another
    //| begin_scores(tile);
    //| begin_output(tile);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //| rescale_and_round();
    //# wrong no-output: The last V tile alone is in O
    //| begin_scores(tile);
    //| wait_for<0>(s);
    //| softmax(tile);
    //| rescale_and_round();
    //# wrong p-not-named: before a wait has named p
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(o);
    //| rescale_and_round();
    //# wrong o-not-named: o and p are still in use
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(p);
    //| rescale_and_round();
    //# wrong s-not-named: s of this tile is not there yet
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>();
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //| rescale_and_round();
    //# wrong s-not-waited-for: s of this tile is not there yet
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //| rescale_and_round();
    //# wrong no-scores: S = Q K
    //| begin_output(tile - 1);
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //| rescale_and_round();
    //# wrong rescale-first: o and p are still in use
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| rescale_and_round();
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //# wrong rescale-forgotten: rescale_and_round()
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //# also all-named
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(s, o, p);
    //| rescale_and_round();
    //# also named-one-by-one
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(o);
    //| wait_for<0>(p);
    //| rescale_and_round();
    //# wrong wait-2: leaves a product under way whose array it names
    //| begin_scores(tile);
    //| begin_output(tile - 1);
    //| wait_for<2>(s);
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //| rescale_and_round();
    //# wrong next-scores: S = Q K
    //| begin_scores(tile + 1);
    //| begin_output(tile - 1);
    //| wait_for<1>(s);
    //| softmax(tile);
    //| wait_for<0>(o, p);
    //| rescale_and_round();
    //# end
  }
  begin_output(tiles - 1);
  wait_for<0>(o, p);

  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  for (float& x : l) x += __shfl_xor_sync(0xffffffffu, x, 1), x += __shfl_xor_sync(0xffffffffu, x, 2);
  for (int i = 0; i < D / 2; ++i)
    O[(row + i / 2 % 2 * 8) * D + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = o[i] / l[i / 2 % 2];
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 4, N = kTiles * kKeys;
  const auto halves = [&](const std::string& name, int rows, float factor) {
    std::vector<__half> values;
    for (const float value : t.normal(name, rows * D)) values.push_back(__float2half(factor * value));
    return values;
  };
  const auto Q = halves("Q", 64, 0.25f), K = halves("K", N, 1), V = halves("V", N, 1);
  const auto q = t.upload("Q", Q), k = t.upload("K", K), v = t.upload("V", V);
  const auto o = t.alloc("O", 64 * D);
  const auto map = [](const auto& x) { return tensor_map<__half, 2>(x.data(), {D, x.size() / D}, {D * 2}, {64, 64}); };
  cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Tiles)));
  attention<<<1, 128, sizeof(Tiles)>>>(map(q), map(k), map(v), o.data(), kTiles);
  // Of the first warp, what its steps have left under way when they came.
  struct {
    std::uint64_t products = 0, beside = 0;     // under way; softmaxes beside a product
    bool scores = true, named = true;           // of S: waited for; of p: named by a wait behind its product
    bool s_early = false, p_early = false;      // softmax without S; p written before
    bool s_wrong = false, not_rounded = false;  // of another tile; a P that was never rounded
  } seen;
  long scores_of = 0, rounded = 0;
  for (const TraceEvent& event : t.machine.trace()) {
    if (event.warp != 0) continue;
    if (event.name == "S") ++seen.products, scores_of = event.value, seen.scores = false;
    if (event.name == "PV") ++seen.products, seen.named = false, seen.not_rounded |= event.value > 0 && !rounded--;
    if (event.name == "all but") seen.products = std::min(seen.products, std::uint64_t(event.value));
    if (event.name == "named" && event.value == 1) seen.scores = true;
    if (event.name == "named" && event.value == 2) seen.named = true;
    if (event.name == "round") seen.p_early |= !seen.named, rounded = 1;
    if (event.name != "softmax") continue;
    seen.beside += seen.products > 0, seen.s_early |= !seen.scores, seen.s_wrong |= scores_of != event.value;
  }
  t.findings(
      {{"names an array whose product it leaves under way",
        "A wait leaves a product under way whose array it names: begin S before PV, and of the two wait for S, with "
        "wait_for<1>(s)."},
       {"", seen.s_early
                ? "s of this tile is not there yet: before softmax(tile), wait for S, and name s."
                : "o and p are still in use: before o is rescaled and p written, wait for the product and name "
                  "both."}});
  t.expect(!seen.s_wrong,
           "softmax(tile) works on the scores of another tile: S = Q Kᵀ of this one has to be begun first.");
  t.expect(!seen.not_rounded,
           "P of a tile was multiplied before rescale_and_round() had made it, or o was not rescaled.");

  // P of tile n, multiplied by V of tile n + shift; of the tiles from `first` on.
  const auto answer = [&](int first, int shift) {
    Doubles O(64 * D);
    for (int i = 0; i < 64; ++i) {
      double s[N], l = 0, top = -INFINITY;
      for (int j = 0; j < N; ++j) {
        s[j] = 0;
        for (int d = 0; d < D; ++d) s[j] += double(__half2float(Q[i * D + d])) * __half2float(K[j * D + d]);
        top = std::max(top, s[j]);
      }
      for (double& x : s) l += x = std::exp2(x - top);
      for (int j = first * kKeys; j < N; ++j) {
        const int key = j / kKeys < kTiles - 1 ? j + shift * kKeys : j;
        for (int d = 0; d < D; ++d) O[i * D + d] += s[j] / l * __half2float(V[key * D + d]);
      }
    }
    return O;
  };
  t.answer("O", t.download(o), answer(0, 0), D,
           {{answer(0, 1), "P of one tile was multiplied by V of another: p is still that of the tile before."},
            {answer(kTiles - 1, 0), "The last V tile alone is in O: what has become of the others?"}},
           2e-3);
  t.demand(
      !seen.p_early,
      "p is written before a wait has named p: on a GPU the compiler may write it while the product still reads it.");
  t.demand(seen.beside == kTiles - 1, "nothing is multiplied while a softmax is calculated.");
  t.predicted(seen.beside);
}
