// Phase 30: attention over a sequence that lies on several ranks (Liu, Zaharia, Abbeel, "Ring Attention with Blockwise
// Transformers", arXiv:2310.01889). Q and O stay, K and V go round the ring, and each step is one ordinary call.
// Use: ring_forward(comm, split, mine, call);  ring_backward(comm, split, mine, call);  on each rank
#pragma once
#include "phases/30-ring/comm.hpp"
#include "phases/interface/phase.hpp"
#include "phases/ring/rows.hpp"

namespace flash::phase30 {

// #region call
// What computes a piece: any phase on any machine. It leaves O in fp32: nothing is rounded before it is merged.
struct Call {
  const Phase& phase;
  Where where = Where::Sim;
  MachineOptions machine = {};

  void operator()(const AnyProblem& p) const { enter(phase, p, where, machine); }
};
// #endregion

// #region merge
// Rows whose keys come a set at a time (phase 02's rule): each set leaves O, and m and l in base 2, or LSE, which is m
// of a set whose l is 1. Its O has the weight l · 2^(m - top). The division comes at the end, once. Weights are counted
// in l of the row's first set that counts, so that sets of equal weight, and a set alone, lose nothing.
struct Merged {
  Array o;                            // [B, H, rows, Dv], fp32: Σ weight · O
  std::vector<float> top, sum, unit;  // [B, H, rows]: the largest m so far; Σ weight; l of that set

  explicit Merged(const Shape& s)
      : o(Type::Float32, {s.B, s.H, s.Sq, s.Dv}),
        top(static_cast<std::size_t>(s.B * s.H * s.Sq), -definition::infinity),
        sum(top.size()),
        unit(top.size()) {}

  void add(std::int64_t number, float m, float l, const float* part) {
    if (l == 0) return;  // it saw none of these keys
    const auto row = static_cast<std::size_t>(number);
    const float m_new = std::max(top[row], m), keep = std::exp2(top[row] - m_new);
    if (keep * sum[row] == 0) unit[row] = l;  // nothing is left of the sets before
    const float weight = l / unit[row] * std::exp2(m - m_new);
    float* acc = o.numbers() + number * o.shape[3];
    for (std::int64_t d = 0; d < o.shape[3]; ++d) acc[d] = keep * acc[d] + weight * part[d];
    top[row] = m_new, sum[row] = keep * sum[row] + weight;
  }
  // O, LSE and what a backward pass needs, into the arrays of `mine`. A row that saw nothing: O = 0, LSE = -inf.
  void finish(const AnyProblem& mine) {
    for (std::size_t row = 0; row < top.size(); ++row) {
      float* acc = o.numbers() + static_cast<std::int64_t>(row) * o.shape[3];
      for (std::int64_t d = 0; d < o.shape[3] && sum[row] != 0; ++d) acc[d] /= sum[row];
      const float l = sum[row] * unit[row];
      if (mine.lse.given())
        static_cast<float*>(mine.lse.data)[row] =
            l == 0 ? -definition::infinity : top[row] * 0.693147181f + std::log(l);
      if (mine.m.given()) static_cast<float*>(mine.m.data)[row] = top[row], static_cast<float*>(mine.l.data)[row] = l;
    }
    copy(o.view(), Type::Float32, mine.o, mine.out, mine.o_lo);
  }
};
// #endregion

// #region block
// What travels: the keys of one rank, in their own type, and in the backward pass what was summed for them so far.
struct Block {
  std::array<std::int64_t, 4> k_shape{}, v_shape{};
  Type type = Type::Float32;
  std::size_t gradients = 0;  // bytes of dK and dV, fp32, which lie before K and V
  std::vector<std::byte> bytes;

  Block() = default;
  Block(const AnyProblem& mine, std::int64_t keys, bool with_gradients)
      : k_shape{mine.B(), mine.k.H(), keys, mine.D()}, v_shape{mine.B(), mine.k.H(), keys, mine.Dv()}, type(mine.type) {
    const auto numbers = static_cast<std::size_t>(elements(k_shape) + elements(v_shape));
    gradients = with_gradients ? numbers * 4 : 0;
    bytes.resize(gradients + numbers * static_cast<std::size_t>(bytes_of(type)));
  }
  AnyView k() { return at(gradients, k_shape); }
  AnyView v() { return at(gradients + static_cast<std::size_t>(elements(k_shape) * bytes_of(type)), v_shape); }
  AnyView dk() { return at(0, k_shape); }
  AnyView dv() { return at(static_cast<std::size_t>(elements(k_shape)) * 4, v_shape); }
  std::span<std::byte> all() { return bytes; }
  std::span<std::byte> sums() { return all().first(gradients); }

 private:
  static std::int64_t elements(const std::array<std::int64_t, 4>& s) { return s[0] * s[1] * s[2] * s[3]; }
  AnyView at(std::size_t offset, const std::array<std::int64_t, 4>& shape) {
    return any_of(dense_view(static_cast<void*>(bytes.data() + offset), shape));
  }
};
// #endregion

// #region forward
// O and LSE of this rank's rows. `mine`: its rows of Q, O, LSE, m, l and O_lo, its keys of K and V, and the options.
inline void ring_forward(Comm& comm, const Split& split, const AnyProblem& mine, const Call& call) {
  const int n = comm.size, next = (comm.rank + 1) % n, before = (comm.rank + n - 1) % n;
  const Shape s = mine.shape();
  Merged merged(s);
  Block here(mine, s.Sk, false), coming;
  const Withdraws at_an_error{comm};
  copy(mine.k, mine.type, here.k(), mine.type), copy(mine.v, mine.type, here.v(), mine.type);
  for (int step = 0; step < n; ++step) {
    const int whose = (comm.rank - step + n) % n;
    if (step + 1 < n) {  // the next block travels while this one is used
      coming = Block(mine, split.keys((whose + n - 1) % n).size(), false);
      comm.begin(next, here.all(), before, coming.all());
    }
    if (const Section p = split.section(comm.rank, whose); !p.empty()) {
      const std::array<std::int64_t, 4> numbers = {s.B, s.H, p.rows, 1};
      Array o(Type::Float32, {s.B, s.H, p.rows, s.Dv}), m(Type::Float32, numbers), l(m), lse(m);
      AnyProblem part;
      part.type = mine.type, part.options = mine.options;
      part.options.mask = p.mask, part.options.ring = {}, part.options.scale = mine.scale();
      part.q = rows_of(mine.q, mine.type, p.q0, p.rows);
      part.k = rows_of(here.k(), mine.type, p.k0, p.keys), part.v = rows_of(here.v(), mine.type, p.k0, p.keys);
      part.o = o.view(), part.out = Type::Float32;
      const bool kept = call.phase.forward->features.meets(Demand::Kept);
      if (kept)
        part.m = m.view(), part.l = l.view();
      else
        part.lse = lse.view();
      call(part);
      for (std::int64_t r = 0; r < s.B * s.H * p.rows; ++r) {
        const float top = kept ? m.numbers()[r] : lse.numbers()[r] * definition::log2_e;
        const float sum = kept ? l.numbers()[r] : top != -definition::infinity;
        merged.add(r / p.rows * s.Sq + p.q0 + r % p.rows, top, sum, o.numbers() + r * s.Dv);
      }
    }
    if (step + 1 == n) break;
    comm.wait("step " + std::to_string(step));
    std::swap(here, coming);
  }
  merged.finish(mine);
}
// #endregion

// #region backward
// dQ of this rank's rows, dK and dV of its keys. Each call gets the final O and LSE, so that its P and its δ are those
// of the whole row. dK and dV travel with their keys, in fp32, and one hop further, home. A phase that takes fp32 gets
// all in fp32: what it leaves is not rounded before it is added.
inline void ring_backward(Comm& comm, const Split& split, const AnyProblem& mine, const Call& call) {
  const int n = comm.size, next = (comm.rank + 1) % n, before = (comm.rank + n - 1) % n;
  const Shape s = mine.shape();
  const bool wide = pass_of(call.phase, Direction::Backward).features.types.contains(Type::Float32);
  const Type type = wide ? Type::Float32 : mine.type;
  Array q(mine.q, mine.type, type), dout(mine.dout, mine.type, type), dq(Type::Float32, mine.q.shape), o;
  if (wide) o = Array(mine.o, mine.out, type, mine.o_lo);
  Block here(mine, s.Sk, true), coming;
  const Withdraws at_an_error{comm};
  copy(mine.k, mine.type, here.k(), mine.type), copy(mine.v, mine.type, here.v(), mine.type);
  for (int step = 0; step < n; ++step) {
    const int whose = (comm.rank - step + n) % n;
    if (const Section p = split.section(comm.rank, whose); !p.empty()) {
      const auto rows = [&](const AnyView& view, Type of) { return rows_of(view, of, p.q0, p.rows); };
      Array k(rows_of(here.k(), mine.type, p.k0, p.keys), mine.type, type);
      Array v(rows_of(here.v(), mine.type, p.k0, p.keys), mine.type, type);
      Array part_q(type, {s.B, s.H, p.rows, s.D}), part_k(type, k.shape), part_v(type, v.shape);
      AnyProblem part;
      part.direction = Direction::Backward, part.type = type, part.out = wide ? type : mine.out;
      part.options = mine.options;
      part.options.mask = p.mask, part.options.ring = {}, part.options.scale = mine.scale();
      part.q = rows(q.view(), type), part.dout = rows(dout.view(), type), part.k = k.view(), part.v = v.view();
      part.o = wide ? rows(o.view(), type) : rows(mine.o, mine.out);
      if (!wide && mine.o_lo.given()) part.o_lo = rows(mine.o_lo, Type::Int16);
      // A number for each row: dense, as a call wants it.
      std::vector<Array> numbers;
      for (const auto array : {&AnyProblem::lse, &AnyProblem::m, &AnyProblem::l, &AnyProblem::dlse}) {
        if (!(mine.*array).given()) continue;
        numbers.emplace_back(rows(mine.*array, Type::Float32), Type::Float32, Type::Float32);
        part.*array = numbers.back().view();
      }
      part.dq = part_q.view(), part.dk = part_k.view(), part.dv = part_v.view();
      call(part);
      add(part_q, rows(dq.view(), Type::Float32));
      add(part_k, rows_of(here.dk(), Type::Float32, p.k0, p.keys));
      add(part_v, rows_of(here.dv(), Type::Float32, p.k0, p.keys));
    }
    if (n == 1) break;
    const bool home = step + 1 == n;
    coming = Block(mine, split.keys((whose + n - 1) % n).size(), true);
    comm.begin(next, home ? here.sums() : here.all(), before, home ? coming.sums() : coming.all());
    comm.wait("step " + std::to_string(step) + " of the backward pass");
    std::swap(here, coming);
  }
  copy(dq.view(), Type::Float32, mine.dq, mine.type);
  copy(here.dk(), Type::Float32, mine.dk, mine.type), copy(here.dv(), Type::Float32, mine.dv, mine.type);
}
// #endregion

// #region bytes
// What all ranks together send: each block of keys makes n - 1 hops. In the backward pass dK and dV are with it, in
// fp32, and go home alone.
inline std::uint64_t bytes_sent(const AnyProblem& whole, int ranks) {
  const Shape s = whole.shape();
  const std::int64_t numbers = s.B * s.Hk * s.Sk * (s.D + s.Dv), hops = ranks - 1;
  const std::int64_t home = ranks > 1 ? 4 * numbers : 0;
  return static_cast<std::uint64_t>(numbers * hops * (bytes_of(whole.type) + (whole.backward() ? 4 : 0)) +
                                    (whole.backward() ? home : 0));
}
// #endregion

}  // namespace flash::phase30
