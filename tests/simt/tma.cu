// tma.cu: loads a box by TMA, reads it, and stores it by TMA (tma.hpp). It waits for each thing that has a wait, and
// fences each thing that has a fence.
// Use: tma_test.cpp, on the simulator and, where there is one, on a GPU of compute capability 9.0.
#include "gpu/hopper.cuh"
#include "tests/simt/tma.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr unsigned kMostElements = 64 * 64;

struct Tiles {
  alignas(1024) unsigned short in[kMostElements], out[kMostElements];
  std::uint64_t full;
};

// Where element i of a tile lies, whose rows have 64 elements: 16 bytes at a time, swizzled.
__device__ inline int swizzled_index(int i) {
  const int piece = i / 8, line = piece / 8;
  return (line * 8 + (piece % 8 ^ line % 8)) * 8 + i % 8;
}

template <int kRank>
__global__ void copy_box(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to, int4 at, int v,
                         unsigned short* seen /*[blocks, elements]*/, int elements, int width, bool stores) {
  Tiles& s = shared<Tiles>();
  const int t = threadIdx.x;
  at.x += static_cast<int>(blockIdx.x) * width;
  seen += static_cast<int>(blockIdx.x) * elements;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (t == 0) {
    if constexpr (kRank == 4) cp_async_bulk_prefetch_tensor(&from, at.x, at.y, at.z, at.w);  // changes nothing
    if constexpr (kRank == 5) cp_async_bulk_prefetch_tensor(&from, at.x, at.y, at.z, at.w, v);
    mbarrier_arrive_expect_tx(&s.full, elements * 2);
    if constexpr (kRank == 2) cp_async_bulk_tensor(s.in, &from, &s.full, at.x, at.y);
    if constexpr (kRank == 3) cp_async_bulk_tensor(s.in, &from, &s.full, at.x, at.y, at.z);
    if constexpr (kRank == 4) cp_async_bulk_tensor(s.in, &from, &s.full, at.x, at.y, at.z, at.w);
    if constexpr (kRank == 5) cp_async_bulk_tensor(s.in, &from, &s.full, at.x, at.y, at.z, at.w, v);
  }
  mbarrier_wait(&s.full, 0);
  for (int i = t; i < elements; i += blockDim.x) {
    const int at = swizzled_index(i / width * 64 + i % width);  // shorter rows are 128 bytes apart, too
    seen[i] = s.in[at], s.out[at] = s.in[at];
  }
  fence_proxy_async();
  __syncthreads();
  if (t == 0 && stores) {
    if constexpr (kRank == 2) cp_async_bulk_tensor_store(&to, s.out, at.x, at.y);
    if constexpr (kRank == 3) cp_async_bulk_tensor_store(&to, s.out, at.x, at.y, at.z);
    if constexpr (kRank == 4) cp_async_bulk_tensor_store(&to, s.out, at.x, at.y, at.z, at.w);
    if constexpr (kRank == 5) cp_async_bulk_tensor_store(&to, s.out, at.x, at.y, at.z, at.w, v);
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
}

template <std::size_t kRank>
TensorMap map_of(const unsigned short* data, const BoxCase& c) {
  std::array<std::uint64_t, kRank> sizes{};
  std::array<std::uint64_t, kRank - 1> strides{};
  std::array<std::uint32_t, kRank> box{};
  for (std::size_t axis = 0; axis < kRank; ++axis) {
    sizes[axis] = c.sizes[axis], box[axis] = c.box[axis];
    if (axis > 0) strides[axis - 1] = 2 * c.strides[axis];
  }
  return tensor_map(reinterpret_cast<const __half*>(data), sizes, strides, box);
}

template <std::size_t kRank>
void run(Machine& m, const BoxCase& c, const unsigned short* in, unsigned short* out, unsigned short* seen,
         int elements) {
  launch<Tiles>(m, copy_box<kRank>, dim3(c.blocks), dim3(96), map_of<kRank>(in, c),
                map_of<kRank>(c.in_place ? in : out, c), make_int4(c.at[0], c.at[1], c.at[2], c.at[3]), c.at[4], seen,
                elements, static_cast<int>(c.box[0]), c.stores);
}

BoxResult run_box(const MachineOptions& options, const BoxCase& c) {
  Machine m(options);
  BoxResult result;
  std::size_t elements = 1;
  for (unsigned axis = 0; axis < c.rank; ++axis) elements *= c.box[axis];
  result.seen.resize(c.blocks * elements);
  std::vector<std::uint16_t> numbers(extent(c));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(i);
  result.out.assign(numbers.size(), kUntouched);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto out = m.upload("out", result.out.data(), numbers.size());
  const auto seen = m.alloc<std::uint16_t>("seen", result.seen.size());
  const int n = static_cast<int>(elements);
  if (c.rank == 2) run<2>(m, c, in.data(), out.data(), seen.data(), n);
  if (c.rank == 3) run<3>(m, c, in.data(), out.data(), seen.data(), n);
  if (c.rank == 4) run<4>(m, c, in.data(), out.data(), seen.data(), n);
  if (c.rank == 5) run<5>(m, c, in.data(), out.data(), seen.data(), n);
  m.download(result.seen.data(), seen);
  m.download(result.out.data(), out);
  result.findings = m.findings(), result.ledger = m.reports().back().ledger;
  return result;
}

__global__ void write_first(unsigned short* in, int elements) {
  for (int i = threadIdx.x; i < elements; i += blockDim.x) in[i] = static_cast<unsigned short>(i);
}

// The box begins at column 8 of row 2, and goes to column 16 of row 0.
__global__ void use_first(const __grid_constant__ TensorMap from, const __grid_constant__ TensorMap to,
                          const unsigned short* copied, unsigned short* out, int used) {
  Tiles& s = shared<Tiles>();
  const int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&s.full, 8 * 128);
    cp_async_bulk_tensor(s.in, &from, &s.full, 8, 2);
  }
  __syncthreads();
  mbarrier_wait(&s.full, 0);
  if (t == 0) {
    cp_async_bulk_tensor_store(&to, s.in, 16, 0);
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  }
  __syncthreads();
  for (int i = t; i < 8 * 64; i += blockDim.x) {
    const int row = i / 64, column = i % 64;
    const bool inside = row < 6 && column < 48, wanted = (row + 2) * 64 + column + 8 < used;
    if (inside && wanted) out[i] = s.in[swizzled_index(i)] + copied[row * 64 + column + 16];
  }
}

std::vector<Finding> run_partly_written(const MachineOptions& options, int written, int used) {
  Machine m(options);
  const auto in = m.alloc<std::uint16_t>("in", 8 * 64), copied = m.alloc<std::uint16_t>("copied", 8 * 64),
             out = m.alloc<std::uint16_t>("out", 8 * 64);
  const auto map = [](const unsigned short* data) {
    return tensor_map<__half, 2>(reinterpret_cast<const __half*>(data), {64, 8}, {128}, {64, 8});
  };
  launch<char>(m, write_first, dim3(1), dim3(64), in.data(), written);
  launch<Tiles>(m, use_first, dim3(1), dim3(64), map(in.data()), map(copied.data()), copied.data(), out.data(), used);
  return m.findings();
}

// Rows of 9 elements, each at a multiple of 24: the last one lies in the first half of a word.
__global__ void copy_odd_rows(const __grid_constant__ TensorMap map, unsigned short* rows, bool stores, int column) {
  Tiles& s = shared<Tiles>();
  const int t = threadIdx.x;
  for (int i = t; i < 4 * 64; i += blockDim.x) s.out[i] = 1;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
  }
  fence_proxy_async();
  __syncthreads();
  if (t == 0 && stores) {
    cp_async_bulk_tensor_store(&map, s.out, 0, 0);
    cp_async_bulk_commit();
    cp_async_bulk_wait<0>();
  } else if (t == 0) {
    mbarrier_arrive_expect_tx(&s.full, 4 * 128);
    cp_async_bulk_tensor(s.in, &map, &s.full, 0, 0);
    mbarrier_wait(&s.full, 0);
  }
  if (t == 1)
    for (int row = 0; row < 4; ++row) rows[row * 24 + column] = 2;
}

std::vector<Finding> run_odd_rows(const MachineOptions& options, bool stores, int column) {
  Machine m(options);
  const std::vector<std::uint16_t> numbers(4 * 24);
  const auto rows = m.upload("rows", numbers.data(), numbers.size());
  launch<Tiles>(m, copy_odd_rows, dim3(1), dim3(32),
                tensor_map<__half, 2>(reinterpret_cast<const __half*>(rows.data()), {9, 4}, {48}, {64, 4}), rows.data(),
                stores, column);
  return m.findings();
}

__global__ void fetch_ahead(const __grid_constant__ TensorMap in) {
  cp_async_bulk_prefetch_tensor(&in, 0, 0, 0, 0);
}

std::vector<Finding> run_wrong_prefetch(const MachineOptions& options) {
  Machine m(options);
  const auto in = m.alloc<std::uint16_t>("in", 8 * 64);
  launch<char>(m, fetch_ahead, dim3(1), dim3(1),
               tensor_map<__half, 2>(reinterpret_cast<const __half*>(in.data()), {64, 8}, {128}, {64, 8}));
  return m.findings();
}

// ---- a ring of tiles: one warp loads, four compute, one thread stores ------------------------------------------

constexpr int kStages = 2, kComputing = 128, kBoxRows = 8;
struct Ring {
  alignas(1024) unsigned short k[kStages][kBoxRows * 64], q[64];
  alignas(1024) unsigned short out[2 * 64];
  alignas(8) std::uint64_t k_full[kStages], k_empty[kStages], q_full, q_empty, met;
};

__global__ void ring(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                     const __grid_constant__ TensorMap out, int items, int boxes) {
  Ring& s = shared<Ring>();
  const int t = threadIdx.x, lane = t % 32;
  if (t == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      mbarrier_init(&s.k_full[stage], 1);
      mbarrier_init(&s.k_empty[stage], kComputing / 32);
    }
    mbarrier_init(&s.q_full, 1);
    mbarrier_init(&s.q_empty, kComputing / 32);
    mbarrier_init(&s.met, kComputing);
    fence_mbarrier_init();
  }
  __syncthreads();

  // The loading warp runs ahead of the others as far as there are empty tiles.
  if (t >= kComputing) {
    if (!elect_sync()) return;
    int loaded = 0;
    for (int item = blockIdx.x, turn = 0; item < items; item += gridDim.x, ++turn) {
      mbarrier_wait(&s.q_empty, (turn & 1) ^ 1);
      mbarrier_arrive_expect_tx(&s.q_full, sizeof s.q);
      cp_async_bulk_tensor(s.q, &q, &s.q_full, 0, item);
      for (int box = 0; box < boxes; ++box, ++loaded) {
        const int stage = loaded % kStages;
        mbarrier_wait(&s.k_empty[stage], (loaded / kStages & 1) ^ 1);
        mbarrier_arrive_expect_tx(&s.k_full[stage], sizeof s.k[stage]);
        cp_async_bulk_tensor(s.k[stage], &k, &s.k_full[stage], 0, box * kBoxRows);
      }
    }
    return;
  }

  const int half = t / 64, x = t % 64;
  int used = 0, meetings = 0;
  const auto meet = [&] {
    mbarrier_arrive(&s.met);
    mbarrier_wait(&s.met, meetings++ & 1);
  };
  for (int item = blockIdx.x, turn = 0; item < items; item += gridDim.x, ++turn) {
    mbarrier_wait(&s.q_full, turn & 1);
    unsigned sum = 0;
    for (int box = 0; box < boxes; ++box, ++used) {
      const int stage = used % kStages;
      mbarrier_wait(&s.k_full[stage], used / kStages & 1);
      for (int row = 4 * half; row < 4 * half + 4; ++row) sum += s.k[stage][swizzled_index(row * 64 + x)];
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&s.k_empty[stage]);
    }
    sum *= s.q[x];
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&s.q_empty);

    // Write the staging tile when the last store has read it, and let one thread store it.
    if (t == 0) cp_async_bulk_wait_read<0>();
    meet();
    s.out[swizzled_index(t)] = static_cast<unsigned short>(sum);
    fence_proxy_async();
    meet();
    if (t == 0) {
      cp_async_bulk_tensor_store(&out, s.out, 0, 0, item);
      cp_async_bulk_commit();
    }
  }
  if (t == 0) cp_async_bulk_wait_read<0>();
}

RingResult run_ring(const MachineOptions& options) {
  Machine m(options);
  RingResult result;
  result.q.resize(kItems * 64), result.k.resize(kRows * 64), result.out.resize(kItems * 2 * 64);
  for (std::size_t i = 0; i < result.q.size(); ++i) result.q[i] = static_cast<std::uint16_t>(3 * i + 1);
  for (std::size_t i = 0; i < result.k.size(); ++i) result.k[i] = static_cast<std::uint16_t>(i * i);
  const auto q = m.upload("q", result.q.data(), result.q.size());
  const auto k = m.upload("k", result.k.data(), result.k.size());
  const auto out = m.alloc<std::uint16_t>("out", result.out.size());
  const auto halves = [](const unsigned short* data) { return reinterpret_cast<const __half*>(data); };
  launch<Ring>(m, ring, dim3(2), dim3(kComputing + 32),
               tensor_map<__half, 2>(halves(q.data()), {64, kItems}, {128}, {64, 1}),
               tensor_map<__half, 2>(halves(k.data()), {64, kRows}, {128}, {64, kBoxRows}),
               tensor_map<__half, 3>(halves(out.data()), {64, 2, kItems}, {128, 256}, {64, 2, 1}), kItems,
               (kRows + kBoxRows - 1) / kBoxRows);
  m.download(result.out.data(), out);
  result.findings = m.findings(), result.ledger = m.reports().back().ledger;
  result.trace = m.trace();
  return result;
}

// ---- __shared__ arrays, and a launch as CUDA writes it -------------------------------------------------------------

__global__ void static_tile(const __grid_constant__ TensorMap in, unsigned short* seen /*[512]*/, unsigned bytes,
                            unsigned more_bytes) {
  __shared__ __align__(1024) unsigned short tile[kBoxRows * 64];
  __shared__ std::uint64_t full;
  const int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(&full, more_bytes ? 2 : 1);
    fence_mbarrier_init();
    mbarrier_arrive_expect_tx(&full, bytes);
    if (more_bytes) mbarrier_arrive_expect_tx(&full, more_bytes);
    cp_async_bulk_tensor(tile, &in, &full, 0, 0);
  }
  __syncthreads();
  mbarrier_wait(&full, 0);
  for (int i = t; i < kBoxRows * 64; i += blockDim.x) seen[i] = tile[swizzled_index(i)];
}

BoxResult run_static_tile(const MachineOptions& options, unsigned expected_bytes, unsigned more_bytes) {
  Machine m(options);
  BoxResult result;
  result.seen.resize(kBoxRows * 64);
  std::vector<std::uint16_t> numbers(result.seen.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(i);
  const auto in = m.upload("in", numbers.data(), numbers.size());
  const auto seen = m.alloc<std::uint16_t>("seen", numbers.size());
  const TensorMap map =
      tensor_map<__half, 2>(reinterpret_cast<const __half*>(in.data()), {64, kBoxRows}, {128}, {64, kBoxRows});
  static_tile<<<1, 64>>>(map, seen.data(), expected_bytes, more_bytes);
  m.download(result.seen.data(), seen);
  result.findings = m.findings();
  return result;
}

}  // namespace flash::inline FLASH_MACHINE
