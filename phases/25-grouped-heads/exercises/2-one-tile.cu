// 25.2 one-tile: a single new token, four heads of Q for one of K: read each key once.
// An exercise of phase 25; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 25.2     Prove it: ./flash exercise --check 25.2

//# question
// A model that writes text has one new query for each head, and thousands of keys: nearly all of its time goes into
// reading K and V. A block of phase 25 has the rows of one head of Q, so the keys of a group are read once for each of
// its heads. Here a block has a head of K instead, and the queries of its whole group are the rows of its tile: thread
// (row, j) makes the product of the group's query `row` with key j. All rows read the same 16 keys at a time.
// Bring the keys into shared memory, each of them once.

//# predict 8192 How many bytes of K do all blocks read together?

//# hint
// A block has kGroup * 16 threads, and 16 keys of 16 numbers are a number for each of 256 threads: how many are there?
//# hint
// kGroup rows of 16 threads are 64 threads. Each copies four numbers: i = thread, thread + 64, …
//# hint
// Block x has head x of K: key `first` begins at (blockIdx.x * Sk + first) * D. Two barriers: all have read the keys
// before; the keys are there.

//# because
// Two heads of K, 64 keys of 16 numbers of 4 bytes: each key is read once, whoever shares it. Read head by head of Q it
// would have been four times as much.
//# next
// phases/25-grouped-heads/notebook.cpp, "Who shares what": there a group shares keys in the L2 cache instead, which
// costs nothing where each head has rows enough for a tile of its own.

//# code

constexpr int kGroup = 4, kKeys = 16, D = 16;

// Block x: the products of the kGroup queries that share head x of K. Thread (row, j): threadIdx.x = row * kKeys + j.
__global__ void scores_of_group(const float* Q /*[H, D]*/, const float* K /*[Hk, Sk, D]*/, float* scores /*[H, Sk]*/,
                                int Sk) {
  __shared__ float keys[kKeys][D + 1];
  const int row = threadIdx.x / kKeys, j = threadIdx.x % kKeys;
  const int h = blockIdx.x * kGroup + row;  // of Q
  for (int first = 0; first < Sk; first += kKeys) {
    //# hole Keys first to first + kKeys - 1 of the block's head go to shared memory.
    __syncthreads();  // all have read the keys before
    for (int i = threadIdx.x; i < kKeys * D; i += kGroup * kKeys)
      keys[i / D][i % D] = K[(blockIdx.x * Sk + first) * D + i];
    __syncthreads();  // the keys are there
    //# skeleton: not written yet
    //|
    //# wrong once-a-row: once for each row
    //| __syncthreads();
    //| for (int d = 0; d < D; ++d) keys[j][d] = K[(blockIdx.x * Sk + first + j) * D + d];
    //| __syncthreads();
    //# wrong no-barrier-before: while others still read
    //| for (int i = threadIdx.x; i < kKeys * D; i += kGroup * kKeys)
    //|   keys[i / D][i % D] = K[(blockIdx.x * Sk + first) * D + i];
    //| __syncthreads();
    //# wrong no-barrier-behind: not written yet
    //| __syncthreads();
    //| for (int i = threadIdx.x; i < kKeys * D; i += kGroup * kKeys)
    //|   keys[i / D][i % D] = K[(blockIdx.x * Sk + first) * D + i];
    //# wrong one-number-each: not written yet
    //| __syncthreads();
    //| keys[threadIdx.x / D][threadIdx.x % D] = K[(blockIdx.x * Sk + first) * D + threadIdx.x];
    //| __syncthreads();
    //# wrong head-of-q: beyond K
    //| __syncthreads();
    //| for (int i = threadIdx.x; i < kKeys * D; i += kGroup * kKeys)
    //|   keys[i / D][i % D] = K[(blockIdx.x * kGroup * Sk + first) * D + i];
    //| __syncthreads();
    //# also first-row-copies
    //| __syncthreads();
    //| if (row == 0)
    //|   for (int d = 0; d < D; ++d) keys[j][d] = K[(blockIdx.x * Sk + first + j) * D + d];
    //| __syncthreads();
    //# end
    float sum = 0;
    for (int d = 0; d < D; ++d) sum = fmaf(Q[h * D + d], keys[j][d], sum);
    scores[h * Sk + first + j] = sum;
  }
}

//# judge

void judge(Trial& t) {
  constexpr int Hk = 2, H = Hk * kGroup, Sk = 64;
  const Floats Q = t.normal("Q", H * D), K = t.normal("K", Hk * Sk * D);
  const auto q = t.upload("Q", Q), k = t.upload("K", K), scores = t.alloc("scores", H * Sk);
  scores_of_group<<<Hk, kGroup * kKeys>>>(q.data(), k.data(), scores.data(), Sk);
  t.findings(
      {{"uninitialised", "Some of the keys were not written yet when they were read."},
       {"out of bounds", "This reads beyond K: block x has head x of K."},
       {"write after write", "Each key is copied once for each row of the group: the rows write the same place."},
       {"", "The next keys are written while others still read: a barrier stands in front of the copy, too."}});
  const auto answer = [&](auto head_of_k) {
    Doubles want(H * Sk);
    for (int h = 0; h < H; ++h)
      for (int j = 0; j < Sk; ++j)
        for (int d = 0; d < D; ++d) want[h * Sk + j] += double(Q[h * D + d]) * K[(head_of_k(h) * Sk + j) * D + d];
    return want;
  };
  t.answer("scores", t.download(scores), answer([](int h) { return h / kGroup; }), Sk,
           {{Doubles(H * Sk), "No product has been made."}}, 1e-5, "head");
  t.count("bytes of K", t.traffic("K").read_bytes, Hk * Sk * D * 4,
          "Each key is read once for each row, and one copy in shared memory serves them all.");
  t.predicted(t.traffic("K").read_bytes);
}
