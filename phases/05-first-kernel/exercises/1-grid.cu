// 05.1 grid: 1,000 numbers, blocks of 128 threads: how many blocks, and what does the last one do?
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.1     Prove it: ./flash exercise --check 05.1

//# question
// y = a x for n numbers, a thread for each. A block has 128 threads, and n need not be a multiple of that.
// Say which element is a thread's, and how many blocks there are.

//# predict 24 n = 1000: how many threads have nothing to do?

//# hint
// In block 3, thread 5: three blocks of 128 threads come before. blockIdx.x, blockDim.x and threadIdx.x are yours.
//# hint
// 1000 / 128 is 7 in whole numbers, and 7 * 128 is only 896. Round up: (n + 127) / 128.
//# hint
// i = blockIdx.x * blockDim.x + threadIdx.x, and nothing is done unless i < n.

//# because
// 8 blocks have 1024 threads. A GPU starts whole blocks only, so nearly every kernel begins with such a question.
//# next
// phases/05-first-kernel/steps/1-index.cuh, then exercise 05.2: four elements for each thread.

//# code

constexpr int kThreads = 128;

__global__ void scale(float a, const float* x /*[n]*/, float* y /*[n]*/, int n) {
  //# hole Which element is mine, and is there one?
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
  //# skeleton: The blocks all work on the same elements
  //| const int i = threadIdx.x;
  //| y[i] = a * x[i];
  //# wrong no-guard: The last block runs past the end
  //| const int i = blockIdx.x * blockDim.x + threadIdx.x;
  //| y[i] = a * x[i];
  //# wrong same-elements: The blocks all work on the same elements
  //| const int i = threadIdx.x;
  //| if (i < n) y[i] = a * x[i];
  //# wrong guard-too-wide: One thread too many
  //| const int i = blockIdx.x * blockDim.x + threadIdx.x;
  //| if (i <= n) y[i] = a * x[i];
  //# wrong grid-for-block: Two blocks write the same element
  //| const int i = blockIdx.x * gridDim.x + threadIdx.x;
  //| if (i < n) y[i] = a * x[i];
  //# also interleaved
  //| const int i = threadIdx.x * gridDim.x + blockIdx.x;
  //| if (i < n) y[i] = a * x[i];
  //# also grid-stride
  //| for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i];
  //# also early-return
  //| const int i = blockIdx.x * blockDim.x + threadIdx.x;
  //| if (i >= n) return;
  //| y[i] = a * x[i];
  //# end
}

void launch(float a, const float* x, float* y, int n) {
  //# hole How many blocks?
  const int blocks = (n + kThreads - 1) / kThreads;
  //# skeleton:
  //| const int blocks = n / kThreads;
  //# wrong rounded-down: Too few blocks
  //| const int blocks = n / kThreads;
  //# wrong one-more: One block has nothing at all to do
  //| const int blocks = n / kThreads + 1;
  //# wrong one-block: Too few blocks for 512 numbers: 1 of 128 threads
  //| const int blocks = 1;
  //# wrong block-per-element: 508 blocks have nothing at all to do
  //| const int blocks = n;
  //# also ceil
  //| const int blocks = static_cast<int>(ceilf(static_cast<float>(n) / kThreads));
  //# end
  scale<<<blocks, kThreads>>>(a, x, y, n);
}

//# judge

void judge(Trial& t) {
  int idle = 0;
  for (const int n : {512, 1000}) {
    const Floats X = t.normal("x", n);
    const auto x = t.upload("x", X);
    const auto y = t.alloc("y", n);
    launch(3, x.data(), y.data(), n);
    t.findings(
        {{"race",
          t.uses("blockIdx")
              ? "Two blocks write the same element: a block's begin blockDim.x behind those of the block before."
              : "The blocks all work on the same elements: which block a thread is in must count, too."},
         {"[" + std::to_string(n) + "]",
          t.uses("<=") ? "One thread too many goes on: element n is behind the end."
                       : "The last block runs past the end of the arrays: a thread without an element does nothing."},
         {"out of bounds", "The last block runs past the end of the arrays: guard the access."}});
    const Floats Y = t.download(y);
    Doubles exact(X.begin(), X.end());
    for (double& value : exact) value = float(3 * value);
    const int blocks = t.machine.reports().back().grid[0], needed = (n + kThreads - 1) / kThreads;
    t.expect(blocks >= needed, "Too few blocks for " + std::to_string(n) + " numbers: " + std::to_string(blocks) +
                                   " of 128 threads. What fills no whole block needs one, too.");
    t.answer("y", Y, exact, 1, {}, 1e-5, "element");
    t.count("the number of blocks for " + std::to_string(n) + " numbers", blocks, needed,
            blocks == needed + 1 ? "One block has nothing at all to do."
                                 : std::to_string(blocks - needed) + " blocks have nothing at all to do.");
    idle = blocks * kThreads - n;
  }
  t.predicted(idle);
}
