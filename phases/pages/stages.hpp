// stages.hpp: a picture of what tiles in shared memory went through in a recorded run: when a copy was under way, which
// phase of the tile's mbarrier that was, and who read the tile. In the order of the recording, which is no time.
// Use:  const auto lives = svg::lives(recording, {{"K, stage 0", 0, 16384, "K_full[0]", "S"}, …});
//       picture("stages", svg::stages("title", lives, {.between = "softmax"}));
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

namespace flash::svg {

// A place for tiles: bytes first … end - 1 of shared memory, the mbarrier that counts what comes there, and what the
// threads do with it.
struct Place {
  std::string name;
  std::uint64_t first, end;
  std::string barrier, use = "read";
};

// A tile's stay in a place; points of time are numbers of events.
struct Stay {
  struct Reading {
    int reader, begin, end;  // reader: the warp that read it, or the first one of a warpgroup that multiplied it
  };
  long tile;                // its number in the array: tiles are as long as the place
  unsigned bytes = 0;       // that its phase of the mbarrier has counted
  int begun, complete = 0;  // the copy; complete: the phase of the mbarrier, too
  std::vector<Reading> readings = {};
};
struct Lives {
  std::vector<Place> places;
  std::vector<std::vector<Stay>> stays;  // of each place
  std::vector<int> barriers;             // events at which all threads had met
  int events = 0;
};
// Of the recording's first block.
Lives lives(const Recording& recording, const std::vector<Place>& places);

// `between`: what a reader does between a use of one kind and the next use.
struct StagesOptions {
  std::string between = {};
  std::string reader = "warpgroup";
  int warps_of_reader = 4;
};
std::string stages(const std::string& title, const Lives& lives, const StagesOptions& options);

}  // namespace flash::svg
