// 05.5 transpose: rows in, columns out, and both ways in whole sectors
// An exercise of phase 05; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 05.5     Prove it: ./flash exercise --check 05.5

//# question
// out is the transposed matrix of in. A block reads a tile of 32 x 32 floats into shared memory, a warp a row at a
// time: that is coalesced. If each thread stored what it has read itself, the lanes of a warp would write to 32
// different rows of out. So the tile is there for an exchange: a warp writes a row of out, a column of the tile.
// Write the tile to out. The matrix need not have whole tiles; the tile's 33rd column is the matter of exercise 05.7.

//# predict 32 If each thread stored the element that it has read: how many sectors would a warp's store touch?

//# hint
// Neighbouring lanes should store to neighbouring columns of out. What is a column of out, seen from in?
//# hint
// The tile of in at block (x, y) becomes the tile of out at (y, x). So out's column is blockIdx.y * 32 + threadIdx.x.
//# hint
// out[(blockIdx.x * 32 + r) * rows + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][r], behind a barrier, where
// that row and column of out exist.

//# because
// Two neighbours of a row of in end up a whole row of out apart, and a row has more than 32 bytes: each lane has a
// sector of its own. Through the tile it is 4 for 32 lanes.
//# next
// Exercises 05.6 and 05.7: the barrier, and the 33rd column. phases/05-first-kernel/steps/5-padded.cuh has both.

//# code

// A block has 32 x 8 threads; block (x, y) has the tile of in that begins at row 32 y, column 32 x.
__global__ void transpose(const float* in /*[rows, columns]*/, float* out /*[columns, rows]*/, int rows, int columns) {
  __shared__ float tile[32][33];
  for (int r = threadIdx.y; r < 32; r += 8) {
    const int row = blockIdx.y * 32 + r, column = blockIdx.x * 32 + threadIdx.x;
    if (row < rows && column < columns) tile[r][threadIdx.x] = in[row * columns + column];
  }
  //# hole Write the tile to out.
  __syncthreads();
  for (int r = threadIdx.y; r < 32; r += 8) {
    const int row = blockIdx.x * 32 + r, column = blockIdx.y * 32 + threadIdx.x;  // of out
    if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][r];
  }
  //# skeleton: is 6144 where 768 will do
  //| for (int r = threadIdx.y; r < 32; r += 8) {
  //|   const int row = blockIdx.y * 32 + r, column = blockIdx.x * 32 + threadIdx.x;  // of in
  //|   if (row < rows && column < columns) out[column * rows + row] = tile[r][threadIdx.x];
  //| }
  //# wrong own-element: is 6144 where 768 will do
  //| for (int r = threadIdx.y; r < 32; r += 8) {
  //|   const int row = blockIdx.y * 32 + r, column = blockIdx.x * 32 + threadIdx.x;  // of in
  //|   if (row < rows && column < columns) out[column * rows + row] = tile[r][threadIdx.x];
  //| }
  //# wrong no-barrier: The tile is read before others have filled it
  //~ __syncthreads(); ==>
  //# wrong same-block: Each tile has gone to where it came from
  //~ blockIdx.x * 32 + r, column = blockIdx.y ==> blockIdx.y * 32 + r, column = blockIdx.x
  //# wrong not-turned: Each tile is in its place, and not transposed itself
  //~ tile[threadIdx.x][r] ==> tile[r][threadIdx.x]
  //# wrong width-of-in: The place in out is wrong
  //~ row * rows + column ==> row * columns + column
  //# wrong guard-of-in: Some of out was never written
  //~ row < columns && column < rows ==> row < rows && column < columns
  //# wrong no-guard: Whole tiles are right; at the edges
  //~ if (row < columns && column < rows) ==>
  //# also by-one-index
  //| __syncthreads();
  //| for (int i = threadIdx.y * 32 + threadIdx.x; i < 32 * 32; i += 256) {
  //|   const int r = i / 32, c = i % 32;
  //|   if (blockIdx.x * 32 + r < columns && blockIdx.y * 32 + c < rows)
  //|     out[(blockIdx.x * 32 + r) * rows + blockIdx.y * 32 + c] = tile[c][r];
  //| }
  //# also four-rows-each
  //| __syncthreads();
  //| for (int i = 0; i < 4; ++i) {
  //|   const int row = blockIdx.x * 32 + threadIdx.y * 4 + i, column = blockIdx.y * 32 + threadIdx.x;
  //|   if (row >= columns || column >= rows) continue;
  //|   out[row * rows + column] = tile[threadIdx.x][threadIdx.y * 4 + i];
  //| }
  //# end
}

//# judge

// What the prediction is about.
__global__ void store_own(float* out) {
  out[threadIdx.x * 40] = 0;
}

void judge(Trial& t) {
  for (const bool whole : {true, false}) {
    const int rows = whole ? 64 : 40, columns = whole ? 96 : 72, all = rows * columns;
    const Floats In = t.normal("in", all);
    const auto in = t.upload("in", In);
    const auto out = t.alloc("out", all);
    transpose<<<dim3((columns + 31) / 32, (rows + 31) / 32), dim3(32, 8)>>>(in.data(), out.data(), rows, columns);
    const std::string edges =
        "Whole tiles are right; at the edges your code touches elements that do not exist: "
        "out has `columns` rows of `rows` elements.";
    t.findings(
        {{"uninitialised: read of shared",
          t.ledger().barriers ? edges : "The tile is read before others have filled it: let all wait in between."},
         {"race", "Two elements go to the same place in out."},
         {"out of bounds", whole ? "The place in out is wrong: a row of out has `rows` elements." : edges}});
    // out, if its element (r, c) is number from(r, c) of in.
    const auto filled = [&](auto from) {
      Doubles Out(all);
      for (int i = 0; i < all; ++i) Out[i] = In[from(i / rows, i % rows)];
      return Out;
    };
    const Floats Out = t.download(out);
    const Doubles exact = filled([&](int r, int c) { return c * columns + r; });
    if (whole) {
      // What stays in its block, in out's first 64 rows; nothing is written to the others.
      int stayed = 0;
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < rows; ++c)
          stayed += Out[r * rows + c] == In[(r / 32 * 32 + c % 32) * columns + c / 32 * 32 + r % 32];
      t.expect(stayed < rows * rows,
               "Each tile has gone to where it came from: the tile of block (x, y) is out's tile (y, x).");
    }
    t.expect(std::none_of(Out.begin(), Out.end(), [](float x) { return std::isnan(x); }),
             "Some of out was never written: it has `columns` rows of `rows` elements.");
    std::vector<Mistake> mistakes;
    if (whole)
      mistakes = {{filled([&](int r, int c) { return (c / 32 * 32 + r % 32) * columns + r / 32 * 32 + c % 32; }),
                   "Each tile is in its place, and not transposed itself: a row of out is a column of the tile."}};
    t.answer("out", Out, exact, rows, mistakes);
    t.count(
        "the number of sectors that the stores of out touch", t.traffic("out").write_sectors, all / 8,
        "Neighbouring lanes should store to neighbouring columns of out; it is the tile that they read by columns.");
    t.count("the number of bank conflicts", t.ledger().bank_conflicts(), 0, "The tile has 33 columns to avoid them.");
  }
  const auto far = t.alloc("far", 32 * 40);
  store_own<<<1, 32>>>(far.data());
  t.predicted(t.traffic("far").write_sectors);
}
