// shadow.hpp: stage 2.
#pragma once
#include "sim/block.hpp"
#include "sim/device_memory.hpp"
#include "sim/ledger.hpp"
namespace flash::simt {
class Checker;
class GlobalShadow {
 public:
  explicit GlobalShadow(DeviceMemory&) {}
  void forget(const void*) {}
  void begin_launch(const Launch&, std::size_t) {}
  void end_launch(const std::vector<Checker*>&, Ledger&) {}
};
enum class Access { read, write, atomic };
class Checker {
 public:
  void access(const void*, std::size_t, Access, std::uintptr_t) {}
  void range(const void*, std::size_t, Access, std::uintptr_t) {}
  Checker(Worker&, GlobalShadow&) {}
  void begin_launch() {}
  void end_launch(const Tally&) {}
  void begin_block() {}
  void end_block() {}
  void block_barrier() {}
  void warp_sync(unsigned, unsigned) {}
  void converge(unsigned) {}
  void atomic(const void*, std::size_t, Site) {}
  void fence() {}
};
}  // namespace flash::simt
