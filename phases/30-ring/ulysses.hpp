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
// [B, H/n, S, D]: each rank's part of the one becomes its part of the other.
inline void exchange(Comm& comm, const Split& split, const Operand& operand, const AnyView& by_rows,
                     const AnyView& by_heads, Type type, bool to_heads, const Worker& worker) {
  const std::int64_t heads = by_heads.H();
  const auto share = [&](int rank) { return operand.shape[2] == Length::Sq ? split.rows(rank) : split.keys(rank); };
  for (int far = 0; far < comm.size; ++far) {
    const int to = (comm.rank + far) % comm.size, from = (comm.rank + comm.size - far) % comm.size;
    // The heads of a rank among these rows, and the rows of a rank among these heads.
    const auto heads_at = [&](int rank) { return heads_of(by_rows, type, rank * heads, heads); };
    const auto rows_at = [&](int rank) { return rows_of(by_heads, type, share(rank).first, share(rank).size()); };
    const AnyView source = to_heads ? heads_at(to) : rows_at(to), target = to_heads ? rows_at(from) : heads_at(from);
    const Dense going = worker.dense(type, source.shape), coming = worker.dense(type, target.shape);
    const Withdraws at_an_error{comm};
    worker.copy(source, type, going.view(), type);
    comm.begin(to, going.sent(), from, coming.received());
    comm.wait("exchange " + std::to_string(far) + " of " + operand.name);
    worker.arrived(coming.received());
    worker.copy(coming.view(), type, target, type);
  }
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
  std::vector<std::pair<const Operand*, Dense>> arrays;
  for (const Operand& operand : operands) {
    if (!is_given(operand, mine)) continue;
    const AnyView& rows = mine.*operand.view;
    const Type type = type_of_elements(operand.element, mine);
    const std::int64_t S = operand.shape[2] == Length::Sq ? split.Sq() : split.Sk();
    arrays.emplace_back(&operand, worker.dense(type, {rows.B(), rows.H() / comm.size, S, rows.D()}));
    part.*operand.view = arrays.back().second.view();
    if (!is_written(operand, mine)) exchange(comm, split, operand, rows, part.*operand.view, type, true, worker);
  }
  worker.call(part);
  for (const auto& [operand, array] : arrays)
    if (is_written(*operand, mine))
      exchange(comm, split, *operand, mine.*operand->view, part.*operand->view, array.type, false, worker);
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
