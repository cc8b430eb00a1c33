# counters_table.py: puts the simulator's counters beside those that Nsight Compute read on an H200, on one page,
# docs/results/counters-h200.md. Each difference has its reason below; one without a reason is an error.
# python3 tests/simt/counters_table.py build/default/bin/counters_checked > docs/results/counters-h200.md
# With --check it compares the page with what it would write (CTest: simt_counters_table).
import csv
import pathlib
import subprocess
import sys

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "results"

# Our column -> Nsight Compute's metrics, to be added up.
METRICS = {
    "global load requests": ["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"],
    "global load sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"],
    "global store requests": ["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"],
    "global store sectors": ["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
    "shared load requests": ["smsp__sass_inst_executed_op_shared_ld.sum"],
    "shared store requests": ["smsp__sass_inst_executed_op_shared_st.sum"],
    "shared wavefronts": [
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ],
    "shared bank conflicts": [
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ],
}
# What multiprocessors ask of the L2 cache, since copies by TMA go past the caches that the metrics above are of.
TMA_METRICS = {
    "load sectors": ["lts__t_sectors_srcunit_tex_op_read.sum"],
    "store sectors": ["lts__t_sectors_srcunit_tex_op_write.sum"],
    "reduction sectors": ["lts__t_sectors_srcunit_tex_op_red.sum", "lts__t_sectors_srcunit_tex_op_atom.sum"],
}
# Why a kernel's numbers differ.
REASONS = {
    "tensor_load": "The hardware also reads the tensor map, which the simulator does not count as traffic of an array.",
    "atomic_add": "To the simulator an atomic is a read and a write of its element; the cache has a kind of its own.",
}


def ours(program, *words):
    """The simulator's counters: one dictionary column -> value per kernel, in order."""
    return list(csv.DictReader(subprocess.run([program, *words], capture_output=True, text=True, check=True)
                               .stdout.splitlines()))


def theirs(name):
    """The hardware's: one dictionary metric -> value per launch, in order; and the note in the file's first line."""
    lines = (RESULTS / name).read_text().splitlines()
    launches = {}
    for row in csv.DictReader(lines[1:]):
        launches.setdefault(int(row["ID"]), {})[row["Metric Name"]] = int(row["Metric Value"].replace(",", ""))
    return [launches[i] for i in sorted(launches)], lines[0].lstrip("# ")


def table(metrics, kernels, launches, differences):
    """The lines of one table and of its metrics; what differs is added to `differences`."""
    if len(kernels) != len(launches):
        sys.exit(f"{len(kernels)} kernels of ours, {len(launches)} launches under ncu")
    lines = ["| kernel | " + " | ".join(metrics) + " |", "|---|" + "---:|" * len(metrics)]
    for kernel, launch in zip(kernels, launches):
        cells = [kernel["case"]]
        for column, names in metrics.items():
            simulator, hardware = int(kernel[column]), sum(launch[name] for name in names)
            cells.append(f"{simulator}" if simulator == hardware else f"**{simulator} / {hardware}**")
            if simulator != hardware:
                differences.append((kernel["case"], column, simulator, hardware))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Nsight Compute's metrics:", ""]
    return lines + [f"- {column}: " + " +\n  ".join(f"`{name}`" for name in names) for column, names in metrics.items()]


def page(program):
    differences = []
    launches, note = theirs("ncu-counters.csv")
    tma_launches, tma_note = theirs("ncu-counters-tma.csv")
    lines = [
        "# Counters: the simulator and Nsight Compute",
        "",
        f"Measured on: {note}. Kernels: `tests/simt/counters.cu`.",
        "Made by `tests/simt/counters_table.py` from `counters_checked` and `tests/simt/ncu_counters.sh`.",
        "A cell with one number: both agree; else simulator / hardware.",
        "",
        *table(METRICS, ours(program), launches, differences),
        "",
        "The simulator counts what the source says; the hardware counts what nvcc made of it. `#pragma unroll 1` in",
        "the matrix product keeps nvcc from fetching four neighbours with one wide load: that would be another number",
        "of requests.",
        "",
        "## Copies and reductions in bulk",
        "",
        f"Measured on: {tma_note}. Kernels: `tests/simt/counters_tma.cu`.",
        "Each of 64 blocks moves 1 KiB. The hardware's numbers are what its multiprocessors ask of the L2 cache.",
        "",
        *table(TMA_METRICS, ours(program, "tma"), tma_launches, differences),
        "",
        "## Differences" if differences else "No difference.",
    ]
    for case in dict.fromkeys(case for case, *_ in differences):
        if case not in REASONS:
            sys.exit(f"{case} differs from the hardware, and nothing says why: {differences}")
        what = [f"{column}: simulator {a}, hardware {b}" for name, column, a, b in differences if name == case]
        lines += ["", f"- {case}. {REASONS[case]}", *(f"  - {one}" for one in what)]
    return "\n".join(lines) + "\n"


made = page(sys.argv[1])
if sys.argv[2:] == ["--check"]:
    kept = (RESULTS / "counters-h200.md").read_text()
    if made != kept:
        sys.exit(f"docs/results/counters-h200.md is not what {sys.argv[0]} writes; write it once more")
else:
    print(made, end="")
