// Phase 30: who computes on a rank, and in whose memory: what the ring asks for. Answers: the host (host.hpp), a GPU
// (gpu.hpp). What is asked later is done later; the caller may go on before it is done.
// Use: worker.call(part);  worker.merge(merged, set);
#pragma once
#include <memory>
#include <optional>

#include "phases/30-ring/comm.hpp"
#include "phases/interface/phase.hpp"

namespace flash::phase30 {

// A dense array in a worker's memory.
struct Dense {
  Type type = Type::Float32;
  std::array<std::int64_t, 4> shape{};
  std::shared_ptr<void> memory;

  std::size_t bytes() const {
    return static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3] * bytes_of(type));
  }
  AnyView view() const { return any_of(dense_view(memory.get(), shape)); }
  Bytes sent() const { return {static_cast<const std::byte*>(memory.get()), bytes()}; }
  Room received() const { return {static_cast<std::byte*>(memory.get()), bytes()}; }
};

// What a call has left of a set of keys, for a rank's rows from `first` on: O in fp32, m and l, or LSE alone.
struct Set {
  std::int64_t first = 0;
  Dense o = {}, m = {}, l = {}, lse = {};
};
// Sums of a rank's rows: Σ weight · O [B, H, S, Dv], and RowSum's numbers [B, H, S, 1]. All are fp32.
struct Merged {
  Dense o, top, sum, unit;
};

// #region worker
class Worker {
 public:
  explicit Worker(const Phase& phase) : phase(phase) {}
  virtual ~Worker() = default;
  Worker(const Worker&) = delete;

  const Phase& phase;  // whose passes compute a piece
  Dense dense(Type type, const std::array<std::int64_t, 4>& shape) const {
    Dense array{type, shape, nullptr};
    array.memory = allocate(std::max<std::size_t>(array.bytes(), 16));  // never a null pointer
    return array;
  }
  virtual void zero(const Dense& array) const = 0;
  // An exchange has written there; the checked simulator wants to know.
  virtual void arrived(Room) const {}
  // Numbers, rounded once; bits where the types are the same.
  virtual void copy(const AnyView& from, Type type, const AnyView& to, Type to_type) const = 0;
  // O in fp32 with what rounding took from it.
  virtual void restore(const AnyView& o, Type type, const AnyView& o_lo, const Dense& to) const = 0;
  // sum += part; `sum` is fp32.
  virtual void add(const Dense& part, const AnyView& sum) const = 0;
  // One call of the phase. O may be wanted in fp32: nothing is rounded before it is merged.
  virtual void call(const AnyProblem& part) const = 0;
  // Rows that have seen nothing yet: where the sum is 0 the other numbers are not looked at.
  Merged nothing(const Shape& s) const {
    const std::array<std::int64_t, 4> rows = {s.B, s.H, s.Sq, 1};
    const Merged none{dense(Type::Float32, {s.B, s.H, s.Sq, s.Dv}), dense(Type::Float32, rows),
                      dense(Type::Float32, rows), dense(Type::Float32, rows)};
    zero(none.top), zero(none.sum), zero(none.unit);
    return none;
  }
  // The set's O may be the sum's own memory, where it is the first and has all rows.
  virtual void merge(const Merged& to, const Set& set) const = 0;
  // With the last set, if there is one: O, LSE and what a backward pass needs, into the arrays of `mine`. A row that
  // saw nothing: O = 0, LSE = -inf.
  virtual void finish(const Merged& from, const std::optional<Set>& last, const AnyProblem& mine) const = 0;

 protected:
  virtual std::shared_ptr<void> allocate(std::size_t bytes) const = 0;
};
// #endregion

}  // namespace flash::phase30
