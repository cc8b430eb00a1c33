// 11.1 swizzle: rows of 128 bytes begin in one bank: where else may their pieces lie?
// An exercise of phase 11; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 11.1     Prove it: ./flash exercise --check 11.1

//# question
// A tile has 16 rows of 64 halves, 128 bytes: all 32 banks. ldmatrix reads pieces of 16 bytes, the same piece of eight
// rows at a time, and they all lie in the same four banks. A spare column would cost memory. Instead, let the pieces
// of a row change places: say in which column an element is stored, so that pieces stay whole and no two of the eight
// meet in a bank. The same function is used for writing and for reading.

//# predict 32 Without a swizzle, in how many turns (wavefronts) does one ldmatrix.x4 get its four 8 x 8 matrices?

//# hint
// A row has 8 pieces of 8 halves; piece c of row r is in banks 4 c to 4 c + 3. Row r + 1 should have it elsewhere.
//# hint
// Which function of c and r gives 8 different pieces for 8 neighbouring rows, and different pieces of one row
// different places? XOR with r % 8 does.
//# hint
// The piece's number is column / 8, so the XOR with r % 8 is one of the column with r % 8 * 8.

//# because
// Four matrices, each in eight turns, one per row. With the swizzle each takes one. Adding instead of XOR, modulo 64,
// works as well; XOR is one instruction.
//# next
// phases/11-swizzle/notebook.cpp draws the banks. TMA swizzles like this by itself (phase 14).

//# code

constexpr int kRows = 16, kColumns = 64;

__device__ int swizzled(int row, int column) {
  //# hole Where in its row is this element stored?
  return column ^ row % 8 * 8;
  //# skeleton: must depend on its row
  //| return column;
  //# also added
  //| return (column + row % 8 * 8) % kColumns;
  //# wrong elements-moved: Pieces of 16 bytes must stay whole
  //| return column ^ row % 8;
  //# wrong rows-not-wrapped: The place is outside of the row
  //| return column ^ row * 8;
  //# wrong added-not-wrapped: The place is outside of the row
  //| return column + row % 8 * 8;
  //# wrong half-of-it: Only some pieces have moved apart
  //| return column ^ row % 4 * 8;
  //# wrong pairs-of-rows: Only some pieces have moved apart
  //| return column ^ row / 2 % 8 * 8;
  //# wrong reversed: must depend on its row
  //| return column ^ 7 * 8;
  //# also by-piece
  //| const int piece = column / 8, within = column % 8;
  //| return (piece ^ (row & 7)) * 8 + within;
  //# also subtracted
  //| return (column + kColumns - row % 8 * 8) % kColumns;
  //# also row-wrapped-late
  //| return (column + row * 8) % kColumns;
  //# also masked
  //| return column ^ ((row & 7) << 3);
  //# wrong collapses: share a place
  //| return row % 8 * 8 + column % 8;
  //# wrong minus-negative: The place is outside of the row
  //| return (column - row % 8 * 8) % kColumns;
  //# end
}

// One warp: stores the tile, then reads its 16 x 16 blocks with ldmatrix, and writes out what it got.
template <bool kSwizzle>
__global__ void read_blocks(const std::uint16_t* in /*[16, 64]*/, unsigned* out /*[4, 32, 4]*/) {
  __shared__ alignas(16) std::uint16_t tile[kRows][kColumns];
  const int lane = threadIdx.x;
  const auto place = [](int row, int column) { return kSwizzle ? swizzled(row, column) : column; };
  for (int i = lane; i < kRows * kColumns; i += 32) tile[i / kColumns][place(i / kColumns, i % kColumns)] = in[i];
  __syncthreads();
  for (int block = 0; block < kColumns / 16; ++block) {
    unsigned registers[4];
    ldmatrix_x4(registers, &tile[lane % 16][place(lane % 16, block * 16 + lane / 16 * 8)]);
    for (int i = 0; i < 4; ++i) out[(block * 32 + lane) * 4 + i] = registers[i];
  }
}

//# judge

void judge(Trial& t) {
  std::vector<std::uint16_t> In(kRows * kColumns);
  for (std::size_t i = 0; i < In.size(); ++i) In[i] = std::uint16_t(i);
  const auto in = t.upload("in", In);
  const auto out = t.machine.alloc<unsigned>("out", 4 * 32 * 4), plain = t.machine.alloc<unsigned>("plain", 4 * 32 * 4);
  read_blocks<true><<<1, 32>>>(in.data(), out.data());
  const std::string outside =
      "The place is outside of the row: column / 8 must stay below 8. Only row % 8 matters, and "
      "what grows too large must wrap around.";
  bool inside = true;
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kColumns; ++c) inside &= swizzled(r, c) >= 0 && swizzled(r, c) < kColumns;
  const std::string shared_place =
      inside ? "Two pieces of a row share a place: each must have one of its own." : outside;
  t.findings({{"misaligned", "Pieces of 16 bytes must stay whole: only the piece's number, column / 8, may change."},
              {"ldmatrix of an address outside", outside},
              {"out of bounds", outside},
              {"race", shared_place},
              {"uninitialised", shared_place}});
  const Ledger swizzled_ledger = t.ledger();
  read_blocks<false><<<1, 32>>>(in.data(), plain.data());
  const auto got = t.download(out), exact = t.download(plain);
  t.expect(inside, outside);
  t.expect(got == exact,
           "ldmatrix gets other elements than were stored: pieces of 16 bytes must stay whole, and two pieces "
           "of a row may not share a place.");
  const std::uint64_t stores = t.ledger().shared_write_requests, loads = 4;
  const std::uint64_t before = t.ledger().shared_wavefronts - stores;
  const std::uint64_t now = swizzled_ledger.shared_wavefronts - stores;
  t.count("the number of turns for all loads", now, 4 * loads,
          now == before
              ? "All eight rows of a matrix still meet in one group of banks: where a piece lies must depend on "
                "its row."
              : "Only some pieces have moved apart: eight neighbouring rows need eight different places.");
  t.predicted(before / loads);
}
