// lengths.cuh: the variant of sequences with lengths of their own: where a sequence's rows and keys lie, what its mask
// is, and which tile a block has. A head is one of a sequence: number n · H + h, whatever the tensors' batch is.
// Use: attention.cuh and mma.cuh, which give it to the kernels of earlier phases; boxes.cuh is TMA's part.
#pragma once
#include "phases/25-grouped-heads/grouped.cuh"
#include "phases/26-windows/windowed.cuh"
#include "phases/27-lengths/sequences.cuh"

namespace flash::inline FLASH_MACHINE {

// #region place: where it is, and how far it goes
// `left` rows from there on are the sequence's, and there may be none.
template <class Int>
struct CutPlaceOf {
  Int row;
  int h, b;
  Int left;
  __device__ CutPlaceOf operator+(Int rows) const { return {row + rows, h, b, left - rows}; }
};
// #endregion

// #region variant
// Base: what else is asked for. Sq, Sk and the mask of a variant that of() has not given are those of no sequence.
template <class Base>
struct OfSequences : Base {
  using Int = decltype(Base::Sq);
  static constexpr bool lengths = true;
  Found<Int> found;
  int my_tile = 0;  // of keys, where a block has one (phase 20)

  __device__ const SequenceOf<Int>& sequence(int n) const { return found.sequences[n]; }
  __device__ OfSequences of(int head, int H) const {
    OfSequences its = *this;
    static_cast<Band<Int>&>(its) = sequence(head / H).band;
    return its;
  }
  // Head h of sequence n. Keys that no row sees are as if they were not there (seen_keys). Rows of batch entries are
  // rows of one tensor, which TMA counts (cut_map_of); who asks for the entry adds nothing (found.entry is 0).
  __device__ CutPlaceOf<Int> place(Int i, int h, int b, Int first, Int end) const {
    return {i < end ? first + i : 0, h, b, end - i};
  }
  __device__ CutPlaceOf<Int> rows_at(Int i, int h, int n) const {
    const SequenceOf<Int>& s = sequence(n);
    return place(i, h, s.b, s.first_row + s.b * found.entry_rows, s.band.Sq);
  }
  __device__ CutPlaceOf<Int> keys_at(Int j, int h, int n) const {
    const SequenceOf<Int>& s = sequence(n);
    return place(j, h, s.b, s.first_key + s.b * found.entry_keys, s.seen());
  }
  __device__ CutPlaceOf<Int> all_keys_at(Int j, int h, int n) const {
    const SequenceOf<Int>& s = sequence(n);
    return place(j, h, s.b, s.first_key + s.b * found.entry_keys, s.band.Sk);
  }
  __device__ CutPlaceOf<Int> rows(int head, int H, Int i) const { return rows_at(i, head % H, head / H); }
  __device__ CutPlaceOf<Int> keys(int head, int H, Int j) const {
    return keys_at(j, Base::keys(head, H, j).h, head / H);
  }
  // #endregion

  // #region padded: numbers of rows, whole tiles of them for each sequence
  // Where those of sequence n begin in a head's: first_row / 128 + n tiles from the beginning. Sequence n + 1 begins
  // first_row' / 128 + n + 1 tiles from there, and first_row' >= first_row + Sq: the tiles of n end before it.
  static constexpr Int kTile = 128;
  __device__ std::int64_t padded_row(int n) const {
    const Int tiles_of_entry = (found.all_rows + kTile - 1) / kTile;
    return (found.packed ? sequence(n).first_row / kTile + n : n * std::int64_t{tiles_of_entry}) * kTile;
  }
  template <class Count>
  __device__ Count first_padded(int head, int H, Count rows, int of) const {
    return head % H * rows + static_cast<Count>(padded_row(head / H) / of);
  }
  __device__ int row_among(int row) const {
    const int rows = static_cast<int>(this->Sq);
    return row / rows * static_cast<int>(found.all_rows) + row % rows;
  }
  // #endregion

  // #region lists: which tile has a number
  // Heads in sections, of each tile after tile, each in all heads of the section.
  struct HeadAndTile {
    int head, tile;
  };
  static __device__ HeadAndTile in_sections(unsigned number, unsigned tiles, unsigned heads, unsigned section) {
    const unsigned first = number / (section * tiles) * section, rank = number - first * tiles;
    const unsigned width = min(section, heads - first);
    return {static_cast<int>(first + rank % width), static_cast<int>(rank / width)};
  }
  // In a list each tile has as many numbers as there are heads; those of a sequence come one behind the other.
  static __device__ unsigned in_sequence(const Tile& tile, unsigned number, unsigned heads) {
    return number - (number / heads - tile.number) * heads;
  }
  // Tiles of rows: of a section's the last ones first, which see the most keys.
  template <class Work>
  struct RowTiles {
    const OfSequences& band;
    unsigned heads;
    __device__ unsigned tiles() const { return band.found.counts[0] * heads; }
    __device__ Work at(unsigned number) const {
      const Tile tile = band.found.row_tiles[number / heads];
      const SequenceOf<Int>& s = band.sequence(tile.sequence);
      const unsigned tiles = static_cast<unsigned>((s.band.Sq + band.found.Br - 1) / band.found.Br);
      const HeadAndTile at = in_sections(in_sequence(tile, number, heads), tiles, heads, s.row_section);
      return {tile.sequence * static_cast<int>(heads) + at.head, static_cast<int>(tiles) - 1 - at.tile};
    }
  };
  template <class Work>
  __device__ RowTiles<Work> row_tiles_of(unsigned heads) const {
    return {*this, heads};
  }
  // Tiles of keys: the first ones first, since dQ is passed on in the order of the keys. false: no tile has the number.
  template <class Work>
  __device__ bool find_kv_tile(Work& work, unsigned number, unsigned heads) const {
    if (number >= found.counts[1] * heads) return false;
    const Tile tile = found.key_tiles[number / heads];
    const SequenceOf<Int>& s = sequence(tile.sequence);
    const unsigned tiles = static_cast<unsigned>((s.band.Sk + found.Bc - 1) / found.Bc);
    const HeadAndTile at = in_sections(in_sequence(tile, number, heads), tiles, heads, s.key_section);
    work = {tile.sequence * static_cast<int>(heads) + at.head, at.tile};
    return true;
  }
  // #endregion

  // #region alone: arguments as if a sequence were all there is
  // The formulas of phases 13, 20 and 24 stay right: rows and keys of all heads begin with the sequence's; a number of
  // row i is at head · Sq + i, a padded one at head · (padded rows) + i.
  template <class T>
  static __device__ void move(Heads<T>& x, int b, Int first, Int rows) {
    if (x.data) x.data += b * x.b_stride + first * x.stride;
    x.b_stride = 0, x.rows = rows;
  }
  template <class T>
  static __device__ void move(T*& numbers, std::int64_t by) {
    if (numbers) numbers += by;
  }
  __device__ std::int64_t numbers_of(int head, int H, const SequenceOf<Int>& s) const {
    return (s.b * std::int64_t{H} + head % H) * found.all_rows + s.first_row - std::int64_t{head} * s.band.Sq;
  }
  // What leaves a forward pass.
  template <class Outputs>
  __device__ Outputs outputs_alone(Outputs out, int head, int H) const {
    const SequenceOf<Int>& s = sequence(head / H);
    move(out.O, s.b, s.first_row, s.band.Sq), move(out.O_wide, s.b, s.first_row, s.band.Sq);
    move(out.O_lo, s.b, s.first_row, s.band.Sq);
    const std::int64_t by = numbers_of(head, H, s);
    move(out.LSE, by), move(out.m, by), move(out.l, by);
    return out;
  }
  // The arguments of a backward pass.
  template <int D, class Arguments>
  __device__ Arguments alone(Arguments a, int head) const {
    const SequenceOf<Int>& s = sequence(head / a.H);
    const auto rows = [&](auto& x) { move(x, s.b, s.first_row, s.band.Sq); };
    const auto keys = [&](auto& x) { move(x, s.b, s.first_key, s.band.Sk); };
    rows(a.Q), rows(a.O), rows(a.dO), rows(a.O_lo), rows(a.dQ), keys(a.K), keys(a.V), keys(a.dK), keys(a.dV);
    const std::int64_t by = numbers_of(head, a.H, s);
    move(a.LSE, by), move(a.dLSE, by), move(a.m, by), move(a.l, by);
    const std::int64_t padded = first_padded(head, a.H, a.rows, 1) - head * a.rows;
    move(a.row_m, padded), move(a.row_inverse_l, padded), move(a.row_delta, padded), move(a.row_excess, padded);
    move(a.dQ_sum, padded * D);
    a.band.left = s.band.left, a.band.right = s.band.right, a.band.Sq = s.band.Sq, a.band.Sk = s.band.Sk;
    return a;
  }
  // #endregion

  // #region enter: which tile the block has
  // Phase 13's: a number of the list of tiles; false: there is none. (The block's variant is this one.)
  template <class T, class Outputs>
  __device__ bool enter_rows(Heads<const T>& Q, Heads<const T>& K, Heads<const T>& V, Outputs& out, unsigned& head,
                             unsigned& q_tile, int H) {
    const RowTiles<HeadAndTile> list{*this, static_cast<unsigned>(H)};
    const unsigned number = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (number >= list.tiles()) return false;
    const HeadAndTile at = list.at(number);
    head = at.head, q_tile = at.tile;
    const SequenceOf<Int>& s = sequence(at.head / H);
    move(Q, s.b, s.first_row, s.band.Sq), move(K, s.b, s.first_key, s.band.Sk), move(V, s.b, s.first_key, s.band.Sk);
    out = outputs_alone(out, at.head, H);
    *this = of(at.head, H);
    return true;
  }
  // Phase 20's, whose `a` has this variant. `row` of the tensor's head `head` is one of the listed tiles', and becomes
  // that of a sequence's head.
  template <int D, class Arguments>
  static __device__ bool enter_rows(Arguments& a, std::int64_t& head, std::int64_t& row) {
    if (row / kTile >= a.band.found.counts[0] || head >= a.H) return false;
    const Tile tile = a.band.found.row_tiles[row / kTile];
    head += std::int64_t{tile.sequence} * a.H, row = tile.number * std::int64_t{kTile} + row % kTile;
    a = a.band.template alone<D>(a, static_cast<int>(head));
    return true;
  }
  // `head` is one of the tensor K.
  template <int D, class Arguments>
  static __device__ bool enter_keys(Arguments& a, std::int64_t& head) {
    const int heads = a.H / a.band.group;
    if (static_cast<int>(blockIdx.x) >= a.band.found.counts[1] || head >= heads) return false;
    const Tile tile = a.band.found.key_tiles[blockIdx.x];
    head += std::int64_t{tile.sequence} * heads;
    a = a.band.template alone<D>(a, tile.sequence * a.H);
    a.band.my_tile = tile.number;
    return true;
  }
  __device__ int kv_tile() const { return my_tile; }
  // Phase 24's: 64 rows. `number`: of the piece among all. Where no sequence has rows blocks draw shares all the same.
  template <int D, class Arguments>
  __device__ bool enter_piece(Arguments& a, int& head, int& b, std::int64_t& first, std::int64_t& padded,
                              unsigned& number, unsigned* begun) const {
    if (threadIdx.x == 0 && blockIdx.x == 0) *begun = 0;
    if (first / kTile >= found.counts[0]) return false;
    const Tile tile = found.row_tiles[first / kTile];
    b = tile.sequence, head += b * a.H, first = tile.number * std::int64_t{kTile} + first % kTile;
    number = static_cast<unsigned>((first_padded(head, a.H, a.rows, 1) + first) / 64);
    padded = head * a.rows + first;
    a = alone<D>(a, head);
    return true;
  }
  // #endregion

  // #region variant-of: the host's side
  // Of a problem whose sequences have been found: with_sequences.
  template <class T>
  static OfSequences of(const DeviceProblem<T>& p) {
    return {Base::of(p), *static_cast<const Found<Int>*>(p.found)};
  }
};
// #endregion

}  // namespace flash::inline FLASH_MACHINE
