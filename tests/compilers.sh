#!/bin/sh
# tests/compilers.sh [BUILD_DIR]: the header with every compiler, standard and level of optimisation. Warning-free everywhere: the
# declarations and the code as C99, C11, C17 and C++11 to C++20, shared, static, in double and without SIMD; run at -O0 to -O3 and
# -Os: conformance in float and double, test_base.
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
# levels COMPILER: everything in one object, and a run
levels() {
    for level in -O0 -O1 -O2 -O3 -Os; do
        built="$1 $level"
        for bits in '' -DCMHA_DOUBLE; do
            "$1" $level $WARN $bits -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/cmha.o" > "$W/out" 2>&1
            for t in conformance test_base; do
                [ -n "$bits" ] && [ $t = test_base ] && continue
                if "$1" -O1 $WARN $bits -DCMHA_TEST_LINKED tests/$t.c "$W/cmha.o" -o "$W/$t" -lm >> "$W/out" 2>&1; then
                    cases=; [ $t = conformance ] && cases='--strict tests/cases'
                    part "$built: $t${bits:+, double}" "$W/$t" $cases
                else one "$built: $t does not compile" false; fi
            done
        done
    done
}
# Two compilers at once, each in a folder of its own
for c in ${COMPILERS:-gcc clang}; do
    if ! command -v "$c" >/dev/null 2>&1; then echo "SKIP $c is not installed"; continue; fi
    (
        W=$W/$c; mkdir -p "$W"
        standards "$c"; levels "$c"
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
