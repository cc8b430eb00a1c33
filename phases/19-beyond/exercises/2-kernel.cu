// 19.2 kernel: your own kernel for TMA and wgmma, which loads while it multiplies
// An exercise of phase 19; docs/exercises.md tells how these files are read.
// Try it: ./flash exercise 19.2     Prove it: ./flash exercise --check 19.2

//# question
// The capstone of part 4: an empty file and a promise. Compute O = P V, attention's second product, for P [M, N] and
// V [N, 64] in halves, and O [M, 64] in float. Write the kernel, and launch() with its tensor maps. Promise that
//     - O is right for any M from 1 on and any N that is a multiple of 8, as tensor maps of P need it;
//     - the product is made by wgmma, and the checked simulator finds nothing;
//     - P is read once, V at most once for every 64 rows of P, and each element of O is written once;
//     - it loads while it multiplies. Call trace_mark("multiply", tile) right before you begin the products of a tile:
//       whenever it is called, but for the last time, a load must be under way.
// Useful words of gpu/hopper.cuh, which pages 14 and 15 explain: mbarrier_init, fence_mbarrier_init,
// mbarrier_arrive_expect_tx, mbarrier_wait, cp_async_bulk_tensor, matrix_descriptor, wgmma_fence,
// wgmma_m64nNk16<__half, Major::MN>(o, p, v, true), wgmma_commit, wgmma_wait<0>(o), and on the host
// tensor_map<__half, 2>(data, {columns, rows}, {bytes of a row}, {columns, rows of a box}). shared<Tiles>() is a struct
// of yours in shared memory, for which <<<blocks, threads, sizeof(Tiles)>>> makes room, up to 48 KiB.

//# predict 81920 M = 64, N = 320: how many bytes of shared memory do your products read?

//# hint
// A warpgroup for 64 rows; tiles of 64 keys: a box of P has 64 x 64 elements, a box of V as well, 8,192 bytes each. Two
// stages, and for each an mbarrier that waits for both boxes. What lies outside of a tensor becomes zero, so the end of
// N needs no thought.
//# hint
// load(0), load(1). Then for each tile: wait for its stage with parity tile / 2 % 2; mark; fence, four products,
// commit, wait; __syncthreads(); load(tile + 2) into the stage that was read.
//# hint
// The next 16 keys of P are 32 bytes further on, those of V 16 rows of 128 bytes: p + k * 2 and v + k * 128 for key k.
// Element i of o is row warp * 16 + lane / 4 + i / 2 % 2 * 8, column i / 4 * 8 + lane % 4 * 2 + i % 2.

//# because
// Five tiles, and of each the products read 8,192 bytes of P and as many of V. If P were in registers, as in attention,
// it would be half of that.
//# next
// phases/19-beyond/attention.cuh has two such products for each tile, and softmax between them. That was the last
// exercise: now you have written one kernel of each kind.

//# code

constexpr int D = 64;

//# hole Write launch(), and above it your kernel.
constexpr int kKeys = 64;  // of a tile

struct Tiles {
  alignas(1024) __half P[2][64][kKeys], V[2][kKeys][D];  // two stages; TMA swizzles rows of 128 bytes
  std::uint64_t full[2];
};

__global__ void __launch_bounds__(128)
    multiply(const __grid_constant__ TensorMap P_map, const __grid_constant__ TensorMap V_map, float* O, int M, int N) {
  Tiles& tiles = shared<Tiles>();
  const int first_row = blockIdx.x * 64, all = (N + kKeys - 1) / kKeys;
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : tiles.full) mbarrier_init(&barrier, 1);
    fence_mbarrier_init();
  }
  __syncthreads();  // the barriers are there
  const auto load = [&](int tile) {
    if (threadIdx.x != 0 || tile >= all) return;
    const int stage = tile % 2;
    mbarrier_arrive_expect_tx(&tiles.full[stage], sizeof tiles.P[0] + sizeof tiles.V[0]);
    cp_async_bulk_tensor(tiles.P[stage], &P_map, &tiles.full[stage], tile * kKeys, first_row);
    cp_async_bulk_tensor(tiles.V[stage], &V_map, &tiles.full[stage], 0, tile * kKeys);
  };
  float o[32] = {};
  load(0);
  load(1);
  for (int tile = 0; tile < all; ++tile) {
    const int stage = tile % 2;
    mbarrier_wait(&tiles.full[stage], tile / 2 % 2);
    trace_mark("multiply", tile);
    const MatrixDescriptor p = matrix_descriptor(tiles.P[stage]), v = matrix_descriptor(tiles.V[stage]);
    wgmma_fence();
    for (int k = 0; k < kKeys; k += 16) wgmma_m64nNk16<__half, Major::MN>(o, p + k * 2, v + k * 128, true);
    wgmma_commit();
    wgmma_wait<0>(o);
    __syncthreads();  // the products have read this stage
    load(tile + 2);
  }
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < 32; ++i) {
    const int row = first_row + threadIdx.x / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
    if (row < M) O[row * D + i / 4 * 8 + lane % 4 * 2 + i % 2] = o[i];
  }
}

void launch(const __half* P /*[M, N]*/, const __half* V /*[N, D]*/, float* O /*[M, D]*/, int M, int N) {
  const std::uint64_t rows = M, keys = N;
  const TensorMap P_map = tensor_map<__half, 2>(P, {keys, rows}, {keys * 2}, {kKeys, 64});
  const TensorMap V_map = tensor_map<__half, 2>(V, {D, keys}, {D * 2}, {D, kKeys});
  multiply<<<(M + 63) / 64, 128, sizeof(Tiles)>>>(P_map, V_map, O, M, N);
}
//# skeleton: No kernel was launched
//| void launch(const __half* P /*[M, N]*/, const __half* V /*[N, D]*/, float* O /*[M, D]*/, int M, int N) {
//| }
//# wrong barriers-unpublished: TMA does not know of the barriers yet
//~ fence_mbarrier_init(); ==>
//# wrong barriers-not-there: before it was made
//~ __syncthreads();  // the barriers are there ==>
//# wrong bytes-of-p: The barrier waits for fewer bytes than its boxes have
//~ sizeof tiles.P[0] + sizeof tiles.V[0] ==> sizeof tiles.P[0]
//# wrong bytes-of-all: The barrier waits for more bytes than its boxes have
//~ sizeof tiles.P[0] + sizeof tiles.V[0] ==> sizeof tiles.P + sizeof tiles.V
//# wrong bytes-inside: The barrier waits for fewer bytes than its boxes have
//~ sizeof tiles.P[0] + sizeof tiles.V[0] ==> (64 + D) * 2 * min(kKeys, N - tile * kKeys)
//# wrong parity-0: A product reads a stage while TMA still writes it
//~ tile / 2 % 2 ==> 0
//# wrong parity-of-stage: A product reads a stage while TMA still writes it
//~ tile / 2 % 2 ==> tile % 2
//# wrong one-stage: no load is under way
//~ load(1); ==>
//~ load(tile + 2) ==> load(tile + 1)
//# wrong loaded-too-early: while a product still reads it
//~ wgmma_commit(); ==> wgmma_commit(); if (tile + 2 < all) load(tile + 2);
//~ __syncthreads();  // the products have read this stage ==> continue;
//# wrong no-fence: wgmma_fence() comes before
//~ wgmma_fence(); ==>
//# wrong no-commit: in no group
//~ wgmma_commit(); ==>
//# wrong one-left: leaves the youngest group under way
//~ wgmma_wait<0>(o) ==> wgmma_wait<1>(o)
//# wrong not-named: does not name o
//~ wgmma_wait<0>(o) ==> wgmma_wait<0>()
//# wrong p-by-elements: P moves on by too few bytes
//~ p + k * 2 ==> p + k
//# wrong v-by-elements: V moves on by too few bytes
//~ v + k * 128 ==> v + k * 64
//# wrong v-k-major: V is MN-major
//~ <__half, Major::MN> ==> <__half>
//# wrong last-alone: Only the last 16 keys
//~ v + k * 128, true ==> v + k * 128, false
//# wrong coordinates-swapped: The first coordinate counts columns
//~ tile * kKeys, first_row ==> first_row, tile * kKeys
//# wrong tiles-rounded-down: The last keys, which fill no whole tile, are missing
//~ (N + kKeys - 1) / kKeys ==> max(1, N / kKeys)
//# wrong unguarded: beyond the last row
//~ if (row < M) O ==> O
//# wrong grid-rounded-down: The last rows of O were never written
//~ (M + 63) / 64 ==> max(1, M / 64)
//# wrong rows-apart: Two lanes claim the same element of O
//~ i / 2 % 2 * 8; ==> i / 2 % 2;
//# wrong no-mark: nobody has called trace_mark
//~ trace_mark("multiply", tile); ==>
//# also producer-warp
//| // A fifth warp loads; four multiply. `empty`: all 128 have read the stage.
//| struct Tiles {
//|   alignas(1024) __half P[2][64][64], V[2][64][D];
//|   std::uint64_t full[2], empty[2];
//| };
//|
//| __global__ void multiply(const __grid_constant__ TensorMap P_map, const __grid_constant__ TensorMap V_map, float* O,
//|                          int M, int N) {
//|   Tiles& tiles = shared<Tiles>();
//|   if (threadIdx.x == 0) {
//|     for (int i = 0; i < 2; ++i) mbarrier_init(&tiles.full[i], 1), mbarrier_init(&tiles.empty[i], 128);
//|     fence_mbarrier_init();
//|   }
//|   __syncthreads();
//|   const int all = (N + 63) / 64, first_row = blockIdx.x * 64;
//|   if (threadIdx.x >= 128) {
//|     for (int tile = 0; tile < all && threadIdx.x == 128; ++tile) {
//|       const int stage = tile & 1;
//|       mbarrier_wait(&tiles.empty[stage], (tile / 2 & 1) ^ 1);
//|       mbarrier_arrive_expect_tx(&tiles.full[stage], 64 * 64 * 2 * 2);
//|       cp_async_bulk_tensor(tiles.P[stage], &P_map, &tiles.full[stage], tile * 64, first_row);
//|       cp_async_bulk_tensor(tiles.V[stage], &V_map, &tiles.full[stage], 0, tile * 64);
//|     }
//|     return;
//|   }
//|   float o[32];
//|   for (int tile = 0; tile < all; ++tile) {
//|     const int stage = tile & 1;
//|     mbarrier_wait(&tiles.full[stage], tile / 2 & 1);
//|     trace_mark("multiply", tile);
//|     wgmma_fence();
//|     for (int k = 0; k < 4; ++k)
//|       wgmma_m64nNk16<__half, Major::MN>(o, matrix_descriptor(tiles.P[stage]) + k * 32,
//|                                         matrix_descriptor(tiles.V[stage][16 * k]), tile + k > 0);
//|     wgmma_commit();
//|     wgmma_wait<0>(o);
//|     mbarrier_arrive(&tiles.empty[stage]);
//|   }
//|   const int row = first_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
//|   for (int i = 0; i < 32; ++i)
//|     if (row + i / 2 % 2 * 8 < M) O[(row + i / 2 % 2 * 8) * D + column + i / 4 * 8 + i % 2] = o[i];
//| }
//|
//| void launch(const __half* P /*[M, N]*/, const __half* V /*[N, D]*/, float* O /*[M, D]*/, int M, int N) {
//|   const std::uint64_t rows = M, keys = N;
//|   multiply<<<(M + 63) / 64, 160, sizeof(Tiles)>>>(tensor_map<__half, 2>(P, {keys, rows}, {keys * 2}, {64, 64}),
//|                                                   tensor_map<__half, 2>(V, {D, keys}, {D * 2}, {D, 64}), O, M, N);
//| }
//# also p-in-registers
//| // V by TMA, four stages of 32 keys; P straight from HBM into the registers of the left operand.
//| struct Tiles {
//|   alignas(1024) __half V[4][32][D];
//|   std::uint64_t full[4];
//| };
//|
//| __global__ void multiply(const __half* P, const __grid_constant__ TensorMap V_map, float* O, int M, int N) {
//|   Tiles& tiles = shared<Tiles>();
//|   if (threadIdx.x == 0) {
//|     for (int i = 0; i < 4; ++i) mbarrier_init(&tiles.full[i], 1);
//|     fence_mbarrier_init();
//|   }
//|   __syncthreads();
//|   const int row = blockIdx.x * 64 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
//|   const auto load = [&](int tile) {
//|     mbarrier_arrive_expect_tx(&tiles.full[tile % 4], sizeof tiles.V[0]);
//|     cp_async_bulk_tensor(tiles.V[tile % 4], &V_map, &tiles.full[tile % 4], 0, tile * 32);
//|   };
//|   for (int tile = 0; tile < 3 && tile * 32 < N && threadIdx.x == 0; ++tile) load(tile);
//|   float o[32] = {};
//|   for (int tile = 0; tile * 32 < N; ++tile) {
//|     unsigned p[2][4] = {};
//|     for (int i = 0; i < 8; ++i) {
//|       const int r = row + i % 2 * 8, c = tile * 32 + i / 4 * 16 + i / 2 % 2 * 8 + column;
//|       if (r < M && c < N) p[i / 4][i % 4] = *reinterpret_cast<const unsigned*>(&P[r * N + c]);
//|     }
//|     mbarrier_wait(&tiles.full[tile % 4], tile / 4 % 2);
//|     __syncthreads();  // the tile before was read by all: its stage is filled next
//|     if (threadIdx.x == 0 && (tile + 3) * 32 < N) load(tile + 3);
//|     trace_mark("multiply", tile);
//|     wgmma_fence();
//|     for (int k = 0; k < 2; ++k)
//|       wgmma_m64nNk16<__half, Major::MN>(o, p[k], matrix_descriptor(tiles.V[tile % 4]) + k * 2048, true);
//|     wgmma_commit();
//|     wgmma_wait<0>(o, p);
//|   }
//|   for (int i = 0; i < 32; ++i)
//|     if (row + i / 2 % 2 * 8 < M) O[(row + i / 2 % 2 * 8) * D + column + i / 4 * 8 + i % 2] = o[i];
//| }
//|
//| void launch(const __half* P /*[M, N]*/, const __half* V /*[N, D]*/, float* O /*[M, D]*/, int M, int N) {
//|   const auto V_map = tensor_map<__half, 2>(V, {D, std::uint64_t(N)}, {D * 2}, {D, 32});
//|   multiply<<<(M + 63) / 64, 128, sizeof(Tiles)>>>(P, V_map, O, M, N);
//| }
//# end

//# judge

void judge(Trial& t) {
  struct Case {
    int M, N;
  };
  for (const auto& [M, N] : {Case{128, 320}, Case{100, 200}, Case{1, 8}, Case{64, 320}}) {
    const std::string with = "M = " + std::to_string(M) + ", N = " + std::to_string(N) + ": ";
    std::vector<__half> P, V;
    for (const float x : t.normal("P", M * N)) P.push_back(__float2half(x));
    for (const float x : t.normal("V", N * D)) V.push_back(__float2half(x));
    const auto p = t.upload("P", P), v = t.upload("V", V);
    const auto o = t.alloc("O", M * D);
    launch(p.data(), v.data(), o.data(), M, N);
    t.ledger();  // (something was launched)
    const bool whole = M % 64 == 0 && N % 64 == 0;
    const std::string early =
        "A product reads a stage while TMA still writes it: is it the stage that was waited for, "
        "and the parity of its phase? A wait for the other parity goes on at once.";
    const std::string few =
        "The barrier waits for fewer bytes than its boxes have: TMA counts all that it writes to "
        "shared memory, the zeros outside of the tensor too.";
    t.findings(
        {{"before any mbarrier_init", "A thread waits on a barrier before it was made: a __syncthreads() is missing."},
         {"after mbarrier.init", "A thread may come to a barrier before it was made: let all wait in between."},
         {"no fence has published",
          "TMA does not know of the barriers yet: fence_mbarrier_init() behind "
          "mbarrier_init shows them."},
         {"its copies bring", few},
         {"bytes too many", few},
         {"bytes missing", "The barrier waits for more bytes than its boxes have: they never come."},
         {"leaves under way", t.uses("wgmma_commit")
                                  ? "wgmma_wait<1> leaves the youngest group under way, and that is the one you "
                                    "need."
                                  : "A wait is for groups, and these products are in no group: wgmma_commit() "
                                    "makes one."},
         {"while another wgmma reads it",
          "A stage is filled again while a product still reads it: wait for the "
          "product first."},
         {"while another cp.async.bulk.tensor writes it",
          t.uses("Major::MN")
              ? early
              : "A product reads a stage that is not there yet; but V is MN-major, too: its rows are keys."},
         {"without a wgmma_fence",
          "The first product may begin before o is in its registers: wgmma_fence() comes "
          "before it."},
         {"no wgmma_wait has named",
          "The wait does not name o: on a GPU the compiler may move the reads of o to before it."},
         {"out of bounds: write of O[",
          whole ? "An index goes beyond the end of O." : with + "your code goes beyond the last row."},
         {"write after write of O", "Two lanes claim the same element of O."}});

    // O if key k of a row of P meets this row of V, and nothing where that is negative.
    const auto product = [&, M = M, N = N](auto of_p, auto of_v) {
      Doubles O(M * D);
      for (int i = 0; i < M; ++i)
        for (int k = 0; k < (N + 63) / 64 * 64; ++k) {
          const int j = of_p(k), key = of_v(k);
          if (j < 0 || key < 0 || j >= N || key >= N) continue;
          for (int d = 0; d < D; ++d) O[i * D + d] += double(__half2float(P[i * N + j])) * __half2float(V[key * D + d]);
        }
      return O;
    };
    const auto same = [](int k) { return k; };
    const Floats O = t.download(o);
    std::vector<bool> written;
    for (int i = 0; i < M * D; ++i) {
      if (i % D == 0) written.push_back(true);
      if (std::bit_cast<unsigned>(O[i]) == ~0u) written.back() = false;
    }
    const auto none = std::find(written.begin(), written.end(), false);
    t.expect(none == written.end() || std::find(none, written.end(), true) != written.end(),
             with + "The last rows of O were never written: is the number of blocks rounded up?");
    t.expect(none == written.end(),
             with + "Some elements of O were never written: o[i] has rows lane / 4 and 8 below.");
    Doubles swapped(M * D);
    for (int i = 0; i < M; ++i)
      for (int k = 0; k < N; ++k)
        for (int d = 0, row = k / 64 * 64 + i % 64, key = i / 64 * 64 + k % 64; d < D && row < M && key < N; ++d)
          swapped[i * D + d] += double(__half2float(P[row * N + key])) * __half2float(V[k * D + d]);
    const auto by = [](int bytes) { return [=](int k) { return k / 64 * 64 + k % 64 / 16 * bytes + k % 16; }; };
    t.answer("O", O, product(same, same), D,
             {{swapped, "The first coordinate counts columns, the second rows: P's box begins at column tile * 64."},
              {product(by(8), same), "P moves on by too few bytes: 16 keys of a row are 32."},
              {product(same, by(8)), "V moves on by too few bytes: 16 keys are 16 rows of 128."},
              {product([&, N = N](int k) { return k / 16 == ((N + 63) / 64 * 64 - 1) / 16 ? k : -1; }, same),
               with + "Only the last 16 keys are in O: the products before must not be forgotten (`accumulate`)."},
              {product([&, N = N](int k) { return k < N / 64 * 64 || k < 64 ? k : -1; }, same),
               with + "The last keys, which fill no whole tile, are missing."}},
             1e-4);

    const std::uint64_t flops = 2ull * M * N * D, blocks = (M + 63) / 64;
    t.demand(t.ledger().tensor_flops >= flops && t.ledger().wgmma_shared_bytes > 0,
             with + "the product is not made by wgmma: of " + std::to_string(flops) +
                 " FLOPs the tensor cores have done " + std::to_string(t.ledger().tensor_flops) + ".");
    t.count(with + "the bytes read of P", t.traffic("P").read_bytes, 2ull * M * N, "Each element is needed once.");
    t.count(with + "the bytes read of V", t.traffic("V").read_bytes, blocks * N * D * 2,
            "V is read too often: once for 64 rows was promised.");
    t.count(with + "the traffic of O in bytes", t.traffic("O").written_bytes + t.traffic("O").read_bytes, 4ull * M * D,
            "O can stay in registers until it is done.");
    t.count(with + "the number of bank conflicts", t.ledger().bank_conflicts(), 0, "");
    if (!whole) continue;
    // Is a load under way at each mark but a block's last? Warps that multiply all make the marks: the first is asked.
    std::size_t marks = 0, beside = 0;
    const auto& trace = t.machine.trace();
    for (const TraceEvent& mark : trace) {
      if (mark.name != "multiply" || mark.warp != 0 || mark.launch + 1 != t.machine.reports().size()) continue;
      ++marks;
      beside += std::any_of(trace.begin(), trace.end(), [&](const TraceEvent& copy) {
        return copy.beside && copy.launch == mark.launch && copy.block == mark.block && copy.begin <= mark.begin &&
               copy.end > mark.begin;
      });
    }
    t.demand(marks > blocks, with +
                                 "nobody has called trace_mark(\"multiply\", tile) for each tile: the judge cannot see "
                                 "when you multiply.");
    t.demand(beside + blocks >= marks,
             with + "no load is under way at " + std::to_string(marks - beside) + " of " + std::to_string(marks) +
                 " marks: it does not load while it multiplies. Begin the next load before, into another stage.");
    t.predicted(t.ledger().wgmma_shared_bytes);
  }
}
