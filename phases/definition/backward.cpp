// backward.cpp: dQ, dK and dV by the definition (docs/backward.md), deterministic: what is summed has one owner. A walk
// by rows makes dQ, one by keys dK, dV and dbias; both make P and dS again.
// Use: definition.hpp
#include "phases/definition/definition.hpp"
#include "phases/definition/scores.hpp"

namespace flash::definition {
namespace {

// Of each row of each head: m and l by which P comes back, δ - dLSE.
struct RowNumbers {
  std::vector<float> m, l, delta;
};

RowNumbers numbers_of_rows(const AnyProblem& p, int threads) {
  const auto rows = static_cast<std::size_t>(p.B() * p.H() * p.Sq());
  RowNumbers of{std::vector<float>(rows), std::vector<float>(rows), std::vector<float>(rows)};
  for_all_rows(p, threads, [&](const Head& head, std::int64_t first, int count) {
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t row = head.number(i);
      float o[kWidth], dout[kWidth];
      head.load(o, p.o, p.out, i), head.load(dout, p.dout, p.type, i);
      if (p.o_lo.given()) {
        const std::int16_t* low = view_as<std::int16_t>(p.o_lo).row(head.at.b, head.h, head.at.first_row + i);
        for (std::int64_t d = 0; d < p.v.D(); ++d) o[d] = restored(o[d], low[d]);
      }
      float delta = 0;
      for (std::int64_t d = 0; d < p.v.D(); ++d) delta += dout[d] * o[d];
      if (p.dlse.given()) delta -= static_cast<const float*>(p.dlse.data)[row];
      of.delta[row] = delta;
      of.m[row] =
          p.m.given() ? static_cast<const float*>(p.m.data)[row] : static_cast<const float*>(p.lse.data)[row] * log2_e;
      of.l[row] = p.m.given() ? static_cast<const float*>(p.l.data)[row] : 1;
    }
  });
  return of;
}

// What a pair of tiles gives: P as it was multiplied by V, with dropout; the gradient of the logits, bias and all; and
// of scale · q·k.
struct Pair {
  alignas(64) RowTile q, dout;
  alignas(64) KeyTile k;
  alignas(64) Transposed kt, vt;
  alignas(64) Scores p, dlogits, ds;
  float m[kRows], l[kRows], delta[kRows];

  void load_rows(const Head& head, const RowNumbers& numbers, std::int64_t first, int rows) {
    for (int r = 0; r < rows; ++r) {
      head.load(q[r], head.p.q, head.p.type, first + r), head.load(dout[r], head.p.dout, head.p.type, first + r);
      const auto row = static_cast<std::size_t>(head.number(first + r));
      m[r] = numbers.m[row], l[r] = numbers.l[row], delta[r] = numbers.delta[row];
    }
  }
  void load_keys(const Head& head, std::int64_t key) {
    head.load_keys(head.p.k, key, &k, &kt), head.load_keys(head.p.v, key, nullptr, &vt);
  }
  void meet(const Head& head, std::int64_t first, int rows, std::int64_t key) {
    multiply(p, q, kt, rows, head.p.D()), multiply(dlogits, dout, vt, rows, head.p.v.D());
    float derivative[kKeys], factor[kKeys];
    std::fill_n(derivative, kKeys, 1.0f), std::fill_n(factor, kKeys, 1.0f);
    for (int r = 0; r < rows; ++r) {
      finish_scores(head, first + r, key, p[r], derivative);
      if (head.p.options.dropout.given()) drop(head, first + r, key, factor);
      const float base = m[r], sum = l[r];
      float probability[kKeys];
      for (int j = 0; j < kKeys; ++j) probability[j] = exp2_of(p[r][j] - base) / sum;
      for (int j = 0; j < kKeys; ++j) {
        const bool hidden = p[r][j] == -infinity;
        const float dp = factor[j] == 0 ? 0 : dlogits[r][j] * factor[j];
        p[r][j] = hidden || factor[j] == 0 ? 0 : probability[j] * factor[j];
        dlogits[r][j] = hidden ? 0 : probability[j] * (dp - delta[r]);
        ds[r][j] = hidden ? 0 : dlogits[r][j] * derivative[j];
      }
    }
  }
};

void make_dq(const AnyProblem& p, const RowNumbers& numbers, int threads) {
  for_all_rows(p, threads, [&](const Head& head, std::int64_t first, int rows) {
    const auto pair = std::make_unique<Pair>();
    const auto dq = std::make_unique<float[][kWidth]>(kRows);
    pair->load_rows(head, numbers, first, rows);
    for (std::int64_t key = 0; key < head.at.keys; key += kKeys) {
      if (!head.sees(first, rows, key)) continue;
      pair->load_keys(head, key);
      pair->meet(head, first, rows, key);
      for (int r = 0; r < rows; ++r) add_rows(dq[r], pair->ds[r], 1, pair->k, kKeys, (p.D() + 15) / 16 * 16);
    }
    for (int r = 0; r < rows; ++r) {
      for (std::int64_t d = 0; d < p.D(); ++d) dq[r][d] *= head.scale;
      store_row(p.dq, p.type, head.at.b, head.h, head.at.first_row + first + r, dq[r]);
    }
  });
}

// dlogits of a pair, added to the rows of dbias that they share.
void add_dbias(const Head& head, const Pair& pair, std::int64_t first, int rows, std::int64_t key) {
  const AnyView& dbias = head.p.dbias;
  const std::int64_t keys = std::min<std::int64_t>(kKeys, head.at.keys - key);
  for (int r = 0; r < rows; ++r) {
    auto* to = const_cast<float*>(&shared_at<float>(dbias, head.n, head.h, first + r, key));
    for (std::int64_t j = 0; j < keys; ++j) to[j] += pair.dlogits[r][j];
  }
}

// dK and dV of a tile of keys: all heads of Q that read them, in their order, and of each all rows.
void make_keys(const AnyProblem& p, const RowNumbers& numbers, std::int64_t n, std::int64_t hk, std::int64_t key) {
  const std::int64_t group = p.H() / p.shape().Hk, D = (p.D() + 15) / 16 * 16, Dv = (p.v.D() + 15) / 16 * 16;
  const auto pair = std::make_unique<Pair>();
  const auto dk = std::make_unique<float[][kWidth]>(kKeys), dv = std::make_unique<float[][kWidth]>(kKeys);
  for (std::int64_t h = hk * group; h < (hk + 1) * group; ++h) {
    const Head head(p, n, h);
    if (h == hk * group) pair->load_keys(head, key);
    for (std::int64_t first = 0; first < head.at.rows; first += kRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kRows, head.at.rows - first));
      if (!head.sees(first, rows, key)) continue;
      pair->load_rows(head, numbers, first, rows);
      pair->meet(head, first, rows, key);
      for (int j = 0; j < kKeys; ++j) {
        add_rows(dk[j], &pair->ds[0][j], kKeys, pair->q, rows, D);
        add_rows(dv[j], &pair->p[0][j], kKeys, pair->dout, rows, Dv);
      }
      if (p.dbias.given()) add_dbias(head, *pair, first, rows, key);
    }
  }
  const Head head(p, n, hk * group);
  for (std::int64_t j = 0; j < std::min<std::int64_t>(kKeys, head.at.keys - key); ++j) {
    for (std::int64_t d = 0; d < p.D(); ++d) dk[j][d] *= head.scale;
    store_row(p.dk, p.type, head.at.b, hk, head.at.first_key + key + j, dk[j]);
    store_row(p.dv, p.type, head.at.b, hk, head.at.first_key + key + j, dv[j]);
  }
}

// A task for each tile of keys of each head of K and V; where heads or batch entries share dbias, one for all of them,
// so that its sums have one owner and one order.
void make_dk_dv(const AnyProblem& p, const RowNumbers& numbers, int threads) {
  const std::int64_t Hk = p.shape().Hk, N = p.sequences();
  const bool share_n = p.dbias.given() && p.dbias.B() == 1, share_h = p.dbias.given() && p.dbias.H() == 1;
  struct Task {
    std::int64_t n, hk, key;
  };
  std::vector<Task> tasks;
  std::int64_t longest = 0;
  for (std::int64_t n = 0; n < N; ++n) longest = std::max(longest, p.sequence(n).keys);
  for (std::int64_t n = 0; n < (share_n ? std::min<std::int64_t>(N, 1) : N); ++n)
    for (std::int64_t hk = 0; hk < (share_h ? std::min<std::int64_t>(Hk, 1) : Hk); ++hk)
      for (std::int64_t key = 0; key < (share_n ? longest : p.sequence(n).keys); key += kKeys)
        tasks.push_back({n, hk, key});
  for_all(threads, static_cast<std::int64_t>(tasks.size()), [&](std::int64_t t) {
    const Task& task = tasks[static_cast<std::size_t>(t)];
    for (std::int64_t n = task.n; n < (share_n ? N : task.n + 1); ++n)
      for (std::int64_t hk = task.hk; hk < (share_h ? Hk : task.hk + 1); ++hk)
        if (task.key < p.sequence(n).keys) make_keys(p, numbers, n, hk, task.key);
  });
}

// A sink has a P in each row, and its dP is 0.
void make_dsinks(const AnyProblem& p, const RowNumbers& numbers) {
  for (std::int64_t h = 0; h < p.H(); ++h) {
    double sum = 0;
    for (std::int64_t n = 0; n < p.sequences(); ++n) {
      const Head head(p, n, h);
      for (std::int64_t i = 0; i < head.at.rows && head.sink() > -infinity; ++i) {
        const auto row = static_cast<std::size_t>(head.number(i));
        sum -= static_cast<double>(exp2_of(head.sink() - numbers.m[row]) / numbers.l[row] * numbers.delta[row]);
      }
    }
    static_cast<float*>(p.dsinks.data)[h] = static_cast<float>(sum);
  }
}

}  // namespace

void backward(const AnyProblem& p, int threads) {
  const float zeros[kWidth] = {};
  if (p.dbias.given())
    for (std::int64_t b = 0; b < p.dbias.B(); ++b)
      for (std::int64_t h = 0; h < p.dbias.H(); ++h)
        for (std::int64_t i = 0; i < p.dbias.S(); ++i)
          std::fill_n(view_as<float>(p.dbias).row(b, h, i), p.dbias.D(), 0.0f);
  const RowNumbers numbers = numbers_of_rows(p, threads);
  make_dq(p, numbers, threads);
  make_dk_dv(p, numbers, threads);
  if (p.dsinks.given()) make_dsinks(p, numbers);
  // What belongs to no sequence has no gradient.
  for_each_idle(p, p.dq, true, [&](auto b, auto h, auto s) { store_row(p.dq, p.type, b, h, s, zeros); });
  for_each_idle(p, p.dk, false, [&](auto b, auto h, auto s) {
    store_row(p.dk, p.type, b, h, s, zeros), store_row(p.dv, p.type, b, h, s, zeros);
  });
}

}  // namespace flash::definition
