// recorder.hpp: turns what the checked machine sees of one launch into the steps of a Recording, where
// MachineOptions::recording asks for it: blocks, or clusters of them, then run one after another. Each block of a
// cluster has a Recorder; since the blocks take turns (sim/core/cluster.hpp), so do these.
// A warp's lanes run one by one here. Each lane's way is cut where its occupation changes (another array, a mark, a
// wait, a value shown); what the lanes do between the same two cuts is one step of the warp. A step is complete later
// than what it tells of, so steps are held back until all is there that they had to wait for, in whichever block.
// Use: a launch makes a LaunchRecorder, which watches its workers for as long as it lives.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/core/block.hpp"
#include "sim/core/device_memory.hpp"
#include "sim/core/members.hpp"
#include "sim/core/observer.hpp"
#include "sim/report/findings.hpp"
#include "sim/report/recording.hpp"

namespace flash::simt {

void add_once(std::vector<std::size_t>& all, std::size_t one);

class LaunchRecorder;

// The block that a worker runs.
class Recorder : public Observer {
 public:
  Recorder(LaunchRecorder& all, const Worker& worker);

  // What the scheduler and the checks tell (sim/core/observer.hpp). What the running thread, which is one of this
  // block's, reaches may be another block's of the cluster.
  void begin_block() override;
  void end_block(bool regularly) override;
  void thread_ends() override;
  void converge(unsigned warp) override;
  void warp_at_barrier(unsigned warp, Site site) override;
  void warp_ends(unsigned warp) override;
  void block_barrier(bool some_exited, Site site) override;
  void warp_at_named_barrier(unsigned warp, const char* instruction, int barrier, bool waits, Site site) override;
  void warp_waits(unsigned warp, const char* instruction, Site site) override;
  void shared_struct(Members members) override;
  void mark(const char* label, long value) override;
  void value(const char* name, long row, float value) override;

  void global_access(std::size_t array, std::size_t offset, unsigned bytes, Access access, Spot spot) override;
  void shared_access(unsigned rank, std::size_t offset, unsigned bytes, Access access, Spot spot) override;
  void request(const SharedRequest& request) override;

  void copy_begins(const Copy& copy) override;
  void copy_ends(const Copy& copy, Site wait) override;
  void completes(const void* object) override;
  void arrives(const void* mbarrier, std::uint64_t phase, bool expects, unsigned bytes, Site site) override;
  void arrives_at_cluster(const void* barrier, Site site) override;
  void waits_for(const void* barrier, std::uint64_t phases, Site site) override;
  void mbarrier_begins(const void* barrier, unsigned arrivals, Site site) override;
  void mbarrier_ends(const void* barrier, Site site) override;
  void load_begins(const TensorBox& box, bool counted, const void* mbarrier, Site site) override;
  void load_ends(const TensorBox& box, const void* mbarrier, Site site) override;
  void store_begins(const TensorBox& box, bool adds, Site site) override;
  void store_was_read(const TensorBox& box) override;
  void product_issued(unsigned warp, const Product& product, Site site) override;
  void product_waited_for(unsigned warp, const Product& product, Site wait) override;

 private:
  friend class LaunchRecorder;
  using Key = std::tuple<int, const void*, long>;  // what a lane is occupied with
  struct Segment {                                 // from one cut to the next
    Key key;
    Recording::Step step = {};
    bool empty() const {
      return step.parts.empty() && step.values.empty() && step.arrivals.empty() && step.made.empty();
    }
    std::ptrdiff_t array = -1;  // the one in HBM that it reads or writes
    bool computes = false;      // it has read shared memory
  };
  struct OfWarp {
    std::deque<Segment> open;                 // not complete
    std::array<std::size_t, kWarpSize> at{};  // where each lane is
    std::array<bool, kWarpSize> shown{};      // it has shown a value, and then made no access
    std::string label;
    std::vector<Recording::Waited> waited;  // for, and no step since tells of it
    bool fused = false;                     // there were too many cuts: no more of them until the warp meets
  };
  struct Loaded {  // what a thread loaded last from HBM and has not stored on chip yet
    std::ptrdiff_t array = -1;
    std::uint64_t first = 0, end = 0;
  };
  // An mbarrier of the block, or the cluster's barrier, as far as `out_.steps` tell.
  struct Seen {
    const void* at;
    unsigned expected, missing;    // 0: the cluster's barrier
    std::int64_t bytes = 0;        // expected, and not there yet
    std::int64_t begun = 0;        // bytes of copies; of the cluster's barrier: arrivals
    std::uint64_t complete = 0;    // phases
    std::int64_t arrived = 0;      // in the current phase of the cluster's barrier, told of or not
    Recording::Step brought = {};  // by the copies of the current phase
  };
  struct Runs {  // of the array; or, of a block of the cluster, of the place on its chip
    std::ptrdiff_t array = -1;
    int rank = -1;
    std::uint64_t bytes = 0;  // in HBM
    Recording::Spans spans = {};
  };
  struct Barrier {
    unsigned rank;
    std::size_t number;  // in the launch's mbarriers
  };
  struct OnChip {
    unsigned rank;
    std::size_t offset;
  };
  bool wanted();
  void goes_on(unsigned warp);
  void meets(unsigned warp, Site site, const char* waits = "");
  void comes_to(unsigned warp, const std::string& barrier, Site site);
  void found(const RawFinding& raw);
  Segment& segment();
  Segment& cut(const Key& key);
  Segment& after_values();
  void fuse(OfWarp& of);
  static Recording::Part& part(Recording::Step& step, Recording::Kind kind, std::size_t place, unsigned rank = 0,
                               std::ptrdiff_t source = -1);
  void stands(Recording::Step& step, Site site);
  void put(Segment& in, Recording::Kind kind, std::size_t place, unsigned rank, std::size_t offset, unsigned bytes);
  OnChip on_chip(const void* address) const;
  void knows(std::size_t mbarrier, const void* at, unsigned arrivals);
  void remakes(std::size_t mbarrier, unsigned arrivals, Site site);
  std::optional<Barrier> known(const void* at) const;
  Barrier barrier(const void* at) const;
  void mbarrier_completes(std::size_t mbarrier);
  void cluster_completes(std::size_t barrier);
  Recording::Arrival& arrival(Recording::Step& step, const void* barrier) const;
  Runs runs_of(const TensorBox& box);
  void tile(Recording::Step& step, Recording::Kind kind, const TensorBox& box, bool adds = false);
  Segment* traffic(const TensorBox& box, bool writes, bool counted = false);
  void product(unsigned warp, const Product& product, bool done, Site site);
  Recording::Step& step(int warp);
  Recording::Step& rest();
  void emit(unsigned warp, std::size_t count);
  static constexpr unsigned kNoWarp = ~0u;
  void emit_all(unsigned but = kNoWarp);

  LaunchRecorder& all_;
  Recording& out_;
  const Worker* worker_;
  std::vector<OfWarp> warps_;
  std::vector<Loaded> loaded_;                     // per thread
  std::vector<std::deque<Recording::Step>> held_;  // steps per warp, and those of no warp, that wait for others
  std::vector<Seen> seen_;                         // by number in the launch's mbarriers
  bool detailed_ = true;                           // is this block shown step by step?
  bool in_rest_ = false;                           // is it one of those that are not, or not to its end?
  struct {
    bool on_chip;
    unsigned rank;
    std::size_t place;
    Recording::Span span;
  } last_{};  // access
};

// What the blocks of a launch have in common: names, lines, and in which order steps are told.
class LaunchRecorder {
  static constexpr std::size_t kMostSteps = 4000;  // all that follows is one step

 public:
  // The workers run the blocks of a cluster, by rank; or one of them runs all blocks.
  LaunchRecorder(Recording& out, const DeviceMemory& memory, const Launch& launch, std::vector<Worker*> workers);
  ~LaunchRecorder();
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;
  void end_launch(const KernelReport& report);
  void forget();  // the launch, which is to begin once more

 private:
  friend class Recorder;
  Recording::Launch& told() { return out_.launches.back(); }
  void stands(Recording::Step& step, Spot spot);
  std::size_t place_of(std::size_t offset);
  std::size_t array_of(std::size_t owner);
  std::size_t mbarrier(const std::string& name, unsigned arrivals, bool of_cluster);
  bool full() const { return steps_ >= kMostSteps; }
  bool comes_beside(const Recording::Step& step, const Recording::Step& last) const;
  void tell(Recording::Step&& step);
  bool may_follow(const Recording::Step& step) const;
  void follows(const Recording::Step& step);
  void release(bool all = false);

  Recording& out_;
  const DeviceMemory& memory_;
  const Launch& launch_;
  const std::vector<Worker*> workers_;  // that it watches
  std::deque<Recorder> blocks_;         // of a cluster, by rank; a block without one is alone
  unsigned running_ = 0;                // of them
  std::vector<Spot> spots_;             // while the launch runs, Recording::Step::at has their numbers
  std::size_t steps_;                   // in all, of all launches
  std::vector<std::ptrdiff_t> arrays_;  // per array of the memory: its number in the recording
  std::optional<RawFinding> first_;     // of this launch, as it was when it was found
  const Worker* found_by_ = nullptr;
};

}  // namespace flash::simt
