// recording.hpp: what a run did, step by step, for the player: which bytes of which array moved, what lies on chip, who
// waits, which numbers a kernel showed with trace_value. Filled by Recorder (kernels, checked machine) and
// MemoryRecorder (CPU phases), played by player.html. Use: MachineOptions::recording; player_page({to_json(…)})
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/ledger.hpp"

namespace flash {

struct Recording {
  // Bytes first … end - 1 of an array or of the chip's memory.
  struct Span {
    std::uint64_t first, end;
  };
  using Spans = std::vector<Span>;

  // An array in HBM, or a member of the shared struct, a __shared__ array, a tile.
  struct Place {
    std::string name;
    std::uint64_t at, bytes, element_bytes, columns;  // columns 0: nobody told
    std::uint64_t head_rows = 0, heads = 0;           // of a tensor with several: rows of a head, heads of a batch
  };
  // A line of the program: its file below this repository's root (elsewhere its name alone), its text where the file
  // could be read.
  struct Line {
    std::string file;
    unsigned number;
    std::string text, path;
  };
  struct Mbarrier {
    std::string name;   // "K_full[1]"; "barrier.cluster"
    unsigned arrivals;  // of each phase; of the cluster's barrier: all of its threads, also those that have exited
    bool of_cluster = false;  // the cluster's barrier, in the block of rank 0: a step says when a phase is complete
  };
  struct Launch {
    std::string kernel;
    std::array<unsigned, 3> grid{}, block{}, cluster{1, 1, 1};
    std::uint64_t chip_bytes = 0;
    std::vector<Place> chip = {};
    std::vector<Mbarrier> mbarriers = {};
    bool ranks = false;  // its blocks are the ranks of a ring (phase 30), and what is on chip lies in a rank's memory
  };

  // copy, landed: an asynchronous copy to the chip begins, is done; store, stored: TMA's way back, by copies or
  // reductions, until the tile has been read; product, multiplied: wgmma reads its operands from here on, its group has
  // been waited for.
  enum class Kind { read, write, chip_read, chip_write, copy, landed, product, multiplied, store, stored };
  // What a step did at one place. HBM: places of `arrays`; the chip: places of its launch.
  struct Part {
    Kind kind;
    std::size_t place;
    std::uint64_t bytes = 0;  // each access counts
    Spans spans = {};
    std::ptrdiff_t source = -1;  // of chip_write, copy and landed: the array that the bytes were read from; of store:
    Spans from = {};             // the one that they go to
    unsigned rank = 0;           // on chip: of the block of the cluster whose place it is
    int from_rank = -1;          // 0 or more: the bytes were read from this block's chip, source is its place
    bool adds = false;           // of store: a reduction
  };
  struct Value {
    const char* name;
    long row;
    float value;
  };
  // One load or store of shared memory by a warp; of all at its place in this step the one with most wavefronts.
  struct Request {
    std::size_t place;
    unsigned bytes, wavefronts, ideal;
    bool write;
    std::array<std::int64_t, 32> lanes;  // the byte of shared memory where each lane's access begins; -1: takes no part
  };
  // What happens at an mbarrier: arrivals, bytes that they expect, bytes of copies that begin, bytes that have come.
  // At the cluster's barrier an arrival is begun, too, and the step that completes a phase takes them away.
  struct Arrival {
    std::size_t mbarrier;
    unsigned rank = 0;  // of the block of the cluster that it is in
    unsigned count = 0;
    std::int64_t expected = 0, begun = 0, come = 0;
  };
  // A wait for an mbarrier that has returned: so many of its phases were complete.
  struct Waited {
    std::size_t mbarrier;
    unsigned rank;
    std::uint64_t phases;
    bool operator==(const Waited&) const = default;
  };
  // Of the block's mbarriers: made once more, with so many arrivals; 0: ended by mbarrier.inval.
  struct Made {
    std::size_t mbarrier;
    unsigned arrivals;
  };
  struct Wgmma {  // so many of m64nNk16
    unsigned count, columns;
  };
  struct Step {
    std::size_t launch = 0;
    std::uint64_t block = 0;
    unsigned rank = 0;           // of the block in its cluster
    int warp = -1;               // -1: all of the block, or TMA, which has brought bytes
    std::vector<int> also = {};  // further warps that did the same: came to a barrier, and nothing else
    std::string label = {};      // of the last trace_mark
    std::vector<Part> parts = {};
    std::vector<Value> values = {};
    std::vector<Request> requests = {};
    std::vector<Arrival> arrivals = {};
    std::vector<Waited> waited = {};
    std::vector<Made> made = {};
    std::vector<Wgmma> wgmma = {};
    std::vector<std::size_t> at = {};  // the lines that it stands at
    std::string waits = {};            // the barrier that the warp has come to
    bool released = false;             // all have come to it; with an arrival: to the cluster's barrier
    bool ended = false;                // the warp has
    std::uint64_t blocks = 0;          // not 0: so many blocks as one step, with their bytes alone
  };
  struct Finding {
    std::string kind, text;
    std::vector<std::pair<std::uint64_t, unsigned>> threads = {};  // of each side: block and thread
    bool on_chip = false;
    std::ptrdiff_t place = -1;  // where the last access was; -1: at none
    unsigned rank = 0;          // on chip: of which block of the cluster
    Span span{};
  };

  std::string title = {}, note = {};
  std::vector<Line> lines = {};
  std::vector<Place> arrays = {};
  std::vector<Launch> launches = {};
  std::vector<Step> steps = {};
  std::vector<Finding> finding = {};  // the first one, or none: what comes after it is not recorded
  Ledger ledger = {};                 // as the machine counted, to compare with

  // The number of the array with this name, which is added when it is new.
  std::size_t array(const std::string& name, std::uint64_t bytes, std::uint64_t element_bytes, std::uint64_t columns) {
    const auto known = std::find_if(arrays.begin(), arrays.end(), [&](const Place& a) { return a.name == name; });
    if (known == arrays.end()) return arrays.push_back({name, 0, bytes, element_bytes, columns}), arrays.size() - 1;
    known->bytes = std::max(known->bytes, bytes);
    return static_cast<std::size_t>(known - arrays.begin());
  }
  // The number of this line of a file, which is added when it is new. Code: it has more than a comment or a brace.
  inline std::size_t line(const std::string& path, unsigned number);  // sim/report/lines.hpp
  inline bool is_code(std::size_t line) const;
  // Once all steps are there: lines in the order of the files, so that they do not tell in which order they came, and
  // with those around them that a reader needs to see where they are.
  inline void sort_lines();
  // The bytes of the first `count` steps by array, to be compared with the ledger. What is added counts as written.
  std::vector<ArrayTraffic> traffic(std::size_t count) const;
};

// Puts a span among others; tidy() sorts and joins them.
inline void add_span(Recording::Spans& spans, std::uint64_t first, std::uint64_t end);
inline void tidy(Recording::Spans& spans);

// Texts of lines: of several recordings on one page the first one that has a line brings its text.
using Told = std::set<std::pair<std::string, unsigned>>;
std::string to_json(const Recording& recording, Told* told = nullptr);
// An array of them, and player.html with it in it: one page, which needs nothing else.
std::string json_array(const std::vector<std::string>& recordings);
std::string player_page(const std::vector<std::string>& recordings);

}  // namespace flash
