#!/bin/sh
# tests/run.sh BUILD_DIR [all]: the tests (the Makefile has built the programs); with `all` also what takes long: the header with every
# compiler, under sanitizers and with other flags, killed programs, pages in a browser, several processes.
# Environment: CC, CMHA_CFLAGS, CMHA_LIBS. One line per part, as many at a time as there are cores, failures in detail; the last line is
# N passed, N failed over everything, and so is the exit status.
B=${1:-build} all=$2
CC=${CC:-cc}
CMHA_CFLAGS=${CMHA_CFLAGS--O2}
CMHA_LIBS=${CMHA_LIBS--lopenblas -lm}
export CC CMHA_CFLAGS CMHA_LIBS
# Small parallel regions by the thousand: on a machine that is busy with something else, spinning threads would wait for each other.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-4000}
cd "$(dirname "$0")/.." || exit 2
W=$B/tests
rm -rf "$W" && mkdir -p "$W" || exit 2
SHARED=$(find ../shared/conformance -mindepth 1 -maxdepth 1 -type d 2>/dev/null)
. tests/parts.sh

# ------------------------------------------------------------------------------------------- test programs, the longest first
if [ "$all" ]; then
    beside "sanitizers" tests/sanitizers.sh "$B"
    beside "header" tests/header.sh "$B"
    beside "other builds" tests/builds.sh "$B"
fi
beside "programs" tests/programs.sh "$B"
[ -x "$B/train_tiny" ] && beside "rows of one's own" tests/rows.sh "$B"
beside "reference, manual pages, installation" tests/docs.sh "$B" "$all"
[ -x "$B/evidence_test" ] && beside "make own, make evidence" tests/own.sh "$B"
if [ "$all" ]; then
    [ -x "$B/look" ] && beside "look, its pages in a browser" tests/look.sh "$B"
    [ -e "$B/web/index.html" ] && beside "web, its page in a browser" tests/web.sh "$B"
    [ -x "$B/train_tiny" ] && beside "train_tiny, killed and stopped" tests/kill.sh "$B"
    [ -x "$B/evidence_test" ] && beside "evidence" tests/evidence.sh "$B"
fi
if python=$(tests/numpy.sh); then beside "python" "$python" tests/python.py "$B"
else printf '%-44s %s\n' "python" 'left out, without python3 and NumPy'; fi
for t in tests/test_base.c tests/test_identities.c tests/test_crash.c tests/test_*.c tests/grad_*.c; do
    n=$(basename "$t" .c)
    case " $begun_tests " in *" $n "*) continue;; esac
    begun_tests="$begun_tests $n"
    case $n in test_tokenizer*|test_convert|grad_convert) # what the Makefile leaves out
        [ -x "$B/$n" ] || { printf '%-44s %s\n' "$n" 'left out, without libutf8proc and libcjson'; continue; };;
    esac
    beside "$n" "$B/$n"
done

# An OpenBLAS that takes an old kernel must be noticed on a CPU that can do better
case $CMHA_CFLAGS in *NO_CBLAS*) ;; *)
    if ldd "$B/test_base" 2>/dev/null | grep -q openblas && grep -q avx2 /proc/cpuinfo; then
        old=Prescott; if grep -q avx512vl /proc/cpuinfo; then old="$old Haswell"; fi
        for k in $old; do
            beside "test_base, OpenBLAS held to $k" env OPENBLAS_CORETYPE=$k CMHA_TEST_REMEDY=1 CMHA_TEST_QUICK=1 "$B/test_base"
        done
    fi;;
esac
beside_end

# -------------------------------------------------------------------------------------------------------------- conformance
for c in conformance conformance-f64; do
    part "$c, our cases" "$B/$c" --strict tests/cases
    if [ "$SHARED" ]; then part "$c, shared cases" "$B/$c" --strict $SHARED; fi
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
    # a generator that fails itself is a failure too
    notices() { [ -s "$W/wrong.safetensors" ] && fails "$W/wrong.safetensors"; }
    again() { python3 "tests/$1" "$W/again" > "$W/out" 2>&1 && diff -rq "tests/$2" "$W/again" > "$W/out"; }
    # but for last digits of F64 where glibc is older than 2.34 and has another exp; elsewhere to the byte
    cat > "$W/alike.py" << 'END'
import array, json, os, sys
def tensors(path):
    data = open(path, "rb").read()
    start = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:start])
    about = head.pop("__metadata__", {})
    return about, {k: (t["dtype"], t["shape"], data[start:][slice(*t["data_offsets"])]) for k, t in head.items()}
def close(a, b):
    if a[:2] != b[:2] or a[0] != "F64" or len(a[2]) != len(b[2]):
        return a == b
    return a[2] == b[2] or all(abs(x - y) <= 1e-14 * (1 + abs(x)) for x, y in zip(array.array("d", a[2]), array.array("d", b[2])))
there, here = sys.argv[1:]
if sorted(os.listdir(there)) != sorted(os.listdir(here)):
    sys.exit("other files")
for name in os.listdir(there):
    (about, a), (about_here, b) = tensors(os.path.join(there, name)), tensors(os.path.join(here, name))
    if about != about_here or a.keys() != b.keys() or not all(close(a[k], b[k]) for k in a):
        sys.exit(name + " differs")
END
    older() { getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ split($2, v, "."); old = v[1] == 2 && v[2] < 34 } END { exit !old }'; }
    alike() {
        if ! older; then again "$@"; return; fi
        python3 "tests/$1" "$W/again" > "$W/out" 2>&1 && python3 "$W/alike.py" "tests/$2" "$W/again" > "$W/out" 2>&1
    }
    one "conformance: a wrong value fails" notices
    one "tests/cases are what make_cases.py writes" alike make_cases.py cases
    rm -rf "$W/again"
    one "tests/wordpiece_cases.txt is what make_wordpiece.py writes" \
        again make_wordpiece.py wordpiece_cases.txt
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
one "a program for another version does not link" refuses "cmha_[0-9]*_99_" "$B/cmha.o" -include "$W/next/cmha.h"

# ------------------------------------------------------------------------------------ several processes, which have limits of time
if [ ! "$all" ]; then :
elif [ ! -x "$B/train_mpi" ]; then printf '%-44s %s\n' "train_mpi" "left out, as make mpi has not built it"
else part "train_mpi" tests/mpi.sh "$B"
fi

total
