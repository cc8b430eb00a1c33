# public_programs.py: runs public CUDA programs, unchanged, through ./flash check: which work, which are refused, why.
# It fetches nothing: CLONES holds a clone of each repository, named OWNER+NAME, at the commit below. Programs that are
# too large for a simulator, or that need PyTorch around them, are called by a small main of ours (tests/simt/public),
# which includes their files as they are.
# Run: python3 tests/simt/public_programs.py BUILD CLONES docs/results/public-programs.json [NAME…]
import json
import os
import pathlib
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
LIMIT = 300  # seconds for a program: compiling it and running it


class Program:
    """One program and what is right for it: `expected` is clean, finding or refused; `says` a word of the answer."""

    def __init__(self, repository, folder, files, arguments="", expected="clean", says="", options="", name=None):
        self.repository, self.folder, self.files = repository, folder, files.split()
        self.arguments, self.expected, self.says, self.options = arguments.split(), expected, says, options.split()
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


PROGRAMS = [
    sample("0_Introduction/asyncAPI", "asyncAPI.cu"),
    sample("0_Introduction/clock", "clock.cu"),
    sample("0_Introduction/matrixMul", "matrixMul.cu", "-wA=64 -hA=64 -wB=64 -hB=64"),
    sample("0_Introduction/mergeSort", "mergeSort.cu bitonic.cu main.cpp mergeSort_host.cpp mergeSort_validate.cpp"),
    sample("0_Introduction/simpleAWBarrier", "simpleAWBarrier.cu"),
    sample("0_Introduction/simpleAtomicIntrinsics", "simpleAtomicIntrinsics.cu simpleAtomicIntrinsics_cpu.cpp"),
    sample("0_Introduction/simpleCooperativeGroups", "simpleCooperativeGroups.cu"),
    sample("0_Introduction/simpleMultiCopy", "simpleMultiCopy.cu"),
    sample("0_Introduction/simpleOccupancy", "simpleOccupancy.cu"),
    sample("0_Introduction/simplePrintf", "simplePrintf.cu"),
    sample("0_Introduction/simpleStreams", "simpleStreams.cu"),
    sample("0_Introduction/simpleTemplates", "simpleTemplates.cu"),
    sample("0_Introduction/simpleVoteIntrinsics", "simpleVoteIntrinsics.cu"),
    sample("0_Introduction/vectorAdd", "vectorAdd.cu"),
    sample("0_Introduction/fp16ScalarProduct", "fp16ScalarProduct.cu"),
    sample("2_Concepts_and_Techniques/histogram", "histogram256.cu histogram64.cu histogram_gold.cpp main.cpp"),
    sample("2_Concepts_and_Techniques/reduction", "reduction_kernel.cu reduction.cpp", "--n=65536"),
    sample("2_Concepts_and_Techniques/scan", "scan.cu main.cpp scan_gold.cpp"),
    sample("2_Concepts_and_Techniques/shfl_scan", "shfl_scan.cu"),
    sample("2_Concepts_and_Techniques/sortingNetworks",
           "bitonicSort.cu oddEvenMergeSort.cu main.cpp sortingNetworks_validate.cpp"),
    sample("2_Concepts_and_Techniques/threadFenceReduction", "threadFenceReduction.cu", "--n=65536"),
    sample("3_CUDA_Features/binaryPartitionCG", "binaryPartitionCG.cu"),
    sample("3_CUDA_Features/cudaTensorCoreGemm", "cudaTensorCoreGemm.cu"),
    sample("6_Performance/transpose", "transpose.cu"),
    Program("siboehm/SGEMM_CUDA", "src", "ours:sgemm.cu runner.cu", "1 2 3 4 5 6 7 8 9 10", options="-I.",
            name="kernels 1 to 10"),
    Program("karpathy/llm.c", "dev/cuda", "ours:llmc_attention.cu", "1 2", options="-I.", name="attention 1, 2"),
    Program("karpathy/llm.c", "dev/cuda", "ours:llmc_attention.cu", "4", options="-I.", name="attention 3 to 6",
            expected="refused", says="cuBLAS is not simulated"),
    Program("karpathy/llm.c", "dev/cuda", "ours:llmc_softmax.cu", "1 2 3 4 5 6 7 8", options="-I.", name="softmax 1 to 8"),
    Program("karpathy/llm.c", "dev/cuda", "ours:llmc_layernorm.cu", "1 2 3 4 5 6", options="-I.", name="layernorm 1 to 6"),
    Program("karpathy/llm.c", "dev/cuda", "ours:llmc_matmul.cu", "1 4", options="-I. -Xcompiler -fopenmp",
            name="matmul 1, 4"),
    Program("karpathy/llm.c", "dev/cuda", "ours:llmc_matmul.cu", "2", options="-I. -Xcompiler -fopenmp",
            name="matmul 2, 3", expected="refused", says="cuBLAS is not simulated"),
    Program("gau-nernst/learn-cuda", "02a_matmul_simt", "ours:learn_matmul.cu matmul.cu"),
    Program("gau-nernst/learn-cuda", "03_sum", "ours:learn_sum.cu sum.cu"),
    Program("gau-nernst/learn-cuda", "04_softmax", "ours:learn_softmax.cu softmax.cu"),
    Program("gau-nernst/learn-cuda", "02b_matmul_sm80", "matmul_v1.cu", expected="refused", says="inline assembly"),
    Program("gau-nernst/learn-cuda", "05_fp6", "fp6.cu", expected="refused", says="PyTorch"),
    Program("gau-nernst/learn-cuda", "06_box_blur", "box_blur.cu", expected="refused", says="PyTorch"),
    Program("gau-nernst/learn-cuda", "07_attention", "attention_v1.cu", expected="refused", says="inline assembly"),
]


def run(program, clones, settings):
    """What became of it: status, seconds, and the line that says why."""
    command, folder = program.command(clones, settings)
    begin = time.time()
    with tempfile.TemporaryDirectory() as work:
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, start_new_session=True,
                              env={"PATH": "/usr/bin:/bin", "TMPDIR": work}) as running:
            try:
                out, err = running.communicate(timeout=LIMIT)
                status = running.returncode
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                out, err = running.communicate()
                status = "time"
    return status, round(time.time() - begin, 1), out, err


def main(build, clones, result, *names):
    settings = pathlib.Path(build).resolve() / "check.settings"
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        status, seconds, out, err = run(program, pathlib.Path(clones).resolve(), settings)
        log = pathlib.Path("/tmp/w-logs") / program.name
        log.parent.mkdir(exist_ok=True)
        log.write_text(out + "\n=====\n" + err)
        last = [line for line in err.splitlines() if line.startswith("flash check:") or "error:" in line][:2]
        print(program.name, status, seconds, last, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
