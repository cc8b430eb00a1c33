// 14.2 product: wgmma reads V as it lies: what does it have to be told?
// An exercise of phase 14; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 14.2     Prove it: ./flash exercise --check 14.2

//# question
// A warpgroup computes O = P V for 64 rows, 32 keys and 128 columns. P is in its registers. V lies in shared memory in
// two panels of 64 columns, one behind the other; in each panel a key has a row of 128 bytes. So V is MN-major:
// neighbours in memory are columns, not keys.
//     matrix_descriptor(tile, bytes)    where a matrix begins, and how many bytes further on its next panel does;
//                                       descriptor + n is the matrix that begins n bytes further on
//     wgmma_m64nNk16<__half, Major::MN>(o, p, v, true)     begins o += p v for 16 keys
//     wgmma_fence()                     puts what was done with the registers before the products that follow
//     wgmma_commit()                    makes a group of the products since the last one
//     wgmma_wait<n>(arrays...)          all groups but the last n are done; names the arrays that are used behind it
// Begin both products, and wait for them.

//# predict 8192 How many bytes of shared memory do the two products read?

//# hint
// Keys 16 to 31 are 16 rows further on in each panel. How many bytes is that? And how far is the second panel?
//# hint
// In this order: fence, both products, commit, wait. The fence is there for o, which was set to 0, and for p.
//# hint
// matrix_descriptor(tiles.V, sizeof tiles.V[0]), and v + k * 128 for keys k to k + 15: a row has 128 bytes.

//# because
// Each product reads 16 keys of 128 columns, 2 bytes each. P costs nothing, since it is in registers. However many rows
// a warpgroup has, it reads V once for all of its 64.
//# next
// phases/14-tma-wgmma/wgmma.cpp, "The descriptor". K is K-major: there the next 16 columns are 32 bytes on.

//# code

constexpr int kKeys = 32, D = 128;

struct Tiles {
  alignas(1024) __half V[D / 64][kKeys][64];  // two panels
  std::uint64_t full;
};

// One warpgroup: O = P V.
__global__ void __launch_bounds__(128) multiply(const unsigned* P /*[kKeys / 16, 128, 4]*/,
                                                const __grid_constant__ TensorMap V_map, float* O /*[64, D]*/) {
  Tiles& tiles = shared<Tiles>();
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&tiles.full, sizeof tiles.V);
    for (int panel = 0; panel < D / 64; ++panel)
      cp_async_bulk_tensor(tiles.V[panel], &V_map, &tiles.full, panel * 64, 0);
  }
  unsigned p[kKeys / 16][4];
  for (int i = 0; i < kKeys / 16 * 4; ++i) p[i / 4][i % 4] = P[(i / 4 * 128 + threadIdx.x) * 4 + i % 4];
  float o[D / 2] = {};
  mbarrier_wait(&tiles.full, 0);
  //# hole o += p V, 16 keys at a time; and wait until it is there.
  const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  wgmma_fence();
  for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
  wgmma_commit();
  wgmma_wait<0>(o);
  //# skeleton: Nothing was added to O
  //|
  //# also commit-each
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) {
  //|   wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
  //|   wgmma_commit();
  //| }
  //| wgmma_wait<0>(o, p);
  //# wrong no-fence: The first product may begin before
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong no-commit: A wait is for groups
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
  //| wgmma_wait<0>(o);
  //# wrong one-left: wgmma_wait<1> leaves the youngest group
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
  //| wgmma_commit();
  //| wgmma_wait<1>(o);
  //# wrong not-named: does not name o
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
  //| wgmma_commit();
  //| wgmma_wait<0>();
  //# wrong panels-not-apart: The descriptor does not say where
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong same-keys: The second product has read the keys of the first
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong elements: a descriptor counts bytes
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 64, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong k-major: The product looks for 128 rows
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half>(o, p[k / 16], v + k * 128, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong k-major-step: 32 bytes further on
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k / 16 * 32, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong not-added: has overwritten what the first
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, false);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# also first-not-added
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v + k * 128, k > 0);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong one-product: Keys 16 to 31 are missing
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| wgmma_m64nNk16<__half, Major::MN>(o, p[0], v, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# wrong same-p: Both products have multiplied the same P
  //| const MatrixDescriptor v = matrix_descriptor(tiles.V, sizeof tiles.V[0]);
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p[0], v + k * 128, true);
  //| wgmma_commit();
  //| wgmma_wait<0>(o);
  //# also two-descriptors
  //| wgmma_fence();
  //| for (int k = 0; k < kKeys; k += 16) {
  //|   const MatrixDescriptor v = matrix_descriptor(&tiles.V[0][k], sizeof tiles.V[0]);
  //|   wgmma_m64nNk16<__half, Major::MN>(o, p[k / 16], v, true);
  //| }
  //| wgmma_commit();
  //| wgmma_wait<0>(o, p);
  //# end
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  for (int i = 0; i < D / 2; ++i) O[(row + i / 2 % 2 * 8) * D + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = o[i];
}

//# judge

void judge(Trial& t) {
  const Floats P = t.normal("P", 64 * kKeys);
  std::vector<__half> p, V;
  for (const float value : P) p.push_back(__float2half(value));
  for (const float value : t.normal("V", kKeys * D)) V.push_back(__float2half(value));
  std::vector<unsigned> registers(kKeys / 16 * 128 * 4);  // as the left operand of 16 columns wants them
  for (int i = 0; i < int(registers.size()); ++i) {
    const int j = i % 4, lane = i / 4 % 32, row = i / 128 % 4 * 16 + lane / 4 + j % 2 * 8;
    const __half* two = &p[row * kKeys + i / 512 * 16 + lane % 4 * 2 + j / 2 * 8];
    registers[i] = __half_as_ushort(two[0]) | unsigned{__half_as_ushort(two[1])} << 16;
  }
  const auto in = t.upload("P", registers);
  const auto v = t.upload("V", V);
  const auto o = t.alloc("O", 64 * D);
  const auto map = tensor_map<__half, 2>(v.data(), {D, kKeys}, {D * 2}, {64, kKeys});
  multiply<<<1, 128, sizeof(Tiles)>>>(in.data(), map, o.data());
  t.findings(
      {{"without a wgmma_fence",
        "The first product may begin before o and p are in their registers: wgmma_fence() comes before it."},
       {"names an array whose product it leaves under way",
        t.uses("wgmma_commit") ? "wgmma_wait<1> leaves the youngest group under way, and that is the one you need."
                               : "A wait is for groups, and these products are in none: wgmma_commit() makes one."},
       {"no wgmma_wait has named",
        "The wait does not name o: on a GPU the compiler may move the reads of o to before it."},
       {"misaligned", "The descriptor does not say where V's next panel begins, or moves by less than a row."},
       {"reaches byte", t.uses("Major::MN")
                            ? "A product reads beyond V: 16 keys are 16 rows of 128 bytes."
                            : "The product looks for 128 rows, one for each column of O: V's rows are keys, so V "
                              "is MN-major."}});
  // What the products make of it if they read another key than k.
  const auto product = [&](auto key) {
    Doubles O(64 * D);
    for (int i = 0; i < 64; ++i)
      for (int k = 0; k < kKeys; ++k)
        for (int d = 0; d < D; ++d)
          O[i * D + d] += double(__half2float(p[i * kKeys + k])) * __half2float(V[key(k) * D + d]);
    return O;
  };
  const Doubles exact = product([](int k) { return k; });
  // What they make of it if the second one's V begins 32 bytes further on, or if a part of P is another one.
  Doubles columns_on(64 * D), first_alone(64 * D), second_alone(64 * D), same_p(64 * D);
  for (int e = 0; e < 64 * D; ++e)
    for (int k = 0; k < 16; ++k) {
      const int i = e / D, d = e % D, on = d % 64 + 16;
      const double p0 = __half2float(p[i * kKeys + k]), p1 = __half2float(p[i * kKeys + 16 + k]);
      const double v0 = __half2float(V[k * D + d]), v1 = __half2float(V[(k + 16) * D + d]);
      first_alone[e] += p0 * v0, second_alone[e] += p1 * v1, same_p[e] += p0 * (v0 + v1);
      columns_on[e] += p0 * v0 + p1 * __half2float(V[(k + on / 64) * D + d / 64 * 64 + on % 64]);
    }
  t.answer("O", t.download(o), exact, D,
           {{columns_on,
             "The second product begins 32 bytes further on, where the next columns of a K-major operand are. V's next "
             "16 keys are 16 rows of 128 bytes on."},
            {second_alone,
             "The second product has overwritten what the first had made: the last argument says that it adds."},
            {first_alone, "Keys 16 to 31 are missing: it takes a second product."},
            {same_p, "Both products have multiplied the same P: keys 16 to 31 have p[1]."},
            {Doubles(64 * D), "Nothing was added to O: no product was begun."},
            {product([](int k) { return k % 16; }),
             "The second product has read the keys of the first: its descriptor must be moved on."},
            {product([](int k) { return k < 16 ? k : k - 8; }),
             "The second product has read keys 8 to 23: a descriptor counts bytes, and a row of V has 128 of them."}},
           1e-4);
  t.predicted(t.ledger().wgmma_shared_bytes);
}
