// 22.1 two-readers: wgmma and the lanes read one stage: when may it be given back?
// An exercise of phase 22; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 22.1     Prove it: ./flash exercise --check 22.1

//# question
// One thread loads tiles of 64 queries, and with each the number δ of its rows; both lie in one stage and come on one
// mbarrier. A warpgroup, the consumer, makes S = K Qᵀ by wgmma and adds up S - δ for each key. There are two stages,
// and a stage's `empty` needs four arrivals, one for each of the consumer's warps. The loop has these steps, and you
// may call them in any order:
//     wgmma_wait<0>(s)               the product that was begun last is done: s is there
//     add_up(stage)                  adds s - δ: the lanes read δ from the stage
//     __syncwarp()                   all lanes of the warp have come here
//     give_back(stage)               an arrival at the stage's `empty`
// Say in which order, and who calls give_back.

//# predict 98304 With 6 tiles: how many bytes does wgmma read from shared memory? Rows are 128 bytes long.

//# hint
// Two things read the stage: wgmma reads Q, and the lanes read δ. Which of them does wgmma_wait speak of?
//# hint
// give_back by one lane says that 32 lanes have read. What makes that true?
//# hint
// wgmma_wait<0>(s); add_up(stage); __syncwarp(); if (lane == 0) give_back(stage);

//# because
// Both operands lie in shared memory, 64 rows of 128 bytes each: 16,384 bytes for each of 6 tiles. δ is read by the
// lanes, and so it is not among them.
//# next
// phases/22-backward-roles/notebook.cpp, "A warpgroup that loads": where this very race was found.

//# code

constexpr int D = 64, kQueries = 64, kKeys = 64, kStages = 2, kWarps = 4;

struct Tiles {
  alignas(1024) __half K[kKeys][D];
  alignas(1024) __half Q[kStages][kQueries][D];
  alignas(16) float delta[kStages][kQueries];
  std::uint64_t K_full, full[kStages], empty[kStages];
};

__global__ void __launch_bounds__(32 * (kWarps + 1))
    sum_scores(const __grid_constant__ TensorMap Q_map, const __grid_constant__ TensorMap K_map,
               const float* delta /*[tiles, kQueries]*/, float* sums /*[kKeys]*/, int tiles) {
  Tiles& x = shared<Tiles>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    mbarrier_init(&x.K_full, 1);
    for (int i = 0; i < kStages; ++i) mbarrier_init(&x.full[i], 1), mbarrier_init(&x.empty[i], kWarps);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there
  int stage = 0;
  unsigned parity = 0;
  const auto next = [&] {
    if (++stage == kStages) stage = 0, parity ^= 1;
  };
  if (warp == kWarps) {
    if (lane != 0) return;
    mbarrier_arrive_expect_tx(&x.K_full, sizeof x.K);
    cp_async_bulk_tensor(x.K, &K_map, &x.K_full, 0, 0);
    for (int tile = 0; tile < tiles; ++tile, next()) {
      mbarrier_wait(&x.empty[stage], parity ^ 1);
      mbarrier_arrive_expect_tx(&x.full[stage], sizeof x.Q[0] + sizeof x.delta[0]);
      cp_async_bulk_tensor(x.Q[stage], &Q_map, &x.full[stage], 0, tile * kQueries);
      cp_async_bulk(x.delta[stage], delta + tile * kQueries, sizeof x.delta[0], &x.full[stage]);
    }
    return;
  }
  // Element i of s: key warp · 16 + lane / 4 (+ 8), query i / 4 · 8 + lane % 4 · 2 (+ 1).
  float s[kQueries / 2], sum[2] = {};
  const auto begin_scores = [&](int stage) {
    const MatrixDescriptor k = matrix_descriptor(x.K), q = matrix_descriptor(x.Q[stage]);
    wgmma_fence();
    for (int d = 0; d < D; d += 16) wgmma_m64nNk16<__half>(s, k + d * 2, q + d * 2, d != 0);
    wgmma_commit();
  };
  const auto add_up = [&](int stage) {
    for (int i = 0; i < kQueries / 2; ++i) sum[i / 2 % 2] += s[i] - x.delta[stage][i / 4 * 8 + lane % 4 * 2 + i % 2];
  };
  const auto give_back = [&](int stage) { mbarrier_arrive(&x.empty[stage]); };

  mbarrier_wait(&x.K_full, 0);
  for (int tile = 0; tile < tiles; ++tile, next()) {
    mbarrier_wait(&x.full[stage], parity);
    begin_scores(stage);
    //# hole Wait for s, add up, and give the stage back for this warp.
    wgmma_wait<0>(s);
    add_up(stage);
    __syncwarp();
    if (lane == 0) give_back(stage);
    //# skeleton: loaded anew while lanes may still read
    //| wgmma_wait<0>(s);
    //| if (lane == 0) give_back(stage);
    //| add_up(stage);
    //# wrong no-syncwarp: loaded anew while lanes may still read
    //| wgmma_wait<0>(s);
    //| add_up(stage);
    //| if (lane == 0) give_back(stage);
    //# wrong syncwarp-before: loaded anew while lanes may still read
    //| wgmma_wait<0>(s);
    //| __syncwarp();
    //| add_up(stage);
    //| if (lane == 0) give_back(stage);
    //# wrong before-the-wait: while wgmma still reads Q
    //| if (lane == 0) give_back(stage);
    //| wgmma_wait<0>(s);
    //| add_up(stage);
    //# wrong all-lanes: gets more arrivals than the four
    //| wgmma_wait<0>(s);
    //| add_up(stage);
    //| give_back(stage);
    //# wrong one-warp: wait for each other
    //| wgmma_wait<0>(s);
    //| add_up(stage);
    //| __syncwarp();
    //| if (threadIdx.x == 0) give_back(stage);
    //# wrong never: wait for each other
    //| wgmma_wait<0>(s);
    //| add_up(stage);
    //# wrong no-wait: s is not there yet
    //| add_up(stage);
    //| __syncwarp();
    //| if (lane == 0) give_back(stage);
    //# wrong other-stage: wait for each other
    //| wgmma_wait<0>(s);
    //| add_up(stage);
    //| __syncwarp();
    //| if (lane == 0) give_back(0);
    //# also last-lane
    //| wgmma_wait<0>(s);
    //| add_up(stage);
    //| __syncwarp();
    //| if (lane == 31) give_back(stage);
    //# end
  }
  for (float& y : sum) y += __shfl_xor_sync(0xffffffffu, y, 1), y += __shfl_xor_sync(0xffffffffu, y, 2);
  for (int r = 0; r < 2; ++r)
    if (lane % 4 == 0) sums[warp * 16 + lane / 4 + 8 * r] = sum[r];
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 6, N = kTiles * kQueries;
  const auto halves = [&](const std::string& name, int rows) {
    std::vector<__half> values;
    for (const float value : t.normal(name, rows * D)) values.push_back(__float2half(value));
    return values;
  };
  const auto Q = halves("Q", N), K = halves("K", kKeys);
  const Floats delta = t.normal("delta", N);
  const auto q = t.upload("Q", Q), k = t.upload("K", K);
  const auto d = t.upload("delta", delta);
  const auto sums = t.alloc("sums", kKeys);
  const auto map = [](const auto& x) { return tensor_map<__half, 2>(x.data(), {D, x.size() / D}, {D * 2}, {64, 64}); };
  cudaFuncSetAttribute(sum_scores, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Tiles)));
  sum_scores<<<1, 32 * (kWarps + 1), sizeof(Tiles)>>>(map(q), map(k), d.data(), sums.data(), kTiles);
  t.findings(
      {{"completes while a thread waits",
        "A stage gets more arrivals than the four that were announced: one of each warp."},
       {"after wgmma", "The stage is given back while wgmma still reads Q: behind wgmma_wait it has read."},
       {"after read",
        "The stage is loaded anew while lanes may still read δ: wgmma_wait speaks of what wgmma reads, and one lane "
        "may "
        "speak for its warp behind __syncwarp() only."},
       {"deadlock",
        "Loading thread and consumer wait for each other: each stage needs an arrival of each of the four warps."},
       {"wgmma", "s is not there yet: wait for the product before you add it up."}});
  Doubles exact(kKeys);
  for (int key = 0; key < kKeys; ++key)
    for (int i = 0; i < N; ++i) {
      exact[key] -= delta[i];
      for (int c = 0; c < D; ++c)
        exact[key] += double(__half2float(K[key * D + c])) * double(__half2float(Q[i * D + c]));
    }
  t.answer("sums", t.download(sums), exact, kKeys, {}, 1e-4, "key");
  t.predicted(t.ledger().wgmma_shared_bytes);
}
