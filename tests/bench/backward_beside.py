# backward_beside.py: phases' backward passes on tensor cores and PyTorch's (FlashAttention-2, cuDNN) in one process, on
# the same tensors, in turn; verified against fp64 before they are timed. nvcc compiles the phases' kernels here.
# With --tries the variants in backward_variants run beside the first phase: patches that say what they change.
# python3 tests/bench/backward_beside.py 20 21 22 23 24 --out h200-backward-beside.json
# python3 tests/bench/backward_beside.py 20 --tries h200-backward-tries.json
import argparse
import concurrent.futures
import contextlib
import ctypes
import itertools
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import typing

from passes import name_of
from results import gpu_environment, write_results
from torch_side import Turns, backend, exact_gradients, relative

ROOT = pathlib.Path(__file__).resolve().parents[2]
# D, Br, Bc of what is measured; the first of each D is the phase's own choice.
HOPPER = [(64, 128, 128), (128, 64, 128)]
SIZES = {20: [(64, 128, 128), (64, 64, 128), (64, 32, 64), (128, 64, 128), (128, 32, 64), (256, 64, 64)],
         21: HOPPER, 22: HOPPER, 23: HOPPER, 24: [*HOPPER, (256, 64, 128)]}
# Kernels on the way to a phase: its number, header, what is launched, sizes.
STEPS = [(21, "steps/1-scalar.cuh", "scalar::Gradients", [(128, 64, 128)])]
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
TOKENS, COLUMNS = 16384, 2048  # B * N, H * D
ROUNDS = 9

SOURCE = """
#include "phases/{folder}/{header}"
namespace flash {{ [[noreturn]] void refuse_size() {{ throw Error("the sizes are not compiled here"); }} }}
int flash::FLASH_MACHINE::multiprocessors() {{
  int device = 0, count = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "number of multiprocessors");
  return count;
}}
extern "C" int flash_backward(int D, int Br, int Bc, int causal, int atomic, int B, int H, long long S, void** t,
                              void** workspace, void* stream) {{
  using namespace flash;
  using namespace flash::phase{number};
  using T = __nv_bfloat16;
  const long long row = D, head = S * D, batch = H * S * D;
  const auto heads = [&]<class U>(int i) {{ return Heads<U>{{static_cast<U*>(t[i]), batch, head, row, S, D}}; }};
  DeviceProblem<T> p{{}};
  p.Q = heads.operator()<const T>(0), p.K = heads.operator()<const T>(1), p.V = heads.operator()<const T>(2);
  p.O = heads.operator()<T>(3), p.dO = heads.operator()<const T>(4);
  p.dQ = heads.operator()<T>(5), p.dK = heads.operator()<T>(6), p.dV = heads.operator()<T>(7);
  p.LSE = static_cast<float*>(t[8]);
  p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(D))), p.scale_log2 = scale_log2(p.scale);
  p.band = (causal ? Mask::top_left() : Mask::none()).band(S, S);
  p.B = B, p.H = p.Hk = H, p.mode = atomic ? BackwardMode::Atomic : BackwardMode::Deterministic;
  p.stream = static_cast<cudaStream_t>(stream);
  for (int i = 0; i < {pieces}; ++i) p.workspace[i] = workspace[i];
  try {{
    if (false) {{}}
{sizes}
    else refuse_size();
  }} catch (const Error& error) {{
    std::fprintf(stderr, "%s\\n", error.what());
    return 1;
  }}
  return cudaGetLastError();
}}
"""
PIECES = 8  # of workspace, at most
SIZE = "    else if (D == {0} && Br == {1} && Bc == {2}) {3}::launch<T, {0}, {1}, {2}>(p);"


class Kernel(typing.NamedTuple):
    number: int  # of the phase
    sizes: list
    header: str = "attention.cuh"
    launched: str = "Gradients"
    patch: pathlib.Path | None = None


def build(kernel, folder):
    """The phase's kernels as a library; with a patch, of a copy of the sources. One that is there already is taken."""
    if (folder / "libbackward.so").exists():
        return ctypes.CDLL(str(folder / "libbackward.so"))
    folder.mkdir(parents=True, exist_ok=True)
    include = ROOT
    if kernel.patch:
        include = folder / "sources"
        for part in ("phases", "gpu", "sim"):
            shutil.copytree(ROOT / part, include / part)
        subprocess.run(["patch", "-s", "-p1", "-i", str(kernel.patch)], cwd=include, check=True)
    source, library = folder / "backward.cu", folder / "libbackward.so"
    sizes = "\n".join(SIZE.format(*size, kernel.launched) for size in kernel.sizes)
    source.write_text("#include <cstdio>\n" + SOURCE.format(
        folder=name_of(kernel.number), header=kernel.header, number=kernel.number, sizes=sizes, pieces=PIECES))
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    subprocess.run([nvcc, "-std=c++20", "-O3", "-DNDEBUG", "-gencode=arch=compute_90a,code=sm_90a", "-fmad=false",
                    "--expt-relaxed-constexpr", f"-I{include}", "-shared", "-Xcompiler", "-fPIC", "-o", str(library),
                    str(source)], check=True)
    return ctypes.CDLL(str(library))


def main(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phases", type=int, nargs="+", help="their numbers, 20 and more")
    parser.add_argument("--out", help="a file for the figures, JSON")
    parser.add_argument("--tries", help="another one, for those of the variants")
    parser.add_argument("--build-only", action="store_true", help="compile the kernels and end: needs no GPU")
    parser.add_argument("--libraries", type=pathlib.Path, help="a folder that keeps the compiled kernels")
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    options = parser.parse_args(words)
    patches = sorted((ROOT / "tests/bench/backward_variants").glob("*.patch")) if options.tries else []
    first = options.phases[0]
    wanted = {name_of(number): Kernel(number, SIZES[number]) for number in options.phases}
    wanted |= {f"{name_of(number)}/{pathlib.Path(header).stem}": Kernel(number, sizes, header, launched)
               for number, header, launched, sizes in STEPS if number in options.phases}
    wanted |= {f"{first}-{patch.stem}": Kernel(first, SIZES[first], patch=patch) for patch in patches}
    with contextlib.ExitStack() as stack:
        folder = options.libraries or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with concurrent.futures.ThreadPoolExecutor() as pool:  # nvcc takes a minute for each
            built = pool.map(lambda name: build(wanted[name], folder.absolute() / name), wanted)
            libraries = dict(zip(wanted, built))
        if options.build_only:
            print("built:", len(libraries))
            return
        rows = measure({name: (wanted[name], library) for name, library in libraries.items()}, options)
    said = {patch.stem: patch.read_text() for patch in patches}
    if options.out:
        write_results(options.out, gpu_environment(), [row for row in rows if "base" not in row])
    if options.tries:
        for row in (tries := [row for row in rows if "base" in row]):
            text = said.get(row.pop("try"), "\n")
            predicted = re.search(r"^Predicted: (.*)$", text, re.M)
            row |= {"what": text.split("\n")[0], "predicted": float(predicted[1]) if predicted else None}
        write_results(options.tries, gpu_environment(), tries)


def measure(libraries, options):
    """Rows of all that runs; libraries: by the name of phase, step or variant, a Kernel and its library."""
    import torch
    from torch.nn.attention import sdpa_kernel
    for _, library in libraries.values():
        library.flash_backward.argtypes = [ctypes.c_int] * 7 + [ctypes.c_longlong] + [ctypes.c_void_p] * 3
    base = name_of(options.phases[0])
    head_dims = sorted({size[0] for kernel, _ in libraries.values() for size in kernel.sizes})
    torch.manual_seed(0)
    random.seed(0)

    def tensors(B, H, N, D, causal):
        q, k, v, dout = (torch.randn(B, H, N, D, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        o, lse = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
        return q, k, v, o, dout, lse

    workspace = []  # all kernels', one after the other

    def ours(library, given, size, atomic, causal):
        """A function that fills dq, dk, dv, and these."""
        q, k, v, o, dout, lse = given
        B, H, N, D = q.shape
        # Outputs and workspace are poison before the first call.
        dq, dk, dv = (torch.full_like(q, torch.nan) for _ in range(3))
        o = o.contiguous()
        most = B * H * ((N + 127) // 128 * 128) * D  # numbers of any piece of workspace: the sum of dQ has so many
        if not workspace or workspace[0].numel() < most:
            workspace[:] = [torch.empty(most, device="cuda") for _ in range(PIECES)]
        for piece in workspace:
            piece.fill_(torch.nan)
        pointers = (ctypes.c_void_p * 9)(*(t.data_ptr() for t in (q, k, v, o, dout, dq, dk, dv, lse)))
        spaces = (ctypes.c_void_p * PIECES)(*(t.data_ptr() for t in workspace))

        def run():
            status = library.flash_backward(*size, causal, atomic, B, H, N, pointers, spaces,
                                            torch.cuda.current_stream().cuda_stream)
            if status:
                sys.exit(f"the launch failed: {status}")
        run.keep = (given, o, pointers, spaces)
        return run, (dq, dk, dv)

    def torchs(given, which, causal):
        q, k, v = (t.detach().requires_grad_() for t in given[:3])
        with sdpa_kernel(which):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return lambda: torch.autograd.grad(out, (q, k, v), given[4], retain_graph=True)

    # Right, before anything is timed: relative error of dQ, dK, dV against fp64.
    for D in head_dims:
        for N in (77, 512, 1000, 2048):
            for causal in (False, True):
                given = tensors(1, 1, N, D, causal)
                exact = exact_gradients(*given[:3], given[4], causal)[1:]
                for name, (kernel, library) in libraries.items():
                    for size in (size for size in kernel.sizes if size[0] == D):
                        for atomic in (1, 0):
                            run, got = ours(library, given, size, atomic, causal)
                            run()
                            errors = [relative(g, e) for g, e in zip(got, exact)]
                            if not all(e <= 3.3e-3 for e in errors):
                                sys.exit(f"wrong: {name} {size}, N {N}, causal {causal}, atomic {atomic}: {errors}")
    print("verified against fp64: dQ, dK, dV within 3.3e-3 for all sizes, variants and both modes")

    turns, rows = Turns(), []
    for D in head_dims:
        for causal in (False, True):
            for N in options.lengths:
                B, H = TOKENS // N, COLUMNS // D
                given = tensors(B, H, N, D, causal)
                runs = {}
                for name, (kernel, library) in libraries.items():
                    sizes = [size for size in kernel.sizes if size[0] == D]
                    if kernel.patch:
                        runs |= {f"{name}-{D}": ours(library, given, size, 1, causal)[0] for size in sizes[:1]}
                        continue
                    for size in sizes:
                        sized = name if size == sizes[0] else f"{name} {size[1]}x{size[2]}"
                        runs[sized] = ours(library, given, size, 1, causal)[0]
                    for size in sizes[:1]:
                        runs[f"{name} deterministic"] = ours(library, given, size, 0, causal)[0]
                for torchs_name in ("torch flash", "torch cudnn"):
                    runs[torchs_name] = torchs(given, backend(torchs_name), causal)
                times = turns.times(runs, ROUNDS)
                flops = 10 * B * H * (N * (N + 1) // 2 if causal else N * N) * D
                shape = {"sweep": "backward", "B": B, "H": H, "N": N, "D": D, "causal": causal, "type": "bfloat16"}
                as_it_is = f"{options.phases[0]}-as-it-is-{D}"
                for name, samples in times.items():
                    ms = statistics.median(samples)
                    row = {**shape, "kernel": name, "samples": len(samples), "median_ms": ms,
                           "tflops": flops / ms * 1e-9}
                    tried = name.removesuffix(f"-{D}")
                    if tried != name and tried in libraries:
                        row |= {"base": as_it_is, "try": tried.split("-", 1)[1], "wrong": False}
                    rows.append(row)
                    if name == base and options.tries:
                        rows.append({**row, "kernel": as_it_is, "base": as_it_is, "try": "", "wrong": False})
                print(f"D {D:3} {'causal' if causal else 'full  '} N {N:5}  " + "  ".join(
                    f"{name} {flops / statistics.median(t) * 1e-9:.0f}" for name, t in times.items()), flush=True)
                del given, runs
    # Each phase's own choice over FA2 and over cuDNN, geometric mean over N 2k, 8k, 16k.
    for number in options.phases:
        for D, causal in itertools.product(head_dims, (False, True)):
            of = {(row["kernel"], row["N"]): row["tflops"] for row in rows
                  if (row["D"], row["causal"]) == (D, causal)}
            lengths = [N for N in (2048, 8192, 16384) if (name_of(number), N) in of]
            for torchs_name in ("torch flash", "torch cudnn") if lengths else ():
                mean = statistics.geometric_mean(of[name_of(number), N] / of[torchs_name, N] for N in lengths)
                print(f"D {D} {'causal' if causal else 'full'}: {name_of(number)} over {torchs_name} {mean:.2f}")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
