// 05.4 shuffle: the 32 lanes of a warp add up their numbers without shared memory: who asks whom?
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.4     Prove it: ./flash exercise --check 05.4

//# question
// A warp divides 32 numbers by their sum. Each lane has one of them in a register, and lanes can look into each other's
// registers:
//     __shfl_xor_sync(0xffffffffu, x, offset)     the x of lane (this lane ^ offset)
//     __shfl_down_sync(0xffffffffu, x, offset)    the x of lane (this lane + offset)
//     __shfl_sync(0xffffffffu, x, lane)           the x of that lane
// All lanes that the mask names must make the call; 0xffffffff names all 32. Add the numbers up so that each lane has
// the sum in the end. Five steps are enough. Use no shared memory.

//# predict 8 After two steps, with __shfl_xor_sync and offsets 1 and 2: how many different sums are in the 32 lanes?

//# hint
// After x += __shfl_xor_sync(0xffffffffu, x, 1) lanes 0 and 1 both have the sum of two. Whose sum should lane 0 add
// next?
//# hint
// Each step doubles how many numbers a lane has in its sum: 2, 4, 8, 16, 32. The offsets are powers of two.
//# hint
// for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);

//# because
// After offsets 1 and 2 each group of four neighbours has a sum of its own. Tensor cores need no more: there a row
// belongs to four lanes, and two shuffles find its maximum (exercise 10.1). To ask all 32 lanes one by one is right,
// too; it takes 32 shuffles instead of 5, and the judge does not count them.
//# next
// Exercise 05.5. row_max and row_sum in phases/10-tensor-cores/rows.cuh are this, for four lanes.

//# code

// The sum of the warp's 32 numbers, in each of its lanes.
__device__ float warp_sum(float x) {
  //# hole Add them up.
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
  //# skeleton: Each lane has divided by its own number
  //| return x;
  //# wrong nothing-added: Each lane has divided by its own number
  //| return x;
  //# wrong not-added: The numbers were exchanged and not added
  //~ x += ==> x =
  //# wrong down-only: Only lane 0 has the sum of all
  //~ xor ==> down
  //# wrong stops-early: Each lane has the sum of every second number
  //~ offset > 0 ==> offset > 1
  //# wrong begins-late: Each lane has the sum of its half of the warp
  //~ offset = 16 ==> offset = 8
  //# wrong begins-early: There is no lane 32 steps away
  //~ offset = 16 ==> offset = 32
  //# wrong half-the-warp: The mask names the lanes that make the call
  //~ 0xffffffffu ==> 0xffffu
  //# wrong some-lanes: Some lanes of the mask do not make the call
  //~ x += __shfl_xor_sync ==> if (threadIdx.x % 32 < offset) x += __shfl_xor_sync
  //# wrong by-shared-memory: is 256 where 0 will do
  //| __shared__ float part[2][32];
  //| part[threadIdx.x / 32][threadIdx.x % 32] = x;
  //| __syncwarp();
  //| float sum = 0;
  //| for (int i = 0; i < 32; ++i) sum += part[threadIdx.x / 32][i];
  //| return sum;
  //# also upwards
  //| for (int offset = 1; offset < 32; offset *= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  //| return x;
  //# also down-and-told
  //| for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffffu, x, offset);
  //| return __shfl_sync(0xffffffffu, x, 0);
  //# also one-by-one
  //| float sum = 0;
  //| for (int lane = 0; lane < 32; ++lane) sum += __shfl_sync(0xffffffffu, x, lane);
  //| return sum;
  //# end
}

// Each warp's row of x, divided by its sum.
__global__ void normalise(const float* x /*[2, 32]*/, float* y /*[2, 32]*/) {
  y[threadIdx.x] = x[threadIdx.x] / warp_sum(x[threadIdx.x]);
}

//# judge

// What the prediction is about.
__global__ void two_steps(const float* x, float* y) {
  float sum = x[threadIdx.x];
  for (int offset = 1; offset <= 2; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  y[threadIdx.x] = sum;
}

void judge(Trial& t) {
  Floats X = t.normal("x", 64);
  for (float& value : X) value = std::abs(value) + 0.5f;
  const auto x = t.upload("x", X);
  const auto y = t.alloc("y", 64);
  normalise<<<1, 64>>>(x.data(), y.data());
  t.findings(
      {{"waits for a lane", "Some lanes of the mask do not make the call: no shuffle inside an if that some skip."},
       {"not in ", "The mask names the lanes that make the call: all 32, 0xffffffff."}});
  // If lane i divides by what `sum` makes of its warp's numbers.
  const auto by = [&](auto sum) {
    Doubles Y(64);
    for (int i = 0; i < 64; ++i) Y[i] = X[i] / sum(&X[i / 32 * 32], i % 32);
    return Y;
  };
  // The sum of the numbers whose lanes agree with this one in these bits.
  const auto alike = [&](int bits) {
    return by([bits](const float* all, int lane) {
      double sum = 0;
      for (int i = 0; i < 32; ++i) sum += (i & bits) == (lane & bits) ? all[i] : 0;
      return sum;
    });
  };
  const Doubles down = by([](const float* all, int lane) {
    double x[32];
    std::copy(all, all + 32, x);
    for (int offset = 16; offset > 0; offset /= 2)
      for (int i = 0; i < 32; ++i) x[i] += i + offset < 32 ? x[i + offset] : x[i];
    return x[lane];
  });
  t.answer("y", t.download(y), alike(0), 32,
           {{Doubles(64, 1), "Each lane has divided by its own number: nothing was added to it."},
            {by([](const float* all, int lane) { return all[31 - lane]; }),
             "The numbers were exchanged and not added: x += what the other lane has."},
            {down,
             "Only lane 0 has the sum of all: with __shfl_down_sync the upper lanes ask beyond the warp, and get "
             "their own number. Let lane 0 tell the others, or take __shfl_xor_sync."},
            {alike(1), "Each lane has the sum of every second number: the step with offset 1 is missing."},
            {alike(16), "Each lane has the sum of its half of the warp: the step with offset 16 is missing."},
            {times(alike(0), 0.5), "There is no lane 32 steps away: that step has added a lane's own number again."}},
           1e-5, "warp");
  t.count("the shared memory in bytes", t.ledger().shared_bytes_peak, 0, "Shuffles need none.");
  const Floats some = t.normal("some", 32);
  const auto in = t.upload("some", some);
  const auto out = t.alloc("sums", 32);
  two_steps<<<1, 32>>>(in.data(), out.data());
  Floats sums = t.download(out);
  std::sort(sums.begin(), sums.end());
  t.predicted(std::unique(sums.begin(), sums.end()) - sums.begin());
}
