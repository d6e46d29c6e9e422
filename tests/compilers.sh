#!/bin/sh
# tests/compilers.sh [BUILD_DIR]: the header with every compiler, standard and level of optimisation.
# Warning-free everywhere: the declarations and the code as C99, C11, C17 and C++11 to C++20, shared,
# static, in double and without SIMD; run at -O0 to -O3, -Os and with -Ofast, -ffast-math and their parts:
# conformance in float and double, test_base.
# COMPILERS="gcc-11 clang-16" in the environment: others than gcc and clang. The last line is N passed, N failed.
# shellcheck disable=SC2086,SC2030,SC2031 # flags are lists of words; a subshell has its own folder
B=${1:-build}
cd "$(dirname "$0")/.." || exit 2
W=$B/compilers
rm -rf "$W" && mkdir -p "$W" || exit 2
. tests/parts.sh
export CMHA_TEST_QUICK=1
WARN='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I. -DCMHA_NO_CBLAS'

# clean COMPILER FLAG...: the whole header, -O1 so that the warnings that follow the data flow appear as well
clean() { "$@" -O1 -DCMHA_IMPLEMENTATION -c cmha.h -o /dev/null > "$W/out" 2>&1 && [ ! -s "$W/out" ]; }
# standards COMPILER: every standard in two of the modes, every mode in two of the standards
standards() {
    cc=$1
    xx=$(printf '%s' "$cc" | sed 's/gcc/g++/; s/clang/clang++/')
    for s in c99 c11 c17; do
        one "$cc, $s" clean "$cc" $WARN -std=$s -x c
        one "$cc, $s, static, double" clean "$cc" $WARN -std=$s -DCMHA_STATIC -DCMHA_DOUBLE -x c
    done
    one "$cc, c99, no SIMD" clean "$cc" $WARN -std=c99 -DCMHA_NO_SIMD -x c
    command -v "$xx" >/dev/null 2>&1 || { echo "SKIP $xx is not installed"; return; }
    for s in c++11 c++14 c++17 c++20; do
        one "$xx, $s" clean "$xx" $WARN -std=$s -x c++
        one "$xx, $s, static, double" clean "$xx" $WARN -std=$s -DCMHA_STATIC -DCMHA_DOUBLE -x c++
    done
    one "$xx, c++11, no SIMD" clean "$xx" $WARN -std=c++11 -DCMHA_NO_SIMD -x c++
}
# everywhere COMPILER FLAG...: the library with these flags; the tests, which could not see NaN under some of
# them, without; both with $macros
everywhere() {
    built="$*${macros:+ $macros}"
    for bits in '' -DCMHA_DOUBLE; do
        "$@" $WARN $macros $bits -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/cmha.o" > "$W/out" 2>&1
        for t in conformance $tests; do
            [ -n "$bits" ] && [ $t != conformance ] && continue
            if "$1" -O1 $WARN $macros $bits -DCMHA_TEST_LINKED tests/$t.c "$W/cmha.o" -o "$W/$t" -lm \
                >> "$W/out" 2>&1; then
                cases=; [ $t = conformance ] && cases='--strict tests/cases'
                part "$built: $t${bits:+, double}" "$W/$t" $cases
            else one "$built: $t does not compile" false; fi
        done
    done
}
# levels COMPILER: every level of optimisation
levels() {
    tests=test_base macros=
    for level in -O0 -O1 -O2 -O3 -Os; do everywhere "$1" $level; done
}
# fast COMPILER: the flags that give up IEEE arithmetic, together and apart
fast() {
    tests='test_base test_identities test_extremes'
    for flags in -Ofast -ffast-math -funsafe-math-optimizations -ffinite-math-only -freciprocal-math \
        -fno-signed-zeros '-fassociative-math -fno-signed-zeros -fno-trapping-math' \
        '-fno-trapping-math -fno-math-errno' -ffp-contract=fast '-Ofast -std=c99' '-Ofast -include math.h'; do
        everywhere "$1" -O2 -march=native $flags
    done
    macros=-DCMHA_NO_SIMD
    everywhere "$1" -Ofast
    macros=
    built="$1 -Ofast, static, the test as well"
    "$1" -Ofast $WARN -DCMHA_STATIC tests/conformance.c -o "$W/conformance" -lm > "$W/out" 2>&1
    part "$built" "$W/conformance" --strict tests/cases
    xx=$(printf '%s' "$1" | sed 's/gcc/g++/; s/clang/clang++/')
    one "$xx -ffast-math, static" clean "$xx" $WARN -ffast-math -DCMHA_STATIC -x c++
}
# Two compilers at once, each in a folder of its own
for c in ${COMPILERS:-gcc clang}; do
    if ! command -v "$c" >/dev/null 2>&1; then echo "SKIP $c is not installed"; continue; fi
    (
        W=$W/$c; mkdir -p "$W"
        standards "$c"; levels "$c"; fast "$c"
        echo "$passed $failed" > "$W/counts"
    ) > "$W/$c.log" 2>&1 &
done
wait
for c in ${COMPILERS:-gcc clang}; do
    command -v "$c" >/dev/null 2>&1 || continue
    cat "$W/$c.log"
    printf '%-44s %s\n' "$c" "$($c --version | head -n 1)"
    if read -r p f < "$W/$c/counts"; then passed=$((passed + p)) failed=$((failed + f))
    else failed=$((failed + 1)); echo "FAIL $c did not finish"; fi
done
total
