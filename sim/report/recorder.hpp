// recorder.hpp: turns what the checked machine sees of one launch into the steps of a Recording. There is one only
// where MachineOptions::recording asks for it: the launch then has one worker, and its blocks run one after another.
// A warp's lanes run one by one here. Each lane's way is cut where its occupation changes (another array, a mark, a
// wait, a value shown); what the lanes do between the same two cuts is one step of the warp.
// Use: Machine::run makes it; Worker, Checker and Counters tell it.
#pragma once
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/block.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/members.hpp"
#include "sim/counters/counters.hpp"
#include "sim/report/recording.hpp"

namespace flash::simt {

class Recorder {
 public:
  Recorder(Recording& out, const DeviceMemory& memory, const Launch& launch);
  void end_launch(const KernelReport& report);

  void begin_block(const Worker& worker);
  void end_block();
  void struct_is(Members members);  // of the kernel's shared memory

  // Of the running thread.
  void global(std::size_t owner, std::size_t offset, unsigned bytes, Access access);
  void chip(std::size_t offset, unsigned bytes, Access access);
  void copy(const Copy& copy, bool landed);
  void mark(const char* label, long value);
  void value(const char* name, long row, float value);

  void converged(unsigned warp);           // all its lanes are at one place, or have exited
  void arrives(unsigned warp, Site site);  // all of them that have not exited are at the barrier
  void ends(unsigned warp);                // all have exited
  void released();                         // all threads were at the barrier
  // A finished request of shared memory; lanes without an address take no part.
  void request(unsigned warp, Access access, unsigned bytes, const std::array<std::uintptr_t, kWarpSize>& addresses,
               std::uint64_t wavefronts, std::uint64_t ideal);

 private:
  using Key = std::tuple<int, const void*, long>;  // what a lane is occupied with
  struct Segment {                                 // from one cut to the next
    Key key;
    Recording::Step step = {};
    std::ptrdiff_t array = -1;  // the one in HBM that it reads or writes
    bool computes = false;      // it has read shared memory
  };
  struct OfWarp {
    std::deque<Segment> open;                 // not complete
    std::array<std::size_t, kWarpSize> at{};  // where each lane is
    std::array<bool, kWarpSize> shown{};      // it has shown a value, and then made no access
    std::string label;
    bool fused = false;  // there were too many cuts: no more of them until the warp meets
  };
  struct Loaded {  // what a thread loaded last from HBM and has not stored on chip yet
    std::ptrdiff_t array = -1;
    std::uint64_t first = 0, end = 0;
  };
  bool wanted();
  void found(const RawFinding& raw);
  Segment& segment();
  Segment& cut(const Key& key);
  Segment& after_values();
  void fuse(OfWarp& of);
  static Recording::Part& part(Recording::Step& step, Recording::Kind kind, std::size_t place,
                               std::ptrdiff_t source = -1);
  void put(Segment& in, Recording::Kind kind, std::size_t place, std::size_t offset, unsigned bytes);
  std::size_t place_of(std::size_t offset);
  std::size_t array_of(std::size_t owner);
  Recording::Step& step(int warp);
  Recording::Step& rest();
  void emit(unsigned warp, std::size_t count);

  Recording& out_;
  const DeviceMemory& memory_;
  const Launch& launch_;
  const Worker* worker_ = nullptr;
  std::vector<OfWarp> warps_;
  std::vector<Loaded> loaded_;          // per thread
  std::vector<std::ptrdiff_t> arrays_;  // per array of the memory: its number in the recording
  std::optional<RawFinding> first_;     // of this launch, as it was when it was found
  bool detailed_ = true;                // is this block shown step by step?
  struct {
    bool on_chip;
    std::size_t place;
    Recording::Span span;
  } last_{};  // access
};

}  // namespace flash::simt
