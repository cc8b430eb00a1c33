// host.cu: the host's side of the small kernels, each launched as one block; and of the staircase: each step as phases
// are run, for one size. Compiled once per machine.
// Use: steps.hpp declares what is here.
#include "phases/14-tma-wgmma/steps/1-softmax.cuh"
#include "phases/14-tma-wgmma/steps/2-rows.cuh"
#include "phases/14-tma-wgmma/steps/3-finish.cuh"
#include "phases/14-tma-wgmma/steps/4-order.cuh"
#include "phases/14-tma-wgmma/steps/5-ahead.cuh"
#include "phases/14-tma-wgmma/steps/6-panels.cuh"
#include "phases/14-tma-wgmma/steps/7-tma.cuh"
#include "phases/14-tma-wgmma/steps/8-scores.cuh"
#include "phases/14-tma-wgmma/steps/boxes.cuh"
#include "phases/14-tma-wgmma/steps/products.cuh"
#include "phases/14-tma-wgmma/steps/steps.hpp"

namespace flash::phase14::inline FLASH_MACHINE {

namespace {

Ran ran(const Machine& m) {
  Ran result;
#ifdef __CUDACC__
  check_cuda(cudaGetLastError(), "launch");
#else
  result.report = m.reports().back();
#endif
  result.findings = m.findings();
  return result;
}

// A tensor of so many rows and columns, which TMA is to copy in boxes of 64 columns.
template <class T>
TensorMap flat_map(const Array<T>& array, std::uint64_t columns, std::uint64_t rows, std::uint32_t box_rows) {
  return tensor_map<__half, 2>(reinterpret_cast<const __half*>(array.data()), {columns, rows}, {columns * 2},
                               {64, box_rows});
}

Ran box(const MachineOptions& options, const Numbers& tensor, int columns, int x, int y, Numbers& seen) {
  Machine m(options);
  const auto in = m.upload("tensor", tensor.data(), tensor.size());
  const auto out = m.alloc<std::uint16_t>("seen", seen.size());
  const auto c = static_cast<std::uint64_t>(columns);
  copy_box<<<1, 64, sizeof(Box)>>>(flat_map(in, c, tensor.size() / c, 16), x, y, out.data());
  m.download(seen.data(), out);
  return ran(m);
}

Ran sums(const MachineOptions& options, const Numbers& tensor, unsigned flip, std::vector<unsigned>& sums) {
  Machine m(options);
  const std::uint64_t rows = tensor.size() / 64;
  const auto in = m.upload("tensor", tensor.data(), tensor.size());
  const auto out = m.alloc<unsigned>("sums", sums.size());
  sum_tiles<<<1, 64, sizeof(Stages)>>>(flat_map(in, 64, rows, 16), static_cast<int>(rows + 15) / 16, flip, out.data());
  m.download(sums.data(), out);
  return ran(m);
}

Ran descriptors(const MachineOptions& options, std::vector<unsigned>& bits) {
  Machine m(options);
  const auto out = m.alloc<unsigned>("bits", bits.size());
  describe<<<1, 1, sizeof(TwoTiles)>>>(out.data());
  m.download(bits.data(), out);
  return ran(m);
}

template <int kSteps>
Ran first(const MachineOptions& options, const Halves& A, const Halves& B, Floats& S) {
  Machine m(options);
  const auto a = m.upload("A", A.data(), A.size()), b = m.upload("B", B.data(), B.size());
  const auto s = m.alloc<float>("S", S.size());
  multiply<kSteps><<<1, 128, sizeof(Operands)>>>(flat_map(a, 64, 64, 64), flat_map(b, 64, 64, 64), s.data());
  m.download(S.data(), s);
  return ran(m);
}

template <Major kMajor, Word kLeftOut>
Ran second(const MachineOptions& options, const Floats& P, const Halves& V, Floats& O) {
  Machine m(options);
  const auto p = m.upload("P", P.data(), P.size());
  const auto v = m.upload("V", V.data(), V.size());
  const auto o = m.alloc<float>("O", O.size());
  multiply_again<kMajor, kLeftOut><<<1, 128, sizeof(Operands)>>>(p.data(), flat_map(v, 64, 64, 64), o.data());
  m.download(O.data(), o);
  return ran(m);
}

const bool added = [] {
  Small& small = small_by_machine[static_cast<std::size_t>(this_machine)];
  small = {.box = box, .sums = sums, .descriptors = descriptors, .one_step = first<1>, .product = first<4>};
  small.second = second<Major::MN, Word::none>, small.second_k_major = second<Major::K, Word::none>;
#ifndef __CUDACC__  // what is wrong on purpose is for the machine that says so
  small.without_fence = second<Major::MN, Word::fence>, small.without_commit = second<Major::MN, Word::commit>;
  small.wait_too_short = second<Major::MN, Word::wait>;
#endif
  return true;
}();

}  // namespace

static const Added added_steps[] = {
    added_pass<one_size, words::Attention>(softmax_pass), added_pass<one_size, rows_once::Attention>(rows_pass),
    added_pass<one_size, finish::Attention>(finish_pass), added_pass<one_size, order::Attention>(order_pass),
    added_pass<one_size, ahead::Attention>(ahead_pass),   added_pass<one_size, panels::Attention>(panels_pass),
    added_pass<one_size, tma::Attention>(tma_pass),       added_pass<one_size, scores::Attention>(scores_pass),
};

}  // namespace flash::phase14::inline FLASH_MACHINE
