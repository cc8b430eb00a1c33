// fiber.hpp: a fiber is a stack and a saved stack pointer; switching costs a few nanoseconds and no system call.
// Stacks have a guard page below and are "coloured": their tops differ in the low address bits, since 256 stacks
// with equal low bits would fight for the same cache sets (measured: 2 to 3 times slower switches).
// Use: StackPool gives Fibers; prepare() one with a function that never returns, then switch_fiber(from, to).
#pragma once
#include <cstddef>
#include <vector>

namespace flash::simt {

// Below each stack, inaccessible: what runs over is noticed. As wide as a stride that no frame jumps over: kernels are
// compiled to touch a large frame at such strides (-fstack-clash-protection). A page; on ARM, whose pages have 4, 16 or
// 64 KiB, the largest.
#if defined(__aarch64__)
constexpr std::size_t kStackGuard = 64 * 1024;
#else
constexpr std::size_t kStackGuard = 4096;
#endif

struct Fiber {
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;  // lowest usable address
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// The fiber that stands for the calling OS thread's own stack.
Fiber this_thread_as_fiber();

class StackPool {
 public:
  StackPool() = default;
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;
  ~StackPool();
  std::size_t size() const { return fibers_.size(); }
  // At least `count` fibers; existing ones stay.
  void reserve(std::size_t count);
  Fiber& operator[](std::size_t i) { return fibers_[i]; }
  const Fiber& operator[](std::size_t i) const { return fibers_[i]; }
  // Makes fiber i start in `entry`, on an empty stack, when it is switched to.
  void prepare(std::size_t i, void (*entry)());

 private:
  std::vector<Fiber> fibers_;
};

// Leaves `from` and continues `to`; returns when somebody switches back. `from_ends`: nobody ever will.
void switch_fiber(Fiber& from, Fiber& to, bool from_ends = false);
// The first thing that a fiber's entry function calls.
void fiber_started();

}  // namespace flash::simt
