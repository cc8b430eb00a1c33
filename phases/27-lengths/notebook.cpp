// %% [markdown]
// # 27 · Sequences with lengths of their own
//
// **Question.** A batch of sentences is no box: one has 12 tokens, another 3,000. Who pads them all to the longest
// computes with tokens that do not exist. Can a kernel take the sentences as they are, one behind the other?
//
// **Idea.** To a kernel a head is where rows and keys lie, and which of them meet. So let a *head of a sequence* be a
// head: number n · H + h. Its rows lie further on in the tensor, its mask knows its own lengths, and its tiles end
// where it ends. What is left to do is to say which tiles there are, and that a small kernel in front can do.
//
// **Changed since 26.** A kernel in front, which reads the lengths; a variant that knows sequences; and boxes of TMA
// that end where a sequence does. The kernels of 13, 19, 20 and 24 ask the variant a few things more.

// %% tags=["hide-input"]
#include "phases/27-lengths/phase.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <span>

#include "phases/arrays/tensor.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/counted.hpp"
#include "phases/pages/pairs.hpp"
#include "phases/pages/svg.hpp"
#include "sim/report/recording.hpp"

using namespace flash;

// One number for each row or sequence, as a problem has it.
template <class T>
static AnyView numbers(const std::vector<T>& of, std::int64_t H = 1) {
  const std::array<std::int64_t, 4> shape = {1, H, static_cast<std::int64_t>(of.size()) / H, 1};
  return any_of(dense_view(const_cast<T*>(of.data()), shape));
}

// Packed sequences, as many keys as rows, and room for what the passes write.
struct Packed {
  std::int64_t H, D;
  std::vector<std::int32_t> ends = {0};
  std::array<Tensor<half>, 8> tensors;  // [total, H, D]: Q, K, V, dO; O, dQ, dK, dV
  std::vector<float> lse;

  Packed(const std::vector<int>& lengths, std::int64_t H, std::int64_t D) : H(H), D(D) {
    for (const int n : lengths) ends.push_back(ends.back() + n);
    for (std::uint32_t i = 0; i < 8; ++i) tensors[i] = random_tensor<half>({1, ends.back(), H, D}, 27, i);
    lse.resize(static_cast<std::size_t>(H * ends.back()));
  }
  AnyProblem problem(const Options& options = {}) {
    const auto heads = [&](std::size_t i) -> AnyView {
      return {tensors[i].data(), {1, H, ends.back(), D}, {H * ends.back() * D, D, H * D, 1}};
    };
    AnyProblem p;
    p.type = p.out = Type::Float16, p.options = options;
    p.q = heads(0), p.k = heads(1), p.v = heads(2), p.o = heads(4), p.lse = numbers(lse, H);
    p.dout = heads(3), p.dq = heads(5), p.dk = heads(6), p.dv = heads(7);
    p.first_rows = p.first_keys = numbers(ends);
    return p;
  }
  void both_passes(const Phase& phase) {
    AnyProblem p = problem();
    enter(phase, p);
    p.direction = Direction::Backward;
    enter(phase, p);
  }
  std::span<half> of_sequence(std::size_t n, std::size_t i) {
    return {tensors[i].data() + ends[n] * H * D, std::size_t((ends[n + 1] - ends[n]) * H * D)};
  }
  // Has sequence n the results, bit for bit, that another's sequence m has?
  bool same(std::size_t n, Packed& other, std::size_t m) {
    bool all = true;
    for (std::size_t i = 4; i < 8; ++i)
      all = all && std::ranges::equal(std::as_bytes(of_sequence(n, i)), std::as_bytes(other.of_sequence(m, i)));
    return all;
  }
};

// %% [markdown]
// ## What a batch is
//
// *Packed*: Q is [1, H, total, D], and an array `cu_seqlens` of N + 1 numbers says where each sequence begins. Rows of
// a head may have any stride, so that memory laid out as [total, H, D] is such a tensor, too. *Padded*: Q is
// [B, H, S, D], and `seqused` says how many rows of each entry there are. Both may be given: packed, with gaps. Rows
// and keys have arrays of their own. Lengths are in the GPU's memory, where the host does not look: what it launches
// must be right for all of them.
//
// Masks count rows and keys within the sequence: `bottom-right` lays the last row on the last key of the sequence, not
// of the tensor. What belongs to no sequence has O = 0, LSE = −∞ and no gradient.
//
// A window, too, is each sequence's own. Keys at the front that none of its rows sees are left out, as if the sequence
// began behind them: their gradients are 0, and whatever is in them reaches nobody.
//
// ## The kernel in front
//
// A block for each sequence. It writes down what the others need to know of it:
//
// ```{region} sequences.cuh found
// ```
// ```{region} sequences.cuh given
// ```
//
// And it puts the sequence's tiles into a list, from which blocks will draw. The longest sequences stand first, so that
// short ones fill the gaps in the end. Where in the list? Behind the tiles of all sequences that come before it; each
// block adds those up by itself. That takes N² steps in all, N / 128 of them for a thread, and no block waits for
// another.
//
// ```{region} sequences.cuh find
// ```
// ```{exercise} 27.1
// ```
//
// With tiles of R rows there are at most total / R + N tiles, whatever the lengths: one is begun for each sequence, and
// one for each R tokens. The host launches as many blocks, and those beyond the list's end have nothing to do.
//
// ```{region} sequences.cuh sizes
// ```
// ```{region} sequences.cuh heads-in-cache
// ```
// ```{region} sequences.cuh launch-find
// ```
//
// ## A variant that knows sequences
//
// Head n · H + h is head h of sequence n. The variants of phases 25 and 26 had no memory of their own; this one stands
// on them, and has a pointer to what was found. `of()` gives a kernel the variant of one sequence, whose band is the
// sequence's own:
//
// ```{region} lengths.cuh place
// ```
// ```{region} lengths.cuh variant
// ```
//
// Kernels ask for it where they begin with a tile. A variant without lengths answers with itself, and the machine code
// is what it was:
//
// ```{region} ../interface/variant.cuh of-sequence
// ```
//
// A number of the list is a tile in one of the heads, by division:
//
// ```{region} lengths.cuh lists
// ```
//
// Five sequences of 20, 90, 8, 0 and 50 tokens, one head, no mask; Q tiles of 32 rows. Each line of the picture is a
// block, in the order of their numbers; each column is a token. Coloured is what the block was recorded to copy of K.

// %% tags=["hide-input"]
CELL("Which block copies which keys") {
  if (!counts()) return;
  const std::vector<int> lengths = {20, 90, 8, 0, 50};
  constexpr std::uint64_t D = 64;
  Packed packed(lengths, 1, D);
  Recording run;
  enter(phase27m::phase, packed.problem({.block_q = 32, .block_k = 16}), Where::Checked,
        {.threads = 1, .recording = &run});
  std::map<std::uint64_t, std::set<int>> keys_of;
  for (const Recording::Step& step : run.steps)
    for (const Recording::Part& part : step.parts) {
      if (part.kind != Recording::Kind::copy || part.source < 0) continue;  // zeros behind the end come from nowhere
      if (run.arrays[std::size_t(part.source)].name != "K") continue;
      for (const Recording::Span& span : part.from)
        for (std::uint64_t at = span.first; at < span.end; at += D * 2) keys_of[step.block].insert(int(at / (D * 2)));
    }
  static constexpr const char* colours[] = {"#9ec9e6", "#f2b96b", "#7fc8a9", "#d9b3d0", "#e6a08a"};
  const auto sequence_of = [&](int token) {
    return int(std::upper_bound(packed.ends.begin(), packed.ends.end(), token) - packed.ends.begin()) - 1;
  };
  svg::Canvas canvas(760, 250, "Which keys each block copies: those of its own sequence, the longest sequence first");
  bool own = true, falling = true;
  std::size_t before = std::size_t(packed.ends.back());
  double y = 56;
  for (const auto& [block, keys] : keys_of) {
    const int n = sequence_of(*keys.begin());
    canvas.text(16, y + 15, "block " + std::to_string(block), "fill=\"#666\"");
    canvas.rect(80, y, 4.0 * packed.ends.back(), 20, "fill=\"#eeeeee\"");
    for (const int key : keys) canvas.rect(80 + 4.0 * key, y, 4, 20, std::string("fill=\"") + colours[n] + "\"");
    for (const int key : keys) own = own && sequence_of(key) == n;
    falling = falling && keys.size() <= before, before = keys.size(), y += 24;
    std::printf("block %d: %2zu keys, of sequence %d\n", int(block), keys.size(), n);
  }
  for (std::size_t n = 0; n < lengths.size(); ++n)
    if (lengths[n] > 0) canvas.text(80 + 4.0 * packed.ends[n], 46, std::to_string(lengths[n]), "font-weight=\"bold\"");
  canvas.text(80, 24, "how many tokens each sequence has", "fill=\"#666\"");
  picture("27-own-keys", canvas.str());
  std::size_t tiles = 0;
  for (const int n : lengths) tiles += std::size_t(n + 31) / 32;
  expect(keys_of.size() == tiles, "a block for each Q tile of each sequence, and none for the empty one");
  expect(own, "no block copies another sequence's keys");
  expect(falling, "those with the most keys come first");
}

// %% [markdown]
// ## A box that ends where its sequence does
//
// Phase 13 copies rows one by one, and stops at the end. TMA copies a box of 64 rows, and knows only where the *tensor*
// ends. A box on the last rows of a sequence would bring the next one's. Masked keys have P = 0; but 0 · NaN is NaN,
// and a gradient that is stored by such a box overwrites the neighbour's.
//
// A map of its own for each sequence would help. But maps are made on the host, which does not know the lengths. The
// way out is two axes more, five in all:
//
// ```{region} ../14-tma-wgmma/tiles.cuh maps
// ```
// ```{region} boxes.cuh boxes
// ```
//
// Two axes have the stride of a row, a and r. Axis a is 2³⁰ rows long. A box that begins at a = 2³⁰ − n has n rows in
// it, and the others are *outside of the tensor*: TMA writes zeros for them, or stores nothing. Where is it? Row r + a
// of the axes' common origin; with r = the sequence's end that is 2³⁰ rows too far. The last axis takes them back. Its
// stride is 2³⁴ bytes less a row, and all boxes are at 2³⁰ there: 2³⁰ · 2³⁴ = 2⁶⁴, which to an address is 0, and 2³⁰
// rows are subtracted.
//
// Could the map not begin 2³⁰ rows, or a box, before the tensor? For what a load fills with zeros TMA may read where
// the map begins, and then there must be memory. An earlier version of this phase had such maps: the simulator found
// nothing, and on an H200 the backward pass ended in an illegal address. Since then the simulator refuses a load by a
// map that begins in no array, if its box is partly outside.
//
// Five axes are all that a map can have: none is left for the batch. So batch entries are rows of one long tensor, and
// where they are not, the phase refuses them by name. 27m takes any layout.
//
// ```{region} ../interface/demands.hpp entries
// ```
// ```{region} phase.hpp entries
// ```
// ```{question}
// Sequences of 100, 30 and 70 tokens, one head, D = 64, 16 bits. How many bytes of Q does the kernel read if they are
// packed? If they are padded to 100 tokens, with their lengths? And padded, without?
// ```

// %% tags=["hide-input"]
CELL("What is read of Q") {
  if (!counts()) return;
  constexpr std::int64_t D = 64;
  const std::vector<std::int32_t> lengths = {100, 30, 70};
  bool same = true;
  const auto count = [&](const AnyProblem& p, std::uint64_t rows, const char* what) {
    Ledger l = enter(phase27::phase, p, machine).ledger;
    std::printf("%s: %d rows of %d bytes\n", what, int(rows), int(D * 2));
    same &= equal(l.array("Q").read_bytes, rows * D * 2, "  bytes of Q read");
  };
  Packed packed({100, 30, 70}, 1, D), padded({300}, 1, D);
  count(packed.problem(), 200, "packed");
  AnyProblem p = padded.problem();
  p.first_rows = p.first_keys = {};
  for (AnyView* view : {&p.q, &p.k, &p.v, &p.o, &p.lse}) {
    view->shape[0] = 3, view->shape[2] = 100;
    view->stride = dense_strides(view->shape);
  }
  AnyProblem with_lengths = p;
  with_lengths.rows_of = with_lengths.keys_of = numbers(lengths);
  count(with_lengths, 200, "padded, with lengths");
  count(p, 300, "padded, without");
  expect(same, "predicted = counted");
}

// %% [markdown]
// ```{answer}
// A row has 128 bytes, and 200 of them exist: 25,600 bytes, packed or padded. Without lengths all 300 are read, 38,400
// bytes.
// ```
//
// With NaN in every number of the sequence in the middle its neighbours keep their bits:

// %% tags=["hide-input"]
CELL("NaN next door") {
  constexpr std::int64_t H = 2, D = 64;
  bool kept = true;
  for (const Phase* phase : {&phase27::phase, &phase27m::phase}) {
    Packed clean({70, 90, 40}, H, D), beside({70, 90, 40}, H, D);
    for (std::size_t i = 0; i < 4; ++i) std::ranges::fill(beside.of_sequence(1, i), from_float<half>(NAN));
    clean.both_passes(*phase), beside.both_passes(*phase);
    kept = kept && clean.same(0, beside, 0) && clean.same(2, beside, 2);
    std::printf("%-12s %s\n", phase->name, kept ? "same bits" : "other bits");
  }
  expect(kept, "O, dQ, dK and dV of the neighbours have the bits that they have without NaN");
}

// %% [markdown]
// ## As if it were all there is
//
// Phase 13's kernel, and those that make numbers of rows before a backward pass, compute addresses from a head's number
// and the number of rows. They get arguments in which the sequence is all there is, with pointers moved so that the old
// formulas are right:
//
// ```{region} lengths.cuh alone
// ```
// ```{region} lengths.cuh enter
// ```
//
// The backward pass has numbers for each row, and sums of dQ, in whole tiles of 128 rows. Two sequences must not share
// a tile, and the host must know how much memory that takes. The tiles of sequence n begin at ⌊first / 128⌋ + n:
//
// ```{region} lengths.cuh padded
// ```
//
// ```{question}
// Sequences of 20, 90, 130, 0 and 50 tokens. At which of their padded rows does each begin, and where does it end?
// ```

// %% tags=["hide-input"]
CELL("Whole tiles for each") {
  const std::vector<int> lengths = {20, 90, 130, 0, 50};
  std::int64_t first = 0, end = 0;
  bool apart = true;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    const std::int64_t begins = (first / 128 + std::int64_t(n)) * 128;
    apart = apart && begins >= end;
    end = begins + (lengths[n] + 127) / 128 * 128;
    std::printf("%3d tokens from %3d on: padded rows %3d to %3d\n", lengths[n], int(first), int(begins), int(end));
    first += lengths[n];
  }
  expect(apart && end <= (first / 128 + 5) * 128, "they do not overlap, and end where the workspace does");

  // Each sequence has the gradients that it has alone, bit for bit.
  constexpr std::int64_t H = 2, D = 64;
  Packed all(lengths, H, D);
  all.both_passes(phase27::phase);
  bool same = true;
  for (std::size_t n = 0; n < lengths.size(); ++n) {
    Packed alone({lengths[n]}, H, D);
    for (std::size_t i = 0; i < 4; ++i) std::ranges::copy(all.of_sequence(n, i), alone.tensors[i].data());
    alone.both_passes(phase27::phase);
    same = same && all.same(n, alone, 0);
  }
  expect(same, "O and the gradients of each sequence are those that it has alone, bit for bit");
}

// %% [markdown]
// ```{answer}
// 0 to 128, 128 to 256, 256 to 512, 512 to 512 (there is no row), 640 to 768. Between them are tiles that nobody has;
// in all there are at most N of those.
// ```
// ```{exercise} 27.2
// ```
//
// ## Launches
//
// The earlier phases are launched for a problem of one batch entry, as long as all tiles that there may be:
//
// ```{region} lengths.cuh variant-of
// ```
// ```{region} attention.cuh launch
// ```
// ```{region} mma.cuh launch-mma
// ```
// ```{region} phase.hpp workspace
// ```
// ```{region} phase.hpp features
// ```
//
// ## With what else
//
// What phases 25 and 26 have goes together with lengths, two by two; what nobody had before is refused by its name. The
// last sign of a line is about its feature alone, those before are about it and each feature above: + is computed, - is
// refused. The phase's tests compute every + and compare it with fp64, and try every -.

// %% tags=["hide-input"]
CELL("Every two features") {
  const Pairs pairs = print_pairs({&phase27::phase, &phase27m::phase});
  std::printf("\nthe last refusal: %s\n", pairs.refusal.c_str());
  expect(pairs.alike, "both phases, and both passes, answer alike");
  expect(pairs.computed == 8 + 27, "8 features alone, and 27 pairs of them: causal and window are one mask");
}

// %% [markdown]
// **What you saw.** Lengths are one more answer to *where*. A kernel in front turns them into a list of tiles, longest
// sequences first, so that the host need not know them. A box of TMA ends where a sequence does, because one axis of
// its map ends there. Each sequence has the bits that it has alone, and nothing of its neighbours reaches it.
//
// **To think about.** 1. The list has one entry for each tile, not one for each tile of each head. Why is that enough?
// 2. Where must a sequence end if the last axis were left out? 3. Sequences are sorted, and not their tiles. When would
// it matter?
//
// <details><summary>Answers</summary>
//
// 1. A tile has as many numbers as there are heads, one behind the other, and a division tells which head it is.
//
// 2. With an axis a as long as a box, n rows that end at row e of the tensor begin at a = box − n and r = e − box.
//    Where e < box that is negative, and so outside: no sequence could end within the tensor's first box.
//
// 3. With a causal mask a sequence's first Q tiles see few keys, and come before the next sequence's longest ones. In
//    the end, where it counts, the sequences are short, and so are all of their tiles.
//
// </details>
