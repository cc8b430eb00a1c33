// %% [markdown]
// # 01 · Attention as the textbook writes it
//
// **Question.** In a sentence of N words, each word may look at all of them. What is computed, and what does it cost?
//
// **Idea.** Each word asks a question (a row of Q), offers a key (a row of K) and carries a value (a row of V).
// Each of these rows holds d numbers. The score of query i and key j is S_ij = q_i · k_j / √d. Softmax turns a row of
// scores into weights that sum to one, and the output row is the weighted mean of the values:
//
// $$S = Q K^\top / \sqrt d \quad\to\quad P = \mathrm{softmax}(S) \text{, row by row} \quad\to\quad O = P V$$
//
// In all pictures y is the row, the query that looks, and x is the column, the key that is looked at.

// %% tags=["hide-input"]
#include <cstdio>

#include "phases/01-naive/attention.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

static std::vector<double> flat(const RowMajor<float>& m) {
  return {m.data(), m.data() + m.size()};
}

// %% [markdown]
// ## Who multiplies whom
//
// These are the shapes for one {term}`head` of a real model, which is described below: N = 50 words, d = 32 numbers for
// each. A score stands where the row of its query meets the column of its key. A row of P mixes the rows of V.

// %% tags=["hide-input"]
CELL("Who multiplies whom") {
  const Example e = sentence();
  const RowMajor<float> Q = head(e.q, 3), Kt = head(e.k, 3).transpose(), V = head(e.v, 3), S = scores<float>(e, 3);
  const RowMajor<float> P = phase01::safe_softmax(S), O = P * V;
  const double px = 2.8, n = px * 50, d = px * 32;  // pixels for a number, for N and for d of them
  const int she = 27, alice = 1;
  svg::Canvas canvas(700, 434, "The shapes of attention, to scale");
  const auto text = [&](double x, double y, const std::string& words, const char* more = "") {
    canvas.text(x, y, words, std::string("text-anchor=\"middle\" ") + more);
  };
  // A matrix with its name and shape above it. `row` and `column` are drawn if they are there: the query's, the key's.
  const auto matrix = [&](double x, double y, const char* name, const RowMajor<float>& m, int row, int column) {
    const double w = px * double(m.cols()), h = px * double(m.rows());
    const std::string shape = "[" + std::to_string(m.rows()) + ", " + std::to_string(m.cols()) + "]";
    text(x + w / 2, y - 8, std::string(name) + " " + shape, "font-weight=\"bold\"");
    canvas.rect(x, y, w, h,
                m.rows() == m.cols() ? "fill=\"#f6dfb4\" stroke=\"#666\"" : "fill=\"#e4eef6\" stroke=\"#666\"");
    if (row >= 0) canvas.rect(x, y + px * row - 1, w, px + 1, row == she ? "fill=\"#d55e00\"" : "fill=\"#0072b2\"");
    if (column >= 0) canvas.rect(x + px * column - 1, y, px + 1, h, "fill=\"#0072b2\"");
    if (row >= 0 && m.rows() == m.cols()) canvas.dot(x + px * (alice + 0.5), y + px * (row + 0.5), "fill=\"#222\"");
  };
  const double main = 232, above = main - 34, x_q = 16, x_s = x_q + d + 34, x_p = x_s + n + 116, x_o = x_p + n + 34;
  const double caption = main + n + 18;
  matrix(x_s, above - d, "Kᵀ", Kt, -1, alice);
  matrix(x_o, above - n, "V", V, alice, -1);
  matrix(x_q, main, "Q", Q, she, -1);
  matrix(x_s, main, "S", S, she, -1);
  matrix(x_p, main, "P", P, she, -1);
  matrix(x_o, main, "O", O, she, -1);
  text(x_s + n / 2, caption, "Q Kᵀ / √d");
  text(x_p + n / 2, caption, "each row sums to 1");
  text(x_o + d / 2, caption, "P V");
  canvas.arrow(x_s + n + 10, main + n / 2, x_p - 10, main + n / 2, "#666");
  text((x_s + n + x_p) / 2, main + n / 2 - 24, "softmax,");
  text((x_s + n + x_p) / 2, main + n / 2 - 10, "row by row");
  canvas.rect(16, caption + 18, 14, 4, "fill=\"#d55e00\"");
  canvas.text(38, caption + 24, "the query \"she\"");
  canvas.rect(176, caption + 18, 14, 4, "fill=\"#0072b2\"");
  canvas.text(198, caption + 24, "key and value of \"alice\"");
  canvas.dot(393, caption + 20, "fill=\"#222\"");
  canvas.text(406, caption + 24, "their score, and its weight");
  picture("01-shapes", canvas.str());

  std::printf("score of \"she\" and \"alice\": %.2f of S; weight: %.2f of P\n", S(she, alice), P(she, alice));
  std::printf("S and P have %s numbers each, Q, K, V and O %s each\n", grouped(std::uint64_t(S.size())).c_str(),
              grouped(std::uint64_t(Q.size())).c_str());
  expect(std::abs(Q.row(she).dot(Kt.col(alice)) / std::sqrt(32.0f) - S(she, alice)) < 1e-5f,
         "one row of Q and one column of Kᵀ make one number of S");
  expect((P.row(she) * V - O.row(she)).norm() < 1e-5f, "one row of P and all of V make one row of O");
}

// %% [markdown]
// ## Three lines of Eigen
//
// With a matrix library each step is one line. `safe_softmax` is quoted below. Q, K and V belong to another head of the
// same model. The cell compares O with the same computation in {term}`fp64`, C++'s `double`.

// %%
CELL("Three lines of Eigen") {
  const Example e = sentence();
  const RowMajor<float> Q = head(e.q, 8), K = head(e.k, 8), V = head(e.v, 8);  // 50 words, 32 numbers each

  const RowMajor<float> S = Q * K.transpose() / std::sqrt(32.0f);
  const RowMajor<float> P = phase01::safe_softmax(S);
  const RowMajor<float> O = P * V;

  std::printf("difference to the same in fp64: %.1e of the size of O\n", relative_error(O, exact_head(e, 8)));
  expect(relative_error(O, exact_head(e, 8)) <= 1e-6, "this is attention");
}

// %% [markdown]
// ## The code
//
// The phase does the same for all heads, for every {term}`mask` and for every number type, and counts what it costs. It
// is one header, which begins with the definition of softmax. `RowMajor<Scalar>` is an Eigen matrix whose rows lie one
// after the other in memory. `.array()` says that what follows acts on each element by itself, and `P.row(i)` is a row.
//
// ```{region} attention.hpp plain-softmax
// ```
//
// In {term}`fp32`, C++'s `float`, `exp` is infinite above 88.72, and infinity divided by infinity is not a number
// ({term}`NaN`). The second version subtracts the row's largest score first. Further down, the page shows that this
// changes nothing else. If a row sees no key at all, its maximum is −∞ and its weights stay 0.
//
// ```{region} attention.hpp safe-softmax
// ```
//
// Now attention itself. A `Problem` holds Q, K, V and O as [B, H, S, D]: batch, head, row, column. A batch is several
// inputs that are computed together. S_q is the number of queries, S_k the number of keys, D the length of a row (d in
// formulas).
//
// The code goes through a model of two memories. HBM is large and slow, and all matrices lie in it: `memory.matrix`
// gives a matrix the name under which the {term}`ledger` counts its bytes. SRAM is small and fast: `memory.tile`
// reserves room in it for a {term}`tile`, a piece of a matrix, and fails when the budget is spent. Only `memory.load`
// and `memory.store` move numbers between the two. A product of two matrices is computed piece by piece, and this
// function says how large a piece may be:
//
// ```{region} phase.hpp blocks
// ```
//
// Each head is a *task* of its own, and `run_tasks` shares the tasks among the CPU's threads. S and P, the two N × N
// matrices, lie in HBM like the others.
//
// ```{region} attention.hpp heads
// ```
//
// Three steps follow. Each reads its inputs from HBM and writes its result back there, as calls of a matrix library
// would. The first computes the scores. `mat(tile)` lets Eigen see a tile as a matrix, and `product` multiplies two of
// them and counts the floating-point operations ({term}`FLOPs <FLOP>`). `p.visible(i)` is the number of keys that row i
// may see. The other scores become −∞, so that softmax gives them weight 0.
//
// ```{region} attention.hpp scores
// ```
//
// The second step turns scores into weights, a row at a time.
//
// ```{region} attention.hpp softmax
// ```
//
// The third multiplies the weights by the values, piece by piece. Where every row sees every key of the piece, that is
// one product. Elsewhere each row takes only the values that it sees. Otherwise a NaN in a value that the row may not
// see would spoil the whole row, because 0 · NaN is NaN.
//
// ```{region} attention.hpp output
// ```
// ```{region} attention.hpp run-tasks
// ```

// %% [markdown]
// ## Run it: words that look at words
//
// Q, K and V come from one layer of a real sentence encoder (see docs/data/README.md). There are 50 tokens, and 12
// heads whose rows hold 32 numbers. A token is a word or a piece of one; `[CLS]` and `[SEP]` mark the beginning and the
// end. Each head is an attention of its own. Head 8 has learned to look at the next word, and head 3 finds out who
// `she` and `her` are.

// %% tags=["hide-input"]
CELL("Who looks at whom") {
  const Example e = sentence();
  const std::vector<std::string> words = sentence_words();
  for (const int h : {8, 3}) {
    const RowMajor<float> P = phase01::safe_softmax(scores<float>(e, h));
    picture("01-head-" + std::to_string(h), svg::heat_map("P of head " + std::to_string(h), flat(P), words, words));
  }

  const RowMajor<float> P8 = phase01::safe_softmax(scores<float>(e, 8)),
                        P3 = phase01::safe_softmax(scores<float>(e, 3));
  int to_next = 0;
  for (Eigen::Index i = 0, j = 0; i + 1 < P8.rows(); ++i) to_next += (P8.row(i).maxCoeff(&j), j == i + 1);
  std::printf("head 8: %d of %d words look mostly at the next word\n", to_next, int(P8.rows()) - 1);
  expect(to_next > 40, "head 8 looks at the next word");

  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == "she" || words[i] == "her") {
      Eigen::Index j;
      const float weight = P3.row(i).maxCoeff(&j);
      std::printf("head 3: %-3s (token %zu) puts %.0f %% on \"%s\"\n", words[i].c_str(), i, 100 * weight,
                  words[j].c_str());
      expect(words[j] == "alice", "it is Alice");
    }
}

// %% [markdown]
// **What you saw.** The bluer a cell, the larger the weight. Head 8 is a line just above the diagonal. In head 3 the
// largest weight in the rows of `she` and `her` lies on `alice`. Column 0, `[CLS]`, is where a head rests when it finds
// nothing: a row must sum to one, so the weight has to go somewhere.
//
// Is the result right? From here on every page compares its result with the same attention in fp64. This cell compares
// NumPy's as well, because NumPy shares no code with this project. The *error* of a matrix is the size of the
// difference divided by the size of the exact matrix, both as the root of a sum of squares.

// %% tags=["hide-input"]
CELL("The whole layer, against NumPy") {
  Example e = sentence();
  phase01::attention(e.problem());
  const Tensor<float> numpy = load_tensor<float>(std::string(FLASH_DATA_DIR) + "/minilm_o.npy");
  double numpy_error = 0;
  for (int h = 0; h < 12; ++h) numpy_error = worse(numpy_error, relative_error(head(numpy, h), exact_head(e, h)));
  std::printf("error of O against fp64, worst of 12 heads: phase 01 in fp32 %.1e, NumPy's file %.1e\n", worst_head(e),
              numpy_error);
  expect(e.o.size() == numpy.size() && worst_head(e) <= 2e-6 && numpy_error <= 1e-6, "three implementations agree");
}

// %% [markdown]
// ## Plain and safe softmax
//
// The definition, P_ij = exp(S_ij) / Σ_k exp(S_ik), divides two numbers that may be huge. Subtracting the row's maximum
// m_i from every score changes nothing, since exp(S_ij − m_i) = exp(S_ij) / exp(m_i) in the numerator *and* in the
// denominator, but now the largest exponent is 0. The cell compares P *and* O, because O averages over many keys, which
// hides errors of P. It does so on two kinds of input, because uniform numbers are too tame to show much.

// %% tags=["hide-input"]
CELL("Two softmaxes, one result") {
  for (const Distribution distribution : {Distribution::Uniform, Distribution::Normal}) {
    const Example e = random_example(256, 64, distribution);
    const RowMajor<float> S = scores<float>(e, 0), plain = phase01::plain_softmax(S), safe = phase01::safe_softmax(S);
    const RowMajor<double> P = phase01::safe_softmax(scores<double>(e, 0)), O = exact_head(e, 0);
    const RowMajor<float> V = head(e.v, 0);
    const double errors[] = {relative_error(plain, P), relative_error(safe, P),
                             relative_error(RowMajor<float>(plain * V), O),
                             relative_error(RowMajor<float>(safe * V), O)};
    std::printf("%-13s error of P: plain %.1e, safe %.1e   of O: plain %.1e, safe %.1e\n", name(distribution),
                errors[0], errors[1], errors[2], errors[3]);
    bool small = true;
    for (const double error : errors) small = small && error <= 2e-6;
    expect(small, std::string("plain and safe agree with fp64 on ") + name(distribution));
  }
}

// %% [markdown]
// ```{question}
// Plain softmax gets a row with the scores 0, 1, 88 and 89. exp(89) is infinite in fp32, exp(88) is not. Which of the
// four weights come out wrong: the last one alone?
// ```

// %% tags=["hide-input"]
CELL("Where exp overflows") {
  float finite = 0, overflows = 1000;  // halve the interval until it holds no other float
  while (std::nextafter(finite, overflows) != overflows) {
    const float middle = (finite + overflows) / 2;
    (std::isinf(std::exp(middle)) ? overflows : finite) = middle;
  }
  std::printf("exp(%.5f) = %.4e is finite; exp(%.5f) is %f\n", finite, std::exp(finite), overflows,
              std::exp(overflows));
  expect(std::abs(finite - std::log(std::numeric_limits<float>::max())) < 1e-4f,
         "the edge is ln(largest float), 88.72");

  RowMajor<float> S(1, 4);
  S << 0, 1, 88, 89;
  std::printf("\n   j        S      plain       safe\n");
  const RowMajor<float> plain = phase01::plain_softmax(S), safe = phase01::safe_softmax(S);
  for (int j = 0; j < 4; ++j) std::printf("%4d %8.1f %10.4f %10.4f\n", j, S(0, j), std::abs(plain(0, j)), safe(0, j));
  expect(std::isnan(plain(0, 3)), "plain: inf / inf is NaN");
  expect(plain(0, 2) == 0 && safe(0, 2) > 0.2f, "and its neighbour is silently wrong: finite / inf is 0");
  expect(std::abs(safe.sum() - 1) < 1e-6f, "safe: the weights sum to one");

  // How far are real scores from the edge? Multiply Q, and with it S, until they are past it.
  Example e = sentence();
  float largest = 0;
  for (int h = 0; h < 12; ++h) largest = std::max(largest, scores<float>(e, h).maxCoeff());
  const float factor = std::ceil(90 / largest);
  for (std::size_t i = 0; i < e.q.size(); ++i) e.q.data()[i] *= factor;
  int broken = 0, survive = 0;
  phase01::attention(e.problem(), phase01::Softmax::Plain);
  for (int h = 0; h < 12; ++h) broken += !head(e.o, h).allFinite();
  phase01::attention(e.problem(), phase01::Softmax::Safe);
  for (int h = 0; h < 12; ++h) survive += head(e.o, h).allFinite();
  std::printf(
      "\nthe sentence's largest score is %.1f; with %.0f Q in place of Q, plain softmax breaks %d of 12 heads\n",
      largest, factor, broken);
  expect(broken > 0 && survive == 12, "safe softmax breaks none");
}

// %% [markdown]
// ```{answer}
// Two do. The last is ∞/∞, which is NaN. But the sum is infinite for the whole row, so the weight of 88 becomes a
// finite number divided by ∞: 0 instead of 0.2689. The NaN will be noticed. The 0 looks like a weight.
// ```
//
// ```{exercise} 01.1
// ```
//
// ## What it costs
//
// Moving a byte between HBM and SRAM costs more than computing with it. So the memory model counts the bytes: `load`
// copies rows from HBM into a tile in SRAM, `store` copies them back, and both enter what they copy in the ledger. SRAM
// holds 192 KiB here.
//
// The three steps write S, read it, write P and read it, and each time N × N numbers move. The two products go tile by
// tile. They keep as many rows of Q (or O) on chip as fit, B_r of them, and stream K (or V) past them. So K and V come
// in once for each of T_r = ⌈N / B_r⌉ row tiles. The formula in the cell is derived by hand from this. Counted and
// predicted bytes are integers, so they must be *equal*.
//
// In the code below `random_example(N, d)` is one head with N rows of d random numbers, and `grouped` writes a number
// with commas.
//
// ```{question}
// N = 256 and d = 64, so S has four times as many elements as Q, K, V or O, and so has P. What share of all the bytes
// that move belongs to S and P?
// ```

// %%
static std::uint64_t naive_bytes(std::uint64_t N, std::uint64_t d) {
  const std::uint64_t fit = (192 * 1024 / 4 - 16 * d) / (d + 16);  // rows of Q and of S, beside 16 keys
  const std::uint64_t Tr = (N + fit - 1) / fit;
  return 4 *
         (2 * N * d + Tr * 2 * N * d + 4 * N * N);  // Q, O once; K, V T_r times; S, P written and read; 4 bytes each
}

CELL("The ledger") {
  const std::uint64_t N = 256, d = 64;
  const Ledger ledger = phase01::attention(random_example(N, d).problem());
  std::printf("N = %d, d = %d     read       written   [bytes]\n", int(N), int(d));
  for (const ArrayTraffic& a : ledger.arrays)
    std::printf("  %-4s %15s %15s\n", a.name.c_str(), grouped(a.read_bytes).c_str(), grouped(a.written_bytes).c_str());
  std::printf("counted  %s = 4 · (4Nd + 4N²) = %s, since all rows fit: T_r = 1\n", grouped(ledger.hbm_bytes()).c_str(),
              grouped(naive_bytes(N, d)).c_str());
  expect(ledger.hbm_bytes() == naive_bytes(N, d), "counted = formula");
  const double share = 16.0 * N * N / double(ledger.hbm_bytes());
  std::printf("S and P are %.0f %% of the traffic, and neither is wanted in the end\n", 100 * share);
}

// %% [markdown]
// ```{answer}
// 80 %. S and P are not only four times as large. Each of them is also written by one step and read by the next, while
// Q, K, V and O pass once. The share grows with N, since S and P grow with N² and the others with N.
// ```

// %% tags=["hide-input"]
CELL("Bytes against N") {
  const std::uint64_t d = 64;
  svg::Line naive{"4·(2Nd + T_r 2Nd + 4N²)", {}}, inputs{"Q, K, V, O once: 16Nd", {}};
  inputs.dashed = true;
  bool equal = true;
  for (std::uint64_t N = 64; N <= 16384; N *= 2) {
    naive.points.push_back({double(N), double(naive_bytes(N, d))});
    inputs.points.push_back({double(N), 16.0 * double(N * d)});
    if (N > 512) continue;  // beyond that the formula speaks alone
    const std::uint64_t counted = phase01::attention(random_example(N, d).problem()).hbm_bytes();
    std::printf("N = %5d: %15s bytes\n", int(N), grouped(counted).c_str());
    naive.dots.push_back({double(N), double(counted)});
    equal = equal && counted == naive_bytes(N, d);
  }
  expect(equal, "counted = formula at every N");
  picture("01-bytes", svg::chart({"HBM bytes, one head, d = 64 (dots: counted)", "N", "bytes"}, {naive, inputs}));
}

// %% [markdown]
// **What you saw.** From 64 to 128 words the bytes grow threefold. The more words there are, the closer each doubling
// comes to four times the bytes. The dashed line is the least that must move: Q, K and V are read, O is written. The
// next three phases work on the gap between the lines.
//
// **To think about.** 1. Which head of the sentence looks backwards? Draw heads 9 and 11. 2. Store S and P as
// {term}`fp16`, in 2 bytes each: by what factor do the bytes shrink, and how does the factor change with N? 3. Fuse the
// softmax with the first step, so that S never leaves the chip: what is the formula now? Is it still O(N²)?
//
// <details><summary>Answers</summary>
//
// 1. Head 9. In an average row 28 % of the weight lies on the word before, more than in any other head. In head 11 it
// is 15 %. In both, `[CLS]` gets the largest weight in 41 of the 49 rows.
//
// 2. At N = 256, where T_r = 1, the factor is (4Nd + 4N²) / (4Nd + 2N²) = 1.67. It grows with N and stays below 2,
// because Q, K, V and O are as large as before.
//
// 3. P is still written and read: 4·(2Nd + T_r 2Nd + 2N²) bytes, which is O(N²) as before. Besides, whole rows of S now
// have to fit on the chip, so B_r becomes smaller and T_r larger.
//
// </details>
