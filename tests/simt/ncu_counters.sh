#!/bin/sh
# ncu_counters.sh: reads the hardware's counters of the kernels in counters.cu with Nsight Compute, as CSV.
# Of counters_tma.cu's kernels it reads what comes to the L2 cache: ncu-counters-tma.csv.
# counters_table.py makes docs/results/counters-h200.md of both.
# Run: tests/simt/ncu_counters.sh COUNTERS_PROGRAM OUTPUT_DIRECTORY "where it was measured"
set -eu
program=$1 out=$2 note=$3
command -v ncu > /dev/null || { echo "ncu_counters.sh: ncu is not installed" >&2; exit 1; }

metrics=l1tex__data_pipe_lsu_wavefronts_mem_shared.sum
for op in ld st; do
  for metric in l1tex__t_requests_pipe_lsu_mem_global_op l1tex__t_sectors_pipe_lsu_mem_global_op \
    l1tex__data_pipe_lsu_wavefronts_mem_shared_op l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op \
    smsp__sass_inst_executed_op_shared; do
    metrics=$metrics,${metric}_$op.sum
  done
done

# One row per launch and metric. The clocks are left alone; counters do not need them fixed.
# measure METRICS FILE [ARGUMENT OF THE PROGRAM]
measure() {
  ncu --clock-control none --csv --print-units base --log-file "$out/ncu.log" --metrics "$1" "$program" ${3:+"$3"} \
    > /dev/null ||
    { cat "$out/ncu.log" >&2; exit 1; }
  { echo "# $note"; grep '^"' "$out/ncu.log"; } > "$out/$2"
  rm "$out/ncu.log"
}
measure "$metrics" ncu-counters.csv
l2=
for op in read write red atom; do l2=$l2,lts__t_sectors_srcunit_tex_op_$op.sum; done
measure "${l2#,}" ncu-counters-tma.csv tma
