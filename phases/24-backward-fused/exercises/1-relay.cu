// 24.1 relay: blocks make a sum together, and nobody clears it: who stores, and when may the next one add?
// An exercise of phase 24; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 24.1     Prove it: ./flash exercise --check 24.1

//# question
// A sum is made of tiles of 128 numbers, and each block has a share of every tile. `sum` has not been cleared: block 0
// stores its share, the others add theirs by TMA. The last block does not add. It waits until all other shares are
// there and gives the sum and its own share out, to y. `done` counts the shares of each tile that are in `sum`; it
// begins with 0.
//     cp_async_bulk_store(to, from, bytes)         begins to store numbers of shared memory in HBM
//     cp_reduce_async_bulk_add(to, from, bytes)    begins to add them
//     cp_async_bulk_commit()                       makes a group of what this thread has begun
//     cp_async_bulk_wait_read<n>()                 all groups of this thread but the last n have read shared memory
//     cp_async_bulk_wait<n>()                      all but the last n are done
//     red_release_add(&count, 1)                   counts, and passes on what this thread knows
//     wait_at_least(&count, n)                     waits until the count is n, and knows what those know who counted
// A block's number says how many blocks have begun before it. One lane copies, waits and counts.

//# predict 18 5 blocks, 6 tiles: how many instructions add to the sum?

//# hint
// The second block may add when the first share is there, in whatever order the others come. The last one needs all.
//# hint
// A share that has been read out of shared memory has not yet been added.
//# hint
// wait_at_least(&done[tile], last ? number : 1); and: cp_async_bulk_wait<0>(); red_release_add(&done[tile], 1);

//# because
// Of five shares of a tile one is stored, and the last one never goes to the sum. Three are added.
//# next
// phases/24-backward-fused/notebook.cpp, "Who waits for whom": the same with dQ, and why nobody waits for ever.

//# code

constexpr int kNumbers = 128;

struct Shared {
  alignas(16) float4 share[kNumbers / 4];
  unsigned number;
};

// y[i] = the sum of all blocks' x. A warp for each block; counts: [0] blocks that have begun, then `done` of each tile.
__global__ void relay(const float4* x /*[blocks, tiles, 32]*/, float* sum /*[tiles, 128]*/, float* y /*[tiles, 128]*/,
                      unsigned* counts /*[1 + tiles]*/, int tiles) {
  Shared& s = shared<Shared>();
  const int lane = threadIdx.x;
  if (lane == 0) s.number = atomicAdd(counts, 1u);
  __syncwarp();
  const unsigned number = s.number, blocks = gridDim.x;
  const bool last = number == blocks - 1;
  unsigned* const done = counts + 1;
  for (int tile = 0; tile < tiles; ++tile) {
    const float4 mine = x[(number * tiles + tile) * 32 + lane];
    s.share[lane] = mine;
    fence_proxy_async();
    __syncwarp();  // the share is there, for TMA too
    if (lane == 0 && number > 0) {
      //# hole Wait for the shares that must come before this one.
      wait_at_least(&done[tile], last ? number : 1);
      //# skeleton: before it is in the sum
      //|
      //# also in-order
      //| wait_at_least(&done[tile], number);
      //# wrong of-another-tile: before it is in the sum
      //| wait_at_least(&done[0], last ? number : 1);
      //# wrong last-alone: before it is in the sum
      //| if (last) wait_at_least(&done[tile], number);
      //# wrong whole-count: waits for ever
      //| wait_at_least(&done[tile], last ? blocks : 1);
      //# end
    }
    __syncwarp();  // lane 0 has waited
    if (last) {
      const float4 others = reinterpret_cast<const float4*>(sum)[tile * 32 + lane];
      reinterpret_cast<float4*>(y)[tile * 32 + lane] =
          make_float4(others.x + mine.x, others.y + mine.y, others.z + mine.z, others.w + mine.w);
    } else if (lane == 0) {
      float* const to = sum + tile * kNumbers;
      if (number == 0)
        cp_async_bulk_store(to, &s.share[0].x, sizeof s.share);
      else
        cp_reduce_async_bulk_add(to, &s.share[0].x, sizeof s.share);
      cp_async_bulk_commit();
      //# hole The share is in the sum: count it.
      cp_async_bulk_wait<0>();
      red_release_add(&done[tile], 1);
      //# skeleton:
      //|
      //# wrong when-read: before it is in the sum
      //| cp_async_bulk_wait_read<0>();
      //| red_release_add(&done[tile], 1);
      //# wrong at-once: before it is in the sum
      //| red_release_add(&done[tile], 1);
      //| cp_async_bulk_wait<0>();
      //# end
    }
    __syncwarp();  // the share has left: the next one may be put there
  }
}

//# judge

void judge(Trial& t) {
  constexpr int kBlocks = 5, kTiles = 6, kAll = kTiles * kNumbers;
  const Floats X = t.normal("x", kBlocks * kAll);
  std::vector<float4> fours;
  for (int i = 0; i < kBlocks * kAll; i += 4) fours.push_back(make_float4(X[i], X[i + 1], X[i + 2], X[i + 3]));
  const auto x = t.upload("x", fours);
  const auto sum = t.alloc("sum", kAll), y = t.alloc("y", kAll);
  const auto counts = t.upload("counts", std::vector<unsigned>(1 + kTiles));
  relay<<<kBlocks, 32, sizeof(Shared)>>>(x.data(), sum.data(), y.data(), counts.data(), kTiles);
  t.findings({{"deadlock", "A block waits for ever: for a share that nobody counts, or for its own."},
              {"cp.reduce.async.bulk", "A share is counted, or taken for granted, before it is in the sum."},
              {"cp.async.bulk", "A share is counted, or taken for granted, before it is in the sum."}});
  Doubles exact(kAll);
  for (int i = 0; i < kBlocks * kAll; ++i) exact[i % kAll] += double(X[i]);
  t.answer("y", t.download(y), exact, kNumbers, {}, 1e-5);
  t.predicted(t.traffic("sum").reduce_requests);
}
