#!/bin/sh
# tests/fuzz/run.sh FOLDER SECONDS [FUZZER...]: builds the fuzzers into FOLDER and runs each for so long, FUZZ_JOBS at a time (1), from
# the seeds in tests/fuzz/corpus and from what earlier runs have found. Prints the executions of each and their sum; fails if one
# finds something. FUZZ_SEED=1 draws the same cases again, in a folder without earlier runs; 0, the usual, draws others each time.
F=${1:-build/fuzz} SECONDS_EACH=${2:-60}
every='archive checkpoint adapters cache config gguf forms knowledge tokens table pairs series samples tokenizer tokenize'
# shellcheck disable=SC2086
[ $# -gt 2 ] && shift 2 || set -- $every
CLANG=${CLANG:-clang}
cd "$(dirname "$0")/../.." || exit 2
mkdir -p "$F" || exit 2
CHECKS="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"
FLAGS="-g -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -DCMHA_NO_CBLAS -I."

echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return !d && n; }' > "$F/probe.c"
if ! $CLANG -fsanitize=fuzzer "$F/probe.c" -o "$F/probe" > "$F/log" 2>&1; then
    echo "fuzz: clang with libFuzzer is needed, and $CLANG -fsanitize=fuzzer fails (Debian, Ubuntu: apt-get install clang)" >&2
    exit 1
fi
# shellcheck disable=SC2086
$CLANG $FLAGS $CHECKS -fsanitize=fuzzer-no-link -c tests/fuzz/files.c -o "$F/files.o" || exit 1
# Patterns of tokenizers by PCRE2, where that is there
regex=
if printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | $CLANG -E - > /dev/null 2>&1; then
    regex='-DWITH_PCRE2 -lpcre2-8'
fi
# fuzz NAME: builds and runs one; leaves NAME.log and, if it finds something, NAME.found
fuzz() {
    libs=
    case $1 in archive|checkpoint|adapters|knowledge|gguf|forms|samples|tokeni*) libs='-lutf8proc -lcjson';; esac
    case $1 in tokeni*) libs="$libs $regex";; esac
    rm -f "$F/$1.found" && mkdir -p "$F/corpus/$1"
    # shellcheck disable=SC2086
    if ! $CLANG $FLAGS $CHECKS -fsanitize=fuzzer "tests/fuzz/$1.c" "$F/files.o" $libs -lm -o "$F/$1" > "$F/$1.log" 2>&1; then
        echo compile > "$F/$1.found"
    elif ! "$F/$1" "$F/corpus/$1" "tests/fuzz/corpus/$1" -seed="${FUZZ_SEED:-0}" -max_len=8192 \
        -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$F/$1-" > "$F/$1.log" 2>&1; then
        echo run > "$F/$1.found"
    fi
}
running=0
for t in "$@"; do
    fuzz "$t" &
    running=$((running + 1))
    if [ $running -ge "${FUZZ_JOBS:-1}" ]; then wait; running=0; fi
done
wait
total=0 failed=0
for t in "$@"; do
    if [ -e "$F/$t.found" ]; then
        failed=$((failed + 1))
        grep -n 'error:\|does not hold\|ERROR\|runtime error\|^    #[0-9] ' "$F/$t.log" | head -n 20
        grep 'Test unit written' "$F/$t.log"
    fi
    n=$(sed -n 's/^stat::number_of_executed_units: *//p' "$F/$t.log" | tail -n 1)
    if [ "${n:-0}" -eq 0 ] && [ ! -e "$F/$t.found" ]; then failed=$((failed + 1)); echo "$t has executed nothing"; fi
    total=$((total + ${n:-0}))
    printf '%-12s %12d executions\n' "$t" "${n:-0}"
done
printf '%-12s %12d executions, %d of %d fuzzers found something\n' all "$total" "$failed" $#
[ "$failed" -eq 0 ]
