// counters_tma.cu: as counters.cu for what TMA moves, which needs sm_90a, and for atomics beside it: each of 64 blocks
// moves 1 KiB. Nsight Compute counts what multiprocessors ask of the L2 cache: lts__t_sectors_srcunit_tex_op_read,
// _write, _red, _atom; without srcunit_tex what one half of an H200's cache asks of the other is counted, too.
// Run: counters tma on a GPU under Nsight Compute (ncu_counters.sh).
#include "gpu/hopper.cuh"
#include "tests/simt/counters.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr unsigned kParts = 64, kPart = 256, kPartBytes = 4 * kPart;  // blocks, floats of each

struct Part {
  alignas(1024) float tile[kPart];
  std::uint64_t full;
};

// The part comes by one copy of bytes, or by a box of 8 rows of 64 elements of 16 bits. One float of it is used.
template <bool Tensor>
__global__ void bulk_in(const __grid_constant__ TensorMap map, const float* in, float* out) {
  Part& s = shared<Part>();
  if (threadIdx.x != 0) return;
  mbarrier_init(&s.full, 1);
  fence_mbarrier_init();
  mbarrier_arrive_expect_tx(&s.full, kPartBytes);
  if constexpr (Tensor)
    cp_async_bulk_tensor(s.tile, &map, &s.full, 0, static_cast<int>(blockIdx.x) * 8);
  else
    cp_async_bulk(s.tile, in + blockIdx.x * kPart, kPartBytes, &s.full);
  mbarrier_wait(&s.full, 0);
  if (s.tile[0] == 1) out[blockIdx.x] = 1;  // they are all 0
}

enum class Out { Bytes, Tensor, Sum, SameSum };

template <Out kOut>
__global__ void bulk_out(const __grid_constant__ TensorMap map, float* out) {
  Part& s = shared<Part>();
  for (unsigned i = threadIdx.x; i < kPart; i += blockDim.x) s.tile[i] = 0;
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if constexpr (kOut == Out::Bytes) cp_async_bulk_store(out + blockIdx.x * kPart, s.tile, kPartBytes);
  if constexpr (kOut == Out::Tensor) cp_async_bulk_tensor_store(&map, s.tile, 0, static_cast<int>(blockIdx.x) * 8);
  if constexpr (kOut == Out::Sum) cp_reduce_async_bulk_add(out + blockIdx.x * kPart, s.tile, kPartBytes);
  if constexpr (kOut == Out::SameSum) cp_reduce_async_bulk_add(out, s.tile, kPartBytes);
  cp_async_bulk_commit();
  cp_async_bulk_wait<0>();
}

__global__ void atomic_sums(float* out) {
  atomicAdd(&out[blockIdx.x * blockDim.x + threadIdx.x], 0.0f);
}

std::vector<Ledger> run_tma_counters(const MachineOptions& options) {
  Machine m(options);
  const std::vector<float> zeros(kParts * kPart);
  const Array<float> in = m.upload("in", zeros.data(), zeros.size());
  const Array<float> out = m.upload("out", zeros.data(), zeros.size());
  const auto map_of = [](const float* data) {
    return tensor_map<__half, 2>(reinterpret_cast<const __half*>(data), {64, kParts * 8}, {128}, {64, 8});
  };
  const TensorMap from = map_of(in.data()), to = map_of(out.data());
  const dim3 parts(kParts), line(128);

  launch<Part>(m, bulk_in<false>, parts, line, from, in.data(), out.data());
  launch<Part>(m, bulk_in<true>, parts, line, from, in.data(), out.data());
  launch<Part>(m, bulk_out<Out::Bytes>, parts, line, to, out.data());
  launch<Part>(m, bulk_out<Out::Tensor>, parts, line, to, out.data());
  launch<Part>(m, bulk_out<Out::Sum>, parts, line, to, out.data());
  launch<Part>(m, bulk_out<Out::SameSum>, parts, line, to, out.data());
  launch(m, atomic_sums, parts, dim3(kPart), out.data());

  std::vector<Ledger> ledgers;
  for (const KernelReport& report : m.reports()) ledgers.push_back(report.ledger);
  return ledgers;
}

}  // namespace flash::inline FLASH_MACHINE
