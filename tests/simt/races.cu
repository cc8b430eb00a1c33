// races.cu: a kernel that runs any Program: each thread its list of accesses, fences and meetings.
// The order is written down behind the simulator's back, by a function that is not instrumented: one worker only.
// Run: simt_races_test
#include "gpu/kernel.cuh"
#include "tests/simt/races.hpp"

#if defined(FLASH_CHECKED)
namespace flash::inline FLASH_MACHINE {

unsigned order[1 << 16], order_length;
__attribute__((noinline, no_sanitize("thread"))) void write_down(unsigned thread) {
  order[order_length++] = thread;
}

struct Memory {
  alignas(16) unsigned char bytes[Program::kBytes];
};

template <class T>
__device__ unsigned read(const unsigned char* at) {
  return static_cast<unsigned>(*reinterpret_cast<const T*>(at));
}
template <class T>
__device__ void write(unsigned char* at, T value) {
  *reinterpret_cast<T*>(at) = value;
}

__device__ unsigned perform(Operation op, unsigned char* memory, unsigned char stored) {
  unsigned char* const at = memory + op.offset;
  unsigned* const word = reinterpret_cast<unsigned*>(at);
  switch (op.what) {
    case Do::read:
      return op.bytes == 1   ? read<unsigned char>(at)
             : op.bytes == 2 ? read<unsigned short>(at)
             : op.bytes == 4 ? read<unsigned>(at)
                             : read<unsigned long long>(at);
    case Do::write:
      if (op.bytes == 1) write<unsigned char>(at, stored);
      if (op.bytes == 2) write<unsigned short>(at, stored);
      if (op.bytes == 4) write<unsigned>(at, stored);
      if (op.bytes == 8) write<unsigned long long>(at, stored);
      return 0;
    case Do::volatile_read:
      return *const_cast<volatile unsigned*>(word);
    case Do::volatile_write:
      *const_cast<volatile unsigned*>(word) = 2;
      return 0;
    case Do::atomic_add:
      return op.block_scope ? atomicAdd_block(word, 1u) : atomicAdd(word, 1u);
    case Do::atomic_exchange:
      return op.block_scope ? atomicExch_block(word, 3u) : atomicExch(word, 3u);
    case Do::float_add:
      return op.block_scope ? atomicAdd_block(reinterpret_cast<float*>(at), 1.0f) > 9
                            : atomicAdd(reinterpret_cast<float*>(at), 1.0f) > 9;
    case Do::fence:
      if (op.block_scope)
        __threadfence_block();
      else
        __threadfence();
      return 0;
    case Do::syncwarp:
      __syncwarp(op.mask);
      return 0;
    default:
      __syncthreads();
      return 0;
  }
}

__global__ void run_lists(const Operation* operations /*[threads, length]*/, unsigned length, bool in_shared,
                          unsigned char stored, unsigned char* global /*[kBytes]*/, unsigned* out /*[threads]*/) {
  const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned char* memory = global;
  if (in_shared) {
    memory = shared<Memory>().bytes;
    if (threadIdx.x < Program::kBytes) memory[threadIdx.x] = 0;
    __syncthreads();
  }
  if (operations[std::size_t{t} * length].what == Do::end) return;
  unsigned sum = 0;
  for (unsigned i = 0; i < length; ++i) {
    const Operation op = operations[std::size_t{t} * length + i];
    if (op.what == Do::end) break;
    write_down(t);
    sum += perform(op, memory, stored);
  }
  out[t] = sum;
}

__global__ void take_tickets(unsigned* tickets /*[count]*/, unsigned count) {
  for (unsigned i = 0; i < count; ++i)
    if (atomicInc(&tickets[i], gridDim.x) == gridDim.x - 1) tickets[i] = 0;
}

void take_tickets(Machine& m, unsigned blocks, unsigned count) {
  const std::vector<unsigned> zeros(count);
  const Array<unsigned> tickets = m.upload("tickets", zeros.data(), count);
  take_tickets<<<blocks, 1>>>(tickets.data(), count);
}

__global__ void meet_all(unsigned* arrived) {
  atomicAdd(arrived, 1u);
  while (atomicAdd(arrived, 0u) < gridDim.x) {
  }
}

void meet_all(Machine& m, unsigned blocks) {
  const unsigned zero = 0;
  const Array<unsigned> arrived = m.upload("arrived", &zero, 1);
  meet_all<<<blocks, 1>>>(arrived.data());
}

std::vector<unsigned> run_program(Machine& m, const Program& p) {
  const unsigned char zeros[Program::kBytes] = {};
  const Array<Operation> operations = m.upload("operations", p.operations.data(), p.operations.size());
  const Array<unsigned char> memory = m.upload("memory", zeros, Program::kBytes);
  const Array<unsigned> out = m.alloc<unsigned>("out", p.blocks * p.threads);
  order_length = 0;
  run_lists<<<p.blocks, p.threads, sizeof(Memory)>>>(operations.data(), p.length, p.in_shared, p.clears ? 0 : 1,
                                                     memory.data(), out.data());
  return {order, order + order_length};
}

}  // namespace flash::inline FLASH_MACHINE
#endif
