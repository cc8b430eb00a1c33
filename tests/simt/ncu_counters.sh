#!/bin/sh
# ncu_counters.sh: reads the hardware's counters of the kernels in counters.cu with Nsight Compute, as CSV.
# counters_table.py turns the CSV into docs/results/counters-h200.md.
# Run: tests/simt/ncu_counters.sh COUNTERS_PROGRAM OUTPUT_DIRECTORY "where it was measured"
set -eu
program=$1 out=$2 note=$3
command -v ncu > /dev/null || { echo "ncu_counters.sh: ncu is not installed" >&2; exit 1; }

global=l1tex__t
shared=l1tex__data
metrics=
for op in ld st; do
  metrics=$metrics${global}_requests_pipe_lsu_mem_global_op_$op.sum,${global}_sectors_pipe_lsu_mem_global_op_$op.sum,
  metrics=$metrics${shared}_pipe_lsu_wavefronts_mem_shared_op_$op.sum,
  metrics=$metrics${shared}_bank_conflicts_pipe_lsu_mem_shared_op_$op.sum,
  metrics=${metrics}smsp__sass_inst_executed_op_shared_$op.sum,smsp__sass_inst_executed_op_global_$op.sum,
  metrics=${metrics}smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_$op.sum,
done
metrics=$metrics${shared}_pipe_lsu_wavefronts_mem_shared.sum

# The clocks are left alone; counters do not depend on them. Raw CSV: one row per launch and metric.
{ echo "# $note"
  ncu --clock-control none --csv --metrics "$metrics" "$program"
} > "$out/ncu-counters.csv" 2> "$out/ncu-counters.log" || { cat "$out/ncu-counters.csv" "$out/ncu-counters.log" >&2; exit 1; }
