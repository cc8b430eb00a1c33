# public_programs.py: runs public CUDA programs, unchanged, through ./flash check: which work, which are refused, why.
# It fetches nothing: CLONES holds a clone of each repository, named OWNER+NAME, at the commit below. Programs that are
# too large for a simulator, or that need PyTorch around them, are called by a small main of ours (tests/simt/public),
# which includes their files as they are.
# Run: python3 tests/simt/public_programs.py BUILD CLONES docs/results/public-programs.json [NAME…]
import json
import os
import pathlib
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ROOT / "tests/simt/public"
COMMITS = {
    "NVIDIA/cuda-samples": "c94ff366aed18c797b8a85dfaac7817b0228b420",
    "siboehm/SGEMM_CUDA": "60cba6f9b20a198116c76f18de8047f44df8c8b8",
    "karpathy/llm.c": "f1e2ace651495b74ae22d45d1723443fd00ecd3a",
    "gau-nernst/learn-cuda": "1454f8b71499a68eacdbf44c08e36a7003d8ab99",
}
# Seconds of processor time, of both cores together, so that other programs beside change nothing: for compiling a
# program, and for running it.
LIMIT = 240


class Program:
    """One program and what is right for it: `expected` is clean, finding or refused; `says` a word of the answer."""

    def __init__(self, repository, folder, files, arguments="", expected="clean", says="", options="", name=None,
                 programs=1):
        self.repository, self.folder, self.files = repository, folder, files.split()
        self.arguments, self.expected, self.says, self.options = arguments.split(), expected, says, options.split()
        self.programs = programs  # how many it stands for: kernels of a file that have one verdict
        self.name = name or folder.split("/")[-1]

    def command(self, clones, settings):
        clone = clones / self.repository.replace("/", "+")
        files = [word if not word.startswith("ours:") else str(OURS / word[5:]) for word in self.files]
        options = [word.replace("CLONE", str(clone)) for word in self.options]
        check = ["sh", str(ROOT / "sim/cuda/check.sh"), str(settings), *options, *files, "--", *self.arguments]
        return check, clone / self.folder


def sample(folder, files, *rest, **more):
    options = "-ICLONE/Common " + more.pop("options", "")
    return Program("NVIDIA/cuda-samples", "Samples/" + folder, files, *rest, options=options, **more)


def llmc(file, arguments, name, **more):
    return Program("karpathy/llm.c", "dev/cuda", f"ours:llmc_{file}.cu", arguments, name=name,
                   options="-I. -Xcompiler -fopenmp", **more)


def learn(folder, files, **more):
    return Program("gau-nernst/learn-cuda", folder, files, **more)


# --sample 2 where the size is fixed and large: two blocks of each grid are checked, the others run fast.
LARGE = "--sample 2"
TORCH = {"expected": "refused", "says": "PyTorch is not simulated"}
PROGRAMS = [
    sample("0_Introduction/asyncAPI", "asyncAPI.cu"),
    sample("0_Introduction/clock", "clock.cu"),
    sample("0_Introduction/fp16ScalarProduct", "fp16ScalarProduct.cu"),
    sample("0_Introduction/matrixMul", "matrixMul.cu", "-wA=64 -hA=64 -wB=64 -hB=64", says="Result = PASS"),
    sample("0_Introduction/mergeSort", "mergeSort.cu bitonic.cu main.cpp mergeSort_host.cpp mergeSort_validate.cpp",
           options=LARGE, says="Shutting down"),
    sample("0_Introduction/simpleAtomicIntrinsics", "simpleAtomicIntrinsics.cu simpleAtomicIntrinsics_cpu.cpp",
           says="returned OK"),
    sample("0_Introduction/simpleAWBarrier", "simpleAWBarrier.cu", says="Result = PASSED"),
    sample("0_Introduction/simpleCooperativeGroups", "simpleCooperativeGroups.cu"),
    sample("0_Introduction/simpleMultiCopy", "simpleMultiCopy.cu", options=LARGE),
    sample("0_Introduction/simpleOccupancy", "simpleOccupancy.cu", says="Test PASSED"),
    sample("0_Introduction/simplePrintf", "simplePrintf.cu"),
    sample("0_Introduction/simpleStreams", "simpleStreams.cu", options=LARGE),
    sample("0_Introduction/simpleTemplates", "simpleTemplates.cu"),
    sample("0_Introduction/simpleVoteIntrinsics", "simpleVoteIntrinsics.cu", says="OK"),
    sample("0_Introduction/vectorAdd", "vectorAdd.cu", says="Test PASSED"),
    sample("2_Concepts_and_Techniques/histogram", "histogram256.cu histogram64.cu histogram_gold.cpp main.cpp",
           options=LARGE),
    sample("2_Concepts_and_Techniques/reduction", "reduction_kernel.cu reduction.cpp", "--n=4096 --kernel=9",
           says="Test passed"),
    sample("2_Concepts_and_Techniques/scan", "scan.cu main.cpp scan_gold.cpp", options=LARGE),
    # Lanes read sums of warps that the block does not have; nobody uses what they read.
    sample("2_Concepts_and_Techniques/shfl_scan", "shfl_scan.cu", options=LARGE, expected="finding",
           says="shfl_integral_image.cuh:132"),
    sample("2_Concepts_and_Techniques/sortingNetworks",
           "bitonicSort.cu oddEvenMergeSort.cu main.cpp sortingNetworks_validate.cpp", options=LARGE),
    sample("2_Concepts_and_Techniques/threadFenceReduction", "threadFenceReduction.cu", "--n=4096"),
    sample("3_CUDA_Features/binaryPartitionCG", "binaryPartitionCG.cu", options=LARGE),
    sample("3_CUDA_Features/globalToShmemAsyncCopy", "globalToShmemAsyncCopy.cu",
           "-wA=64 -hA=64 -wB=64 -hB=64 -kernel=0", says="Result = PASS"),
    sample("6_Performance/transpose", "transpose.cu", "-dimX=64 -dimY=64", says="Test passed"),
    Program("siboehm/SGEMM_CUDA", "src", "ours:sgemm.cu runner.cu", "1 2 3 4 5 6 7 8 9 10", options="-I.",
            name="kernels 1 to 10", programs=10),
    llmc("attention", "1 2 3", "attention 1 to 3", programs=3),
    # Their softmax leaves what is behind the diagonal unwritten, and the second product reads it.
    llmc("attention", "4", "attention 4", expected="finding", says="uninitialised: read of d_att"),
    llmc("attention", "5 6", "attention 5, 6", programs=2, expected="finding", says="uninitialised: read of d_att"),
    llmc("softmax", "1 2 3 5 6 8", "softmax 1 to 3, 5, 6, 8", programs=6),
    # The next row's sums overwrite the maximum that another warp has not read yet.
    llmc("softmax", "4", "softmax 4", expected="finding", says="softmax_forward.cu:288"),
    # Lanes beyond the row read its last element while another one divides it; nobody uses what they read.
    llmc("softmax", "7", "softmax 7", expected="finding", says="softmax_forward.cu:500"),
    llmc("layernorm", "1 2 3 4 6", "layernorm 1 to 4, 6", programs=5),
    # All lanes of a warp store its sum to one place.
    llmc("layernorm", "5", "layernorm 5", expected="finding", says="layernorm_forward.cu:308"),
    llmc("matmul", "1 2 4", "matmul 1, 2, 4", programs=3),
    llmc("matmul", "3", "matmul 3", expected="refused", says="cublasLtMatmulDescCreate of cuBLAS is not simulated"),
    learn("02a_matmul_simt", "ours:learn_matmul.cu matmul.cu", programs=7),
    learn("02b_matmul_sm80", "ours:learn_matmul_sm80.cu matmul_v1.cu matmul_v5.cu matmul_v6.cu",
          arguments="v1 v2 v3 v4 v5 v6 v6b", programs=7),
    learn("02c_matmul_sm120", "ours:learn_matmul_sm120.cu matmul_v0.cu matmul_v1.cu matmul_v2.cu matmul_v3.cu",
          arguments="0 1 2", name="02c_matmul_sm120, v0 to v2", programs=6),
    # v3: the one lane that elect_sync chose shuffles with a mask of 32.
    learn("02c_matmul_sm120", "ours:learn_matmul_sm120.cu matmul_v0.cu matmul_v1.cu matmul_v2.cu matmul_v3.cu",
          arguments="3", name="02c_matmul_sm120, v3", programs=2, expected="finding", says="common.h:129"),
    learn("07_attention", "ours:learn_attention.cu " + " ".join(f"attention_v{i}.cu" for i in range(1, 6)),
          arguments="1 2 3 4 5", programs=5),
    learn("02e_matmul_sm100", "matmul_v1.cu", name="02e_matmul_sm100/matmul_v1.cu", **TORCH),
    # v4a: the last warp adds in lockstep, without __syncwarp and without volatile.
    learn("03_sum", "ours:learn_sum.cu sum.cu", programs=8, expected="finding", says="sum.cu:161"),
    # softmax_naive: the second reduction overwrites the maximum that others have not read yet.
    learn("04_softmax", "ours:learn_softmax.cu softmax.cu", programs=4, expected="finding", says="softmax.cu:73"),
    learn("05_fp6", "fp6.cu", **TORCH),
    learn("06_box_blur", "box_blur.cu", **TORCH),
]


def run(program, clones, settings):
    """What became of it: status, seconds, and the line that says why."""
    command, folder = program.command(clones, settings)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as work:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False,
                             stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin", "TMPDIR": work},
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    status = "time" if f"signal {signal.SIGXCPU.value}" in ran.stderr else ran.returncode
    return status, round(seconds, 1), ran.stdout, ran.stderr


def judged(program, status, out, err):
    """Is the verdict right, and the line that gives the cause."""
    says = [line.removeprefix("flash check: ") for line in err.splitlines()]
    refusal = next((line for line in says if ": error: " in line or "is not simulated" in line or
                    "blocks of a cooperative launch is" in line), "")
    # A finding's first line stands above those that name a block.
    finding = next((line for line, below in zip(says, says[1:])
                    if re.match(r"[a-z ]+: ", line) and re.match(r"  .* block \(", below)), "")
    kind = "refused" if refusal else {0: "clean", 1: "finding"}.get(status, "failed")
    cause = {"clean": "", "finding": finding, "refused": refusal}.get(kind, says[-1] if says else "")
    if status == "time":
        kind, cause = "time", f"no end within {LIMIT} s of processor time"
    right = kind == program.expected and program.says in out + err
    return kind, right, re.sub(r"^\S*/", "", cause)[:160]


def environment():
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True)
    return {"cpu": platform.processor() or platform.machine(), "note": f"{os.cpu_count()} cores, other programs beside",
            "commit": commit.stdout.strip(), "date": time.strftime("%Y-%m-%d")}


def main(build, clones, result, *names):
    settings = pathlib.Path(build).resolve() / "check.settings"
    path = pathlib.Path(result)
    rows = {}  # of an earlier run those that are not run now stay
    if names and path.exists():
        rows = {(row["repository"], row["program"]): row for row in json.loads(path.read_text())["rows"]}
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        status, seconds, out, err = run(program, pathlib.Path(clones).resolve(), settings)
        kind, right, cause = judged(program, status, out, err)
        rows[program.repository, program.name] = {
            "repository": program.repository, "commit": COMMITS[program.repository][:8], "program": program.name,
            "programs": program.programs, "files": " ".join([program.folder, *program.files]),
            "options": " ".join(word for word in program.options if not word.startswith("-I")),
            "arguments": " ".join(program.arguments), "expected": program.expected, "says": program.says,
            "verdict": kind, "right": right, "cause": cause, "seconds": seconds}
        print(program.name, kind, "right" if right else "NOT AS EXPECTED", seconds, cause, flush=True)
        in_order = [rows[key] for key in ((p.repository, p.name) for p in PROGRAMS) if key in rows]
        path.write_text(json.dumps({"environment": environment(), "rows": in_order}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
