// 12.1 wait: two stages of copies: which group must have arrived, and who else must know?
// An exercise of phase 12; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 12.1     Prove it: ./flash exercise --check 12.1

//# question
// x passes through shared memory in tiles of 512 numbers, each copied by cp.async while the tile before it is summed.
// There are two stages; tile t lies in stage t % 2. Each thread copies 16 bytes of a tile and commits one group a tile.
// Thread i then adds four numbers of the tile to its sums, and another thread has copied them: element 511 - 4 i and
// the three before it.
//     cp_async_commit()     closes the group of this thread's copies since the last commit
//     cp_async_wait<n>()    waits until at most n of this thread's youngest groups are still under way
// In round t the groups of tiles t and t + 1 are committed. Say what has to be waited for before tile t is read.

//# predict 4096 How many bytes are on their way at once, at most, in the whole block (128 threads)?

//# hint
// When tile t is wanted, the copies of tile t + 1 may still run: that is what they are begun early for.
//# hint
// cp_async_wait is about this thread's own copies. What makes those of the others visible?
//# hint
// cp_async_wait<1>() leaves the youngest group, tile t + 1, under way. Then __syncthreads(): each thread has waited for
// its own copies before it came there. In the last round an empty group was committed, so that 1 is still right.

//# because
// Two tiles of 512 floats: when the copies of tile t + 1 begin, those of tile t have not been waited for. With
// cp_async_wait<0> this number is the same, but each tile's copies are waited for as soon as they begin.
//# next
// phases/12-async-copies/notebook.cpp: the same in attention, with the wait before the next copies begin.

//# code

constexpr int kThreads = 128, kTile = 4 * kThreads;

// y = sum of the tiles: element kTile - 1 - i of each is added to y[i].
__global__ void sum_tiles(const float* x /*[tiles, kTile]*/, float* y /*[kTile]*/, int tiles) {
  __shared__ alignas(16) float stage[2][kTile];
  const int i = 4 * threadIdx.x;
  const auto begin_copy = [&](int tile) {
    if (tile < tiles) cp_async_16(&stage[tile % 2][i], &x[tile * kTile + i]);
    cp_async_commit();  // in the last round an empty group: the count stays the same
  };
  float sum[4] = {};
  begin_copy(0);
  for (int tile = 0; tile < tiles; ++tile) {
    begin_copy(tile + 1);
    //# hole Wait for tile `tile`, of all threads, and for no more than that.
    cp_async_wait<1>();
    __syncthreads();
    //# skeleton: Nobody has waited for the copies
    //|
    //# also all-in-the-last-round
    //| if (tile + 1 < tiles)
    //|   cp_async_wait<1>();
    //| else
    //|   cp_async_wait<0>();
    //| __syncthreads();
    //# wrong wait-too-few: This lets more than the youngest group
    //| cp_async_wait<2>();
    //| __syncthreads();
    //# wrong no-barrier: A thread waits for its own copies only
    //| cp_async_wait<1>();
    //# wrong barrier-first: A thread waits for its own copies only
    //| __syncthreads();
    //| cp_async_wait<1>();
    //# wrong wait-for-all: nothing is copied while a tile is summed
    //| cp_async_wait<0>();
    //| __syncthreads();
    //# wrong two-barriers: One barrier behind the wait will do
    //| cp_async_wait<1>();
    //| __syncthreads();
    //| __syncthreads();
    //# wrong barrier-both-sides: One barrier behind the wait will do
    //| __syncthreads();
    //| cp_async_wait<1>();
    //| __syncthreads();
    //# wrong wait-3: This lets more than the youngest group
    //| cp_async_wait<3>();
    //| __syncthreads();
    //# wrong commit-again: nothing is copied while a tile is summed
    //| cp_async_commit();
    //| cp_async_wait<1>();
    //| __syncthreads();
    //# also commit-and-wait-2
    //| cp_async_commit();
    //| cp_async_wait<2>();
    //| __syncthreads();
    //# wrong one-waits: each must wait
    //| if (threadIdx.x == 0) cp_async_wait<1>();
    //| __syncthreads();
    //# also wait-all-at-the-end
    //| if (tile == tiles - 1) cp_async_wait<0>();
    //| cp_async_wait<1>();
    //| __syncthreads();
    //# end
    for (int k = 0; k < 4; ++k) sum[k] += stage[tile % 2][kTile - 1 - (i + k)];
    __syncthreads();  // all have read this stage: the next round fills it again
  }
  for (int k = 0; k < 4; ++k) y[i + k] = sum[k];
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 5;
  Floats X = t.normal("x", kTiles * kTile);
  for (float& value : X) value += 8;  // so that no sum is near 0
  const auto x = t.upload("x", X);
  const auto y = t.alloc("y", kTile);
  sum_tiles<<<1, kThreads>>>(x.data(), y.data(), kTiles);
  const std::string no_barrier =
      "A thread waits for its own copies only: each must wait, and then a barrier tells it that the others have, too.";
  t.findings(
      {{t.uses("cp_async_wait") && !t.uses("cp_async_wait<1>") ? "left it under way" : "none of these",
        "This lets more than the youngest group run on, and the tile's own is one of them."},
       {"while cp.async writes it",
        t.uses("cp_async_wait") ? no_barrier : "Nobody has waited for the copies: they may arrive whenever they like."},
       {"race", no_barrier}});
  Doubles exact(kTile);
  for (int tile = 0; tile < kTiles; ++tile)
    for (int i = 0; i < kTile; ++i) exact[i] += X[tile * kTile + kTile - 1 - i];
  t.answer("y", t.download(y), exact, 1);
  t.count("the number of barriers", t.ledger().barriers, 2 * kTiles,
          "One barrier behind the wait will do, and the other one, at the end of the round, was there.");
  // Of the first warp: waits behind which a copy goes on.
  int going_on = 0;
  for (const TraceEvent& wait : t.machine.trace())
    for (const TraceEvent& copy : t.machine.trace())
      going_on += wait.warp == 0 && wait.name == "wait" && copy.warp == 0 && copy.name == "copy" &&
                  copy.begin <= wait.begin && copy.end > wait.end;
  t.demand(going_on >= kTiles - 1,
           "nothing is copied while a tile is summed: that wait is for the next tile's copies, too.");
  t.predicted(t.ledger().async_bytes_peak);
}
