// 03.1 tile-size: the largest tiles that fit: what lies on chip at one time, and in how many bytes?
// An exercise of phase 03; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 03.1     Prove it: ./flash exercise --check 03.1

//# question
// FlashAttention-1 keeps on chip, in fp32:
//     Q_i, O_i [B, D]     K_j, V_j [B, D]     S_ij [B, B]     l_i, m_i [B]
// with square tiles, B_r = B_c = B. Write how many bytes that is. The largest B that fits is then found for you.
// The paper's formula, B_c = M / 4D, counts numbers, not bytes, and leaves S, l and m out.
// This is plain C++; one thread of the simulator runs it for each size.

//# predict 41 What is the largest B for 48 KiB and D = 64?

//# hint
// Count numbers first: four tiles of B x D, one of B x B, two columns of B.
//# hint
// A number in fp32 has 4 bytes. Where is that factor?
//# hint
// 4 * (4 * B * D + B * B + 2 * B)

//# because
// 4 * (4 * 41 * 64 + 41 * 41 + 2 * 41) = 49036 bytes; with 42 it would be 50400, and 48 KiB are 49152. By the paper's
// formula B would be 48, and need 58752.
//# next
// phases/03-tiled-v1/notebook.cpp draws which tiles fit where. Exercise 04.1 asks what the loops around them cost.

//# code

// What B x D tiles need on chip.
__device__ long bytes_on_chip(long B, long D) {
  //# hole Bytes, not numbers.
  return 4 * (4 * B * D + B * B + 2 * B);
  //# skeleton: S is left out, and l and m
  //| return 4 * (4 * B * D);
  //# wrong numbers: counts numbers
  //| return 4 * B * D + B * B + 2 * B;
  //# wrong s-forgotten: S [B, B] is left out
  //| return 4 * (4 * B * D + 2 * B);
  //# wrong state-forgotten: l and m are left out
  //| return 4 * (4 * B * D + B * B);
  //# wrong one-of-each: There are four tiles of B x D
  //| return 4 * (3 * B * D + B * B + 2 * B);
  //# wrong one-column: l and m are two columns
  //| return 4 * (4 * B * D + B * B + B);
  //# wrong p-too: P takes the place of S
  //| return 4 * (4 * B * D + 2 * B * B + 2 * B);
  //# also terms
  //| return sizeof(float) * (B * D + B * D + B * D + B * D + B * B + B + B);
  //# also by-rows
  //| return 4 * B * (4 * D + B + 2);
  //# end
}

__global__ void largest_tiles(const long* sizes /*[n, 2]: bytes, D*/, float* B /*[n]*/) {
  const long bytes = sizes[2 * blockIdx.x], D = sizes[2 * blockIdx.x + 1];
  long b = 0;
  while (b < 4096 && bytes_on_chip(b + 1, D) <= bytes) ++b;
  B[blockIdx.x] = b;
}

//# judge

void judge(Trial& t) {
  const std::vector<long> sizes{48 << 10, 64, 48 << 10, 128, 99 << 10, 64, 163 << 10, 32, 227 << 10, 128, 4 << 10, 8};
  const std::size_t n = sizes.size() / 2;
  const auto in = t.upload("sizes", sizes);
  const auto out = t.alloc("B", n);
  largest_tiles<<<unsigned(n), 1>>>(in.data(), out.data());
  t.findings();
  const auto largest = [&](auto bytes_of) {
    Doubles result;
    for (std::size_t i = 0; i < n; ++i) {
      long b = 0;
      while (b < 4096 && bytes_of(b + 1, sizes[2 * i + 1]) <= sizes[2 * i]) ++b;
      result.push_back(b);
    }
    return result;
  };
  const Floats B = t.download(out);
  t.answer("B", B, largest([](long b, long D) { return 4 * (4 * b * D + b * b + 2 * b); }), 1,
           {{largest([](long b, long D) { return 4 * b * D + b * b + 2 * b; }),
             "This counts numbers. A number in fp32 has 4 bytes, so these tiles need four times what there is."},
            {largest([](long b, long D) { return 4 * (4 * b * D); }),
             "S is left out, and l and m, as in the paper's formula: those tiles do not fit."},
            {largest([](long b, long D) { return 4 * (4 * b * D + 2 * b); }),
             "S [B, B] is left out: it lies on chip, too, while the tile is worked on."},
            {largest([](long b, long D) { return 4 * (4 * b * D + b * b); }),
             "l and m are left out: a number of each for every row."},
            {largest([](long b, long D) { return 4 * (3 * b * D + b * b + 2 * b); }),
             "There are four tiles of B x D: Q and O of the rows, K and V of the keys."},
            {largest([](long b, long D) { return 4 * (4 * b * D + b * b + b); }),
             "l and m are two columns: a number of each for every row."},
            {largest([](long b, long D) { return 4 * (4 * b * D + 2 * b * b + 2 * b); }),
             "S is counted twice. P takes the place of S, element by element."}},
           1e-5, "size");
  t.predicted(B[0]);
}
