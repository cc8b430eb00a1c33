// promises.hpp: what every phase promises, tested by one set of test cases that is compiled once (promises.cpp; for
// kernels kernel_promises.cpp too) and linked into each phase's test. A phase's own test says which phase is meant:
//   const Phase& flash::test::phase_under_test() { return phase07::phase; }
#pragma once
#include "phases/interface/phase.hpp"
#include "tests/contract.hpp"

namespace flash::test {

const Phase& phase_under_test();
// With which its proof compares it; null for the first.
inline const Phase* phase_before() {
  return phase_under_test().forward->before;
}

inline const Features& features_under_test() {
  return phase_under_test().forward->features;
}

// The blocks that a kernel phase has for a head dimension.
inline std::vector<Blocks> blocks_for(const Features& can, std::int64_t D) {
  std::vector<Blocks> all;
  for (const Blocks& blocks : can.blocks)
    if (can.has(can.padded(D), blocks)) all.push_back(blocks);
  return all;
}
// Those whose tiles are the smallest: many of them, and little shared memory.
inline Blocks smallest_blocks(const Features& can, std::int64_t D) {
  const std::vector<Blocks> listed = blocks_for(can, D);
  return *std::min_element(listed.begin(), listed.end(),
                           [](const Blocks& a, const Blocks& b) { return a.Br * a.Bc < b.Br * b.Bc; });
}
// "64x32, 32x64, 16x16".
std::string text(const std::vector<Blocks>& list);

// The contract and the published cases ask for blocks that a kernel may not list: take one of the same kind (more keys
// than rows, or not), so that Bc > Br stays Bc > Br.
inline Blocks listed_blocks(const Features& can, std::int64_t D, Blocks wanted) {
  if (!can.kernel || wanted.Br <= 0 || wanted.Bc <= 0) return wanted;
  const std::vector<Blocks> listed = blocks_for(can, D);
  if (std::find(listed.begin(), listed.end(), wanted) != listed.end()) return wanted;
  for (const Blocks& blocks : listed)
    if ((blocks.Bc > blocks.Br) == (wanted.Bc > wanted.Br)) return blocks;
  return listed[0];
}
template <class AProblem>
AProblem with_listed_blocks(AProblem p, const Features& can) {
  const Blocks blocks = listed_blocks(can, p.D(), {p.options.block_q, p.options.block_k});
  p.options.block_q = blocks.Br, p.options.block_k = blocks.Bc;
  return p;
}

// There if the promises of backward passes are linked (backward_promises.cpp).
void backward_promises() __attribute__((weak));

// Of a list of cases on the fast simulator, which are run a second time (Case::twice): there a kernel is one program
// whatever the case is. A GPU, and the threads of a CPU phase, run no two times alike.
inline bool runs_twice(const Features& can, Where where, std::size_t number) {
  return !can.kernel || where == Where::Gpu || number % 3 == 0;
}

// What D and gaps must be multiples of, in elements: phases that copy by TMA want 16 bytes.
inline std::int64_t granule(const Features& can) {
  return can.tensor_maps() ? 8 : 1;
}
inline std::int64_t next_D(std::int64_t D, const Features& can) {
  return (D + granule(can) - 1) / granule(can) * granule(can);
}

// A phase on one machine, as the contract's checks want it.
template <class T>
Forward<T> on(const Phase& phase, Where where, const MachineOptions& options = {}) {
  return [&phase, where, options](const Problem<T>& p) {
    flash::forward(phase, with_listed_blocks(p, phase.forward->features), where, options);
  };
}

// The part of a list of cases that a phase can do; what it cannot is tested as a refusal.
Domain restrict_to(Domain domain, const Features& can);
// Small enough for the checked machine; at least three K tiles for each block size, edges of all kinds.
Domain checked_domain(const Features& can);

// Copies of tensors whose rows, heads and batch entries are further apart than 2^31 elements, so that offsets must be
// 64-bit: row 8 begins at 2^31. The memory is reserved, hardly used; kernels work on it in place, on the fast machine.
class FarApart {
 public:
  explicit FarApart(std::int64_t granule)
      : row((std::int64_t{1} << 28) + 3 * granule), head(40 * row), batch(2 * head + 7 * granule) {}
  FarApart(const FarApart&) = delete;
  ~FarApart();
  // Of a [2, 2, at most 40, D] tensor.
  template <class T>
  View<std::remove_const_t<T>> operator()(const View<T>& view) {
    using U = std::remove_const_t<T>;
    const View<U> moved{static_cast<U*>(reserve(2 * batch * sizeof(T))), view.shape, {batch, head, row, 1}};
    for (std::int64_t b = 0; b < view.B(); ++b)
      for (std::int64_t h = 0; h < view.H(); ++h)
        for (std::int64_t s = 0; s < view.S(); ++s) std::copy_n(view.row(b, h, s), view.D(), moved.row(b, h, s));
    return moved;
  }
  // Zeros, which take no memory until they are written.
  void* reserve(std::size_t bytes);

 private:
  std::int64_t row, head, batch;
  std::vector<std::pair<void*, std::size_t>> maps_;
};

// A promise that says nothing of this phase is no test of it: doctest neither lists nor runs it. (Declarations are
// constinit: they are there before any test is registered.)
//   TEST_CASE("bytes of what is kept" * only_if(keeps()))
//   TEST_CASE_TEMPLATE("contract" * only_if(has_type), T, float, half, bfloat16)
class only_if {
 public:
  explicit only_if(bool concerned) : concerned_(concerned) {}
  explicit only_if(bool (*concerns)(Type)) : concerns_(concerns) {}
  void fill(doctest::detail::TestCase& test) const {
    const Type type = test.m_type == doctest::toString<float>()  ? Type::Float32
                      : test.m_type == doctest::toString<half>() ? Type::Float16
                                                                 : Type::BFloat16;
    if (!(concerns_ ? concerns_(type) : concerned_)) test.m_skip = true;
  }

 private:
  bool concerned_ = true;
  bool (*concerns_)(Type) = nullptr;  // of a TEST_CASE_TEMPLATE: by its type
};
inline bool has_type(Type type) {
  return features_under_test().types.contains(type);
}
inline bool lacks_type(Type type) {
  return !has_type(type);
}
inline bool phase_before_has_type_too(Type type) {
  return phase_before() && has_type(type) && phase_before()->forward->features.types.contains(type);
}

// A test for a machine that this build or computer lacks says so; CTest shows it as skipped.
bool skipped_without(const Features& can, Where where);
inline bool skipped_without(const Phase& phase, Where where) {
  return skipped_without(phase.forward->features, where);
}
inline bool skipped_without(Where where) {
  return skipped_without(features_under_test(), where);
}

// The whole pairwise list on one machine.
template <class T>
void check_contract(Where where);
template <class T>
void check_published(Where where);
// A few rows of Q and so many keys.
template <class T>
void check_long(Where where, std::int64_t Sk);
template <class T>
void check_promises(Where where);
template <class T>
void check_empty(Where where);
// How large V may be; true if O was infinite a little beyond that.
template <class T>
bool check_range_of_v(Where where);

// Of the launches one has one block where it had two: the simulator has two multiprocessors.
inline void check_fewer_blocks(const Run& all, const Run& fewer) {
  REQUIRE(all.kernels.size() == fewer.kernels.size());
  int with_fewer = 0;
  for (std::size_t i = 0; i < all.kernels.size(); ++i) {
    if (all.kernels[i].grid == fewer.kernels[i].grid) continue;
    ++with_fewer;
    CHECK(all.kernels[i].grid[0] == 2);
    CHECK(fewer.kernels[i].grid[0] == 1);
  }
  CHECK(with_fewer == 1);
}

}  // namespace flash::test
