#!/bin/sh
# bench/vectors.sh [CC [OBJDUMP]]: counts the floating-point instructions of each function of cmha.h that work on vectors and on single
# numbers, and the fused ones, as CC compiles it with FLAGS (-O3) for its machine: x86-64 or aarch64. A loop that a compiler made
# vectors of keeps scalar instructions for its last numbers; one of which it made none has no vector instructions at all. Functions
# with fewer than eight instructions are left out. To see what becomes of a loop elsewhere than here, after `apt-get install
# gcc-aarch64-linux-gnu`:
#     bench/vectors.sh aarch64-linux-gnu-gcc aarch64-linux-gnu-objdump
# OBJECT: what is compiled already, in place of cmha.h and FLAGS.
CC=${1:-cc} OBJDUMP=${2:-objdump} FLAGS=${FLAGS:--O3}
cd "$(dirname "$0")/.." || exit 2
F=$(mktemp -d) || exit 2
trap 'rm -rf "$F"' EXIT
trap 'exit 1' INT TERM
if [ -z "$OBJECT" ]; then
    OBJECT=$F/cmha.o
    $CC $FLAGS -I. -DCMHA_NO_CBLAS -DCMHA_IMPLEMENTATION -x c -c -o "$OBJECT" cmha.h || exit 1
fi
"$OBJDUMP" -d --no-show-raw-insn "$OBJECT" > "$F/code" || exit 1
awk '
/^[0-9a-f]+ <.*>:/ {
    name = $2
    gsub(/[<>:]|\.(constprop|isra|part|cold|_omp_fn).*/, "", name)
    next
}
$2 ~ /^v?(add|sub|mul|div|max|min|sqrt|fn?m(add|sub)[0-9]+)[ps][sd]$/ {
    if ($2 ~ /p[sd]$/) vector[name]++; else single[name]++
    if ($2 ~ /m(add|sub)[0-9]/) fused[name]++
}
$2 ~ /^f(add|sub|mul|nmul|div|max|min|maxnm|minnm|sqrt|abd|mla|mls|n?madd|n?msub)$/ {
    if ($3 ~ /\.[248][sd]/) vector[name]++; else single[name]++
    if ($2 ~ /^f(mla|mls|n?madd|n?msub)$/) fused[name]++
}
END { for (f in vector) seen[f]; for (f in single) seen[f]
      for (f in seen) if (vector[f] + single[f] >= 8)
          printf "%-40s vectors %5d   single numbers %5d   fused %5d\n", f, vector[f], single[f], fused[f] }' "$F/code" | sort
