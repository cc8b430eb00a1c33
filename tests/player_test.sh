#!/bin/sh
# player_test.sh: the player's page in a browser: its buttons and keys, its figures beside those that ./flash run
# prints, a race, pairs of blocks, the book's recordings. A script that is appended to the page presses and looks.
# sh tests/player_test.sh BUILD
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo 'skipped: no browser here (apt-get install chromium)'
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0

cat >begin <<'END'
<script>
const said = [], is = (what, ok) => said.push((ok ? "ok: " : "no: ") + what);
const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const one = id => document.getElementById(id) || views[0].$(id);
for (const name of ["rec", "state"]) Object.defineProperty(window, name, {get: () => views[0][name]});
const choose = index => { views[0].choose(index); go(0); };
const all = () => ["hbm", "chip", "warps", "bytes", "values", "banks", "say", "code", "film", "line"]
  .map(id => one(id).innerHTML).join();
const wait = ms => new Promise(done => setTimeout(done, ms));
const finish = () => document.body.append(el("pre", {id: "said"}, ["said:", ...said, "done", ""].join("\n")));
const fits = () => {  // tables and the source may scroll; the names of steps end in dots where they are long
  is("no wider than the window", document.documentElement.scrollWidth <= innerWidth);
  const cut = [...document.querySelectorAll("body *")].filter(x => x.clientWidth && x.scrollWidth > x.clientWidth + 1 &&
    !x.closest(".code, table, svg, .film span, select, .band, .banks"));
  is("no text is cut off: " + cut.map(x => x.className || x.tagName).join(", "), !cut.length);
  for (const x of document.querySelectorAll("select"))
    if (x.id !== "beside" && x.offsetWidth) is("a choice is as wide as its words", x.scrollWidth <= x.clientWidth + 1);
};
(async () => { try {
END

# drive PAGE WIDTH [QUERY]: opens the page with the script on stdin; each "no: …" that it says is a failure, "done" must
# come.
drive() {
  {
    cat "$1.html"
    cat "$work/begin"
    cat
    echo '} catch (error) { is(error, false); } finish(); })();</script>'
  } >"driven-$1.html"
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
    --window-size="$2,900" --virtual-time-budget=60000 --dump-dom "file://$work/driven-$1.html${3-}" >dom 2>log || true
  sed -n '/<pre id="said">/,/<\/pre>/p' dom >said
  if grep -q '^no: ' said || ! grep -q '^done' said; then
    failed=1
    echo "$1:"
    cat said
    [ -s said ] || tail -n 5 log
  fi
}

# check PROGRAM PAGE STATUS [OPTION]: runs it with the checks, which end with this status, and writes the page.
check() {
  status=0
  sh "$here/../sim/cuda/check.sh" "$build/check.settings" ${4-} --player "$2.html" "$1" >out 2>&1 || status=$?
  [ "$status" = "$3" ] || { failed=1; echo "check $1: exit $status"; cat out; }
}

data=$here/../docs/data
"$build/bin/flash-phases" run --phase 07 --machine checked --causal top-left --block-q 16 --block-k 16 \
  --player run.html --q "$data/minilm_q.npy" --k "$data/minilm_k.npy" --v "$data/minilm_v.npy" --o o.npy >out
drive run 1200 <<'END'
  const steps = rec.steps.length;
  is("begins before the first step", at === 0 && one("count").textContent === `step 0 of ${steps}`);
  is("nothing has moved", [...document.querySelectorAll("[data-bytes]")].every(c => c.textContent === "0"));
  one("next").click();
  press("ArrowRight");
  is("button and key go forward", at === 2);
  const two = all();
  press("End");
  is("End", at === steps && one("verdict").className === "verdict good");
  const sums = [...one("bytes").rows[one("bytes").rows.length - 1].cells].slice(1);
  is("bytes at the end " + sums.map(c => c.textContent).join(" "), true);
  one("scrub").value = 3;
  one("scrub").dispatchEvent(new Event("input"));
  is("scrubbed", at === 3);
  one("back").click();
  is("the same going back as going forward", at === 2 && all() === two);
  press("Home");
  is("Home", at === 0 && one("verdict").textContent === "");
  one("speed").value = "80";
  press(" ");
  await wait(500);
  const reached = at;
  is("plays", reached > 5 && reached < steps);
  press(" ");
  await wait(500);
  is("pauses", at === reached);
  one("play").click();
  await wait(1000 * steps / 80 + 2000);
  is("plays to the end and stops", at === steps && !timer);
  // What is shown at some step is what the recording says of it.
  go(rec.steps.findIndex(s => s.a) + 1);
  is("a warp waits at the barrier", /waits at attention.cuh:\d+/.test(one("warps").textContent));
  go(rec.steps.findIndex(s => s.q) + 1);
  is("banks", document.querySelectorAll(".banks .one").length > 0);
  go(rec.steps.findIndex(s => s.v) + 1);
  const [name, rows, values] = rec.steps[at - 1].v[0];
  is("m of the chosen row", name === "m" && one("values").rows[1].cells[2].textContent === number(values[0]));
  one("row").value = rows[5];
  one("row").dispatchEvent(new Event("change"));
  is("m of another row", one("values").rows[1].cells[2].textContent === number(values[5]));
  // The line at which the warps wait is a barrier of the kernel; all that move data or show numbers are somewhere.
  const texts_of = s => [...document.querySelectorAll(".code .here span")].map(x => x.textContent);
  const wait_at = rec.steps.findIndex(s => /^attention.cuh:\d+$/.test(s.a));
  go(wait_at + 1);
  const number_of = rec.steps[wait_at].a.split(":")[1];
  is("the barrier's line", texts_of().some(x => x.includes("__syncthreads()")) &&
    [...document.querySelectorAll(".code .here i")].some(x => x.textContent === number_of));
  is("each access has a line", rec.steps.every(s => !(s.p || s.a) || linesOfStep(s).length));
  function linesOfStep(s) { return s.s === undefined ? [] : rec.sets[s.s]; }
  is("every line has its text", rec.lines.every(l => l[2] !== undefined) && rec.lines.some(l => /\w/.test(l[2])));
  go(rec.steps.findIndex(s => (s.p || []).some(p => p[0] === WRITE)) + 1);
  is("O is stored where the kernel says so", texts_of().some(x => x.includes("o_row[")));
  fits();
END
# "… HBM 1,056,768 bytes read, 8,192 written …"
printed=$(sed -n 's/.*HBM \([0-9,]*\) bytes read, \([0-9,]*\) written.*/\1 \2/p' out)
if [ -z "$printed" ] || ! grep -q "bytes at the end $printed\$" said; then
  failed=1
  echo "./flash run printed $printed, the page shows:"
  cat said
fi

cat >race.cu <<'END'
__global__ void sums(const float* in, float* out, int rounds) {
  __shared__ float tile[64];
  float sum = 0;
  for (int t = 0; t < rounds; ++t) {
    tile[threadIdx.x] = in[t * 64 + threadIdx.x];
    __syncthreads();
    for (int j = threadIdx.x % 32 < 21 ? 32 : 0; j < 32; ++j) sum += tile[(threadIdx.x + j) % 64];
    // The next round overwrites what others may still read: lane 22 what 21 has read. The last block alone has one.
    rounds += blockIdx.x + blockIdx.y + blockIdx.z == 4 && t < 3;
  }
  out[((blockIdx.z * 3 + blockIdx.y) * 2 + blockIdx.x) * 64 + threadIdx.x] = sum;
}
int main() {
  float *in, *out;
  cudaMalloc(&in, 256 * sizeof(float));
  cudaMalloc(&out, 12 * 64 * sizeof(float));
  cudaMemset(in, 0, 256 * sizeof(float));
  sums<<<dim3(2, 3, 2), 64>>>(in, out, 1);
}
END
check race.cu race 1
drive race 390 <<'END'
  one("speed").value = "80";
  press(" ");
  await wait(5000);
  is("plays up to the finding", at === rec.steps.length && !timer && !one("alarm").hidden);
  is("its text", /^race: .* of shared tile\+\d+ \(4 bytes\)\n/.test(one("alarm").querySelector("pre").textContent));
  is("both lines", (one("alarm").textContent.match(/race.cu:[57] /g) || []).length === 2);
  is("its remedy", one("alarm").textContent.includes("remedy: put __sync"));
  is("the place", document.querySelectorAll(".chip .bad").length === 1 && !document.querySelector(".hbm .bad"));
  const guilty = [...document.querySelectorAll(".warps .bad")].map(x => x.textContent);
  is("the warp and its lanes: " + guilty, guilty.length === 1 && guilty[0].startsWith("warp 0 lane 22, 21"));
  is("says nothing of the ledger", one("verdict").textContent === "");
  press("ArrowLeft");
  is("not before", one("alarm").hidden && !document.querySelector(".chip .bad"));
  const blocks = [], heads = [];
  for (let step = 1; step <= rec.steps.length; ++step) {
    go(step);
    const block = one("chiphead").textContent.match(/block (.*)$/)[1];
    if (block !== blocks.at(-1)) blocks.push(block);
    const head = one("warphead").textContent;
    if (blocks.length === 1 && head !== heads.at(-1)) heads.push(head);
  }
  is("x of a grid is the fastest, z the slowest: " + blocks.join(" "), blocks.join(" ") ===
    "(0,0,0) (1,0,0) (0,1,0) (1,1,0) (0,2,0) (1,2,0) (0,0,1) (1,0,1) (0,1,1) (1,1,1) (0,2,1) (1,2,1)");
  is("warps come to the barrier one by one, and are released together: " + heads.join("; "),
    heads.join("; ") === "1 of 2 warps wait at the barrier; 2 of 2 warps wait at the barrier; Warps");
  fits();
END

# Clusters of two blocks: each makes a tile and sends it to the other one, which adds it to its own.
cat >pair.cu <<'END'
#include "gpu/hopper.cuh"
using namespace flash;
__global__ void __cluster_dims__(2) pair(const float* in, float* out) {
  __shared__ alignas(16) float dS[64], partner_dS[64];
  __shared__ std::uint64_t full, empty;
  const int t = threadIdx.x, i = blockIdx.x * 64 + t;
  const unsigned partner = cluster_ctarank() ^ 1;
  if (t == 0) {
    mbarrier_init(&full, 1);
    mbarrier_init(&empty, 64);
    fence_mbarrier_init();
  }
  barrier_cluster_arrive();
  barrier_cluster_wait();
  float sum = 0;
  for (int tile = 0; tile < 3; ++tile) {
    if (tile > 0) mbarrier_wait_cluster(&empty, (tile - 1) & 1);
    dS[t] = in[i] + tile;
    fence_proxy_async();
    __syncthreads();
    if (t == 0) {
      mbarrier_arrive_expect_tx(&full, sizeof partner_dS);
      cp_async_bulk_cluster(mapa(partner_dS, partner), dS, sizeof dS, mapa(&full, partner));
    }
    mbarrier_wait(&full, tile & 1);
    sum += dS[t] + partner_dS[t];
    mbarrier_arrive_cluster(&empty, partner);
  }
#ifdef RACE
  if (partner == 1) mapa(dS, partner)[t] = 0;
#endif
  out[i] = sum;
  barrier_cluster_arrive();
  barrier_cluster_wait();
}
int main() {
  float *in, *out;
  cudaMalloc(&in, 256 * sizeof(float));
  cudaMalloc(&out, 256 * sizeof(float));
  cudaMemset(in, 0, 256 * sizeof(float));
  pair<<<4, 64>>>(in, out);
}
END
check pair.cu pair 0
drive pair 1200 <<'END'
  const boxes = id => [...one(id).querySelectorAll(":scope > div:not(.all)")];
  const until = (what, f) => {
    do go(at + 1); while (at < rec.steps.length && !f(rec.steps[at - 1]));
    is(what, f(rec.steps[at - 1]));
  };
  const said = (id, text) => is(`${id}: ${one(id).textContent}`, one(id).textContent.includes(text));
  const holds = (rank, name, text) => {
    const rows = [...boxes("chip")[rank].querySelectorAll(".array")];
    const row = rows.find(x => x.querySelector("b").textContent === name);
    is(`${name} of rank ${rank}: ${row.textContent}`, row.querySelector("span").textContent === text);
  };
  go(1);
  for (const id of ["chip", "warps", "mbarriers"]) {
    const [left, right] = boxes(id).map(x => x.getBoundingClientRect());
    is(`${id}: the blocks side by side`, boxes(id).length === 2 && left.right <= right.left && left.top === right.top);
  }
  said("mbarriers", "barrier.cluster: 64 of 128 arrivals");
  until("both blocks are at the cluster's barrier", s => s.r && s.m);
  said("mbarriers", "barrier.cluster: phase 1 complete");
  said("say", t.releasedall);
  is("they go on", !one("warps").querySelector(".waits"));
  until("a tile is sent", s => (s.p || []).some(p => p[0] === COPY && p.rank === 0));
  said("say", "block (1,0,0), warp 0: expects 256 bytes at full; " +
    "lets TMA copy dS into partner_dS of block (0,0,0); waits at full");
  holds(0, "partner_dS", "holds dS of block (1,0,0) (in flight)");
  holds(1, "dS", "holds in elements 64–127 (being sent)");
  is("its name", rec.labels[at - 1].kinds[0] === "send" &&
    one("film").querySelector(".here").textContent.includes("(1,0,0) warp 0"));
  until("it is there", s => s.w < 0 && s.h === 0 && (s.p || []).some(p => p[0] === LANDED));
  said("say", "block (0,0,0): TMA has brought dS of block (1,0,0) into partner_dS: full is complete");
  holds(0, "partner_dS", "holds dS of block (1,0,0)");
  holds(1, "dS", "holds in elements 64–127");
  until("a warp has read it", s => (s.m || []).some(m => m[3] !== s.h && m[1] === 32));
  said("say", "arrives at empty of block (1,0,0)");
  until("the other one has, too", () => boxes("mbarriers")[1].textContent.includes("empty: phase 1 complete"));
  said("mbarriers", "empty: phase 1 complete, by block (0,0,0) warp 1");
  // Three tiles in each of four blocks: a copy, and an arrival of two warps.
  is("an arrow for each step that reaches the other block",
    one("time").querySelectorAll(".arrow").length === 3 * 4 * 3);
  is("thin where block 0 waits for block 1 at the first barrier",
    [...one("time").querySelectorAll(".waited")].some(x => +x.getAttribute("x") === 1));
  is("a band for each block", one("stepsword").textContent === "rank 0rank 1");
  until("the next cluster", s => s.b === 2);
  is("its blocks",
    boxes("warps").map(x => x.querySelector("h3").textContent).join() === "block (2,0,0),block (3,0,0)");
  fits();
  go(rec.steps.length);
  is("nothing is in flight at the end",
    !document.querySelector(".chip .flight, .chip .busy") && one("verdict").className === "verdict good");
END
drive pair 390 '?lang=zh&step=12' <<'END'
  is("two blocks on a narrow page", one("chip").querySelectorAll(":scope > div").length === 2);
  fits();
  const english = new Set();
  for (; at < rec.steps.length; go(at + 1))
    for (const id of ["say", "film", "warps", "chip", "chiphead", "mbarriers"])
      for (const word of one(id).textContent.match(/[a-z]{3,}/g) || []) english.add(word);
  for (const word of ["warp", "warpgroup", "phase", "pair", "partner", "full", "empty", "out", "barrier", "cluster"])
    english.delete(word);
  is("no English word is left: " + [...english], !english.size);
END
check pair.cu pair_race 1 -DRACE  # block 0 writes where block 1 may still read
drive pair_race 1200 <<'END'
  press("End");
  const bad = [...document.querySelectorAll(".chip .bad")];
  is("the place, in one block", bad.length === 1 && !one("alarm").hidden);
  is("that of the memory", bad[0].closest(".blocks > div").querySelector("h3").textContent === "block (1,0,0)");
  is("the warps of both", [...one("warps").querySelectorAll(":scope > div")].every(x => x.querySelector(".bad")));
END

"$build/bin/flash-recordings" book.html >out
"$build/bin/flash-recordings" --json book.json >out
"$build/bin/flash-recordings" again.html >out
same() { cmp "$1" "$2" || failed=1; }
same book.html again.html
# The array takes the place of the template's brackets.
{
  sed '/^const recordings = /,$d' "$here/../sim/report/player.html"
  printf 'const recordings = %s;\n' "$(cat book.json)"
  sed '1,/^const recordings = /d' "$here/../sim/report/player.html"
} >again.html
same book.html again.html
size=$(gzip -9 -c book.html | wc -c)
[ "$size" -le 400000 ] || { failed=1; echo "the book's recordings: $size bytes gzipped, more than 400000"; }
drive book 390 <<'END'
  let equal = 0;
  recordings.forEach((_, i) => { choose(i); go(Infinity); equal += one("verdict").className === "verdict good"; });
  is(`all ${recordings.length} recordings end with the ledger`, equal === recordings.length && equal > 50);
  const select = name => document.querySelector(`[data-choice="${name}"]`);
  const pick = (name, value) => { select(name).value = value; select(name).dispatchEvent(new Event("change")); };
  for (const phase of [...select("phase").options].map(o => o.value)) {
    pick("phase", phase);
    is("chosen " + phase, one("title").textContent === phase && at === 0);
  }
  pick("phase", "12-async-copies");
  pick("causal", "top-left");
  pick("Br", "16");
  is("mask and block are chosen", rec.note.includes("causal top-left") && rec.note.includes("Br 16 · Bc 16"));
  go(rec.steps.findIndex(s => (s.p || []).some(p => p[0] === 4)) + 1);
  is("a copy is in flight", document.querySelectorAll(".chip .flight").length > 0);
  go(rec.steps.length);
  is("none is at the end", !document.querySelector(".chip .flight") && state.flight === 0);
  pick("phase", "15-warp-specialised");
  const until = (what, f) => {
    do go(at + 1); while (at < rec.steps.length && !f(rec.steps[at - 1]));
    is(what, f(rec.steps[at - 1]));
  };
  const shown = (id, text) => is(`${id}: ${text}`, one(id).textContent.includes(text));
  until("TMA copies", s => (s.p || []).some(p => p[0] === COPY));
  is("a tile is in flight", document.querySelectorAll(".chip .flight").length > 0);
  shown("say", "expects 16,384 bytes at Q_full; lets TMA copy Q rows 0–127 into Q");
  shown("mbarriers", "Q_full: 1 of 1 arrivals, 16,384 bytes to come");
  until("a stage is full", s => s.w < 0 && (s.p || []).some(p => rec.chips[0][p[1]].name === "K"));
  shown("say", "TMA has brought K rows 256–287, zeros into K: K_ring.full[0] is complete");
  shown("mbarriers", "K_ring.full[0]: phase 1 complete");
  until("a product", s => (s.p || []).some(p => p[0] === PRODUCT));
  shown("say", "begins 4 × wgmma m64n128k16, out of Q, K");
  shown("warps", "warpgroup 0 · multiplies · works on rows 0–63 of Q · wgmma under way");
  shown("warps", "warpgroup 2 · warp 8 loads Q, K, V");
  until("its end", s => (s.p || []).some(p => p[0] === MULTIPLIED));
  is("not under way any more", !one("warps").textContent.includes("under way"));
  shown("say", "shows its new m, α; arrives at K_ring.empty[0]");
  shown("mbarriers", "K_ring.empty[0]: 1 of 8 arrivals");
  const passed = name => s => (s.g || []).some(([m]) => rec.launches[0].mbarriers[m][0] === name);
  until("a stage is released and filled again", passed("K_ring.empty[0]"));
  shown("mbarriers", "K_ring.empty[0]: phase 1 complete");
  is("no mbarrier among the tiles", !/full|ring/.test(one("chip").textContent));
  pick("phase", "17-persistent");
  const q = () => [...one("warps").querySelectorAll("p")][0].textContent;
  until("the first Q tile", () => q().includes("(b 0, h 0) rows 0–63 of Q"));
  until("O leaves", s => (s.p || []).some(p => p[0] === STORE));
  shown("say", "lets TMA store O into O (b 0, h 0) rows 0–63");
  until("the next Q tile", () => q().includes("(b 0, h 1) rows 0–63 of Q"));
  shown("bands", "0 (b 0, h 1)");
  is("in the same block", state.block === 0);
  go(rec.steps.length);
  is("nothing is in flight at the end", !document.querySelector(".chip .flight") && state.flight === 0);
  fits();
  pick("phase", "19-beyond");
  until("the second warpgroup's product", s => s.w === 4 && (s.p || []).some(p => p[0] === PRODUCT));
  shown("warps", "warpgroup 1 · multiplies · works on (b 0, h 0) rows 64–127 of Q");
  pick("phase", "30-ring");
  pick("layout", "contiguous");
  const boxes = () => [...one("chip").querySelectorAll(":scope > div")];
  const has = (rank, name) => [...boxes()[rank].querySelectorAll(".array")]
    .find(x => x.querySelector("b").textContent === name).querySelector("span").textContent;
  const lies = (rank, name, text) => is(`${name} of rank ${rank}: ${has(rank, name)}`, has(rank, name) === text);
  is("ranks side by side",
    boxes().map(x => x.querySelector("h3").textContent).join() === "rank 0,rank 1,rank 2,rank 3");
  until("rank 1 has its rows", s => s.b === 1);
  shown("say", "rank 1: reads Q rows 16–31, K rows 16–31, V rows 16–31");
  until("keys are sent", s => s.b === 0 && (s.p || []).some(p => p[0] === COPY));
  shown("say", "rank 0: begins to copy K into K[0] of rank 1, V into V[0] of rank 1");
  shown("film", "sendkeys of rank 0rank 0");
  lies(1, "K[0]", "holds K rows 0–15 (in flight)");
  lies(0, "K", "holds K rows 0–15 (being sent)");
  until("a call", s => s.b === 1 && (s.p || []).some(p => p[0] === CHIP_READ));
  shown("say", "rank 1: Q rows 16–31 see K rows 16–31 of rank 1");
  lies(1, "sum.O", "holds results (Q rows 16–31, K rows 16–31, V rows 16–31)");
  until("a rank waits", s => s.b === 0 && s.a);
  shown("say", "merges O, m and l of the keys of rank 0; shows its new m, l; waits for its exchange");
  until("they are there", s => s.b === 1 && (s.p || []).some(p => p[0] === LANDED));
  lies(1, "K[0]", "holds K rows 0–15");
  until("rank 0 passes on what it does not use", s => s.b === 0 && (s.p || []).some(p => p[0] === COPY));
  shown("say", "rank 0: begins to copy K[0] into K[1] of rank 1, V[0] into V[1] of rank 1; waits for its exchange");
  lies(1, "K[1]", "holds K rows 47–61 (in flight)");
  until("rank 3 calls with them", s => s.b === 3 && (s.p || []).some(p => p[0] === CHIP_READ));
  shown("say", "rank 3: Q rows 47–61 see K rows 32–46 of rank 2");
  until("a row's end", s => s.b === 3 && s.v && !s.a);
  one("row").value = 61;
  one("row").dispatchEvent(new Event("change"));
  is("row 61 has seen the keys of four ranks",
    [...one("values").rows].slice(1).map(r => r.cells[1].textContent).join() === "rank 3,rank 2,rank 1,rank 0");
  is("an arrow for each message", one("time").querySelectorAll(".arrow").length === 3 * 4);
  is("no warps", one("warps").hidden && one("hbmhead").textContent === t.whole);
  const waiting = [0, 1, 2, 3].map(rank => [...one("time").querySelectorAll(".waited")]
    .filter(x => Math.floor(+x.getAttribute("y") / 36) === rank).reduce((sum, x) => sum + +x.getAttribute("width"), 0));
  is("rank 0 waits longer than rank 3: " + waiting, waiting[0] > waiting[3]);
  go(rec.steps.length);
  is("nothing is in flight, and the messages are those that were counted",
    !document.querySelector(".chip .flight, .chip .busy") && one("verdict").className === "verdict good" &&
    rec.ledger.messages[0] === 3 * 2 * 62 * 32 * 4);
  fits();
  pick("phase", "04-tiled-v2");
  pick("causal", "none");
  pick("N", "64");
  pick("Br", "32");
  const kinds = rec.labels.slice(0, 12).map(l => `${l.kinds} ${l.of}`).join("; ");
  is("what the steps are: " + kinds, kinds === "load Q 0; compute O_i,l_i,m_i; load K 0; product Q 0,K 0; load V 0; " +
    "softmax Q 0,K 0; product V 0; load K 1; product Q 0,K 1; load V 1; softmax Q 0,K 1; product V 1");
  shown("bands", t.ktile);
  const chip = name => [...document.querySelectorAll(".chip .array")]
    .find(x => x.querySelector("b").textContent === name).querySelector("span").textContent;
  const stands = text => is("line: " + text,
    one("line").textContent.includes(text) && document.querySelectorAll(".code .here").length === 1);
  go(1);
  is("nothing calculated yet", ["O_i", "S_ij", "l_i", "m_i"].every(x => chip(x) === t.empty));
  go(2);
  is("O, l and m are calculated, S is not",
    ["O_i", "l_i", "m_i"].every(x => chip(x) === "holds results") && chip("S_ij") === t.empty);
  go(3);
  stands("memory.load(K_j, K, j);");
  go(4);
  is("what S is calculated of", chip("S_ij") === "holds results (Q rows 0–31, K rows 0–15)");
  shown("say", "multiplies Q_i, K_j into S_ij");
  stands("product(memory, S, mat(Q_i), mat(K_j).transpose());");
  go(6);
  one("row").value = 3;
  one("row").dispatchEvent(new Event("change"));
  for (const name of ["m", "l"]) {
    const value = number(rec.steps[5].v.find(v => v[0] === name)[2][3]);
    is(`${name} on chip`, chip(name + "_i") === `holds results; row 3: ${value}`);
  }
  is("the lines of the loop", [...document.querySelectorAll(".code .here span")]
    .some(x => x.textContent.includes("const float alpha = std::exp(m - m_safe);")));
  const box = [...document.querySelectorAll(".film button")].find(x => x.textContent.startsWith("product"));
  box.click();
  is("a step's name leads to it", rec.labels[at - 1].kinds[0] === "product" &&
    document.querySelector(".film .here").textContent.startsWith("product"));
  scrollTo(0, 700);
  await wait(50);
  const bar = one("bar").getBoundingClientRect();
  is("the buttons stay in view", scrollY > 300 && bar.top >= 0 && bar.bottom < 300);
  scrollTo(0, 0);
  fits();
  go(rec.steps.length);
  is("a CPU phase has no warps", one("warps").hidden && one("verdict").className === "verdict good");
  fits();
END
drive book 1366 '?phase=03-tiled-v1&N=64&Br=32&Bc=16&beside=04-tiled-v2' <<'END'
  const n = views.map(v => v.rec.steps.length), titles = () => views.map(v => v.rec.title).join();
  is("two phases beside each other, on the same problem: " + titles(),
    titles() === "03-tiled-v1,04-tiled-v2" && views[0].rec.note === views[1].rec.note);
  const [left, right] = [...document.querySelectorAll("article")].map(x => x.getBoundingClientRect());
  is("side by side", left.right <= right.left && left.top === right.top);
  press("ArrowRight");
  press("ArrowRight");
  is("by step", views.every(v => v.at === 2));
  one("by").value = "share";
  one("by").dispatchEvent(new Event("change"));
  go(Math.round(n[0] / 2));
  is("by share", views[0].at === at && Math.abs(views[1].at / n[1] - .5) < 1 / n[1] + 1 / n[0]);
  press("End");
  is("both end", views.every((v, i) => v.at === n[i] && v.$("verdict").className === "verdict good"));
  const parts = [`r=${views[0].rec.index}`, `beside=${views[1].rec.index}`, "by=share"];
  is("the address tells of both", parts.every(x => location.hash.includes(x)));
  const bytes = views.map(v => v.$("bytes").textContent);
  is("each has its own bytes", bytes[0] !== bytes[1]);
  fits();
  one("beside").value = "";
  one("beside").dispatchEvent(new Event("change"));
  is("alone again", views.length === 1 && document.querySelectorAll("article").length === 1);
END

drive book 390 '?lang=zh&phase=17-persistent&beside=16-overlap' <<'END'
  const missing = [], walk = (a, b, path) => {
    for (const k of new Set([...Object.keys(a), ...Object.keys(b)]))
      if (typeof a[k] !== typeof b[k] || typeof a[k] !== "string" && a[k].length !== b[k].length)
        missing.push(path + k);
      else if (typeof a[k] === "object" && k !== "values") walk(a[k], b[k], path + k + ".");
      else if (typeof a[k] === "string" && a[k] === b[k] && !["HBM", "softmax"].includes(a[k])) missing.push(path + k);
  };
  walk(words.en, words.zh, "");
  is("both languages have all texts: " + missing, !missing.length);
  is("the page is Chinese", document.documentElement.lang === "zh" && document.title === words.zh.title &&
    one("next").title === "前进一步");
  const english = new Set();
  for (let step = 0; step < longest(); step += 7) {
    go(step);
    for (const id of ["say", "film", "warps", "chip", "hbm", "bands", "mbarriers", "byteshead", "rowhead"])
      for (const v of views) {
        const texts = document.createTreeWalker(v.$(id), NodeFilter.SHOW_TEXT);
        while (texts.nextNode())
          for (const word of texts.currentNode.data.match(/[a-z]{3,}/g) || []) english.add(word);
      }
  }
  // Names of the kernel, and words that Chinese texts keep.
  for (const word of ["warp", "warpgroup", "wgmma", "phase", "softmax", "counter", "tile", "ring", "full", "empty",
    "mail", "work", "bar", "sync", "wait", "group", "attention", "cuh"]) english.delete(word);
  is("no English word is left: " + [...english], !english.size);
  fits();
  beside(null);
  for (choose(recordings.findIndex(r => r.title === "30-ring")); at < rec.steps.length; go(at + 1))
    for (const id of ["say", "film", "chip", "chiphead", "hbmhead", "rowhead"])
      for (const word of one(id).textContent.match(/[a-z]{3,}/g) || []) english.add(word);
  for (const word of ["rank", "key", "keyrank", "set", "sum"]) english.delete(word);
  is("none of a ring: " + [...english], !english.size && at > 50);
  fits();
END
[ "$failed" = 0 ] && echo 'player: as it should be'
exit "$failed"
