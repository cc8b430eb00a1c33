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

wanted='dram__bytes_read dram__bytes_write sm__inst_executed_pipe_tensor_op_hmma
  sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts
  smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts
  l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st
  sm__ops_path_tensor_op_hgmma_src_fp16 sm__sass_data_bytes_mem_shared_op_gmma'
for op in ld st; do
  wanted="$wanted l1tex__t_requests_pipe_lsu_mem_global_op_$op l1tex__t_sectors_pipe_lsu_mem_global_op_$op"
  wanted="$wanted l1tex__data_pipe_lsu_wavefronts_mem_shared_op_$op"
  wanted="$wanted l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_$op"
done
# One name that this chip's list lacks would stop ncu; where it prints no list, all are tried.
ncu --query-metrics > "$out/ncu-metrics.txt" 2>&1 || true
metrics=
for metric in $wanted; do
  if grep -q '^ *dram__bytes_read ' "$out/ncu-metrics.txt" && ! grep -q "^ *$metric " "$out/ncu-metrics.txt"; then
    echo "ncu_phases.sh: this ncu knows no $metric" >&2
  else
    metrics=$metrics${metrics:+,}$metric.sum
  fi
done
# The phases' kernels, and what finds sequences and lists of tiles before them; the driver's own launches (memset) are
# left out.
ncu --clock-control none --csv --print-units base --kernel-name-base function \
  --kernel-name 'regex:^(attention|find_sequences|find_kinds|list_keys)$' \
  --metrics "$metrics" "$program" launch "$@" > "$out/ncu-phases.csv" ||
  { tail -n 20 "$out/ncu-phases.csv" >&2; exit 1; }
"$program" join "$out/ncu-phases.csv" "$@" > "$out/h200-sectors.json.part"
mv "$out/h200-sectors.json.part" "$out/h200-sectors.json"
echo "ncu_phases.sh: $(grep -c '"case"' "$out/h200-sectors.json") counters in $out/h200-sectors.json"
