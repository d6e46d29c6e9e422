#!/bin/sh
# tests/run.sh BUILD_DIR: all tests (the Makefile has built the programs). Environment: CC, CMHA_CFLAGS, CMHA_LIBS.
# One line per part, failures in detail; the last line is N passed, N failed over everything, and so is the exit status.
B=${1:-build}
CC=${CC:-cc}
CMHA_CFLAGS=${CMHA_CFLAGS--O2}
CMHA_LIBS=${CMHA_LIBS--lopenblas -lm}
export CC CMHA_CFLAGS CMHA_LIBS
# Small parallel regions by the thousand: on a machine that is busy with something else, spinning threads would wait for each other.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-4000}
cd "$(dirname "$0")/.." || exit 2
W=$B/tests
rm -rf "$W" && mkdir -p "$W" || exit 2
SHARED=../shared/conformance/cases
. tests/parts.sh

# ------------------------------------------------------------------------------------------------------------ test programs
for t in tests/test_*.c tests/grad_*.c; do
    n=$(basename "$t" .c)
    part "$n" "$B/$n"
done

# An OpenBLAS that takes an old kernel must be noticed on a CPU that can do better
case $CMHA_CFLAGS in *NO_CBLAS*) ;; *)
    if ldd "$B/test_base" 2>/dev/null | grep -q openblas && grep -q avx2 /proc/cpuinfo; then
        part "test_base, OpenBLAS held to Prescott" env OPENBLAS_CORETYPE=Prescott CMHA_TEST_REMEDY=1 "$B/test_base"
    fi;;
esac

# -------------------------------------------------------------------------------------------------------------- conformance
for c in conformance conformance-f64; do
    part "$c, our cases" "$B/$c" --strict tests/cases
    if [ -d $SHARED ]; then part "$c, shared cases" "$B/$c" $SHARED; fi
done

# Files of float and double builds, each read by the other; tests/platforms.sh does the same between machines
mkdir -p "$W/files" "$W/files-f64"
for bits in '' -f64; do part "portable_files$bits writes" "$B/portable_files$bits" write "$W/files$bits"; done
for bits in '' -f64; do
    part "portable_files$bits reads float" "$B/portable_files$bits" check "$W/files"
    part "portable_files$bits reads double" "$B/portable_files$bits" check "$W/files-f64"
done

# The runner itself: it must be able to fail
printf 'no header' > "$W/short.safetensors"
sed 's/"op":"linear"/"op":"LINEAR"/' tests/cases/own_linear_17_to_9.safetensors > "$W/unknown.safetensors"
sed 's/"out\.y"/"out.z"/' tests/cases/own_linear_17_to_9.safetensors > "$W/renamed.safetensors"
mkdir -p "$W/empty"
runner() { "$B/conformance-f64" "$@" > "$W/out" 2>&1; }
fails() { runner "$@" && return 1; grep -q '^FAIL' "$W/out"; }
usage() { runner; [ $? -eq 2 ]; }
skips() { runner "$@" && grep -q '^SKIP' "$W/out" && grep -q '^0 passed, 0 failed, 1 skipped$' "$W/out"; }
one "conformance: a truncated file fails" fails "$W/short.safetensors"
one "conformance: a missing file fails" fails "$W/nowhere.safetensors"
one "conformance: an empty folder fails" fails "$W/empty"
one "conformance: a tensor that nothing compares fails" fails "$W/renamed.safetensors"
one "conformance: an unknown op is skipped" skips "$W/unknown.safetensors"
one "conformance: but not with --strict" fails --strict "$W/unknown.safetensors"
one "conformance: no argument is wrong usage" usage
if command -v python3 >/dev/null 2>&1; then
    # a wrong expected value, in the first element of out.y
    python3 - tests/cases/own_linear_17_to_9.safetensors "$W/wrong.safetensors" <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
length = struct.unpack("<Q", data[:8])[0]
at = 8 + length + json.loads(data[8:8 + length])["out.y"]["data_offsets"][0]
data[at:at + 8] = struct.pack("<d", struct.unpack("<d", data[at:at + 8])[0] + 1e-3)
open(sys.argv[2], "wb").write(data)
END
    one "conformance: a wrong value fails" fails "$W/wrong.safetensors"
    python3 tests/make_cases.py "$W/again" && one "tests/cases are what make_cases.py writes" diff -rq tests/cases "$W/again"
    python3 tests/make_wordpiece.py "$W/wordpiece" && one "tests/wordpiece_cases.txt is what make_wordpiece.py writes" \
        cmp "$W/wordpiece" tests/wordpiece_cases.txt
fi

# ------------------------------------------------------------------------------------------------------------ the public API
one "the public names are those of tests/symbols.txt (if the change is meant: make symbols)" \
    sh -c "tests/symbols.sh $B/cmha.o > $W/symbols && diff tests/symbols.txt $W/symbols > $W/out"
cat > "$W/small.c" <<'END'
#include "cmha.h"
int main(void) { cmha_real a = 2, b = 3, c = 0; cmha_gemm(0, 0, 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1); return !(c > 5 && c < 7); }
END
# pair LIBRARY FLAG...: a program that was compiled with these flags, linked with this library
# shellcheck disable=SC2086
pair() { library=$1; shift; $CC -I. "$@" "$W/small.c" "$library" -o "$W/small" $CMHA_LIBS > "$W/out" 2>&1 && "$W/small"; }
refuses() { symbol=$1; shift; pair "$@" && return 1; grep -q "$symbol" "$W/out"; }
mkdir -p "$W/next" && sed 's/define CMHA_VERSION_MINOR .*/define CMHA_VERSION_MINOR 99/' cmha.h > "$W/next/cmha.h"
one "a float program links with a float library" pair "$B/cmha.o"
one "a double program links with a double library" pair "$B/cmha-f64.o" -DCMHA_DOUBLE
one "a double program does not link with a float library" refuses compiled_with_CMHA_DOUBLE "$B/cmha.o" -DCMHA_DOUBLE
one "a float program does not link with a double library" refuses compiled_without_CMHA_DOUBLE "$B/cmha-f64.o"
one "a program for another version does not link" refuses cmha_0_99_ "$B/cmha.o" -include "$W/next/cmha.h"

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
    library -DCMHA_NO_CBLAS $CC $CMHA_CFLAGS -DCMHA_NO_CBLAS &
    library -DCMHA_NO_SIMD $CC $CMHA_CFLAGS -DCMHA_NO_SIMD & wait
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
        [ $n = conformance ] && [ -d $SHARED ] && part "$n, $build, shared cases" "$W/$n" $SHARED
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

# ------------------------------------------------------------------------------------------------ the header, the sanitizers
part "header and sanitizers" tests/header.sh "$B"

# ----------------------------------------------------------------------------------------------------------------- programs
P=$(cd "$B" && pwd)
works() { "$@" > "$W/out" 2>&1 < /dev/null; }
# complains COMMAND...: fails with exactly one line
complains() { "$@" > "$W/out" 2>&1 < /dev/null && return 1; [ "$(wc -l < "$W/out")" -eq 1 ]; }
says() { grep -q "$1" "$W/out"; }
small="--quiet --seq 32 --batch 2 --out $W/tiny.safetensors --csv $W/loss.csv"
if [ -x "$P/train_tiny" ]; then
    one "train_tiny --steps 3" works "$P/train_tiny" --steps 3 $small
    one "train_tiny writes its csv" [ -s "$W/loss.csv" ]
    one "train_tiny writes a checkpoint" [ -s "$W/tiny.safetensors" ]
    one "train_tiny --resume" works "$P/train_tiny" --steps 5 $small --resume
    one "train_tiny with a file and --set" works "$P/train_tiny" --steps 2 --attention rope --set n_layers=1 --set dropout=0.1 \
        $small README.md
    one "train_tiny, a bad option" complains "$P/train_tiny" --no-such-option
    one "train_tiny, a bad value" complains "$P/train_tiny" --steps many
    one "train_tiny, a bad field" complains "$P/train_tiny" --set nothing=1 $small
    one "train_tiny, an encoder" complains "$P/train_tiny" --attention lag $small
    one "train_tiny, a bad choice" complains "$P/train_tiny" --attention telepathy
    one "train_tiny, a missing file" complains "$P/train_tiny" $small "$W/nowhere.txt"
    one "train_tiny, a state that is not there" complains "$P/train_tiny" $small --resume="$W/nowhere.last"
    one "train_tiny --help" works "$P/train_tiny" --help
    one "train_tiny --help lists the fields" says d_model
    one "train_tiny with 3 steps again" works "$P/train_tiny" --steps 3 --seed 4 $small
fi
[ -x "$P/train_tiny" ] && part "train_tiny, killed and stopped" tests/kill.sh "$B"
if [ -x "$P/generate" ]; then
    one "generate" works "$P/generate" "$W/tiny.safetensors"
    one "generate says something" [ -s "$W/out" ]
    one "generate --help" works "$P/generate" --help
    head -c 300 README.md > "$W/prompt.txt"
    one "generate takes as much of a long prompt as it looks back" sh -c "'$P/generate' --prompt - --context 128 --tokens 3 '$W/tiny.safetensors' \
        < '$W/prompt.txt' 2>&1 >/dev/null | grep -q '300 tokens the last 128 '"
    one "generate, a bad option" complains "$P/generate" --no-such-option
    one "generate, a missing file" complains "$P/generate" "$W/nowhere.safetensors"
    one "generate, a file that is no checkpoint" complains "$P/generate" cmha.h
fi
if [ -x "$P/classify" ]; then
    { echo 'label	text'; for i in 1 2 3 4 5 6 7 8; do printf 'good\tnice %s\nbad\tawful %s\n' $i $i; done; } > "$W/texts.tsv"
    tiny="--quiet --train $W/texts.tsv --dev $W/texts.tsv --length 32 --set n_layers=1 --set d_model=16 --set d_ff=16 --out $W/texts.safetensors"
    one "classify learns to tell two words apart" works "$P/classify" $tiny --columns label,text --epochs 30 --batch 4 --lr 1e-2 --set dropout=0
    one "classify says how well" says 'best accuracy 1.0000'
    one "classify --predict" works "$P/classify" --predict "$W/texts.tsv" --columns text --model "$W/texts.safetensors"
    one "classify --predict names the classes" says '^bad	[01]\.'
    one "classify --predict answers every line" [ "$(wc -l < "$W/out")" -eq 16 ]
    one "classify --mlm, with weights" works "$P/classify" $tiny --columns 1,2 --mlm 2 --epochs 1 --class-weights balanced --metric matthews
    one "classify, a bad option" complains "$P/classify" --no-such-option
    one "classify, no such column" complains "$P/classify" $tiny --columns label,nothing
    one "classify, labels that are no numbers" complains "$P/classify" $tiny --columns label,text --metric spearman
    one "classify, a missing file" complains "$P/classify" $tiny --task sst2 --train "$W/nowhere.tsv"
    one "classify, a checkpoint without classes" complains "$P/classify" --predict README.md --model "$W/tiny.safetensors"
    one "classify --help" works "$P/classify" --help
fi
if [ -x "$P/rag" ]; then
    : > "$W/passages.txt"; printf 'where are the whales\twhale\nbread and butter\t#2 #5\n' > "$W/pairs.tsv"
    for i in 1 2 3 4; do
        printf 'The whale number %s swims. A whale lives in the deep sea and sings.\nBread of %s days. Bread and butter make a meal.\n\n' $i $i
    done >> "$W/passages.txt"
    tiny="--quiet --length 16 --batch 4 --steps 3 --read 2 --held-out 0.3 --tokens 3 --set n_layers=1 --set d_model=16 --set d_ff=16"
    one "rag trains, reports and answers" works "$P/rag" $tiny --text "$W/passages.txt" --pairs "$W/pairs.tsv" --save "$W/rag" \
        --base "$W/rag.base" --ask 'the deep sea'
    one "rag: BM25 finds both" says '^BM25, .*1.000'
    one "rag: the decoder is measured" says 'nats per token: [0-9.]* with the base'
    grep '^  [0-9w]' "$W/out" > "$W/rag.first"
    one "rag with the saved models and base" works "$P/rag" --quiet --length 16 --tokens 3 --model "$W/rag" --base "$W/rag.base" \
        --ask 'the deep sea'
    grep '^  [0-9w]' "$W/out" > "$W/rag.second"
    one "rag gives the same answer again" cmp "$W/rag.first" "$W/rag.second"
    one "rag lists passages" [ "$(grep -c '#[0-9]' "$W/rag.second")" -eq 5 ]
    one "rag --paragraphs, another text for the same models" works "$P/rag" --quiet --length 16 --tokens 3 --model "$W/rag" --paragraphs \
        --text "$W/passages.txt" --ask whale
    one "rag --paragraphs joins lines" says '#1  The whale number 1 swims.*sings'
    one "rag, nothing to read" complains "$P/rag"
    one "rag, a missing file" complains "$P/rag" --text "$W/nowhere.txt"
    one "rag, an empty file" complains "$P/rag" --text /dev/null
    one "rag, a bad option" complains "$P/rag" --no-such-option
    one "rag, a bad number" complains "$P/rag" --text "$W/passages.txt" --steps many
    one "rag without a decoder" works "$P/rag" $tiny --read 0 --set d_model=8 --text "$W/passages.txt" --base "$W/other.base"
    one "rag, a base of another width" complains "$P/rag" --model "$W/rag" --base "$W/other.base"
    one "rag --help" works "$P/rag" --help
fi
if [ -x "$P/bench" ]; then
    one "bench --quick maps" works "$P/bench" --quick maps --json "$W/bench.json" --svg "$W/bench.svg"
    one "bench prints a table" says '^  cmha .* x '
    command -v python3 >/dev/null 2>&1 && one "bench --json is JSON, with numbers" python3 -c \
        'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not (d["machine"]["threads"] > 0 and all(
            r["section"] == "maps" and r["name"] and r["n"] > 0 and r["unit"] and r["value"] > 0 and "ratio" in r for r in d["results"])))' \
        "$W/bench.json"
    one "bench --svg is a chart" grep -q '<polyline' "$W/bench.svg"
    one "bench, no such section" complains "$P/bench" telepathy
    one "bench, no such section: status 2" sh -c "'$P/bench' telepathy 2> $W/out; [ \$? -eq 2 ]"
    one "bench, a file that cannot be written" complains "$P/bench" maps --json "$W/nowhere/bench.json"
    one "bench --help" works "$P/bench" --help
fi
for n in block plain_kernels; do
    [ -x "$P/$n" ] && one "$n" works "$P/$n" && one "$n says something" [ -s "$W/out" ]
done
for e in examples/extensions/*.c; do
    n=$(basename "$e" .c)
    one "extension $n" works "$P/extensions/$n"
    one "extension $n checks its gradient" says 'gradient against differences'
    one "extension $n gives its verdict" says '^Verdict: '
done
printf '%-44s %s\n' "programs" "done"

total
