// 21.1 across: dQ = dS K sums over keys, and keys are the rows of both: what is wgmma told?
// An exercise of phase 21; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 21.1     Prove it: ./flash exercise --check 21.1

//# question
// In shared memory lie dS transposed, a row of 64 queries for each key, and K, a row of 64 columns for each key. Other
// products have read both along their rows. Now a warpgroup makes dQ = dS K: 64 queries, 64 columns, summed over 64
// keys. No transposed copy is made.
//     matrix_descriptor(tile)    where a matrix begins; descriptor + n is the matrix that begins n bytes further on
//     wgmma_m64nNk16<__half, Major of B, Major of A>(c, a, b, adds)    begins c = a b, or c += a b, for 16 keys
//     Major::K     neighbours in memory are neighbours in the sum; this is the default of both
//     Major::MN    neighbours in memory are rows of A, or columns of B
//     wgmma_fence(), wgmma_commit(), wgmma_wait<0>(c)    stand around the products
// Rows have 64 numbers of 2 bytes.

//# predict 16384 How many bytes of shared memory do the products read?

//# hint
// What is summed over? Is the next key the next number in memory, or the next row? Ask it of A, then of B.
//# hint
// Keys 16 to 31 are 16 rows further on in both. How many bytes is a row?
//# hint
// wgmma_m64nNk16<__half, Major::MN, Major::MN>(dq, ds + key * 128, k + key * 128, key > 0) for keys 0, 16, 32 and 48.

//# because
// Each of the two tiles is read once: 64 rows of 128 bytes. In which major it is read makes no difference to the bytes.
//# next
// phases/21-backward-wgmma/notebook.cpp, "One copy, two majors": which product reads which tile in which major.

//# code

constexpr int kKeys = 64, kQueries = 64, D = 64;

struct Tiles {
  alignas(1024) __half dS[kKeys][kQueries];  // transposed
  alignas(1024) __half K[kKeys][D];
  std::uint64_t full;
};

// One warpgroup: dQ = dS K.
__global__ void __launch_bounds__(128)
    query_gradient(const __grid_constant__ TensorMap dS_map, const __grid_constant__ TensorMap K_map,
                   float* dQ /*[kQueries, D]*/) {
  Tiles& tiles = shared<Tiles>();
  if (threadIdx.x == 0) {
    mbarrier_init(&tiles.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(&tiles.full, sizeof tiles.dS + sizeof tiles.K);
    cp_async_bulk_tensor(tiles.dS, &dS_map, &tiles.full, 0, 0);
    cp_async_bulk_tensor(tiles.K, &K_map, &tiles.full, 0, 0);
  }
  float dq[D / 2] = {};
  mbarrier_wait(&tiles.full, 0);
  const MatrixDescriptor ds = matrix_descriptor(tiles.dS), k = matrix_descriptor(tiles.K);
  //# hole dq = dS K, 16 keys at a time; and wait until it is there.
  wgmma_fence();
  for (int key = 0; key < kKeys; key += 16)
    wgmma_m64nNk16<__half, Major::MN, Major::MN>(dq, ds + key * 128, k + key * 128, key > 0);
  wgmma_commit();
  wgmma_wait<0>(dq);
  //# skeleton: Nothing was added to dQ
  //|
  //# also adds-always
  //~ key > 0 ==> true
  //# wrong no-fence: wgmma_fence() comes before them
  //~ wgmma_fence(); ==>
  //# wrong no-commit: A wait is for groups
  //~ wgmma_commit(); ==>
  //# wrong a-as-it-lies: dSᵀ was multiplied, not dS
  //~ Major::MN, Major::MN>(dq, ds + key * 128 ==> Major::MN>(dq, ds + key * 2
  //# wrong b-as-it-lies: K was transposed
  //~ Major::MN, Major::MN>(dq, ds + key * 128, k + key * 128 ==> Major::K, Major::MN>(dq, ds + key * 128, k + key * 2
  //# wrong both-as-they-lie: Both were read along their rows
  //~ Major::MN, Major::MN>(dq, ds + key * 128, k + key * 128 ==> Major::K>(dq, ds + key * 2, k + key * 2
  //# wrong a-major-forgotten: do not fit each other
  //~ Major::MN, Major::MN> ==> Major::MN>
  //# wrong b-major-forgotten: beyond the tile
  //~ Major::MN, Major::MN> ==> Major::K, Major::MN>
  //# wrong steps-of-columns: 32 bytes further on
  //~ ds + key * 128, k + key * 128 ==> ds + key * 2, k + key * 2
  //# wrong elements: half as far
  //~ ds + key * 128, k + key * 128 ==> ds + key * 64, k + key * 64
  //# wrong k-stands-still: K's descriptor was not moved
  //~ k + key * 128 ==> k
  //# wrong both-stand-still: multiplied four times
  //~ ds + key * 128, k + key * 128 ==> ds, k
  //# wrong not-added: Only the last 16 keys
  //~ key > 0 ==> false
  //# end
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  for (int i = 0; i < D / 2; ++i) dQ[(row + i / 2 % 2 * 8) * D + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = dq[i];
}

//# judge

void judge(Trial& t) {
  std::vector<__half> dS, K;  // [key][query], [key][column]
  for (const float value : t.normal("dS", kKeys * kQueries)) dS.push_back(__float2half(value));
  for (const float value : t.normal("K", kKeys * D)) K.push_back(__float2half(value));
  const auto ds = t.upload("dS", dS), k = t.upload("K", K);
  const auto dq = t.alloc("dQ", kQueries * D);
  const auto dS_map = tensor_map<__half, 2>(ds.data(), {kQueries, kKeys}, {kQueries * 2}, {kQueries, kKeys});
  const auto K_map = tensor_map<__half, 2>(k.data(), {D, kKeys}, {D * 2}, {D, kKeys});
  query_gradient<<<1, 128, sizeof(Tiles)>>>(dS_map, K_map, dq.data());
  t.findings({{"without a wgmma_fence",
               "The first product may begin before dq is in its registers: wgmma_fence() comes before them all."},
              {"names an array whose product it leaves under way",
               "A wait is for groups, and these products are in none: wgmma_commit() makes one."},
              {"reaches byte",
               "A product reads beyond the tile: the step to the next 16 keys and the major do not fit each other."}});
  std::vector<__half> both = dS;  // K lies behind dS
  both.insert(both.end(), K.begin(), K.end());
  // What the products make of it if step s reads other numbers than those of keys 16 s to 16 s + 15.
  const auto product = [&](auto a, auto b, int first_step = 0, int step_count = 4) {
    Doubles dQ(kQueries * D);
    for (int i = 0; i < kQueries; ++i)
      for (int d = 0; d < D; ++d)
        for (int s = first_step; s < step_count; ++s)
          for (int j = 0; j < 16; ++j)
            dQ[i * D + d] += double(__half2float(both[a(s, j, i)])) * __half2float(K[b(s, j, d)]);
    return dQ;
  };
  const auto across = [](int s, int j, int i) { return (s * 16 + j) * 64 + i; };
  const auto along = [](int s, int j, int i) { return i * 64 + s * 16 + j; };
  const auto still = [](int, int j, int i) { return j * 64 + i; };
  const auto rows_on = [](int s, int j, int i) { return (i + s * 16) * 64 + j; };
  const auto columns_on = [](int s, int j, int i) { return j * 64 + i + s * 16; };
  const auto half_as_far = [](int s, int j, int i) { return (s * 8 + j) * 64 + i; };
  t.answer(
      "dQ", t.download(dq), product(across, across), D,
      {{Doubles(kQueries * D), "Nothing was added to dQ: no product was begun."},
       {product(along, across), "dSᵀ was multiplied, not dS: the sum ran over queries, so A was read as it lies."},
       {product(across, along), "K was transposed: the sum ran over columns, so B was read as it lies."},
       {product(along, along), "Both were read along their rows: neither sum runs over keys."},
       {product(rows_on, across),
        "A was read as it lies, and moved on by rows: its major and the step do not fit each other."},
       {product(columns_on, columns_on),
        "Each product begins 32 bytes further on, where the next columns are. The next 16 keys are 16 rows on."},
       {product(half_as_far, half_as_far), "Each step goes half as far as it should: descriptors count bytes."},
       {product(across, still), "K's descriptor was not moved: dS of all keys met the first 16 rows of K."},
       {product(still, still), "The first 16 keys were multiplied four times: the descriptors must be moved on."},
       {product(across, across, 3), "Only the last 16 keys are in dQ: each product has overwritten the one before."}},
      1e-4);
  t.predicted(t.ledger().wgmma_shared_bytes);
}
