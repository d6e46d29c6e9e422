#!/bin/sh
# tests/builds.sh BUILD_DIR: the tests against libraries of other flags: without CBLAS, without SIMD, in double, with -ffast-math, and for
# every instruction set of this CPU. Environment: CC, CMHA_CFLAGS, CMHA_LIBS. The last line is N passed, N failed.
B=${1:-build}
CC=${CC:-cc}
cd "$(dirname "$0")/.." || exit 2
W=$B/tests/builds
rm -rf "$W" && mkdir -p "$W" || exit 2
SHARED=$(find ../shared/conformance -mindepth 1 -maxdepth 1 -type d 2>/dev/null)
. tests/parts.sh

# ------------------------------------------------------ builds without CBLAS, without SIMD, with -ffast-math
# They take longest to compile, so two at once: library NAME COMPILER FLAG... is $W/NAME.o; the double one is
# there already
library() {
    name=$1; shift
    "$@" -I. -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/$name.o" > "$W/$name.log" 2>&1
}
plain=$(for f in $CMHA_CFLAGS; do [ "$f" = -fopenmp ] || printf '%s ' "$f"; done) # clang may have no OpenMP
# shellcheck disable=SC2086
{
    library -DCMHA_NO_CBLAS $CC $CMHA_CFLAGS -O1 -DCMHA_NO_CBLAS &
    library -DCMHA_NO_SIMD $CC $CMHA_CFLAGS -O1 -DCMHA_NO_SIMD & wait
    library fast-gcc gcc $CMHA_CFLAGS -O1 -ffast-math -DCMHA_NO_CBLAS &
    library fast-clang clang $plain -O1 -ffast-math -DCMHA_NO_CBLAS & wait
}
[ -f "$B/cmha-f64.o" ] && cp "$B/cmha-f64.o" "$W/-DCMHA_DOUBLE.o"
variant() { # LABEL MACRO [NAME]: the programs, compiled with that macro, against that library
    build=$1 macro=$2 object=$W/${3:-$2}
    if [ ! -s "$object.o" ]; then cp "$object.log" "$W/out"; one "$build does not compile" false; return; fi
    for n in test_base test_identities test_extremes conformance; do
        # shellcheck disable=SC2086
        if ! $CC $CMHA_CFLAGS -O1 "$macro" -I. -DCMHA_TEST_LINKED "tests/$n.c" "$object.o" -o "$W/$n" \
            $CMHA_LIBS > "$W/out" 2>&1; then
            one "$build: $n does not compile" false; continue
        fi
        case $n in
            conformance) part "$n, $build" "$W/$n" --strict tests/cases;;
            *) part "$n, $build" env CMHA_TEST_QUICK=1 "$W/$n";;
        esac
        [ $n = conformance ] && [ "$SHARED" ] && part "$n, $build, shared cases" "$W/$n" $SHARED
    done
}
variant "no CBLAS" -DCMHA_NO_CBLAS
variant "no SIMD" -DCMHA_NO_SIMD
variant "double" -DCMHA_DOUBLE
# the library alone: under such a flag a test could not see NaN
for c in gcc clang; do
    if command -v $c >/dev/null 2>&1; then variant "-ffast-math, $c" -DCMHA_NO_CBLAS fast-$c
    else echo "SKIP $c is not installed"; fi
done

# ------------------------------------------------ instruction sets, chosen while the program runs: -O2 and no -march
any=$(for f in $CMHA_CFLAGS; do case $f in -m* | -fopenmp) ;; *) printf '%s ' "$f";; esac; done)
# dispatched COMPILER TEST...: the tests with a library of that compiler, every set that this CPU has forced in turn
dispatched() {
    c=$1; shift
    command -v "$c" > /dev/null 2>&1 || return
    openmp=; [ "$c" = clang ] || case $CMHA_CFLAGS in *-fopenmp*) openmp=-fopenmp;; esac
    # shellcheck disable=SC2086
    library "any-$c" "$c" $any -O2 $openmp
    if ! nm "$W/any-$c.o" 2> /dev/null | grep -q '_avx512$'; then echo "SKIP $c: no dispatch here"; return; fi
    for n in "$@"; do
        # shellcheck disable=SC2086
        $CC $any -O1 $openmp -I. -DCMHA_TEST_LINKED "tests/$n.c" "$W/any-$c.o" -o "$W/$n-$c" $CMHA_LIBS > "$W/out" 2>&1
        one "$c -O2: $n compiles" [ -x "$W/$n-$c" ]
    done
    for set in sse2 avx2 avx512; do
        if CMHA_INSTRUCTIONS=$set "$W/conformance-$c" 2>&1 | grep -q 'no instructions'; then echo "SKIP this CPU has no $set"; continue; fi
        for n in "$@"; do
            [ $n = bits ] || [ $n = conformance ] || part "$n, $c -O2, $set" env CMHA_TEST_QUICK=1 CMHA_INSTRUCTIONS=$set "$W/$n-$c"
        done
        part "conformance, $c -O2, $set" env CMHA_INSTRUCTIONS=$set "$W/conformance-$c" --strict tests/cases
        [ "$SHARED" ] && part "conformance, $c -O2, $set, shared cases" env CMHA_INSTRUCTIONS=$set "$W/conformance-$c" $SHARED
    done
}
dispatched "$CC" conformance test_identities test_extremes test_quantised bits
[ "$CC" = clang ] || dispatched clang conformance
# GCC makes vectors of the hottest loops, also at -O2: a condition around a load once kept it from that in silence
# (clang's count differs). What sweeps over pieces of products works on single numbers by right.
hot_loops() {
    OBJECT="$W/any-$CC.o" bench/vectors.sh > "$W/counts" || return 1
    awk '$1 ~ /_avx512$/ && $1 !~ /gemm_(sweep|blocked)/ { n++; if (10 * $3 < 8 * $6) { print; slow++ } }
        END { exit n < 10 || slow > 0 }' "$W/counts" > "$W/out"
}
# A function that returns without vzeroupper makes Intel's CPUs wait at each instruction of SSE's thereafter
clean_upper() {
    objdump -d --no-show-raw-insn "$W/any-$CC.o" > "$W/code" || return 1
    awk '/^[0-9a-f]+ <.*>:/ { if (wide && !clean) print name; name = $2; wide = clean = 0 }
        /%[yz]mm/ { wide = 1 }
        /vzeroupper/ { clean = 1; n++ }
        END { if (wide && !clean) print name; if (n < 10) print n + 0 }' "$W/code" > "$W/out"
    [ ! -s "$W/out" ]
}
if "$CC" --version | grep -q 'Free Software' && nm "$W/any-$CC.o" 2> /dev/null | grep -q '_avx512$'; then
    one "$CC -O2: the hottest loops are vectors" hot_loops
    one "$CC -O2: functions of newer sets end with vzeroupper" clean_upper
fi
# AVX-512 as it was before VNNI, whose instruction for products of whole numbers is chosen while the program runs
before_vnni() {
    mkdir -p "$W/older" && sed 's/__builtin_cpu_supports("avx512vnni") != 0/0/' cmha.h > "$W/older/cmha.h" || return 1
    if cmp -s cmha.h "$W/older/cmha.h"; then echo 'the header does not ask for VNNI' > "$W/out"; return 1; fi
    # shellcheck disable=SC2086
    (cd "$W/older" && $CC $any -O1 -DCMHA_NO_CBLAS -DCMHA_IMPLEMENTATION -x c -c cmha.h -o cmha.o) > "$W/out" 2>&1 &&
        $CC $any -O1 -I. -DCMHA_TEST_LINKED tests/test_quantised.c "$W/older/cmha.o" -o "$W/older/test" -lm > "$W/out" 2>&1
}
one "no VNNI: test_quantised compiles" before_vnni
if CMHA_INSTRUCTIONS=avx512 "$W/older/test" 2>&1 | grep -q 'no instructions'; then echo "SKIP this CPU has no avx512"
else part "test_quantised, no VNNI" env CMHA_TEST_QUICK=1 CMHA_INSTRUCTIONS=avx512 "$W/older/test"; fi
# The program of the Makefile's flags computes the same bits as the dispatched one with the same instructions
prints() { CMHA_TEST_QUICK=1 GOMP_SPINCOUNT=4000 "$1" | grep -v passed; }
same() {
    # shellcheck disable=SC2086
    $CC $CMHA_CFLAGS -O1 -I. -DCMHA_TEST_LINKED tests/bits.c "$B/cmha.o" -o "$W/bits" $CMHA_LIBS > "$W/out" 2>&1 || return 1
    for set in avx512 avx2 sse2; do # the library of the Makefile's flags has one of them
        CMHA_INSTRUCTIONS=$set "$W/bits" 0 > "$W/out" 2>&1 || continue
        prints "$W/bits" > "$W/bits.txt"
        CMHA_INSTRUCTIONS=$set prints "$W/bits-$CC" > "$W/any.txt"
        [ -s "$W/bits.txt" ] && diff "$W/bits.txt" "$W/any.txt" > "$W/out"
        return
    done
    return 1
}
if [ -x "$W/bits-$CC" ]; then one "the same bits with -O2 and with $CMHA_CFLAGS" same; fi
# What the program takes by itself, and refuses, on CPUs that qemu has. An exported OPENBLAS_CORETYPE is of this CPU, not of qemu's:
# OpenBLAS would obey it and take instructions that are not there.
takes() { env -u OPENBLAS_CORETYPE CMHA_INSTRUCTIONS="$2" qemu-x86_64 -cpu "$1" "$W/conformance-$CC" --strict tests/cases > "$W/out" 2>&1; }
beyond() { takes "$@"; grep -q 'no instructions' "$W/out"; }
if command -v qemu-x86_64 > /dev/null 2>&1 && [ -x "$W/conformance-$CC" ]; then
    one "qemu, no AVX: the conformance cases hold" takes Nehalem sse2
    one "qemu, no AVX: AVX2 is refused" beyond Nehalem avx2
    one "qemu, AVX2: the conformance cases hold" takes Haswell avx2
    one "qemu, AVX2: AVX-512 is refused" beyond Haswell avx512
fi

total
