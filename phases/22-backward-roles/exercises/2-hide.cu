// 22.2 hide: dQ leaves while dK is multiplied: what is begun first, and what is waited for?
// An exercise of phase 22; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 22.2     Prove it: ./flash exercise --check 22.2

//# question
// A warpgroup has dSᵀ of 64 keys and of some tiles of 64 queries in shared memory. Each tile is multiplied twice:
// dK += dSᵀ Q is summed over all tiles, and dQ = dS K is stored for each tile. These are the steps of a tile:
//     begin_dq(tile)             begins dq = dS K
//     begin_dk(tile)             begins dk += dSᵀ Q
//     store_dq(tile)             stores dq in HBM
//     wait_for<n>(arrays...)     all products but the last n are done; names the arrays that may be used now
// Products are done in the order in which they were begun. The skeleton waits for everything at once. Let dk's product
// of the tile run while dq is stored. At the end of a tile no product is under way.

//# predict 4 There are 4 tiles: during how many of the 4 stores is a product under way?

//# hint
// store_dq needs dq alone. Which of the two products may still run then, and which one has to be begun first?
//# hint
// wait_for<1> leaves the product under way that was begun last.
//# hint
// begin_dq(tile); begin_dk(tile); wait_for<1>(dq); store_dq(tile); wait_for<0>(dk);

//# because
// All of them: dK of the same tile needs nothing of dQ, so no tile has to wait for another one. In phase 16 the first
// softmax had nothing beside it.
//# next
// phases/22-backward-roles/notebook.cpp, "An order that hides": with three more products in the same tile.

//# code

constexpr int D = 64, kRows = 64;

struct Tiles {
  alignas(1024) __half K[kRows][D], Q[4][kRows][D], dS[4][kRows][kRows];  // dSᵀ: [key][query]
  std::uint64_t full;
};

template <int kPending, class... Arrays>
__device__ void wait_for(Arrays&... arrays) {
  trace_mark("all but", kPending);
  wgmma_wait<kPending>(arrays...);
}

__global__ void __launch_bounds__(128)
    two_products(const __grid_constant__ TensorMap K_map, const __grid_constant__ TensorMap Q_map,
                 const __grid_constant__ TensorMap dS_map, float* dQ /*[tiles · 64, D]*/, float* dK /*[64, D]*/,
                 int tiles) {
  Tiles& x = shared<Tiles>();
  if (threadIdx.x == 0) {
    mbarrier_init(&x.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&x.full, sizeof x.K + tiles * (sizeof x.Q[0] + sizeof x.dS[0]));
    cp_async_bulk_tensor(x.K, &K_map, &x.full, 0, 0);
    for (int tile = 0; tile < tiles; ++tile) {
      cp_async_bulk_tensor(x.Q[tile], &Q_map, &x.full, 0, tile * kRows);
      cp_async_bulk_tensor(x.dS[tile], &dS_map, &x.full, 0, tile * kRows);
    }
  }
  __syncthreads();  // the barrier is there
  mbarrier_wait(&x.full, 0);

  // Element i of dq, and of dk: row `row` (+ 8), column i / 4 · 8 + `column` (+ 1).
  float dq[D / 2], dk[D / 2] = {};
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  const auto begin_dq = [&](int tile) {
    trace_mark("dQ", tile);
    const MatrixDescriptor ds = matrix_descriptor(x.dS[tile]), k = matrix_descriptor(x.K);
    wgmma_fence();
    for (int key = 0; key < kRows; key += 16)
      wgmma_m64nNk16<__half, Major::MN, Major::MN>(dq, ds + key * 128, k + key * 128, key != 0);
    wgmma_commit();
  };
  const auto begin_dk = [&](int tile) {
    trace_mark("dK", tile);
    const MatrixDescriptor ds = matrix_descriptor(x.dS[tile]), q = matrix_descriptor(x.Q[tile]);
    wgmma_fence();
    for (int query = 0; query < kRows; query += 16)
      wgmma_m64nNk16<__half, Major::MN>(dk, ds + query * 2, q + query * 128, true);
    wgmma_commit();
  };
  const auto store_dq = [&](int tile) {
    trace_mark("store", tile);
    for (int i = 0; i < D / 2; ++i) dQ[(tile * kRows + row + i / 2 % 2 * 8) * D + i / 4 * 8 + column + i % 2] = dq[i];
  };

  for (int tile = 0; tile < tiles; ++tile) {
    //# hole Let dk's product run while dq is stored.
    begin_dq(tile);
    begin_dk(tile);
    wait_for<1>(dq);
    store_dq(tile);
    wait_for<0>(dk);
    //# skeleton: no product is under way while dq is stored
    //| begin_dq(tile);
    //| begin_dk(tile);
    //| wait_for<0>(dq, dk);
    //| store_dq(tile);
    //# wrong one-by-one: no product is under way while dq is stored
    //| begin_dq(tile);
    //| wait_for<0>(dq);
    //| store_dq(tile);
    //| begin_dk(tile);
    //| wait_for<0>(dk);
    //# wrong dk-first: leaves a product under way whose array it names
    //| begin_dk(tile);
    //| begin_dq(tile);
    //| wait_for<1>(dq);
    //| store_dq(tile);
    //| wait_for<0>(dk);
    //# wrong both-named: leaves a product under way whose array it names
    //| begin_dq(tile);
    //| begin_dk(tile);
    //| wait_for<1>(dq, dk);
    //| store_dq(tile);
    //| wait_for<0>(dk);
    //# wrong not-waited-for: dq is not there yet
    //| begin_dq(tile);
    //| begin_dk(tile);
    //| store_dq(tile);
    //| wait_for<0>(dq, dk);
    //# wrong not-named: dq is not there yet
    //| begin_dq(tile);
    //| begin_dk(tile);
    //| wait_for<1>();
    //| store_dq(tile);
    //| wait_for<0>(dk);
    //# wrong no-dk: dK misses its sum
    //| begin_dq(tile);
    //| wait_for<0>(dq);
    //| store_dq(tile);
    //# wrong dk-of-tile-0: dK sums one tile again and again
    //| begin_dq(tile);
    //| begin_dk(0);
    //| wait_for<1>(dq);
    //| store_dq(tile);
    //| wait_for<0>(dk);
    //# also all-named
    //| begin_dq(tile);
    //| begin_dk(tile);
    //| wait_for<1>(dq);
    //| store_dq(tile);
    //| wait_for<0>(dq, dk);
    //# end
  }
  for (int i = 0; i < D / 2; ++i) dK[(row + i / 2 % 2 * 8) * D + i / 4 * 8 + column + i % 2] = dk[i];
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 4, N = kTiles * kRows;
  const auto halves = [&](const std::string& name, int rows) {
    std::vector<__half> values;
    for (const float value : t.normal(name, rows * D)) values.push_back(__float2half(value));
    return values;
  };
  const auto K = halves("K", kRows), Q = halves("Q", N), dS = halves("dS", N);
  const auto k = t.upload("K", K), q = t.upload("Q", Q), ds = t.upload("dS", dS);
  const auto dq = t.alloc("dQ", N * D), dk = t.alloc("dK", kRows * D);
  const auto map = [](const auto& x) { return tensor_map<__half, 2>(x.data(), {D, x.size() / D}, {D * 2}, {64, 64}); };
  cudaFuncSetAttribute(two_products, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Tiles)));
  two_products<<<1, 128, sizeof(Tiles)>>>(map(k), map(q), map(ds), dq.data(), dk.data(), kTiles);
  t.findings({{"names an array whose product it leaves under way",
               "A wait leaves a product under way whose array it names: begin dq before dk, and name dq alone in "
               "wait_for<1>."},
              {"", "dq is not there yet: before store_dq(tile), wait for its product and name dq."}});

  Doubles exact_dq(N * D), exact_dk(kRows * D), first(kRows * D);
  for (int i = 0; i < N; ++i)
    for (int key = 0; key < kRows; ++key) {
      const int tile = i / kRows, query = i % kRows;
      const double s = __half2float(dS[(tile * kRows + key) * kRows + query]);
      for (int d = 0; d < D; ++d) {
        exact_dq[i * D + d] += s * double(__half2float(K[key * D + d]));
        exact_dk[key * D + d] += s * double(__half2float(Q[i * D + d]));
        if (tile == 0) first[key * D + d] += kTiles * s * double(__half2float(Q[i * D + d]));
      }
    }
  t.answer("dQ", t.download(dq), exact_dq, D, {}, 1e-5, "query");
  t.answer("dK", t.download(dk), exact_dk, D,
           {{Doubles(kRows * D), "dK misses its sum: begin dk's product for each tile."},
            {first, "dK sums one tile again and again: begin_dk(tile)."}},
           1e-5, "key");
  // Of the first warp: products under way, and stores beside one.
  std::uint64_t under_way = 0, beside = 0;
  for (const TraceEvent& event : t.machine.trace()) {
    if (event.warp != 0) continue;
    if (event.name == "dQ" || event.name == "dK") ++under_way;
    if (event.name == "all but") under_way = std::min(under_way, std::uint64_t(event.value));
    if (event.name == "store") beside += under_way > 0;
  }
  t.demand(beside == kTiles, "no product is under way while dq is stored.");
  t.predicted(beside);
}
