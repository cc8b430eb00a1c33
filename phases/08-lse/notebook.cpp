// %% [markdown]
// # 08 · LSE: one number that stands for a softmax
//
// **Question.** The kernel throws m and l away and keeps only O. Who would miss them?
//
// **Idea.** Two kinds of caller would. The backward pass needs P again, and N × N numbers are too many to store. And
// where the keys are cut in two, for two blocks or two GPUs, merging the results takes the weight of each half. One
// number per row serves both:
//
// $$\mathrm{LSE}_i = \log \sum_j \exp(S_{ij}) = m_i + \log l_i \qquad P_{ij} = \exp(S_{ij} - \mathrm{LSE}_i)$$
//
// **Changed since 07.** One more pointer, one store per row. On the host: two converters, and `partial`, which turns a
// row of O and its LSE into phase 02's state (m = LSE, l = 1), so that phase 02's `merge` accepts it.

// %% tags=["hide-input"]
#include "phases/08-lse/lse.hpp"
#include "phases/08-lse/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/07-causal/phase.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

// Counts and checks every access; a build with a sanitizer leaves it out, and with it the claims about counters.
static const Where machine = was_built(Where::Checked) ? Where::Checked : Where::Sim;

// S of head h in fp64, keys that a row may not see at −inf.
static RowMajor<double> masked_scores(const Example& e, const Problem<float>& p, int h) {
  RowMajor<double> S = scores<double>(e, h);
  for (int i = 0; i < S.rows(); ++i) S.row(i).tail(S.cols() - p.visible(i).end).setConstant(-infinity);
  return S;
}
static double log_sum_exp(const Eigen::RowVectorXd& s) {
  const double m = s.maxCoeff();
  return m == -infinity ? m : m + std::log((s.array() - m).exp().sum());
}

CELL("What could be kept") {
  const int N = 256, D = 64;
  Example e = random_example(N, D);
  const Run run = phase08::forward(e.problem_with_lse(), machine);
  svg::Canvas canvas(760, 372, "What the forward pass could leave behind: N = 256, D = 64, to scale");
  const auto array = [&](double x, const char* name, int columns, const char* colour) {
    canvas.rect(x, 70, columns, N, std::string("fill=\"") + colour + "\"");
    canvas.text(x, 60, name, "font-weight=\"bold\"");
    canvas.text(x, 346, grouped(std::uint64_t(4 * N * columns)) + " bytes", "font-size=\"11\"");
  };
  array(16, "P", N, "#e4e4e4");
  array(300, "O", D, "#bcd9ee");
  array(394, "LSE", 1, "#d55e00");
  const auto box = [&](double x, double y, double w, const std::string& text, const char* colour) {
    canvas.rect(x, y, w, 30, std::string("fill=\"") + colour + "\"");
    canvas.text(x + w / 2, y + 20, text, "text-anchor=\"middle\"");
  };
  canvas.text(490, 60, "Who needs LSE?", "font-weight=\"bold\"");
  canvas.text(490, 88, "The backward pass: P again, from S");
  box(490, 98, 116, "S", "#e4e4e4");
  box(640, 98, 104, "exp(S − LSE)", "#f2b36b");
  canvas.arrow(606, 113, 636, 113, "#222", 1);
  canvas.text(490, 170, "Whoever has only a part of the keys");
  for (const int part : {0, 1}) {
    const std::string n = std::to_string(part + 1);
    const double x = 490 + 138.0 * part;
    box(x, 180, 116, "keys, part " + n, "#e4e4e4");
    box(x, 234, 116, "O" + n + ", LSE" + n, "#f2b36b");
    canvas.arrow(x + 58, 210, x + 58, 232, "#222", 1);
    canvas.arrow(x + 58, 264, x + 58, 286, "#222", 1);
  }
  box(490, 288, 254, "O and LSE of all keys", "#bcd9ee");
  canvas.text(490, 340, "a part weighs exp(its LSE − LSE)", "fill=\"#666\"");
  picture("08-kept", canvas.str());
  expect(e.lse.size() == std::size_t(N), "one number per row");
  if (!run.counted) return;
  Ledger l = run.ledger;
  expect(l.array("LSE").written_bytes == 4 * N && l.array("O").written_bytes == 4 * N * D, "bytes written as drawn");
}

// %% [markdown]
// ## The code
//
// The thread that owns a row has m and l in its registers when the row is done. The kernel has multiplied the scores by
// log₂ e, so m is in base 2. Hence the factor ln 2.
//
// ```{region} attention.cuh lse
// ```
//
// ```{exercise} 08.1
// ```
//
// The pointer may be null if the caller does not want LSE. Each block finds its head's part of the array.
//
// ```{region} attention.cuh row-of-lse
// ```
//
// What this changed, against phase 07:
//
// ```{difference} ../07-causal/attention.cuh attention.cuh
// ```
//
// On the host, LSE becomes useful. Other programs, among them Triton's tutorial and FlashInfer, return it in base 2:
// log2 Σ exp(s). A program that mistakes one for the other is off by a factor of 1.44. So there are two converters, and
// their names say which way they go:
//
// ```{region} lse.hpp base-2
// ```
//
// A finished row of O with its LSE is a state in the sense of phase 02. O is divided by l already, which is the same as
// l = 1 with m = LSE.
//
// ```{region} lse.hpp partial
// ```

// %% [markdown]
// ## Run it
//
// LSE is a natural logarithm, in fp32, of shape [B, H, S_q]. The cell compares it with fp64, and O with phase 07's.

// %% tags=["hide-input"]
CELL("LSE of the sentence, and O as before") {
  Example e = sentence();
  double worst = 0, wrong_base = 0;
  bool same = true;
  for (const Mask causal : {Mask::none(), Mask::top_left()}) {
    const Problem<float> p = e.problem_with_lse({.mask = causal});
    Problem<float> without = p;
    without.lse = nullptr;
    phase07::forward(without, Where::Sim);
    const Tensor<float> before = e.o;
    phase08::forward(p, machine);
    same = same && std::memcmp(before.data(), e.o.data(), e.o.size() * sizeof(float)) == 0;
    for (int h = 0; h < 12; ++h) {
      const RowMajor<double> S = masked_scores(e, p, h);
      for (int i = 0; i < 50; ++i) {
        const float lse = e.lse[h * 50 + i];
        worst = worse(worst, std::abs(lse - log_sum_exp(S.row(i))));
        wrong_base = worse(wrong_base, std::abs(phase08::lse_to_base2(lse) - log_sum_exp(S.row(i))));
        same = same && std::abs(phase08::lse_from_base2(phase08::lse_to_base2(lse)) - lse) <= 1e-6 * std::abs(lse);
      }
    }
  }
  std::printf("worst |LSE − fp64|: %.1e; base 2 taken for natural: %.1f\n", worst, wrong_base);
  expect(worst <= 4e-6 && wrong_base > 1, "natural logarithm; the other base would be off by more than 1");
  expect(same, "O bit for bit as in phase 07; to base 2 and back changes only the last digit");

  Example four = random_example(1, 8);  // four keys, and a scale that makes all scores 0
  four.k = four.v = random_tensor<float>({1, 1, 4, 8}, 1, 1);
  phase08::forward(four.problem_with_lse({.scale = 0.0f}), Where::Sim);
  std::printf("four equal scores of 0: LSE = %.6f = ln 4, in base 2: %.6f\n", four.lse[0],
              phase08::lse_to_base2(four.lse[0]));
  expect(std::abs(phase08::lse_to_base2(four.lse[0]) - 2) <= 1e-6, "log2 4 = 2");

  Example blind = random_example(6, 16);  // 6 queries, 4 keys, bottom-right: the first two see nothing
  blind.k = random_tensor<float>({1, 1, 4, 16}, 1, 1), blind.v = random_tensor<float>({1, 1, 4, 16}, 1, 2);
  phase08::forward(blind.problem_with_lse({.mask = Mask::bottom_right()}), machine);
  expect(blind.lse[0] == -infinity && blind.lse[1] == -infinity && std::isfinite(blind.lse[2]),
         "a row that sees no key: log 0 = −inf");
}

// %% [markdown]
// ## Merge
//
// Cut the keys into parts, run the kernel on each part alone, and merge the results by LSE. Of the whole weight a part
// holds the share w = exp(LSE_part − LSE), and its O is multiplied by w. O alone does not say how much its keys
// weighed. The merge uses nothing but O and LSE of finished kernels, so the parts might as well be on two GPUs, or
// belong to two sets of blocks that share one long row of keys ({term}`split-K`, as in flash-decoding).
//
// ```{exercise} 08.2
// ```
//
// ```{question}
// O has been computed twice, each time from one half of the keys. How far is the mean of the two from the whole: by a
// rounding error, by about 1 %, or by nearly the size of O?
// ```

// %% tags=["hide-input"]
// The kernel on keys begin … end − 1 only; the strides stay those of the whole.
static Example on_keys(const Example& whole, int begin, int end) {
  Example part = whole;
  Problem<float> p = part.problem_with_lse();
  p.k.shape[2] = p.v.shape[2] = end - begin;
  if (begin < end) p.k.data = p.k.row(0, 0, begin), p.v.data = p.v.row(0, 0, begin);
  phase08::forward(p, Where::Sim);
  return part;
}
static phase02::State state_of(const Example& e, int h, int i) {
  return phase08::partial(&e.o(0, h, i, 0), 32, e.lse[h * 50 + i]);
}

// Runs the parts between the cuts, merges them row by row; the worst head against fp64, O and LSE.
static std::array<double, 2> split_errors(const Example& e, const std::vector<int>& cuts) {
  Example merged = e;
  std::vector<Example> parts;
  for (std::size_t c = 0; c + 1 < cuts.size(); ++c) parts.push_back(on_keys(e, cuts[c], cuts[c + 1]));
  double lse_error = 0;
  for (int h = 0; h < 12; ++h) {
    const RowMajor<double> S = scores<double>(e, h);
    for (int i = 0; i < 50; ++i) {
      phase02::State state;
      for (const Example& part : parts) state = phase02::merge(state, state_of(part, h, i));
      Eigen::Map<Eigen::VectorXf>(&merged.o(0, h, i, 0), 32) = state.output();
      lse_error = worse(lse_error, std::abs(state.lse() - log_sum_exp(S.row(i))));
    }
  }
  return {worst_head(merged), lse_error};
}

CELL("Any split") {
  const Example e = sentence();
  const std::vector<std::pair<const char*, std::vector<int>>> splits = {{"whole", {0, 50}},
                                                                        {"two halves", {0, 25, 50}},
                                                                        {"1 + 49", {0, 1, 50}},
                                                                        {"0 + 50: an empty part", {0, 0, 50}},
                                                                        {"five parts", {0, 7, 8, 29, 40, 50}}};
  std::printf("keys cut into             error of O   error of LSE\n");
  bool right = true;
  for (const auto& [name, cuts] : splits) {
    const auto [o, lse] = split_errors(e, cuts);
    std::printf("%-24s %10.1e %12.1e\n", name, o, lse);
    right = right && o <= 2e-6 && lse <= 4e-6;
  }
  std::vector<int> each(51);
  for (int j = 0; j <= 50; ++j) each[j] = j;
  const auto [o, lse] = split_errors(e, each);
  std::printf("%-24s %10.1e %12.1e\n", "50 parts of one key", o, lse);
  expect(right && o <= 2e-6 && lse <= 4e-6, "every split gives the whole");

  const Example left = on_keys(e, 0, 25), rest = on_keys(e, 25, 50);
  Example mean = e;
  mean.o = 0.5f * (left.o + rest.o);
  std::printf("the mean of the two halves, without LSE: %.1e\n", worst_head(mean));
  expect(worst_head(mean) > 0.1, "O alone does not merge");
}

// %% [markdown]
// ```{answer}
// By nearly the size of O. A head that looks at one word has nearly all its weight in one half, but the mean counts
// both halves alike. With the LSE of each half the error is that of the kernel itself.
// ```
//
// How much does the left part weigh, as the cut moves from left to right? In head 7 `had` looks for what is had, and in
// head 3 `her` looks for the person who is meant. Each curve jumps most at the word that it looks for.

// %% tags=["hide-input"]
CELL("What the left part weighs") {
  const Example e = sentence(), whole = on_keys(e, 0, 50);
  const std::vector<std::string> words = sentence_words();
  std::vector<svg::Line> lines{{"\"had\", head 7", {}}, {"\"her\" (11), head 3", {}}};
  const std::array<int, 2> heads{7, 3}, rows{41, 11};
  double worst = 0;
  for (int cut = 0; cut <= 50; ++cut) {
    const Example left = on_keys(e, 0, cut), right = on_keys(e, cut, 50);
    for (const int k : {0, 1}) {
      const int at = heads[k] * 50 + rows[k];
      const double weight = std::exp(left.lse[at] - whole.lse[at]), rest = std::exp(right.lse[at] - whole.lse[at]);
      lines[k].points.push_back({double(cut), weight});
      worst = worse(worst, std::abs(weight + rest - 1));
    }
  }
  std::array<int, 2> jump{};
  for (const int k : {0, 1}) {
    const auto step = [&](int j) { return lines[k].points[j + 1][1] - lines[k].points[j][1]; };
    for (int j = 0; j < 50; ++j) jump[k] = step(j) > step(jump[k]) ? j : jump[k];
    std::printf("%-20s jumps by %.2f at \"%s\"\n", lines[k].label.c_str(), step(jump[k]), words[jump[k]].c_str());
  }
  expect(worst <= 4e-6, "the two shares add up to 1 at each cut");
  expect(words[jump[0]] == "conversations" && words[jump[1]] == "alice", "conversations are had; her is Alice");
  picture("08-share",
          svg::chart({"exp(LSE of the left part − LSE of the whole)", "keys in the left part", "share", false}, lines));
}

// %% [markdown]
// ## P, rebuilt
//
// A backward pass computes a tile of S again and takes P_ij = exp(S_ij − LSE_i). It needs no maximum, no sum and no
// second pass over the row, so the tiles may come in any order. (Phase 09 will keep m and l instead, and say why.) The
// largest exponent is log P ≤ 0, so nothing overflows. The cell does it for a whole head at once, causal, in fp32.

// %% tags=["hide-input"]
CELL("P from S and LSE alone") {
  Example e = sentence();
  const Problem<float> p = e.problem_with_lse({.mask = Mask::top_left()});
  phase08::forward(p, machine);
  double sums = 0, product = 0, error = 0;
  std::vector<double> shown;
  for (int h = 0; h < 12; ++h) {
    RowMajor<float> P = scores<float>(e, h);
    for (int i = 0; i < 50; ++i) {
      P.row(i) = (P.row(i).array() - e.lse[h * 50 + i]).exp();
      P.row(i).tail(50 - p.visible(i).end).setZero();
      sums = worse(sums, std::abs(P.row(i).sum() - 1.0));
    }
    error = worse(error, relative_error(P, exact_softmax(masked_scores(e, p, h))));
    product = worse(product, relative_error(RowMajor<float>(P * head(e.v, h)), head(e.o, h).cast<double>()));
    if (h == 7) shown.assign(P.data(), P.data() + P.size());
  }
  std::printf("worst head: P against fp64 %.1e, its rows sum to 1 ± %.1e, P V against the kernel's O %.1e\n", error,
              sums, product);
  expect(error <= 4e-6 && sums <= 4e-6 && product <= 4e-6, "S and one number per row are as good as P");
  picture("08-rebuilt", svg::heat_map("Head 7, causal: P = exp(S − LSE)", shown, sentence_words(), sentence_words()));
}

// %% [markdown]
// ## What it costs
//
// LSE costs 4 bytes per row, written once by the thread that has m and l in registers. m and l apart would be 8 bytes,
// a row of P would be 4N.
//
// ```{question}
// What share of all bytes moved is LSE's, for N = 512 and D = 64? And does the share grow or shrink with N?
// ```

// %% tags=["hide-input"]
CELL("Four bytes per row") {
  if (!was_built(Where::Checked)) return;
  bool equal = true;
  std::printf("   N   LSE [bytes]    of all     P would be\n");
  for (std::uint64_t N = 64; N <= 512; N *= 2) {
    Example e = random_example(N, 64);
    Ledger with = phase08::forward(e.problem_with_lse(), machine).ledger;
    const Ledger without = phase08::forward(e.problem(), machine).ledger;
    const ArrayTraffic lse = with.array("LSE");
    std::printf("%4d %13s %8.2f %% %14s\n", int(N), grouped(lse.written_bytes).c_str(),
                100.0 * double(lse.written_bytes) / double(with.hbm_bytes()), grouped(4 * N * N).c_str());
    equal = equal && lse.written_bytes == 4 * N && lse.read_bytes == 0 && lse.write_sectors == 4 * N / 32 &&
            with.hbm_bytes() == without.hbm_bytes() + 4 * N && with.exps == without.exps &&
            with.flops == without.flops + 2 * N;
  }
  expect(equal, "predicted = counted: 4N bytes in whole 32-byte sectors, one multiply-add per row, no exponential");
}

// %% [markdown]
// ```{answer}
// 0.09 %. It shrinks: LSE has 4 bytes for each row, once, while K and V pass once more for every further Q tile.
// ```
//
// **What you saw.** LSE is m and l in one number: enough to rebuild any element of P, and enough to merge what was
// computed separately. It costs next to nothing, and the forward pass is complete with it.
//
// **Write it yourself.** The capstone of part 2 gives you an empty kernel, its launch and a promise: heads, a
// ragged last tile, a causal mask, LSE; no race, no bank conflict, and few sectors.
//
// ```{exercise} 08.3
// ```
//
// **To think about.** 1. With {term}`logits <logit>` near −2·10⁶ an fp32 LSE has steps of 0.125: what becomes of P, and
// of a merge? 2. Cut the keys of a causal problem in half: which mask gives each half its part of the diagonal? 3.
// Eight GPUs have a part of the keys each: what does each of them send, and how many bytes is that per row?
//
// <details><summary>Answers</summary>
//
// 1. LSE is rounded by up to half a step, 0.0625, and exp turns that into a factor on all of the row: P is up to 6 %
// too large or too small. In a merge only the ratio of the two weights counts; it is off by up to exp(0.125), 13 %, but
// O is still a mean of the two parts. Phase 09 therefore keeps m and l apart.
//
// 2. Top-left for the left half, bottom-right for the right half. Row i sees j ≤ i, and key j is number j − N/2 of the
// right half, so there it sees numbers up to i − N/2 = i + S_k − S_q with S_k = N/2 and S_q = N. Rows that see nothing
// have LSE = −∞ and the weight 0.
//
// 3. For each row its O and its LSE, 4 (D + 1) bytes in fp32: 260 for D = 64. Keys and values stay where they are.
//
// </details>
