// bulk.cu: see bulk.hpp. It waits for each thing that has a wait, and fences each thing that has a fence.
// Use: bulk_test.cpp, on the simulator and, where there is one, on a GPU of compute capability 9.0.
#include "gpu/hopper.cuh"
#include "tests/simt/bulk.hpp"

namespace flash::inline FLASH_MACHINE {

constexpr unsigned kMost = 1024, kAnswers = 6;

struct Lines {
  alignas(16) float in[kMost], staging[2][kMost];
  std::uint64_t full;
};

struct BulkArrays {
  const float* in;  // [blocks, floats]
  float *seen, *out, *sum, *before;
  unsigned *tickets, *answers;  // [2], [kAnswers]
};

__global__ void copy_and_add(BulkArrays a, BulkCase c) {
  Lines& s = shared<Lines>();
  const unsigned t = threadIdx.x, bytes = c.floats * 4, part = blockIdx.x * c.floats;
  if (t == 0) {
    mbarrier_init(&s.full, 1);
    fence_mbarrier_init();
    s.staging[0][0] = static_cast<float>(atomicAdd(&a.tickets[0], 1u));
  }
  __syncthreads();
  const unsigned ticket = static_cast<unsigned>(s.staging[0][0]);
  __syncthreads();

  // Copy, and ask until it is there.
  if (t == 0) {
    cp_async_bulk_prefetch(a.in + part, bytes);
    mbarrier_arrive_expect_tx(&s.full, bytes);
    cp_async_bulk(s.in, a.in + part, bytes, &s.full);
  }
  if (t % 2 == 0) {
    while (!mbarrier_test_wait(&s.full, 0)) {
    }
  } else {
    while (!mbarrier_try_wait(&s.full, 0)) {
    }
  }
  for (unsigned i = t; i < c.floats; i += blockDim.x) {
    a.seen[part + i] = s.in[i];
    s.staging[0][i] = s.staging[1][i] = 2 * s.in[i];
  }
  fence_proxy_async();
  __syncthreads();

  // Whose turn it is reads what all before have added.
  if (c.turns) {
    if (t == 0) {
      while (atomicAdd(&a.tickets[1], 0u) != ticket) {
      }
      __threadfence();
    }
    __syncthreads();
    for (unsigned i = t; i < c.floats; i += blockDim.x) a.before[ticket * c.floats + i] = a.sum[i];
    __syncthreads();
  }
  if (t == 0) {
    cp_async_bulk_store(a.out + part, s.staging[0], bytes);
    cp_async_bulk_commit();
    cp_reduce_async_bulk_add(a.sum, s.staging[1], bytes);
    cp_async_bulk_commit();
  }
  if (c.atomics_beside)
    for (unsigned i = t; i < c.floats; i += blockDim.x) atomicAdd(&a.sum[i], 1.0f);
  if (t == 0) {
    cp_async_bulk_wait_read<0>();
    if (c.turns) {
      cp_async_bulk_wait<0>();
      __threadfence();
      atomicAdd(&a.tickets[1], 1u);
    }
  }
  __syncthreads();

  // The staging tile is written again, and the mbarrier's bytes, of which then another one is made.
  s.staging[0][t] = 0;
  if (t == 0) {
    mbarrier_inval(&s.full);
    s.full = 5;
  }
  __syncthreads();
  const bool kept = s.full == 5;
  __syncthreads();
  if (t != 0) return;
  mbarrier_init(&s.full, 1);
  fence_mbarrier_init();
  unsigned answers[kAnswers] = {};
  answers[0] = kept;
  answers[1] = mbarrier_test_wait(&s.full, 0);  // not complete
  answers[2] = mbarrier_test_wait(&s.full, 1);  // the phase before the first
  mbarrier_arrive(&s.full);
  answers[3] = mbarrier_test_wait(&s.full, 0);
  answers[4] = mbarrier_test_wait(&s.full, 1);
  mbarrier_arrive(&s.full);
  answers[5] = mbarrier_try_wait(&s.full, 1);
  if (blockIdx.x == 0)
    for (unsigned i = 0; i < kAnswers; ++i) a.answers[i] = answers[i];
}

BulkResult run_bulk(const MachineOptions& options, const BulkCase& c) {
  Machine m(options);
  BulkResult r;
  const std::size_t all = std::size_t{c.blocks} * c.floats;
  std::vector<float> numbers(all);
  for (std::size_t i = 0; i < all; ++i) numbers[i] = static_cast<float>(i % 1000);
  const auto in = m.upload("in", numbers.data(), all);
  const auto zeros = [&m](const char* name, auto& words, std::size_t count) {
    words.assign(count, 0);
    return m.upload(name, words.data(), count);
  };
  std::vector<unsigned> no_tickets;
  const auto seen = zeros("seen", r.seen, all), out = zeros("out", r.out, all), sum = zeros("sum", r.sum, c.floats),
             before = zeros("before", r.before, all);
  const auto tickets = zeros("tickets", no_tickets, 2), answers = zeros("answers", r.answers, kAnswers);
  launch<Lines>(
      m, copy_and_add, dim3(c.blocks), dim3(64),
      BulkArrays{in.data(), seen.data(), out.data(), sum.data(), before.data(), tickets.data(), answers.data()}, c);
  m.download(r.seen.data(), seen);
  m.download(r.out.data(), out);
  m.download(r.sum.data(), sum);
  m.download(r.before.data(), before);
  m.download(r.answers.data(), answers);
  r.findings = m.findings(), r.trace = m.trace(), r.ledger = m.reports().back().ledger;
  return r;
}

}  // namespace flash::inline FLASH_MACHINE
