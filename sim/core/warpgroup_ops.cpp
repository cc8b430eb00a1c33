// warpgroup_ops.cpp: the instructions that whole warps and warpgroups meet at: wgmma and its words, stmatrix, named
// barriers, setmaxnreg. Which threads must come, what must agree, and what is wrong with a matrix descriptor.
// Use: Worker::complete (sim/core/warp.cpp) comes here when all lanes of a warp are there. Numbers: warpgroup.cpp.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "sim/core/block.hpp"
#include "sim/core/variables.hpp"

namespace flash::simt {

// ---- matrix descriptors --------------------------------------------------------------------------------------------

// Addresses of shared memory as the instructions see them: from 0, and without the gaps between __shared__ variables.
// A variable keeps its distance from multiples of 1024.
std::size_t Worker::shared_address(const std::byte* at) const {
  if (!launch->layout) return static_cast<std::size_t>(at - shared);
  std::size_t address = 0;
  for (const SharedLayout::Array& array : launch->layout->arrays()) {
    const std::byte* const begin = shared + array.at;
    address += (reinterpret_cast<std::uintptr_t>(begin) - address) % 1024;
    if (static_cast<std::size_t>(at - begin) < array.bytes) return address + static_cast<std::size_t>(at - begin);
    address += array.bytes;
  }
  return ~std::size_t{0};
}

// Where 16 bytes lie; null: not in shared memory.
const std::byte* Worker::shared_at(std::size_t address) const {
  if (!launch->layout) return address + 16 <= shared_bytes ? shared + address : nullptr;
  std::size_t begin = 0;
  for (const SharedLayout::Array& array : launch->layout->arrays()) {
    begin += (reinterpret_cast<std::uintptr_t>(shared + array.at) - begin) % 1024;
    if (address >= begin && address + 16 <= begin + array.bytes) return shared + array.at + (address - begin);
    begin += array.bytes;
  }
  return nullptr;
}

std::uint64_t Worker::matrix_descriptor(const std::byte* tile, unsigned leading, unsigned stride, Site site) {
  Thread& thread = threads[current];
  thread.site = site;
  const std::size_t address = near_shared(tile) ? shared_address(tile) : ~std::size_t{0};
  constexpr std::size_t kAddresses = std::size_t{1} << 18;
  if (address >= std::min(kAddresses, std::max<std::size_t>(shared_bytes, 1)))
    misuse("out of bounds", "matrix_descriptor of an address outside the block's shared memory",
           "give it the address of a tile in shared memory", {side("calls", thread)});
  for (const auto& [name, bytes] : {std::pair{"an address", address},
                                    {"a leading distance", std::size_t{leading}},
                                    {"a stride", std::size_t{stride}}})
    if (bytes % 16 != 0 || bytes >= kAddresses)
      misuse("misaligned", "matrix_descriptor with " + std::string(name) + " of " + std::to_string(bytes) + " bytes",
             "it counts in 16 bytes, up to 262128", {side("calls", thread)});
  return address >> 4 | std::uint64_t{leading >> 4} << 16 | std::uint64_t{stride >> 4} << 32 | std::uint64_t{1} << 62;
}

// The chunks that a descriptor stands for.
std::vector<const std::byte*> Worker::chunks(std::uint64_t descriptor, unsigned rows, bool mn_major, const char* name) {
  const Thread& thread = threads[current];
  const DescribedMatrix matrix = described(descriptor);
  const auto of = [name] { return std::string("wgmma: ") + name + "'s descriptor"; };
  if (matrix.swizzle != 1 || matrix.base_offset != 0)
    misuse("warpgroup operation",
           of() + " has swizzle mode " + std::to_string(matrix.swizzle) + " and base offset " +
               std::to_string(matrix.base_offset),
           "the simulator knows the 128-byte swizzle (mode 1) with base offset 0", {side("calls", thread)});
  const bool panels = mn_major && rows > 64;
  const auto fields = [&] {
    return "start " + std::to_string(matrix.start) + ", stride " + std::to_string(matrix.stride) +
           (panels ? ", leading " + std::to_string(matrix.leading) : "");
  };
  if (matrix.start % 1024 >= 128 || matrix.stride % 1024 != 0 || (panels && matrix.leading % 1024 != 0))
    misuse("misaligned", of() + ": " + fields(),
           "begin tiles and panels at multiples of 1024 bytes, as the swizzle's pattern does", {side("calls", thread)});
  std::vector<const std::byte*> chunks;
  chunks.reserve(2 * rows);
  for (const unsigned address : chunks_of(matrix, rows, mn_major)) {
    chunks.push_back(shared_at(address));
    if (!chunks.back())
      misuse("out of bounds",
             of() + " (" + fields() + ") reaches byte " + std::to_string(address) + " of shared memory",
             "fix the descriptor, or make the tile as large as it says", {side("calls", thread)});
  }
  return chunks;
}

// ---- warps and warpgroups meet --------------------------------------------------------------------------------------

// A lane's row of stmatrix.
void Worker::matrix_row_written(void* row, const StmatrixRegisters& registers, Site site) {
  Thread& thread = threads[current];
  thread.site = site;
  if (!near_shared(row))
    misuse("out of bounds", "stmatrix to an address outside the block's shared memory",
           "give it the address of a row in shared memory", {side("writes", thread)});
  for (Observer* observer : observers) observer->matrix_row_written(row, site);
  std::memcpy(row, registers.row, sizeof registers.row);
}

// All lanes of a warp have come to an instruction of its warpgroup; they wait for the other three warps.
void Worker::join_warpgroup(unsigned warp, const OpenOp& op) {
  const unsigned bit = 1u << warp % 4;
  Warpgroup& group = warpgroups_[warp / 4];
  const Thread& caller = threads[warp * kWarpSize];
  if (group.arrived == 0) group.op = op, group.first_warp = warp;
  if (group.op.op != op.op || (checks && !same_site(group.op.site, op.site)))
    misuse("warpgroup operation", "warps of one warpgroup meet at different instructions",
           "let all four warps of the warpgroup come to the same instruction",
           {side("calls", caller), side("calls", threads[group.first_warp * kWarpSize])});
  group.arrived |= bit;
  if (group.arrived != 15) return;
  group.arrived = 0;
  if (!run_for_warpgroup(warp / 4, op)) return;  // setmaxnreg.inc without registers
  let_warpgroup_go(warp / 4);
}

void Worker::let_warpgroup_go(unsigned group) {
  const unsigned first = group * kWarpgroupThreads;
  for (unsigned t = first; t < first + kWarpgroupThreads; ++t) threads[t].state = State::ready;
  for (unsigned w = 0; w < 4; ++w) ready_.insert_lanes(first + w * kWarpSize, ~0u);
  yields_without_progress_ = 0;
}

// The last one to come acts for another.
template <class Act>
void Worker::as_thread(unsigned thread, const Act& act) {
  const unsigned runs = std::exchange(current, thread);
  for (Observer* observer : observers) observer->switched();
  act();
  current = runs;
  for (Observer* observer : observers) observer->switched();
}

// The threads of a warpgroup gave different values where one is meant for all.
void Worker::differs(const char* what, const Thread& thread, unsigned first) {
  misuse("warpgroup operation", std::string(name_of(thread.op)) + ": the threads of a warpgroup give different " + what,
         "it is one instruction of all 128 threads: let it not depend on the lane or the warp",
         {side("calls", thread), side("calls", threads[first])});
}

bool Worker::run_for_warpgroup(unsigned group, const OpenOp& op) {
  const unsigned first = group * kWarpgroupThreads, last = first + kWarpgroupThreads;
  Products& own = products[group];
  switch (op.op) {
    case WarpOp::wgmma:
      as_thread(first, [&] { issue_product(group, op.site); });  // what concerns the warpgroup as one is its first's
      break;
    case WarpOp::wgmma_fence:
      for (Observer* observer : observers)
        for (unsigned t = first; t < last; ++t) observer->registers_fenced(t);
      break;
    case WarpOp::wgmma_commit:
      own.commit();
      break;
    case WarpOp::wgmma_wait:
      for (Observer* observer : observers)
        for (unsigned w = first / kWarpSize; w < last / kWarpSize; ++w)
          observer->warp_waits(w, name_of(op.op), op.site);
      as_thread(first, [&] { wait_for_products(group, op.site); });
      break;
    default: {
      const auto wanted = *reinterpret_cast<const RegisterCount*>(threads[first].value);
      for (unsigned t = first; t < last; ++t)
        if (reinterpret_cast<const RegisterCount*>(threads[t].value)->registers != wanted.registers)
          differs("numbers of registers", threads[t], first);
      return set_registers(group, wanted);
    }
  }
  if (launch->completion == Completion::random) {  // now one product, now another warpgroup's
    Products& some = products[random_() % products.size()];
    some.run_early(random_() % 3);
  }
  return true;
}

// ---- wgmma ---------------------------------------------------------------------------------------------------------

void Worker::issue_product(unsigned group, Site site) {
  const unsigned first = group * kWarpgroupThreads;
  Products::Operands operands;
  for (unsigned t = 0; t < kWarpgroupThreads; ++t) {
    operands[t] = reinterpret_cast<const WgmmaOperands*>(threads[first + t].value);
    const WgmmaOperands &one = *operands[0], &other = *operands[t];
    if (one.a_descriptor != other.a_descriptor || one.b_descriptor != other.b_descriptor)
      differs("matrix descriptors", threads[first + t], first);
    if (one.columns != other.columns || one.accumulate != other.accumulate || one.a_mn_major != other.a_mn_major ||
        one.b_mn_major != other.b_mn_major || one.bfloat16 != other.bfloat16 ||
        (one.a == nullptr) != (other.a == nullptr))
      differs("shapes, types or values of `accumulate`", threads[first + t], first);
  }
  const WgmmaOperands& of = *operands[0];
  Product product{of, {}, {}, chunks(of.b_descriptor, of.columns, of.b_mn_major, "B"), site};
  if (!of.a) product.a_chunks = chunks(of.a_descriptor, 64, of.a_mn_major, "A");
  tally.tensor_flops += 2 * 64 * 16 * std::uint64_t{of.columns};
  for (Observer* observer : observers)
    for (unsigned t = 0; t < kWarpgroupThreads; ++t) observer->product_begins(first + t, *operands[t], site);
  if (checks) {
    matrix_bytes += 16 * (product.a_chunks.size() + product.b_chunks.size());
    std::vector<const std::byte*> all = product.a_chunks;
    all.insert(all.end(), product.b_chunks.begin(), product.b_chunks.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    std::vector<AsyncPiece> pieces;
    for (const std::byte* chunk : all)
      if (!pieces.empty() && pieces.back().begin + pieces.back().bytes == chunk)
        pieces.back().bytes += 16;
      else
        pieces.push_back({chunk, 16});
    AsyncOperation reads{"wgmma", "let the warpgroup wait for it (wgmma_wait)", false, site, first, std::move(pieces)};
    reads.copies = false;
    product.async = begin_async(reads);
    for (const unsigned last_lane : {31u, 63u, 95u, 127u})
      as_thread(first + last_lane, [&] { checks->async_shared(reads); });
  }
  for (Observer* observer : observers) observer->product_issued(first / kWarpSize, product, site);
  products[group].issue(operands, std::move(product));
  if (checks) checks->product_adds(products[group].under_way().back());
  if (launch->completion == Completion::eager) products[group].run_early(1);
}

void Worker::wait_for_products(unsigned group, Site site) {
  const unsigned first = group * kWarpgroupThreads;
  const WgmmaWait& wait = *reinterpret_cast<const WgmmaWait*>(threads[first].value);
  for (unsigned t = first; t < first + kWarpgroupThreads; ++t)
    if (reinterpret_cast<const WgmmaWait*>(threads[t].value)->pending != wait.pending)
      differs("numbers of groups to leave", threads[t], first);
  std::uint64_t clock = 0;
  products[group].wait(wait.pending, [&](const Product& product) {
    clock = end_async(product.async);
    for (Observer* observer : observers) {
      observer->product_waited_for(first / kWarpSize, product, site);
      for (unsigned t = 0; t < kWarpgroupThreads; ++t)
        observer->product_ends(first + t, product, product.accumulators->under_way == 0);
    }
  });
  if (clock) checks->async_known(first, kWarpgroupThreads, first, clock);
  for (Observer* observer : observers)
    for (unsigned t = first; t < first + kWarpgroupThreads; ++t) {
      const WgmmaWait& named = *reinterpret_cast<const WgmmaWait*>(threads[t].value);
      for (unsigned i = 0; i < named.count; ++i)
        observer->registers_named(t, named.done[i].begin, named.done[i].bytes, wait.pending, site);
    }
}

// ---- named barriers ------------------------------------------------------------------------------------------------

// All lanes of a warp have come. Those of bar.sync run again when the barrier's threads are there.
void Worker::come_to_barrier(unsigned warp, const OpenOp& op) {
  const unsigned first = warp * kWarpSize;
  const Thread& thread = threads[first];
  const auto said = *reinterpret_cast<const NamedBarrierOperands*>(thread.value);
  const char* const name = name_of(op.op);
  const auto here = [&] { return described(said, name); };
  for (unsigned t = first; t < first + kWarpSize; ++t) {
    const auto& other = *reinterpret_cast<const NamedBarrierOperands*>(threads[t].value);
    if (other.barrier != said.barrier || other.threads != said.threads)
      misuse("named barrier", std::string(name) + ": the lanes of a warp give different barriers or numbers of threads",
             "a warp comes to a named barrier as one", {side("calls", threads[t]), side("calls", thread)});
  }
  if ((said.barrier < 0 || said.barrier >= kNamedBarriers) && !(said.threads >= 64 && is_of_tile(said)))
    misuse("named barrier", here() + ": there is no such barrier", "name one of 0 to 15", {side("calls", thread)});
  if (said.threads <= 0 || said.threads % 32 != 0 || said.threads > static_cast<int>(threads.size()))
    misuse("named barrier", here() + ": no number of threads for a block of " + std::to_string(threads.size()),
           "name a multiple of 32, at most the block's threads", {side("calls", thread)});
  if (said.barrier == 0) {
    used_zero_ = op.site;
    if (used_barrier_.line()) barrier_zero();
  }
  NamedBarrier& barrier = named_barriers_[flash::simt::place_of(said)];
  if (barrier.arrived == 0) {
    barrier.threads = static_cast<unsigned>(said.threads);
    barrier.first_thread = first, barrier.site = op.site;
  } else if (barrier.threads != static_cast<unsigned>(said.threads)) {
    misuse("named barrier", here() + ": the first to come said " + std::to_string(barrier.threads) + " threads",
           "give the same number at all calls of one barrier",
           {side("calls", thread), {"calls", nullptr, barrier.site, true, block, barrier.first_thread}});
  }
  barrier.arrived += kWarpSize;
  for (Observer* observer : observers) {
    for (unsigned t = first; t < first + kWarpSize; ++t) as_thread(t, [&] { observer->releases(&barrier); });
    observer->warp_at_named_barrier(warp, name, said.barrier, op.op == WarpOp::bar_sync, op.site);
  }
  const auto let_go = [this](unsigned w) {
    for (unsigned t = w * kWarpSize; t < (w + 1) * kWarpSize; ++t) threads[t].state = State::ready;
    ready_.insert_lanes(w * kWarpSize, ~0u);
  };
  if (op.op == WarpOp::bar_sync)
    barrier.waiting.push_back(warp);
  else
    let_go(warp);
  if (barrier.arrived < barrier.threads) return;
  yields_without_progress_ = 0;
  for (Observer* observer : observers) observer->completes(&barrier);
  for (const unsigned w : barrier.waiting) {
    for (Observer* observer : observers)
      for (unsigned t = w * kWarpSize; t < (w + 1) * kWarpSize; ++t) observer->learns_all(&barrier, t);
    let_go(w);
  }
  barrier.waiting.clear();
  barrier.arrived = 0;
}

// __syncthreads() is barrier 0.
void Worker::barrier_zero() {
  misuse("named barrier", "barrier 0 is used by name and by __syncthreads()", "name one of 1 to 15",
         {{"bar.sync 0", nullptr, used_zero_, true, block, current},
          {"__syncthreads", nullptr, used_barrier_, true, block, current}});
}

// ---- setmaxnreg ----------------------------------------------------------------------------------------------------

void Worker::launch_bounds(unsigned bound, unsigned blocks_of_sm) {
  if (budget_.at_launch == 0) budget_.bound(bound, blocks_of_sm);
}

// False: setmaxnreg.inc waits for registers that others give back.
bool Worker::set_registers(unsigned group, RegisterCount wanted) {
  const Thread& thread = threads[group * kWarpgroupThreads];
  const std::string name =
      std::string("setmaxnreg.") + (wanted.increases ? "inc " : "dec ") + std::to_string(wanted.registers);
  if (budget_.at_launch == 0)
    misuse("register budget", name + " in a kernel without __launch_bounds__(threads, blocks)",
           "give both numbers: they say how many registers a thread has at the launch", {side("calls", thread)});
  unsigned& own = budget_.of[group];
  if (wanted.increases ? wanted.registers < own : wanted.registers > own)
    misuse("register budget",
           name + ": the warpgroup's threads have " + std::to_string(own) +
               (own == budget_.at_launch ? ", as at the launch" : ""),
           wanted.increases ? "setmaxnreg.inc asks for more, setmaxnreg.dec leaves fewer"
                            : "setmaxnreg.dec leaves fewer, setmaxnreg.inc asks for more",
           {side("calls", thread)});
  if (wanted.registers > own && wanted.registers - own > budget_.free()) {
    budget_.wanted[group] = wanted.registers;
    return false;
  }
  own = wanted.registers;
  // Others may have waited for what this one gave back.
  for (unsigned g = 0; g < budget_.of.size(); ++g)
    if (budget_.wanted[g] > 0 && budget_.wanted[g] - budget_.of[g] <= budget_.free()) {
      budget_.of[g] = std::exchange(budget_.wanted[g], 0);
      let_warpgroup_go(g);
    }
  return true;
}

// ---- what is left, and who waits -----------------------------------------------------------------------------------

// All threads have ended.
void Worker::left_under_way() {
  for (unsigned group = 0; group < products.size(); ++group) {
    if (products[group].under_way().empty()) continue;
    const Product& product = products[group].under_way().front();
    const bool committed = products[group].is_committed(product);
    findings.add({"asynchronous product",
                  "the block has ended while wgmma is under way",
                  committed ? "wait for it before the end (wgmma_wait<0>)"
                            : "commit it (wgmma_commit), and wait for it before the end (wgmma_wait<0>)",
                  {{"wgmma", nullptr, product.site, true, block, group * kWarpgroupThreads}},
                  block});
  }
}

// Where a thread of a stuck block waits.
std::string Worker::place_of(const Thread& thread) const {
  const std::string name = name_of(thread.op);
  if (thread.op == WarpOp::bar_sync) {
    const auto& said = *reinterpret_cast<const NamedBarrierOperands*>(thread.value);
    const NamedBarrier& barrier = named_barriers_[flash::simt::place_of(said)];
    const std::string what = is_of_tile(said) ? described(said, "") : name + " " + std::to_string(said.barrier);
    return what + ", where " + std::to_string(barrier.arrived) + " of " + std::to_string(said.threads) +
           " threads have come";
  }
  if (thread.op == WarpOp::setmaxnreg) {
    const unsigned wanted = reinterpret_cast<const RegisterCount*>(thread.value)->registers;
    return "setmaxnreg.inc " + std::to_string(wanted) + ": " + std::to_string(wanted - budget_.of[thread.warp / 4]) +
           " more, " + std::to_string(budget_.free()) + " are free";
  }
  return name;
}

// Some warps of a warpgroup wait for one that will not come.
bool Worker::explain_warpgroup() {
  for (unsigned g = 0; g < warpgroups_.size(); ++g) {
    const Warpgroup& group = warpgroups_[g];
    if (group.arrived == 0) continue;
    const unsigned missing = g * 4 + static_cast<unsigned>(std::countr_one(group.arrived));
    const Thread &absent = threads[missing * kWarpSize], &caller = threads[group.first_warp * kWarpSize];
    const bool ended = absent.state == State::ended;
    findings.add({"warpgroup operation",
                  std::string(name_of(group.op.op)) + " waits for a warp of its warpgroup that " +
                      (ended                               ? "has exited"
                       : absent.state == State::at_barrier ? "waits at a barrier"
                                                           : "waits at " + place_of(absent)),
                  "let all four warps of the warpgroup come to the same instruction",
                  {side("calls", caller), side(ended ? "exited" : "waits", absent)},
                  block});
    return true;
  }
  return false;
}

}  // namespace flash::simt
