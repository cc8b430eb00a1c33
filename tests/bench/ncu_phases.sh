#!/bin/sh
# ncu_phases.sh: the kernel phases' counters, hardware (Nsight Compute) beside simulator, as JSON and as ncu's own CSV.
# Without CASE: the list in sectors.cpp. The clocks are left alone: counts do not depend on them.
# tests/bench/ncu_phases.sh FLASH_SECTORS_PROGRAM OUTPUT_DIRECTORY [CASE…]      CASE: 07:1,2,500,300,64,causal,float16
set -eu
[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
program=$1 out=$2
shift 2
command -v ncu > /dev/null || { echo "ncu_phases.sh: ncu is not installed" >&2; exit 1; }
mkdir -p "$out"

metrics=dram__bytes_read.sum,dram__bytes_write.sum
for op in ld st; do
  metrics=$metrics,l1tex__t_requests_pipe_lsu_mem_global_op_$op.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_$op.sum
  metrics=$metrics,l1tex__data_pipe_lsu_wavefronts_mem_shared_op_$op.sum
done
# All phases' kernels are called attention; the driver's own launches (memset) are left out.
ncu --clock-control none --csv --print-units base --kernel-name-base function --kernel-name attention \
  --metrics "$metrics" "$program" launch "$@" > "$out/ncu-phases.csv" ||
  { tail -n 20 "$out/ncu-phases.csv" >&2; exit 1; }
"$program" join "$out/ncu-phases.csv" "$@" > "$out/h200-sectors.json.part"
mv "$out/h200-sectors.json.part" "$out/h200-sectors.json"
echo "ncu_phases.sh: $(grep -c '"case"' "$out/h200-sectors.json") counters in $out/h200-sectors.json"
