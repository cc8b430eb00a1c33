// 23.1 turns: two warps make a sum by turns, a tile late: who waits for whom?
// An exercise of phase 23; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 23.1     Prove it: ./flash exercise --check 23.1

//# question
// Two warps have 32 keys each. For each tile, both store dS = P * (dP - delta) of their keys into shared memory, and
// somebody adds up all 64: y[tile]. They take turns: warp 1 sums tiles 0, 2, 4 …, warp 0 the others, each after it has
// stored its part of the tile behind. There are two places for dS, and two mbarriers for each:
//     full     2 arrivals, one of each warp: dS of all keys is there
//     empty    1 arrival, of the warp whose turn it was: the place may be written again
// Tile i lies in place i % 2, as tile number i / 2 of this place. mbarrier_wait(&barrier, parity) waits for the phase
// of this parity: 0 for the first one, 1 for the second one, 0 again. Of a new barrier the phase before counts as
// complete.

//# predict 1 How often does the whole block meet at a barrier, with 9 tiles?

//# hint
// Before a warp stores: has the sum of two tiles ago been made, whose dS lies there? Nobody was there before the first
// two tiles.
//# hint
// All lanes of a warp store and read; one of them arrives for the warp. What makes it know that the others are done?
//# hint
// mbarrier_wait(&x.empty[stage], parity ^ 1); and, at both barriers: __syncwarp(); if (lane == 0) mbarrier_arrive(…);

//# because
// Once, when the barriers are made. After that a warp waits for what it needs, and most of the time it is there.
//# next
// phases/23-backward-turns/notebook.cpp, "Whose turn": the same with warpgroups, and a picture of who waits.

//# code

struct Shared {
  float dS[2][64];
  std::uint64_t full[2], empty[2];
};

__device__ void sum_tile(Shared& x, int tile, float* y) {
  const int lane = threadIdx.x % 32, stage = tile % 2;
  const unsigned parity = tile / 2 % 2;
  mbarrier_wait(&x.full[stage], parity);
  float sum = x.dS[stage][lane] + x.dS[stage][lane + 32];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (lane == 0) y[tile] = sum;
  //# hole The place may be written again.
  __syncwarp();
  if (lane == 0) mbarrier_arrive(&x.empty[stage]);
  //# skeleton:
  //|
  //# also last-lane
  //| __syncwarp();
  //| if (lane == 31) mbarrier_arrive(&x.empty[stage]);
  //# wrong never-given-back: nobody says that a place is empty
  //|
  //# wrong all-lanes: more arrivals than were announced
  //| mbarrier_arrive(&x.empty[stage]);
  //# wrong other-place: the place that it has read is this tile's
  //| __syncwarp();
  //| if (lane == 0) mbarrier_arrive(&x.empty[stage ^ 1]);
  //# wrong full-again: it is `empty` that says so
  //| __syncwarp();
  //| if (lane == 0) mbarrier_arrive(&x.full[stage]);
  //# end
}

// Two warps; a lane has a key.
__global__ void sums_by_turns(const float* P /*[tiles, 64]*/, const float* dP /*[tiles, 64]*/, float* y /*[tiles]*/,
                              int tiles, float delta) {
  Shared& x = shared<Shared>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; ++i) mbarrier_init(&x.full[i], 2), mbarrier_init(&x.empty[i], 1);
  __syncthreads();  // the barriers are there
  for (int tile = 0; tile < tiles; ++tile) {
    const int stage = tile % 2;
    const unsigned parity = tile / 2 % 2;
    //# hole Wait until the place may be written.
    mbarrier_wait(&x.empty[stage], parity ^ 1);
    //# skeleton:
    //|
    //# also not-at-first
    //| if (tile >= 2) mbarrier_wait(&x.empty[stage], parity ^ 1);
    //# wrong no-wait: stored before the sum of two tiles ago
    //|
    //# wrong same-parity: the other parity is the one that counts as complete
    //| mbarrier_wait(&x.empty[stage], parity);
    //# wrong the-last-turn: comes only behind this store
    //| mbarrier_wait(&x.empty[stage], parity ^ 1);
    //| if (tile > 0) mbarrier_wait(&x.empty[stage ^ 1], (tile - 1) / 2 % 2);
    //# end
    x.dS[stage][threadIdx.x] = P[tile * 64 + threadIdx.x] * (dP[tile * 64 + threadIdx.x] - delta);
    //# hole This warp's part is there.
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&x.full[stage]);
    //# skeleton: nobody says that dS is there
    //|
    //# wrong every-lane: more arrivals than were announced
    //| mbarrier_arrive(&x.full[stage]);
    //# wrong no-syncwarp: before all lanes of its warp have stored
    //| if (lane == 0) mbarrier_arrive(&x.full[stage]);
    //# wrong one-for-both: one of each warp
    //| __syncwarp();
    //| if (threadIdx.x == 0) mbarrier_arrive(&x.full[stage]);
    //# wrong of-the-block: meets at a barrier in each tile
    //| __syncthreads();
    //| if (lane == 0) mbarrier_arrive(&x.full[stage]);
    //# end
    //# hole Take your turn, a tile late.
    if (tile > 0 && tile % 2 == warp) sum_tile(x, tile - 1, y);
    //# skeleton:
    //|
    //# wrong no-turn: nobody takes a turn
    //|
    //# wrong this-tile: The last tile is summed twice
    //| if (tile % 2 != warp) sum_tile(x, tile, y);
    //# wrong both: Both warps take each turn
    //| if (tile > 0) sum_tile(x, tile - 1, y);
    //# end
  }
  if (tiles % 2 == warp) sum_tile(x, tiles - 1, y);  // the last tile's
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 9;
  const float delta = 0.5f;
  const Floats P = t.normal("P", kTiles * 64), dP = t.normal("dP", kTiles * 64);
  const auto p = t.upload("P", P), dp = t.upload("dP", dP);
  const auto y = t.alloc("y", kTiles);
  sums_by_turns<<<1, 64, sizeof(Shared)>>>(p.data(), dp.data(), y.data(), kTiles, delta);
  const bool dS_told = t.uses("mbarrier_arrive(&x.full") > 0, given_back = t.uses("mbarrier_arrive(&x.empty") > 0;
  const std::string stuck =
      !dS_told                       ? "A warp waits for ever, since nobody says that dS is there."
      : t.uses("arrive(&x.full") > 1 ? "The place has been read, and `full` is told: it is `empty` that says so."
      : t.uses("sum_tile(x, tile - 1") + t.uses("sum_tile(x, tile,") == 0
          ? "A warp waits for ever, since nobody takes a turn in the loop."
      : !given_back                       ? "A warp waits for ever, since nobody says that a place is empty."
      : t.uses("arrive(&x.empty[stage ^") ? "The other place is given back: the place that it has read is this tile's."
      : t.uses("x.empty[stage ^") ? "A warp waits for the turn of the tile before, which comes only behind this store."
      : t.uses("x.empty[stage], parity)")
          ? "The first time round nobody has arrived at `empty`: the other parity is the one that counts as complete."
          : "`full` waits for two arrivals, one of each warp.";
  const std::string too_many = t.uses("mbarrier_wait(&x.empty") == 0
                                   ? "dS is stored before the sum of two tiles ago has been made."
                               : t.uses("sum_tile(x, tile, y)")
                                   ? "The last tile is summed twice: in the loop it is the turn of the tile before."
                                   : "A barrier gets more arrivals than were announced: one lane speaks for its warp.";
  const std::string raced = t.uses("warp) sum_tile") < 2
                                ? "Both warps take each turn: one gives the place back while the other one reads."
                                : "Lane 0 arrives before all lanes of its warp have stored: __syncwarp() comes first.";
  t.findings({{"before anybody has waited", too_many}, {"race:", raced}, {"deadlock", stuck}});
  Doubles exact(kTiles);
  for (int i = 0; i < kTiles * 64; ++i) exact[i / 64] += double(P[i]) * (double(dP[i]) - delta);
  t.answer("y", t.download(y), exact, 1, {}, 1e-4);
  t.demand(t.ledger().barriers == 1, "the block meets at a barrier in each tile: each warp waits for the other again.");
  t.predicted(t.ledger().barriers);
}
