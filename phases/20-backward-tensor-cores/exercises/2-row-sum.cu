// 20.2 row-sum: the sum of a row of dS is known: what does a rounded row owe to dQ?
// An exercise of phase 20; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 20.2     Prove it: ./flash exercise --check 20.2

//# question
// A row of dS sums to dLSE, exactly. Rounded to fp16 it does not, and dQ = dS K has the difference times the mean of K
// as an error. So the rounded rows are summed, too: dS times a matrix of ones. Then
//     excess_i = (sum over j of dS_ij) - dLSE_i        dQ_i -= excess_i * centre
// where the centre is a row near the mean of K. A warp has 16 queries, 64 keys and 8 columns. With g = lane / 4 and
// t = lane % 4, a lane's four numbers of a product are those of row g, columns 2t and 2t + 1, then of row g + 8.
//     mma_m16n8k16<__half>(c, a, b, c)    c += a b for 16 keys; b: two registers, of two fp16 each

//# predict 4 How many mma are needed for the sums of the 16 rows?

//# hint
// In a matrix of ones all elements are alike, so every lane has the same two registers, and every column of the product
// is the sum.
//# hint
// excess can begin at -dLSE: then the sums are added to it. Which of its four numbers belong to row g + 8?
//# hint
// for (int k = 0; k < 4; ++k) mma_m16n8k16<__half>(excess, ds[k], {ones, ones}, excess); then dq[0] -= excess[0] *
// centre[column], and dq[3] -= excess[2] * centre[column + 1].

//# because
// One for each 16 keys, beside one for each 16 keys and 8 columns of dQ: with 64 columns an eighth of that product.
//# next
// phases/20-backward-tensor-cores/notebook.cpp, "A row of dS has a sum": what it is worth, in figures.

//# code

constexpr int kKeys = 64, D = 8;

// One warp: dQ = dS K of 16 rows. dS and K lie as fragments: what each lane wants, one lane after the other.
__global__ void query_gradient(const unsigned* dS /*[kKeys / 16, 32, 4]*/, const unsigned* K /*[kKeys / 16, 32, 2]*/,
                               const float* dLSE /*[16]*/, const float* centre /*[D]*/, float* dQ /*[16, D]*/) {
  const int lane = threadIdx.x, row = lane / 4, column = lane % 4 * 2;
  constexpr unsigned ones = 0x3c003c00u;  // two times 1.0 in fp16
  unsigned ds[kKeys / 16][4];
  float dq[4] = {};
  for (int k = 0; k < kKeys / 16; ++k) {
    unsigned keys[2];
    for (int i = 0; i < 4; ++i) ds[k][i] = dS[(k * 32 + lane) * 4 + i];
    for (int i = 0; i < 2; ++i) keys[i] = K[(k * 32 + lane) * 2 + i];
    mma_m16n8k16<__half>(dq, ds[k], keys, dq);
  }
  //# hole By how much do the rows row and row + 8 of dS exceed dLSE?
  float excess[4] = {-dLSE[row], -dLSE[row], -dLSE[row + 8], -dLSE[row + 8]};
  for (int k = 0; k < kKeys / 16; ++k) mma_m16n8k16<__half>(excess, ds[k], {ones, ones}, excess);
  //# skeleton: dQ is dS K as it was rounded
  //| float excess[4] = {};
  //# wrong dlse-forgotten: A row sums to dLSE, not to 0
  //~ {-dLSE[row], -dLSE[row], -dLSE[row + 8], -dLSE[row + 8]} ==> {}
  //# wrong dlse-added: dLSE has the wrong sign
  //~ {-dLSE[row], -dLSE[row], -dLSE[row + 8], -dLSE[row + 8]} ==> {dLSE[row], dLSE[row], dLSE[row + 8], dLSE[row + 8]}
  //# wrong first-keys: The sums are those of 16 keys
  //~ for (int k = 0; k < kKeys / 16; ++k) ==> for (int k = 0; k < 1; ++k)
  //# wrong half-of-ones: Half of the ones are zeros
  //~ {ones, ones} ==> {ones, 0u}
  //# wrong one-and-zero: Half of the ones are zeros
  //~ {ones, ones} ==> {0x3c00u, 0x3c00u}
  //# wrong bf16-ones: is 1.0 in bf16
  //~ {ones, ones} ==> {0x3f803f80u, 0x3f803f80u}
  //# end
  //# hole Take it away from dq, times the centre.
  dq[0] -= excess[0] * centre[column], dq[1] -= excess[0] * centre[column + 1];
  dq[2] -= excess[2] * centre[column], dq[3] -= excess[2] * centre[column + 1];
  //# skeleton:
  //|
  //# also each-its-own
  //| for (int i = 0; i < 4; ++i) dq[i] -= excess[i] * centre[column + i % 2];
  //# wrong added: The excess is added
  //| for (int i = 0; i < 4; ++i) dq[i] += excess[i] * centre[column + i % 2];
  //# wrong one-row: Rows 8 to 15 lose what rows 0 to 7 owe
  //| for (int i = 0; i < 4; ++i) dq[i] -= excess[0] * centre[column + i % 2];
  //# wrong centre-forgotten: The centre is missing
  //| for (int i = 0; i < 4; ++i) dq[i] -= excess[i];
  //# end
  for (int i = 0; i < 4; ++i) dQ[(row + i / 2 * 8) * D + column + i % 2] = dq[i];
}

//# judge

void judge(Trial& t) {
  const auto half_of = [](double x) { return double(__half2float(__float2half(float(x)))); };
  const Floats noise = t.normal("dS", 16 * kKeys), keys = t.normal("K", kKeys * D), dLSE = t.normal("dLSE", 16);
  // Rows of numbers that sum to dLSE before they are rounded; keys with a mean of 4.
  Doubles dS(16 * kKeys), K(kKeys * D), centre(D);
  for (int i = 0; i < 16; ++i) {
    const double mean = std::accumulate(&noise[i * kKeys], &noise[i * kKeys] + kKeys, 0.0) / kKeys;
    for (int j = 0; j < kKeys; ++j) dS[i * kKeys + j] = half_of(noise[i * kKeys + j] - mean + dLSE[i] / kKeys);
  }
  for (int e = 0; e < kKeys * D; ++e) centre[e % D] += (K[e] = half_of(keys[e] + 4)) / kKeys;
  const auto two = [](double a, double b) {
    return __half_as_ushort(__float2half(float(a))) | unsigned{__half_as_ushort(__float2half(float(b)))} << 16;
  };
  std::vector<unsigned> left(kKeys / 16 * 128), right(kKeys / 16 * 64);
  for (int i = 0; i < int(left.size()); ++i) {
    const int lane = i / 4 % 32, row = lane / 4 + i % 2 * 8, key = i / 128 * 16 + lane % 4 * 2 + i / 2 % 2 * 8;
    left[i] = two(dS[row * kKeys + key], dS[row * kKeys + key + 1]);
  }
  for (int i = 0; i < int(right.size()); ++i) {
    const int lane = i / 2 % 32, key = i / 64 * 16 + lane % 4 * 2 + i % 2 * 8;
    right[i] = two(K[key * D + lane / 4], K[(key + 1) * D + lane / 4]);
  }
  const auto ds = t.upload("dS", left), k = t.upload("K", right);
  const auto dlse = t.upload("dLSE", dLSE), c = t.upload("centre", Floats(centre.begin(), centre.end()));
  const auto dq = t.alloc("dQ", 16 * D);
  query_gradient<<<1, 32>>>(ds.data(), k.data(), dlse.data(), c.data(), dq.data());
  t.findings();
  // dQ, if so much of the centre is taken away from row i in column d.
  const auto less = [&](auto much) {
    Doubles dQ(16 * D);
    for (int i = 0; i < 16; ++i)
      for (int d = 0; d < D; ++d) {
        for (int j = 0; j < kKeys; ++j) dQ[i * D + d] += dS[i * kKeys + j] * K[j * D + d];
        dQ[i * D + d] -= much(i, d);
      }
    return dQ;
  };
  const auto sum = [&](int i, auto counts) {
    double x = 0;
    for (int j = 0; j < kKeys; ++j) x += counts(j) * dS[i * kKeys + j];
    return x;
  };
  const auto all = [](int) { return 1.0; };
  const auto with = [&](auto counts, double of_dlse = 1) {
    return less([&, counts](int i, int d) { return (sum(i, counts) - of_dlse * dLSE[i]) * centre[d]; });
  };
  const auto owed = [&](int i) { return sum(i, all) - dLSE[i]; };
  const std::string zeros = "Half of the ones are zeros: a register holds two of them, and b is two registers.";
  t.answer("dQ", t.download(dq), with(all), D,
           {{less([](int, int) { return 0.0; }),
             "dQ is dS K as it was rounded: what a row of dS sums to beside dLSE is still in it, times the mean of K."},
            {with(all, 0), "A row sums to dLSE, not to 0: only what exceeds it is an error."},
            {with(all, -1), "dLSE has the wrong sign: it is what a row should sum to, and is taken away from the sum."},
            {with([](int j) { return j < 16 ? 1.0 : 0.0; }), "The sums are those of 16 keys: a row has 64."},
            {with([](int j) { return j % 16 < 8 ? 1.0 : 0.0; }), zeros},
            {with([](int j) { return j % 2 ? 0.0 : 1.0; }), zeros},
            {with([](int) { return 1.875; }), "0x3f80 is 1.0 in bf16; as fp16 it is 1.875, and so are your sums."},
            {less([&](int i, int d) { return -owed(i) * centre[d]; }),
             "The excess is added: it is too much already, and must be taken away."},
            {less([&](int i, int d) { return owed(i % 8) * centre[d]; }),
             "Rows 8 to 15 lose what rows 0 to 7 owe: a lane has sums of two rows."},
            {less([&](int i, int) { return owed(i); }),
             "The centre is missing: the excess was multiplied by the mean of K."}},
           2e-4);
  t.predicted(t.ledger().tensor_flops / 4096 - kKeys / 16);
}
