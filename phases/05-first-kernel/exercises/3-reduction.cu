// 05.3 reduction: 256 threads, one sum: who adds what, and when?
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.3     Prove it: ./flash exercise --check 05.3

//# question
// A block of 256 threads divides 256 numbers by their sum, as softmax does. Each thread has put a number into shared
// memory, `part`. Now let half of the threads add one number each to their own, then half of these, and so on, until
// the sum is in part[0].
// The loop is yours, and so are its barriers. Let the threads at work be neighbours: whole warps fall idle then, and no
// two lanes of a warp want different words of the same bank.

//# predict 8 With one barrier in each round: how many barriers does the loop have?

//# hint
// After the first round 128 numbers are left, those of threads 0 to 127. Which one does thread t < 128 have to add to
// its own?
//# hint
// Thread t < half adds part[t + half]. Between two rounds all must wait: what a thread reads, another has written.
//# hint
// for (int half = 128; half > 0; half /= 2) { __syncthreads(); if (t < half) part[t] += part[t + half]; }

//# because
// 256 is 2 to the power of 8, and each round halves. The last five rounds belong to one warp, and shuffles do these
// without shared memory and without barriers: the next exercise.
//# next
// Exercise 05.4; softmax needs two reductions for each row, its maximum and its sum.

//# code

constexpr int kThreads = 256;

// Each block's row of x, divided by its sum.
__global__ void normalise(const float* x /*[gridDim.x, kThreads]*/, float* y /*[gridDim.x, kThreads]*/) {
  __shared__ float part[kThreads];
  const int t = threadIdx.x;
  const float mine = x[blockIdx.x * kThreads + t];
  part[t] = mine;
  //# hole Add them up: the sum is to be in part[0].
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (t < half) part[t] += part[t + half];
  }
  //# skeleton: Only a part of the numbers is in part[0]
  //|
  //# wrong no-barrier: before it was written
  //~ __syncthreads(); ==>
  //# wrong barrier-for-some: Not all threads come to this barrier
  //| for (int half = kThreads / 2; half > 0; half /= 2)
  //|   if (t < 2 * half) {
  //|     __syncthreads();
  //|     if (t < half) part[t] += part[t + half];
  //|   }
  //# wrong barrier-once: Two rounds run into each other
  //| __syncthreads();
  //| for (int half = kThreads / 2; half > 0; half /= 2)
  //|   if (t < half) part[t] += part[t + half];
  //# wrong one-round-less: Only a part of the numbers is in part[0]
  //~ half > 0 ==> half > 1
  //# wrong one-round-more: The first round reaches beyond the 256 numbers
  //~ kThreads / 2 ==> kThreads
  //# wrong everybody: In one round a number is read by one thread and changed by another
  //~ if (t < half) part[t] += part[t + half]; ==> part[t] += part[(t + half) % kThreads];
  //# wrong alone: One thread adds while 255 wait
  //| __syncthreads();
  //| for (int i = 1; t == 0 && i < kThreads; ++i) part[0] += part[i];
  //# wrong far-apart: is 315 where 0 will do
  //| for (int step = 1; step < kThreads; step *= 2) {
  //|   __syncthreads();
  //|   const int i = 2 * step * t;
  //|   if (i < kThreads) part[i] += part[i + step];
  //| }
  //# wrong every-second: all eight warps are at work with a few lanes each
  //| for (int step = 1; step < kThreads; step *= 2) {
  //|   __syncthreads();
  //|   if (t % (2 * step) == 0) part[t] += part[t + step];
  //| }
  //# also barrier-behind
  //| __syncthreads();
  //| for (int half = kThreads / 2; half > 0; half /= 2) {
  //|   if (t < half) part[t] += part[t + half];
  //|   __syncthreads();
  //| }
  //# also one-warp
  //| __syncthreads();
  //| float all = 0;
  //| for (int i = t; t < 32 && i < kThreads; i += 32) all += part[i];
  //| for (int offset = 16; t < 32 && offset > 0; offset /= 2) all += __shfl_xor_sync(0xffffffffu, all, offset);
  //| if (t == 0) part[0] = all;
  //# end
  __syncthreads();
  y[blockIdx.x * kThreads + t] = mine / part[0];
}

//# judge

// What the prediction is about.
__global__ void rounds() {
  for (int half = kThreads / 2; half > 0; half /= 2) __syncthreads();
}

void judge(Trial& t) {
  constexpr int kBlocks = 3, kAll = kBlocks * kThreads;
  Floats X = t.normal("x", kAll);
  for (float& value : X) value = std::abs(value) + 0.5f;
  const auto x = t.upload("x", X);
  const auto y = t.alloc("y", kAll);
  normalise<<<kBlocks, kThreads>>>(x.data(), y.data());
  const std::string divergent = "Not all threads come to this barrier: no __syncthreads() inside an if that some skip.";
  const bool waits = t.ledger().barriers >= 8 * kBlocks;
  t.findings(
      {{"barrier divergence", divergent},
       {"barrier skipped", divergent},
       {"deadlock", divergent},
       {"out of bounds", "The first round reaches beyond the 256 numbers: half of them is 128."},
       {"uninitialised", "A number is read before it was written: all must wait before each round."},
       {"race", waits ? "In one round a number is read by one thread and changed by another: threads below `half` "
                        "add, the numbers from `half` on are read."
                      : "Two rounds run into each other: all must wait before each of them."}});
  // If the block divides by the numbers whose indices are multiples of `step`, added up.
  const auto by = [&](int step) {
    Doubles Y(kAll), sums(kBlocks);
    for (int i = 0; i < kAll; ++i) sums[i / kThreads] += i % step ? 0 : X[i];
    for (int i = 0; i < kAll; ++i) Y[i] = X[i] / sums[i / kThreads];
    return Y;
  };
  const std::string part = "Only a part of the numbers is in part[0]: ";
  t.answer("y", t.download(y), by(1), kThreads,
           {{by(kThreads), part + "the first one alone."},
            {by(2), part + "those with even indices. One round is missing, that of half = 1."}},
           1e-5, "block");
  t.count("the number of bank conflicts", t.ledger().bank_conflicts(), 0,
          "Lanes whose words are 2, 4 or 8 apart share banks, and the words of a bank come one after another.");
  t.count("the number of turns (wavefronts) that shared memory takes for a block",
          t.ledger().shared_wavefronts / kBlocks, 60,
          t.ledger().shared_read_requests > 250 * kBlocks && t.ledger().barriers < 4 * kBlocks
              ? "One thread adds while 255 wait."
              : "In most rounds all eight warps are at work with a few lanes each: the threads at work should be "
                "neighbours.");
  rounds<<<1, kThreads>>>();
  t.predicted(t.ledger().barriers);
}
