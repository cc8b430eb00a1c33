#!/bin/sh
# player_test.sh: the player's page in a browser: its buttons and keys, its figures beside those that ./flash run
# prints, a race, the book's recordings. A script that is appended to the page presses and looks.
# sh tests/player_test.sh BUILD
set -eu
build=$1
here=$(cd "$(dirname "$0")" && pwd)
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo 'skipped: no browser here (apt-get install chromium)'
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0

cat >begin <<'END'
<script>
const said = [], is = (what, ok) => said.push((ok ? "ok: " : "no: ") + what);
const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const all = () => ["hbm", "chip", "warps", "bytes", "values", "banks", "say"].map(id => $(id).innerHTML).join();
const wait = ms => new Promise(done => setTimeout(done, ms));
const finish = () => document.body.append(el("pre", {id: "said"}, said.join("\n") + "\ndone\n"));
const fits = () => is("no wider than the window", document.documentElement.scrollWidth <= innerWidth);
(async () => { try {
END

# drive PAGE WIDTH: opens the page with the script on stdin; each "no: …" that it says is a failure, "done" must come.
drive() {
  {
    cat "$1.html"
    cat "$work/begin"
    cat
    echo '} catch (error) { is(error, false); } finish(); })();</script>'
  } >"driven-$1.html"
  "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
    --window-size="$2,900" --virtual-time-budget=60000 --dump-dom "file://$work/driven-$1.html" >dom 2>log || true
  sed -n '/<pre id="said">/,/<\/pre>/p' dom >said
  if grep -q '^\(<pre id="said">\)\{0,1\}no: ' said || ! grep -q '^done' said; then
    failed=1
    echo "$1:"
    cat said
    [ -s said ] || tail -n 5 log
  fi
}

data=$here/../docs/data
"$build/bin/flash-phases" run --phase 07 --machine checked --causal top-left --block-q 16 --block-k 16 \
  --player run.html --q "$data/minilm_q.npy" --k "$data/minilm_k.npy" --v "$data/minilm_v.npy" --o o.npy >out
drive run 1200 <<'END'
  const steps = rec.steps.length;
  is("begins before the first step", at === 0 && $("count").textContent === `step 0 of ${steps}`);
  is("nothing has moved", [...document.querySelectorAll("[data-bytes]")].every(c => c.textContent === "0"));
  $("next").click();
  press("ArrowRight");
  is("button and key go forward", at === 2);
  const two = all();
  press("End");
  is("End", at === steps && $("verdict").className === "good");
  const sums = [...$("bytes").rows[$("bytes").rows.length - 1].cells].slice(1);
  is("bytes at the end " + sums.map(c => c.textContent).join(" "), true);
  $("scrub").value = 3;
  $("scrub").dispatchEvent(new Event("input"));
  is("scrubbed", at === 3);
  $("back").click();
  is("the same going back as going forward", at === 2 && all() === two);
  press("Home");
  is("Home", at === 0 && $("verdict").textContent === "");
  $("speed").value = "80";
  press(" ");
  await wait(500);
  const reached = at;
  is("plays", reached > 5 && reached < steps);
  press(" ");
  await wait(500);
  is("pauses", at === reached);
  $("play").click();
  await wait(1000 * steps / 80 + 2000);
  is("plays to the end and stops", at === steps && !timer);
  // What is shown at some step is what the recording says of it.
  go(rec.steps.findIndex(s => s.a) + 1);
  is("a warp waits at the barrier", /waits at attention.cuh:\d+/.test($("warps").textContent));
  go(rec.steps.findIndex(s => s.q) + 1);
  is("banks", document.querySelectorAll("#banks .one").length > 0);
  go(rec.steps.findIndex(s => s.v) + 1);
  const [name, rows, values] = rec.steps[at - 1].v[0];
  is("m of the chosen row", name === "m" && $("values").rows[1].cells[2].textContent === number(values[0]));
  $("row").value = rows[5];
  $("row").dispatchEvent(new Event("change"));
  is("m of another row", $("values").rows[1].cells[2].textContent === number(values[5]));
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
__global__ void sums(const float* in, float* out) {
  __shared__ float tile[64];
  float sum = 0;
  for (int t = 0; t < 4; ++t) {
    tile[threadIdx.x] = in[t * 64 + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 32; ++j) sum += tile[(threadIdx.x + j) % 64];
    // The next round overwrites what others may still read.
  }
  out[threadIdx.x] = sum;
}
int main() {
  float *in, *out;
  cudaMalloc(&in, 256 * sizeof(float));
  cudaMalloc(&out, 64 * sizeof(float));
  cudaMemset(in, 0, 256 * sizeof(float));
  sums<<<1, 64>>>(in, out);
}
END
status=0
sh "$here/../sim/cuda/check.sh" "$build/check.settings" --player race.html race.cu >out 2>&1 || status=$?
[ "$status" = 1 ] || { failed=1; echo "check: exit $status"; cat out; }
drive race 390 <<'END'
  press(" ");
  await wait(5000);
  is("plays up to the finding", at === rec.steps.length && !timer && !$("alarm").hidden);
  is("its text", /^race: .* of shared tile\+\d+ \(4 bytes\)\n/.test($("alarm").querySelector("pre").textContent));
  is("both lines", ($("alarm").textContent.match(/race.cu:[57] /g) || []).length === 2);
  is("its remedy", $("alarm").textContent.includes("remedy: put __sync"));
  is("the place", document.querySelectorAll("#chip .bad").length === 1 && !document.querySelector("#hbm .bad"));
  is("the warps", document.querySelectorAll("#warps .bad").length >= 1);
  is("says nothing of the ledger", $("verdict").textContent === "");
  press("ArrowLeft");
  is("not before", $("alarm").hidden && !document.querySelector("#chip .bad"));
  fits();
END

"$build/bin/flash-recordings" book.html >out
drive book 390 <<'END'
  let equal = 0;
  recordings.forEach((_, i) => { choose(i, Infinity); equal += $("verdict").className === "good"; });
  is(`all ${recordings.length} recordings end with the ledger`, equal === recordings.length && equal > 50);
  const select = name => document.querySelector(`[data-choice="${name}"]`);
  const pick = (name, value) => { select(name).value = value; select(name).dispatchEvent(new Event("change")); };
  for (const phase of [...select("phase").options].map(o => o.value)) {
    pick("phase", phase);
    is("chosen " + phase, $("title").textContent === phase && at === 0);
  }
  pick("phase", "12-async-copies");
  pick("causal", "top-left");
  pick("Br", "16");
  is("mask and block are chosen", rec.note.includes("causal top-left") && rec.note.includes("Br 16 · Bc 16"));
  go(rec.steps.findIndex(s => (s.p || []).some(p => p[0] === 4)) + 1);
  is("a copy is in flight", document.querySelectorAll("#chip .flight").length > 0);
  go(rec.steps.length);
  is("none is at the end", !document.querySelector("#chip .flight") && state.flight === 0);
  pick("phase", "15-warp-specialised");
  const until = (what, f) => {
    do go(at + 1); while (at < rec.steps.length && !f(rec.steps[at - 1]));
    is(what, f(rec.steps[at - 1]));
  };
  const shown = (id, text) => is(`${id}: ${text}`, $(id).textContent.includes(text));
  until("TMA copies", s => (s.p || []).some(p => p[0] === COPY));
  is("a tile is in flight", document.querySelectorAll("#chip .flight").length > 0);
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
  is("not under way any more", !$("warps").textContent.includes("under way"));
  shown("say", "shows its new m, α; arrives at K_ring.empty[0]");
  shown("mbarriers", "K_ring.empty[0]: 1 of 8 arrivals");
  const passed = name => s => (s.g || []).some(m => rec.launches[0].mbarriers[m][0] === name);
  until("a stage is released and filled again", passed("K_ring.empty[0]"));
  shown("mbarriers", "K_ring.empty[0]: phase 1 complete");
  is("no mbarrier among the tiles", !/full|ring/.test($("chip").textContent));
  pick("phase", "17-persistent");
  const q = () => [...$("warps").querySelectorAll("p")][0].textContent;
  until("the first Q tile", () => q().includes("rows 0–63 of Q"));
  until("O leaves", s => (s.p || []).some(p => p[0] === STORE));
  shown("say", "lets TMA store O into O rows 0–63");
  until("the next Q tile", () => q().includes("rows 256–287 of Q"));
  is("in the same block", state.block === 0);
  go(rec.steps.length);
  is("nothing is in flight at the end", !document.querySelector("#chip .flight") && state.flight === 0);
  fits();
  pick("phase", "19-beyond");
  until("the second warpgroup's product", s => s.w === 4 && (s.p || []).some(p => p[0] === PRODUCT));
  shown("warps", "warpgroup 1 · multiplies · works on rows 64–127 of Q");
  pick("phase", "04-tiled-v2");
  go(rec.steps.length);
  is("a CPU phase has no warps", $("warps").hidden && $("verdict").className === "good");
  fits();
END
[ "$failed" = 0 ] && echo 'player: as it should be'
exit "$failed"
