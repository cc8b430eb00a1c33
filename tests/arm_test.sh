#!/bin/sh
# arm_test.sh: what flash-launches makes of a kernel file for 64-bit ARM, from what g++ 12 writes for that processor.
# The compiler is a pretence that writes it down, so that no computer needs another one's compiler; ./flash test --cross
# does.
# sh tests/arm_test.sh SETTINGS, which the build writes
set -eu
# shellcheck disable=SC1090
. "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0

# g++ 12 of this text, -O2 -fno-section-anchors; -E gives the text itself, -c keeps what is to be assembled.
cat >kernel.cpp <<'END'
extern __shared__ float dyn[];
__device__ float dev[16];
void kernel(int i) { __shared__ float tile[64]; tile[i] = dyn[i] + dev[i]; }
END
tr '~' '\t' >compiled.s <<'END'
~.arch armv8-a
~.text
~.align~2
~.p2align 4,,11
~.global~_Z6kerneli
~.type~_Z6kerneli, %function
_Z6kerneli:
~adrp~x2, :gottprel:dyn
~ldr~x2, [x2, #:gottprel_lo12:dyn]
~mrs~x1, tpidr_el0
~sxtw~x0, w0
~adrp~x3, dev
~add~x2, x1, x2
~add~x3, x3, :lo12:dev
~add~x1, x1, #:tprel_hi12:_ZZ6kerneliE4tile, lsl #12
~add~x1, x1, #:tprel_lo12_nc:_ZZ6kerneliE4tile
~ldr~s0, [x2, x0, lsl 2]
~ldr~s1, [x3, x0, lsl 2]
~fadd~s0, s0, s1
~str~s0, [x1, x0, lsl 2]
~ret
~.size~_Z6kerneli, .-_Z6kerneli
~.section~.tbss,"awT",@nobits
~.align~7
~.type~_ZZ6kerneliE4tile, %object
~.size~_ZZ6kerneliE4tile, 256
_ZZ6kerneliE4tile:
~.zero~256
~.global~dev
~.section~.bss.flash.d.4.1,"aw",@nobits
~.align~3
~.type~dev, %object
~.size~dev, 64
dev:
~.zero~64
~.section~.note.GNU-stack,"",@progbits
END
cat >aarch64-linux-gnu-g++ <<'END'
#!/bin/sh
out=
last=
for word; do
  [ "$last" != -o ] || out=$word
  last=$word
done
case " $* " in
  *' -E '*) cp kernel.cpp "$out" ;;
  *' -S '*) cp compiled.s "$out" ;;
  *' -x assembler '*) cp "$last" "$out" ;;
  *) exit 1 ;;
esac
END
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "$*" >stripped\n' >aarch64-linux-gnu-objcopy
chmod +x aarch64-linux-gnu-g++ aarch64-linux-gnu-objcopy

# shellcheck disable=SC2154  # of the settings
"$LAUNCHES" ./aarch64-linux-gnu-g++ -DFLASH_CHECKED -o kernel.o -c kernel.cpp || failed=1

# The same where the build's compiler is another one, before which something else may stand.
"$LAUNCHES" --by ./aarch64-linux-gnu-g++ no-clang++ -DFLASH_CHECKED -o kernel.o.by -c kernel.cpp || failed=1
grep -v '^#' kernel.o >plain
grep -v '^#' kernel.o.by >by
cmp plain by || failed=1

# has LINE…: these lines stand in what was assembled, one after the other.
tab=$(printf '\t')
has() {
  wanted=$(printf '%s|' "$@")
  case $(tr '\n' '|' <kernel.o) in
    *"$wanted"*) ;;
    *) failed=1; printf 'not in the assembly text: %s\n' "$wanted" ;;
  esac
}
# The table: where an array lies stands in the operands of two instructions; the extern one's by its other name.
for pair in "_ZZ6kerneliE4tile 256" "flash_dynamic_shared -1"; do
  has "${tab}movz${tab}x0, #:tprel_g1:${pair% *}" "${tab}movk${tab}x0, #:tprel_g0_nc:${pair% *}" \
    "${tab}.quad${tab}${pair#* }"
done
has "${tab}.set${tab}dyn,flash_dynamic_shared"
has "${tab}.quad${tab}dev, .Lflash2, 64"
# Red zones, and the variable's own alignment again behind them.
has "${tab}.zero${tab}2048" "${tab}.balign 16" "${tab}.align${tab}7" _ZZ6kerneliE4tile:
has "${tab}.zero${tab}2048" "${tab}.balign 16" "${tab}.align${tab}3" dev:
grep -q 'remove-section=.group kernel.o' stripped || { failed=1; echo 'objcopy of that processor was not called'; }

[ "$failed" = 0 ] && echo 'arm_test: tables and red zones are as they should be'
exit "$failed"
