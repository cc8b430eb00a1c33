// registers.cpp: the checks of wgmma's registers: no fence behind an access, an access before the wait, an array that
// no wait has named.
// Use: see checker.hpp; PTX ISA, "wgmma.fence", "wgmma.wait_group", "wgmma.mma_async".
#include "sim/checks/registers.hpp"

#include <string>

#include "sim/checks/accesses.hpp"
#include "sim/checks/keys.hpp"
#include "sim/core/outside.hpp"

namespace flash::simt {
namespace {

// d[3] or a[3]: the array as the instruction calls it.
std::string element_of(const Product& product, unsigned thread, const void* address) {
  const float* const d = product.accumulators->registers[thread];
  const auto word = [address](const void* begin) {
    return "[" + std::to_string((static_cast<const std::byte*>(address) - static_cast<const std::byte*>(begin)) / 4) +
           "]";
  };
  if (address >= d && address < d + product.of.columns / 2) return "d" + word(d);
  return "a" + word(product.a[thread]);
}

}  // namespace

void Checker::async_shared(const AsyncOperation& operation) {
  const unsigned s = site(spot(operation.site) | kOfAsyncRead);
  const Epoch mine = (running_ >> kClockShift << kClockShift) | Epoch{s} << kThreadBits | kCompanion | worker_.current;
  Epoch known = 0;  // to be in order: copies write many words at one time
  for (const AsyncPiece& piece : operation.pieces) {
    const auto offset = static_cast<std::size_t>(piece.begin - shared_);
    for (std::size_t word = offset / 4; word < (offset + piece.bytes) / 4; ++word) {
      const Epoch write = cells_.planes[0].write[word];
      if (write == known || write < barrier_) continue;
      known = write;
      if (!collides<false>(write)) continue;
      Wrong wrong;
      wrong.distance = distance(mine, write, false), wrong.before = Access::write, wrong.earlier = write;
      return race(wrong, Access::read, mine, shared_ + word * 4, 4);
    }
  }
}

void Checker::registers_fenced(unsigned thread) {
  registers_.fence(thread);
}

// An access of the running thread to its stack.
void Checker::on_stack(const std::byte* address, unsigned bytes, Access access_, std::uintptr_t key) {
  const unsigned t = worker_.current, s = site(key);
  const std::byte* const top = worker_.stack + worker_.stack_bytes;
  const auto words = registers_.words(t, address, top);
  for (unsigned i = 0; i * 4 < bytes; ++i) {
    RegisterLog::Word& word = words(i);
    if (word.state != RegisterLog::State::free) [[unlikely]]
      disturbs_product(word, address + i * 4, access_, running_ | Epoch{s} << kThreadBits);
    registers_.accessed(t, word, s);
  }
}

void Checker::disturbs_product(RegisterLog::Word& word, const std::byte* address, Access access_, Epoch mine) {
  const unsigned t = worker_.current, in_group = t % kWarpgroupThreads;
  const Products& products = worker_.products[t / kWarpgroupThreads];
  const RegisterLog::State state = word.state;
  word.state = RegisterLog::State::free;  // once
  const Outside outside;
  const bool accumulates = state == RegisterLog::State::accumulator;
  const Product* product = nullptr;
  if (state != RegisterLog::State::unnamed) {
    product = accumulates ? products.accumulating(in_group, address) : products.reading(in_group, address);
    if (!product) return;
  }
  // Asked last: what is asked for is taken for found.
  if (worker_.findings.repeated("asynchronous product", site_index_of(mine), static_cast<unsigned>(state),
                                worker_.block))
    return;
  const std::string now = is_write(access_) ? "write" : "read";
  if (state == RegisterLog::State::unnamed) {
    worker_.findings.add({"asynchronous product",
                          now + " of an accumulator that no wgmma_wait has named",
                          "name the array in the wait, so that the compiler keeps this " + now + " behind it",
                          {side(now.c_str(), mine)},
                          worker_.block});
    return;
  }
  worker_.findings.add(
      {"asynchronous product",
       now + " of " + element_of(*product, in_group, address) + " while wgmma " + (accumulates ? "writes" : "reads") +
           " it",
       !products.is_committed(*product)
           ? "commit the product (wgmma_commit), then wait for it (wgmma_wait) before this " + now
       : product->group < products.waited()
           ? "wait for its group, too: the last wgmma_wait<" + std::to_string(products.left()) + "> left it under way"
           : "let the warpgroup wait for it (wgmma_wait) before this " + now,
       {side(now.c_str(), mine), {"wgmma", nullptr, product->site, true, worker_.block, t}},
       worker_.block});
}

// Before the product is among those under way.
void Checker::product_begins(unsigned thread, const WgmmaOperands& operands, Site site_) {
  const std::byte* const top = worker_.stack_top(thread);
  bool said = false;  // once for a thread
  const auto misuse = [&](const std::string& what, const char* remedy, const RegisterLog::Word* word) {
    if (std::exchange(said, true)) return;
    if (worker_.findings.repeated("warpgroup operation", site_.line(), site_.column(), worker_.block)) return;
    std::vector<FindingSide> sides{{"wgmma", nullptr, site_, true, worker_.block, thread}};
    if (word) sides.push_back(side("access", Epoch{word->site} << kThreadBits | thread));
    worker_.findings.add({"warpgroup operation", what, remedy, std::move(sides), worker_.block});
  };
  if (!registers_.fenced(thread)) {
    misuse("wgmma without a wgmma_fence before it", "begin with wgmma_fence(): it puts the registers' values before",
           nullptr);
    registers_.fence(thread);
  }
  const Product* const earlier =
      worker_.products[thread / kWarpgroupThreads].accumulating(thread % kWarpgroupThreads, operands.d);
  const bool continues = earlier && earlier->of.columns == operands.columns;
  const auto begin = [&](const void* array, unsigned count, RegisterLog::State state, const char* name) {
    const auto words = registers_.words(thread, array, top);
    for (unsigned i = 0; i < count; ++i) {
      RegisterLog::Word& word = words(i);
      const auto element = [&] { return std::string(name) + "[" + std::to_string(i) + "]"; };
      if (registers_.since_fence(thread, word) && word.state == RegisterLog::State::free)
        misuse("wgmma after an access to " + element() + ", and no wgmma_fence between the two",
               "put wgmma_fence() between the access and the product", &word);
      if (word.state == RegisterLog::State::accumulator && !(continues && state == word.state))
        misuse("wgmma of another shape, or of other registers, accumulates in " + element() + " at the time",
               "wait for it (wgmma_wait) first, then wgmma_fence()", nullptr);
      word.state = state;
    }
  };
  begin(operands.d, operands.columns / 2, RegisterLog::State::accumulator, "d");
  if (operands.a) begin(operands.a, 4, RegisterLog::State::a, "a");
}

void Checker::product_ends(unsigned thread, const Product& product, bool last) {
  const std::byte* const top = worker_.stack_top(thread);
  const unsigned in_group = thread % kWarpgroupThreads;
  const auto set = [&](const void* array, unsigned count, RegisterLog::State from, RegisterLog::State to) {
    const auto words = registers_.words(thread, array, top);
    for (unsigned i = 0; i < count; ++i) {
      RegisterLog::Word& word = words(i);
      if (word.state == from) word.state = to, word.fences = 0;
    }
  };
  if (last)
    set(product.accumulators->registers[in_group], product.of.columns / 2, RegisterLog::State::accumulator,
        RegisterLog::State::unnamed);
  if (product.of.a) set(product.a[in_group], 4, RegisterLog::State::a, RegisterLog::State::free);
}

void Checker::registers_named(unsigned thread, const void* begin, std::size_t bytes, unsigned left, Site site_) {
  const std::byte* const top = worker_.stack_top(thread);
  const auto words = registers_.words(thread, begin, top);
  for (std::size_t i = 0; i < bytes / 4; ++i) {
    RegisterLog::Word& word = words(i);
    if (word.state == RegisterLog::State::unnamed) word.state = RegisterLog::State::free;
    if (word.state == RegisterLog::State::free) continue;
    if (worker_.findings.repeated("asynchronous product", site_.line(), site_.column(), worker_.block)) return;
    worker_.findings.add({"asynchronous product",
                          "wgmma_wait<" + std::to_string(left) + "> names an array whose product it leaves under way",
                          "wait for fewer groups to be left, or name the array in the wait for its group",
                          {{"waits", nullptr, site_, true, worker_.block, thread}},
                          worker_.block});
    return;
  }
}

}  // namespace flash::simt
