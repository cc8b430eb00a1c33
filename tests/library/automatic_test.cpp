// automatic_test.cpp: which phase is taken where none is named: the rule, on figures made up for it, and the figures of
// docs/results. ./flash run's side of it is in app_test.cpp.
// ctest -L library -R "^automatic\."
#include "phases/library/automatic.hpp"

#include "phases/interface/capability.hpp"
#include "phases/interface/validate.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <string>

using namespace flash;

namespace {

constexpr Type half_type = Type::Float16;

AnyProblem sizes(std::int64_t N, std::int64_t D, Mask causal = Mask::none(), bool lse = false) {
  return {{2, 3, 3, N, N, D, D}, half_type, {.mask = causal}, lse};
}

AnyProblem of_type(AnyProblem p, Type type) {
  p.type = p.out = type;
  return p;
}

std::string chosen(const AnyProblem& p, Type type, const std::vector<Measured>& figures) {
  return choose_phase(of_type(p, type), Where::Sim, figures).phase->name;
}

// The newest phase that can do it and has nothing that is not asked, written down anew.
template <class Can>
std::string newest(const Can& can) {
  std::string name;
  for (const Phase* phase : all_phases())
    if (phase->kernel() && can(phase->forward->features) &&
        std::none_of(std::begin(demands::rows), std::end(demands::rows), [&](const DemandRow& row) {
          return met_by_variants(row.demand) && phase->forward->features.meets(row.demand);
        }))
      name = phase->name;
  return name;
}

}  // namespace

TEST_CASE("the highest figure at the nearest size decides") {
  // Which of two is faster changes with N, with D and with the mask.
  const std::vector<Measured> figures = {
      {"06-4d-grid", half_type, false, 64, 512, 6, 30},  {"08-lse", half_type, false, 64, 512, 6, 20},
      {"06-4d-grid", half_type, false, 64, 8192, 6, 10}, {"08-lse", half_type, false, 64, 8192, 6, 20},
      {"06-4d-grid", half_type, false, 128, 512, 6, 10}, {"08-lse", half_type, false, 128, 512, 6, 20},
      {"07-causal", half_type, true, 64, 512, 6, 1},     {"08-lse", half_type, true, 64, 512, 6, 0.5}};
  CHECK(chosen(sizes(100, 64), half_type, figures) == "06-4d-grid");
  CHECK(chosen(sizes(2047, 64), half_type, figures) == "06-4d-grid");
  CHECK(chosen(sizes(2048, 64), half_type, figures) == "08-lse");  // as far from both: the larger
  CHECK(chosen(sizes(1000000, 64), half_type, figures) == "08-lse");
  CHECK(chosen(sizes(512, 100), half_type, figures) == "08-lse");  // D 128 is nearer, and comes before N
  CHECK(chosen(sizes(512, 80), half_type, figures) == "06-4d-grid");
  CHECK(chosen(sizes(512, 64, Mask::top_left()), half_type, figures) == "07-causal");
  CHECK(chosen(sizes(512, 64, Mask::bottom_right()), half_type, figures) == "07-causal");
  CHECK(chosen(sizes(8192, 128), half_type,
               {{"06-4d-grid", half_type, false, 64, 8192, 6, 30},
                {"06-4d-grid", half_type, false, 128, 512, 6, 10},
                {"08-lse", half_type, false, 64, 8192, 6, 20},
                {"08-lse", half_type, false, 128, 512, 6, 20}}) == "08-lse");  // whatever N is
  AnyProblem cross = sizes(512, 64);
  cross.k.shape[2] = cross.v.shape[2] = 8192;  // a sixteenth of the one's rows, 16 times the other's keys
  CHECK(chosen(cross, half_type, figures) == "08-lse");
  cross.k.shape[2] = cross.v.shape[2] = 8191;
  CHECK(chosen(cross, half_type, figures) == "06-4d-grid");
  for (const std::int64_t none : {0, 1}) {
    cross.q.shape[2] = none;
    CHECK(chosen(cross, half_type, figures) == "06-4d-grid");
  }
}

TEST_CASE("few Q tiles are judged by figures of few Q tiles") {
  // 06 keeps a whole GPU busy, 08 a part of it.
  const std::vector<Measured> figures = {
      {"06-4d-grid", half_type, false, 64, 1024, 1, 10},    {"06-4d-grid", half_type, false, 64, 1024, 16, 160},
      {"06-4d-grid", half_type, false, 64, 1024, 256, 400}, {"08-lse", half_type, false, 64, 1024, 1, 20},
      {"08-lse", half_type, false, 64, 1024, 16, 200},      {"08-lse", half_type, false, 64, 1024, 256, 300}};
  const auto of = [&](std::int64_t B, std::int64_t H, std::int64_t Sq, std::int64_t Sk, Type type = half_type) {
    return choose_phase({{B, H, H, Sq, Sk, 64, 64}, type, {}}, Where::Sim, figures).figure;
  };
  CHECK(of(1, 1, 1024, 1024).phase == "08-lse");
  CHECK(of(1, 1, 1024, 1024).tflops == 20);
  CHECK(of(16, 1, 1024, 1024).tflops == 200);  // B and H count alike
  CHECK(of(2, 31, 1024, 1024).tflops == 200);  // 62 heads: below the middle of 16 and 256, which is 64
  CHECK(of(2, 32, 1024, 1024).tflops == 400);  // as far from both: more heads
  CHECK(of(1, 1, 16384, 1024).tflops == 200);  // as many tiles as 16 heads of 1024 rows
  CHECK(of(128, 1, 1, 1024).tflops == 200);    // a row has a tile, and a block, of its own
  CHECK(of(128, 16, 1, 1024).tflops == 400);
  CHECK(of(2, 32, 1024, 1, Type::BFloat16).tflops == 400);  // whatever the keys, where all figures have the same
  CHECK(of(1 << 20, 1 << 10, 1 << 20, 1 << 20).tflops == 400);
  CHECK(of(0, 16, 1024, 1024).tflops == 20);

  // Tiles and keys weigh the same: twice as many tiles are as far as twice as many keys.
  const auto both = [&](std::int64_t heads, std::int64_t N) {
    return std::vector<Measured>{{"06-4d-grid", half_type, false, 64, 1024, 4, 10},
                                 {"06-4d-grid", half_type, false, 64, N, heads, 30},
                                 {"08-lse", half_type, false, 64, 1024, 4, 20}};
  };
  const AnyProblem s({1, 2, 2, 1024, 2048, 64, 64}, half_type,
                     {});                                      // half the tiles, twice the keys: 4 times as far away
  CHECK(chosen(s, half_type, both(6, 1024)) == "08-lse");      // three times the tiles, half the keys: 6
  CHECK(chosen(s, half_type, both(3, 1024)) == "06-4d-grid");  // 3
  CHECK(chosen(s, half_type, both(1, 2048)) == "06-4d-grid");  // the very tiles and keys
}

TEST_CASE("a figure of many Q tiles says little of few, and nobody wins by having no other") {
  const std::vector<Measured> figures = {{"06-4d-grid", half_type, false, 64, 1024, 256, 400},
                                         {"08-lse", half_type, false, 64, 1024, 1, 20},
                                         {"08-lse", half_type, false, 64, 1024, 256, 300}};
  const auto with_heads = [&](std::int64_t heads) {
    return chosen({{1, heads, heads, 1024, 1024, 64, 64}, half_type, {}}, half_type, figures);
  };
  CHECK(with_heads(1) == "08-lse");       // 400 / 256 against 20
  CHECK(with_heads(12) == "08-lse");      // 400 · 12 / 256 = 18.75
  CHECK(with_heads(15) == "06-4d-grid");  // 23.4
  CHECK(with_heads(256) == "06-4d-grid");
  CHECK(with_heads(1000) == "06-4d-grid");
}

TEST_CASE("what a phase cannot do, no figure makes up for") {
  const std::vector<Measured> figures = {{"05-first-kernel", half_type, false, 64, 512, 6, 900},
                                         {"06-4d-grid", half_type, false, 64, 512, 6, 800},
                                         {"07-causal", half_type, false, 64, 512, 6, 700},
                                         {"08-lse", half_type, false, 64, 512, 6, 10},
                                         {"10-tensor-cores", half_type, false, 64, 512, 6, 600}};
  CHECK(chosen(sizes(512, 64), half_type, figures) == "05-first-kernel");
  CHECK(chosen(sizes(512, 64, Mask::top_left()), half_type, figures) == "07-causal");
  CHECK(chosen(sizes(512, 64, Mask::none(), true), half_type, figures) == "10-tensor-cores");
  CHECK(chosen(sizes(512, 64, Mask::none(), true), Type::Float32, figures) == "08-lse");
  AnyProblem with_blocks = sizes(512, 64, Mask::top_left());
  with_blocks.options.block_q = 16;
  with_blocks.options.block_k = 16;
  CHECK(chosen(with_blocks, half_type,
               {{"13-instruction-diet", half_type, true, 64, 512, 6, 900},
                {"07-causal", half_type, true, 64, 512, 6, 10}}) == "07-causal");
  AnyProblem gradients = sizes(512, 64);
  gradients.direction = Direction::Backward;
  const Choice backward = choose_phase(gradients, Where::Sim, figures);
  CHECK(backward.phase->backward);
  CHECK(backward.why() == "auto: the newest that can; none of them was measured");
  CHECK(choose_phase(of_type(gradients, Type::Float32), Where::Sim, figures).why() == "auto: no other can");
  CHECK(backward.figure.phase.empty());  // a forward pass's figure says nothing of gradients
}

TEST_CASE("gradients are judged by backward figures, of the mode that is asked for") {
  constexpr BackwardMode deterministic = BackwardMode::Deterministic, atomic = BackwardMode::Atomic;
  const auto figure = [](std::string_view phase, double tflops, BackwardMode mode, std::int64_t D = 64) {
    return Measured{phase, half_type, false, D, 512, 6, tflops, Direction::Backward, mode};
  };
  // A phase stands in a file by its name or by its number.
  const std::vector<Measured> figures = {figure("09", 40, atomic),
                                         figure("09", 30, deterministic),
                                         figure("21-backward-wgmma", 50, atomic),
                                         figure("21-backward-wgmma", 10, deterministic),
                                         figure("22-backward-roles", 20, deterministic),
                                         figure("22-backward-roles", 60, deterministic, 128),
                                         {"19-beyond", half_type, false, 64, 512, 6, 900},
                                         {"22-backward-roles", half_type, false, 64, 512, 6, 900}};
  const auto choice = [&](std::int64_t D, BackwardMode mode) {
    AnyProblem p = sizes(512, D);
    p.direction = Direction::Backward;
    p.options.mode = mode;
    return choose_phase(p, Where::Sim, figures);
  };
  CHECK(choice(64, deterministic).phase->name == std::string("09-backward"));
  CHECK(choice(64, deterministic).why() ==
        std::string("auto: 30 TFLOP/s backward at B·H 6, N 512, D 64, float16 on ") + measured_gpu);
  CHECK(choice(64, atomic).phase->name == std::string("21-backward-wgmma"));
  CHECK(choice(128, deterministic).phase->name == std::string("22-backward-roles"));
  // Its forward figure of 900 is no figure of gradients, nor theirs one of a forward pass.
  CHECK(choice(64, atomic).figure.tflops == 50);
  CHECK(chosen(sizes(512, 64), half_type, figures) == "22-backward-roles");
}

TEST_CASE("on each kind of GPU gradients get the fastest that it can run") {
  for (const BackwardMode mode : {BackwardMode::Deterministic, BackwardMode::Atomic})
    for (const Type type : {Type::Float16, Type::BFloat16})
      for (const Mask mask : {Mask::none(), Mask::bottom_right()})
        for (const std::int64_t D : {64, 128, 256}) {
          AnyProblem p = of_type({{8, 16, 16, 1024, 1024, D, D}, type, {.mask = mask}}, type);
          p.direction = Direction::Backward;
          p.options.mode = mode;
          INFO(name(type), " D ", D, mask.is_causal() ? " causal" : "", ", mode ", static_cast<int>(mode));
          const auto on = [&](Capability device) {
            return choose_phase(p, [device](const Features& can) { return runs_on(can, device); });
          };
          double best = 0;  // with so many tokens and heads, whoever was measured
          for (const Measured& m : measured_figures())
            if (m.direction == Direction::Backward && m.mode == mode && m.D == D && m.N == 1024 &&
                m.causal == mask.is_causal() && m.heads == 32768 / D)
              best = std::max(best, m.tflops);
          REQUIRE(best > 0);
          const Choice hopper = on({9, 0}), ampere = on({8, 0}), turing = on({7, 5});
          CHECK(hopper.figure.tflops >= 0.98 * best);
          CHECK(hopper.phase->backward->features.capability.exactly);
          CHECK(ampere.phase->backward->features.capability.major == 8);
          CHECK(ampere.figure.tflops < 0.9 * best);
          CHECK(runs_on(turing.phase->backward->features, {7, 5}));
          CHECK(turing.only);
          CHECK(on({10, 0}).phase == ampere.phase);  // what is of one capability alone does not run on the next
          // fp32 is nobody's but the one's that has no tensor cores.
          p = of_type(p, Type::Float32);
          CHECK(on({9, 0}).phase == turing.phase);
        }
}

// By TMA and wgmma where that may be, else by mma.sync; whatever the figures of phases that do not have it.
TEST_CASE("grouped heads and a Dv of its own get a phase that has them") {
  const AnyProblem grouped({2, 8, 2, 512, 512, 64, 64}, half_type, {}, true),
      other_width({2, 8, 8, 512, 512, 192, 128}, half_type, {}, true);
  for (const AnyProblem& p : {grouped, other_width}) {
    const auto on = [&](Capability device) {
      return choose_phase(p, [device](const Features& can) { return runs_on(can, device); }).phase;
    };
    const Features &hopper = on({9, 0})->forward->features, &ampere = on({8, 0})->forward->features;
    for (const Demand demand : {Demand::FewerHeads, Demand::OtherDv})
      CHECK((hopper.meets(demand) && ampere.meets(demand)));
    CHECK(hopper.capability.exactly);
    CHECK(ampere.capability.major == 8);
    CHECK(on({10, 0})->forward->features.capability.major == 8);
    AnyProblem odd = p;
    odd.k.stride[2] += 1, odd.k.stride[1] += p.Sk(), odd.k.stride[0] += p.Sk() * p.k.H();
    CHECK(choose_phase(odd, [](const Features& can) { return runs_on(can, {9, 0}); }).phase == on({8, 0}));
  }
}

TEST_CASE("a window gets a phase that has it") {
  Options options;
  options.mask = {127, 0, Alignment::BottomRight};
  for (const std::int64_t Hk : {8, 2}) {
    const AnyProblem p({2, 8, Hk, 512, 600, 128, 128}, half_type, options, true);
    const auto on = [&](Capability device) {
      return choose_phase(p, [device](const Features& can) { return runs_on(can, device); }).phase;
    };
    for (const Capability device : {Capability{9, 0}, Capability{8, 0}, Capability{10, 0}})
      CHECK(on(device)->forward->features.meets(Demand::Window));
    CHECK(on({9, 0})->forward->features.capability.exactly);
    CHECK(on({8, 0})->forward->features.capability.major == 8);
  }
}

// Boxes of TMA count batch entries in rows of one tensor; who copies without it takes any layout.
TEST_CASE("sequences of their own lengths get a phase that has them") {
  std::int32_t numbers[5] = {};
  const auto lengths = [&](std::int64_t count) { return any_of(dense_view(numbers, {1, 1, count, 1})); };
  AnyProblem padded({4, 8, 8, 512, 600, 64, 64}, half_type, {}, true),
      packed({1, 8, 8, 512, 600, 64, 64}, half_type, {});
  padded.rows_of = padded.keys_of = lengths(4), packed.first_rows = packed.first_keys = lengths(5);
  const auto on = [](AnyProblem p, Direction direction, Capability device) {
    p.direction = direction;
    return choose_phase(p, [device](const Features& can) { return runs_on(can, device); }).phase;
  };
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    const auto can = [&](const AnyProblem& p, Capability device) {
      return pass_of(*on(p, direction, device), direction).features;
    };
    for (const AnyProblem& p : {padded, packed}) {
      for (const Capability device : {Capability{9, 0}, Capability{8, 0}, Capability{10, 0}})
        CHECK(can(p, device).meets(Demand::Lengths));
      CHECK(can(p, {9, 0}).capability.exactly);
      CHECK(can(p, {8, 0}).capability.major == 8);
    }
    AnyProblem apart = padded, other = padded;
    for (AnyView* view : {&apart.k, &apart.v, &other.v}) view->stride[0] += 2 * view->stride[2];
    CHECK(can(apart, {9, 0}).capability.exactly);
    CHECK(on(other, direction, {9, 0}) == on(padded, direction, {8, 0}));
    other.rows_of = other.keys_of = {};
    CHECK(can(other, {9, 0}).capability.exactly);
  }
}

TEST_CASE("a phase that has more than is asked is left to those who ask") {
  const auto with = [](const auto& ask) {
    AnyProblem p({1, 8, 8, 2048, 2048, 128, 128}, Type::BFloat16, {});
    ask(p);
    return choose_phase(p, Where::Sim).phase->forward->features.meets;
  };
  const auto has_more = [](const Demands& meets, const Demands& asked) {
    return std::any_of(std::begin(demands::rows), std::end(demands::rows), [&](const DemandRow& row) {
      return met_by_variants(row.demand) && meets(row.demand) && !asked(row.demand);
    });
  };
  CHECK_FALSE(has_more(with([](AnyProblem&) {}), {}));
  const Demands grouped = {Demand::FewerHeads, Demand::OtherDv};
  CHECK_FALSE(has_more(with([](AnyProblem& p) {
                         p = AnyProblem({1, 8, 2, 2048, 2048, 128, 128}, Type::BFloat16, {});
                       }),
                       grouped));
  const Demands windows = {Demand::FewerHeads, Demand::OtherDv, Demand::Window};
  const Demands window = with([](AnyProblem& p) { p.options.mask = {.left = 100, .right = 0}; });
  CHECK(window(Demand::Window));
  CHECK_FALSE(has_more(window, windows));
  const Demands sequences = {Demand::FewerHeads, Demand::OtherDv, Demand::Window, Demand::Lengths};
  std::int32_t rows = 0;
  const Demands lengths = with([&](AnyProblem& p) { p.rows_of = any_of(dense_view(&rows, {1, 1, 1, 1})); });
  CHECK(lengths(Demand::Lengths));
  CHECK_FALSE(has_more(lengths, sequences));
}

TEST_CASE("figures of the type's size, else of any, and of the very type where two are as near") {
  const std::vector<Measured> figures = {{"06-4d-grid", Type::Float32, false, 64, 512, 6, 30},
                                         {"06-4d-grid", Type::Float16, false, 64, 512, 6, 10},
                                         {"08-lse", Type::Float16, false, 64, 512, 6, 20}};
  CHECK(chosen(sizes(512, 64), Type::Float32, figures) == "06-4d-grid");  // 30 against 20
  CHECK(chosen(sizes(512, 64), Type::Float16, figures) == "08-lse");
  CHECK(chosen(sizes(512, 64), Type::BFloat16, figures) == "08-lse");
  const std::vector<Measured> exact = {{"06-4d-grid", Type::BFloat16, false, 64, 8192, 6, 30},
                                       {"06-4d-grid", Type::BFloat16, false, 64, 512, 6, 30},
                                       {"06-4d-grid", Type::Float16, false, 64, 512, 6, 10},
                                       {"08-lse", Type::Float16, false, 64, 512, 6, 20}};
  CHECK(chosen(sizes(512, 64), Type::BFloat16, exact) == "06-4d-grid");
  CHECK(chosen(sizes(512, 64), Type::Float16, exact) == "08-lse");
  CHECK(chosen(sizes(8192, 64), Type::Float16, exact) ==
        "06-4d-grid");  // any 16 bits of this size before the very type
}

TEST_CASE("within 2 % the newest, without a figure the newest, and a kernel that nobody knows is nobody's") {
  const auto two = [](double older, double newer) {
    return std::vector<Measured>{{"06-4d-grid", half_type, false, 64, 512, 6, older},
                                 {"08-lse", half_type, false, 64, 512, 6, newer},
                                 {"torch flash", half_type, false, 64, 512, 6, 1e6}};
  };
  CHECK(chosen(sizes(512, 64), half_type, two(100, 98.1)) == "08-lse");
  CHECK(chosen(sizes(512, 64), half_type, two(100, 97.9)) == "06-4d-grid");
  CHECK(chosen(sizes(512, 64), half_type, {}) ==
        newest([](const Features& can) { return can.types.contains(half_type); }));
  CHECK(chosen(sizes(512, 64), Type::Float32, {}) ==
        newest([](const Features& can) { return can.types.contains(Type::Float32); }));
  CHECK(choose_phase(of_type(sizes(512, 64), half_type), Where::Sim, {}).why() ==
        "auto: the newest that can; none of them was measured");
}

TEST_CASE("what no phase can do is refused by the one that is answered") {
  const auto refusal = [](AnyProblem p, Type type) {
    p = of_type(p, type);
    float data[1];
    for (AnyView* view : {&p.q, &p.k, &p.v, &p.o, &p.lse}) view->data = data;
    try {
      validate(p, *choose_phase(p, Where::Sim).phase);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const Type type : {Type::Float32, Type::Float16, Type::BFloat16}) {
    CHECK(refusal(sizes(8, 257, Mask::top_left(), true), type) ==
          "Q's head dimension D is 257; expected 1 to 256; split the head");
    CHECK(refusal(sizes(8, 256, Mask::top_left(), true), type) == "");
  }
}

TEST_CASE("a GPU takes only what it can run, the simulator takes what a GPU would") {
  for (const Type type : {Type::Float32, Type::Float16}) {
    const Choice on_sim = choose_phase(of_type(sizes(2048, 64), type), Where::Sim),
                 checked = choose_phase(of_type(sizes(2048, 64), type), Where::Checked),
                 on_gpu = choose_phase(of_type(sizes(2048, 64), type), Where::Gpu);
    CHECK(on_sim.phase == checked.phase);
    CHECK(on_sim.why() == checked.why());
    if (available(Where::Gpu)) CHECK(available(on_gpu.phase->forward->features, Where::Gpu));
    if (available(on_sim.phase->forward->features, Where::Gpu)) CHECK(on_gpu.phase == on_sim.phase);
  }
}

TEST_CASE("the figures are of phases that there are, and positive") {
  REQUIRE(measured_figures().size() > 50);
  for (const Measured& m : measured_figures()) {
    INFO(std::string(m.phase));
    CHECK(find_phase(std::string(m.phase)).kernel());
    CHECK(m.tflops > 0);
    CHECK(m.N > 0);
    CHECK(m.D > 0);
    CHECK(m.heads > 0);
  }
  const Choice choice = choose_phase({{8, 32, 32, 2048, 2048, 64, 64}, half_type, {}, true}, Where::Sim);
  for (const Measured& m : measured_figures())
    if (m.direction == Direction::Forward && m.type == half_type && !m.causal && m.D == 64 && m.N == 2048 &&
        m.heads == 256)
      CHECK(0.98 * m.tflops <= choice.figure.tflops);
  CHECK(choice.why().find(" TFLOP/s at B·H 256, N 2048, D 64, float16 on ") != std::string::npos);
}

// A wheel holds these and no others (phases/library/CMakeLists.txt).
TEST_CASE("the phases that auto can take are those that a wheel has") {
  float data[1];
  const AnyView some = any_of(dense_view(data, {1, 1, 1, 1}));
  const std::function<void(AnyProblem&)> asks[] = {
      [](AnyProblem&) {},
      [](AnyProblem& p) { p.options.mask = Mask::bottom_right(); },
      [](AnyProblem& p) { p.options.mask = {.left = 100, .right = 0}; },
      [&](AnyProblem& p) { p.lse = some; },
      [&](AnyProblem& p) { p.m = p.l = p.o_lo = some; },
      [](AnyProblem& p) { p.out = Type::Float32; },
      [&](AnyProblem& p) { p.rows_of = p.keys_of = some; },
      [](AnyProblem& p) { p.options.softcap = 30; },
      [&](AnyProblem& p) { p.slopes = some; },
      [&](AnyProblem& p) { p.bias = some; },
      [&](AnyProblem& p) { p.allowed = some; },
      [&](AnyProblem& p) { p.document_q = p.document_k = some; },
      [&](AnyProblem& p) { p.blocks = some; },
      [&](AnyProblem& p) { p.sinks = some; },
      [](AnyProblem& p) { p.options.dropout.p = 0.25f; },
      [](AnyProblem& p) { p.k.stride[2] += 1, p.k.stride[1] += p.Sk(), p.k.stride[0] += p.Sk() * p.k.H(); },
      [](AnyProblem& p) { p.options.mode = BackwardMode::Atomic; },
      [](AnyProblem& p) { p.options.spare_multiprocessors = 4; }};
  std::set<std::string> taken;
  const auto take = [&](const AnyProblem& p, Capability device) {
    const auto runs = [device](const Features& can) { return runs_on(can, device); };
    const Phase& phase = *choose_phase(p, runs).phase;
    const Features& can = pass_of(phase, p.direction).features;
    if (runs(can) && can.types.contains(p.type) && !unmet(p, can.meets)) taken.insert(std::string(phase.name, 2));
  };
  for (const Direction direction : {Direction::Forward, Direction::Backward})
    for (const Type type : {Type::Float32, Type::Float16, Type::BFloat16})
      for (const std::int64_t Hk : {16, 4})
        for (const std::int64_t D : {64, 128, 256})
          for (const std::int64_t N : {1, 1024, 16384})
            for (const auto& one : asks)
              for (const auto& other : asks) {
                AnyProblem p = of_type({{2, 16, Hk, N, N, D, D}, type, {}}, type);
                p.direction = direction;
                one(p), other(p);
                for (const Capability device : {Capability{7, 5}, {8, 0}, {9, 0}, {12, 0}}) take(p, device);
              }
  std::string numbers;
  for (const std::string& number : taken) numbers += (numbers.empty() ? "" : " ") + number;
  CHECK(numbers == FLASH_AUTOMATIC_PHASES);
}
