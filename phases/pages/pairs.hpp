// pairs.hpp: which features go together: every two of them are asked of phases, and the answers printed as a table.
// What phases say is asked, by validate(); that they do what they say is for their tests (tests/features.hpp).
// Use: const Pairs pairs = print_pairs({&phase27::phase, &phase27m::phase});  expect(pairs.alike, "…");
#pragma once
#include <cstdio>
#include <initializer_list>
#include <string>

#include "phases/interface/validate.hpp"

namespace flash {

struct Pairs {
  int computed = 0;     // features alone, and pairs of them
  bool alike = true;    // all phases, and both passes of each, answered the same
  std::string refusal;  // the last one
};

// Of a problem with two heads of 64 rows, 64 keys and D 64 in fp16; causal and window are one mask, and no pair.
inline Pairs print_pairs(std::initializer_list<const Phase*> phases) {
  struct Feature {
    const char* name;
    void (*ask)(AnyProblem& p);
  };
  alignas(16) static std::int64_t nothing[2];  // no element is read
  static const auto array = [](std::int64_t H, std::int64_t S, std::int64_t D) {
    return any_of(dense_view(nothing, {1, H, S, D}));
  };
  static constexpr int causal = 2, window = 3;
  static const Feature features[] = {
      {"grouped heads", [](AnyProblem& p) { p.k = p.v = p.dk = p.dv = array(1, 64, 64); }},
      {"Dv", [](AnyProblem& p) { p.o = p.dout = array(2, 64, 32), p.v = p.dv = array(p.k.H(), 64, 32); }},
      {"causal", [](AnyProblem& p) { p.options.mask = Mask::bottom_right(); }},
      {"window", [](AnyProblem& p) { p.options.mask = {.left = 20, .right = 6}; }},
      {"cu_seqlens", [](AnyProblem& p) { p.first_rows = p.first_keys = array(1, 2, 1); }},
      {"seqused", [](AnyProblem& p) { p.rows_of = p.keys_of = array(1, 1, 1); }},
      {"O in float32", [](AnyProblem& p) { p.out = Type::Float32; }},
      {"gradient of LSE", [](AnyProblem& p) { p.dlse = p.lse; }},
      {"softcap", [](AnyProblem& p) { p.options.softcap = 30; }},
      {"ALiBi", [](AnyProblem& p) { p.slopes = array(2, 1, 1); }},
      {"bias", [](AnyProblem& p) { p.bias = array(2, 64, 64); }},
      {"mask", [](AnyProblem& p) { p.allowed = array(2, 64, 64); }},
      {"documents", [](AnyProblem& p) { p.document_q = p.document_k = array(1, 64, 1); }},
      {"block mask", [](AnyProblem& p) { p.blocks = array(2, 1, 1); }},
      {"sinks", [](AnyProblem& p) { p.sinks = array(2, 1, 1); }},
      {"dropout", [](AnyProblem& p) { p.options.dropout.p = 0.5f; }}};
  Pairs pairs;
  const auto is_refused = [&](const Phase& phase, AnyProblem p, Direction direction) {
    p.direction = direction;
    try {
      validate(p, phase);
      return false;
    } catch (const Error& e) {
      pairs.refusal = e.what();
      return true;
    }
  };
  for (int i = 0; i < static_cast<int>(std::size(features)); ++i) {
    std::printf("%-16s", features[i].name);
    for (int before = 0; before <= i; ++before) {
      AnyProblem p;
      p.type = p.out = Type::Float16;
      p.q = p.k = p.v = p.o = p.dout = p.dq = p.dk = p.dv = array(2, 64, 64), p.lse = array(2, 64, 1);
      features[before].ask(p), features[i].ask(p);
      const bool none = before == causal && i == window, refused = is_refused(**phases.begin(), p, Direction::Forward);
      for (const Phase* phase : phases)
        for (const Direction direction : {Direction::Forward, Direction::Backward})
          if (direction == Direction::Forward || p.out == p.type)  // gradients are of an O that has the type of Q
            pairs.alike = pairs.alike && is_refused(*phase, p, direction) == refused;
      pairs.computed += !none && !refused;
      std::printf(" %c", none ? ' ' : refused ? '-' : '+');
    }
    std::printf("\n");
  }
  return pairs;
}

}  // namespace flash
