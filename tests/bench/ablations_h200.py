# ablations_h200.py: what each part of a Hopper kernel is worth: the kernel with one change, beside the kernel as it is.
# A change is a patch in ablations/; its first lines say what it does, for which blocks, what was predicted for them,
# and whether the results are wrong on purpose. Each kernel is verified against fp64 before it is timed; order of the
# round at random, chip warm.
# python3 tests/bench/ablations_h200.py list                     what there is, and whether each patch still applies
# python3 tests/bench/ablations_h200.py build FOLDER [NAME…]     needs nvcc; no GPU
# python3 tests/bench/ablations_h200.py run FOLDER OUT.json      needs a GPU and PyTorch
import concurrent.futures
import ctypes
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

from beside_h200 import Case, Timer, flops
from results import gpu_environment, write_results

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BLOCKS = "128 128 128"  # D, Br, Bc; a patch may name others, phase 19's do
SHAPES = [(N, causal) for causal in (False, True) for N in (512, 2048, 8192)]  # B·N = 16384, H·D = 2048
ROUNDS, WARM, SAMPLES = 9, 2, 6


class Ablation:
    """A patch for one choice of blocks, or (patch None) a phase's kernel as it is."""

    def __init__(self, phase, blocks, patch=None, what="", wrong=False, predicted="- - -"):
        self.phase, self.patch, self.what, self.wrong = phase, patch, what, wrong
        self.predicted = [None if x == "-" else float(x) for x in predicted.split()]
        self.D, self.Br, self.Bc = map(int, blocks.split())
        self.name = patch.stem if patch else f"{phase}-as-it-is-{self.D}-{self.Br}-{self.Bc}"
        if patch and blocks != BLOCKS:
            self.name += f"-{self.D}"

    def base(self):
        return Ablation(self.phase, f"{self.D} {self.Br} {self.Bc}")


def of_patch(patch):
    """What its head says: an ablation for each line of blocks; a prediction is for those that it stands behind."""
    what, *head = patch.read_text().split("\n--- ")[0].splitlines()
    said = [line.split(": ", 1) for line in head if ": " in line]
    if "blocks" not in dict(said):
        said.insert(0, ["blocks", BLOCKS])
    choices = []
    for key, value in said:
        if key == "blocks":
            choices.append({"blocks": value})
        else:
            choices[-1][key] = value
    return [Ablation(int(patch.name[:2]), patch=patch, what=what, wrong="wrong" in head, **choice)
            for choice in choices]


def ablations():
    """Every patch, and before the first of each kernel the kernel itself."""
    listed = {}
    for patch in sorted((HERE / "ablations").glob("*.patch")):
        for change in of_patch(patch):
            listed.setdefault(change.base().name, change.base())
            listed[change.name] = change
    return list(listed.values())


def changed_sources(work, patch):
    """Copies of the files that the patch changes, changed, below the folder `work`."""
    for file in re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE):
        (pathlib.Path(work) / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, pathlib.Path(work) / file)
    subprocess.run(["patch", "-s", "-p1", "--force", "-i", str(patch)], cwd=work, check=True)


def list_all():
    stale = 0
    for ablation in ablations():
        print(f"{ablation.name}: D {ablation.D}, {ablation.Br} x {ablation.Bc}. {ablation.what}")
        with tempfile.TemporaryDirectory() as work:
            try:
                if ablation.patch:
                    changed_sources(work, ablation.patch)
            except subprocess.CalledProcessError:
                stale += 1
                print(f"{ablation.patch}: does not apply; make it again")
    return stale


def build(folder, ablation):
    """folder/NAME.so; returns the compiler's remarks on wgmma (C75…), raises with its words if it refuses."""
    with tempfile.TemporaryDirectory() as work:
        if ablation.patch:
            changed_sources(work, ablation.patch)
        header = next((ROOT / "phases").glob(f"{ablation.phase}-*/attention.cuh")).relative_to(ROOT)
        said = subprocess.run(
            ["nvcc", "-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-fmad=false",
             "--expt-relaxed-constexpr", f"-I{work}", f"-I{ROOT}", f"-DPHASE=phase{ablation.phase}",
             f'-DHEADER="{header}"', f"-DHEAD_DIM={ablation.D}", f"-DBLOCK_Q={ablation.Br}",
             f"-DBLOCK_K={ablation.Bc}", "-shared", "-Xcompiler=-fPIC", str(HERE / "ablation.cu"),
             "-o", str(folder / f"{ablation.name}.so")],
            check=True, capture_output=True, text=True).stderr
    return sorted(set(re.findall(r"\((C75\d\d)\)", said)))


def build_all(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [a for a in ablations() if not names or a.name in names]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for ablation, result in [(a, pool.submit(build, folder, a)) for a in wanted]:
            try:
                if remarks := result.result():
                    print(f"{ablation.name}: ptxas says {', '.join(remarks)}")
            except subprocess.CalledProcessError as e:
                failed += 1
                print(f"{ablation.name}: {(e.stderr or 'the patch does not apply').strip().splitlines()[0]}")
    print(f"{len(wanted) - failed} built, {failed} failed")
    return failed


class Bench(Timer):
    """Kernels of one head dimension, on the same tensors."""

    def __init__(self, torch, folder, D, listed):
        super().__init__(torch)
        self.D = D
        self.listed = [a for a in listed if a.D == D]
        self.libraries = {a.name: ctypes.CDLL(str(folder / f"{a.name}.so")) for a in self.listed}
        self.counter = torch.zeros(1, dtype=torch.int32, device="cuda")

    def call(self, name, B, H, N, causal, q, k, v, o, lse):
        pointers = [ctypes.c_void_p(x.data_ptr()) for x in (q, k, v, o, lse, self.counter)]
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        error = self.libraries[name].run(*pointers, B, H, N, int(causal), stream)
        if error:
            raise RuntimeError(f"{name}: CUDA error {error}")

    def verify(self):
        """Names of those that are wrong although they should not be: all of O and LSE at a ragged length, twice."""
        torch, B, H, N, wrong = self.torch, 2, 3, 333, []
        torch.manual_seed(2026)
        q, k, v = (torch.randn(B, H, N, self.D, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        for causal in (False, True):
            s = q.double() @ k.double().transpose(-1, -2) / math.sqrt(self.D)
            if causal:
                s.masked_fill_(torch.ones(N, N, device="cuda", dtype=torch.bool).triu(1), -math.inf)
            want, want_lse = torch.softmax(s, -1) @ v.double(), torch.logsumexp(s, -1)
            floor = float((want.bfloat16().double() - want).norm() / want.norm())
            for a in self.listed:
                for _ in range(2):
                    o, lse = torch.full_like(q, math.nan), torch.full((B, H, N), math.nan, device="cuda")
                    self.call(a.name, B, H, N, causal, q, k, v, o, lse)
                    error = float((o.double() - want).norm() / want.norm())
                    off = float(((lse.double() - want_lse).abs() / want_lse.abs().clamp(min=1)).max())
                    if not a.wrong and not (error <= 1.5 * floor and off <= 1e-5) and a.name not in wrong:
                        print(f"{a.name}: error {error:.2e}, floor {floor:.2e}, LSE off by {off:.1e}; not timed")
                        wrong.append(a.name)
        return wrong

    def back_to_back_row(self, call, work):
        ms, mhz, watts = self.hot(call)
        return {"hot_tflops": work / ms * 1e-9, "hot_mhz": mhz, "hot_w": watts}

    def measure(self, N, causal, wrong):
        torch, B, H = self.torch, 16384 // N, 2048 // self.D
        q, k, v = (torch.randn(B, H, N, self.D, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        o, lse = torch.empty_like(q), torch.empty(B, H, N, device="cuda")
        calls = {a.name: (lambda name=a.name: self.call(name, B, H, N, causal, q, k, v, o, lse))
                 for a in self.listed if a.name not in wrong}
        samples = {name: [] for name in calls}
        for _ in range(ROUNDS):
            names = list(calls)
            random.shuffle(names)
            for name in names:
                for _ in range(WARM):
                    self.cold(calls[name])
                samples[name] += [self.cold(calls[name]) for _ in range(SAMPLES)]
        work = flops(Case("ablations", B, H, N, self.D, causal, "bfloat16"))
        hot = {}
        if N == SHAPES[-1][0] and not causal:  # how hot is the chip when a part is missing?
            hot = {a.name: self.back_to_back_row(calls[a.name], work) for a in self.listed
                   if a.wrong or any(b.wrong and b.base().name == a.name for b in self.listed)}
        rows = []
        for a in self.listed:
            if a.name not in calls:
                continue
            ordered = sorted(samples[a.name])
            median = ordered[len(ordered) // 2]
            predicted = None if causal else a.predicted[SHAPES.index((N, False))]
            rows.append({"kernel": a.name, "base": a.base().name, "what": a.what, "wrong": a.wrong, "D": self.D,
                         "blocks": [a.Br, a.Bc], "N": N, "causal": causal, "median_ms": median,
                         "tflops": work / median * 1e-9,
                         "predicted": predicted} | hot.get(a.name, {}))
        return rows


def run(folder, out):
    import torch

    rows, refused = [], 0
    listed = ablations()
    for D in sorted({a.D for a in listed}):
        bench = Bench(torch, folder, D, listed)
        wrong = bench.verify()
        refused += len(wrong)
        for N, causal in SHAPES:
            here = bench.measure(N, causal, wrong)
            rows += here
            base = {row["kernel"]: row["tflops"] for row in here}
            print(f"D {D} N {N} {'causal' if causal else 'full'}: " + "  ".join(
                f"{row['kernel']} {row['tflops']:.0f} ({row['tflops'] / base[row['base']]:.3f})" for row in here),
                flush=True)
    write_results(out, gpu_environment(), rows)
    return refused


if __name__ == "__main__":
    if sys.argv[1:] == ["list"]:
        if not shutil.which("patch"):
            print("skipped: no patch here (apt-get install patch)")
            sys.exit(77)
        sys.exit(1 if list_all() else 0)
    if len(sys.argv) >= 3 and sys.argv[1] == "build":
        sys.exit(1 if build_all(pathlib.Path(sys.argv[2]), sys.argv[3:]) else 0)
    if len(sys.argv) == 4 and sys.argv[1] == "run":
        sys.exit(1 if run(pathlib.Path(sys.argv[2]), sys.argv[3]) else 0)
    print("usage: ablations_h200.py list | build FOLDER [NAME...] | run FOLDER OUT.json", file=sys.stderr)
    sys.exit(2)
