// 14.1 parity: a barrier that counts bytes: how many will come, and which phase is meant?
// An exercise of phase 14; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 14.1     Prove it: ./flash exercise --check 14.1

//# question
// x has rows of 64 halves. It passes through shared memory in tiles of 16 rows, each copied by TMA while the tile
// before it is summed. There are two stages; tile t lies in stage t % 2, and each stage has an mbarrier.
//     mbarrier_arrive_expect_tx(&full, bytes)              arrives; the phase now lasts until so many bytes have come
//     cp_async_bulk_tensor(tile, &map, &full, x, y)        copies the box of 64 columns and 16 rows that begins there
//     mbarrier_wait(&full, parity)                         goes on when the phase of that parity is complete
// Phases count 0, 1, 0, 1 ... from the first on. What a box has beyond the tensor's end becomes zero.
// Say how many bytes the barrier waits for, and with which parity tile t is waited for.

//# predict 8960 x has 70 rows, and so five tiles: how many bytes of x does TMA read, all tiles together?

//# hint
// Tile 0 is the first one in stage 0, tile 2 the second, tile 4 the third. How many phases of the barrier of stage 0
// were complete before each of them came?
//# hint
// The parity is that of t / 2. As for the bytes: TMA fills the whole box, the rows beyond x too, and counts what it
// writes.
//# hint
// 16 rows of 64 halves, each of 2 bytes; t / 2 % 2.

//# because
// 70 rows of 128 bytes: what lies outside is not read. But TMA writes zeros there, and the barrier counts the bytes of
// the box. So it waits for 2,048 of the last tile too, of which 768 were read.
//# next
// phases/14-tma-wgmma/tma.cpp, "The barrier that counts bytes"; notebook.cpp: the same with K and V.

//# code

constexpr int kRows = 16, kColumns = 64;

struct Stages {
  alignas(1024) __half tile[2][kRows][kColumns];  // TMA swizzles rows of 128 bytes
  std::uint64_t full[2];                          // mbarriers: are the bytes there?
};

// y = sum of all rows of x. A thread per column.
__global__ void sum_rows(const __grid_constant__ TensorMap x_map, float* y /*[kColumns]*/, int rows) {
  Stages& stages = shared<Stages>();
  const int column = threadIdx.x, tiles = (rows + kRows - 1) / kRows;
  if (column == 0) {
    for (int stage = 0; stage < 2; ++stage) mbarrier_init(&stages.full[stage], 1);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there
  const auto load = [&](int tile) {
    if (column != 0 || tile >= tiles) return;
    //# hole How many bytes are to come?
    const unsigned bytes = kRows * kColumns * sizeof(__half);
    //# skeleton: The barrier waits for no bytes
    //| const unsigned bytes = 0;
    //# wrong elements: The barrier does not wait for all bytes of the box
    //| const unsigned bytes = kRows * kColumns;
    //# wrong rows-inside: The barrier does not wait for all bytes of the box
    //| const unsigned bytes = min(kRows, rows - tile * kRows) * kColumns * sizeof(__half);
    //# wrong both-stages: for more bytes than the box has
    //| const unsigned bytes = sizeof stages.tile;
    //# also sizeof-a-tile
    //| const unsigned bytes = sizeof stages.tile[0];
    //# wrong zero-parity-right: The barrier waits for no bytes
    //| const unsigned bytes = 0;
    //# wrong all-of-x: for more bytes than the box has
    //| const unsigned bytes = rows * kColumns * sizeof(__half);
    //# end
    trace_mark("bytes", bytes);
    mbarrier_arrive_expect_tx(&stages.full[tile % 2], bytes);
    cp_async_bulk_tensor(stages.tile[tile % 2], &x_map, &stages.full[tile % 2], 0, tile * kRows);
  };
  float sum = 0;
  load(0);
  for (int tile = 0; tile < tiles; ++tile) {
    load(tile + 1);
    //# hole Which phase of its barrier is the tile's?
    const unsigned parity = tile / 2 % 2;
    //# skeleton: The barrier waits for no bytes
    //| const unsigned parity = 0;
    //# wrong always-0: the phase before counts as complete
    //| const unsigned parity = 0;
    //# wrong parity-of-the-stage: the phase before counts as complete
    //| const unsigned parity = tile % 2;
    //# wrong upside-down: the phase before counts as complete
    //| const unsigned parity = tile / 2 % 2 ^ 1;
    //# also bits
    //| const unsigned parity = (tile >> 1) & 1;
    //# wrong not-reduced: A parity is 0 or 1
    //| const unsigned parity = tile / 2;
    //# end
    trace_mark("parity", parity);
    mbarrier_wait(&stages.full[tile % 2], parity);
    for (int r = 0; r < kRows; ++r) sum += __half2float(stages.tile[tile % 2][r][column ^ r % 8 * 8]);
    __syncthreads();  // all have read this stage, which the next copy fills
  }
  y[column] = sum;
}

//# judge

void judge(Trial& t) {
  constexpr int kAll = 70;
  std::vector<__half> X;
  for (const float value : t.normal("x", kAll * kColumns)) X.push_back(__float2half(value + 8));  // no sum is near 0
  const auto x = t.upload("x", X);
  const auto y = t.alloc("y", kColumns);
  const auto map = tensor_map<__half, 2>(x.data(), {kColumns, kAll}, {kColumns * 2}, {kColumns, kRows});
  sum_rows<<<1, kColumns, sizeof(Stages)>>>(map, y.data(), kAll);
  constexpr int kBox = kRows * kColumns * sizeof(__half);
  int fewest = kBox, most = kBox, parities = 0;  // what the holes have said
  for (const TraceEvent& event : t.machine.trace()) {
    const int value = int(event.value);
    if (event.name == "bytes") fewest = std::min(fewest, value), most = std::max(most, value);
    if (event.name == "parity") parities = std::max(parities, value);
  }
  const std::string sentence =
      fewest <= 0 ? "The barrier waits for no bytes: its phase is complete before the tile is there."
      : fewest < kBox
          ? "The barrier does not wait for all bytes of the box: TMA counts what it writes to shared memory, the zeros "
            "beyond the end of x too."
      : most > kBox ? "The barrier waits for more bytes than the box has: they never come."
                    : "The tile is read before it is there: a wait for the other parity goes "
                      "on at once, since the phase before counts as complete.";
  t.findings({{"", sentence}});
  t.expect(parities <= 1, "A parity is 0 or 1, and this says " + std::to_string(parities) +
                              ": it counts the phases. The last bit of that is the parity.");
  Doubles exact(kColumns);
  for (int i = 0; i < kAll * kColumns; ++i) exact[i % kColumns] += __half2float(X[i]);
  t.answer("y", t.download(y), exact, 1, {}, 1e-5, "column");
  t.predicted(t.traffic("x").read_bytes);
}
