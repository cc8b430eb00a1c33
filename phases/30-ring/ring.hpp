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

// dK and dV of one rank's keys, fp32, as far as they are summed.
struct Sums {
  Dense dk, dv;

  Sums(const Worker& worker, const AnyProblem& mine, std::int64_t count)
      : dk(worker.dense(Type::Float32, {mine.B(), mine.k.H(), count, mine.D()})),
        dv(worker.dense(Type::Float32, {mine.B(), mine.k.H(), count, mine.Dv()})) {}
};

// What goes to the next rank in a step, and what comes from the one before, piece by piece.
struct Exchange {
  std::vector<Bytes> out;
  std::vector<Room> in;

  void add(const AnyView& from, const AnyView& to, Type type) {
    out.push_back(bytes(from, type)), in.push_back(bytes(to, type));
  }
  void add(const Keys& from, const Keys& to, Type type) { add(from.k, to.k, type), add(from.v, to.v, type); }
  void add(const Sums& from, const Sums& to) {
    add(from.dk.view(), to.dk.view(), Type::Float32), add(from.dv.view(), to.dv.view(), Type::Float32);
  }
  void begin(Comm& comm) const {
    comm.begin((comm.rank + 1) % comm.size, out, (comm.rank + comm.size - 1) % comm.size, in);
  }
  void wait(Comm& comm, const std::string& step, const Worker& worker) const {
    comm.wait(step);
    for (const Room& room : in) worker.arrived(room);
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
  std::optional<Keys> here(std::in_place, worker, mine), coming;
  std::optional<Set> set;
  const Withdraws at_an_error{comm};
  for (int step = 0; step < n; ++step) {
    const int whose = (comm.rank - step + n) % n;
    set.reset();
    Exchange exchange;
    if (step + 1 < n) {  // the next keys travel while these are used
      coming.emplace(worker, mine, split.keys((whose + n - 1) % n).size());
      exchange.add(*here, *coming, mine.type);
      exchange.begin(comm);
    }
    if (const Section p = split.section(comm.rank, whose); !p.empty()) {
      const std::array<std::int64_t, 4> numbers = {s.B, s.H, p.rows, 1};
      const bool kept = worker.phase.forward->features.meets(Demand::Kept);
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
// dQ of this rank's rows, dK and dV of its keys. Each call gets the final O and LSE, so that its P and its δ are those
// of the whole row; it is told that these are not all keys (phase 20 counts dQ's keys from their mean, where rows of dS
// sum to 0). dK and dV go round behind their keys, a step later, in fp32, and one hop further, home: so K and V, and
// what was summed in the step before, travel while this step computes. A phase that takes fp32 gets all in fp32:
// what it leaves is not rounded before it is added.
inline void ring_backward(Comm& comm, const Split& split, const AnyProblem& mine, const Worker& worker) {
  const int n = comm.size;
  const Shape s = mine.shape();
  const bool wide = pass_of(worker.phase, Direction::Backward).features.types.contains(Type::Float32);
  const Type type = wide ? Type::Float32 : mine.type;
  // An array in the calls' type.
  std::vector<Dense> converted;
  const auto in_type = [&](const AnyView& view) {
    if (type == mine.type || !view.given()) return view;
    worker.copy(view, mine.type, converted.emplace_back(worker.dense(type, view.shape)).view(), type);
    return converted.back().view();
  };
  const AnyView q = in_type(mine.q), dout = in_type(mine.dout);
  AnyView o = mine.o;
  if (wide && (mine.out != type || mine.o_lo.given())) {
    worker.restore(mine.o, mine.out, mine.o_lo, converted.emplace_back(worker.dense(type, mine.o.shape)));
    o = converted.back().view();
  }
  const Type o_type = wide ? type : mine.out;
  const Dense dq = worker.dense(Type::Float32, mine.q.shape);
  std::optional<Keys> here(std::in_place, worker, mine), coming;
  std::optional<Sums> sums, behind;  // of the keys of the step before, and of these
  const Withdraws at_an_error{comm};
  for (int step = 0; step < n; ++step) {
    const int whose = (comm.rank - step + n) % n;
    Exchange exchange;
    if (step + 1 < n) {
      coming.emplace(worker, mine, split.keys((whose + n - 1) % n).size());
      exchange.add(*here, *coming, mine.type);
    }
    behind.emplace(worker, mine, here->k.S());
    if (step > 0) exchange.add(*sums, *behind);
    if (n > 1) exchange.begin(comm);

    const Section p = split.section(comm.rank, whose);
    const auto rows = [&](const AnyView& view, Type of) { return rows_of(view, of, p.q0, p.rows); };
    const auto keys = [&](const AnyView& view, Type of) { return rows_of(view, of, p.k0, p.keys); };
    AnyProblem part;
    std::vector<Dense> numbers;
    Dense part_q, part_k, part_v;
    if (!p.empty()) {
      part.direction = Direction::Backward, part.type = type, part.out = o_type;
      part.options = mine.options, part.options.all_keys = n == 1;
      part.options.mask = p.mask, part.options.ring = {}, part.options.scale = mine.scale();
      part.q = rows(q, type), part.dout = rows(dout, type), part.o = rows(o, o_type);
      if (!wide && mine.o_lo.given()) part.o_lo = rows(mine.o_lo, Type::Int16);
      part.k = in_type(keys(here->k, mine.type)), part.v = in_type(keys(here->v, mine.type));
      // A number for each row: dense, as a call wants it.
      for (const auto array : {&AnyProblem::lse, &AnyProblem::m, &AnyProblem::l, &AnyProblem::dlse}) {
        if (!(mine.*array).given()) continue;
        part.*array = mine.*array;
        if (p.rows == s.Sq) continue;
        const Dense& some = numbers.emplace_back(worker.dense(Type::Float32, {s.B, s.H, p.rows, 1}));
        worker.copy(rows(mine.*array, Type::Float32), Type::Float32, some.view(), Type::Float32);
        part.*array = some.view();
      }
      part_q = worker.dense(type, part.q.shape), part_k = worker.dense(type, part.k.shape);
      part_v = worker.dense(type, part.v.shape);
      part.dq = part_q.view(), part.dk = part_k.view(), part.dv = part_v.view();
      worker.call(part);
    }
    if (n > 1) exchange.wait(comm, "step " + std::to_string(step) + " of the backward pass", worker);
    sums.swap(behind);
    if (step == 0) worker.zero(dq), worker.zero(sums->dk), worker.zero(sums->dv);
    if (!p.empty()) {
      worker.add(part_q, rows(dq.view(), Type::Float32));
      worker.add(part_k, keys(sums->dk.view(), Type::Float32));
      worker.add(part_v, keys(sums->dv.view(), Type::Float32));
    }
    std::swap(here, coming);
  }
  if (n > 1) {
    behind.emplace(worker, mine, mine.Sk());
    Exchange home;
    home.add(*sums, *behind);
    home.begin(comm);
    home.wait(comm, "the last step of the backward pass", worker);
    sums.swap(behind);
  }
  worker.copy(dq.view(), Type::Float32, mine.dq, mine.type);
  worker.copy(sums->dk.view(), Type::Float32, mine.dk, mine.type);
  worker.copy(sums->dv.view(), Type::Float32, mine.dv, mine.type);
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
// What all ranks together send: each rank's keys make n - 1 hops. In the backward pass dK and dV follow them, in fp32,
// and go home.
inline std::uint64_t bytes_sent(const AnyProblem& whole, int ranks) {
  const Shape s = whole.shape();
  const std::int64_t numbers = s.B * s.Hk * s.Sk * (s.D + s.Dv), hops = ranks - 1;
  const std::int64_t back = whole.backward() && ranks > 1 ? 4 * numbers * ranks : 0;
  return static_cast<std::uint64_t>(numbers * hops * bytes_of(whole.type) + back);
}
// #endregion

}  // namespace flash::phase30
