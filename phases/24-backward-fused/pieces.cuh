// pieces.cuh: words of phase 24: the kernel in front, which no longer clears dQ_sum; what a block draws and loads; and
// the way of dQ from block to block.
// Use: row_pieces<T, D, Br><<<…>>>(a, pieces, relay);  one thread: load_shares(…);  others: pass_on(tiles, place, …);
#pragma once
#include "phases/23-backward-turns/pieces.cuh"
#include "phases/24-backward-fused/phase.hpp"

namespace flash::phase24::inline FLASH_MACHINE {

// #region block: what warpgroups have
constexpr int kOfConsumers = 3;  // a named barrier, for a share's end; 1 and 2 are store_tile's
// Registers per thread: the block is launched with 168 for each; 128 · (2 · 240 + 24) are no more than 384 · 168.
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;
// #endregion

// #region relay: blocks that pass dQ on
using phase23::PieceSums, phase23::any_extreme, phase23::gradients, phase23::init_handover, phase23::probabilities,
    phase23::publish;
// Blocks count: the shares that they have drawn, and of each Q tile those that are in dQ_sum.
struct Relay {
  unsigned* begun;
  unsigned* done;  // [B, H, padded rows / 64]: of a Q tile its first number
  bool in_order;   // do the shares of a Q tile come in the order of the keys? Sums then have the same bits in every run
};
// What a block does next. kv_tile: the number of its share of dQ, too, in Q tiles that see it, 0 for the first. With a
// window the first is that of the first K/V tile that a Q tile sees (phase 26). Q tiles are numbered as the variant
// says: where several heads meet the keys, those of a tile follow each other.
struct Share {
  unsigned number;          // as drawn
  KeyWork work;             // head < 0: there is no further one; else the first that meets the keys
  int h, b, first_piece;    // the head's
  QueryRange tiles;         // that see the keys, of all heads that meet them
  int rounded_end;          // Q tiles before that one see no further K/V tile: its share is the last
  const float* row_excess;  // of the head, in the first share, where rows of dS have other sums than 0
};
// What consumers ask of a share. With a window there is more to say (phase 26).
template <class Variant>
struct OfShare {
  __device__ static constexpr bool cuts(int) { return false; }  // the Q tile, on the side of later queries?
  template <int N>
  __device__ __forceinline__ static void hide(float (&p)[N], const int (&from)[2]) {
    hide_queries(p, from);
  }
  __device__ static int number(int tile) { return tile; }  // the Q tile's: the share may have a list (phase 28)
  __device__ static bool follows(const Share& share, int) { return share.work.kv_tile > 0; }      // others, of that dQ
  __device__ static bool ends(const Share& share, int tile) { return tile < share.rounded_end; }  // is it the last one?
  __device__ static const float* excess(const Share& share, int) { return share.row_excess; }
};
// A variant with lists (phase 28) has one of Q tiles for each K/V tile. Elsewhere a Q tile's number is its place.
template <class Variant>
__device__ __forceinline__ const int* list_of(const Share& share, const Variant& band) {
  return band.list_of_keys(share.b, share.h / band.group, share.work.kv_tile);
}
template <class Variant>
__device__ __forceinline__ int number_at(const Share& share, const Variant& band, int place) {
  if constexpr (Variant::skips) return list_of(share, band)[2 + 2 * place];
  return place;
}
// Twice the number of the share of that Q tile's dQ, 1 more for the last one.
template <class Variant>
__device__ __forceinline__ int rank_at(const Share& share, const Variant& band, int place) {
  return list_of(share, band)[3 + 2 * place];
}
// The number of a block's next share. A block waits only for shares with smaller numbers. Who has drawn those runs, and
// does them behind smaller ones only, in whatever order the GPU starts blocks. Where there are no Q tiles nobody waits,
// and the block's numbers before say enough: `in_turn` is the next one then.
template <class T>
__device__ unsigned draw(const Relay& relay, unsigned in_turn, const Backward<T>& a) {
  return a.rows > 0 ? atomicAdd(relay.begun, 1u) : in_turn;
}
// Of a Q tile its first piece of all heads' rows. member: which of the heads that meet the keys.
template <int Br, class T>
__device__ int first_piece(const Share& share, const Backward<T>& a, int tile, int member) {
  return share.first_piece + member * static_cast<int>(a.rows / 64) + tile * (Br / 64);
}
// In sections shares of a head begin one after another, and the first one of dQ has long been stored when the last one
// wants the sum. Is there a share of that number? Then it is about these keys.
template <int Bc, class T, class Variant>
__device__ bool find_keys(KeyWork& work, unsigned number, const Backward<T>& a, unsigned section, const Variant& band) {
  if constexpr (Variant::lengths) return band.find_kv_tile(work, number, a.H / band.group);
  const unsigned heads = a.B * (a.H / band.group), kv_tiles = (band.Sk + Bc - 1) / Bc;  // of K
  if (number >= heads * kv_tiles) return false;
  work = phase23::keys_in_sections(number, kv_tiles, heads, section);
  return true;
}
template <int Br, int Bc, class T, class Variant>
__device__ void find_share(Share& share, unsigned number, const Backward<T>& a, unsigned section,
                           const Variant& of_all) {
  share.number = number, share.work = {-1, 0};
  KeyWork work;
  if (!find_keys<Bc>(work, number, a, section, of_all)) return;
  work.head *= of_all.group;
  const auto& band = of_sequence(of_all, work.head, a.H);
  const int next_key = (work.kv_tile + 1) * Bc;
  share.work = work;
  share.h = work.head % a.H, share.b = work.head / a.H;
  share.first_piece = band.first_padded(work.head, a.H, static_cast<int>(a.rows / 64), 64);
  if constexpr (Variant::skips) {
    const int* const list = list_of(share, band);
    share.tiles = {0, list[1], list[0]};
  } else {
    const QueryRange tiles = query_range<Br, Bc>(next_key - Bc, band);
    share.tiles = {tiles.first * band.group, tiles.full * band.group, tiles.end * band.group};
    share.rounded_end = next_key < band.Sk ? query_range<Br, Bc>(next_key, band).first * band.group : 0x7fffffff;
  }
  share.row_excess = (Variant::windows || Variant::skips || work.kv_tile == 0) && a.dLSE
                         ? a.row_excess + band.first_padded(work.head, a.H, a.rows, 1)
                         : nullptr;
}
// #endregion

// #region centre: what dQ's keys are counted from, and what is found out about a head beside it
// Behind the centre: 1 where it matters, so that rows of dS are to be summed. Behind that, 1 where a row of the head is
// extreme, or of one that meets the same keys: elsewhere no tile need be asked. head: the first of those.
template <class T, int D, class Variant>
__device__ void look_at_head(const Backward<T>& a, const Variant& band, phase20::CentreSums<D, 256>& sums, int head) {
  const float* const m = (a.m ? a.m : a.LSE) + head * a.Q.rows;
  const float to_base_2 = a.m ? 1.0f : 1.4426950408889634f;
  const int rows = static_cast<int>(a.Q.rows) * band.group;
  bool extreme = false;  // -inf is not: such rows see no finite logit
#pragma unroll 8
  for (int row = threadIdx.x; row < rows; row += 256) extreme |= is_extreme(fabsf(m[band.row_among(row)] * to_base_2));
  extreme = __syncthreads_or(extreme);
  float* const centre = a.centre + head * std::int64_t{D + 4};
  const bool matters = phase20::find_centre<T, D>(a, band, head, sums, centre);
  if (threadIdx.x < 4) centre[D + threadIdx.x] = (threadIdx.x == 0 ? matters : extreme) ? 1.0f : 0.0f;
}
// #endregion

// #region row-pieces: as in phase 23, without what clears dQ_sum
// It sets the counts to 0, and dQ of Q tiles that see no key: no block comes to them.
template <class T, int D, int Br, class Variant>
__global__ void __launch_bounds__(256) row_pieces(Backward<T> a, RowPiece* pieces, Relay relay, Variant band) {
  constexpr int kLanes = D / 8, kRowsAtOnce = 256 / kLanes, kRounds = 64 / kRowsAtOnce;
  PieceSums<D>& sums = shared<PieceSums<D>>();
  const int pieces_of_head = static_cast<int>(a.rows / 64);
  int head = blockIdx.x / pieces_of_head;
  std::int64_t first = std::int64_t{blockIdx.x % pieces_of_head} * 64, padded = std::int64_t{blockIdx.x} * 64;
  int lane = threadIdx.x % kLanes, b = head / a.H, h = head % a.H;
  unsigned number = blockIdx.x;

  if (blockIdx.x < static_cast<unsigned>(a.B * a.H) && blockIdx.x % band.group == 0)  // a block for a head of K
    look_at_head<T, D>(alone<D>(a, band, blockIdx.x), of_sequence(band, blockIdx.x, a.H), sums.centre, blockIdx.x);
  if constexpr (Variant::lengths)
    if (!band.template enter_piece<D>(a, head, b, first, padded, number, relay.begun)) return;
  // All loads at once; zeros meanwhile.
  uint4 o[kRounds], dout[kRounds], low[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const std::int64_t row = first + i * kRowsAtOnce + threadIdx.x / kLanes;
    o[i] = phase23::load_eight(a.O.head(b, h), row, lane * 8);
    dout[i] = phase23::load_eight(a.dO.head(b, h), row, lane * 8);
    low[i] = a.O_lo.data ? phase23::load_eight(a.O_lo.head(b, h), row, lane * 8) : make_uint4(0, 0, 0, 0);
  }
  if (threadIdx.x == 0) relay.done[number] = 0;
  if (threadIdx.x == 0 && blockIdx.x == 0) *relay.begun = 0;
  const std::int64_t last_row = min((first / Br + 1) * Br, a.Q.rows) - 1;  // of the Q tile
  bool unseeing = a.band.end(last_row) == 0;
  if constexpr (Variant::windows) unseeing = a.band.seen(first / Br * Br, last_row).size() == 0;
  if constexpr (Variant::skips) unseeing = band.list_of_rows(b, h, static_cast<int>(first / Br))[0] == 0;
  if (unseeing) {
    const Head<T> dQ = a.dQ.head(b, h);
    for (int i = 0; i < kRounds; ++i) {
      const std::int64_t row = first + i * kRowsAtOnce + threadIdx.x / kLanes;
      auto* const to = reinterpret_cast<std::uint16_t*>(dQ.data) + row * dQ.stride + lane * 8;
      if (row < dQ.rows && lane * 8 < dQ.cols) store8(to, make_uint4(0, 0, 0, 0));
    }
  }
  // 64 threads have a row each for m, l and dLSE.
  const std::int64_t my_row = first + threadIdx.x, n = head * a.Q.rows + my_row;  // of the head; of all heads
  const bool exists = threadIdx.x < 64 && my_row < a.Q.rows;
  const float l = exists && a.l ? a.l[n] : 1.0f, dlse = exists && a.dLSE ? a.dLSE[n] : 0.0f;
  float m = !exists ? -INFINITY : a.m ? a.m[n] : a.LSE[n] * 1.4426950408889634f;
  if (m == -INFINITY) m = INFINITY;

#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    float sum = phase23::products<T>(o[i].x, dout[i].x, low[i].x) + phase23::products<T>(o[i].y, dout[i].y, low[i].y) +
                phase23::products<T>(o[i].z, dout[i].z, low[i].z) + phase23::products<T>(o[i].w, dout[i].w, low[i].w);
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane == 0) sums.delta[i * kRowsAtOnce + threadIdx.x / kLanes] = sum;
  }
  const bool extreme = __syncthreads_or(is_extreme(m));  // and the sums are there
  if (threadIdx.x >= 64) return;
  RowPiece& piece = pieces[number];
  piece.base[threadIdx.x] = m == INFINITY ? m : (extreme ? 0.0f : m) + log2f(l);
  piece.delta[threadIdx.x] = sums.delta[threadIdx.x] - dlse;
  if (threadIdx.x == 0) piece.extreme = extreme, piece.number = static_cast<int>(number);
  a.row_m[padded + threadIdx.x] = m;
  a.row_excess[padded + threadIdx.x] = m == INFINITY ? 0.0f : -dlse;
}
// #endregion

// #region load-shares: one thread draws what the block does, and loads it
// K and V of a share, and the centre; where no Q tile sees the keys, nothing. `parity`: of the number of shares before.
template <class Tiles, class Variant>
__device__ void load_keys(Tiles& tiles, const Share& share, const Variant& band, const TensorMap* K_map,
                          const TensorMap* V_map, const float* centre, int parity) {
  constexpr unsigned kCentre = sizeof tiles.centre;
  const auto load = [&](auto& keys, Ring<1>& ring, const TensorMap* map, unsigned more) {
    ring.wait_empty({0, static_cast<unsigned>(parity)});
    if (share.tiles.end <= share.tiles.first) return mbarrier_arrive(ring.full);
    mbarrier_arrive_expect_tx(ring.full, sizeof keys + more);
    int key = share.work.kv_tile * static_cast<int>(sizeof keys / sizeof keys[0]) * 64;
#pragma unroll 1
    for (auto& of_warpgroup : keys) {
      load_tile(of_warpgroup, map, ring.full, band.keys_at(key, share.h / band.group, share.b));
      key += 64;
    }
  };
  load(tiles.K, tiles.K_ring, K_map, kCentre);
  if (share.tiles.end > share.tiles.first)
    cp_async_bulk(tiles.centre, centre + share.work.head * std::int64_t{kCentre / 4}, kCentre, tiles.K_ring.full);
  load(tiles.V, tiles.V_ring, V_map, 0);
}
// Share after share. While the consumers finish one, the first Q tiles of the next one come; its K and V when dK and dV
// have left their places.
template <int Br, int Bc, class Tiles, class T, class Variant>
__device__ __forceinline__ void load_shares(Tiles& tiles, const TensorMap* Q_map, const TensorMap* dO_map,
                                            const TensorMap* K_map, const TensorMap* V_map, const Backward<T>& a,
                                            const RowPiece* pieces, const Variant& band, unsigned section,
                                            const Relay& relay) {
  Cursor<Tiles::kStages> at;
  tiles.shares[0].number = blockIdx.x - 2 * gridDim.x, tiles.shares[1].number = blockIdx.x - gridDim.x;
#pragma unroll 1
  for (unsigned count = 0;; ++count) {
    const Cursor<2> to{static_cast<int>(count % 2), count / 2 % 2};
    tiles.share_ring.wait_empty(to);
    Share& share = tiles.shares[to.stage];
    find_share<Br, Bc>(share, draw(relay, share.number + 2 * gridDim.x, a), a, section, band);
    mbarrier_arrive(&tiles.share_ring.full[to.stage]);
    if (share.work.head < 0) return;
#pragma unroll 1
    for (int n = share.tiles.end - 1; n >= share.tiles.first; --n, at.next()) {
      const int number = number_at(share, band, n), tile = band.tile_of(number), member = band.member_of(number);
      std::uint64_t* const full = &tiles.Q_ring.full[at.stage];
      tiles.Q_ring.wait_empty(at);
      mbarrier_arrive_expect_tx(full, sizeof tiles.Q[0] + sizeof tiles.rows[0]);
      load_tile(tiles.Q[at.stage], Q_map, full, band.rows_at(tile * Br, share.h + member, share.b));
      cp_async_bulk(tiles.rows[at.stage], pieces + first_piece<Br>(share, a, tile, member), sizeof tiles.rows[0], full);
      tiles.dO_ring.fill(tiles.dO, at, dO_map, band.rows_at(tile * Br, share.h + member, share.b));
      if (n == max(share.tiles.end - Tiles::kStages, share.tiles.first))
        load_keys(tiles, share, band, K_map, V_map, a.centre, to.stage);
    }
    if (share.tiles.end <= share.tiles.first) load_keys(tiles, share, band, K_map, V_map, a.centre, to.stage);
  }
}
// #endregion

// #region pass-on: one thread for each of the places that dQ leaves through
// What the thread does about every kPlaces-th tile of dQ, share after share: gives the place to the consumers when it
// is free, with the sum of the others' shares in it where theirs is the last one; and when their numbers are there,
// sends them on. A share's numbers are read where they are needed: the thread has few registers.
template <int Br, class Tiles, class T, class Variant>
__device__ __forceinline__ void pass_on(Tiles& tiles, int place, const Backward<T>& a, const Variant& band,
                                        const Relay& relay, const TensorMap* dQ_map) {
  constexpr int kPlaces = Tiles::kStages, kColumns = sizeof tiles.dQ[0] / sizeof(float) / Br;
  auto& dQ = tiles.dQ[place];
  std::uint64_t* const empty = &tiles.dQ_ring.empty[place];
  int skip = place;  // of the share's Q tiles, which go through the places in turn
  unsigned parity = 0;
#pragma unroll 1
  for (Cursor<2> to;; to.next()) {
    tiles.share_ring.wait_full(to);
    const Share& share = tiles.shares[to.stage];
    if (share.work.head < 0) break;
    const auto its = [&]() -> decltype(auto) { return of_sequence(band, share.work.head, a.H); };
    const auto takes_sum = [&](int n) {
      if constexpr (Variant::windows)
        if (share.work.kv_tile == its().begin(band.tile_of(n) * Br) / Tiles::kKeys) return false;
      if constexpr (Variant::skips) {
        const int rank = rank_at(share, band, n);
        return rank % 2 == 1 && rank > 1;
      }
      return share.work.kv_tile > 0 && n < share.rounded_end;
    };
    int n = max(share.tiles.end, share.tiles.first) - 1 - skip;
    if (n >= share.tiles.first && !takes_sum(n)) mbarrier_arrive(empty);
#pragma unroll 1
    for (; n >= share.tiles.first; n -= kPlaces, parity ^= 1) {
      const int number = number_at(share, band, n), tile = band.tile_of(number), member = band.member_of(number);
      const int piece = first_piece<Br>(share, a, tile, member);
      unsigned* const done = relay.done + piece;
      float* const sum = a.dQ_sum + std::int64_t{piece} * 64 * kColumns;
      bool rounded = n < share.rounded_end;
      int kv_tile = share.work.kv_tile;  // with windows or lists: the number of the share
      if constexpr (Variant::windows) kv_tile -= its().begin(tile * Br) / Tiles::kKeys;
      if constexpr (Variant::skips) {
        const int rank = rank_at(share, band, n);
        kv_tile = rank / 2, rounded = rank % 2 == 1;
      }
      // The first share has been stored; in order: those before this one are there; to be rounded: all others.
      if (kv_tile > 0) {
        wait_at_least(done, rounded || relay.in_order ? kv_tile : 1);
        fence_proxy_async_global();  // TMA is to see what TMA has written for other blocks
      }
      if (takes_sum(n)) {
        mbarrier_arrive_expect_tx(empty, sizeof dQ);
        cp_async_bulk(&dQ, sum, sizeof dQ, empty);
      }
      mbarrier_wait(&tiles.dQ_ring.full[place], parity);
      if (rounded) {
#pragma unroll 1
        for (int i = 0; i < Br; i += 16)
#pragma unroll 1
          for (int panel = 0; panel < kColumns / 64; ++panel)
            store_box<16>(dQ_map, &dQ[i / 16][panel * 4][0], 64 * panel,
                          band.rows_at(tile * Br + i, share.h + member, share.b));
      } else if (kv_tile > 0) {
        cp_reduce_async_bulk_add(sum, &dQ[0][0][0].x, sizeof dQ);
      } else {
        cp_async_bulk_store(sum, &dQ[0][0][0].x, sizeof dQ);
      }
      cp_async_bulk_commit();
      cp_async_bulk_wait_read<0>();
      // The place has been read.
      if (n - kPlaces >= share.tiles.first && !takes_sum(n - kPlaces)) mbarrier_arrive(empty);
      if (!rounded) {
        cp_async_bulk_wait<0>();  // not only read: the share is in dQ_sum
        red_release_add(done, 1);
      }
    }
    skip = share.tiles.first - 1 - n;
    tiles.share_ring.release(to);
  }
}
// #endregion

}  // namespace flash::phase24::inline FLASH_MACHINE
