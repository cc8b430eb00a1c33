// tile_walk.hpp: a picture of the way that a tiled algorithm takes over S, and of what comes on chip how often.
// Numbers give the order; where motion is welcome (prefers-reduced-motion), what is on chip lights up step by step.
// Use:  Walk v1{"V1", 4, 3, 1, {{0, 0}, {1, 0}, …}};  picture("walk", svg::tile_walks("title", {v1, v2}));
#pragma once
#include "phases/pages/moves.hpp"
#include "phases/pages/svg.hpp"

namespace flash::svg {

// One way through the tiles of S: order holds {row of tiles (Q), column of tiles (K, V)} as they are visited.
// `outer` is the loop outside: 0 the rows (V2), 1 the columns (V1).
struct Walk {
  std::string title;
  int rows, columns, outer;
  std::vector<std::array<int, 2>> order = {};
  std::string note = {};  // a line of text below
};

// How often each tile comes on chip: in the outer loop once for all of its steps, in the inner loop at every step.
// axis 0: the tiles of Q (and O), 1: those of K and V.
std::vector<int> fetches(const Walk& walk, int axis);

// Walks side by side, as an animated picture.
std::string tile_walks(const std::string& title, const std::vector<Walk>& walks);

// One step of a walk, to scale: HBM above, the chip below, and an arrow for each array that moved in this step. A tile
// that is on chip although nothing moved for it has stayed there since an earlier step.
struct Step {
  Walk walk;
  std::size_t number;  // in walk.order, from 0
  const Moves& run;
};
struct Sizes {
  int N, d, Br, Bc;
};
std::string one_step(const std::string& title, const Sizes& sizes, const std::vector<Step>& steps);

}  // namespace flash::svg
