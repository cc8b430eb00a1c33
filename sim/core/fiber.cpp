// fiber.cpp: the stack switch in assembly (x86-64 and aarch64), and stacks from mmap with guard pages.
// A switch saves the registers that the ABI lets a callee keep, exchanges stack pointers, restores them, returns.
// Use: see fiber.hpp.
#include "sim/core/fiber.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "sim/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void flash_switch_stacks(void** save, void* load);
extern "C" void flash_fiber_begin();

// flash_fiber_begin is where a new fiber's first switch "returns" to; the entry function waits in a saved register.
#if defined(__x86_64__)
asm(R"(
.text
.globl flash_switch_stacks
.type flash_switch_stacks, @function
flash_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size flash_switch_stacks, .-flash_switch_stacks
.globl flash_fiber_begin
.type flash_fiber_begin, @function
flash_fiber_begin:
  .cfi_startproc
  .cfi_undefined rip
  xorl %ebp, %ebp
  call *%rbx
  ud2
  .cfi_endproc
.size flash_fiber_begin, .-flash_fiber_begin
.section .note.GNU-stack,"",@progbits
.text
)");
// r15 r14 r13 r12 rbx rbp, return address
constexpr int kSavedWords = 7, kEntryWord = 4, kReturnWord = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl flash_switch_stacks
.type flash_switch_stacks, %function
flash_switch_stacks:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size flash_switch_stacks, .-flash_switch_stacks
.globl flash_fiber_begin
.type flash_fiber_begin, %function
flash_fiber_begin:
  .cfi_startproc
  .cfi_undefined x30
  mov x29, #0
  blr x19
  brk #0
  .cfi_endproc
.size flash_fiber_begin, .-flash_fiber_begin
)");
constexpr int kSavedWords = 20, kEntryWord = 0, kReturnWord = 11;
#else
#error "the fiber switch is written for x86-64 and aarch64"
#endif

namespace flash::simt {
namespace {
constexpr std::size_t kColours = 4096, kColourStep = 320;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 128 * 1024;  // it marks all of a stack at each use
#else
constexpr std::size_t kStackBytes = 640 * 1024;  // a GPU gives a thread up to 512 KiB of local memory
#endif

// Stacks of machines that are gone; making one takes three system calls, and a test makes thousands.
std::mutex spare_mutex;
std::vector<Fiber> spare_fibers;
}  // namespace

Fiber this_thread_as_fiber() {
  Fiber fiber;
#if defined(__SANITIZE_ADDRESS__)  // only it wants to know, and asking reads /proc/self/maps
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void* stack = nullptr;
    pthread_attr_getstack(&attributes, &stack, &fiber.stack_bytes);
    fiber.stack = static_cast<std::byte*>(stack);
    pthread_attr_destroy(&attributes);
  }
#endif
  return fiber;
}

StackPool::~StackPool() {
  const std::lock_guard lock(spare_mutex);
  spare_fibers.insert(spare_fibers.end(), fibers_.begin(), fibers_.end());
}

void StackPool::reserve(std::size_t count) {
  const std::lock_guard lock(spare_mutex);
  while (fibers_.size() < count) {
    if (!spare_fibers.empty()) {
      fibers_.push_back(spare_fibers.back());
      spare_fibers.pop_back();
      continue;
    }
    void* memory =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw Error("no memory for the stack of thread " + std::to_string(fibers_.size()));
    // Without its guard page (too many mappings) a stack still works; an overflow is then not caught.
    (void)mprotect(memory, kStackGuard, PROT_NONE);
    Fiber fiber;
    fiber.stack = static_cast<std::byte*>(memory) + kStackGuard;
    fiber.stack_bytes = kStackBytes - kStackGuard;
    fibers_.push_back(fiber);
  }
}

void StackPool::prepare(std::size_t i, void (*entry)()) {
  Fiber& fiber = fibers_[i];
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack, fiber.stack_bytes);
#endif
  const std::size_t colour = i * kColourStep % kColours;  // a multiple of 16 bytes
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.stack_bytes - colour) - kSavedWords;
  std::memset(top, 0, kSavedWords * sizeof(void*));
  top[kEntryWord] = reinterpret_cast<void*>(entry);
  top[kReturnWord] = reinterpret_cast<void*>(&flash_fiber_begin);
  fiber.stack_pointer = top;
  fiber.fake_stack = nullptr;
}

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool from_ends) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(from_ends ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
  flash_switch_stacks(&from.stack_pointer, to.stack_pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void fiber_started() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

}  // namespace flash::simt
