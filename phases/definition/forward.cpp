// forward.cpp: O by the definition, online softmax row by row over tiles of 64 keys; LSE, and what a backward pass
// needs. Tensors of any type, numbers in fp32.
// Use: definition.hpp
#include "phases/definition/definition.hpp"
#include "phases/definition/scores.hpp"

namespace flash::definition {
namespace {

struct Tiles {
  alignas(64) RowTile q, o;
  alignas(64) Transposed kt;
  alignas(64) KeyTile v;
  alignas(64) Scores s;
};

// A row's state goes on with a tile of keys, whose logits are in base 2.
void add_tile(const Head& head, std::int64_t i, std::int64_t first_key, float* s, float& m, float& l, float* o,
              const KeyTile& v) {
  float top = m;
  for (int j = 0; j < kKeys; ++j) top = s[j] > top || std::isnan(s[j]) ? s[j] : top;
  if (top == -infinity) return;  // nothing is seen yet
  const std::int64_t Dv = (head.p.v.D() + 15) / 16 * 16;
  const float alpha = exp2_of(m - top);
  for (int j = 0; j < kKeys; ++j) s[j] = exp2_of(s[j] - top);
  float sum = 0;
  for (int j = 0; j < kKeys; ++j) sum += s[j];
  m = top, l = l * alpha + sum;
  if (alpha != 1)
    for (std::int64_t d = 0; d < Dv; ++d) o[d] *= alpha;
  if (head.p.options.dropout.given()) {
    float factor[kKeys];
    drop(head, i, first_key, factor);
    for (int j = 0; j < kKeys; ++j) s[j] = factor[j] == 0 ? 0 : s[j] * factor[j];
  }
  add_rows(o, s, 1, v, kKeys, Dv);
}

// A sink is one more logit, without a value: the rule by which two halves of the keys are merged.
void add_sink(float sink, float& m, float& l, float* o) {
  if (sink == -infinity) return;
  const float top = std::max(m, sink), alpha = exp2_of(m - top);
  m = top, l = l * alpha + exp2_of(sink - top);
  for (int d = 0; d < kWidth; ++d) o[d] *= alpha;
}

void store(const Head& head, std::int64_t i, float m, float l, float* o) {
  const AnyProblem& p = head.p;
  const std::int64_t row = head.number(i), s = head.at.first_row + i;
  for (std::int64_t d = 0; d < p.v.D(); ++d) o[d] = l == 0 ? 0 : o[d] / l;
  store_row(p.o, p.out, head.at.b, head.h, s, o);
  if (p.lse.given()) static_cast<float*>(p.lse.data)[row] = l == 0 ? -infinity : m * 0.693147181f + std::log(l);
  if (p.m.given()) static_cast<float*>(p.m.data)[row] = m, static_cast<float*>(p.l.data)[row] = l;
  if (!p.o_lo.given()) return;
  float rounded[kWidth];
  load_row(rounded, p.o, p.out, head.at.b, head.h, s);
  std::int16_t* low = view_as<std::int16_t>(p.o_lo).row(head.at.b, head.h, s);
  for (std::int64_t d = 0; d < p.v.D(); ++d) low[d] = low_bits(o[d], rounded[d]);
}

void attend(const Head& head, std::int64_t first, int rows) {
  const auto tiles = std::make_unique<Tiles>();
  const AnyProblem& p = head.p;
  float m[kRows], l[kRows] = {};
  std::fill_n(m, kRows, -infinity);
  for (int r = 0; r < rows; ++r) head.load(tiles->q[r], p.q, p.type, first + r);
  std::memset(tiles->o, 0, sizeof tiles->o);
  for (std::int64_t key = 0; key < head.at.keys; key += kKeys) {
    if (!head.sees(first, rows, key)) continue;
    head.load_keys(p.k, key, nullptr, &tiles->kt);
    head.load_keys(p.v, key, &tiles->v, nullptr);
    multiply(tiles->s, tiles->q, tiles->kt, rows, p.D());
    for (int r = 0; r < rows; ++r) {
      finish_scores(head, first + r, key, tiles->s[r], nullptr);
      add_tile(head, first + r, key, tiles->s[r], m[r], l[r], tiles->o[r], tiles->v);
    }
  }
  for (int r = 0; r < rows; ++r) {
    add_sink(head.sink(), m[r], l[r], tiles->o[r]);
    store(head, first + r, m[r], l[r], tiles->o[r]);
  }
}

}  // namespace

void forward(const AnyProblem& p, int threads) {
  for_all_rows(p, threads, attend);
  // Rows of no sequence: as if they saw no key.
  for_each_idle(p, p.o, true, [&](std::int64_t b, std::int64_t h, std::int64_t s) {
    const float zeros[kWidth] = {};
    const std::int64_t row = (b * p.H() + h) * p.Sq() + s;
    store_row(p.o, p.out, b, h, s, zeros);
    if (p.lse.given()) static_cast<float*>(p.lse.data)[row] = -infinity;
    if (p.m.given()) static_cast<float*>(p.m.data)[row] = -infinity, static_cast<float*>(p.l.data)[row] = 0;
    if (p.o_lo.given()) std::fill_n(view_as<std::int16_t>(p.o_lo).row(b, h, s), p.o_lo.D(), std::int16_t{0});
  });
}

}  // namespace flash::definition
