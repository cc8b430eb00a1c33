// %% [markdown]
// # 28 · Modifiers
//
// **Question.** Models do more to a score than to scale it. Gemma 2 bends it so that none passes 50; ALiBi takes off
// more the further a key is away; a mask that nobody can put into a formula comes as an array. Each of these could be a
// kernel. How many kernels would that be, and who would write them?
//
// **Idea.** What becomes of a score is a function of five numbers: the score, and which batch entry, head, query and
// key it is of. A kernel that calls such a function, wherever S is in registers, is written once. Whoever wants another
// attention writes the function.
//
// **Changed since 25.** The variant has a *modifier*. The kernels of 13, 18, 19, 20 and 24 call it in one line, behind
// S and before the mask; backward kernels call it again, and multiply dS by its derivative. Without a modifier the
// machine code is what it was.

// %% tags=["hide-input"]
#include "phases/28-modifiers/phase.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "phases/arrays/tensor.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/svg.hpp"

using namespace flash;

// One head of Q, K and V, and what may become of their scores.
struct Lesson {
  std::int64_t H, N, D;
  Tensor<half> q, k, v, o, dout, dq, dk, dv;
  std::vector<float> lse;
  AnyProblem p;

  Lesson(std::int64_t H, std::int64_t N, std::int64_t D)
      : H(H),
        N(N),
        D(D),
        q(random_tensor<half>({1, H, N, D}, 28, 0)),
        k(random_tensor<half>({1, H, N, D}, 28, 1)),
        v(random_tensor<half>({1, H, N, D}, 28, 2)),
        o(make_tensor<half>({1, H, N, D})),
        dout(random_tensor<half>({1, H, N, D}, 28, 3)),
        dq(o),
        dk(o),
        dv(o),
        lse(static_cast<std::size_t>(H * N)),
        p(Problem<half>{
            view(std::as_const(q)), view(std::as_const(k)), view(std::as_const(v)), view(o), lse.data(), {}, {}}) {}
  // dQ, dK and dV of what the forward pass has left.
  AnyProblem gradients() {
    AnyProblem g = p;
    g.direction = Direction::Backward;
    g.dout = any_of(view(dout)), g.dq = any_of(view(dq)), g.dk = any_of(view(dk)), g.dv = any_of(view(dv));
    return g;
  }
  // O of the definition, in fp64 by the formula of docs/conventions.md; f changes scale · q·k.
  template <class F>
  double distance_from(const F& f) const {
    double difference = 0, size = 0;
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t i = 0; i < N; ++i) {
        std::vector<double> row(static_cast<std::size_t>(D)), weight(static_cast<std::size_t>(N));
        double sum = 0;
        for (std::int64_t j = 0; j < N; ++j) {
          double s = 0;
          for (std::int64_t d = 0; d < D; ++d) s += double(to_float(at(q, h, i, d))) * to_float(at(k, h, j, d));
          sum += weight[std::size_t(j)] = std::exp(f(s / std::sqrt(double(D)), h, i, j));
        }
        for (std::int64_t j = 0; j < N; ++j)
          for (std::int64_t d = 0; d < D; ++d)
            row[std::size_t(d)] += weight[std::size_t(j)] / sum * to_float(at(v, h, j, d));
        for (std::int64_t d = 0; d < D; ++d) {
          const double x = row[std::size_t(d)], e = to_float(at(o, h, i, d)) - x;
          difference += e * e, size += x * x;
        }
      }
    return std::sqrt(difference / size);
  }
  half at(const Tensor<half>& x, std::int64_t h, std::int64_t s, std::int64_t d) const {
    return x.data()[(h * N + s) * D + d];
  }
};

// %% [markdown]
// ## A struct that a kernel calls
//
// A modifier is a struct with a function. Its parameters are members, and whoever launches the kernel fills them.
// ALiBi, as a reader would write it, takes `slope · |i − j|` from each score:
//
//     struct Mine {
//       float slope;
//       float operator()(float s, int b, int h, int i, int j) const { return s - slope * abs(i - j); }
//     };
//
// What the kernels see is a variant, as in phase 25: grouped heads, and the modifier. It says what a modifier must have
// and what it may have:
//
// ```{region} modified.cuh modified
// ```
//
// In phases 18 and 19 S lies in the accumulators of a wgmma, as phase 10's do (`phases/10-tensor-cores/rows.cuh`): a
// lane has two rows of it, 8 apart, and knows the row and the column of each element. The kernel says where its first
// element is, and the rest is counted from there:
//
// ```{region} modified.cuh places
// ```
// ```{region} modified.cuh forward
// ```
//
// A kernel without a modifier never multiplies by scale: that is in the exponential's multiply-add, and a negative
// scale turns signs. A function of the score wants scale · q·k. So S is multiplied by scale first, and the constant of
// the exponential is log2 e: one multiplication an element, the price of being asked at all. Those who write for speed
// need not pay it. Such a modifier takes q·k, says in what unit its result is, and the unit goes into that constant.
//
// ```{region} modified.cuh unit
// ```
//
// ```{question}
// Softcap is cap · tanh(s / cap), and the GPU has an instruction for tanh. It is off by 2⁻¹¹ of its result. LSE may be
// off by 2 · 10⁻⁶ of itself, or by as much absolutely where it is below 1. A row sees one key, with s = 1 and cap = 30.
// Is the instruction good enough?
// ```

// %% tags=["hide-input"]
CELL("Softcap, and the tanh that is needed") {
  std::printf("tanh.approx is off by %f of 1; LSE may be by %f: %.0f times as much\n", 0x1p-11, 2e-6, 0x1p-11 / 2e-6);
  bool close = true;
  for (const float cap : {30.0f, 1.5f}) {
    Lesson lesson(2, 70, 64);
    lesson.p.options.softcap = cap;
    for (const Phase* phase : {&phase28m::phase, &phase28::phase}) {
      enter(*phase, lesson.p);
      const double error = lesson.distance_from([&](double s, auto, auto, auto) { return cap * std::tanh(s / cap); });
      const double without = lesson.distance_from([](double s, auto, auto, auto) { return s; });
      std::printf("%-14s cap %4.1f: O is %s 2^-11 of the definition's; O without a cap is %s\n", phase->name, cap,
                  error < 0x1p-11 ? "within" : "beyond", without > 4 * error ? "further away" : "as near");
      close = close && error < 0x1p-11;
    }
  }
  expect(close, "O is that of the definition, within a rounding to 16 bits");
}

// %% [markdown]
// ```{answer}
// No: 0.000488 is 244 times the bar of 0.000002.
// ```
//
// The kernels make tanh themselves. Beyond 0.5 it comes from exp, as 1 − 2 / (1 + exp(2x)): two instructions of the
// unit that is slowest here, and half of its time is exp's already. Up to 0.5 a polynomial with three coefficients is
// good enough, and up to 0.25 one with two. That is 7.5 of a score where the cap is 30, 12.5 where it is 50; the lanes
// of a warp vote whether a tile has more.
//
// ```{region} modifiers.cuh tanh
// ```
// ```{region} modifiers.cuh softcap
// ```
//
// ## What an instruction costs
//
// Phase 19's loop at D = 128 has 592 instructions for 64 scores of a lane, as nvcc 13 compiles it. Each instruction
// more for each score adds a ninth to that. Tensor cores work meanwhile; but they have little more to do than the loop,
// so most of it shows. A softcap by five lines takes nine: by scale, by 1 / cap, a comparison, five for tanh, by cap.
// Where can they go?
//
// - The factors go into the coefficients: tanh(k x) is a polynomial in x, too.
// - The cap goes into the exponential's constant, as scale does.
// - The last product goes into the exponential's multiply-add: x · p(x²) − c · m. For that m must be known, and what
//   grows with x has its maximum where x has it. So the maximum is that of q·k, and tanh is made of it once for each
//   row.
// - The comparison is for all at once: the largest number of a lane and the smallest, by integers, two scores at a
//   time.
//
// What is left is x², two multiply-adds, and half of an instruction for the smallest number.
//
// ```{region} quick.cuh quick
// ```
//
// ALiBi needs the distance of query and key as a float, for each element. The instruction that converts runs at an
// eighth of the rate of an addition; a whole number below 2²² becomes a float by two additions. But in a tile on one
// side of the diagonal the distance is a number for the column, known when the kernel is compiled, and one for the row.
// The first is a multiply-add, `lean`; the second is the same for all scores of a row, and goes into c · m. One
// instruction is left. The column that is nearest to the diagonal has 0, so that what is rounded most has the least
// weight.
//
// ```{region} modifiers.cuh alibi
// ```
//
// Tiles in which something is hidden go the other way: first the scores, `apply`, then the mask, then phase 18's
// softmax.
//
// A bias is an array: two bytes for each pair, 32 KiB for each tile of 128 × 128. Asked for when S is there, it comes
// hundreds of cycles too late. So it is copied into shared memory two tiles ahead. Each warp copies its own 16 rows, 16
// bytes at a time, so nobody waits for anybody else: `ldmatrix` hands out what `cp.async` has brought, and one
// multiply-add for each score puts both together. In the backward pass a lane's neighbours in Sᵀ are two queries, whose
// numbers lie a row apart. A lane loads neighbouring keys all the same, while tensor cores make S, and then eight
// queries and eight keys change places in the warp:
//
// ```{region} bias.cuh dbias
// ```
// ```{region} bias.cuh rooms
// ```
// ```{region} attention.cuh bias-rooms
// ```
// ```{region} bias.cuh bias
// ```
//
// And there is one modifier for all that may become of a score, whatever is asked together. It asks its members while
// it runs; all lanes get the same answer:
//
// ```{region} combined.cuh combined
// ```
//
// Each modifier is a kernel of its own, and takes its time to compile. So only softcap alone, ALiBi alone, a bias alone
// and masks alone have one, and only on Hopper at D = 128:
//
// ```{region} combined.cuh choice
// ```
// ```{region} attention.cuh launch
// ```
// ```{region} mma.cuh launch-mma
// ```
//
// Where a problem asks for none of that, the phase does what the phase before does:
//
// ```{region} phase.hpp features
// ```
// ```{region} passes.cuh passes
// ```
//
// ## The way back
//
// P comes back from S, so backward kernels call the modifier again. And the gradient of the score that went in is f′(s)
// times that of the score that came out: dS = P ∘ (dP − δ) · f′(s). By the time when dS is made, s is gone: P is in its
// registers. There are none for f′, either: phase 24's kernel holds S, dP, dK and dV, and is full. But there is a place
// that is free for just that long: the registers of P as rounded, which dV needs. f′ waits there, rounded to 16 bits as
// P and dS are. Then, in one sweep, P is rounded into that place, and what is left for dS is P · f′.
//
// ```{region} modified.cuh backward
// ```
//
// A bias has a gradient, too: P ∘ (dP − δ) itself, summed over the heads, rows or batch entries that share it. Where
// nobody shares it, `take` in bias.cuh stores it as it is made. Where heads or batch entries share it, blocks of phase
// 24 would add to one number, since they own keys, not pairs; in whatever order, but for two of them. So there is a
// kernel that makes dbias alone, in which each block owns 64 × 64 numbers of dbias and adds in one order:
//
// ```{region} gradients.cuh rows
// ```
// ```{region} gradients.cuh dbias
// ```
//
// ## Sinks
//
// A sink is a logit that no key has: exp(sink) stands in the denominator, and nothing in the numerator. Online softmax
// has a place for it: a row begins with m = sink and l = 1, as if it had met one key whose V is 0.
//
// ```{question}
// A row sees no key. Its head has the sink −2. What are O and LSE of the row? And what is l, of the four lanes that
// share it?
// ```

// %% tags=["hide-input"]
CELL("A sink takes its share") {
  Lesson lesson(2, 70, 64);
  std::vector<float> sinks = {3, -2};
  const std::uint8_t nothing[70 * 70] = {};
  lesson.p.sinks = any_of(dense_view<const float>(sinks.data(), {1, 2, 1, 1}));
  enter(phase28m::phase, lesson.p);
  const float with = lesson.lse[0];
  lesson.p.allowed = any_of(dense_view<const std::uint8_t>(nothing, {1, 1, 70, 70}));
  enter(phase28m::phase, lesson.p);
  std::printf("row 0 of head 0 sees 70 keys: LSE is above its sink 3: %s\n", with > 3 ? "yes" : "no");
  std::printf("row 0 sees no key: LSE %g in head 0, %g in head 1; O %g\n", double(lesson.lse[0]),
              double(lesson.lse[70]), double(to_float(lesson.o.data()[0])));
  expect(with > 3 && lesson.lse[0] == 3 && lesson.lse[70] == -2, "a row that sees no key has its sink as LSE");
}

// %% [markdown]
// ```{answer}
// O = 0 and LSE = −2. l is 1 in one of the four lanes and 0 in the others: they are added in the end.
// ```
//
// Its gradient is −P δ, summed over the rows of its head: it has a P in each row, and its dP is 0.
//
// ```{region} gradients.cuh dsinks
// ```
// ```{region} gradients.cuh launch
// ```
//
// ## Which keys a row sees
//
// A mask that is an array, documents and a bias of −∞ hide element by element: every tile is loaded and multiplied,
// whatever they say. Here 96 keys in three documents, whose rows see their own document alone. Light cells are
// multiplied for nothing.

// %% tags=["hide-input"]
CELL("Documents") {
  constexpr std::int64_t N = 96;
  Lesson lesson(1, N, 64);
  std::vector<std::int32_t> document(N);
  for (std::int64_t i = 0; i < N; ++i) document[std::size_t(i)] = i < 20 ? 0 : i < 64 ? 1 : 2;
  lesson.p.document_q = any_of(dense_view<const std::int32_t>(document.data(), {1, 1, N, 1}));
  lesson.p.document_k = lesson.p.document_q;
  // Keys are found out one by one: V is 1 for one key at a time, and 0 for the others.
  svg::Canvas canvas(420, 350, "Three documents of 20, 44 and 32 rows");
  bool as_told = true;
  int seen = 0;
  for (std::int64_t first = 0; first < N; first += 48) {
    // 48 columns of V at a time stand for 48 keys.
    std::fill_n(lesson.v.data(), N * 64, from_float<half>(0));
    for (std::int64_t j = 0; j < 48; ++j) lesson.v.data()[(first + j) * 64 + j] = from_float<half>(1);
    enter(phase28m::phase, lesson.p);
    for (std::int64_t i = 0; i < N; ++i)
      for (std::int64_t j = first; j < first + 48; ++j) {
        const bool sees = to_float(lesson.o.data()[i * 64 + j - first]) > 0;
        as_told = as_told && sees == (document[std::size_t(i)] == document[std::size_t(j)]), seen += sees;
        if (sees || (i % 4 == 0 && j % 4 == 0))
          canvas.rect(60 + 3.0 * double(j), 40 + 3.0 * double(i), sees ? 3 : 12, sees ? 3 : 12,
                      sees ? "fill=\"#2f6f9f\"" : "fill=\"#eeeeee\"");
      }
  }
  canvas.text(60, 344, "A row is a query, a column is a key. Dark: it was seen.", "fill=\"#666\"");
  picture("28-documents", canvas.str());
  std::printf("%d of %d pairs are seen; without a block mask all are multiplied\n", seen, int(N * N));
  expect(as_told, "a row sees the keys of its document, and no others");
}

// %% [markdown]
// A *block mask* says of 64 × 64 pairs at a time that none is seen, that all are, or that mask and documents are to be
// asked. Where all are, no pair of the block is asked; where a tile has no block with a pair that is seen, the tile
// should not even be loaded.
//
// ```{region} masks.cuh pairs
// ```
// ```{region} masks.cuh kinds
// ```
// ```{region} masks.cuh masks
// ```
//
// Who makes a block mask? A program that knows what its mask looks like can do it on the host. Or a kernel does, from a
// function of five lines: it asks for every pair, once, and the block mask then serves all layers.
//
// ```{region} kinds.cuh predicate
// ```
// ```{region} kinds.cuh find-kinds
// ```
//
// ### Tiles by lists
//
// With a causal mask a Q tile's K/V tiles are 0 … n − 1, and each warp knows n. Here they are any set. So a kernel in
// front writes it down: for each Q tile the list of its K/V tiles. Blocks of 64 × 64 are put together to the tiles of
// whatever kernel comes, 128 × 128 or 128 × 80. A warp makes a list. It looks at 32 tiles at a time; each lane votes
// whether its own is seen, and the votes in front of it say where its number goes.
//
// ```{region} lists.cuh lists
// ```
// ```{region} lists.cuh seen
// ```
// ```{region} lists.cuh list-keys
// ```
//
// In the backward pass a block owns a K/V tile, so it wants the list of Q tiles:
//
// ```{region} lists.cuh list-rows
// ```
// ```{region} lists.cuh with-lists
// ```
//
// The kernels of 13 and 20 count places of the list where they counted tiles, and ask it where they need the tile's
// number. In phase 19 the thread that loads and the warpgroups that multiply walk down the same list:
//
// ```{region} attention.cuh load-listed
// ```
// ```{region} attention.cuh warpgroup-listed
// ```
//
// Phase 24 asks for more. Blocks pass dQ of a Q tile on from K/V tile to K/V tile: the first stores its share, the last
// one rounds the sum, and each must know how many come before it. With a causal mask that is the K/V tile's number.
// Here it is a rank among the tiles of the list, and lies beside the number of the Q tile.
//
// ```{region} attention.cuh share-listed
// ```
//
// Lists are memory, in the workspace of the pass:
//
// ```{region} phase.hpp workspace
// ```
//
// ```{question}
// 512 rows and 512 keys, in four documents of 128, and tiles of 128 × 64. How many keys does a head load, with the
// block mask and without it?
// ```

// %% tags=["hide-input"]
CELL("Keys that are loaded") {
  constexpr std::int64_t N = 512, kBlocks = N / 64;
  Lesson lesson(1, N, 64);
  std::vector<std::int32_t> document(N);
  std::vector<std::uint8_t> kinds(kBlocks * kBlocks);
  for (std::int64_t i = 0; i < N; ++i) document[std::size_t(i)] = static_cast<std::int32_t>(i / 128);
  for (std::int64_t i = 0; i < kBlocks * kBlocks; ++i)
    kinds[std::size_t(i)] = i / kBlocks / 2 == i % kBlocks / 2 ? 2 : 0;
  lesson.p.document_q = any_of(dense_view<const std::int32_t>(document.data(), {1, 1, N, 1}));
  lesson.p.document_k = lesson.p.document_q;
  const auto loaded = [&] {
    Run run = enter(phase28m::phase, lesson.p, Where::Checked);
    return int(run.ledger.array("K").read_bytes / (64 * sizeof(half)));
  };
  const int all = loaded();
  const std::vector<half> before(lesson.o.data(), lesson.o.data() + N * 64);
  lesson.p.blocks = any_of(dense_view<const std::uint8_t>(kinds.data(), {1, 1, kBlocks, kBlocks}));
  const int by_blocks = loaded();
  bool same = true;
  for (std::int64_t i = 0; i < N * 64; ++i)
    same = same && to_float(lesson.o.data()[i]) == to_float(before[std::size_t(i)]);
  std::printf("documents alone: %d keys; with the block mask: %d; O is %s\n", all, by_blocks,
              same ? "the same, bit for bit" : "another one");
  expect(all == 2048 && by_blocks == 512 && same, "what is skipped was of no account");
}

// %% [markdown]
// ```{answer}
// Each of 4 Q tiles loads all 512 keys without it: 2048. With it each loads the 128 of its own document: 512.
// ```
//
// ## What goes together
//
// Each of these can be asked for beside each other one. What the phase does not do it refuses by name, before anything
// has been written: windows, lengths and dropout have phases of their own, whose kernels ask no modifier.

// %% tags=["hide-input"]
CELL("Every pair: computed (x) or refused (.)") {
  constexpr std::int64_t H = 2, N = 70;
  const Lesson lesson(H, N, 64);
  const Tensor<half> few_k = random_tensor<half>({1, 1, N, 64}, 28, 4), bias = random_tensor<half>({1, 1, N, N}, 28, 5);
  const std::vector<float> numbers = {0.5f, 0.25f};
  const std::vector<std::uint8_t> bytes(N * N, 1);
  const std::vector<std::int32_t> integers(N, 60);
  const auto per_head = any_of(dense_view<const float>(numbers.data(), {1, H, 1, 1}));
  struct Named {
    const char* name;
    std::function<void(AnyProblem&)> ask;
  };
  const Named all[] = {
      {"grouped heads", [&](AnyProblem& p) { p.k = p.v = any_of(view(few_k)); }},
      {"causal", [](AnyProblem& p) { p.options.mask.right = 0; }},
      {"softcap", [](AnyProblem& p) { p.options.softcap = 20; }},
      {"ALiBi", [&](AnyProblem& p) { p.slopes = per_head; }},
      {"bias", [&](AnyProblem& p) { p.bias = any_of(view(bias)); }},
      {"mask",
       [&](AnyProblem& p) {
         p.allowed = any_of(dense_view<const std::uint8_t>(bytes.data(), {1, 1, N, N}));
       }},
      {"documents",
       [&](AnyProblem& p) {
         p.document_q = p.document_k = any_of(dense_view<const std::int32_t>(integers.data(), {1, 1, N, 1}));
       }},
      {"block mask",
       [&](AnyProblem& p) {
         p.blocks = any_of(dense_view<const std::uint8_t>(bytes.data(), {1, 1, 2, 2}));
       }},
      {"sinks", [&](AnyProblem& p) { p.sinks = per_head; }},
      {"window", [](AnyProblem& p) { p.options.mask.left = 9; }},
      {"lengths",
       [&](AnyProblem& p) {
         p.keys_of = any_of(dense_view<const std::int32_t>(integers.data(), {1, 1, 1, 1}));
       }},
      {"dropout", [](AnyProblem& p) { p.options.dropout.p = 0.1f; }}};
  int computed = 0, refused = 0;
  for (const Named& row : all) {
    std::printf("%-14s", row.name);
    for (const Named& column : all) {
      if (&column > &row) break;
      AnyProblem p = lesson.p;
      row.ask(p), column.ask(p);
      bool runs = true;
      try {
        enter(phase28m::phase, p);
      } catch (const Error&) {
        runs = false;
      }
      ++(runs ? computed : refused);
      std::printf(" %c", runs ? 'x' : '.');
    }
    std::printf("\n");
  }
  std::printf("columns in the order of rows; on the diagonal: alone\n");
  expect(computed == 45 && refused == 33, "nine that go together, and three that are refused beside any");
}

// %% [markdown]
// ## Write your own
//
// `phases/28-modifiers/own.cu` is a program of its own: a modifier, phase 13's kernel, and a loop on the CPU that
// computes the same. Run it as it is, then change the struct and the line of the loop that says the same:
//
//     ./flash check -std=c++20 phases/28-modifiers/own.cu
//
// ```{region} own.cu mine
// ```
// ```{region} own.cu own-main
// ```
//
// ```{exercise} 28.1
// ```
//
// ```{exercise} 28.2
// ```
//
// **What you saw.** A modifier is a function of a score and its place. The kernels of five phases call it in a line
// each, and without it their machine code is as before. Its derivative waits, 16 bits an element, where rounded P will
// be. tanh must be better than the instruction, and most of what it costs goes into multiply-adds that are there
// already. A sink is a key without a value. Tiles that a block mask hides are never loaded: a kernel in front lists the
// others.
//
// **To think about.** 1. Softcap stands before the mask. What would go wrong behind it? 2. Why may a modifier's own
// parameters, a slope or the cap, have no gradient here, while a bias has one? 3. dS is multiplied by f′, but dbias is
// not. Why?
//
// <details><summary>Answers</summary>
//
// 1. A masked score is −∞, and cap · tanh(−∞) is −cap: the row would see the key after all.
//
// 2. A bias has a number for each pair, and each pair's gradient is at hand where dS is. A slope's is a sum over all
//    pairs of a head, of dS times a distance: another reduction, which nobody has asked for.
//
// 3. The bias is added behind the softcap. f′ is the softcap's derivative, and lies between the two.
//
// </details>
