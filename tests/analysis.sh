#!/bin/sh
# tests/analysis.sh WHAT BUILD_DIR: what other programs say about the code. WHAT is one of
#     sanitize   the tests under AddressSanitizer and UndefinedBehaviorSanitizer of gcc, and of clang with its checks of integers
#     memcheck   the tests under valgrind
#     tidy       clang-tidy, by .clang-tidy and tests/tidy.known      cppcheck   cppcheck, by tests/cppcheck.xml
#     analyze    gcc -fanalyzer                         coverage   how much of cmha.h the tests run (gcov); not run: BUILD_DIR/coverage.txt
# Environment: CMHA_CFLAGS, CMHA_LIBS as the Makefile has found them; JOBS, how many at once (2); ONLY, a pattern of test names;
# WITH, gcc or clang: the half of sanitize that runs alone.
# shellcheck disable=SC2254
what=$1 B=${2:-build}
CMHA_CFLAGS=${CMHA_CFLAGS--O2}
CMHA_LIBS=${CMHA_LIBS--lopenblas -lm}
JOBS=${JOBS:-2}
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-4000}"
cd "$(dirname "$0")/.." || exit 2
W=$B/$what
rm -rf "$W" && mkdir -p "$W" || exit 2
good=0 bad=0

need() { # TOOL PACKAGE
    command -v "$1" > /dev/null 2>&1 || { echo "make $what needs $1: apt-get install $2 (Debian, Ubuntu)" >&2; exit 1; }
}
# The options of BLAS without optimisation, OpenMP and the processor's own instructions; its header is not ours to judge
blas=$(for f in $CMHA_CFLAGS; do case $f in -I*) printf -- '-isystem %s ' "${f#-I}";; -D*) printf '%s ' "$f";; esac; done)
case $CMHA_CFLAGS in *-fopenmp*) openmp=-fopenmp;; *) openmp=;; esac
case $blas in *NO_CBLAS*) other=-DCMHA_NO_SIMD;; *) other="-DCMHA_NO_CBLAS -DCMHA_NO_SIMD";; esac

# verdict LABEL LOG: one line on stdout for what is clean, everything for what is not. The log ends in the exit status.
verdict() {
    status=$(tail -n 1 "$2")
    if [ "$status" = 0 ]; then good=$((good + 1)); echo "clean  $1  $(grep '^[0-9]* passed, ' "$2" | tail -n 1)"
    else bad=$((bad + 1)); echo "FOUND  $1"; sed '$d' "$2" | head -n 60
    fi
}
verdicts() { for log in "$W"/log/*; do [ -e "$log" ] && verdict "$(basename "$log")" "$log"; done; rm -rf "$W/log"; mkdir -p "$W/log"; }
# job LABEL COMMAND...: runs it in the background, JOBS at once
running=0
job() {
    label=$1; shift
    mkdir -p "$W/log"
    { "$@" > "$W/log/$label" 2>&1; echo $? >> "$W/log/$label"; } &
    running=$((running + 1))
    if [ $running -ge "$JOBS" ]; then wait; running=0; fi
}
finish() { wait; running=0; }

# suite NAME COMPILER FLAGS -- RUNNER...: the library once in float and once in double, then every test program against it
suite() {
    suite=$1 compiler=$2 flags=$3; shift 3
    # shellcheck disable=SC2086
    for p in float double; do
        case $p in double) mode=-DCMHA_DOUBLE;; *) mode=;; esac
        job "$suite-library-$p" $compiler $flags $blas $mode -I. -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/$suite-$p.o"
    done
    finish; verdicts
    for t in tests/test_*.c tests/grad_*.c tests/conformance.c; do
        n=$(basename "$t" .c)
        case $n in ${ONLY:-*}) ;; *) continue;; esac
        case " ${few:-$n} " in *" $n "*) ;; *) continue;; esac
        case $n in grad_*) p=double mode=-DCMHA_DOUBLE;; *) p=float mode=;; esac
        case $n in conformance) cases=tests/cases;; *) cases=;; esac
        cat > "$W/run-$suite-$n" <<RUN
$compiler $flags $blas $mode -I. -DCMHA_TEST_LINKED $t $W/$suite-$p.o -o $W/$suite-$n $CMHA_LIBS &&
$* $W/$suite-$n $cases
RUN
        job "$suite-$n" sh "$W/run-$suite-$n"
    done
    finish; verdicts
}

# Programs without the library's code, which is looked at once, under $W/source; COMMAND gets each of them and its options
units() { # COMMAND FILE...
    command=$1; shift
    mkdir -p "$W/source"
    for f in "$@"; do
        case $f in */signal_data.c) [ -f /usr/include/liquid/liquid.h ] || continue;; esac
        copy=$W/source/$(basename "$f")
        sed 's/^#define CMHA_IMPLEMENTATION$//' "$f" > "$copy"
        case $f in tests/grad_*) mode=-DCMHA_DOUBLE;; *) mode=;; esac
        $command "$copy" "$(basename "$f" .c)" $mode -DCMHA_TEST_LINKED -Itests -Iexamples -Iexamples/tools
    done
}
# The library in its two extreme configurations
library() {
    mkdir -p "$W/source"
    printf '#define CMHA_IMPLEMENTATION\n#include "cmha.h"\n' > "$W/source/cmha.c"
    "$1" "$W/source/cmha.c" cmha
    # shellcheck disable=SC2086
    "$1" "$W/source/cmha.c" cmha-double-plain -DCMHA_DOUBLE $other
}

sanitize() {
    CMHA_TEST_QUICK=${CMHA_TEST_QUICK-1}; export CMHA_TEST_QUICK
    need gcc gcc
    need clang clang
    echo 'int main(void) { return 0; }' | clang -fsanitize=address,undefined -x c - -o "$W/probe" > /dev/null 2>&1 ||
        { echo "make $what needs the sanitizers of clang: apt-get install libclang-rt-dev (Debian, Ubuntu)" >&2; exit 1; }
    s="-std=gnu99 -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=address,undefined,float-cast-overflow"
    case ${WITH:-gcc} in gcc) suite gcc gcc "$s $openmp" env;; esac
    case ${WITH:-clang} in clang) suite clang clang "$s,integer -fsanitize-ignorelist=tests/integer.ignore" env;; esac
}

memcheck() {
    need valgrind valgrind
    CMHA_TEST_QUICK=1; export CMHA_TEST_QUICK
    # valgrind knows no AVX-512, which OpenBLAS would choose
    case $(uname -m) in x86_64) OPENBLAS_CORETYPE=Haswell; export OPENBLAS_CORETYPE;; esac
    OPENBLAS_NUM_THREADS=1; export OPENBLAS_NUM_THREADS
    # Those that take valgrind at most 25 seconds of processor time each; ONLY='*' is everything
    few="test_arguments test_audio test_base test_complex test_experts test_files test_interop test_metrics test_mobius test_retrieval"
    few="$few test_text test_threads grad_retrieval conformance"
    if [ -n "$ONLY" ]; then few=; fi
    suite valgrind "${CC:-cc}" "-std=gnu99 -O1 -g" valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect \
        --errors-for-leak-kinds=definite,indirect
}

tidy_run() { # LABEL CHECKS FILE OPTION...
    raw=$W/raw-$1 checks=$2 file=$3; shift 3
    # shellcheck disable=SC2086
    clang-tidy --quiet -checks="$checks" -header-filter='(cmha|text|words)\.h' "$file" -- -std=gnu99 $blas -I. "$@" > "$raw" 2>&1
    awk -v status=$? -f tests/tidy.awk tests/tidy.known "$raw"
}
tidy_one() {
    file=$1 label=$2; shift 2
    job "$label" tidy_run "$label" "-clang-analyzer-*" "$file" "$@"
}
tidy() {
    need clang-tidy clang-tidy
    cp .clang-tidy "$W/"
    # The header as the main file: of a header that is included the path analysis follows only what the main file calls. One of the two
    # configurations is enough for it, the paths being the same; it takes three minutes.
    job cmha tidy_run cmha "" cmha.h -x c -DCMHA_IMPLEMENTATION
    # shellcheck disable=SC2086
    job cmha-double-plain tidy_run cmha-double-plain "-clang-analyzer-*" cmha.h -x c -DCMHA_IMPLEMENTATION -DCMHA_DOUBLE $other
    # The path analysis is for the library: in a program it does not know that NULL out of one call is an error out of the next, and
    # does not follow functions with variable arguments, such as those that end the program. Programs have gcc's and the sanitizers.
    units tidy_one examples/*.c examples/tools/*.c bench/*.c
    finish; verdicts
}

cppcheck_one() {
    file=$1 label=$2; shift 2
    job "$label" cppcheck --quiet --std=c99 --language=c --enable="$enable" --error-exitcode=1 \
        --template=gcc --suppress-xml=tests/cppcheck.xml -D__linux__ -D__x86_64__ -D__ELF__ -D__GNUC__=12 \
        -D__GCC_IEC_559=2 -DCMHA_NO_CBLAS -I. "$@" "$file"
}
# style, which is about taste in loops and declarations, is for the library alone
cppcheck_all() {
    need cppcheck cppcheck
    enable=warning,style,performance,portability
    library cppcheck_one
    enable=warning,performance,portability
    units cppcheck_one examples/*.c examples/tools/*.c bench/*.c tests/*.c
    finish; verdicts
}

# Of the library a part, in one configuration: gcc 12 follows every call through 14,000 lines, and at its own limits gives up as well,
# after more than ten minutes and 3 GB. These limits end it after one minute, most of which goes into loading of files; the rest has
# clang's path analysis (tidy). Programs are followed to the end.
analyze_one() {
    file=$1 label=$2; shift 2
    # shellcheck disable=SC2086
    job "$label" gcc -std=gnu99 -O0 -fanalyzer -Werror $blas -I. "$@" -c "$file" -o "$W/$label.o"
}
analyze() {
    need gcc gcc
    analyze_one cmha.h cmha --param=analyzer-bb-explosion-factor=1 --param=analyzer-max-enodes-per-program-point=2 \
        -x c -DCMHA_IMPLEMENTATION
    units analyze_one examples/*.c examples/tools/*.c bench/*.c
    finish; verdicts
}

# ---------------------------------------------------------------------------------------------------------------- coverage
# The library as gcc instruments it, in the four configurations that make test runs; a line counts once, and is covered where one of
# them has run it; likewise the ways out of a condition.
coverage() {
    need gcov gcc
    # one thread a program: threads would count at the same places and wait for each other
    OMP_THREAD_LIMIT=1; export OMP_THREAD_LIMIT
    c="-O1 -g --coverage $openmp $blas -I. -DCMHA_IMPLEMENTATION"
    # shellcheck disable=SC2086
    for v in float double:-DCMHA_DOUBLE plain:-DCMHA_NO_SIMD builtin:-DCMHA_NO_CBLAS; do
        case $v in *:*) flag=${v#*:};; *) flag=;; esac
        job "library-${v%%:*}" gcc $c $flag -x c -c cmha.h -o "$W/${v%%:*}.o"
    done
    finish; verdicts
    covered() { # TEST VERSION ARGUMENT...
        n=$1 v=$2; shift 2
        case $n in ${ONLY:-*}) ;; *) return;; esac
        case $v in double) flag=-DCMHA_DOUBLE;; plain) flag=-DCMHA_NO_SIMD;; builtin) flag=-DCMHA_NO_CBLAS;; *) flag=;; esac
        script=$W/run-$n-$v
        cat > "$script" <<RUN
gcc -O1 $openmp $blas $flag -I. -DCMHA_TEST_LINKED tests/$n.c $W/$v.o -o $W/$n-$v --coverage -fno-profile-arcs -fno-test-coverage \
    $CMHA_LIBS && $W/$n-$v $*
RUN
        case $1 in ../*) n=$n-shared;; esac
        job "$n-$v" sh "$script"
    }
    for t in tests/test_*.c; do covered "$(basename "$t" .c)" float; done
    for t in tests/grad_*.c; do covered "$(basename "$t" .c)" double; done
    for v in float double plain builtin; do covered conformance "$v" tests/cases; done
    finish
    if [ -d ../shared/conformance/cases ]; then
        for v in float double; do covered conformance "$v" ../shared/conformance/cases; done
    fi
    for v in plain builtin; do covered test_base "$v"; covered test_identities "$v"; done
    finish; verdicts
    for v in float double plain builtin; do gcov -b -c -t -o "$W" "$W/$v.o" > "$W/$v.gcov" 2> /dev/null; done
    if awk -v report="$B/coverage.txt" -f tests/coverage.awk "$W"/*.gcov; then good=$((good + 1)); else bad=$((bad + 1)); fi
}

case $what in
    sanitize | memcheck | tidy | analyze | coverage) $what;;
    cppcheck) cppcheck_all;;
    *) echo "tests/analysis.sh sanitize|memcheck|tidy|cppcheck|analyze|coverage BUILD_DIR" >&2; exit 2;;
esac
echo "$what: $good clean, $bad not"
[ $bad -eq 0 ] && [ $good -gt 0 ]
