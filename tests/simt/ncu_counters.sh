#!/bin/sh
# ncu_counters.sh: reads the hardware's counters of the kernels in counters.cu with Nsight Compute, as CSV.
# counters_table.py turns the CSV into docs/results/counters-h200.md.
# Run: tests/simt/ncu_counters.sh COUNTERS_PROGRAM OUTPUT_DIRECTORY "where it was measured"
set -eu
program=$1 out=$2 note=$3
command -v ncu > /dev/null || { echo "ncu_counters.sh: ncu is not installed" >&2; exit 1; }

# profile FILE METRIC,METRIC,…: one row per launch and metric. The clocks are left alone; counters do not need them fixed.
profile() {
  ncu --clock-control none --csv --print-units base --log-file "$out/ncu.log" --metrics "$2" "$program" > /dev/null ||
    { cat "$out/ncu.log" >&2; return 1; }
  { echo "# $note"; cat "$out/ncu.log"; } > "$out/$1"
  rm "$out/ncu.log"
}

metrics=l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
for op in ld st; do
  for metric in l1tex__t_requests_pipe_lsu_mem_global_op l1tex__t_sectors_pipe_lsu_mem_global_op \
    l1tex__data_pipe_lsu_wavefronts_mem_shared_op l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op \
    smsp__sass_inst_executed_op_shared; do
    metrics=$metrics,${metric}_$op.sum
  done
done
profile ncu-counters.csv "$metrics"

# The source-level conflict counters, which leave other stalls out. Not every version of ncu has them.
conflicts=smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared
profile ncu-conflicts.csv "$conflicts.sum,${conflicts}_op_ld.sum,${conflicts}_op_st.sum" || true
