// Phase 30: a worker whose memory is the host's: any phase on any machine computes, the host merges.
// Use: const HostWorker worker{definition::phase};  ring_forward(comm, split, mine, worker);
#pragma once
#include "phases/30-ring/merge.hpp"
#include "phases/ring/rows.hpp"
#include "phases/ring/worker.hpp"

namespace flash::phase30 {

class HostWorker : public Worker {
 public:
  HostWorker(const Phase& phase, Where where = Where::Sim, const MachineOptions& machine = {})
      : Worker(phase), where(where), machine(machine) {}
  const Where where;
  const MachineOptions machine;

  void zero(const Dense& array) const override { std::memset(array.memory.get(), 0, array.bytes()); }
  void copy(const AnyView& from, Type type, const AnyView& to, Type to_type) const override {
    phase30::copy(from, type, to, to_type);
  }
  void restore(const AnyView& o, Type type, const AnyView& o_lo, const Dense& to) const override {
    phase30::copy(o, type, to.view(), to.type);
    if (o_lo.given()) phase30::restore(to.view(), o_lo);
  }
  void add(const Dense& part, const AnyView& sum) const override { phase30::add(part.view(), part.type, sum); }
  void call(const AnyProblem& part) const override { enter(phase, part, where, machine); }

  void merge(const Merged& to, const Set& set) const override {
    const std::int64_t rows = set.o.shape[2], S = to.o.shape[2], Dv = to.o.shape[3];
    for (std::int64_t r = 0; r < set.o.shape[0] * set.o.shape[1] * rows; ++r) {
      const std::int64_t number = r / rows * S + set.first + r % rows;
      const float m = set.m.memory ? numbers(set.m)[r] : numbers(set.lse)[r] * definition::log2_e;
      const float l = set.m.memory ? numbers(set.l)[r] : m != -definition::infinity;
      RowSum row = get(to, number);
      const bool is_first = row.sum == 0;
      float keep = 0, weight = 0;
      if (!row.add(m, l, keep, weight)) continue;
      float* acc = numbers(to.o) + number * Dv;
      const float* part = numbers(set.o) + r * Dv;
      for (std::int64_t d = 0; d < Dv; ++d) acc[d] = (is_first ? 0 : keep * acc[d]) + weight * part[d];
      put(to, number, row);
    }
  }
  void finish(const Merged& from, const std::optional<Set>& last, const AnyProblem& mine) const override {
    if (last) merge(from, *last);
    const std::int64_t Dv = from.o.shape[3];
    for (std::int64_t number = 0; number < mine.B() * mine.H() * mine.Sq(); ++number) {
      const RowSum row = get(from, number);
      float* acc = numbers(from.o) + number * Dv;
      for (std::int64_t d = 0; d < Dv; ++d) acc[d] = row.sum == 0 ? 0 : acc[d] / row.sum;
      const float l = row.l();
      if (mine.lse.given())
        static_cast<float*>(mine.lse.data)[number] =
            l == 0 ? -definition::infinity : row.top * 0.693147181f + std::log(l);
      if (mine.m.given())
        static_cast<float*>(mine.m.data)[number] = row.top, static_cast<float*>(mine.l.data)[number] = l;
    }
    phase30::copy(from.o.view(), Type::Float32, mine.o, mine.out, mine.o_lo);
  }

  // What a row has of m and l.
  static RowSum get(const Merged& of, std::int64_t row) {
    const float sum = numbers(of.sum)[row];
    return sum == 0 ? RowSum{} : RowSum{numbers(of.top)[row], sum, numbers(of.unit)[row]};
  }

 protected:
  std::shared_ptr<void> allocate(std::size_t bytes) const override {
    return {::operator new(bytes), [](void* memory) { ::operator delete(memory); }};
  }

 private:
  static float* numbers(const Dense& array) { return static_cast<float*>(array.memory.get()); }
  static void put(const Merged& to, std::int64_t row, const RowSum& x) {
    numbers(to.top)[row] = x.top, numbers(to.sum)[row] = x.sum, numbers(to.unit)[row] = x.unit;
  }
};

}  // namespace flash::phase30
