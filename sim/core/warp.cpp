// warp.cpp: shuffles, votes and reductions: the lanes of the mask meet, the last one computes for all.
// Nothing here orders memory, except __syncwarp: a lane may see another's shuffled value and still race with it.
// Use: through sim/dialect/dialect.hpp. The source lane of a shuffle: the PTX manual's shfl.sync (segments of `width`).
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>

#include "sim/core/block.hpp"
#include "sim/core/observer.hpp"
#include "sim/core/tensor_core.hpp"

namespace flash::simt {

const char* name_of(WarpOp op) {
  constexpr const char* kNames[] = {
      "__syncwarp",        "__shfl_sync",        "__shfl_up_sync",    "__shfl_down_sync",  "__shfl_xor_sync",
      "__ballot_sync",     "__any_sync",         "__all_sync",        "__match_any_sync",  "__activemask",
      "elect.sync",        "__reduce_add_sync",  "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync",
      "__reduce_max_sync", "__reduce_and_sync",  "__reduce_or_sync",  "__reduce_xor_sync", "mma.sync",
      "ldmatrix",          "stmatrix",           "bar.sync",          "bar.arrive",        "wgmma",
      "wgmma.fence",       "wgmma.commit_group", "wgmma.wait_group",  "setmaxnreg"};
  return kNames[static_cast<int>(op)];
}

static const char kMaskRemedy[] = "name in the mask exactly the lanes that make the call";

const char* remedy_for_missing(WarpOp op) {
  return is_aligned(op) ? "let all 32 lanes of the warp come to the same instruction" : kMaskRemedy;
}

static std::string hexadecimal(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

std::string described(const OpenOp& op) {
  if (op.op >= WarpOp::mma) return name_of(op.op);
  return std::string(name_of(op.op)) + " with mask " + hexadecimal(op.mask);
}

namespace {

bool same_place(const OpenOp& op, WarpOp other, const Site& site) {
  return op.op == other && op.site.line() == site.line() && op.site.column() == site.column();
}

// The lane that a shuffle reads; PTX: maxLane and the predicate that keeps the own value.
unsigned source_lane(const Thread& t) {
  const unsigned lane = t.lane, segment = ~(t.width - 1) & 31, b = t.param & 31, last = lane | (~segment & 31);
  switch (t.op) {
    case WarpOp::shfl:
      return (lane & segment) | (b & ~segment);
    case WarpOp::shfl_up:
      return lane >= b && lane - b >= (lane & segment) ? lane - b : lane;
    case WarpOp::shfl_down:
      return lane + b <= last ? lane + b : lane;
    default:
      return (lane ^ b) <= last ? lane ^ b : lane;
  }
}

std::uint64_t combined(WarpOp op, std::uint64_t a, std::uint64_t b) {
  const auto x = static_cast<std::uint32_t>(a), y = static_cast<std::uint32_t>(b);
  const auto sx = static_cast<std::int32_t>(x), sy = static_cast<std::int32_t>(y);
  switch (op) {
    case WarpOp::reduce_add:
      return x + y;
    case WarpOp::reduce_min_signed:
      return static_cast<std::uint32_t>(sx < sy ? sx : sy);
    case WarpOp::reduce_max_signed:
      return static_cast<std::uint32_t>(sx > sy ? sx : sy);
    case WarpOp::reduce_min:
      return x < y ? x : y;
    case WarpOp::reduce_max:
      return x > y ? x : y;
    case WarpOp::reduce_and:
      return x & y;
    case WarpOp::reduce_or:
      return x | y;
    default:
      return x ^ y;
  }
}

// The tensor core: all 32 lanes' registers at once.
void multiply(const Thread* t) {
  std::array<MmaRegisters, kWarpSize> registers;
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    registers[lane] = *reinterpret_cast<const MmaRegisters*>(t[lane].value);
  mma_m16n8k16(registers, static_cast<MmaType>(t[0].param));
  tally.tensor_flops += 2 * 16 * 8 * 16;
}

// stmatrix: lane 8 i + r writes row r of matrix i.
void collect_rows(const Thread* t) {
  const auto registers_of = [&](unsigned lane) { return reinterpret_cast<StmatrixRegisters*>(t[lane].value); };
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned half = 0; half < 2; ++half)
        registers_of(8 * i + lane / 4)->row[lane % 4 * 2 + half] =
            static_cast<std::uint16_t>(registers_of(lane)->registers[i] >> 16 * half);
}

// ldmatrix: lane 8 i + r has read row r of matrix i; PTX ISA 9.7.15.5.15 says who gets which elements of it.
void hand_out_matrices(const Thread* t) {
  const auto registers_of = [&](unsigned lane) { return reinterpret_cast<LdmatrixRegisters*>(t[lane].value); };
  std::uint16_t matrices[4][8][8];
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    std::memcpy(matrices[lane / 8][lane % 8], registers_of(lane)->row, sizeof matrices[0][0]);
  const bool transposed = t[0].param;
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned group = lane / 4, pair = lane % 4 * 2 + half;
        registers_of(lane)->elements[i][half] = transposed ? matrices[i][pair][group] : matrices[i][group][pair];
      }
}

}  // namespace

std::uint64_t Worker::warp_op(WarpOp op, unsigned mask, std::uint64_t value, Site site, unsigned param,
                              unsigned width) {
  Thread& thread = threads[current];
  Warp& warp = warps[thread.warp];
  thread.op = op, thread.value = value, thread.param = param, thread.width = width;
  thread.site = site, thread.mask = mask, thread.state = State::at_warp_op, thread.atomics_in_a_row = 0;

  // __activemask names nobody: it ends when all that could join have come (see resolve_activemask).
  if (op == WarpOp::activemask) {
    run_next();
    return thread.result;
  }
  const unsigned bit = 1u << thread.lane;
  if (!(mask & bit) || warp.exists != ~0u || width != kWarpSize ||
      (is_of_warpgroup(op) && thread.warp / 4u >= warps.size() / 4))
    judge(thread, warp);

  // Join the operation that lanes of the same mask have begun, or begin it.
  std::size_t i = 0;
  while (i < warp.open.size() && warp.open[i].mask != mask) ++i;
  if (i == warp.open.size()) warp.open.push_back({op, mask, 0, site, thread.lane});
  OpenOp& open = warp.open[i];
  // A __syncwarp may meet another one: "a __syncwarp with the same mask" (CUDA Programming Guide).
  if (checks && open.op != WarpOp::sync ? !same_place(open, op, site) : open.op != op) differs(thread, open);
  open.arrived |= bit;
  if (open.arrived == (mask & warp.exists)) {
    const OpenOp done = open;
    warp.open.erase(warp.open.begin() + static_cast<std::ptrdiff_t>(i));
    complete(warp, thread.warp * kWarpSize, done);
  }
  run_next();
  return thread.result;
}

void Worker::judge(const Thread& thread, const Warp& warp) {
  const WarpOp op = thread.op;
  const auto called = [&] { return described({op, thread.mask, 0, thread.site, 0}); };
  if (!(thread.mask >> thread.lane & 1))
    misuse("warp operation", called() + " called by a lane that is not in it", kMaskRemedy, {side("calls", thread)});
  if (is_aligned(op) && warp.exists != ~0u)
    misuse("warp operation", called() + " in a warp of " + std::to_string(std::popcount(warp.exists)) + " lanes",
           "give the block whole warps", {side("calls", thread)});
  if (is_of_warpgroup(op) && thread.warp / 4u >= warps.size() / 4)
    misuse("warpgroup operation",
           std::string(name_of(op)) + " in a warpgroup of " + std::to_string(warps.size() % 4) + " warps",
           "give the block whole warpgroups, of 128 threads", {side("calls", thread)});
  if (!std::has_single_bit(thread.width) || thread.width > kWarpSize)
    misuse("warp operation", std::string(name_of(op)) + " with width " + std::to_string(thread.width),
           "the width is 1, 2, 4, 8, 16 or 32", {side("calls", thread)});
}

void Worker::differs(const Thread& thread, const OpenOp& open) {
  misuse("warp operation", "lanes of one mask meet at different operations",
         is_aligned(thread.op) ? remedy_for_missing(thread.op)
         : is_aligned(open.op) ? remedy_for_missing(open.op)
                               : "let all lanes of the mask make the same call",
         {side("calls", thread), side("calls", threads[thread.warp * kWarpSize + open.first_lane])});
}

void Worker::misuse(const char* kind, const std::string& what, const std::string& remedy,
                    std::vector<FindingSide> sides) {
  findings.add({kind, what, remedy, std::move(sides), block});
  stop_block();
}

// A lane's result of a shuffle among `lanes` of its warp, which begins at t[0].
void Worker::shuffle(Thread& thread, const Thread* t, unsigned lanes, unsigned mask) {
  const unsigned source = source_lane(thread);
  thread.result = lanes >> source & 1 ? t[source].value : ~std::uint64_t{0};  // undefined on the GPU: poison
  if (!checks || lanes >> source & 1) return;
  const bool named = mask >> source & 1;
  const std::string what = std::string(name_of(thread.op)) + " reads lane " + std::to_string(source) + ", ";
  findings.add({"warp operation",
                named ? what + "but its warp has " + std::to_string(std::popcount(warps[thread.warp].exists)) + " lanes"
                      : what + "which is not in the mask " + hexadecimal(mask),
                named ? "read lanes that exist, or give the block whole warps" : kMaskRemedy,
                {side("calls", thread)},
                block});
}

// All lanes have come: compute each lane's result and let them run.
void Worker::complete(Warp& warp, unsigned first_thread, const OpenOp& op) {
  const unsigned lanes = op.mask & warp.exists;
  Thread* t = &threads[first_thread];
  std::uint64_t common = 0;
  if (op.op == WarpOp::ballot || op.op == WarpOp::any || op.op == WarpOp::all)
    for (unsigned m = lanes; m; m &= m - 1)
      common |= std::uint64_t{t[std::countr_zero(m)].value != 0} << std::countr_zero(m);
  if (op.op == WarpOp::any) common = common != 0;
  if (op.op == WarpOp::all) common = common == lanes;
  if (op.op == WarpOp::mma) multiply(t);
  if (op.op == WarpOp::ldmatrix) hand_out_matrices(t);
  if (op.op == WarpOp::stmatrix) collect_rows(t);
  if (op.op >= WarpOp::bar_sync) {
    for (Observer* observer : observers) observer->converge(first_thread / kWarpSize);
    if (is_of_warpgroup(op.op)) return join_warpgroup(first_thread / kWarpSize, op);
    return come_to_barrier(first_thread / kWarpSize, op);
  }
  if (op.op >= WarpOp::reduce_add && !is_aligned(op.op)) {
    common = t[std::countr_zero(lanes)].value;
    for (unsigned m = lanes & (lanes - 1); m; m &= m - 1)
      common = combined(op.op, common, t[std::countr_zero(m)].value);
  }
  for (unsigned m = lanes; m; m &= m - 1) {
    Thread& thread = t[std::countr_zero(m)];
    thread.state = State::ready, thread.result = common;
    if (op.op >= WarpOp::shfl && op.op <= WarpOp::shfl_xor) shuffle(thread, t, lanes, op.mask);
    if (op.op == WarpOp::elect) thread.result = std::countr_zero(m) == std::countr_zero(lanes);
    if (op.op == WarpOp::match_any) {
      thread.result = 0;
      for (unsigned o = lanes; o; o &= o - 1)
        thread.result |= std::uint64_t{t[std::countr_zero(o)].value == thread.value} << std::countr_zero(o);
    }
  }
  ready_.insert_lanes(first_thread, lanes);
  yields_without_progress_ = 0;
  for (Observer* observer : observers) {
    if (op.op == WarpOp::sync) observer->warp_sync(first_thread / kWarpSize, lanes);
    if (lanes == warp.exists) observer->converge(first_thread / kWarpSize);
  }
}

// Nothing else can run: lanes that wait in __activemask at one place are "active together", as on a GPU that
// reconverges as early as it can.
bool Worker::resolve_activemask() {
  bool resolved = false;
  for (unsigned first = 0; first < threads.size(); first += kWarpSize) {
    const unsigned end = std::min<unsigned>(first + kWarpSize, threads.size());
    for (unsigned i = first; i < end; ++i) {
      if (threads[i].state != State::at_warp_op || threads[i].op != WarpOp::activemask) continue;
      unsigned group = 0;
      const Site site = threads[i].site;
      for (unsigned j = i; j < end; ++j)
        if (threads[j].state == State::at_warp_op &&
            same_place({threads[j].op, 0, 0, threads[j].site, 0}, WarpOp::activemask, site))
          group |= 1u << (j - first);
      for (unsigned m = group; m; m &= m - 1) {
        threads[first + std::countr_zero(m)].result = group;
        make_ready(first + std::countr_zero(m));
      }
      resolved = true;
    }
  }
  return resolved;
}

}  // namespace flash::simt
