// 24.1 relay: blocks pass a sum on: the first stores it, the last one rounds it
// An exercise of phase 24; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 24.1     Prove it: ./flash exercise --check 24.1

//# question
// Each block has a share of 512 numbers of each tile, and y is the sum of all shares, rounded to half. There are two
// blocks or more. Nobody has cleared `sum`, and no kernel comes behind: the first share of a tile is stored there, the
// next ones are added to it, and the last one never goes there. Its block adds the sum to it, and rounds. Blocks begin
// in any order, and one may begin when another has ended. These words are there:
//     atomicAdd(&n, 1u)                            adds to a number; returns what it was before
//     cp_async_bulk_store(to, from, bytes)         begins to store numbers of shared memory in HBM
//     cp_reduce_async_bulk_add(to, from, bytes)    begins to add them to those that are there
//     cp_async_bulk_commit()                       makes a group of what this thread has begun
//     cp_async_bulk_wait<0>()                      all groups of this thread are done
//     cp_async_bulk_wait_read<0>()                 all of them have read shared memory
//     red_release_add(&n, 1)                       adds to a number, and passes on what this thread knows
//     wait_at_least(&n, k)                         waits for n >= k; then this thread knows it, too
// counts[0] and done, a number for each tile, are 0 before the launch.

//# predict 12 4 blocks, 6 tiles each: how many times does TMA add to the sum?

//# hint
// A block may only wait for blocks that have begun already. Which number tells it how many have?
//# hint
// Say of each share what it waits for: the first one for nothing, the last one for all others. And those between?
// When is a share in `sum`, not only read?
//# hint
// share = atomicAdd(&counts[0], 1u). Then: if (share > 0) wait_at_least(done, 1); store or add; commit;
// cp_async_bulk_wait<0>(); red_release_add(done, 1). The last one: wait_at_least(done, last);
// four = plus(four, others[threadIdx.x]);

//# because
// Of 4 shares of a tile the first is stored, and the last is added in registers. Two are left for TMA, in each of 6
// tiles.
//# next
// phases/24-backward-fused/notebook.cpp, "Who waits for whom": the same with tiles of dQ.

//# code

constexpr int kNumbers = 512;

struct Shared {
  alignas(16) float4 tile[kNumbers / 4];
  unsigned share;
};

__device__ float4 plus(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// y = the sum of all blocks' (x - delta), rounded. 128 threads.
__global__ void add_up(const float4* x /*[blocks, tiles, 128]*/, float4* sum /*[tiles, 128]*/,
                       __half* y /*[tiles, 512]*/, unsigned* counts /*[1 + tiles]*/, int tiles, float delta) {
  Shared& s = shared<Shared>();
  if (threadIdx.x == 0) {
    //# hole Which share is the block's, 0 to gridDim.x - 1?
    s.share = atomicAdd(&counts[0], 1u);
    //# skeleton: waits for ever: no share
    //| s.share = blockIdx.x;
    //# wrong by-index: waits for one that has not begun
    //| s.share = blockIdx.x;
    //# wrong read-and-written: Two blocks may draw the same number
    //| s.share = counts[0];
    //| counts[0] = s.share + 1;
    //# end
  }
  __syncthreads();  // the share is there
  const unsigned share = s.share, last = gridDim.x - 1;
  for (int tile = 0; tile < tiles; ++tile) {
    unsigned* const done = &counts[1 + tile];  // shares of the tile that are in sum
    float4* const others = sum + tile * 128;
    float4 four = plus(x[(share * tiles + tile) * 128 + threadIdx.x], make_float4(-delta, -delta, -delta, -delta));
    if (share < last) {
      s.tile[threadIdx.x] = four;
      fence_proxy_async();
      __syncthreads();  // the tile is there, for TMA too
      if (threadIdx.x == 0) {
        //# hole s.tile goes to `others`; then it counts.
        if (share > 0) wait_at_least(done, 1);
        if (share == 0)
          cp_async_bulk_store(others, s.tile, sizeof s.tile);
        else
          cp_reduce_async_bulk_add(&others->x, &s.tile[0].x, sizeof s.tile);
        cp_async_bulk_commit();
        cp_async_bulk_wait<0>();
        red_release_add(done, 1);
        //# skeleton:
        //|
        //# also in-order
        //| wait_at_least(done, share);
        //| if (share == 0)
        //|   cp_async_bulk_store(others, s.tile, sizeof s.tile);
        //| else
        //|   cp_reduce_async_bulk_add(&others->x, &s.tile[0].x, sizeof s.tile);
        //| cp_async_bulk_commit();
        //| cp_async_bulk_wait<0>();
        //| red_release_add(done, 1);
        //# also fence-and-add
        //~ red_release_add(done, 1); ==> __threadfence(), atomicAdd(done, 1u);
        //# wrong not-counted: waits for ever: no share
        //~ red_release_add(done, 1); ==>
        //# wrong no-wait: before the first one has been stored
        //~ if (share > 0) wait_at_least(done, 1); ==>
        //# wrong waits-for-all: for more shares than come before
        //~ wait_at_least(done, 1) ==> wait_at_least(done, last)
        //# wrong read-alone: when TMA has read it
        //~ cp_async_bulk_wait<0> ==> cp_async_bulk_wait_read<0>
        //# wrong no-commit: must be committed
        //~ cp_async_bulk_commit(); ==>
        //# wrong counted-before: counts behind cp_async_bulk_wait
        //| if (share > 0) wait_at_least(done, 1);
        //| if (share == 0)
        //|   cp_async_bulk_store(others, s.tile, sizeof s.tile);
        //| else
        //|   cp_reduce_async_bulk_add(&others->x, &s.tile[0].x, sizeof s.tile);
        //| cp_async_bulk_commit();
        //| red_release_add(done, 1);
        //| cp_async_bulk_wait<0>();
        //# wrong no-release: nothing is passed on
        //~ red_release_add(done, 1) ==> atomicAdd(done, 1u)
        //# wrong first-added: Nobody has cleared
        //~ if (share == 0) ==> if (false)
        //# wrong all-stored: overwrites those before
        //~ if (share == 0) ==> if (true)
        //# end
      }
      __syncthreads();  // the tile has been read
    } else {
      //# hole The block has the last share: four becomes the sum of all.
      wait_at_least(done, last);
      four = plus(four, others[threadIdx.x]);
      //# skeleton:
      //| wait_at_least(done, last);
      //# also one-waits
      //| if (threadIdx.x == 0) wait_at_least(done, last);
      //| __syncthreads();
      //| four = plus(four, others[threadIdx.x]);
      //# wrong one-waits-alone: the others know nothing of it
      //~ wait_at_least ==> if (threadIdx.x == 0) wait_at_least
      //# wrong rounded-early: taken before all others are in it
      //~ wait_at_least(done, last) ==> wait_at_least(done, 1)
      //# wrong not-waited: taken before all others are in it
      //~ wait_at_least(done, last); ==>
      //# wrong itself-too: for more shares than come before
      //~ wait_at_least(done, last) ==> wait_at_least(done, gridDim.x)
      //# wrong own-forgotten: The last share is missing
      //~ plus(four, others[threadIdx.x]) ==> others[threadIdx.x]
      //# wrong own-alone: y is the last share alone
      //~ plus(four, others[threadIdx.x]) ==> four
      //# end
      __half* const to = y + tile * kNumbers + threadIdx.x * 4;
      to[0] = __float2half(four.x), to[1] = __float2half(four.y);
      to[2] = __float2half(four.z), to[3] = __float2half(four.w);
    }
  }
}

//# judge

void judge(Trial& t) {
  constexpr int kBlocks = 4, kTiles = 6, kAll = kTiles * kNumbers;
  const float delta = 0.5f;
  const Floats X = t.normal("x", kBlocks * kAll);
  std::vector<float4> fours;
  for (int i = 0; i < kBlocks * kAll; i += 4) fours.push_back(make_float4(X[i], X[i + 1], X[i + 2], X[i + 3]));
  Doubles shares[kBlocks], exact(kAll), others(kAll);
  for (int i = 0; i < kBlocks * kAll; ++i) shares[i / kAll].push_back(double(X[i]) - delta);
  for (int i = 0; i < kAll; ++i) {
    for (const Doubles& share : shares) exact[i] += share[i];
    others[i] = exact[i] - shares[kBlocks - 1][i];
  }
  const std::string taken = "The sum is taken before all others are in it: who takes it waits for their count.";
  std::string early;  // why a share that was waited for may not be there
  if (t.uses("cp_async_bulk_commit") == 0)
    early = "A share counts while TMA may still read it: a group must be committed before it is waited for.";
  else if (t.uses("cp_async_bulk_wait<0>") == 0)
    early = "A share counts when TMA has read it: it is in `sum` behind cp_async_bulk_wait<0>() alone.";
  else if (t.uses("red_release_add") + t.uses("__threadfence") == 0)
    early = "A share counts, and nothing is passed on with the count: red_release_add does that.";
  else if (t.uses("threadIdx.x == 0) wait_at_least(done, last)") > 0)
    early = "One thread has waited, and the others know nothing of it: a barrier comes before they read.";
  const auto or_early = [&](const char* sentence) { return early.empty() ? sentence : early; };
  const auto launch = [&](Trial& t, const std::vector<float4>& from, const std::vector<unsigned>& before) {
    const auto x = t.upload("x", from);
    const auto sum = t.alloc("sum", kAll);
    const auto y = t.upload("y", std::vector<__half>(kAll));
    const auto counts = t.upload("counts", before);
    add_up<<<kBlocks, 128, sizeof(Shared)>>>(x.data(), reinterpret_cast<float4*>(sum.data()), y.data(), counts.data(),
                                             kTiles, delta);
    Floats got;
    for (const __half value : t.download(y)) got.push_back(__half2float(value));
    return got;
  };
  const auto run = [&](Trial& trial, const std::string& stuck) {
    const Floats got = launch(trial, fours, std::vector<unsigned>(1 + kTiles));
    trial.findings(
        {{"of counts[", "Two blocks may draw the same number: reading it and raising it must be one step."},
         {"write of shared", or_early("The tile is written again while TMA may still read it.")},
         {"uninitialised: cp.reduce", "Nobody has cleared `sum`: the first share is stored, not added."},
         {"race: read after", early.empty() ? taken + " And a share counts behind cp_async_bulk_wait<0>()." : early},
         {"race: cp.reduce", or_early("A share is added before the first one has been stored.")},
         {"race: cp.async.bulk",
          "Each share overwrites those before it: only the first one is stored, others are added."},
         {"deadlock", stuck}});
    trial.answer("y", got, exact, kNumbers,
                 {{others, "The last share is missing: it never goes to `sum`, so its block has to add it."},
                  {shares[kBlocks - 1], "y is the last share alone: the sum of the others belongs to it."}},
                 0x1p-11, "tile");  // half's own rounding is less
  };
  run(t, t.uses("red_release_add") + t.uses("atomicAdd(done") == 0
             ? "A block waits for ever: no share has been counted."
             : "A block waits for ever, for more shares than come before its own.");
  Trial backwards(Order::reverse);
  run(backwards,
      "A block waits for one that has not begun, and that may begin only when this one has ended: blocks begin in any "
      "order, and only a number that is drawn tells who has begun.");
  // As if the last share came when a single one is there: its block must wait, and here nobody ends that.
  Trial alone;
  std::vector<unsigned> one(1 + kTiles, 1);
  one[0] = kBlocks - 1;
  std::vector<float4> more = fours;  // the next blocks draw numbers that are no shares
  more.insert(more.end(), fours.begin(), fours.end());
  launch(alone, more, one);
  const auto& found = alone.machine.findings();
  t.expect(std::any_of(found.begin(), found.end(), [](const Finding& f) { return f.text.find("deadlock") == 0; }),
           taken);
  t.predicted(t.traffic("sum").reduce_requests);
}
