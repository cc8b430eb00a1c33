// 12.2 one-barrier: two stages, and one barrier a tile: in which order do wait, barrier and copy stand?
// An exercise of phase 12; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 12.2     Prove it: ./flash exercise --check 12.2

//# question
// As in exercise 12.1, tiles pass through two stages, tile t in stage t % 2, and a thread reads what another copied.
// But here one barrier a tile must do: the one at the end of the loop is gone. Three steps begin each round:
//     cp_async_wait<0>()      this thread's copies have arrived: all that it has begun
//     __syncthreads()         all threads are here
//     begin_copy(tile + 1)    begins to fill the other stage
// They are in the wrong order. Find the race, and the order in which each step protects the next.

//# predict 5 How many barriers does the block pass for 5 tiles?

//# hint
// What do the others still read when begin_copy(tile + 1) fills stage (tile + 1) % 2? It is the stage of tile - 1.
//# hint
// A barrier says two things here: "all copies of this tile are there", which needs a wait before it, and "all have read
// the tile before", which a copy must have behind it.
//# hint
// Wait, barrier, begin_copy.

//# because
// One for each tile: it says that the new tile is complete and that the old one is no longer needed. The copies of the
// next tile run while this one is summed.
//# next
// phases/12-async-copies/attention.cuh begins each round like this.

//# code

constexpr int kThreads = 128, kTile = 4 * kThreads;

// y = sum of the tiles: element kTile - 1 - i of each is added to y[i].
__global__ void sum_tiles(const float* x /*[tiles, kTile]*/, float* y /*[kTile]*/, int tiles) {
  __shared__ alignas(16) float stage[2][kTile];
  const int i = 4 * threadIdx.x;
  const auto begin_copy = [&](int tile) {
    if (tile >= tiles) return;
    cp_async_16(&stage[tile % 2][i], &x[tile * kTile + i]);
    cp_async_commit();
  };
  float sum[4] = {};
  begin_copy(0);
  for (int tile = 0; tile < tiles; ++tile) {
    //# hole Put the three steps in order.
    cp_async_wait<0>();
    __syncthreads();
    begin_copy(tile + 1);
    //# skeleton: The next copies begin while others still read
    //| begin_copy(tile + 1);
    //| cp_async_wait<0>();
    //| __syncthreads();
    //# wrong copy-before-barrier: The next copies begin while others still read
    //| cp_async_wait<0>();
    //| begin_copy(tile + 1);
    //| __syncthreads();
    //# wrong barrier-first: others may read before this thread's copies have arrived
    //| __syncthreads();
    //| cp_async_wait<0>();
    //| begin_copy(tile + 1);
    //# wrong two-barriers: One barrier a tile will do
    //| cp_async_wait<0>();
    //| __syncthreads();
    //| begin_copy(tile + 1);
    //| __syncthreads();
    //# wrong copy-then-wait: nothing is copied while a tile is summed
    //| if (tile == 0) cp_async_wait<0>();
    //| __syncthreads();
    //| begin_copy(tile + 1);
    //| cp_async_wait<0>();
    //# wrong wait-1: has left a copy of this tile under way
    //| cp_async_wait<1>();
    //| __syncthreads();
    //| begin_copy(tile + 1);
    //# also wait-1-behind-an-empty-group
    //| cp_async_commit();
    //| cp_async_wait<1>();
    //| __syncthreads();
    //| begin_copy(tile + 1);
    //# wrong copy-wait-1-barrier: The next copies begin while others still read
    //| begin_copy(tile + 1);
    //| cp_async_wait<1>();
    //| __syncthreads();
    //# wrong barrier-copy-wait-1: has left a copy of this tile under way
    //| __syncthreads();
    //| begin_copy(tile + 1);
    //| cp_async_wait<1>();
    //# wrong no-copy: that nobody has begun to copy
    //| cp_async_wait<0>();
    //| __syncthreads();
    //# wrong no-wait: Nobody has waited for the copies
    //| __syncthreads();
    //| begin_copy(tile + 1);
    //# also wait-only-once-there-is-one
    //| if (tile < tiles) cp_async_wait<0>();
    //| __syncthreads();
    //| if (tile + 1 < tiles) begin_copy(tile + 1);
    //# end
    trace_mark("sum", tile);
    for (int k = 0; k < 4; ++k) sum[k] += stage[tile % 2][kTile - 1 - (i + k)];
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
  const std::string early =
      !t.uses("cp_async_wait") ? "Nobody has waited for the copies: they may arrive whenever they like."
      : t.uses("cp_async_wait<1>")
          ? "The last wait has left a copy of this tile under way: cp_async_wait<1> waits for all groups but the "
            "youngest, and before begin_copy(tile + 1) that is the tile's own. The barrier must come after the wait."
          : "The barrier must come after the wait: else others may read before this thread's copies have arrived, and "
            "it before theirs.";
  t.findings(
      {{"race: cp.async after read",
        "The next copies begin while others still read the stage that they fill: a barrier must come before them."},
       {"race: read after cp.async", early},
       {"while cp.async writes it", early},
       {"uninitialised",
        "A tile is read that nobody has begun to copy: begin_copy(tile + 1) is a step of each round."}});
  Doubles exact(kTile);
  for (int tile = 0; tile < kTiles; ++tile)
    for (int i = 0; i < kTile; ++i) exact[i] += X[tile * kTile + kTile - 1 - i];
  t.answer("y", t.download(y), exact, 1, {}, 1e-5, "element");
  t.count("the number of barriers", t.ledger().barriers, kTiles, "One barrier a tile will do for both purposes.");
  // Of the first warp: tiles that are summed while a copy is under way.
  int beside = 0;
  for (const TraceEvent& sum : t.machine.trace())
    for (const TraceEvent& copy : t.machine.trace())
      beside += sum.warp == 0 && sum.name == "sum" && copy.warp == 0 && copy.name == "copy" &&
                copy.begin <= sum.begin && copy.end > sum.begin;
  t.demand(beside == kTiles - 1, "nothing is copied while a tile is summed: let the wait come a round later.");
  t.predicted(t.ledger().barriers);
}
