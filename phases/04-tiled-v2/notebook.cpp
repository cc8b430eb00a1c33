// %% [markdown]
// # 04 · FlashAttention-2: the loops change places
//
// **Question.** In phase 03 the half-finished O travels to HBM and back T_c times. Why should a result travel?
//
// **Idea.** Put Q outside and K, V inside. Then one tile O_i, with its l_i and m_i, stays on chip until it is done, and
// is written once. K and V come in once per Q tile instead. Since O_i stays, it need not be kept divided by l: one
// division at the end is enough. This is FlashAttention-2, V2 for short. (Dao, arXiv:2307.08691, Algorithm 1.)
//
// **Changed since 03.** The two `for` lines changed places; O is not kept divided by l; LSE = m + log l is written;
// there is a {term}`causal` mask; and each Q tile is independent, so threads can share them.

// %% tags=["hide-input"]
#include "phases/04-tiled-v2/phase.hpp"

#include <cstdio>
#include <cstring>

#include "phases/01-naive/phase.hpp"
#include "phases/03-tiled-v1/attention.hpp"
#include "phases/pages/cell.hpp"
#include "phases/pages/example.hpp"
#include "phases/pages/svg.hpp"
#include "phases/pages/tile_walk.hpp"

using namespace flash;

static std::uint64_t tiles(std::uint64_t N, std::uint64_t B) {
  return (N + B - 1) / B;
}

// Each Q tile visits the K/V tiles from 0 as far as its last row sees.
static svg::Walk v2_walk(const std::string& title, const Problem<float>& p, int Br, int Bc) {
  svg::Walk walk{title, int(tiles(p.Sq(), Br)), int(tiles(p.Sk(), Bc)), 0};
  for (int i = 0; i < walk.rows; ++i)
    for (int j = 0; j * Bc < p.visible(std::min<std::int64_t>((i + 1) * Br, p.Sq()) - 1).end; ++j)
      walk.order.push_back({i, j});
  return walk;
}

// %% [markdown]
// ## The same step, twice
//
// Both algorithms compute the same tile of S here: the third tile of Q meets the second of K and V. The memory model
// says what had to move for it. The tiles have 13 rows of Q and 17 of K, as on page 03.

// %% tags=["hide-input"]
CELL("What stays, what moves") {
  Example e = sentence();
  const Options blocks{.block_q = 13, .block_k = 17, .threads = 1};
  Moves moves1;
  phase03::forward(e.problem(blocks));
  Moves moves2;
  const Ledger ledger = phase04::forward(e.problem(blocks)).ledger;
  svg::Walk along = v2_walk("V2: Q outside, along the rows", e.problem(), 13, 17);
  svg::Walk down{"V1: K, V outside, down the columns", along.rows, along.columns, 1, along.order};
  std::stable_sort(down.order.begin(), down.order.end(), [](auto a, auto b) { return a[1] < b[1]; });
  const std::size_t s1 = 1 * 4 + 2, s2 = 2 * 3 + 1;  // both are tile (3, 2)
  down.note = grouped(moves1.bytes(s1)) + " bytes move in this step";
  along.note = grouped(moves2.bytes(s2)) + " bytes move in this step";
  picture("04-step", svg::one_step("The same tile of S, in both orders", {50, 32, 13, 17},
                                   {{down, s1, moves1}, {along, s2, moves2}}));
  expect(down.order[s1] == along.order[s2], "both steps compute the same tile");
  for (const auto& [name, moves, step] : {std::tuple{"V1", &moves1, s1}, {"V2", &moves2, s2}}) {
    std::printf("%s:", name);
    for (const Moved& move : moves->steps[step]) std::printf(" %s %s", move.array.c_str(), move.read ? "in" : "out");
    std::printf("; %s bytes\n", grouped(moves->bytes(step)).c_str());
  }
  expect(moves1.bytes(s1) == 4 * (3 * 13 * 32 + 4 * 13) && moves2.bytes(s2) == 4 * 2 * 17 * 32,
         "V1 moves Q_i, and O_i, l_i, m_i in and out; V2 moves K_j and V_j alone");
  std::uint64_t numbers = 0;
  for (const auto& [tile, size] : moves2.tiles) numbers += size;
  expect(moves1.tiles == moves2.tiles && 4 * numbers == ledger.shared_bytes_peak, "the same seven tiles are on chip");
}

// %% [markdown]
// ## The code
//
// The same tiles are on chip as in phase 03. Which sizes are good has changed, though: K and V pass once for each Q
// tile, so a large B_r saves bytes. B_c does not change their number.
//
// ```{region} phase.hpp on-chip-bytes
// ```
// ```{region} phase.hpp choose-blocks
// ```
//
// A task is now a Q tile. The loop over Q tiles is outside, hidden in the task's number t, from which the batch entry,
// the head and the first row are computed.
//
// ```{region} attention.hpp q-tile-outside
// ```
//
// The state begins on chip and stays there. Compare with phase 03: these three lines were writes to HBM.
//
// ```{region} attention.hpp state-on-chip
// ```
//
// K and V pass by inside. The loop ends at the last key that the tile's last row may see, so a causal mask makes it
// shorter. A K/V tile counts as `full` if the first row of the Q tile sees all of it, because later rows see no less.
//
// ```{region} attention.hpp kv-inside
// ```
//
// First come the scores of the tile.
//
// ```{region} attention.hpp scores
// ```
//
// Then comes online softmax, row by row. m, l and O are corrected by α, exactly as in `add_key` of phase 02, but for n
// keys at once. O is not divided by l, so there is one multiplication per row and tile instead of two.
//
// ```{region} attention.hpp online-softmax
// ```
//
// Where the whole tile is seen, P · V is one matrix product.
//
// ```{region} attention.hpp output
// ```
//
// After the last tile comes the only division. LSE costs one logarithm per row, because m and l are at hand. Only now
// are O and LSE written, for the first and last time.
//
// ```{region} attention.hpp finish
// ```
//
// ```{exercise} 04.1
// ```
//
// What this changed, against phase 03:
//
// ```{difference} ../03-tiled-v1/attention.hpp attention.hpp
// ```

// %% [markdown]
// ## Run it: two walks side by side
//
// Now all twelve steps of both, in their order.

// %% tags=["hide-input"]
CELL("Down the columns, or along the rows") {
  Example e = sentence();
  const Options blocks{.block_q = 13, .block_k = 17};
  Ledger v1 = phase03::forward(e.problem(blocks)).ledger, v2 = phase04::forward(e.problem(blocks)).ledger;
  expect(worst_head(e) <= 2e-6, "the same attention");

  svg::Walk along = v2_walk("V2: Q outside", e.problem(), 13, 17);
  svg::Walk down{"V1: K, V outside", along.rows, along.columns, 1, along.order};
  std::stable_sort(down.order.begin(), down.order.end(), [](auto a, auto b) { return a[1] < b[1]; });
  down.note = "O is read and written " + std::to_string(down.columns) + " times (zeroed once)";
  along.note = "O is written once, when it is done";
  picture("04-walks", svg::tile_walks("The same tiles, two walks (×n: how often a tile comes on chip)", {down, along}));

  const std::uint64_t once = 12 * 50 * 32 * 4;
  std::printf("passes      Q read   K read   V read   O read   O written\n");
  for (Ledger* l : {&v1, &v2}) {
    std::printf("%s    ", l == &v1 ? "V1" : "V2");
    for (const char* name : {"Q", "K", "V", "O"}) std::printf("%9d", int(l->array(name).read_bytes / once));
    std::printf("%12d\n", int(l->array("O").written_bytes / once));
  }
  expect(v2.array("K").read_bytes == once * svg::fetches(along, 1)[0] && v2.array("O").read_bytes == 0 &&
             v2.array("O").written_bytes == once,
         "O is never read and written once; K and V pass T_r = 4 times");
}

// %% [markdown]
// ## Fewer rescales
//
// Multiplying a row by a number is slow work for a GPU: its fastest units, the {term}`tensor cores <tensor core>`, only
// do matrix products. V1 keeps O divided by l, so for each row and tile it multiplies twice: the row of O by l α / l',
// and the row of P by β / l'. V2 multiplies only the row of O, by α, and divides it once at the end.
//
// ```{question}
// N = 256, and B_c doubles from line to line. What happens to the rescales of V1, and to those of V2? Is there a B_c at
// which V2 saves nothing?
// ```

// %%
CELL("Rescales, as the code declares them") {
  const std::int64_t N = 256, d = 64;
  std::printf("  B_c   T_c |  V1 = 2·N·T_c   V2 = N·T_c + N\n");
  bool equal = true;
  for (const std::int64_t Bc : {32, 64, 128, 256}) {
    Example e = random_example(N, d);
    const Options blocks{.block_q = 64, .block_k = Bc, .sram_bytes = 1 << 20};
    const auto v1 = phase03::forward(e.problem(blocks)).ledger.rescales,
               v2 = phase04::forward(e.problem(blocks)).ledger.rescales;
    const std::uint64_t Tc = tiles(N, Bc);
    std::printf("%5d %5d | %14s %16s\n", int(Bc), int(Tc), grouped(v1).c_str(), grouped(v2).c_str());
    equal = equal && v1 == 2 * N * Tc && v2 == N * Tc + N;
  }
  expect(equal, "declared beside each multiplication = formula");
}

// %% [markdown]
// ```{answer}
// V1's halve, since there are two for each row and tile. V2's halve except for the N divisions at the end. With a
// single tile, B_c = 256, both need 512, two for each row: V2's are one correction and one division.
// ```
//
// ## What it costs
//
// Q and O move once, K and V once per Q tile: 4·(2Nd + T_r·2Nd) bytes. With the same square tiles that is about two
// thirds of V1's. The larger B_r, the fewer passes; B_c no longer matters, so a chip that has room for one large tile
// should spend it on Q and O. The dashed line is the paper's Θ(N²d²/M), drawn with 12, V1's constant from phase 03.

// %% tags=["hide-input"]
static std::uint64_t v2_bytes(std::uint64_t N, std::uint64_t d, std::uint64_t Tr) {
  return 4 * (2 * N * d + Tr * 2 * N * d);
}

static std::uint64_t naive_bytes(std::int64_t N, std::int64_t d) {
  const Shape one_head{.B = 1, .H = 1, .Hk = 1, .Sq = N, .Sk = N, .D = d, .Dv = d};
  const HbmBytes bytes = phase01::hbm_bytes({one_head, Type::Float32, {}}, {});
  return bytes.read + bytes.written;
}

CELL("Bytes against N") {
  const std::uint64_t d = 64, M = 192 * 1024 / 4;
  const auto v1 = phase03::fitting_blocks(4 * M, d);
  const Options large{.block_q = 256, .block_k = 16};
  const std::string v1_tiles = std::to_string(v1.Br) + " × " + std::to_string(v1.Bc);
  std::vector<svg::Line> lines{
      {"naive", {}}, {"V1, tiles " + v1_tiles, {}}, {"V2, tiles 128 × 64", {}}, {"V2, tiles 256 × 16", {}}};
  svg::Line law{.label = "12 · N²d²/M numbers", .points = {}, .dashed = true};
  bool equal = true;
  std::printf("    N          naive     V1 %s    V2 128 × 64    V2 256 × 16   [bytes]\n", v1_tiles.c_str());
  for (std::uint64_t N = 128; N <= 16384; N *= 2) {
    const std::uint64_t formula[] = {naive_bytes(N, d), 4 * (3 * N * d + 2 * N + tiles(N, v1.Bc) * (3 * N * d + 4 * N)),
                                     v2_bytes(N, d, tiles(N, 128)), v2_bytes(N, d, tiles(N, 256))};
    for (int k = 0; k < 4; ++k) lines[k].points.push_back({double(N), double(formula[k])});
    law.points.push_back({double(N), 4 * 12.0 * double(N * N * d * d) / double(M)});
    if (N > 512) continue;  // beyond that the formulas speak alone
    Example e = random_example(N, d);
    const std::uint64_t counted[] = {
        phase01::forward(e.problem()).ledger.hbm_bytes(), phase03::forward(e.problem()).ledger.hbm_bytes(),
        phase04::forward(e.problem()).ledger.hbm_bytes(), phase04::forward(e.problem(large)).ledger.hbm_bytes()};
    std::printf("%5d", int(N));
    for (int k = 0; k < 4; ++k) {
      std::printf(" %14s", grouped(counted[k]).c_str());
      lines[k].dots.push_back({double(N), double(counted[k])});
      equal = equal && counted[k] == formula[k];
    }
    std::printf("\n");
  }
  expect(equal, "counted = formula, four algorithms at three sizes");
  lines.push_back(law);
  picture("04-bytes", svg::chart({"HBM bytes, one head, d = 64, SRAM 192 KiB (dots: counted)", "N", "bytes"}, lines));

  Example e = random_example(512, d);
  const Problem<float> square = e.problem({.block_q = 64, .block_k = 64});
  const double share = 1.0 * phase04::forward(square).ledger.hbm_bytes() / phase03::forward(square).ledger.hbm_bytes();
  std::printf("equal tiles, 64 × 64, N = 512: V2 moves %.2f of V1's bytes\n", share);
  expect(share < 0.7, "at equal tiles V2 moves fewer bytes");
}

// %% [markdown]
// In the chart V1 with tiles of 64 × 192 and V2 with 128 × 64 run together: N/192 passes of 3Nd numbers are as many as
// N/128 passes of 2Nd. What V2 gains is the choice. In the same SRAM there is room for tiles of 256 × 16, and with them
// K and V pass half as often.
//
// ## What is O(N), and what is not
//
// FlashAttention is often called linear in N. The first paper says so of the memory: beyond inputs and output the
// algorithm needs O(N) numbers (arXiv:2205.14135, Theorem 1). For the numbers that move between HBM and the chip it
// gives Θ(N²d²/M) (Theorem 2). Let us count both, and what is on chip.
//
// ```{question}
// N grows from 512 to 1024. By what factor does each of the three grow: the memory that the arrays take, the bytes that
// move, and what is on chip?
// ```

// %% tags=["hide-input"]
CELL("What is O(N) and what is not") {
  std::uint64_t traffic[2], held[2], on_chip[2];
  for (const int k : {0, 1}) {
    Example e = random_example(512 << k, 64);
    const Ledger ledger = phase04::forward(e.problem_with_lse()).ledger;
    traffic[k] = ledger.hbm_bytes(), on_chip[k] = ledger.shared_bytes_peak;
    held[k] = 4 * (e.q.size() + e.k.size() + e.v.size() + e.o.size() + e.lse.size());
    std::printf("N = %4d: arrays in HBM %10s bytes, traffic %11s bytes, on chip %8s bytes\n", 512 << k,
                grouped(held[k]).c_str(), grouped(traffic[k]).c_str(), grouped(on_chip[k]).c_str());
  }
  expect(held[1] == 2 * held[0], "twice the N, twice the memory: O(N)");
  expect(traffic[1] > 3.5 * traffic[0],
         "twice the N, more than three and a half times the traffic: O(N²), divided by the tile");
  expect(on_chip[1] == on_chip[0], "twice the N, the same tiles on chip");
}

// %% [markdown]
// ```{answer}
// The memory doubles. The traffic grows by more than three and a half times, because K and V are twice as long and pass
// twice as often, once for each Q tile. Θ(N²) is still there, divided by the tile. What is on chip does not grow at
// all, but that is another memory than the one in which S would lie.
// ```
//
// ## LSE, for free
//
// m and l are on chip when a row is done. LSE = m + log l says in one number what softmax divided by, so P can be
// recomputed later as P_ij = exp(S_ij − LSE_i). The backward pass (phase 09) needs that, and so does merging (phase
// 08).

// %% tags=["hide-input"]
CELL("LSE") {
  Example e = sentence();
  Ledger ledger = phase04::forward(e.problem_with_lse()).ledger;
  double worst = 0;
  for (int h = 0; h < 12; ++h) {
    const RowMajor<double> want = scores<double>(e, h).array().exp().rowwise().sum().log();
    worst = worse(worst, relative_error(Eigen::Map<Eigen::VectorXf>(&e.lse[h * 50], 50), want));
  }
  const std::uint64_t bytes = ledger.array("LSE").written_bytes;
  std::printf("LSE: %s of %s bytes\n", grouped(bytes).c_str(), grouped(ledger.hbm_bytes()).c_str());
  expect(worst <= 2e-6 && bytes == 12 * 50 * 4, "one number per row, equal to log Σ exp in fp64");
}

// %% [markdown]
// ## Causal: tiles that no row sees
//
// If a word may only look back, tiles right of the diagonal hold nothing. The walk stops before them: they are neither
// loaded nor multiplied. When S_q ≠ S_k the diagonal must be *named*: does query 0 see key 0 only (top-left), or does
// the last query see all keys (bottom-right)?
//
// ```{question}
// S_q = 192 and S_k = 320 make 3 × 5 tiles of 64 × 64. How many does the walk visit with a top-left mask, how many with
// bottom-right?
// ```

// %% tags=["hide-input"]
CELL("Skipped tiles, counted") {
  Example e = random_example(192, 64);
  e.k = random_tensor<float>({1, 1, 320, 64}, 1, 1), e.v = random_tensor<float>({1, 1, 320, 64}, 1, 2);
  std::vector<svg::Walk> walks;
  bool right = true;
  for (const Mask causal : {Mask::none(), Mask::top_left(), Mask::bottom_right()}) {
    const Problem<float> p = e.problem({.mask = causal, .block_q = 64, .block_k = 64});
    const char* title = causal == Mask::none() ? "no mask" : causal == Mask::top_left() ? "top-left" : "bottom-right";
    walks.push_back(v2_walk(title, p, 64, 64));
    Ledger ledger = phase04::forward(p).ledger;
    const RowMajor<double> tiled = head(e.o, 0).cast<double>();
    phase01::forward(p);
    const double difference = relative_error(head(e.o, 0), tiled);
    const std::uint64_t visited = walks.back().order.size();
    std::printf("%-12s %2d of 15 tiles, %10s flops, difference to phase 01 %.1e\n", title, int(visited),
                grouped(ledger.flops).c_str(), difference);
    std::uint64_t pairs = 0;  // S is computed for whole tiles, P V for the keys that a row sees
    for (std::int64_t i = 0; i < p.Sq(); ++i) pairs += p.visible(i).end;
    right = right && difference <= 4e-6 && ledger.flops == 2 * 64 * (visited * 64 * 64 + pairs) &&
            ledger.array("K").read_bytes == visited * 64 * 64 * 4;
  }
  expect(right, "flops and bytes of the visited tiles only, and phase 01's output");
  picture("04-causal", svg::tile_walks("S_q = 192, S_k = 320, tiles 64 × 64: grey is skipped", walks));
}

// %% [markdown]
// ```{answer}
// Top-left 6: the first Q tile sees one K/V tile, the next two, the last three. Bottom-right 12: the diagonal lies S_k
// − S_q keys further to the right, so each of the three sees two tiles more.
// ```
//
// ## Threads
//
// No Q tile needs another: there is an independent task for each batch entry, head and Q tile, B·H·T_r in all, where V1
// had B·H. No sum depends on which thread does what, or when, so the result must be the same to the last bit.

// %% tags=["hide-input"]
CELL("Any number of threads, the same bits") {
  Example one = sentence();
  const Ledger ledger = phase04::forward(one.problem_with_lse({.block_q = 8, .threads = 1})).ledger;
  bool same = true;
  for (const int threads : {2, 3, 8}) {
    Example many = sentence();
    const Ledger other = phase04::forward(many.problem_with_lse({.block_q = 8, .threads = threads})).ledger;
    same = same && other == ledger && std::memcmp(one.o.data(), many.o.data(), one.o.size() * sizeof(float)) == 0 &&
           std::memcmp(one.lse.data(), many.lse.data(), one.lse.size() * sizeof(float)) == 0;
  }
  std::printf("%d tasks where V1 has %d\n", int(12 * tiles(50, 8)), 12);
  expect(same, "O, LSE and the ledger are equal for 1, 2, 3 and 8 threads");
}

// %% [markdown]
// **What you saw.** The same arithmetic in another order: results do not travel, each Q tile stands alone, and LSE
// comes at the price of one number for each row. This is the algorithm of every later phase.
//
// **Write it yourself.** The last exercise of part 1 gives you an empty function. It says what has to come out, how
// many bytes may move and how many exponentials may be computed.
//
// ```{exercise} 04.2
// ```
//
// **To think about.** 1. Which B_r, B_c move the fewest bytes within 99 KiB? 2. With S_q = 1 ({term}`decoding`) there
// is one Q tile and no parallelism left: which property from phase 02 helps? 3. With a causal mask about half of the
// scores in the diagonal tiles are thrown away: what share of all computed scores is that, as a function of N and B =
// B_r = B_c?
//
// <details><summary>Answers</summary>
//
// 1. B_c = 1, and B_r as large as fits: with d = 64 that is 192 rows, and N = 1024 costs 3,670,016 bytes. With B_c = 16
// there is room for 159 rows and it costs 4,194,304, with B_c = 64 for 88 rows and 6,815,744. But bytes are not time:
// with one key at a time there is no matrix product left, only products of a matrix and a vector.
//
// 2. That states can be merged. The keys are divided among threads, each has a state (m, l, o) of its own, and the
// states are merged in the end. Phase 08 does that.
//
// 3. (B − 1) / (N + B) of the scores that are computed. For N = 512 and B = 64 the phase computes 147,456 scores, of
// which 131,328 are seen: 10.9 % are thrown away. The products P V leave them out.
//
// </details>
