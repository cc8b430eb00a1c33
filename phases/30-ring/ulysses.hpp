// Phase 30: the other way to spread a sequence (Jacobs et al., "DeepSpeed Ulysses", arXiv:2309.14509): an exchange of
// all with all gives each rank all rows of some heads; then one call, and the same exchange back. Both directions.
// Use: on_rank(comm, split, mine, worker);  this or the ring, by the problem's layout
#pragma once
#include <vector>

#include "phases/30-ring/ring.hpp"
#include "phases/interface/operands.hpp"

namespace flash::phase30 {

// #region all-to-all
inline AnyView heads_of(AnyView view, Type type, std::int64_t first, std::int64_t count) {
  if (view.data) view.data = static_cast<std::byte*>(view.data) + first * view.stride[1] * bytes_of(type);
  view.shape[1] = count;
  return view;
}

// An array of this rank's rows and all heads, [B, H, rows, D], and one of all rows and this rank's heads,
// [B, H/n, S, D].
struct Turned {
  const Operand* operand;
  Type type;
  AnyView by_rows, by_heads;
};

// Each rank's part of the one becomes its part of the other, for all ranks and arrays at once.
inline void all_to_all(Comm& comm, const Split& split, const std::vector<Turned>& arrays, bool to_heads,
                       const Worker& worker) {
  std::vector<Dense> going;
  std::vector<std::pair<Dense, const Turned*>> coming;
  std::vector<AnyView> targets;
  Exchange exchange;
  const Withdraws at_an_error{comm};
  for (int far = 0; far < comm.size; ++far) {
    const int to = (comm.rank + far) % comm.size, from = (comm.rank + comm.size - far) % comm.size;
    for (const Turned& x : arrays) {
      const std::int64_t heads = x.by_heads.H();
      // The heads of a rank among these rows, and the rows of a rank among these heads.
      const auto heads_at = [&](int rank) { return heads_of(x.by_rows, x.type, rank * heads, heads); };
      const auto rows_at = [&](int rank) {
        const Share share = x.operand->shape[2] == Length::Sq ? split.rows(rank) : split.keys(rank);
        return rows_of(x.by_heads, x.type, share.first, share.size());
      };
      const AnyView source = to_heads ? heads_at(to) : rows_at(to), target = to_heads ? rows_at(from) : heads_at(from);
      if (far == 0) {
        worker.copy(source, x.type, target, x.type);
        continue;
      }
      worker.copy(source, x.type, going.emplace_back(worker.dense(x.type, source.shape)).view(), x.type);
      coming.emplace_back(worker.dense(x.type, target.shape), &x), targets.push_back(target);
      exchange.send(to, going.back().view(), x.type), exchange.receive(from, coming.back().first.view(), x.type);
    }
  }
  exchange.begin(comm);
  exchange.wait(comm, to_heads ? "the exchange of rows for heads" : "the exchange of heads for rows", worker);
  for (std::size_t i = 0; i < targets.size(); ++i)
    worker.copy(coming[i].first.view(), coming[i].second->type, targets[i], coming[i].second->type);
}
// #endregion

// #region ulysses
// Each rank needs as many heads of Q, and of K, as the others.
inline void check_heads(const AnyProblem& p, int ranks) {
  for (const auto& [name, heads] : {std::pair{"Q's", p.shape().H}, {"K's", p.shape().Hk}})
    if (heads % ranks != 0)
      refuse(std::string(name) + " number of heads H", heads,
             "a multiple of the " + std::to_string(ranks) + " ranks in layout ulysses", "pass --layout striped");
}

// The rows lie in one piece each. `mine` as the ring has it.
inline void ulysses(Comm& comm, const Split& split, const AnyProblem& mine, const Worker& worker) {
  check_heads(mine, comm.size);
  AnyProblem part = mine;
  part.options.ring = {}, part.options.scale = mine.scale();
  std::vector<Dense> memory;
  std::vector<Turned> read, written;
  for (const Operand& operand : operands) {
    if (!is_given(operand, mine)) continue;
    const AnyView& rows = mine.*operand.view;
    const Type type = type_of_elements(operand.element, mine);
    const std::int64_t S = operand.shape[2] == Length::Sq ? split.Sq() : split.Sk();
    memory.push_back(worker.dense(type, {rows.B(), rows.H() / comm.size, S, rows.D()}));
    part.*operand.view = memory.back().view();
    (is_written(operand, mine) ? written : read).push_back({&operand, type, rows, part.*operand.view});
  }
  all_to_all(comm, split, read, true, worker);
  worker.call(part);
  all_to_all(comm, split, written, false, worker);
}

// A rank's part of a problem, by its layout: the ring or the other way.
inline void on_rank(Comm& comm, const Split& split, const AnyProblem& mine, const Worker& worker) {
  if (mine.options.ring.layout == RingLayout::Ulysses) return ulysses(comm, split, mine, worker);
  mine.backward() ? ring_backward(comm, split, mine, worker) : ring_forward(comm, split, mine, worker);
}
// #endregion

// #region ulysses-bytes
// What all ranks together send: of each array all but what is there already, (n - 1) / n.
inline std::uint64_t ulysses_bytes_sent(const AnyProblem& whole, int ranks) {
  std::int64_t bytes = 0;
  for (const Operand& operand : operands)
    if (is_given(operand, whole))
      bytes += (whole.*operand.view).elements() * bytes_of(type_of_elements(operand.element, whole));
  return static_cast<std::uint64_t>(bytes / ranks * (ranks - 1));
}
// #endregion

}  // namespace flash::phase30
