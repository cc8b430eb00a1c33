// Phase 30: what one rank holds of a problem, taken out of the whole and put back.
// It walks the list of operands: an array that has a row for each query or key is cut there, and nothing else is cut.
// Use: Local mine(whole, split, rank);  ring_forward(comm, split, mine.problem(), call);  mine.put_back(whole);
#pragma once
#include <cstring>
#include <vector>

#include "phases/interface/operands.hpp"
#include "phases/ring/rows.hpp"
#include "sim/ledger.hpp"

namespace flash::phase30 {

class Local {
 public:
  // Copies what is read, and makes room for what is written.
  Local(const AnyProblem& whole, const Split& split, int rank) : rows_(split.rows(rank)), keys_(split.keys(rank)) {
    problem_ = whole;
    for (const Operand& operand : operands) {
      if (!is_given(operand, whole)) continue;
      std::array<std::int64_t, 4> shape = (whole.*operand.view).shape;
      shape[2] = share(operand).size();
      arrays_.push_back({&operand, Array(type_of_elements(operand.element, whole), shape)});
      problem_.*operand.view = arrays_.back().array.view();
      if (!is_written(operand, whole)) move(whole, arrays_.back(), false);
    }
  }
  const AnyProblem& problem() const { return problem_; }
  Ledger ledger;  // bytes of the whole arrays that were read and written
  void put_back(const AnyProblem& whole) {
    for (Held& held : arrays_)
      if (is_written(*held.operand, whole)) move(whole, held, true);
  }

 private:
  struct Held {
    const Operand* operand;
    Array array;
  };
  const Share& share(const Operand& operand) const { return operand.shape[2] == Length::Sq ? rows_ : keys_; }
  void move(const AnyProblem& whole, Held& held, bool back) {
    const AnyView &from = whole.*held.operand->view, mine = held.array.view();
    const Type type = held.array.type;
    ArrayTraffic& traffic = ledger.array(held.operand->name);
    for_each_row(mine, [&](std::int64_t b, std::int64_t h, std::int64_t s) {
      std::byte* theirs = row_at(from, type, b, h, share(*held.operand)[s]);
      std::byte* ours = row_at(mine, type, b, h, s);
      const std::size_t bytes = static_cast<std::size_t>(mine.D() * bytes_of(type));
      std::memcpy(back ? theirs : ours, back ? ours : theirs, bytes);
      (back ? traffic.written_bytes : traffic.read_bytes) += bytes;
    });
  }

  Share rows_, keys_;
  std::vector<Held> arrays_;
  AnyProblem problem_;
};

}  // namespace flash::phase30
