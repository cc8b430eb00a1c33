// %% [markdown]
// # 30 · The ring
//
// **Question.** A sequence is longer than one GPU's memory, or one GPU is too slow for it. Several can hold a piece
// each. But every row of Q wants to see every key, wherever it lies. What must travel, and who then does how much?
//
// **Idea.** Q and O stay where they are. K and V go round a ring of {term}`ranks <rank>`: each rank computes attention
// with the keys that it has, while it sends them to the next rank and gets others from the one before. After n steps
// each row has met each key. What it has then is O of n sets of keys, and phase 02 has the rule by which such results
// are merged. (Liu, Zaharia, Abbeel, arXiv:2310.01889.)
//
// **Changed.** No kernel. A step is one ordinary call of a phase, with a mask that earlier phases have. New are three
// things around it: which rows lie where, a merge in fp32, and messages. Here the ranks are threads of one process, so
// that everybody can run them; `flash-ring` has the same algorithm for processes of many machines.

// %% tags=["hide-input"]
#include "phases/30-ring/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/30-ring/cost.hpp"
#include "phases/30-ring/ulysses.hpp"
#include "phases/arrays/tensor.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/exact.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "phases/ring/recording.hpp"

using namespace flash;
using namespace flash::phase30;

static constexpr RingLayout layouts[] = {RingLayout::Contiguous, RingLayout::ZigZag, RingLayout::Striped};
static constexpr const char* colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7"};  // of ranks

// Random numbers for a problem, and the gradients.
struct Sequence4 {
  Tensor<float> q, k, v, dout, o, dq, dk, dv, lse;

  Sequence4(std::int64_t H, std::int64_t Hk, std::int64_t S, std::int64_t D)
      : q(random_tensor<float>({1, H, S, D}, 30, 0)),
        k(random_tensor<float>({1, Hk, S, D}, 30, 1)),
        v(random_tensor<float>({1, Hk, S, D}, 30, 2)),
        dout(random_tensor<float>({1, H, S, D}, 30, 3)),
        o(make_tensor<float>({1, H, S, D})),
        dq(o),
        dk(make_tensor<float>({1, Hk, S, D})),
        dv(dk),
        lse(make_tensor<float>({1, H, S, 1})) {}
  AnyProblem problem(const Mask& mask, bool backward = false) {
    AnyProblem p;
    p.options.mask = mask;
    p.q = any_of(view(q)), p.k = any_of(view(k)), p.v = any_of(view(v)), p.o = any_of(view(o));
    p.lse = any_of(view(lse));
    if (!backward) return p;
    p.direction = Direction::Backward;
    p.dout = any_of(view(dout)), p.dq = any_of(view(dq)), p.dk = any_of(view(dk)), p.dv = any_of(view(dv));
    return p;
  }
};

// On threads; what all ranks have sent, in bytes.
template <class Way>
static std::uint64_t on_ranks(AnyProblem p, RingLayout layout, int ranks, const Way& way) {
  p.options.ring = {ranks, layout};
  const Split split(p, ranks);
  std::vector<Local> local;
  local.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) local.emplace_back(p, split, rank);
  const std::uint64_t sent = on_threads(ranks, 60, [&](Comm& comm) {
    way(comm, split, local[static_cast<std::size_t>(comm.rank)].problem(), HostWorker{definition::phase});
  });
  for (Local& mine : local) mine.put_back(p);
  return sent;
}

// The largest distance of any two numbers, as a share of the largest number.
static double apart(const Tensor<float>& a, const Tensor<float>& b) {
  double most = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(double(a.data()[i]) - double(b.data()[i])));
    size = std::max(size, std::abs(double(b.data()[i])));
  }
  return most / size;
}

// %% [markdown]
// ## Who holds what
//
// With a {term}`causal` mask row i sees the keys up to i, so a late row has more work than an early one. In contiguous
// pieces the last rank gets all the late rows. Two other layouts give everybody early and late ones: zig-zag, a piece
// from the front and one from the back; and striped, each n-th token.
//
// ```{region} shares.hpp share
// ```
// ```{region} shares.hpp layouts
// ```
//
// The picture shows S of 16 tokens on four ranks. A cell has the colour of the rank that computes it: the one that has
// the row. White cells are hidden by the mask.
//
// ```{question}
// Four ranks have 34 rows each, with a causal mask. How many pairs of a row and a key has the first rank in contiguous
// pieces, and how many has the last?
// ```

// %% tags=["hide-input"]
CELL("Pairs of a row and a key, by rank") {
  constexpr int n = 4, S = 16, cell = 11, left = 10, top = 62, between = 40;
  svg::Canvas canvas(3 * (S * cell + between) + left, top + S * cell + 60, "Which rank computes which pair");
  int x = left;
  bool all_seen = true;
  for (const RingLayout layout : layouts) {
    const Split split(layout, n, S, S, Mask::top_left());
    canvas.text(x, 50, name(layout), "font-size=\"14\"");
    std::int64_t pairs = 0;
    for (int rank = 0; rank < n; ++rank) {
      const Share rows = split.rows(rank);
      for (int from = 0; from < n; ++from) {
        const Share keys = split.keys(from);
        const Section p = split.section(rank, from);
        for (std::int64_t i = 0; i < p.rows; ++i)
          for (std::int64_t j = p.mask.visible(i, p.rows, p.keys).begin; j < p.mask.visible(i, p.rows, p.keys).end; ++j)
            canvas.rect(double(x + keys[p.k0 + j] * cell), double(top + rows[p.q0 + i] * cell), cell - 1, cell - 1,
                        std::string("fill=\"") + colours[rank] + "\""),
                ++pairs;
      }
    }
    all_seen = all_seen && pairs == S * (S + 1) / 2;
    canvas.text(x, top + S * cell + 20, "key j (x), query i (y)", "font-size=\"12\"");
    x += S * cell + between;
  }
  for (int rank = 0; rank < n; ++rank) {
    canvas.rect(left + rank * 90, top + S * cell + 34, 12, 12, std::string("fill=\"") + colours[rank] + "\"");
    canvas.text(left + rank * 90 + 18, top + S * cell + 45, "rank " + std::to_string(rank), "font-size=\"12\"");
  }
  picture("30-pairs", canvas.str());
  expect(all_seen, "each visible pair belongs to one rank");

  std::vector<std::vector<std::int64_t>> table;
  for (const RingLayout layout : layouts) {
    const Split split(layout, n, 136, 136, Mask::top_left());
    table.emplace_back();
    for (int rank = 0; rank < n; ++rank) {
      table.back().push_back(0);
      for (int from = 0; from < n; ++from) table.back().back() += split.section(rank, from).pairs();
    }
    std::printf("%-11s", name(layout));
    for (const std::int64_t pairs : table.back()) std::printf(" %6d", int(pairs));
    std::printf("\n");
  }
  std::printf("a triangle of 34 rows: 34 · 35 / 2 = %d pairs; a block: 34 · 34 = %d\n", 34 * 35 / 2, 34 * 34);
  expect(table[0][0] == 34 * 35 / 2 && table[0][3] == 34 * 35 / 2 + 3 * 34 * 34,
         "contiguous: the first rank has its own triangle, the last has three whole blocks more");
  expect(table[1][0] == table[1][3], "zig-zag: all the same");
  expect(table[2][3] - table[2][0] == 3 * 34, "striped: a rank has 34 pairs more than the one before");
}

// %% [markdown]
// ```{answer}
// The first has the triangle of its own rows and keys, 34 · 35 / 2 = 595. The last has such a triangle and three whole
// blocks of 34 · 34: 4063, nearly seven times as many. All wait for it.
// ```
//
// Zig-zag is even to the pair. Striped is not quite, but what a rank has more than the one before is one pair a row.
//
// ```{exercise} 30.1
// ```
//
// ## One mask for each pair of ranks
//
// Whatever two ranks hold, what the rows of one see of the keys of the other must be a mask that an ordinary call has.
// Rows and keys are put on one axis, so that a row lies where its own key does; with the {term}`bottom-right` mask and
// fewer rows than keys the rows lie at the end.
//
// ```{region} shares.hpp split
// ```
// ```{region} shares.hpp section
// ```
//
// In contiguous pieces a piece of a band is a band, shifted by how far the rows are from the keys. Striped, row i is
// token n i + r of all and key j is token n j + f: the same band again, n times narrower. So both have windows, too.
// Zig-zag has two pieces, but a causal mask cuts one of them alone, and only on a rank's own keys; elsewhere a piece is
// seen whole or not at all. A window would cut both pieces, each in its own place: that is refused.
//
// ```{exercise} 30.2
// ```
//
// ## Merged
//
// Who computes a call, and in whose memory, is left open: the host, with any phase on any machine, or a GPU.
//
// ```{region} ../ring/worker.hpp worker
// ```
//
// A call leaves O in fp32, though K and V may have 16 bits. Rounded to 16 bits before it is merged, O would be rounded
// twice: once for each set of keys, and once in the end.
//
// ```{region} merge.hpp merge
// ```
//
// ```{exercise} 30.3
// ```
//
// ## Round the ring
//
// Each step begins an exchange, computes, and waits. A message is on its way while the block that it copies is in use:
// it is read by both. Two blocks are all the memory that this takes, however many ranks there are.
//
// ```{region} ring.hpp block
// ```
// ```{region} ring.hpp forward
// ```

// The picture is a recording of four threads with 16 tokens, zig-zag, {term}`causal`. Whenever a rank calls attention,
// its worker writes down which of its rows it was given, and which of the keys that lie in its memory; whose they are,
// the messages say. The colour says it, too. Where they are not a rank's own, a call has half of the keys, or half of
// the rows. <a href="player-runs.html?phase=30-ring">The player</a> shows such a run step by step, and contiguous
// pieces to compare with.

// %% tags=["hide-input"]
static RingRun who_holds_what(int n, std::int64_t S) {
  Sequence4 sequence(1, 1, S, 1);
  AnyProblem p = sequence.problem(Mask::top_left());
  p.options.ring = {n, RingLayout::ZigZag};
  const Split split(p, n);
  std::vector<Local> local;
  for (int rank = 0; rank < n; ++rank) local.emplace_back(p, split, rank);
  return run_written_down(split, local, definition::phase, 60);
}

CELL("Whose keys are where, and what comes out") {
  constexpr int n = 4, S = 16, width = 128, left = 76;
  const RingRun run = who_holds_what(n, S);
  svg::Canvas canvas(left + n * (width + 18), 300, "Who holds what in each step, as it was recorded");
  const Split split(RingLayout::ZigZag, n, S, S, Mask::top_left());
  const auto text = [](const Share& tokens, std::int64_t first, std::int64_t count) {
    std::string list;
    for (std::int64_t i = first; i < first + count; ++i) list += (list.empty() ? "" : " ") + std::to_string(tokens[i]);
    return list;
  };
  int calls = 0;
  bool in_turn = true;
  for (int step = 0; step < n; ++step)
    canvas.text(left + step * (width + 18), 48, "step " + std::to_string(step), "font-size=\"12\"");
  for (int rank = 0; rank < n; ++rank)
    canvas.text(12, 80 + rank * 60, "rank " + std::to_string(rank), "font-size=\"13\"");
  for (int rank = 0; rank < n; ++rank)
    for (const Deed& it : run.deeds) {
      if (it.what != Deed::Calls || it.rank != rank) continue;
      const int x = left + it.round * (width + 18), y = 56 + rank * 60;
      ++calls, in_turn = in_turn && it.whose == (rank - it.round + n) % n;
      canvas.rect(x, y, width, 42, std::string("rx=\"4\" fill=\"") + colours[it.whose] + "\"");
      canvas.text(x + 8, y + 18, "rows " + text(split.rows(rank), it.part.q0, it.part.rows),
                  "font-size=\"11\" fill=\"#000000\"");
      canvas.text(x + 8, y + 34, "keys " + text(split.keys(it.whose), it.part.k0, it.part.keys),
                  "font-size=\"11\" fill=\"#000000\"");
      if (it.round + 1 < n) canvas.arrow(x + width, y + 21, x + width + 16, 77 + ((rank + 1) % n) * 60, "#777777", 1);
    }
  expect(in_turn && calls == n * n, "a step later a rank has the keys that the one before had");
  picture("30-round", canvas.str());

  Example e = sentence();
  const double exact_error = [&] {
    phase30::forward(e.problem({.ring = {1}}));
    return worst_head(e);
  }();
  bool all_close = true;
  std::printf("relative error against fp64; one call: %.1e\n", exact_error);
  for (const RingLayout layout : layouts)
    for (const int ranks : {2, 3, 4}) {
      e.o.fill(0.0f);
      phase30::forward(e.problem({.ring = {ranks, layout}}));
      all_close = all_close && worst_head(e) <= 2e-6;
    }
  expect(all_close, "2, 3 and 4 ranks, three layouts, 50 tokens that they cannot share evenly: within 2e-6");
}

// %% [markdown]
// ## Back again
//
// The backward pass needs P, and P needs the LSE of a whole row; δ needs its whole O. Both are there when the forward
// pass is over. So a call for a block of keys is an ordinary backward call with the final O and LSE, and its dQ, dK and
// dV are summands. dQ stays with its rows. dK and dV belong to the keys: what a call has left for the keys of another
// rank goes home to that rank, beside the next call, and is added there in fp32. They could go round with their keys,
// as Liu et al. let them, with neighbours as the only links. But then the sum travels, in fp32 and one hop more; a
// summand has the calls' type, and of keys that no row has seen there is none.
//
// One thing is no longer true. The dS of a row sums to 0 over all its keys, and phase 20 counts dQ's keys from their
// mean because of it. Over the keys of one rank it sums to anything: there dQ was wrong by a tenth before the calls
// were told (`all_keys`).
//
// ```{region} ring.hpp backward
// ```
//
// ## What travels
//
// ```{region} ring.hpp bytes
// ```
//
// ```{question}
// Does a causal mask save bytes, since half of all pairs are hidden? And if K and V have half of Q's heads?
// ```

// %% tags=["hide-input"]
CELL("Bytes: predicted and sent") {
  constexpr std::int64_t H = 8, S = 96, D = 32;
  const auto forth = [](Comm& c, const Split& s, const AnyProblem& m, const Worker& w) { ring_forward(c, s, m, w); };
  const auto back = [](Comm& c, const Split& s, const AnyProblem& m, const Worker& w) { ring_backward(c, s, m, w); };
  bool equal = true, close = true;
  std::printf("ranks  K's heads  mask     forward      backward     all-to-all\n");
  for (const int ranks : {2, 4})
    for (const std::int64_t Hk : {8, 4})
      for (const Mask& mask : {Mask::none(), Mask::top_left()}) {
        Sequence4 one(H, Hk, S, D), many(H, Hk, S, D);
        enter(definition::phase, one.problem(mask)), enter(definition::phase, one.problem(mask, true));
        const AnyProblem there = many.problem(mask), again = many.problem(mask, true);
        const std::uint64_t a = on_ranks(there, RingLayout::Striped, ranks, forth),
                            b = on_ranks(again, RingLayout::Striped, ranks, back);
        close = close && apart(many.o, one.o) < 1e-6 && apart(many.dq, one.dq) < 1e-5 &&
                apart(many.dk, one.dk) < 1e-5 && apart(many.dv, one.dv) < 1e-5;
        const std::uint64_t c = on_ranks(there, RingLayout::Contiguous, ranks, ulysses);
        equal = equal && a == bytes_sent(there, RingLayout::Striped, ranks) &&
                b == bytes_sent(again, RingLayout::Striped, ranks) && c == ulysses_bytes_sent(there, ranks) &&
                std::memcmp(many.o.data(), one.o.data(), 4 * one.o.size()) == 0;
        std::printf("%5d %10d  %-8s %8s %13s %14s\n", ranks, int(Hk), name(mask), grouped(a).c_str(),
                    grouped(b).c_str(), grouped(c).c_str());
      }
  expect(close, "O, dQ, dK and dV are those of one process");
  expect(equal, "what is sent is the formula, to the byte; and all-to-all has the bits of one call");
}

// %% [markdown]
// ```{answer}
// Forward a mask saves nothing: each block goes round, whoever uses how much of it. Nor does it in the backward pass of
// striped pieces, where each rank sees some of every piece; in contiguous pieces half of dK and dV need not go home.
// Half the heads are half the bytes, because only K and V travel: that is why grouped heads and a ring go well
// together.
// ```
//
// ## The other way: all to all
//
// Attention needs all keys of a row, but only of one head. So the ranks can change what they have by rows into what
// they have by heads, call attention once, and change O back. That is DeepSpeed's Ulysses (arXiv:2309.14509). Nothing
// is merged, and any mask is as good as another. `--layout ulysses` asks for it: rows lie in one piece each, as they do
// in the contiguous layout.
//
// ```{region} ulysses.hpp all-to-all
// ```
// ```{region} ulysses.hpp ulysses
// ```
// ```{region} ulysses.hpp ulysses-bytes
// ```
//
// Of each array (n - 1) / n moves, so all ranks together send about as much with 8 ranks as with 4, while the ring's
// bytes grow with n - 1. But nothing can be computed until all is there, Q and O travel, too, and there can be no more
// ranks than K has heads. The ring's messages travel beside the work, and it has no such limit.
//
// ## A lost exchange
//
// An engine has three things to offer: an exchange is begun, it is polled, and there are a rank and a size. Waiting is
// polling with a limit. A program that waits for ever for a rank that has died is the most expensive kind of all.
//
// ```{region} comm.hpp communicator
// ```
//
// ```{question}
// Rank 2 of four never begins its second exchange. Which ranks wait for it, and what does each of them know?
// ```

// %% tags=["hide-input"]
CELL("Who is missing") {
  bool named = false;
  try {
    on_threads(4, 3, [](Comm& comm) {
      std::vector<std::byte> here(64), coming(64);
      const Withdraws at_an_error{comm};
      for (int step = 0; step < 3; ++step) {
        if (comm.rank == 2 && step == 1) return;
        comm.begin((comm.rank + 1) % 4, here, (comm.rank + 3) % 4, coming);
        comm.wait("step " + std::to_string(step));
      }
    });
  } catch (const RankLost& lost) {
    const std::string line = lost.what();
    named = line.find("see what rank 2 does") != std::string::npos;
    std::printf("%s\n", named ? "... see what rank 2 does" : line.c_str());
  }
  expect(named, "a neighbour names it, whichever is first");
}

// %% [markdown]
// ```{answer}
// Rank 3 gets nothing, and rank 1's message is not taken. Both have done the other half of their exchange, and so each
// can name rank 2. Rank 0 has both halves of this exchange, and would wait in the next one.
// ```
//
// ```{exercise} 30.4
// ```
//
// ## On GPUs
//
// A worker on a GPU asks for kernels and goes on: calls, merges and copies follow each other on one stream, messages
// have another, by NCCL. A rank waits for the message alone, and by then the GPU has its next call. The first set of
// keys leaves its O where the sum is to be, and the last is merged and divided in one kernel.
//
// ```{region} merge.cuh merge
// ```
// ```{region} merge.cuh kernels
// ```
//
// On the simulator such a worker has the bits of the host's, and the checked one finds nothing. Two H200s with 65536
// causal rows are 1.88 times as fast as one forward, and 1.90 times with the backward pass: [measured, with a time line
// of both](../../docs/results/ring-h200.md). With 4096 rows they are half as fast, because then a call is shorter than
// what the host does to begin a message.
//
// ```{question}
// Q, K, V and O have 2 bytes a number. The ring wants O in fp32 twice, the sum and the new set, and room for the K and
// V that come. How much longer can a sequence be on two GPUs than on one?
// ```

// %% tags=["hide-input"]
CELL("Room on a rank, in bytes for each token and column of a head") {
  constexpr double own = 4 * 2, more = 2 * 4 + 2 * 2;
  bool longer = true;
  std::printf("heads at a time   one GPU   a rank of two   times as long\n");
  for (const int parts : {1, 4, 16, 64}) {
    const double rank = (own + more / parts) / 2;
    std::printf("%15s %9.1f %15.2f %15.2f\n", parts == 1 ? "all" : ("1/" + std::to_string(parts)).c_str(), own, rank,
                own / rank);
    longer = longer && (parts == 1) == (own / rank < 1);
  }
  expect(longer, "with all heads at a time one GPU holds more than two; with a quarter of them two hold more");
}

// %% [markdown]
// ```{answer}
// It must be shorter: a rank has half of the tokens, but two and a half times the bytes for each. The ring that was to
// make room takes more than it makes. So heads are done a group at a time: what the ring wants beside is then wanted
// for one group alone. Sixteen groups make 1.83 times of one GPU's length.
// ```
//
// ```{region} ring.hpp groups
// ```
//
// ## 8 to 1,024 GPUs, on paper
//
// Few have a thousand GPUs to try it. But a step of the ring is a call and a message that begin together, and how long
// each takes on its own has been measured. So a formula can say how long all takes. What it assumes stands beside each
// number: two of them are of the network between hosts, which has not been measured. That a message slows the kernel
// beside it is left out, and so is how much memory a GPU has.
//
// ```{region} cost.hpp machine
// ```
//
// The busiest rank of each step counts, because the others wait for it. Where one message of a step goes over the
// network, all wait for that one.
//
// ```{region} cost.hpp paper
// ```
// ```{region} cost.hpp paper-ring
// ```
//
// All-to-all has no call to hide behind. And when there is more than one host, most of what it moves leaves the host.
//
// ```{region} cost.hpp paper-all-to-all
// ```
//
// Both together: all-to-all among the GPUs of a host, which have fast links, and a ring across hosts, whose slow
// messages have a long call to hide behind. (Fang and Zhao, "USP", arXiv:2405.07719.)
//
// ```{region} cost.hpp paper-2d
// ```
//
// The bytes of the formula are those that threads send. Its seconds are within 12 % of those of two H200s, from 16384
// rows on and in each layout: `ring_cost_test` compares them.
//
// ```{question}
// 1 Mi rows lie on 64 GPUs of eight hosts; Q and K have 64 heads of 128 columns. Does the ring hide its messages? Does
// it when K has 8 heads? And both together, with 64?
// ```

// %% tags=["hide-input"]
CELL("A step of 64 GPUs: computed and sent") {
  std::printf("                       rows of a call   computes     sends\n");
  bool hidden[3];
  for (const int i : {0, 1, 2}) {
    OnPaper p{.S = 1 << 20, .H = 64, .Hk = i == 1 ? 8 : 64, .D = 128};
    const bool both = i == 2;
    const int ranks = both ? 8 : 64;
    if (both) p.H /= 8, p.Hk /= 8;
    const double call = call_seconds(p, two_h200, p.H, busiest_pairs(p, p.S / ranks, 1), false);
    const double message = seconds_of(two_h200.between, double(2 * p.S / ranks * p.Hk * p.D * std::int64_t{p.bytes}));
    std::printf("%-22s %14s %7.1f ms %6.1f ms\n",
                both ? "both, 64 heads of K"
                : i  ? "ring,  8 heads of K"
                     : "ring, 64 heads of K",
                grouped(std::uint64_t(p.S / ranks)).c_str(), call * 1e3, message * 1e3);
    hidden[i] = message < call;
  }
  const OnPaper p{.S = 1 << 20, .H = 64, .Hk = 64, .D = 128};
  std::printf("all of it, 64 heads of K: ring %.0f ms, all-to-all %.0f ms, both %.0f ms\n",
              cost_of_ring(p, two_h200, 64).seconds * 1e3, cost_of_ulysses(p, two_h200, 64)->seconds * 1e3,
              cost_of_2d(p, two_h200, 64)->seconds * 1e3);
  expect(!hidden[0] && hidden[1] && hidden[2], "the ring waits for 64 heads of K, and for 8 it does not; both do not");
}

// %% [markdown]
// ```{answer}
// Not with 64 heads: a step computes for 6.5 ms and its message takes 12.0 ms. With 8 heads of K the message has an
// eighth of the bytes, and is hidden. Both together send as many bytes in a step, but compute for 52.1 ms beside them.
// ```
//
// The picture has the fastest way for each length and number of GPUs, forward and causal, with 64 heads of Q. The
// figure is the speed of n GPUs as a share of n times the speed of one. A way within a hundredth of the best counts as
// the best, and of several the ring first, then all-to-all: they are simpler.

// %% tags=["hide-input"]
CELL("Which way, on how many GPUs") {
  constexpr const char* ways[] = {"ring", "all-to-all", "both"};
  constexpr const char* fills[] = {"#56b4e9", "#f0e442", "#e69f00"};
  constexpr int cell = 46, height = 30, left = 78, top = 76, panel = 8 * cell + 96;
  svg::Canvas canvas(2 * panel + 10, top + 6 * height + 76, "Fastest way on paper, and its share of n times one GPU");
  int wins[2][3] = {};
  bool few_rows = true, both_far = true;
  for (const int side : {0, 1}) {
    const std::int64_t Hk = side ? 8 : 64;
    const int x0 = left + side * panel;
    canvas.text(x0, 50, "K has " + std::to_string(Hk) + " heads", "font-size=\"14\"");
    for (int row = 0; row < 6; ++row) {
      const std::int64_t S = std::int64_t{1} << (24 - 2 * row);
      canvas.text(x0 - 62, top + row * height + 20, svg::short_number(double(S)), "font-size=\"12\"");
      for (int column = 0; column < 8; ++column) {
        const int gpus = 8 << column;
        const OnPaper p{.S = S, .H = 64, .Hk = Hk, .D = 128};
        const std::optional<Cost> costs[] = {cost_of_ring(p, two_h200, gpus), cost_of_ulysses(p, two_h200, gpus),
                                             cost_of_2d(p, two_h200, gpus)};
        double share[3], best = 0;
        for (const int way : {0, 1, 2}) {
          share[way] = costs[way] ? 100 * seconds_on_one(p, two_h200) / gpus / costs[way]->seconds : 0;
          best = std::max(best, share[way]);
        }
        int way = 0;
        while (share[way] < 0.99 * best) ++way;
        ++wins[side][way];
        few_rows = few_rows && (0.99 * share[1] <= std::max(share[0], share[2]) || S / gpus <= 2048);
        both_far = both_far && (gpus < 128 || share[2] >= 0.99 * best);
        canvas.rect(x0 + column * cell, top + row * height, cell - 2, height - 2,
                    std::string("fill=\"") + fills[way] + "\" fill-opacity=\"" + (best < 50 ? "0.3" : "1") + "\"");
        canvas.text(x0 + column * cell + cell / 2 - 1, top + row * height + 19, svg::num(best, 0),
                    "font-size=\"12\" text-anchor=\"middle\" fill=\"#000000\"");
      }
    }
    for (int column = 0; column < 8; ++column)
      canvas.text(x0 + column * cell + cell / 2 - 1, top - 8, std::to_string(8 << column),
                  "font-size=\"12\" text-anchor=\"middle\"");
    canvas.text(x0, top + 6 * height + 20, "GPUs (x), rows S (y); pale: less than half", "font-size=\"12\"");
    std::printf("K has %2d heads: of 48 cases ring %d, all-to-all %d, both %d\n", int(Hk), wins[side][0], wins[side][1],
                wins[side][2]);
  }
  for (const int way : {0, 1, 2}) {
    canvas.rect(left + way * 120, top + 6 * height + 40, 12, 12, std::string("fill=\"") + fills[way] + "\"");
    canvas.text(left + way * 120 + 18, top + 6 * height + 51, ways[way], "font-size=\"12\"");
  }
  picture("30-paper", canvas.str());
  expect(few_rows, "all-to-all is ahead of the others by more than a hundredth only with 2,048 rows on a GPU or fewer");
  expect(both_far, "from 128 GPUs on nothing is better than both by more than a hundredth");
}

// %% [markdown]
// On one host the ring and all-to-all are as good as each other. Across hosts the ring does where each GPU has enough
// rows: a step's work grows with their square, its bytes with their number. From there on it takes both. Where a GPU
// has 2,048 rows or fewer all-to-all is ahead, as far as K's heads go: a ring's steps are shorter than its messages
// then. And no way helps when 1,024 GPUs have a few thousand rows each.
//
// ## On many machines
//
//     apt-get install libopenmpi-dev openmpi-bin
//     mpirun -n 4 flash-ring --q q.npy --k k.npy --v v.npy --o o.npy --causal bottom-right --timeout 60
//
// Each rank reads its own rows of the files, and writes its own rows of the results, which get their names when all
// are there. Before the work the ranks tell each other what they were asked to do: another file, another option or
// another version is one line and exit status 2. The bits are those of as many threads. A terminal shows in which step
// rank 0 is.
//
// Hosts that do not see the same files give each rank its own. Where a path has `%r`, each rank puts its number there:
//
//     mpirun --hostfile hosts -n 4 flash-ring --q q.%r.npy --k k.%r.npy --v v.%r.npy --o o.%r.npy --lse lse.%r.npy
//
// Rank 2 reads `q.2.npy` and writes `o.2.npy`. Such a file holds that rank's rows alone, in the order of the layout.
// All files of Q together are the whole Q; a number of rows that is not the rank's share is refused by name. With as
// many rows as keys, rank r of n has these:
//
//     contiguous = ulysses = np.array_split(q, n, axis=2)[r]
//     striped = q[:, :, r::n]
//     pieces = np.array_split(q, 2 * n, axis=2)
//     zig_zag = np.concatenate([pieces[r], pieces[2 * n - 1 - r]], axis=2)
//
// Otherwise rows and keys are put on one axis first, as above.
//
// A rank that hangs is named by a neighbour soon after the limit, and the job ends with exit status 3. A rank that is
// killed can say nothing. Open MPI 4.1 then ends the job with status 137; told to recover, it ends with status 0. So
// `mpirun` starts a keeper, and the keeper starts the rank and waits for it. When the rank is killed, its keeper names
// the rank and the signal, removes the files that the rank had not finished, and ends with status 3. Where a keeper is
// killed, too, the status is 137 again, and the next job with the same outputs removes what is left.
//
// Each rank computes with the definition, on its host. `--machine sim` and `--machine checked` take a kernel phase on a
// simulator, with the moves and merges of a GPU's worker. On hosts with GPUs, in a build with CUDA, MPI and NCCL, each
// rank takes one:
//
//     mpirun --hostfile hosts -n 16 flash-ring --machine gpu --q q.npy --k k.npy --v v.npy --o o.npy
//
// MPI starts the ranks and tells them who they are; then K and V go from GPU to GPU by NCCL. A host with more ranks
// than GPUs is named. This way through MPI has been compiled, but not run: what was measured is `ring_bench`, with the
// same worker and the same messages, whose ranks are threads.
//
// Under Slurm `srun --mpi=pmix -n 4 flash-ring …` should do the same, with `--gpus-per-task=1` for GPUs; that has not
// been tried.

// %% [markdown]
// ## What you saw
//
// - K and V travel, Q and O stay; each step is one ordinary call.
// - Which rows lie where decides how evenly the work is spread; zig-zag and striped are even.
// - Results are merged in fp32 by m and l, with one division.
// - dK and dV go home from each rank whose rows have seen the keys, and are added there.
// - Bytes: the ring's grow with the ranks and with K's heads; all-to-all moves each array once.
