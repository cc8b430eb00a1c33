// 21.2 places: registers write dS, the other warpgroup's product reads it: what stands in between?
// An exercise of phase 21; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 21.2     Prove it: ./flash exercise --check 21.2

//# question
// Two warpgroups have 64 keys each. For each tile of 64 queries a warp stores its 16 keys of dS, transposed, in shared
// memory. Then each warpgroup makes 64 columns of dQ = dS K, and that takes the dS of all 128 keys. Threads store by
// ordinary accesses, and wgmma reads on another way, the asynchronous proxy:
//     fence_proxy_async()    what this thread has stored is there for the asynchronous proxy, too
//     __syncthreads()        all threads have come
// There is room for dS twice, so that a tile needs one barrier of the block and no more.

//# predict 6 How many barriers of the block do 6 tiles take, beside the first one?

//# hint
// Two things are missing before the products: all threads must have stored, and wgmma must see what they stored.
//# hint
// A warpgroup may be a tile ahead of the other one, which still multiplies. Where may it store then?
//# hint
// const int place = tile % 2; then, behind the stores: fence_proxy_async(); and __syncthreads();

//# because
// The barrier of a tile says two things: this tile's dS is there, and the tile before has been multiplied by both. So
// behind it the other place is free. With one place a second barrier would have to say so.
//# next
// phases/21-backward-wgmma/notebook.cpp, "Whose tile is where": the same barrier protects a third thing there.

//# code

constexpr int kKeys = 128, kQueries = 64, D = 128;

struct Tiles {
  alignas(1024) __half K[D / 64][kKeys][64];    // [panel][key][column]
  alignas(1024) __half dS[2][kKeys][kQueries];  // [place][key][query]
  std::uint64_t full;
};

// Two warpgroups: dQ = dS K of each tile of 64 queries.
__global__ void __launch_bounds__(256)
    query_gradients(const unsigned* dS /*[tiles, 4, 256 threads, 4]*/, const __grid_constant__ TensorMap K_map,
                    float* dQ /*[tiles, kQueries, D]*/, int tiles) {
  Tiles& x = shared<Tiles>();
  const int warpgroup = threadIdx.x / 128, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    mbarrier_init(&x.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&x.full, sizeof x.K);
    for (int panel = 0; panel < D / 64; ++panel) cp_async_bulk_tensor(x.K[panel], &K_map, &x.full, panel * 64, 0);
  }
  mbarrier_wait(&x.full, 0);
  for (int tile = 0; tile < tiles; ++tile) {
    //# hole In which of the two places does this tile's dS lie?
    const int place = tile % 2;
    //# skeleton:
    //| const int place = 0;
    //# wrong one-place: while the other one's products still read it
    //| const int place = 0;
    //# wrong one-place-and-barrier: needs no second barrier
    //| __syncthreads();
    //| const int place = 0;
    //# wrong place-of-the-warpgroup: Each warpgroup has its own place
    //| const int place = warpgroup;
    //# end
    for (int i = 0; i < 4; ++i) {
      unsigned fragment[4];
      for (int j = 0; j < 4; ++j) fragment[j] = dS[((tile * 4 + i) * 256 + threadIdx.x) * 4 + j];
      const int key = threadIdx.x / 32 * 16 + lane % 16, piece = i * 2 + lane / 16;
      stmatrix_x4(&x.dS[place][key][(piece ^ key % 8) * 8], fragment);
    }
    //# hole dS of all keys is there, and wgmma may read it.
    fence_proxy_async();
    __syncthreads();
    //# skeleton: of its own warpgroup
    //|
    //# also fence-behind
    //| __syncthreads();
    //| fence_proxy_async();
    //# wrong barrier-alone: ordinary stores
    //| __syncthreads();
    //# wrong fence-alone: of its own warpgroup
    //| fence_proxy_async();
    //# wrong threadfence: ordinary stores
    //| __threadfence_block();
    //| __syncthreads();
    //# wrong of-the-warp: of its own warpgroup
    //| fence_proxy_async();
    //| __syncwarp();
    //# end
    float dq[32];
    const MatrixDescriptor ds = matrix_descriptor(x.dS[place]), k = matrix_descriptor(x.K[warpgroup]);
    wgmma_fence();
    for (int key = 0; key < kKeys; key += 16)
      wgmma_m64nNk16<__half, Major::MN, Major::MN>(dq, ds + key * 128, k + key * 128, key > 0);
    wgmma_commit();
    wgmma_wait<0>(dq);
    const int row = threadIdx.x % 128 / 32 * 16 + lane / 4, column = warpgroup * 64 + lane % 4 * 2;
    for (int i = 0; i < 32; ++i) dQ[(tile * kQueries + row + i / 2 % 2 * 8) * D + column + i / 4 * 8 + i % 2] = dq[i];
  }
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 6;
  std::vector<__half> dS, K;  // [tile][key][query], [key][column]
  for (const float value : t.normal("dS", kTiles * kKeys * kQueries)) dS.push_back(__float2half(value));
  for (const float value : t.normal("K", kKeys * D)) K.push_back(__float2half(value));
  std::vector<unsigned> fragments(kTiles * 4 * 256 * 4);  // of 16 keys and 16 queries, as a warp's lanes have them
  for (int e = 0; e < int(fragments.size()); ++e) {
    const int j = e % 4, thread = e / 4 % 256, i = e / 1024 % 4, tile = e / 4096, lane = thread % 32;
    const int key = thread / 32 * 16 + lane / 4 + j % 2 * 8, query = i * 16 + lane % 4 * 2 + j / 2 * 8;
    const __half* two = &dS[(tile * kKeys + key) * kQueries + query];
    fragments[e] = __half_as_ushort(two[0]) | unsigned{__half_as_ushort(two[1])} << 16;
  }
  const auto ds = t.upload("dS", fragments);
  const auto k = t.upload("K", K);
  const auto dq = t.alloc("dQ", kTiles * kQueries * D);
  const auto map = tensor_map<__half, 2>(k.data(), {D, kKeys}, {D * 2}, {64, kKeys});
  cudaFuncSetAttribute(query_gradients, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tiles));
  query_gradients<<<1, 256, sizeof(Tiles)>>>(ds.data(), map, dq.data(), kTiles);
  const bool barrier = t.uses("__syncthreads") > 1;
  const std::string waits =
      "A product reads the dS of all keys, and without a barrier of the block only that of its own warpgroup is there.";
  t.findings(
      {{"uninitialised", t.uses("place = warpgroup") ? "Each warpgroup has its own place here, and dS of the "
                                                       "other one's keys is not in it."
                                                     : waits},
       {"proxy", "wgmma does not see ordinary stores by itself: fence_proxy_async() comes behind them."},
       {"race",
        barrier ? "A warpgroup stores the next tile's dS while the other one's products still read it." : waits},
       {"write after wgmma", "A warpgroup stores the next tile's dS while the other one's products still read it."}});
  Doubles exact(kTiles * kQueries * D);
  for (int e = 0; e < int(exact.size()); ++e) {
    const int d = e % D, query = e / D % kQueries, tile = e / D / kQueries;
    for (int key = 0; key < kKeys; ++key)
      exact[e] += double(__half2float(dS[(tile * kKeys + key) * kQueries + query])) * __half2float(K[key * D + d]);
  }
  t.answer("dQ", t.download(dq), exact, D, {}, 1e-4, "query");
  t.count("barriers", t.ledger().barriers, 1 + kTiles, "With two places of dS a tile needs no second barrier.");
  t.predicted(t.ledger().barriers - 1);
}
