#!/bin/sh
# tests/sanitizers.sh BUILD_DIR: the test programs under AddressSanitizer and UndefinedBehaviorSanitizer, threads under ThreadSanitizer.
# Environment: CC, CMHA_CFLAGS, CMHA_LIBS as the Makefile has found them; CMHA_SANITIZE=short: without the gradients in double and what
# only computes, as .ci/run has time for. Last line: N passed, N failed.
B=${1:-build}
CC=${CC:-cc}
CMHA_CFLAGS=${CMHA_CFLAGS--O2}
CMHA_LIBS=${CMHA_LIBS--lopenblas -lm}
cd "$(dirname "$0")/.." || exit 2
W=$B/sanitizers
rm -rf "$W" && mkdir -p "$W" || exit 2
passed=0 failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ -s "$W/log" ] && head -${2:-15} "$W/log" | sed 's/^/    /'; :; }
# runs LABEL COMMAND...: passes when the command succeeds
runs() { label=$1; shift; if "$@" >"$W/log" 2>&1; then ok; else bad "$label"; fi; }
skip() { echo "SKIP $*"; }

# The BLAS options without optimisation or OpenMP, for the variants that choose their own
# (-isystem: warnings about the BLAS's own header are not ours)
blas=$(for f in $CMHA_CFLAGS; do case $f in -I*) printf -- '-isystem %s ' "${f#-I}";; -D*) printf '%s ' "$f";; esac; done)

# hot loops once, for this CPU: with checks they take four times as long to compile
native=; case $CMHA_CFLAGS in *-march=native*) native='-march=native -DCMHA_NO_DISPATCH';; esac
S="-std=gnu99 -O1 -g $native -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer -I. $blas"
if echo 'int main(void){return 0;}' | gcc -fsanitize=address,undefined -x c - -o "$W/san" >/dev/null 2>&1 && "$W/san"; then
    only_computes='grad_\|test_\(complex\|crat\|drawing\|evidence\|metrics\|mobius\|optimisers\|papers\|phases\|published\|scores\|tune\|unread\)'
    [ "$CMHA_SANITIZE" = short ] || { only_computes=none; gcc $S -DCMHA_DOUBLE -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/double.o" & }
    gcc $S -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/float.o"
    wait
    export S W CMHA_LIBS CMHA_TEST_QUICK=1
    # two at a time, whichever is next
    # shellcheck disable=SC2016
    case $CMHA_LIBS in *utf8proc*) lacking=none;; *) lacking='test_tokenizer\|_convert\.c';; esac
    printf '%s\n' tests/test_*.c tests/grad_*.c tests/conformance.c | grep -v -e "$lacking" -e "/$only_computes" |
        xargs -P 2 -n 1 sh -c '
        n=$(basename "$0" .c) mode=$W/float.o cases=
        case $n in grad_*) mode="-DCMHA_DOUBLE $W/double.o";; conformance) cases=tests/cases;; esac
        if gcc $S -DCMHA_TEST_LINKED "$0" $mode -o "$W/san_$n" $CMHA_LIBS && "$W/san_$n" $cases
        then echo ok > "$W/san_$n.verdict"; else echo bad > "$W/san_$n.verdict"; fi > "$W/san_$n.log" 2>&1'
    for v in "$W"/san_*.verdict; do
        n=${v%.verdict}; cp "$n.log" "$W/log"
        if [ "$(cat "$v")" = ok ]; then ok; else tail -40 "$n.log" > "$W/log"; bad "sanitizers, ${n##*/san_}" 40; fi
    done
else skip "this compiler has no sanitizers"; fi
# without OpenMP and OpenBLAS, whose waiting ThreadSanitizer takes for races
if echo 'int main(void){return 0;}' | gcc -fsanitize=thread -x c - -o "$W/san" >/dev/null 2>&1 && "$W/san"; then
    runs "sanitizers, threads" make -s tsan CC=gcc B="$W"
else skip "this compiler has no ThreadSanitizer"; fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
