// 20.1 hand-over: one warp makes P, another one needs it: who waits, and for whom?
// An exercise of phase 20; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 20.1     Prove it: ./flash exercise --check 20.1

//# question
// Two warps share the keys of a tile. Warp 0 makes P = exp2(S - m) and puts it into shared memory. Warp 1 makes
// dS = P * (dP - delta), and needs that P. A block may have more warps, so the two meet at a barrier of their own:
//     bar_sync(barrier, threads)       waits until so many threads have come to this barrier, itself among them
//     bar_arrive(barrier, threads)     has come to it as well, and goes on
// Barriers are numbered; 0 is that of __syncthreads(), which stands at the beginning of each tile. Warp 0 should go on
// as soon as its P is written: its next product does not depend on warp 1.

//# predict 6 At how many barriers of the whole block do the two warps meet, with 6 tiles?

//# hint
// Both name the same barrier and the same number of threads. Which number, if all lanes of both warps come?
//# hint
// Only one of the two has something to wait for.
//# hint
// Warp 0: bar_arrive(1, 64) behind its store. Warp 1: bar_sync(1, 64) before it reads P.

//# because
// One for each tile, which is needed anyway: behind it the last tile's P has been read, and the place may be written
// again. So nothing has to say that the place is empty.
//# next
// phases/20-backward-tensor-cores/notebook.cpp, "Handing over P": four such pairs, with a barrier for each.

//# code

struct Shared {
  float P[32];
};

// Two warps; a lane of each has the same key.
__global__ void softmax_gradient(const float* S /*[tiles, 32]*/, const float* dP /*[tiles, 32]*/,
                                 float* dS /*[tiles, 32]*/, int tiles, float m, float delta) {
  Shared& x = shared<Shared>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();  // all have read the last tile's P
    if (warp == 0) {
      x.P[lane] = exp2f(S[tile * 32 + lane] - m);
      //# hole P is there: say so, and go on.
      bar_arrive(1, 64);
      //# skeleton: reads P while warp 0 may still write it
      //|
      //# wrong waits-too: warp 0 has nothing to wait for
      //| bar_sync(1, 64);
      //# wrong half-of-them: 32 threads
      //| bar_arrive(1, 32);
      //# wrong barrier-zero: that of __syncthreads
      //| bar_arrive(0, 64);
      //# wrong of-the-warp: orders the lanes of one warp
      //| __syncwarp();
      //# wrong another-barrier: nobody comes to the barrier
      //| bar_arrive(2, 64);
      //# wrong fence-alone: A fence makes nobody wait
      //| __threadfence_block();
      //# end
    } else {
      //# hole Wait for P.
      bar_sync(1, 64);
      //# skeleton:
      //|
      //# wrong goes-on: comes to the barrier without waiting
      //| bar_arrive(1, 64);
      //# end
      dS[tile * 32 + lane] = x.P[lane] * (dP[tile * 32 + lane] - delta);
    }
  }
}

//# judge

void judge(Trial& t) {
  constexpr int kTiles = 6;
  const float m = 2, delta = 0.5f;
  const Floats S = t.normal("S", kTiles * 32), dP = t.normal("dP", kTiles * 32);
  const auto s = t.upload("S", S), dp = t.upload("dP", dP);
  const auto ds = t.alloc("dS", kTiles * 32);
  softmax_gradient<<<1, 64, sizeof(Shared)>>>(s.data(), dp.data(), ds.data(), kTiles, m, delta);
  const bool arrives = t.uses("bar_arrive"), waits = t.uses("bar_sync");
  const std::string alone =
      t.uses("__threadfence_block") ? "A fence makes nobody wait, and nobody comes to warp 1's barrier by it."
      : t.uses("__syncwarp")        ? "__syncwarp() orders the lanes of one warp, and here two warps meet."
      : t.uses(", 32)")             ? "The two warps are 64 threads, not 32 threads: both say how many come."
                                    : "Warp 1 waits, but nobody comes to the barrier that it names: both must name the "
                                      "same one.";
  t.findings({{"race:", arrives && !waits
                            ? "Warp 1 comes to the barrier without waiting for it: bar_sync waits."
                            : "Warp 1 reads P while warp 0 may still write it: the two must meet in between."},
              {"deadlock", alone},
              {"named barrier", t.uses("bar_arrive(0") ? "Barrier 0 is that of __syncthreads(): take another number."
                                                       : alone}});
  Doubles exact(kTiles * 32);
  for (int i = 0; i < kTiles * 32; ++i) exact[i] = std::exp2(double(S[i]) - m) * (double(dP[i]) - delta);
  t.answer("dS", t.download(ds), exact, 32);
  t.demand(t.uses("bar_sync") == 1, "warp 0 has nothing to wait for: let it come to the barrier and go on.");
  t.predicted(t.ledger().barriers);
}
