// 23.2 add: warps make tiles, one thread adds them up by TMA: when may a place be written again?
// An exercise of phase 23; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 23.2     Prove it: ./flash exercise --check 23.2

//# question
// All blocks add to the same sum. Four warps of a block make a tile of 512 numbers and store it into one of two places
// in shared memory. One thread of a fifth warp tells TMA to add it:
//     cp_reduce_async_bulk_add(to, from, bytes)    begins to add numbers of shared memory to those of HBM
//     cp_async_bulk_commit()                       makes a group of what this thread has begun
//     cp_async_bulk_wait_read<n>()                 all groups of this thread but the last n have read shared memory
//     cp_async_bulk_wait<n>()                      all but the last n are done
// Each place has two mbarriers: `full` gets 4 arrivals, one of each warp; `empty` one, of the adding thread. The thread
// should not wait for the tile that it has just begun to add. TMA reads shared memory by a way of its own.

//# predict 36 3 blocks, 12 tiles each: how many instructions add to the sum?

//# hint
// TMA may not see what a lane has stored before that lane calls fence_proxy_async(). And one lane arrives for its warp.
//# hint
// If all groups but the last one have read shared memory, which of the two places is free?
//# hint
// fence_proxy_async(); __syncwarp(); if (lane == 0) mbarrier_arrive(…). And the thread: cp_async_bulk_wait_read<1>();
// if (tile > 0) mbarrier_arrive(&s.empty[stage ^ 1]); at last cp_async_bulk_wait<0>();

//# because
// One for each tile of each block, 2,048 bytes. Lanes that add 16 bytes each would need four of their warps for it.
//# next
// phases/23-backward-turns/notebook.cpp, "dQ's way out": the same with tiles of 32 KiB.

//# code

constexpr int kNumbers = 512;

struct Shared {
  alignas(16) float4 tile[2][kNumbers / 4];
  std::uint64_t full[2], empty[2];
};

// sum[i] += all blocks' (x - delta). 160 threads; sum is cleared before.
__global__ void add_up(const float4* x /*[blocks, tiles, 128]*/, float* sum /*[tiles, 512]*/, int tiles, float delta) {
  Shared& s = shared<Shared>();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) mbarrier_init(&s.full[i], 4), mbarrier_init(&s.empty[i], 1);
  __syncthreads();  // the barriers are there
  if (threadIdx.x >= 128) {
    if (lane != 0) return;
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % 2;
      mbarrier_wait(&s.full[stage], tile / 2 % 2);
      cp_reduce_async_bulk_add(sum + tile * kNumbers, &s.tile[stage][0].x, sizeof s.tile[0]);
      cp_async_bulk_commit();
      //# hole Which place may be written again? Say so.
      cp_async_bulk_wait_read<1>();
      if (tile > 0) mbarrier_arrive(&s.empty[stage ^ 1]);
      //# skeleton: nobody says that a tile is there
      //|
      //# wrong never-given-back: nobody says that a place is empty
      //|
      //# also by-number
      //| cp_async_bulk_wait_read<1>();
      //| if (tile > 0) mbarrier_arrive(&s.empty[(tile + 1) % 2]);
      //# wrong no-wait: written again while TMA may still read it
      //| if (tile > 0) mbarrier_arrive(&s.empty[stage ^ 1]);
      //# wrong this-place: written again while TMA may still read it
      //| cp_async_bulk_wait_read<1>();
      //| mbarrier_arrive(&s.empty[stage]);
      //# wrong at-first-too: written again while TMA may still read it
      //| cp_async_bulk_wait_read<1>();
      //| mbarrier_arrive(&s.empty[stage ^ 1]);
      //# wrong two-left: written again while TMA may still read it
      //| cp_async_bulk_wait_read<2>();
      //| if (tile > 0) mbarrier_arrive(&s.empty[stage ^ 1]);
      //# wrong one-at-a-time: waits for the tile that it has just begun
      //| cp_async_bulk_wait_read<0>();
      //| mbarrier_arrive(&s.empty[stage]);
      //# end
    }
    //# hole The block is about to end.
    cp_async_bulk_wait<0>();
    //# skeleton:
    //|
    //# wrong not-at-all: The block ends while
    //|
    //# also read-alone
    //| cp_async_bulk_wait_read<0>();
    //# wrong one-left: The block ends while
    //| cp_async_bulk_wait<1>();
    //# end
    return;
  }
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2;
    const float4 four = x[(blockIdx.x * tiles + tile) * 128 + threadIdx.x];
    mbarrier_wait(&s.empty[stage], tile / 2 % 2 ^ 1);
    s.tile[stage][threadIdx.x] = make_float4(four.x - delta, four.y - delta, four.z - delta, four.w - delta);
    //# hole The warp's part is there, for TMA too.
    fence_proxy_async();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&s.full[stage]);
    //# skeleton:
    //|
    //# wrong no-fence: TMA may not see what was stored
    //| __syncwarp();
    //| if (lane == 0) mbarrier_arrive(&s.full[stage]);
    //# wrong other-fence: TMA may not see what was stored
    //| __threadfence();
    //| __syncwarp();
    //| if (lane == 0) mbarrier_arrive(&s.full[stage]);
    //# wrong no-syncwarp: before all lanes of its warp have stored
    //| fence_proxy_async();
    //| if (lane == 0) mbarrier_arrive(&s.full[stage]);
    //# wrong all-lanes: more arrivals than were announced
    //| fence_proxy_async();
    //| mbarrier_arrive(&s.full[stage]);
    //# end
  }
}

//# judge

void judge(Trial& t) {
  constexpr int kBlocks = 3, kTiles = 12, kAll = kTiles * kNumbers;
  const float delta = 0.5f;
  const Floats X = t.normal("x", kBlocks * kAll);
  std::vector<float4> fours;
  for (int i = 0; i < kBlocks * kAll; i += 4) fours.push_back(make_float4(X[i], X[i + 1], X[i + 2], X[i + 3]));
  const auto x = t.upload("x", fours);
  const auto sum = t.upload("sum", Floats(kAll));
  add_up<<<kBlocks, 160, sizeof(Shared)>>>(x.data(), sum.data(), kTiles, delta);
  const std::string again = "A place is written again while TMA may still read it.";
  const std::string stuck = t.uses("mbarrier_arrive(&s.full") == 0
                                ? "The adding thread waits for ever, since nobody says that a tile is there."
                                : "The warps wait for ever, since nobody says that a place is empty.";
  t.findings(
      {{"while cp.reduce.async.bulk reads it", again},
       {"write after cp.reduce.async.bulk", again},
       {"the block ends before", "The block ends while TMA may still read its shared memory."},
       {"proxy fence", "TMA may not see what was stored: each lane calls fence_proxy_async() behind its store."},
       {"cp.reduce.async.bulk after write",
        "Lane 0 arrives before all lanes of its warp have stored: __syncwarp() comes first."},
       {"before anybody has waited", "`full` gets more arrivals than were announced: one lane speaks for its warp."},
       {"deadlock", stuck}});
  Doubles exact(kAll);
  for (int i = 0; i < kBlocks * kAll; ++i) exact[i % kAll] += double(X[i]) - delta;
  t.answer("sum", t.download(sum), exact, kNumbers, {}, 1e-5);
  t.demand(t.uses("<1>()") > 0,
           "the thread waits for the tile that it has just begun to add, and the other place stands idle meanwhile.");
  t.predicted(t.traffic("sum").reduce_requests);
}
