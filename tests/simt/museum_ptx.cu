// museum_ptx.cu: the museum's exhibits of the instructions in gpu/ptx.cuh, which need compute capability 8.0: mma,
// ldmatrix, cp.async. Each has the switch `Fixed` and the marks of museum.cu; its name begins with its instruction's.
// Run: as museum.cu, whose run_exhibit comes here; simt_museum_test asserts the reports and compares twins' results.
#include "gpu/kernel.cuh"
#include "sim/error.hpp"
#include "tests/simt/museum.hpp"

namespace flash::inline FLASH_MACHINE {

// ---- mma -------------------------------------------------------------------------------------------------------

// Operands that are 1 everywhere: each element of D = A B + C is 16 + 1.
struct Ones {
  unsigned a[4] = {0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u}, b[2] = {0x3c003c00u, 0x3c003c00u};
  float c[4] = {1, 1, 1, 1}, d[4] = {};
};

template <bool Fixed>
__global__ void mma_lane_returned(const float* in, float* out, int n) {
  const int lane = threadIdx.x;  // 32 threads, n = 31
  if (!Fixed && lane >= n) return;
  Ones m;
  mma_m16n8k16<__half>(m.d, m.a, m.b, m.c);  //@ mma_lane_returned:1
  if (lane < n) out[lane] = m.d[0] + in[lane];
}

template <bool Fixed>
__global__ void mma_half_warp(const float* in, float* out, int) {
  const int t = threadIdx.x;  // 48 threads: the second warp has 16 lanes
  Ones m;
  if (!Fixed || t < 32) mma_m16n8k16<__half>(m.d, m.a, m.b, m.c);  //@ mma_half_warp:1
  out[t] = m.d[0] + in[t];
}

template <bool Fixed>
__global__ void mma_two_sites(const float* in, float* out, int) {
  const int lane = threadIdx.x;
  Ones m;
  if (Fixed || lane % 2 == 0)
    mma_m16n8k16<__half>(m.d, m.a, m.b, m.c);  //@ mma_two_sites:1
  else
    mma_m16n8k16<__half>(m.d, m.a, m.b, m.d);  //@ mma_two_sites:2
  out[lane] = m.d[0] + in[lane];
}

// ---- ldmatrix --------------------------------------------------------------------------------------------------

struct Rows {
  alignas(16) unsigned short row[32][8];
};

// Four matrices, one after the other: a lane has its own row, a number in each of its elements.
__device__ inline void fill_row(Rows& s, int row, int number) {
  for (int i = 0; i < 8; ++i) s.row[row][i] = static_cast<unsigned short>(number);
}
__device__ inline float sum_of(const unsigned (&registers)[4]) {
  float sum = 0;
  for (const unsigned two : registers) sum += static_cast<float>((two & 0xffffu) + (two >> 16));
  return sum;
}

template <bool Fixed>
__global__ void ldmatrix_past_end(const float* in, float* out, int) {
  Rows& s = shared<Rows>();
  const int lane = threadIdx.x;
  fill_row(s, lane, lane);
  __syncwarp();
  unsigned registers[4];
  ldmatrix_x4(registers, s.row[0] + 8 * (Fixed ? lane : lane + 1));  //@ ldmatrix_past_end:1
  out[lane] = sum_of(registers) + in[lane];
}

template <bool Fixed>
__global__ void ldmatrix_misaligned(const float* in, float* out, int) {
  Rows& s = shared<Rows>();
  const int lane = threadIdx.x;
  fill_row(s, lane, lane);
  __syncwarp();
  unsigned registers[4];
  ldmatrix_x4(registers, s.row[0] + 8 * (lane % 31) + (Fixed ? 0 : 4));  //@ ldmatrix_misaligned:1
  out[lane] = sum_of(registers) + in[lane];
}

template <bool Fixed>
__global__ void ldmatrix_of_global(const float* in, float* out, int) {
  Rows& s = shared<Rows>();
  const int lane = threadIdx.x;
  fill_row(s, lane, lane);
  __syncwarp();
  const void* row = s.row[lane];
  if (!Fixed) row = in + lane % 16 * 4;
  unsigned registers[4];
  ldmatrix_x4(registers, row);  //@ ldmatrix_of_global:1
  out[lane] = sum_of(registers) + in[lane];
}

template <bool Fixed>
__global__ void ldmatrix_ragged_tile(const float* in, float* out, int n) {
  Rows& s = shared<Rows>();
  const int lane = threadIdx.x;  // n = 24 valid rows
  if (Fixed || lane < n) fill_row(s, lane, lane < n ? lane : 0);
  __syncwarp();
  unsigned registers[4];
  ldmatrix_x4(registers, s.row[lane]);  //@ ldmatrix_ragged_tile:1
  if (lane < n) out[lane] = sum_of(registers) + in[lane];
}

template <bool Fixed>
__global__ void ldmatrix_without_barrier(const float* in, float* out, int) {
  Rows& s = shared<Rows>();
  const int t = threadIdx.x;  // 64 threads: the second warp writes what the first one loads
  if (t < 32) fill_row(s, t, 0);
  __syncthreads();
  if (t >= 32) s.row[t - 32][0] = 1;  //@ ldmatrix_without_barrier:1
  if (Fixed) __syncthreads();
  unsigned registers[4] = {};
  if (t < 32) ldmatrix_x4(registers, s.row[t]);  //@ ldmatrix_without_barrier:2
  out[t] = sum_of(registers) + in[t];
}

// ---- cp.async --------------------------------------------------------------------------------------------------

struct Tile {
  alignas(16) float x[64];
};
struct Stages {
  alignas(16) float x[2][64];
};

// A thread's 16 bytes of a tile, and its element: with 16 threads each reads what it has copied itself, and more.
template <bool Fixed>
__global__ void cp_async_no_wait(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;                         // 64 threads
  if (t < 16) cp_async_16(&s.x[4 * t], &in[4 * t]);  //@ cp_async_no_wait:2
  cp_async_commit();
  if (Fixed) cp_async_wait<0>();
  __syncthreads();
  out[t] = s.x[63 - t];  //@ cp_async_no_wait:1
}

template <bool Fixed>
__global__ void cp_async_wait_too_short(const float* in, float* out, int) {
  Stages& s = shared<Stages>();
  const int t = threadIdx.x;
  for (int stage = 0; stage < 2; ++stage) {
    if (t < 16) cp_async_16(&s.x[stage][4 * t], &in[4 * t]);  //@ cp_async_wait_too_short:2
    cp_async_commit();
  }
  cp_async_wait<1>();
  __syncthreads();
  out[t] = s.x[0][t];
  if (Fixed)
    cp_async_wait<0>();
  else
    cp_async_wait<1>();
  __syncthreads();
  out[t] += s.x[1][63 - t];  //@ cp_async_wait_too_short:1
}

template <bool Fixed>
__global__ void cp_async_no_commit(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;
  if (t < 16) cp_async_16(&s.x[4 * t], &in[4 * t]);  //@ cp_async_no_commit:2
  if (Fixed) cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  out[t] = s.x[63 - t];  //@ cp_async_no_commit:1
}

template <bool Fixed>
__global__ void cp_async_no_barrier(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;                         // the first warp copies, the second one reads
  if (t < 16) cp_async_16(&s.x[4 * t], &in[4 * t]);  //@ cp_async_no_barrier:2
  cp_async_commit();
  cp_async_wait<0>();
  if (Fixed) __syncthreads();
  if (t >= 32) out[t] = s.x[t];  //@ cp_async_no_barrier:1
}

template <bool Fixed>
__global__ void cp_async_wait_after_barrier(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;                         // the first warp copies, the second one reads
  if (t < 16) cp_async_16(&s.x[4 * t], &in[4 * t]);  //@ cp_async_wait_after_barrier:2
  cp_async_commit();
  if (Fixed) cp_async_wait<0>();
  __syncthreads();
  if (!Fixed) cp_async_wait<0>();
  if (t >= 32) out[t] = s.x[t];  //@ cp_async_wait_after_barrier:1
}

template <bool Fixed>
__global__ void cp_async_refilled_early(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < 2; ++tile) {
    if (t < 16) cp_async_16(&s.x[4 * t], &in[4 * t]);  //@ cp_async_refilled_early:1
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    if (t >= 32) sum += s.x[t];  //@ cp_async_refilled_early:2
    if (Fixed) __syncthreads();  // before the next tile takes this one's place
  }
  out[t] = sum;
}

template <bool Fixed>
__global__ void cp_async_same_stage(const float* in, float* out, int) {
  Stages& s = shared<Stages>();
  const int t = threadIdx.x;
  float sum = 0;
  if (t < 16) cp_async_16(&s.x[0][4 * t], &in[4 * t]);
  cp_async_commit();
  for (int tile = 0; tile < 4; ++tile) {
    cp_async_wait<0>();
    __syncthreads();
    const int now = Fixed ? tile % 2 : 0, next = Fixed ? 1 - now : 0;
    if (t < 16 && tile < 3) cp_async_16(&s.x[next][4 * t], &in[4 * t]);  //@ cp_async_same_stage:2
    cp_async_commit();
    sum += s.x[now][63 - t];  //@ cp_async_same_stage:1
  }
  out[t] = sum;
}

template <bool Fixed>
__global__ void cp_async_source_overwritten(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;              // 16 threads
  cp_async_16(&s.x[4 * t], &out[4 * t]);  //@ cp_async_source_overwritten:2
  cp_async_commit();
  if (Fixed) cp_async_wait<0>();
  out[4 * t] = in[t];  //@ cp_async_source_overwritten:1
  cp_async_wait<0>();
  out[4 * t + 1] = s.x[4 * t];
}

template <bool Fixed>
__global__ void cp_async_source_of_others(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;  // 64 threads: the first warp copies `out`, the second one writes it
  if (t < 16) cp_async_16(&s.x[4 * t], &out[4 * t]);  //@ cp_async_source_of_others:2
  cp_async_commit();
  if (Fixed) cp_async_wait<0>();
  __syncthreads();
  if (t >= 32) out[t] = in[t];  //@ cp_async_source_of_others:1
  cp_async_wait<0>();
  __syncthreads();
  if (t < 32) out[t] = s.x[t + 32];
}

template <bool Fixed>
__global__ void cp_async_two_to_one_place(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;             // 16 threads
  cp_async_16(&s.x[4 * t], &in[4 * t]);  //@ cp_async_two_to_one_place:2
  if (Fixed) cp_async_commit(), cp_async_wait<0>();
  cp_async_16(&s.x[4 * t], &in[60 - 4 * t]);  //@ cp_async_two_to_one_place:1
  cp_async_commit();
  cp_async_wait<0>();
  out[t] = s.x[4 * t];
}

template <bool Fixed>
__global__ void cp_async_to_global(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;  // 16 threads
  float* const to = Fixed ? s.x : out;
  cp_async_16(&to[4 * t], &in[4 * t]);  //@ cp_async_to_global:1
  cp_async_commit();
  cp_async_wait<0>();
  if (Fixed) out[t] = s.x[4 * t];
}

template <bool Fixed>
__global__ void cp_async_past_end(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;  // 17 threads
  const int at = Fixed ? t % 16 : t;
  if (!Fixed || t < 16) cp_async_16(&s.x[0] + 4 * at, &in[4 * (t % 16)]);  //@ cp_async_past_end:1
  cp_async_commit();
  cp_async_wait<0>();
  if (t < 16) out[t] = s.x[4 * t];
}

template <bool Fixed>
__global__ void cp_async_misaligned(const float* in, float* out, int) {
  Stages& s = shared<Stages>();
  const int t = threadIdx.x;  // 16 threads; rows of 5 floats are no multiple of 16 bytes
  const int row = Fixed ? 8 : 5;
  cp_async_16(&s.x[0][0] + row * t, &in[4 * t]);  //@ cp_async_misaligned:1
  cp_async_commit();
  cp_async_wait<0>();
  out[t] = (&s.x[0][0])[row * t];
}

template <bool Fixed>
__global__ void cp_async_misaligned_source(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;  // 8 threads; rows of 5 floats
  const int row = Fixed ? 4 : 5;
  cp_async_16(&s.x[4 * t], &in[row * t]);  //@ cp_async_misaligned_source:1
  cp_async_commit();
  cp_async_wait<0>();
  out[t] = s.x[4 * t];
}

template <bool Fixed>
__global__ void cp_async_misaligned_tail(const float* in, float* out, int) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;  // 8 threads; 12 of 16 bytes from rows of 3 floats
  const int row = Fixed ? 4 : 3;
  cp_async_16(&s.x[4 * t], &in[row * t], 12);  //@ cp_async_misaligned_tail:1
  cp_async_commit();
  cp_async_wait<0>();
  out[t] = s.x[4 * t] + s.x[4 * t + 3];
}

template <bool Fixed>
__global__ void cp_async_source_past_end(const float* in, float* out, int n) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;  // 16 threads; `in` has n = 42 elements, so that the last copy has two of four
  const int valid = max(0, min(4, n - 4 * t));
  if (4 * t < n) cp_async_16(&s.x[4 * t], &in[4 * t], Fixed ? 4 * valid : 16);  //@ cp_async_source_past_end:1
  cp_async_commit();
  cp_async_wait<0>();
  if (4 * t < n) out[t] = s.x[4 * t + 3];
}

template <bool Fixed>
__global__ void cp_async_source_too_large(const float* in, float* out, int n) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;           // 16 threads, n = 42
  const int left = max(0, n - 4 * t);  // elements; the bug forgets that a copy has no more than four
  const float* const from = left > 0 ? &in[4 * t] : in;
  cp_async_16(&s.x[4 * t], from, 4 * (Fixed ? min(4, left) : left));  //@ cp_async_source_too_large:1
  cp_async_commit();
  cp_async_wait<0>();
  out[t] = s.x[4 * t + 3];
}

// The array has 64 elements, of which n are written. What is copied along need not be; what is read must be.
__global__ void write_first(float* in, int n) {
  if (static_cast<int>(threadIdx.x) < n) in[threadIdx.x] = threadIdx.x;
}

template <bool Fixed>
__global__ void cp_async_unwritten_read(const float* in, float* out, int n) {
  Tile& s = shared<Tile>();
  const int t = threadIdx.x;                         // 64 threads, n = 42
  if (t < 16) cp_async_16(&s.x[4 * t], &in[4 * t]);  //@ cp_async_unwritten_read:2
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  out[t] = s.x[Fixed ? min(t, n - 1) : t];  //@ cp_async_unwritten_read:1
}

// ---- Host side -------------------------------------------------------------------------------------------------

template <class Shared>
PtxExhibit show(Machine& m, void (*kernel)(const float*, float*, int), int threads, int n = 64) {
  PtxExhibit shown;
  shown.out.resize(64);
  for (int i = 0; i < 64; ++i) shown.out[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const Array<float> in = m.upload("in", shown.out.data(), static_cast<std::size_t>(n));
  const Array<float> out = m.upload("out", shown.out.data(), 64);  // written: only the planted bug may show
  launch<Shared>(m, kernel, dim3(1), dim3(threads), in.data(), out.data(), n);
  m.download(shown.out.data(), out);
  shown.findings = m.findings(), shown.ledger = m.reports().back().ledger;
  return shown;
}

PtxExhibit show_partly_written(Machine& m, void (*kernel)(const float*, float*, int), int n) {
  PtxExhibit shown;
  shown.out.resize(64);
  const Array<float> in = m.alloc<float>("in", 64), out = m.upload("out", shown.out.data(), 64);
  launch<char>(m, write_first, dim3(1), dim3(64), in.data(), n);
  launch<Tile>(m, kernel, dim3(1), dim3(64), in.data(), out.data(), n);
  m.download(shown.out.data(), out);
  shown.findings = m.findings(), shown.ledger = m.reports().back().ledger;
  return shown;
}

template <bool Fixed>
PtxExhibit run_variant(Machine& m, const std::string& name) {
  if (name == "mma_lane_returned") return show<Tile>(m, mma_lane_returned<Fixed>, 32, 31);
  if (name == "mma_half_warp") return show<Tile>(m, mma_half_warp<Fixed>, 48);
  if (name == "mma_two_sites") return show<Tile>(m, mma_two_sites<Fixed>, 32);
  if (name == "ldmatrix_past_end") return show<Rows>(m, ldmatrix_past_end<Fixed>, 32);
  if (name == "ldmatrix_misaligned") return show<Rows>(m, ldmatrix_misaligned<Fixed>, 32);
  if (name == "ldmatrix_of_global") return show<Rows>(m, ldmatrix_of_global<Fixed>, 32);
  if (name == "ldmatrix_ragged_tile") return show<Rows>(m, ldmatrix_ragged_tile<Fixed>, 32, 24);
  if (name == "ldmatrix_without_barrier") return show<Rows>(m, ldmatrix_without_barrier<Fixed>, 64);
  if (name == "cp_async_no_wait") return show<Tile>(m, cp_async_no_wait<Fixed>, 64);
  if (name == "cp_async_wait_too_short") return show<Stages>(m, cp_async_wait_too_short<Fixed>, 64);
  if (name == "cp_async_no_commit") return show<Tile>(m, cp_async_no_commit<Fixed>, 64);
  if (name == "cp_async_no_barrier") return show<Tile>(m, cp_async_no_barrier<Fixed>, 64);
  if (name == "cp_async_wait_after_barrier") return show<Tile>(m, cp_async_wait_after_barrier<Fixed>, 64);
  if (name == "cp_async_refilled_early") return show<Tile>(m, cp_async_refilled_early<Fixed>, 64);
  if (name == "cp_async_same_stage") return show<Stages>(m, cp_async_same_stage<Fixed>, 64);
  if (name == "cp_async_source_overwritten") return show<Tile>(m, cp_async_source_overwritten<Fixed>, 16);
  if (name == "cp_async_source_of_others") return show<Tile>(m, cp_async_source_of_others<Fixed>, 64);
  if (name == "cp_async_two_to_one_place") return show<Tile>(m, cp_async_two_to_one_place<Fixed>, 16);
  if (name == "cp_async_to_global") return show<Tile>(m, cp_async_to_global<Fixed>, 16);
  if (name == "cp_async_past_end") return show<Tile>(m, cp_async_past_end<Fixed>, 17);
  if (name == "cp_async_misaligned") return show<Stages>(m, cp_async_misaligned<Fixed>, 16);
  if (name == "cp_async_misaligned_source") return show<Tile>(m, cp_async_misaligned_source<Fixed>, 8);
  if (name == "cp_async_misaligned_tail") return show<Tile>(m, cp_async_misaligned_tail<Fixed>, 8);
  if (name == "cp_async_source_past_end") return show<Tile>(m, cp_async_source_past_end<Fixed>, 16, 42);
  if (name == "cp_async_source_too_large") return show<Tile>(m, cp_async_source_too_large<Fixed>, 16, 42);
  if (name == "cp_async_unwritten_read") return show_partly_written(m, cp_async_unwritten_read<Fixed>, 42);
  refuse("exhibit", name, "a name from museum.hpp", "list them with museum --list");
}

PtxExhibit run_ptx_exhibit(const std::string& name, Variant variant, const MachineOptions& options) {
  if (is_of_tma(name)) return run_tma_exhibit(name, variant, options);
  if (is_of_wgmma(name)) return run_wgmma_exhibit(name, variant, options);
  if (is_of_cluster(name)) return run_cluster_exhibit(name, variant, options);
  if (is_of_bulk(name)) return run_bulk_exhibit(name, variant, options);
  Machine m(options);
  return variant == Variant::bug ? run_variant<false>(m, name) : run_variant<true>(m, name);
}

}  // namespace flash::inline FLASH_MACHINE
