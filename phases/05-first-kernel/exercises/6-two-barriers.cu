// 05.6 two-barriers: a tile is filled by all threads and read by all threads: when may they go on?
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.6     Prove it: ./flash exercise --check 05.6

//# question
// A block of 64 threads, two warps, computes 64 rows of S V. V arrives in tiles of 32 keys in shared memory: all
// threads fill a tile together, then each thread reads all of it, then the next tile takes its place.
// Threads run at their own pace. Put the barriers where they are needed, and nowhere else.

//# predict 6 How many barriers does the block pass for 96 keys?

//# hint
// Think of the fastest thread and the slowest. Where can the fastest one read what the slowest has not written yet?
//# hint
// And after the tile was used: where can the fastest one overwrite what the slowest has still to read?
//# hint
// __syncthreads() after the loop that fills the tile, and again after the loop that reads it.

//# because
// Two per tile, and there are three tiles: "the tile is complete" and "the tile is no longer needed". The last of them
// protects nothing, but a loop without a special case is worth one barrier.
//# next
// phases/05-first-kernel/steps/4-tiled.cuh has both barriers in an attention kernel. Phase 12 needs one per tile: how?

//# code

constexpr int D = 16, Br = 64, Bc = 32;

// O = S V: a thread per row.
__global__ void multiply(const float* S /*[Br, N]*/, const float* V /*[N, D]*/, float* O /*[Br, D]*/, int N) {
  __shared__ float tile[Bc][D];
  const int row = threadIdx.x;
  float o[D] = {};
  for (int first_key = 0; first_key < N; first_key += Bc) {
    for (int i = threadIdx.x; i < Bc * D; i += Br) tile[i / D][i % D] = V[first_key * D + i];
    //# hole May this thread read what the others write?
    __syncthreads();
    //# skeleton: A thread may read the tile before the others have filled it
    //|
    //# wrong first-forgotten: A thread may read the tile before the others have filled it
    //|
    //# wrong warp-only: orders one warp only
    //| __syncwarp();
    //# wrong divergent: Not all threads come to this barrier
    //| if (threadIdx.x < Bc) __syncthreads();
    //# wrong only-at-first: in each round but the last
    //| if (first_key == 0) __syncthreads();
    //# end
    for (int j = 0; j < Bc; ++j)
      for (int d = 0; d < D; ++d) o[d] = fmaf(S[row * N + first_key + j], tile[j][d], o[d]);
    //# hole And may it overwrite what the others read?
    __syncthreads();
    //# skeleton:
    //|
    //# wrong second-forgotten: A thread fills the tile while another still reads it
    //|
    //# also not-the-last
    //| if (first_key + Bc < N) __syncthreads();
    //# wrong one-too-many: Each barrier makes all wait
    //| __syncthreads();
    //| __syncthreads();
    //# wrong only-at-first:
    //| __syncthreads();
    //# also at-the-front
    //| if (first_key + Bc != N) __syncthreads();
    //# end
  }
  for (int d = 0; d < D; ++d) O[row * D + d] = o[d];
}

//# judge

void judge(Trial& t) {
  constexpr int N = 96;
  const Floats S = t.normal("S", Br * N), V = t.normal("V", N * D);
  const auto s = t.upload("S", S), v = t.upload("V", V);
  const auto o = t.alloc("O", Br * D);
  multiply<<<1, Br>>>(s.data(), v.data(), o.data(), N);
  const std::string divergent = "Not all threads come to this barrier: no __syncthreads() inside an if that some skip.";
  t.findings(
      {{"barrier divergence", divergent},
       {"barrier skipped", divergent},
       {"deadlock", divergent},
       {"uninitialised", t.uses("__syncwarp")
                             ? "__syncwarp() orders one warp only; the tile is filled by two."
                             : "A thread may read the tile before the others have filled it: let all wait in between."},
       {"race",
        "A thread fills the tile while another still reads it, or reads it already: let all wait before the reads and "
        "behind them, in each round but the last."}});
  Doubles exact(Br * D);
  for (int i = 0; i < Br; ++i)
    for (int j = 0; j < N; ++j)
      for (int d = 0; d < D; ++d) exact[i * D + d] += double(S[i * N + j]) * V[j * D + d];
  t.answer("O", t.download(o), exact, D);
  t.count("the number of barriers", t.ledger().barriers, 2 * N / Bc,
          "Each barrier makes all wait for the slowest: which one protects nothing?");
  t.predicted(t.ledger().barriers);
}
