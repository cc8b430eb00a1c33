// kernel_phases.hpp: what every kernel phase (05 and later) promises beyond the contract: clean checked runs, counters
// equal to formulas, the same bits on both simulators and under every schedule, block sizes refused by name.
// Use:  const auto run = [](const auto& p, Where w, const MachineOptions& o) { return phase05::forward(p, w, o); };
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "phases/common/where.hpp"
#include "tests/contract.hpp"

namespace flash::test {

// The instantiated block sizes, and the head dimensions to which D is padded.
inline constexpr std::pair<std::int64_t, std::int64_t> listed_blocks[] = {{64, 32}, {32, 64}, {16, 16}};
inline std::int64_t padded(std::int64_t D) {
  for (const std::int64_t d : {16, 32, 64, 128})
    if (D <= d) return d;
  return 256;
}

// The contract and the published cases ask for blocks that kernels do not have: take a listed one of the same kind
// (more keys than rows, or not), so that Bc > Br stays Bc > Br.
template <class T>
Problem<T> with_listed_blocks(Problem<T> p) {
  Options& o = p.options;
  for (const auto& [Br, Bc] : listed_blocks)
    if ((o.block_q == Br && o.block_k == Bc) || o.block_q <= 0 || o.block_k <= 0) return p;
  const bool wide = o.block_k > o.block_q;
  o.block_q = wide ? 32 : 64;
  o.block_k = wide ? 64 : 32;
  return p;
}

// forward(problem), as the contract's checks want it, on one machine.
template <class Run>
auto on(Where where, const Run& run, const MachineOptions& options = {}) {
  return [=](const auto& p) { run(with_listed_blocks(p), where, options); };
}

inline Domain kernel_domain() {
  Domain domain;
  domain.blocks = {{0, 0}, {64, 32}, {32, 64}, {16, 16}};
  return domain;
}

// Small enough for the checked machine; at least three K tiles for each block size, edges of all kinds.
inline Domain checked_domain() {
  Domain domain = kernel_domain();
  domain.batch_heads = {{1, 2}, {2, 1}};
  domain.lengths = {{1, 1}, {1, 97}, {97, 1}, {17, 53}, {70, 40}, {33, 200}, {65, 65}};
  domain.dims = {16, 33, 40};
  domain.inputs = {Input::Normal, Input::Rising, Input::LowEqual};
  return domain;
}

// A test for a machine that this build or computer lacks says so; CTest shows it as skipped.
inline bool skipped_without(Where where) {
  if (available(where)) return false;
  if (where == Where::Gpu)
    MESSAGE("skipped: no GPU");
  else
    MESSAGE("skipped: no checked machine in a build with sanitizers");
  return true;
}

// ---- Checked: no finding on the contract's cases, under three orders, and the bits of the fast machine -------------

template <class T, class Run>
void check_clean(const Run& run, const Features& can) {
  if (skipped_without(Where::Checked)) return;
  for (const Case& c : pairwise(restrict_to(checked_domain(), can))) {
    INFO(text(c));
    Inputs<T> fast(c);
    run(fast.problem(can.lse), Where::Sim, MachineOptions{});
    for (const Order order : {Order::forward, Order::reverse, Order::random}) {
      Inputs<T> checked(c);
      CHECK_NOTHROW(run(checked.problem(can.lse), Where::Checked, {.order = order, .seed = 7}));
      CHECK(same_bits(fast.o.memory, checked.o.memory));
      CHECK(same_bits(fast.lse, checked.lse));
    }
  }
  check_empty<T>(on(Where::Checked, run), can);  // Sk = 0: a block without any tile
}

// ---- Counters -----------------------------------------------------------------------------------------------------

// What a run must count, from the definition of the mask alone: loops over rows and keys.
struct Expected {
  std::int64_t q_rows = 0, kv_rows = 0, o_rows = 0;  // rows of D elements read or written
  std::int64_t flops = 0, exps = 0, barriers = 0, blocks = 0;
  TileCounts tiles;
};

template <class T>
Expected expected(const Problem<T>& p, std::int64_t Br, std::int64_t Bc) {
  const std::int64_t Sq = p.Sq(), Sk = p.Sk(), D = padded(p.D());
  const Causal causal = p.options.causal;
  Expected e;
  for (std::int64_t i = 0; i < Sq; i += Br) {
    ++e.blocks;
    for (std::int64_t j = 0; j < Sk; j += Bc) {
      std::int64_t pairs = 0, idle_pairs = 0;  // pairs of the tile that are seen; by threads beyond the last row
      const std::int64_t rows = std::min(Br, Sq - i), keys = std::min(Bc, Sk - j);
      for (std::int64_t r = 0; r < Br; ++r)
        for (std::int64_t k = 0; k < keys; ++k) (r < rows ? pairs : idle_pairs) += sees(causal, i + r, j + k, Sq, Sk);
      const bool whole = pairs == rows * Bc;
      if (pairs == 0) {
        e.tiles.skipped += 1;
        continue;
      }
      (whole ? e.tiles.full : e.tiles.masked) += 1;
      e.kv_rows += keys;
      e.barriers += 2;
      e.exps += Br * (Bc + 1);                                       // P and alpha
      e.flops += 2 * (Br * Bc * D + (pairs + idle_pairs) * D + Br);  // QK^T, PV, l
    }
  }
  e.q_rows = e.o_rows = Sq;
  if (p.lse) e.flops += 2 * Sq;  // LSE = ln 2 · m + ln l
  const std::int64_t heads = p.B() * p.H();
  for (std::int64_t* n : {&e.q_rows, &e.kv_rows, &e.o_rows, &e.flops, &e.exps, &e.barriers, &e.blocks}) *n *= heads;
  for (std::uint64_t* n : {&e.tiles.full, &e.tiles.masked, &e.tiles.skipped}) *n *= static_cast<std::uint64_t>(heads);
  return e;
}

// Predicted = counted, as integers, for blocks of each size, ragged and not, every mask that the phase has.
template <class T, class Run>
void check_counters(const Run& run, const Features& can) {
  if (skipped_without(Where::Checked)) return;
  for (const auto& [Br, Bc] : listed_blocks)
    for (const auto& [Sq, Sk] : {std::pair<std::int64_t, std::int64_t>{53, 100}, {100, 53}, {128, 128}, {20, 0}})
      for (const Causal causal : {Causal::None, Causal::TopLeft, Causal::BottomRight}) {
        if (causal != Causal::None && !can.causal) continue;
        const Case c{.H = 1,
                     .Sq = Sq,
                     .Sk = Sk,
                     .D = 24,
                     .causal = causal,
                     .block_q = Br,
                     .block_k = Bc,
                     .layout = Layout::Padded};
        INFO(text(c));
        Inputs<T> in(c);
        const Problem<T> p = in.problem(can.lse);
        const flash::Run got = run(p, Where::Checked, {});
        const Expected want = expected(p, Br, Bc);
        const std::int64_t row = c.D * static_cast<std::int64_t>(sizeof(T)), heads = c.B * c.H;
        check_traffic(got.ledger, {{"Q", want.q_rows * row, 0},
                                   {"K", want.kv_rows * row, 0},
                                   {"V", want.kv_rows * row, 0},
                                   {"O", 0, want.o_rows * row},
                                   {"LSE", 0, can.lse ? heads * Sq * 4 : 0}});
        CHECK(got.ledger.flops == static_cast<std::uint64_t>(want.flops));
        CHECK(got.ledger.exps == static_cast<std::uint64_t>(want.exps));
        CHECK(got.ledger.barriers == static_cast<std::uint64_t>(want.barriers));
        CHECK(got.ledger.bank_conflicts() == 0);
        const std::int64_t D = padded(c.D);
        CHECK(got.ledger.shared_bytes_peak == static_cast<std::uint64_t>(4 * (Br * (D + 4) + 2 * Bc * D + Bc * Br)));
        if (can.causal) CHECK(got.tiles == want.tiles);
        std::int64_t blocks = 0;
        for (const KernelReport& k : got.kernels) blocks += std::int64_t{k.grid[0]} * k.grid[1] * k.grid[2];
        CHECK(blocks == want.blocks);
      }
}

// ---- The same bits ------------------------------------------------------------------------------------------------

// sim = checked, any order, any number of worker threads.
template <class T, class Run>
void check_schedules(const Run& run, const Features& can) {
  if (skipped_without(Where::Checked)) return;
  for (const auto& [Br, Bc] : listed_blocks) {
    const Case c{.Sq = 45,
                 .Sk = 130,
                 .D = 20,
                 .causal = can.causal ? Causal::BottomRight : Causal::None,
                 .block_q = Br,
                 .block_k = Bc,
                 .layout = Layout::Mixed};
    INFO(text(c));
    Inputs<T> first(c);
    run(first.problem(can.lse), Where::Sim, {.threads = 1});
    const Ledger ledger = run(first.problem(can.lse), Where::Checked, {.threads = 1}).ledger;
    for (const Where where : {Where::Sim, Where::Checked})
      for (const Order order : {Order::forward, Order::reverse, Order::random})
        for (const int threads : {1, 2}) {
          Inputs<T> again(c);
          const flash::Run r = run(again.problem(can.lse), where, {.order = order, .seed = 3, .threads = threads});
          CHECK(same_bits(first.o.memory, again.o.memory));
          CHECK(same_bits(first.lse, again.lse));
          if (where == Where::Checked) CHECK(r.ledger == ledger);
        }
  }
}

// Bit for bit as the phase before, on cases that both can do.
template <class T, class Before, class After>
void check_same_bits(const Before& before, const After& after, std::vector<Causal> causals, std::int64_t heads) {
  for (const auto& [Br, Bc] : listed_blocks)
    for (const Causal causal : causals)
      for (const std::int64_t D : {16, 40, 128})
        for (const Input input : {Input::Normal, Input::Outliers, Input::Rising}) {
          const Case c{.B = heads,
                       .H = heads,
                       .Sq = 77,
                       .Sk = 101,
                       .D = D,
                       .input = input,
                       .causal = causal,
                       .block_q = Br,
                       .block_k = Bc,
                       .layout = Layout::Mixed};
          INFO(text(c));
          Inputs<T> a(c), b(c);
          before(a.problem(false), Where::Sim, MachineOptions{});
          after(b.problem(false), Where::Sim, MachineOptions{});
          CHECK(same_bits(a.o.memory, b.o.memory));
        }
}

// ---- Refusals that only kernels have ------------------------------------------------------------------------------

template <class T, class Run>
void check_kernel_refusals(const Run& run, const Features& can) {
  const auto forward = [&](const auto& p) { run(p, Where::Sim, {}); };
  check_refusals<T>(forward, can);
  const auto blocks = [](std::int64_t q, std::int64_t k) {
    return [=](Problem<T>& p) {
      p.options.block_q = q;
      p.options.block_k = k;
    };
  };
  const std::string list = "; expected one of 64x32, 32x64, 16x16; omit --block-q and --block-k";
  check_refused<T>(forward, can, "block size is 48x32" + list, blocks(48, 32));
  check_refused<T>(forward, can, "block size is anyx128" + list, blocks(0, 128));
  check_refused<T>(forward, can, "block size is 64x64" + list, blocks(64, 64));

  // 32 x 64 at D = 256: 32·260·4 + 2·64·256·4 + 64·32·4 bytes. sm_90 has room, sm_80 has not.
  Inputs<T> in({.Sq = 33, .Sk = 40, .D = 256, .block_q = 32, .block_k = 64});
  CHECK_NOTHROW(run(in.problem(can.lse), Where::Sim, {.profile = Profile::sm_90}));
  CHECK_THROWS_WITH_AS(run(in.problem(can.lse), Where::Sim, {.profile = Profile::sm_80}),
                       "shared memory for blocks 32x64 at D = 256 is 172544 bytes; expected at most 166912 on this "
                       "machine; choose smaller blocks of 64x32, 32x64, 16x16",
                       Error);
  if (!available(Where::Gpu) && !gpu_was_built)
    CHECK_THROWS_WITH_AS(run(in.problem(can.lse), Where::Gpu, {}),
                         "machine is gpu; expected sim or checked here; this build has no CUDA: configure with "
                         "-DFLASH_CUDA=ON",
                         Error);
}

// ---- The GPU ------------------------------------------------------------------------------------------------------

template <class T, class Run>
void check_on_gpu(const Run& run, const Features& can) {
  if (skipped_without(Where::Gpu)) return;
  const auto forward = on(Where::Gpu, run);
  check_contract<T>(forward, can, kernel_domain());
  check_published<T>(forward, can);
  check_promises<T>(forward, can);
}

}  // namespace flash::test
