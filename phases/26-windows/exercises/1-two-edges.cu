// 26.1 two-edges: a window has two edges: from which tile on does a block read, and up to which?
// An exercise of phase 26; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 26.1     Prove it: ./flash exercise --check 26.1

//# question
// Row i sees the keys i - kLeft to i, both included, as far as they exist. A block has kRows rows. It brings x, one
// number for each key, into shared memory a tile of kKeys at a time, and each row adds up what it sees.
// Say which tiles the block brings: the first one, and one past the last. A tile that none of its rows sees must not be
// read, and each tile that one of them sees must.

//# predict 1344 How many bytes of x do all blocks read together?

//# hint
// Of all rows of the block the first one sees the farthest to the left, and the last one the farthest to the right.
//# hint
// The first row's first key is first_row - kLeft; there are no keys before key 0. Which tile is that key in?
//# hint
// Key k is in tile k / kKeys. The last row sees itself, key first_row + kRows - 1: the end is the tile behind that
// key's.

//# because
// Five blocks read 2, 4, 5, 5 and 5 tiles of 16 numbers of 4 bytes each. From the third block on it is always as many,
// however long the sequence: 40 + 32 keys are 4.5 tiles, and a window that begins within a tile touches one more.
//# next
// phases/26-windows/windowed.cuh: the same two edges, and the two that tell which tiles need no mask.

//# code

constexpr int kRows = 32, kKeys = 16, kLeft = 40, N = 160;

__global__ void window_sums(const float* x /*[N]*/, float* sums /*[N]*/) {
  __shared__ float keys[kKeys];
  const int first_row = blockIdx.x * kRows, row = first_row + threadIdx.x;
  //# hole Tiles first to end - 1 are those that some row of the block sees.
  const int first = max(first_row - kLeft, 0) / kKeys, end = (first_row + kRows - 1) / kKeys + 1;
  //# skeleton: no row of the block sees
  //| const int first = 0, end = N / kKeys;
  //# also by-rows
  //| const int first = first_row < kLeft ? 0 : (first_row - kLeft) / kKeys, end = (first_row + kRows) / kKeys;
  //# wrong causal: no row of the block sees
  //| const int first = 0, end = (first_row + kRows) / kKeys;
  //# wrong last-row: of the last row
  //| const int first = max(first_row + kRows - 1 - kLeft, 0) / kKeys, end = (first_row + kRows) / kKeys;
  //# wrong rounded-up: begins within a tile
  //| const int first = (max(first_row - kLeft, 0) + kKeys - 1) / kKeys, end = (first_row + kRows) / kKeys;
  //# wrong before-the-first: no keys before key 0
  //| const int first = (first_row - kLeft) / kKeys, end = (first_row + kRows) / kKeys;
  //# wrong first-row-ends: of the first row
  //| const int first = max(first_row - kLeft, 0) / kKeys, end = first_row / kKeys + 1;
  //# end
  float sum = 0;
  for (int tile = first; tile < end; ++tile) {
    __syncthreads();  // all have read the tile before
    if (threadIdx.x < kKeys) keys[threadIdx.x] = x[tile * kKeys + threadIdx.x];
    __syncthreads();  // the tile is there
    for (int j = 0; j < kKeys; ++j) {
      const int key = tile * kKeys + j;
      if (row - kLeft <= key && key <= row) sum += keys[j];
    }
  }
  sums[row] = sum;
}

//# judge

void judge(Trial& t) {
  const Floats X = t.normal("x", N);
  const auto x = t.upload("x", X), sums = t.alloc("sums", N);
  window_sums<<<N / kRows, kRows>>>(x.data(), sums.data());
  t.findings({{"out of bounds", "There are no keys before key 0: rows near the beginning see fewer."}});
  const auto answer = [&](auto first, auto end) {
    Doubles want(N);
    for (int row = 0; row < N; ++row)
      for (int key = std::max(row - kLeft, 0); key <= row; ++key)
        if (const int from = row / kRows * kRows; first(from) <= key / kKeys && key / kKeys < end(from))
          want[row] += double(X[key]);
    return want;
  };
  const auto first = [](int from) { return std::max(from - kLeft, 0) / kKeys; };
  const auto end = [](int from) { return (from + kRows) / kKeys; };
  t.answer("sums", t.download(sums), answer(first, end), 1,
           {{answer([](int from) { return std::max(from + kRows - 1 - kLeft, 0) / kKeys; }, end),
             "These tiles begin with the first key of the last row: rows before it see keys further left."},
            {answer([](int from) { return (std::max(from - kLeft, 0) + kKeys - 1) / kKeys; }, end),
             "The window begins within a tile, and that tile is left out."},
            {answer(first, [](int from) { return from / kKeys + 1; }),
             "These tiles end with the last key of the first row: rows behind it see keys further right."}},
           1e-5, "row");
  t.count("bytes of x", t.traffic("x").read_bytes, 21 * kKeys * 4,
          "Tiles are read of which no row of the block sees a key.");
  t.predicted(t.traffic("x").read_bytes);
}
