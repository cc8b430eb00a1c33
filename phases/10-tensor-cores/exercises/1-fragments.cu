// 10.1 fragments: a warp holds a 16 x 8 result in its registers: which elements are yours?
// An exercise of phase 10; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 10.1     Prove it: ./flash exercise --check 10.1

//# question
// mma.m16n8k16 multiplies A [16, 16] by B [16, 8]. The result C [16, 8] lies in the registers of the warp's 32 lanes,
// four numbers c[0] to c[3] in each. With g = lane / 4 and t = lane % 4 the PTX manual says
//     c[0], c[1]: row g,     columns 2 t and 2 t + 1
//     c[2], c[3]: row g + 8, the same columns
// Write row and column of c[i], so that the warp can store C.

//# predict 23 Which lane holds C[5][6]?

//# hint
// i / 2 is 0 for the first two and 1 for the others. What does i % 2 say?
//# hint
// The row is g, or g + 8 for the others. Two neighbouring columns belong to one lane.
//# hint
// row = g + i / 2 * 8, column = 2 * t + i % 2

//# because
// Row 5 is g = 5, column 6 is t = 3: lane 4 * 5 + 3. A row of C belongs to four lanes: the row's maximum takes two
// shuffles.
//# next
// phases/10-tensor-cores/notebook.cpp: C's layout is A's, so P needs no shuffle between the two products.

//# code

__global__ void multiply(const __half* A /*[16, 16]*/, const __half* B /*[16, 8]*/, float* C /*[16, 8]*/,
                         float* whose /*[16, 8]: the lane that stored the element*/) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  // Two neighbours in a register: of A in a row, of B in a column.
  const auto a_pair = [&](int row, int column) { return *reinterpret_cast<const unsigned*>(&A[row * 16 + column]); };
  const auto b_pair = [&](int row, int column) {
    const __half2 both = __halves2half2(B[row * 8 + column], B[(row + 1) * 8 + column]);
    return *reinterpret_cast<const unsigned*>(&both);
  };
  const unsigned a[4] = {a_pair(g, 2 * t), a_pair(g + 8, 2 * t), a_pair(g, 2 * t + 8), a_pair(g + 8, 2 * t + 8)};
  const unsigned b[2] = {b_pair(2 * t, g), b_pair(2 * t + 8, g)};
  float c[4] = {};
  mma_m16n8k16<__half>(c, a, b, c);

  for (int i = 0; i < 4; ++i) {
    //# hole Which element of C is c[i]?
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    //# skeleton: as if each lane had 4 neighbours
    //| const int row = lane / 2, column = lane % 2 * 4 + i;
    //# wrong upper-half: Rows 8 to 15 were never written
    //| const int row = g, column = 2 * t + i % 2;
    //# wrong halves-swapped: i / 2 and i % 2 have changed places
    //| const int row = g + i % 2 * 8, column = 2 * t + i / 2;
    //# wrong columns-apart: A lane's two columns are neighbours
    //| const int row = g + i / 2 * 8, column = t + i % 2 * 4;
    //# wrong g-for-t: g and t have changed places
    //| const int row = t + i / 2 * 8, column = 2 * g + i % 2;
    //# wrong column-i: Rows end at 15 and columns at 7
    //| const int row = g + i / 2 * 8, column = 2 * t + i;
    //# also bits
    //| const int row = (i & 2 ? 8 : 0) + (lane >> 2), column = ((lane & 3) << 1) | (i & 1);
    //# also if
    //| int row = g, column = 2 * t + i % 2;
    //| if (i >= 2) row += 8;
    //# end
    C[row * 8 + column] = c[i];
    whose[row * 8 + column] = lane;
  }
}

//# judge

void judge(Trial& t) {
  const Floats fA = t.normal("A", 16 * 16), fB = t.normal("B", 16 * 8);
  std::vector<__half> A, B;
  for (const float x : fA) A.push_back(__float2half(x));
  for (const float x : fB) B.push_back(__float2half(x));
  const auto a = t.upload("A", A), b = t.upload("B", B);
  const auto c = t.alloc("C", 16 * 8), whose = t.alloc("whose", 16 * 8);
  multiply<<<1, 32>>>(a.data(), b.data(), c.data(), whose.data());
  Doubles exact(16 * 8);
  for (int r = 0; r < 16; ++r)
    for (int j = 0; j < 8; ++j)
      for (int k = 0; k < 16; ++k) exact[r * 8 + j] += double(__half2float(A[r * 16 + k])) * __half2float(B[k * 8 + j]);
  // Where the right element went, if (row, column) are these of lane and i.
  const auto stored = [&](auto row, auto column) {
    Doubles C(16 * 8);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        const int g = lane / 4, t = lane % 4;
        C[(row(lane, i) * 8 + column(lane, i)) % 128] = exact[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
      }
    return C;
  };
  const std::string swapped = "g and t have changed places: lane / 4 is a row, lane % 4 a pair of columns.";
  t.findings(
      {{"race", t.uses("2 * g") || t.uses("g * 2") ? swapped
                                                   : "Two lanes, or two of a lane's numbers, claim the same element."},
       {"out of bounds", "Rows end at 15 and columns at 7: a lane has two rows, and two columns of each."}});
  const Floats C = t.download(c);
  t.expect(!std::all_of(&C[8 * 8], &C[8 * 8] + 8 * 8, [](float x) { return std::isnan(x); }),
           "Rows 8 to 15 were never written: c[2] and c[3] belong there, 8 rows below c[0] and c[1].");
  t.answer("C", C, exact, 8,
           {{stored([](int lane, int) { return lane / 2; }, [](int lane, int i) { return lane % 2 * 4 + i; }),
             "C is stored as if each lane had 4 neighbours in a row; a lane has two pairs, 8 rows apart."},
            {stored([](int lane, int i) { return lane / 4 + i % 2 * 8; },
                    [](int lane, int i) { return lane % 4 * 2 + i / 2; }),
             "i / 2 and i % 2 have changed places: c[0] and c[1] are neighbours in one row."},
            {stored([](int lane, int i) { return lane / 4 + i / 2 * 8; },
                    [](int lane, int i) { return lane % 4 + i % 2 * 4; }),
             "A lane's two columns are neighbours, 2 t and 2 t + 1, so that it can store them at once."},
            {stored([](int lane, int i) { return lane % 4 + i / 2 * 8; },
                    [](int lane, int i) { return lane / 4 * 2 + i % 2; }),
             swapped}},
           1e-4);
  t.predicted(t.download(whose)[5 * 8 + 6]);
}
