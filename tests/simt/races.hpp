// races.hpp: random programs of accesses and synchronisation, which races_test.cpp judges by its own exact rules.
// A program is a list of operations for each thread; races.cu runs it and writes down in which order they came.
// Use: on_checked::run_program(machine, program), then compare the machine's findings with the verdict.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/machine_options.hpp"

namespace flash {

enum class Do : std::uint8_t {
  end,
  read,
  write,
  volatile_read,
  volatile_write,
  atomic_add,
  atomic_exchange,
  fence,
  syncwarp,
  barrier,
  float_add  // atomicAdd of 1.0f
};

struct Operation {
  Do what = Do::end;
  std::uint8_t offset = 0, bytes = 4;  // volatile and atomic accesses have 4 bytes
  bool block_scope = false;            // of fences and atomics
  std::uint32_t mask = 0;              // of syncwarp
};

struct Program {
  static constexpr int kBytes = 16;  // of the memory that all threads work on
  bool in_shared = false;
  bool clears = false;  // plain stores are of zeros
  unsigned blocks = 1, threads = 64;  // per block
  unsigned length = 0;                // operations of a thread at most
  std::vector<Operation> operations;  // [blocks * threads, length], each thread's list ends with Do::end or is full
  const Operation& at(unsigned thread, unsigned i) const { return operations[std::size_t{thread} * length + i]; }
};

// Runs the program and returns the thread of each operation, in the order in which they came.
namespace on_checked {
class Machine;
std::vector<unsigned> run_program(Machine& machine, const Program& program);
// Every block takes each of the tickets; who is the last sets it back with a plain store.
void take_tickets(Machine& machine, unsigned blocks, unsigned count);
// All blocks wait for each other.
void meet_all(Machine& machine, unsigned blocks);
}  // namespace on_checked

}  // namespace flash
