// Phase 30: attention over a sequence that lies on several ranks (Liu, Zaharia, Abbeel, "Ring Attention with Blockwise
// Transformers", arXiv:2310.01889). Q and O stay, K and V go round the ring, and each step is one ordinary call.
// Use: ring_forward(comm, split, mine, worker);  ring_backward(comm, split, mine, worker);  on each rank
#pragma once
#include "phases/30-ring/comm.hpp"
#include "phases/interface/operands.hpp"
#include "phases/ring/host.hpp"

namespace flash::phase30 {

// #region block
// K and V of one rank, dense, in the memory of whoever has them now; a rank's own may be where they lie.
struct Keys {
  AnyView k, v;
  std::array<Dense, 2> memory;

  // This rank's own; copied where they are not dense.
  Keys(const Worker& worker, const AnyProblem& mine) : k(mine.k), v(mine.v) {
    for (AnyView* view : {&k, &v}) {
      if (view->data && view->stride == dense_strides(view->shape)) continue;
      const Dense& copy = memory[view == &v] = worker.dense(mine.type, view->shape);
      worker.copy(*view, mine.type, copy.view(), mine.type);
      *view = copy.view();
    }
  }
  // Room for so many that come.
  Keys(const Worker& worker, const AnyProblem& mine, std::int64_t count)
      : memory{worker.dense(mine.type, {mine.B(), mine.k.H(), count, mine.D()}),
               worker.dense(mine.type, {mine.B(), mine.k.H(), count, mine.Dv()})} {
    k = memory[0].view(), v = memory[1].view();
  }
};

// What this rank sends in a step, and what comes to it: dense arrays, one message for each rank.
struct Exchange {
  std::vector<Outgoing> out;
  std::vector<Incoming> in;

  void send(int to, const AnyView& array, Type type) {
    for (Outgoing& message : out)
      if (message.to == to) return message.pieces.push_back(bytes(array, type));
    out.push_back({to, {bytes(array, type)}});
  }
  void receive(int from, const AnyView& array, Type type) {
    for (Incoming& message : in)
      if (message.from == from) return message.pieces.push_back(bytes(array, type));
    in.push_back({from, {bytes(array, type)}});
  }
  void begin(Comm& comm) const {
    if (!out.empty()) comm.begin(out, in);
  }
  void wait(Comm& comm, const std::string& step, const Worker& worker) const {
    if (out.empty()) return;
    comm.wait(step);
    for (const Incoming& message : in)
      for (const Room& room : message.pieces) worker.arrived(room);
  }
  // To the next rank, and from the one before.
  void pass_on(const Comm& comm, const Keys& here, const Keys& coming, Type type) {
    const int next = (comm.rank + 1) % comm.size, before = (comm.rank + comm.size - 1) % comm.size;
    send(next, here.k, type), send(next, here.v, type);
    receive(before, coming.k, type), receive(before, coming.v, type);
  }

 private:
  static Room bytes(const AnyView& dense, Type type) {
    return {static_cast<std::byte*>(dense.data), static_cast<std::size_t>(dense.elements() * bytes_of(type))};
  }
};
// #endregion

// #region forward
// O and LSE of this rank's rows. `mine`: its rows of Q, O, LSE, m, l and O_lo, its keys of K and V, and the options.
inline void ring_forward(Comm& comm, const Split& split, const AnyProblem& mine, const Worker& worker) {
  const int n = comm.size;
  const Shape s = mine.shape();
  const Merged merged = worker.nothing(s);
  // m and l say what LSE says, and a little better; on tensor cores they cost a tenth of the call.
  const Features& can = worker.phase.forward->features;
  const bool kept = can.meets(Demand::Kept) && (mine.m.given() || !can.tensor_cores);
  std::optional<Keys> here(std::in_place, worker, mine), coming;
  std::optional<Set> set;
  const Withdraws at_an_error{comm};
  for (int step = 0; step < n; ++step) {
    const int whose = (comm.rank - step + n) % n;
    set.reset();
    Exchange exchange;
    if (step + 1 < n) {  // the next keys travel while these are used
      coming.emplace(worker, mine, split.keys((whose + n - 1) % n).size());
      exchange.pass_on(comm, *here, *coming, mine.type);
    }
    exchange.begin(comm);
    if (const Section p = split.section(comm.rank, whose); !p.empty()) {
      const std::array<std::int64_t, 4> numbers = {s.B, s.H, p.rows, 1};
      set.emplace().first = p.q0;
      set->o = step == 0 && p.rows == s.Sq ? merged.o : worker.dense(Type::Float32, {s.B, s.H, p.rows, s.Dv});
      AnyProblem part;
      part.type = mine.type, part.options = mine.options;
      part.options.mask = p.mask, part.options.ring = {}, part.options.scale = mine.scale();
      part.q = rows_of(mine.q, mine.type, p.q0, p.rows);
      part.k = rows_of(here->k, mine.type, p.k0, p.keys), part.v = rows_of(here->v, mine.type, p.k0, p.keys);
      part.o = set->o.view(), part.out = Type::Float32;
      if (kept) {
        set->m = worker.dense(Type::Float32, numbers), set->l = worker.dense(Type::Float32, numbers);
        part.m = set->m.view(), part.l = set->l.view();
      } else {
        set->lse = worker.dense(Type::Float32, numbers);
        part.lse = set->lse.view();
      }
      worker.call(part);
    }
    if (step + 1 == n) break;
    if (set) worker.merge(merged, *set);
    exchange.wait(comm, "step " + std::to_string(step), worker);
    std::swap(here, coming);
  }
  worker.finish(merged, set, mine);
}
// #endregion

// #region backward
// dK and dV of some of a rank's keys, as far as the rows of one rank make them; of no keys where p is empty.
struct KeyGradients {
  Section p;
  Dense dk, dv;

  KeyGradients(const Worker& worker, const AnyProblem& mine, Type type, const Section& section)
      : p(section),
        dk(worker.dense(type, {mine.B(), mine.k.H(), p.keys, mine.D()})),
        dv(worker.dense(type, {mine.B(), mine.k.H(), p.keys, mine.Dv()})) {}
};

// dQ of this rank's rows, dK and dV of its keys. Each call gets the final O and LSE, so that its P and its δ are those
// of the whole row; it is told that these are not all keys (phase 20 counts dQ's keys from their mean, where rows of dS
// sum to 0). What a call has left for the keys of another rank goes home in the next step, and is added there: in fp32,
// in the order of the steps. A phase that takes fp32 gets all in fp32: what it leaves is not rounded before it is
// added.
inline void ring_backward(Comm& comm, const Split& split, const AnyProblem& mine, const Worker& worker) {
  const int n = comm.size;
  const Shape s = mine.shape();
  const bool wide = pass_of(worker.phase, Direction::Backward).features.types.contains(Type::Float32);
  const Type type = wide ? Type::Float32 : mine.type;
  // An array in the calls' type.
  const auto in_type = [&](const AnyView& view, std::vector<Dense>& memory) {
    if (type == mine.type || !view.given()) return view;
    worker.copy(view, mine.type, memory.emplace_back(worker.dense(type, view.shape)).view(), type);
    return memory.back().view();
  };
  std::vector<Dense> converted;
  const AnyView q = in_type(mine.q, converted), dout = in_type(mine.dout, converted);
  AnyView o = mine.o;
  if (wide && (mine.out != type || mine.o_lo.given())) {
    worker.restore(mine.o, mine.out, mine.o_lo, converted.emplace_back(worker.dense(type, mine.o.shape)));
    o = converted.back().view();
  }
  const Type o_type = wide ? type : mine.out;
  const auto sum_like = [&](const AnyView& view) { return worker.dense(Type::Float32, view.shape); };
  const Dense dq = sum_like(mine.q), dk = sum_like(mine.k), dv = sum_like(mine.v);
  // The first summand is written, the others are added; at: where in the sum.
  const auto begin_sum = [&](const Dense& sum, const Dense& part, const AnyView& at) {
    if (at.shape == sum.shape) return worker.copy(part.view(), part.type, at, Type::Float32);
    worker.zero(sum), worker.add(part, at);
  };
  // This rank's rows with some keys.
  const auto call = [&](const Section& p, const Keys& some, bool is_first) {
    const auto rows = [&](const AnyView& view, Type of) { return rows_of(view, of, p.q0, p.rows); };
    std::vector<Dense> memory;
    AnyProblem part;
    part.direction = Direction::Backward, part.type = type, part.out = o_type;
    part.options = mine.options, part.options.all_keys = n == 1;
    part.options.mask = p.mask, part.options.ring = {}, part.options.scale = mine.scale();
    part.q = rows(q, type), part.dout = rows(dout, type), part.o = rows(o, o_type);
    if (!wide && mine.o_lo.given()) part.o_lo = rows(mine.o_lo, Type::Int16);
    part.k = in_type(rows_of(some.k, mine.type, p.k0, p.keys), memory);
    part.v = in_type(rows_of(some.v, mine.type, p.k0, p.keys), memory);
    // A number for each row: dense, as a call wants it.
    for (const auto array : {&AnyProblem::lse, &AnyProblem::m, &AnyProblem::l, &AnyProblem::dlse}) {
      if (!(mine.*array).given()) continue;
      part.*array = mine.*array;
      if (p.rows == s.Sq) continue;
      const Dense& numbers = memory.emplace_back(worker.dense(Type::Float32, {s.B, s.H, p.rows, 1}));
      worker.copy(rows(mine.*array, Type::Float32), Type::Float32, numbers.view(), Type::Float32);
      part.*array = numbers.view();
    }
    const Dense part_q = worker.dense(type, part.q.shape);
    KeyGradients left(worker, mine, type, p);
    part.dq = part_q.view(), part.dk = left.dk.view(), part.dv = left.dv.view();
    if (!p.empty()) worker.call(part);
    const AnyView at = rows(dq.view(), Type::Float32);
    is_first ? begin_sum(dq, part_q, at) : worker.add(part_q, at);
    return left;
  };
  const auto of_keys = [](const Dense& sum, const Section& p) {
    return rows_of(sum.view(), Type::Float32, p.k0, p.keys);
  };

  std::optional<Keys> here(std::in_place, worker, mine), coming;
  std::optional<KeyGradients> left, home;  // of another rank's keys, by this one's rows; and the other way round
  const Withdraws at_an_error{comm};
  for (int step = 0; step <= n; ++step) {  // step n: what the last call has left goes home
    Exchange exchange;
    if (step + 1 < n) {
      coming.emplace(worker, mine, split.keys((comm.rank - step - 1 + n) % n).size());
      exchange.pass_on(comm, *here, *coming, mine.type);
    }
    if (step > 1) {
      const int owner = (comm.rank - step + 1 + n) % n, other = (comm.rank + step - 1) % n;
      home.emplace(worker, mine, type, split.section(other, comm.rank));
      for (const auto array : {&KeyGradients::dk, &KeyGradients::dv}) {
        exchange.send(owner, ((*left).*array).view(), type);
        exchange.receive(other, ((*home).*array).view(), type);
      }
    }
    exchange.begin(comm);
    std::optional<KeyGradients> now;
    if (step < n) now = call(split.section(comm.rank, (comm.rank - step + n) % n), *here, step == 0);
    if (step == 0) begin_sum(dk, now->dk, of_keys(dk, now->p)), begin_sum(dv, now->dv, of_keys(dv, now->p));
    exchange.wait(comm, "step " + std::to_string(step) + " of the backward pass", worker);
    if (step > 1) worker.add(home->dk, of_keys(dk, home->p)), worker.add(home->dv, of_keys(dv, home->p));
    left = std::move(now);
    std::swap(here, coming);
  }
  worker.copy(dq.view(), Type::Float32, mine.dq, mine.type);
  worker.copy(dk.view(), Type::Float32, mine.dk, mine.type);
  worker.copy(dv.view(), Type::Float32, mine.dv, mine.type);
}
// #endregion

// #region groups
// The ring over a batch entry and so many heads of K at a time, with their heads of Q. A rank needs room for K, V and O
// in fp32 once more and for what comes: of a group alone. Ring: ring_forward or ring_backward.
template <class Ring>
void in_groups(Comm& comm, const Split& split, const AnyProblem& mine, const Worker& worker, std::int64_t heads_of_k,
               const Ring& ring) {
  const Shape s = mine.shape();
  for (std::int64_t b = 0; b < s.B; ++b)
    for (std::int64_t first = 0; first < s.Hk; first += heads_of_k) {
      AnyProblem group = mine;
      for (const Operand& operand : operands) {
        if (!is_given(operand, mine)) continue;
        AnyView& view = group.*operand.view;
        const std::int64_t each = view.H() / s.Hk;  // 1 of K and V
        const Type type = type_of_elements(operand.element, mine);
        view.data =
            static_cast<std::byte*>(view.data) + (b * view.stride[0] + first * each * view.stride[1]) * bytes_of(type);
        view.shape[0] = 1, view.shape[1] = std::min(heads_of_k, s.Hk - first) * each;
        view.stride[0] = view.shape[1] * view.stride[1];  // of one batch entry: dense where its heads are
      }
      ring(comm, split, group, worker);
    }
}
// #endregion

// #region bytes
// What all ranks together send: each rank's keys make n - 1 hops. In the backward pass dK and dV of the keys that a
// rank's rows see go home from each, in the type in which calls leave them.
inline std::uint64_t bytes_sent(const AnyProblem& whole, RingLayout layout, int ranks, Type of_parts = Type::Float32) {
  const Shape s = whole.shape();
  const std::int64_t numbers = s.B * s.Hk * (s.D + s.Dv);  // of a key
  const Split split(layout, ranks, s.Sq, s.Sk, whole.options.mask);
  std::int64_t home = 0;  // keys
  for (int rank = 0; whole.backward() && rank < ranks; ++rank)
    for (int from = 0; from < ranks; ++from)
      if (from != rank) home += split.section(rank, from).keys;
  return static_cast<std::uint64_t>(numbers * (s.Sk * (ranks - 1) * bytes_of(whole.type) + home * bytes_of(of_parts)));
}
// #endregion

}  // namespace flash::phase30
