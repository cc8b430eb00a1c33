// 15.1 ring: one thread fills, four warps empty: who tells whom what?
// An exercise of phase 15; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 15.1     Prove it: ./flash exercise --check 15.1

//# question
// x passes through a ring of three stages in tiles of 8 rows. A fifth warp has one thread at work, the producer: it
// begins the copies by TMA. Four warps are the consumers: they add up the columns. Each stage has two mbarriers:
//     full     1 arrival and the bytes of a tile: the tile is there
//     empty    4 arrivals, one for each consumer warp: the stage may be filled again
// Producer and consumers each go through the ring with a stage and a parity, which flips each time round. A consumer
// waits for the stage's `full` with that parity. Say what the producer waits for before it fills a stage, and how a
// warp gives a stage back. The producer must not wait for more than it has to: it is to run ahead.

//# predict 3072 x has 10 tiles of 1,024 bytes: how many bytes are on their way at once, at most?

//# hint
// The first time round all stages are empty, and nobody has arrived: which parity counts as complete before the first
// phase is?
//# hint
// An arrival says what this lane has done. The warp's other lanes read the stage too: what makes lane 0 know of it?
//# hint
// mbarrier_wait(&ring.empty[stage], parity ^ 1); and __syncwarp(); if (lane == 0) mbarrier_arrive(&ring.empty[stage]);

//# because
// Three stages of 1,024 bytes: the first wait for the `empty` of each goes on at once. From then on the producer is as
// far ahead as the ring is long.
//# next
// phases/15-warp-specialised/notebook.cpp: the same with K and V, and the registers that the producer gives away.

//# code

constexpr int kRows = 8, kColumns = 64, kStages = 3, kConsumers = 4;  // warps

struct Ring {
  alignas(1024) __half tile[kStages][kRows][kColumns];
  std::uint64_t full[kStages], empty[kStages];
};

// y[w] = sum of rows 2 w and 2 w + 1 of all tiles. A lane has two columns.
__global__ void sum_rows(const __grid_constant__ TensorMap x_map, float* y /*[kConsumers, kColumns]*/, int tiles) {
  Ring& ring = shared<Ring>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) mbarrier_init(&ring.full[i], 1), mbarrier_init(&ring.empty[i], kConsumers);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there
  int stage = 0;
  unsigned parity = 0;
  const auto next = [&] {
    if (++stage == kStages) stage = 0, parity ^= 1;
  };
  if (warp == kConsumers) {
    if (lane != 0) return;
    for (int tile = 0; tile < tiles; ++tile, next()) {
      //# hole Wait until the stage is empty.
      mbarrier_wait(&ring.empty[stage], parity ^ 1);
      //# skeleton: The producer does not wait
      //|
      //# wrong no-wait: The producer does not wait
      //|
      //# wrong same-parity: Producer and consumers wait for each other
      //| mbarrier_wait(&ring.empty[stage], parity);
      //# wrong other-barrier: A stage is filled again while
      //| mbarrier_wait(&ring.full[stage], parity ^ 1);
      //# wrong one-at-a-time: the producer does not run ahead
      //| mbarrier_wait(&ring.empty[stage], parity ^ 1);
      //| if (tile > 0) mbarrier_wait(&ring.empty[(stage + 2) % kStages], (tile - 1) / kStages % 2);
      //# wrong wait-for-full: Producer and consumers wait for each other
      //| mbarrier_wait(&ring.full[stage], parity);
      //# also skips-the-first-round
      //| if (tile >= kStages) mbarrier_wait(&ring.empty[stage], parity ^ 1);
      //# wrong skips-the-first: Producer and consumers wait for each other
      //| if (tile > 0) mbarrier_wait(&ring.empty[stage], parity);
      //# end
      mbarrier_arrive_expect_tx(&ring.full[stage], sizeof ring.tile[0]);
      cp_async_bulk_tensor(ring.tile[stage], &x_map, &ring.full[stage], 0, tile * kRows);
    }
    return;
  }
  float sum[2] = {};
  for (int tile = 0; tile < tiles; ++tile, next()) {
    mbarrier_wait(&ring.full[stage], parity);
    for (int row = 2 * warp; row < 2 * warp + 2; ++row)
      for (int i = 0; i < 2; ++i) sum[i] += __half2float(ring.tile[stage][row][(lane + 32 * i) ^ row % 8 * 8]);
    //# hole Give the stage back, for this warp.
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&ring.empty[stage]);
    //# skeleton: The producer does not wait
    //|
    //# wrong never-given-back: Producer and consumers wait for each other
    //|
    //# wrong no-syncwarp: A stage is filled again while
    //| if (lane == 0) mbarrier_arrive(&ring.empty[stage]);
    //# wrong all-lanes: A stage gets more arrivals than the four
    //| mbarrier_arrive(&ring.empty[stage]);
    //# wrong one-thread: Producer and consumers wait for each other
    //| __syncwarp();
    //| if (threadIdx.x == 0) mbarrier_arrive(&ring.empty[stage]);
    //# wrong next-stage: given back before anybody
    //| __syncwarp();
    //| if (lane == 0) mbarrier_arrive(&ring.empty[(stage + 1) % kStages]);
    //# wrong syncwarp-behind: A stage is filled again while
    //| if (lane == 0) mbarrier_arrive(&ring.empty[stage]);
    //| __syncwarp();
    //# also last-lane
    //| __syncwarp();
    //| if (lane == 31) mbarrier_arrive(&ring.empty[stage]);
    //# end
  }
  for (int i = 0; i < 2; ++i) y[warp * kColumns + lane + 32 * i] = sum[i];
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 10, kAll = kTiles * kRows;
  std::vector<__half> X;
  for (const float value : t.normal("x", kAll * kColumns)) X.push_back(__float2half(value + 8));  // no sum is near 0
  const auto x = t.upload("x", X);
  const auto y = t.alloc("y", kConsumers * kColumns);
  const auto map = tensor_map<__half, 2>(x.data(), {kColumns, kAll}, {kColumns * 2}, {kColumns, kRows});
  sum_rows<<<1, 32 * (kConsumers + 1), sizeof(Ring)>>>(map, y.data(), kTiles);
  t.findings(
      {{"completes while a thread waits",
        "A stage gets more arrivals than the four that were announced: one of each warp."},
       {"more arrivals than the 1 ",
        "The producer does not wait: it begins a tile in a stage whose last one has not come yet."},
       {"after read",
        "A stage is filled again while lanes may still read it: the producer waits for `empty`, and lane 0 may "
        "speak for its warp behind __syncwarp() only."},
       {"before anybody has waited", "A stage is given back before anybody was told that it is full."},
       {"deadlock",
        "Producer and consumers wait for each other. `empty` needs an arrival of each of the four warps; and the "
        "first time round, when nobody has arrived, the other parity is the one that counts as complete."}});
  Doubles exact(kConsumers * kColumns);
  for (int i = 0; i < kAll * kColumns; ++i)
    exact[i / kColumns % kRows / 2 * kColumns + i % kColumns] += __half2float(X[i]);
  t.answer("y", t.download(y), exact, kColumns, {}, 1e-5);
  std::uint64_t most = 0;
  for (const TraceEvent& now : t.machine.trace()) {
    std::uint64_t bytes = 0;
    for (const TraceEvent& copy : t.machine.trace())
      if (copy.beside && copy.begin <= now.begin && copy.end > now.begin) bytes += std::uint64_t(copy.value);
    most = std::max(most, bytes);
  }
  t.demand(most >= kStages * sizeof(Ring::tile[0]),
           "the producer does not run ahead: at most " + std::to_string(most) + " bytes are on their way at once.");
  t.predicted(most);
}
