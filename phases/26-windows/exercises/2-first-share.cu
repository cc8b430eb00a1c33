// 26.2 first-share: a sum goes from tile to tile: who stores it, who adds, who ends it?
// An exercise of phase 26; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 26.2     Prove it: ./flash exercise --check 26.2

//# question
// In phase 24 dQ of a Q tile goes from one K/V tile to the next: the first one stores its share, others add theirs, and
// the last one scales the sum. Here launch `kv` has K/V tile `kv`, launches come in the order of the tiles, and block q
// has the rows of Q tile q. Row i sees the keys i - kLeft to i, as far as they exist.
// `sums` holds nothing at first. Write what becomes of a row's share.

//# predict 2048 How many bytes of sums do all launches read together?

//# hint
// Which tile is the first one is another matter for each Q tile: the kernel has worked it out.
//# hint
// The first share is stored as it is, whatever was in sums; all others are added to what is there.
//# hint
// The last share's sum is multiplied by kScale before it is stored. Where a Q tile sees a single tile it is both.

//# because
// The five Q tiles see 2, 4, 5, 5 and 5 K/V tiles. Each share but a Q tile's first one reads 32 numbers of 4 bytes:
// that is 16 shares. No launch clears sums, and none comes behind.
//# next
// phases/26-windows/attention.cuh: OfShare, which says the same to phase 24's kernel.

//# code

constexpr int kRows = 32, kKeys = 16, kLeft = 40, N = 160;
constexpr float kScale = 0.5f;

__global__ void add_share(const float* x /*[N]*/, float* sums /*[N]*/, int kv) {
  const int first_row = blockIdx.x * kRows, row = first_row + threadIdx.x;
  const int first = max(first_row - kLeft, 0) / kKeys, last = (first_row + kRows - 1) / kKeys;
  if (kv < first || kv > last) return;  // no row of the Q tile sees a key of this tile
  float share = 0;
  for (int key = kv * kKeys; key < (kv + 1) * kKeys; ++key)
    if (row - kLeft <= key && key <= row) share += x[key];
  //# hole The share goes to sums[row]: stored, added, or added and multiplied by kScale.
  const float sum = kv == first ? share : sums[row] + share;
  sums[row] = kv == last ? sum * kScale : sum;
  //# skeleton: holds nothing at first
  //| sums[row] += share;
  //# also step-by-step
  //| if (kv > first) share += sums[row];
  //| if (kv == last) share *= kScale;
  //| sums[row] = share;
  //# wrong first-of-all: holds nothing at first
  //~ kv == first ==> kv == 0
  //# wrong never-ended: never multiplied
  //~ kv == last ==> kv == N / kKeys
  //# wrong always-scaled: with every share
  //~ kv == last ? sum * kScale : sum ==> sum * kScale
  //# wrong last-of-all: the last tile of all
  //~ kv == last ==> kv == N / kKeys - 1
  //# wrong stored: only the last share
  //~ kv == first ? share : sums[row] + share ==> share
  //# end
}

//# judge

void judge(Trial& t) {
  const Floats X = t.normal("x", N);
  const auto x = t.upload("x", X), sums = t.alloc("sums", N);
  std::uint64_t read = 0;
  for (int kv = 0; kv < N / kKeys; ++kv) {
    add_share<<<N / kRows, kRows>>>(x.data(), sums.data(), kv);
    read += t.traffic("sums").read_bytes;
  }
  t.findings({{"uninitialised", "sums holds nothing at first: each Q tile's first share is stored, not added."}});
  // Goes through the shares in the kernel's order; next(sum, share, is first, is last, tile).
  const auto answer = [&](auto next) {
    Doubles want(N);
    for (int row = 0; row < N; ++row) {
      const int from = row / kRows * kRows;
      const int first = std::max(from - kLeft, 0) / kKeys, last = (from + kRows - 1) / kKeys;
      for (int kv = first; kv <= last; ++kv) {
        double share = 0;
        for (int key = kv * kKeys; key < (kv + 1) * kKeys; ++key)
          if (row - kLeft <= key && key <= row) share += double(X[key]);
        want[row] = next(want[row], share, kv == first, kv == last, kv);
      }
    }
    return want;
  };
  t.answer("sums", t.download(sums),
           answer([](double sum, double share, bool, bool last, int) { return (sum + share) * (last ? kScale : 1); }),
           1,
           {{answer([](double sum, double share, bool, bool, int) { return sum + share; }),
             "The sums are right, and never multiplied by kScale."},
            {answer([](double sum, double share, bool, bool, int) { return (sum + share) * kScale; }),
             "The sum is multiplied by kScale with every share: only the last one ends it."},
            {answer([](double sum, double share, bool, bool, int kv) {
               return (sum + share) * (kv == N / kKeys - 1 ? kScale : 1);
             }),
             "Only Q tiles that see the last tile of all are scaled: each has a last tile of its own."},
            {answer([](double, double share, bool, bool last, int) { return share * (last ? kScale : 1); }),
             "A row has only the last share: those before it are gone."}},
           1e-5, "row");
  t.predicted(read);
}
