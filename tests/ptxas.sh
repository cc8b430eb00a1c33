#!/bin/sh
# ptxas.sh: fails where ptxas says that it serialised wgmma, put in a wait or ignored setmaxnreg in a kernel of the
# tensor-core phases, and where registers are spilled other than tests/spills.txt says; loops.py looks into the loops.
# Each instantiation is compiled once, for the lowest GPU that runs it. Needs nvcc, no GPU.
# sh tests/ptxas.sh            all phases: six minutes of a core
# sh tests/ptxas.sh 19 24      these alone
# sh tests/ptxas.sh ARCHITECTURE FILE.cu TABLE
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc || true)
if [ -z "$nvcc" ]; then
  echo 'skipped: no nvcc here (it comes with the CUDA toolkit)'
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# report ARCHITECTURE: compiles the file on stdin; with the flags of cmake/kernels.cmake.
report() {
  cat >"$work/$1.cu"
  "$nvcc" -std=c++20 -O3 -DNDEBUG -arch="$1" -fmad=false --expt-relaxed-constexpr -I"$root" -Xptxas -v \
    -cubin -o "$work/$1.cubin" "$work/$1.cu" >"$work/$1.log" 2>&1 || touch "$work/$1.failed"
}
case ${1-} in
sm_*)
  table=$3
  report "$1" <"$2"
  ;;
*)
  table=$root/tests/spills.txt
  only=$(echo "$*" | tr ' ' '|')
  # kernels CAPABILITY: those of the phases that CMakeLists.txt compiles for it, as attention.cu.in has them. A feature
  # is a variant of kernels that are looked at here already.
  kernels() {
    sed -n "/ FEATURE/d; s/^flash_add_phase(\([0-9]*\) \([^ )]*\).* CAPABILITY $1.*/\1 \2/p" "$root/CMakeLists.txt" |
      while read -r number name; do
        echo "$number" | grep -qxE "${only:-.*}" || continue
        folder=$root/phases/$number-$name
        if [ -e "$folder/attention.cu" ]; then
          printf '#include "%s/attention.cu"\n' "$folder"
          continue
        fi
        printf '#include "%s/attention.cuh"\nnamespace flash::phase%s::inline FLASH_MACHINE {\n' "$folder" "$number"
        echo 'static const Added added = added_pass<features, Attention>(forward_pass);'
        echo '}  // namespace'
      done
  }
  kernels 90 | report sm_90a &
  kernels 80 | report sm_80 &
  wait
  ;;
esac
for failed in "$work"/*.failed; do
  [ ! -e "$failed" ] || { cat "${failed%.failed}.log"; echo "nvcc failed"; exit 1; }
done

cat "$work"/*.log | c++filt >"$work/log"
bad=0
# C7504 to C7508: setmaxnreg is ignored; C7509 to C7515: products are serialised; C7517, C7519: waits, fences put in.
if grep '(C75[0-9][0-9])' "$work/log"; then
  bad=1
  echo 'touch the registers of a product only before its wgmma_fence and behind its wgmma_wait'
fi

# The table beside the report; bytes are those of one release of nvcc.
release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
awk -v release="$release" -v table="$table" -v only="${only-}" '
  function say(text) { print text; bad = 1 }
  FILENAME == table && /^#/ { if (match($0, /CUDA [0-9.]+[0-9]/)) of = substr($0, RSTART + 5, RLENGTH - 5); next }
  FILENAME == table { bytes = $(NF - 1) " " $NF; sub(/ [0-9]+ [0-9]+$/, ""); allowed[$0] = bytes; next }
  /Function properties for / {
    kernel = $0
    sub(/.*Function properties for (void )?/, "", kernel); sub(/\(.*/, "", kernel); gsub(/flash::|on_gpu::/, "", kernel)
  }
  /bytes spill stores/ {
    kernels++
    for (i = 1; i <= NF; ++i) if ($i == "spill") { if ($(i + 1) ~ /stores/) stores = $(i - 2); else loads = $(i - 2) }
    found[kernel] = stores " " loads
  }
  END {
    if (!kernels) say("ptxas reported no kernel")
    for (kernel in allowed) if (only == "" && !(kernel in found))
      say(kernel ": is not compiled; remove its line from " table)
    for (kernel in found) {
      split(found[kernel], is)
      split(kernel in allowed ? allowed[kernel] : "0 0", may)
      if (is[1] == may[1] && is[2] == may[2]) continue
      what = kernel ": spills " is[1] " bytes and loads " is[2] "; " table " says " may[1] " and " may[2]
      if (of != "" && of != release) { print what " (of CUDA " of "; this is " release ")"; other = 1; continue }
      say(what (is[1] > may[1] || is[2] > may[2] ? "; spare registers" : "; lower the table"))
    }
    if (!bad) print "ptxas: " kernels " kernels, " (other ? "of another CUDA than the table" : "spills as in the table")
    exit bad
  }' "$table" "$work/log" || bad=1

cuobjdump=${CUOBJDUMP:-$(command -v cuobjdump || command -v "${nvcc%/*}/cuobjdump" || true)}
if [ -z "$cuobjdump" ]; then
  echo 'loops: not looked at, there is no cuobjdump here'
else
  for cubin in "$work"/*.cubin; do CUOBJDUMP=$cuobjdump python3 "$root/tests/bench/loops.py" "$cubin" || bad=1; done
fi
exit "$bad"
