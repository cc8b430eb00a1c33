// 05.2 coalescing: each thread has four elements: which four?
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.2     Prove it: ./flash exercise --check 05.2

//# question
// y = a x for n numbers, as in 05.1, but now each thread has four of them, so that a block of 128 threads has 512.
// Memory is moved in sectors of 32 bytes, which is 8 floats. A warp's load touches every sector in which one of its 32
// lanes has its element. It is coalesced if it touches as few as its bytes fill: 4 sectors for 32 floats.
// Say which element is number k of a thread, so that all loads and stores are coalesced.

//# predict 16 Let thread t have elements 4 t to 4 t + 3. How many sectors does one load of a warp touch?

//# hint
// Look at one load: k is the same in all 32 lanes. Which elements do the lanes have at that moment?
//# hint
// Neighbouring lanes should have neighbouring elements. So threadIdx.x counts by one, and k makes the long step.
//# hint
// In turn k the block takes 128 elements in a row: blockIdx.x * kThreads * 4 + k * kThreads + threadIdx.x.

//# because
// The lanes of one load are 16 bytes apart then, so 32 of them reach over 512 bytes: 16 sectors, of which each load
// uses a quarter. All four loads together touch each sector four times.
//# next
// load_tile in phases/05-first-kernel/attention.cuh gives neighbouring threads neighbouring columns. Then exercise
// 05.3.

//# code

constexpr int kThreads = 128;

__global__ void scale(float a, const float* x /*[n]*/, float* y /*[n]*/, int n) {
  for (int k = 0; k < 4; ++k) {
    //# hole Which element is the thread's number k?
    const int i = blockIdx.x * kThreads * 4 + k * kThreads + threadIdx.x;
    //# skeleton: is 500 where 125 will do
    //| const int i = (blockIdx.x * kThreads + threadIdx.x) * 4 + k;
    //# wrong neighbours: is 500 where 125 will do
    //| const int i = (blockIdx.x * kThreads + threadIdx.x) * 4 + k;
    //# wrong pairs: is 250 where 125 will do
    //| const int i = blockIdx.x * kThreads * 4 + k / 2 * 256 + 2 * threadIdx.x + k % 2;
    //# wrong lanes-apart: is 1000 where 125 will do
    //| const int i = blockIdx.x * kThreads * 4 + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 4 + k;
    //# wrong one-further: Not every element has a thread
    //| const int i = blockIdx.x * kThreads * 4 + k * kThreads + threadIdx.x + 1;
    //# wrong same-for-all-blocks: Two blocks have the same elements
    //| const int i = k * kThreads + threadIdx.x;
    //# wrong blocks-overlap: Two blocks have the same elements
    //| const int i = blockIdx.x * kThreads + k * kThreads + threadIdx.x;
    //# wrong threads-overlap: Two threads of a block have the same element
    //| const int i = blockIdx.x * kThreads * 4 + k + threadIdx.x;
    //# also through-the-grid
    //| const int i = (k * gridDim.x + blockIdx.x) * kThreads + threadIdx.x;
    //# also a-warp-at-a-time
    //| const int i = blockIdx.x * kThreads * 4 + threadIdx.x / 32 * 128 + k * 32 + threadIdx.x % 32;
    //# also backwards
    //| const int i = (blockIdx.x + 1) * kThreads * 4 - 1 - k * kThreads - threadIdx.x;
    //# end
    if (i < n) y[i] = a * x[i];
  }
}

void launch(float a, const float* x, float* y, int n) {
  scale<<<(n + 4 * kThreads - 1) / (4 * kThreads), kThreads>>>(a, x, y, n);
}

//# judge

// What the prediction is about.
__global__ void neighbours(const float* x, float* y) {
  for (int k = 0; k < 4; ++k) y[4 * threadIdx.x + k] = x[4 * threadIdx.x + k];
}

void judge(Trial& t) {
  constexpr int n = 1000;
  const Floats X = t.normal("x", n);
  const auto x = t.upload("x", X);
  const auto y = t.alloc("y", n);
  launch(3, x.data(), y.data(), n);
  const std::string found = t.machine.findings().empty() ? "" : t.machine.findings()[0].text;
  const std::size_t one = found.find("block ("), other = found.rfind("block (");
  const bool within = one != other && found.compare(one, 13, found, other, 13) == 0;
  t.findings({{"race", within ? "Two threads of a block have the same element: 128 threads with four each have 512 "
                                "different ones."
                              : "Two blocks have the same elements: each has 512 of its own."},
              {"out of bounds", "i leaves the arrays: the elements are 0 to n - 1."}});
  Doubles exact(X.begin(), X.end());
  for (double& value : exact) value = float(3 * value);
  const Floats Y = t.download(y);
  t.expect(std::none_of(Y.begin(), Y.end(), [](float value) { return std::isnan(value); }),
           "Not every element has a thread: some were never written.");
  t.answer("y", Y, exact, 1, {}, 1e-5, "element");
  const std::string why =
      "A sector is well used where one load asks for all 8 floats of it: neighbouring lanes should "
      "have neighbouring elements.";
  t.count("the number of sectors that the loads of x touch", t.traffic("x").read_sectors, n / 8, why);
  t.count("the number of sectors that the stores of y touch", t.traffic("y").write_sectors, n / 8, why);
  const auto some = t.upload("some", t.normal("some", 128));
  neighbours<<<1, 32>>>(some.data(), t.alloc("others", 128).data());
  t.predicted(t.traffic("some").read_sectors / t.traffic("some").read_requests);
}
