# counters_table.py: joins the simulator's counters with Nsight Compute's into docs/results/counters-h200.md.
# Every difference must be explained: the table names it, and the text below says where it comes from.
# Run: python3 tests/simt/counters_table.py OURS.csv ncu-counters.csv > docs/results/counters-h200.md
import csv
import sys

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


def ncu_launches(path):
    """One dictionary metric -> value per launch, in order; and the note in the file's first line."""
    lines = open(path).read().splitlines()
    note = lines[0].lstrip("# ")
    start = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    launches = {}
    for row in csv.DictReader(lines[start:]):
        if not row["ID"].isdigit():
            continue
        launch = launches.setdefault(int(row["ID"]), {"kernel": row["Kernel Name"]})
        value = row["Metric Value"].replace(",", "")
        launch[row["Metric Name"]] = int(float(value)) if value not in ("", "n/a") else None
    return [launches[i] for i in sorted(launches)], note


ours = list(csv.DictReader(open(sys.argv[1])))
theirs, note = ncu_launches(sys.argv[2])
if len(ours) != len(theirs):
    sys.exit(f"{len(ours)} cases of ours, {len(theirs)} launches under ncu")

print("# Counters: the simulator and Nsight Compute\n")
print(f"Measured on: {note}. Kernels: `tests/simt/counters.cu`.")
print("Made by `tests/simt/counters_table.py` from `counters_checked` and `tests/simt/ncu_counters.sh`.")
print("A cell with one number: both agree; else simulator / hardware.\n")
print("| kernel | " + " | ".join(METRICS) + " |")
print("|---|" + "---:|" * len(METRICS))
differences = []
for our, their in zip(ours, theirs):
    cells = []
    for column, metrics in METRICS.items():
        values = [their.get(metric) for metric in metrics]
        hardware = None if None in values else sum(values)
        simulator = int(our[column])
        if hardware is None:
            cells.append(f"{simulator} / ?")
            differences.append((our["case"], column, simulator, "not reported by ncu"))
        elif hardware == simulator:
            cells.append(f"{simulator}")
        else:
            cells.append(f"**{simulator} / {hardware}**")
            differences.append((our["case"], column, simulator, hardware))
    print(f"| {our['case']} | " + " | ".join(cells) + " |")
print("\nNsight Compute's metrics:\n")
for column, metrics in METRICS.items():
    print(f"- {column}: " + " +\n  ".join(f"`{metric}`" for metric in metrics))
print("\nThe simulator counts what the source says; the hardware counts what nvcc made of it. `#pragma unroll 1` in")
print("the matrix product keeps nvcc from fetching four neighbours with one wide load: that would be another number of")
print("requests.\n")
if not differences:
    print("No difference.")
else:
    print("## Differences\n")
    for case, column, simulator, hardware in differences:
        print(f"- {case}, {column}: simulator {simulator}, hardware {hardware}")
