// 17.1 draw: blocks that stay draw numbers: when is there nothing more to do, and who cleans up?
// An exercise of phase 17; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 17.1     Prove it: ./flash exercise --check 17.1

//# question
// Some tiles take much longer than others, so blocks do not get them in turns: each draws the number of its next tile
// from a counter in global memory, with atomicAdd, which returns the value before. A block stops when it has drawn a
// number beyond the last tile. The counter is 0 before the launch, and must be 0 again after it: nobody clears it for
// the next one. No block knows which of them is last, but each knows the number it has drawn.
// Write the draw: the number of a tile, or -1; and the reset.

//# predict 14 With 10 tiles and 4 blocks: how many numbers are drawn, all blocks together?

//# hint
// When a block draws a number that is no tile's, others may still be about to draw. If the counter is 0 again by then,
// what do they get?
//# hint
// Each block draws exactly one number that is no tile's: its last one. So how many draws are there, and what is the
// number of the very last?
//# hint
// The numbers are 0 to tiles + gridDim.x - 1. Who draws tiles + gridDim.x - 1 knows that nobody will draw any more.

//# because
// Ten for the tiles, and one more for each of the four blocks, which tells it to stop. The block that draws number 13
// stores the 0.
//# next
// phases/17-persistent/notebook.cpp draws who gets what. There a block's first tile is its own, without any draw:
// blockIdx.x. With how many draws does that do?

//# code

// The next tile of the block's one thread; -1: there is none.
__device__ int draw(int tiles, unsigned* counter) {
  //# hole Draw a number; and leave the counter at 0 in the end.
  const int tile = atomicAdd(counter, 1u);
  if (tile < tiles) return tile;
  if (tile == tiles + gridDim.x - 1) *counter = 0;
  return -1;
  //# skeleton: The counter is not 0 after the launch
  //| const int tile = atomicAdd(counter, 1u);
  //| return tile < tiles ? tile : -1;
  //# also atomic-reset
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile == tiles + gridDim.x - 1) atomicExch(counter, 0u);
  //| return tile < tiles ? tile : -1;
  //# also wrapped
  //| const int tile = atomicInc(counter, tiles + gridDim.x - 1);
  //| return tile < tiles ? tile : -1;
  //# wrong first-resets: The counter is 0 again while
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile < tiles) return tile;
  //| if (tile == tiles) *counter = 0;
  //| return -1;
  //# wrong one-too-many: The counter is not 0 after the launch
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile < tiles) return tile;
  //| if (tile == tiles + gridDim.x) *counter = 0;
  //| return -1;
  //# wrong block-0-resets: The counter is 0 again while
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile < tiles) return tile;
  //| if (blockIdx.x == 0) *counter = 0;
  //| return -1;
  //# wrong first-resets-atomically: Tiles are done twice
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile == tiles) atomicExch(counter, 0u);
  //| return tile < tiles ? tile : -1;
  //# wrong not-atomic: Two blocks may read the counter before either has raised it
  //| const int tile = (*counter)++;
  //| if (tile < tiles) return tile;
  //| if (tile == tiles + gridDim.x - 1) *counter = 0;
  //| return -1;
  //# wrong last-tile-lost: Some tiles are done by nobody
  //| const int tile = atomicAdd(counter, 1u) + 1;
  //| if (tile < tiles) return tile;
  //| if (tile == tiles + gridDim.x) *counter = 0;
  //| return -1;
  //# wrong less-or-equal: are the tiles
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile <= tiles) return tile;
  //| if (tile == tiles + gridDim.x - 1) *counter = 0;
  //| return -1;
  //# wrong no-reset-but-sub: The counter is not 0 after the launch
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile < tiles) return tile;
  //| atomicSub(counter, 1u);
  //| return -1;
  //# wrong last-block-resets: The counter is 0 again while
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile < tiles) return tile;
  //| if (blockIdx.x == gridDim.x - 1) *counter = 0;
  //| return -1;
  //# wrong old-plus-one: The counter is 0 again while
  //| const int tile = atomicAdd(counter, 1u) + 1;
  //| if (tile <= tiles) return tile - 1;
  //| if (tile == tiles + gridDim.x - 1) *counter = 0;
  //| return -1;
  //# also counted-from-one
  //| const int tile = atomicAdd(counter, 1u) + 1;
  //| if (tile == tiles + gridDim.x) *counter = 0;
  //| return tile <= tiles ? tile - 1 : -1;
  //# also compare-and-swap
  //| unsigned seen = atomicAdd(counter, 0u), before;
  //| do {
  //|   before = seen;
  //|   seen = atomicCAS(counter, before, before == tiles + gridDim.x - 1 ? 0 : before + 1);
  //| } while (seen != before);
  //| return before < tiles ? before : -1;
  //# wrong reset-by-minus: The counter is not 0 after the launch
  //| const int tile = atomicAdd(counter, 1u);
  //| if (tile == tiles + gridDim.x - 1) atomicSub(counter, tiles + gridDim.x - 1);
  //| return tile < tiles ? tile : -1;
  //# wrong wrapped-early: Tiles are done twice
  //| const int tile = atomicInc(counter, tiles - 1);
  //| return tile < tiles ? tile : -1;
  //# wrong volatile-read: Two blocks may read the counter before
  //| const int tile = *(volatile unsigned*)counter;
  //| *(volatile unsigned*)counter = tile + 1;
  //| return tile < tiles ? tile : -1;
  //# end
}

// y[i] = x[i] squared, and how often. A thread per block, as phase 17's producer has one that draws.
__global__ void square_all(const float* x /*[tiles]*/, float* y /*[tiles]*/, unsigned* times /*[tiles]*/, int tiles,
                           unsigned* counter) {
  for (;;) {
    trace_mark("draw");
    const int tile = draw(tiles, counter);
    if (tile < 0 || atomicAdd(&times[tile], 1u) > 0) return;
    y[tile] = x[tile] * x[tile];
  }
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 10, kBlocks = 4;
  const Floats X = t.normal("x", kTiles);
  Doubles exact(kTiles);
  for (int i = 0; i < kTiles; ++i) exact[i] = double(X[i]) * X[i];
  const std::vector<Sign> signs{{"atomic after write",
                                 "The counter is 0 again while others still draw: nothing says that the draws of the "
                                 "other blocks come before this "
                                 "store."},
                                {"out of bounds", "The numbers 0 to tiles - 1 are the tiles. Number `tiles` is none."},
                                {"",
                                 "Two blocks may read the counter before either has raised it: reading and raising "
                                 "must be one step, which nobody "
                                 "can come between. That is what atomicAdd is."}};
  const auto x = t.upload("x", X);
  const auto counter = t.upload("counter", std::vector<unsigned>{0});
  for (int launch = 0; launch < 2; ++launch) {
    const auto y = t.alloc("y", kTiles);
    const auto times = t.upload("times", std::vector<unsigned>(kTiles));
    square_all<<<kBlocks, 1>>>(x.data(), y.data(), times.data(), kTiles, counter.data());
    t.findings(signs);
    t.expect(t.uses("atomic") > 1, signs.back().sentence);  // the one that is there counts how often a tile is done
    const auto done = t.download(times);
    t.expect(*std::max_element(done.begin(), done.end()) <= 1,
             "Tiles are done twice: the counter was 0 again while others were still drawing.");
    t.expect(*std::min_element(done.begin(), done.end()) == 1, "Some tiles are done by nobody.");
    t.answer("y", t.download(y), exact, 1);
    t.expect(t.download(counter)[0] == 0,
             "The counter is not 0 after the launch: it is " + std::to_string(t.download(counter)[0]) +
                 ", and the next launch finds nothing to do. Who knows that nobody will draw any more?");
  }
  // The same, with blocks that come in the opposite order: who is last is another one.
  {
    Trial backwards(Order::reverse);
    const auto x2 = backwards.upload("x", X), y = backwards.alloc("y", kTiles);
    const auto times = backwards.upload("times", std::vector<unsigned>(kTiles)),
               again = backwards.upload("counter", std::vector<unsigned>{0});
    square_all<<<kBlocks, 1>>>(x2.data(), y.data(), times.data(), kTiles, again.data());
    backwards.findings(signs);
    const auto left = backwards.download(again)[0];
    t.expect(left == 0,
             "The counter is not 0 after a launch whose blocks came in another order: which block is last is not known "
             "before.");
  }
  const auto of_the_last_launch = [](const TraceEvent& e) { return e.launch == 1 && e.name == "draw"; };
  t.predicted(std::count_if(t.machine.trace().begin(), t.machine.trace().end(), of_the_last_launch));
}
