#!/bin/sh
# tests/header.sh BUILD_DIR: how the header compiles, what it exports, and the documentation's programs.
# Environment: CC, CMHA_CFLAGS, CMHA_LIBS as the Makefile has found them. Last line: N passed, N failed.
B=${1:-build}
CC=${CC:-cc}
CMHA_CFLAGS=${CMHA_CFLAGS--O2}
CMHA_LIBS=${CMHA_LIBS--lopenblas -lm}
cd "$(dirname "$0")/.." || exit 2
W=$B/header
rm -rf "$W" && mkdir -p "$W" || exit 2
FLAGS="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -I."
passed=0 failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL $1"; [ -s "$W/log" ] && head -${2:-15} "$W/log" | sed 's/^/    /'; :; }
# try LABEL COMMAND...: passes when the command succeeds and says nothing
try() { label=$1; shift; if "$@" >"$W/log" 2>&1 && [ ! -s "$W/log" ]; then ok; else bad "$label: $*"; fi; }
# runs LABEL COMMAND...: passes when the command succeeds
runs() { label=$1; shift; if "$@" >"$W/log" 2>&1; then ok; else bad "$label"; fi; }
skip() { echo "SKIP $*"; }
has() { command -v "$1" >/dev/null 2>&1; }

# The BLAS options without optimisation or OpenMP, for the variants that choose their own
# (-isystem: warnings about the BLAS's own header are not ours)
blas=$(for f in $CMHA_CFLAGS; do case $f in -I*) printf -- '-isystem %s ' "${f#-I}";; -D*) printf '%s ' "$f";; esac; done)

# ------------------------------------------------------------------------------------------------- compilers, standards, modes
cat > "$W/code.c" <<'END'
#include "cmha.h"
#define CMHA_IMPLEMENTATION
#include "cmha.h"
#include "cmha.h"
#include <string.h>
#ifdef __cplusplus
extern "C"
#endif
const char *other(void);
int main(void) { return strcmp(other(), cmha_version()); }
END
cat > "$W/user.c" <<'END'
#include "cmha.h"
#include "cmha.h"
#ifdef __cplusplus
extern "C"
#endif
const char *other(void);
const char *other(void) {
    int I = 1, complex = 2, imaginary = 3; /* names that <complex.h> and cblas.h would take away */
    return cmha_status_string(CMHA_OK) && I + complex + imaginary == 6 ? cmha_version() : "";
}
END
cat > "$W/with_complex.c" <<'END'
#include <complex.h>
#include "cmha.h"
#define CMHA_IMPLEMENTATION
#include "cmha.h"
int main(void) { return cmha_status_string(CMHA_OK)[0] == 0 || creal(I * I) != -1; }
END
# What <windows.h> takes away from a program, and names that programs give to macros of their own
cat > "$W/with_macros.c" <<'END'
#define near
#define far
#define small char
#define interface struct
#define byte unsigned char
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define real double
#define pi 3.14
#define CMHA_IMPLEMENTATION
#include "cmha.h"
END
cp "$W/user.c" "$W/user.cpp" && cp "$W/code.c" "$W/code.cpp"

# variant LABEL COMPILER FLAGS...: both files warning-free, linked, run; sources in C unless XX=1
variant() {
    label=$1 compiler=$2; shift 2
    suffix=${XX:+pp}; suffix=c$suffix
    # shellcheck disable=SC2086
    if $compiler $FLAGS $blas "$@" -c "$W/code.$suffix" -o "$W/code.o" >"$W/log" 2>&1 &&
        $compiler $FLAGS $blas "$@" -c "$W/user.$suffix" -o "$W/user.o" >>"$W/log" 2>&1 &&
        $compiler "$@" "$W/code.o" "$W/user.o" -o "$W/two" $CMHA_LIBS >>"$W/log" 2>&1 && "$W/two" && [ ! -s "$W/log" ]; then ok
    else bad "$label: $compiler $*"; fi
}

# refused LABEL REMEDY COMPILER FLAGS...: one error, which names the remedy, and nothing else
refused() {
    label=$1 remedy=$2; shift 2
    if "$@" -DCMHA_IMPLEMENTATION -Wall -x c -fsyntax-only cmha.h >"$W/log" 2>&1; then
        bad "$label is not refused"
    elif [ "$(grep -c 'error:\|warning:' "$W/log")" = 1 ] && grep -q -e "error:.*$remedy" "$W/log"; then ok
    else bad "$label: more or other than one line"; fi
}

# All variants with one compiler, in a folder of its own, so that two compilers can be tried at once. Most without optimisation, for the
# time it takes: make compilers goes through the levels.
suite() {
    c=$1 W=$W/$1
    mkdir -p "$W" && cp "$W"/../code.* "$W"/../user.* "$W"/../with_*.c "$W"
    variant "C99" $c -std=c99 -O1
    variant "C11" $c -std=c11
    variant "C99 static" $c -std=c99 -DCMHA_STATIC
    variant "C99 double" $c -std=c99 -DCMHA_DOUBLE
    variant "C99 no CBLAS" $c -std=c99 -DCMHA_NO_CBLAS
    variant "C99 no SIMD" $c -std=c99 -DCMHA_NO_SIMD
    variant "C99 no CBLAS, no SIMD, double, static" $c -std=c99 -DCMHA_NO_CBLAS -DCMHA_NO_SIMD -DCMHA_DOUBLE -DCMHA_STATIC
    # Names of earlier versions: each warns where it is used and says the new one; and they can be left out
    for old in $(sed -n 's/^#define \(cmha_[a-z_]*\) CMHA__OLD(\1, .*/\1/p' cmha.h); do
        now=$(sed -n "s/^#define $old CMHA__OLD($old, \(.*\))$/\1/p" cmha.h)
        printf '#include "cmha.h"\nint size(void) { return (int)sizeof(%s); }\n' "$old" > "$W/old.c"
        if [ "$now" ] && $c -std=c99 -I. -c "$W/old.c" -o "$W/old.o" 2> "$W/log" && grep -q "warning: .*$old is now $now" "$W/log" &&
            ! $c -std=c99 -I. -DCMHA_NO_OLD_NAMES -c "$W/old.c" -o "$W/old.o" 2> "$W/log"; then ok
        else bad "$c: the old name $old"; fi
    done
    # <complex.h> before the header: the header's names are its own, and the program's I is still i behind it
    # shellcheck disable=SC2086
    if $c -std=c99 $FLAGS $blas "$W/with_complex.c" -o "$W/two" $CMHA_LIBS >"$W/log" 2>&1 && "$W/two" && [ ! -s "$W/log" ]; then ok
    else bad "<complex.h> before cmha.h: $c"; fi
    # shellcheck disable=SC2086
    try "macros of <windows.h> before cmha.h" $c -std=c99 $FLAGS $blas -fsyntax-only "$W/with_macros.c"
    variant "-ffast-math static" $c -std=c99 -ffast-math -DCMHA_STATIC
    refused "the code as C89" C99 $c -std=c89
    refused "the code as C89 with GNU's extensions" C99 $c -std=gnu89
    try "the declarations as C89" $c $FLAGS -std=c89 -fsyntax-only "$W/user.c"
    if [ $c = clang ] && clang -target wasm32 -x c -fsyntax-only /dev/null 2>/dev/null; then
        refused "-ffast-math that clang cannot undo" -fno-fast-math \
            clang -target wasm32 -ffreestanding -ffast-math
    fi
    case $CMHA_CFLAGS in *-fopenmp*)
        if [ $c = gcc ] || echo 'int main(void){return 0;}' | $c -fopenmp -x c - -o "$W/omp" >/dev/null 2>&1; then
            variant "C99 OpenMP" $c -std=c99 -march=native -fopenmp
        else skip "$c has no OpenMP"; fi;;
    esac
    case $c in clang) xx=clang++;; *) xx=g++;; esac
    if has $xx; then
        XX=1 variant "C++11" $xx -std=c++11
        case $c$CMHA_CFLAGS in gcc*-fopenmp*) XX=1 variant "C++11 OpenMP" $xx -std=c++11 -fopenmp;; esac
        XX=1 variant "C++17 static" $xx -std=c++17 -DCMHA_STATIC
        # the code in C, its user in C++
        # shellcheck disable=SC2086
        try "C and C++ together" sh -c "$c $FLAGS $blas -std=c99 -c $W/code.c -o $W/code.o &&
            $xx $FLAGS -std=c++11 -c $W/user.cpp -o $W/user.o &&
            $xx $W/code.o $W/user.o -o $W/two $CMHA_LIBS && $W/two"
    else skip "$xx is not installed"; fi
    echo "$passed $failed" > "$W/counts"
}

compilers=
for c in gcc clang; do if has $c; then compilers="$compilers $c"; else skip "$c is not installed"; fi; done
[ -n "$compilers" ] || compilers=$CC
for c in $compilers; do (suite $c > "$W/suite_$c.log" 2>&1) & done
wait
for c in $compilers; do
    cat "$W/suite_$c.log"
    read -r p f < "$W/$c/counts" && passed=$((passed + p)) failed=$((failed + f)) || bad "the suite of $c did not finish"
done
# Static copies of which one call is used: the optimiser warns about what it inlines. Without the rest they take a second.
# uses CALL DECLARATION: warning-free with every compiler
uses() {
    printf '%s\n' '#define CMHA_STATIC' '#include "cmha.h"' 'int main(int argc, char **argv) {' \
        "    cmha_context context; $2" "    return cmha_context_init(&context, NULL) || $1;" '}' > "$W/uses.c"
    for c in $compilers; do
        # shellcheck disable=SC2086
        try "static, with nothing but $1" $c -O3 -march=native $FLAGS -DCMHA_NO_CBLAS -c "$W/uses.c" \
            -o "$W/uses.o"
    done
}
uses 'cmha_archive_open(&archive, &context, argv[argc - 1])' 'cmha_archive archive;'
uses 'cmha_tokens_open(&tokens, &context, argv[argc - 1], 1)' 'cmha_tokens tokens;'
# a static copy next to the shared one
# shellcheck disable=SC2086
try "static and shared in one program" sh -c "$CC $blas -I. -c $W/code.c -o $W/code.o &&
    $CC $blas -I. -DCMHA_STATIC -c $W/user.c -o $W/user.o &&
    $CC $W/code.o $W/user.o -o $W/two $CMHA_LIBS && $W/two"

# ------------------------------------------------------------------------------------------------------- installed, with CMake
# A stranger's project, which finds the package where `make install` put it: below DESTDIR, not at PREFIX
I=$W/stranger
mkdir -p "$I" && cp "$W/user.c" "$I/other.c" && cat > "$I/app.c" <<'END'
#define CMHA_IMPLEMENTATION
#include <cmha.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C"
#endif
const char *other(void);
int main(void) {
    cmha_context context;
    char blas[128];
    cmha_status status = cmha_context_init(&context, NULL);
    printf("%s, %d threads, %s\n", other(), context.threads, cmha_blas_name(blas, sizeof blas));
    cmha_context_close(&context);
    return status;
}
END
cp "$I/app.c" "$I/app.cpp"
cat > "$I/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.9)
project(stranger C CXX)
find_package(cmha ${ASKED} REQUIRED ${PARTS})
foreach(target cmha builtin)
    add_executable(c_${target} app.c other.c)
    add_executable(cxx_${target} app.cpp other.c)
    target_link_libraries(c_${target} PRIVATE cmha::${target})
    target_link_libraries(cxx_${target} PRIVATE cmha::${target})
endforeach()
END
# configure FOLDER OPTION...: makes CMake look below the installation
configure() {
    folder=$1; shift
    CC=$CC cmake -S "$I" -B "$I/$folder" -DCMAKE_PREFIX_PATH="$(cd "$W/dest/opt/cmha" && pwd)" "$@" >"$W/log" 2>&1
}
# prints LABEL PATTERN PROGRAM: it runs and says which version it has, and this
prints() { if "$3" >"$W/log" 2>&1 && grep -q "^$version (.*$2" "$W/log"; then ok; else bad "$1"; fi; }
if has cmake && has c++; then
    runs "make install" "${MAKE:-make}" -s install B="$W" DESTDIR="$W/dest" PREFIX=/opt/cmha
    version=$(sed -n 's/^Version: //p' "$W/dest/opt/cmha/lib/pkgconfig/cmha.pc")
    if configure found -DASKED="${version%.*}" && cmake --build "$I/found" -j 2 >"$W/log" 2>&1; then ok; else bad "find_package(cmha)" 40; fi
    # what the Makefile finds, CMake finds
    case $CMHA_LIBS in *openblas*) blas_name=OpenBLAS;; *) blas_name=;; esac
    case $CMHA_CFLAGS in *-fopenmp*) three='3 threads, ';; *) three=;; esac
    for l in c cxx; do
        OMP_NUM_THREADS=3 prints "a stranger's program, $l" "$three.*$blas_name" "$I/found/${l}_cmha"
        OMP_NUM_THREADS=3 prints "a stranger's program, built-in product, $l" "$three.*built-in" "$I/found/${l}_builtin"
    done
    none="-DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON -DCMAKE_IGNORE_PATH=$(sed -n 's/^CMHA_CBLAS_INCLUDE_DIR:PATH=//p' "$I/found/CMakeCache.txt")"
    # shellcheck disable=SC2086
    if configure bare $none && cmake --build "$I/bare" --target c_cmha >"$W/log" 2>&1; then ok; else bad "find_package(cmha), bare" 40; fi
    OMP_NUM_THREADS=3 prints "a stranger's program without OpenMP and BLAS" '1 threads, .*built-in' "$I/bare/c_cmha"
    # refusal OPTION PATTERN: of a project that asks for what is not there
    # shellcheck disable=SC2086
    refusal() { if configure refused $none "$1" || ! grep -q "$2" "$W/log"; then bad "find_package(cmha), $1"; else ok; fi; }
    for parts in blas openmp; do refusal "-DPARTS=COMPONENTS;$parts" "there is no $parts"; done
    for asked in 99 "${version%%.*}.99" "$version.1" 0.10; do refusal "-DASKED=$asked" "not accepted"; done
    refusal "-DASKED=0.1...<$version" "not accepted"
    # a version of the same major number serves who asks for an earlier one, and no other
    here=$W/dest/opt/cmha/lib/cmake/cmha/cmhaConfigVersion.cmake
    sed 's/^set(PACKAGE_VERSION .*/set(PACKAGE_VERSION "3.5.2")/' "$here" > "$I/version.cmake" && cp "$I/version.cmake" "$here"
    for asked in 3.0 3.5 3.5.2 2.9...3.6; do
        # shellcheck disable=SC2086
        if configure later $none "-DASKED=$asked"; then ok; else bad "find_package(cmha $asked), 3.5.2 is there"; fi
    done
    for asked in 2.5 3.6 4.0; do refusal "-DASKED=$asked" "not accepted"; done
else skip "cmake is not installed"; fi

# ------------------------------------------------------------------------------------------------------------- symbols, macros
# (without PIC, where tables of pointers are constants: below the same object must have no writable data)
# shellcheck disable=SC2086
$CC $blas -I. -O1 -fno-pic -fno-pie -c "$W/code.c" -o "$W/whole.o"
nm -g --defined-only "$W/whole.o" 2>/dev/null | awk 'NF == 3 { print $3 }' | sed 's/^_cmha/cmha/' | grep -v '^_*main$' > "$W/symbols"
if [ "$(wc -l < "$W/symbols")" -gt 60 ]; then ok; else bad "too few symbols are exported"; fi
if grep -v '^cmha_[a-z0-9]' "$W/symbols" > "$W/log"; then bad "exported without the prefix cmha_"; else ok; fi
# every declaration has its code: a function declared and missing would only be found by its first user
sed '/Stop here if you only want/,$d' cmha.h | grep -o '^CMHA_[D_][EF][FI]T\{0,1\} [^;(]*\bcmha_[a-z0-9_]*(' |
    grep -o 'cmha_[a-z0-9_]*($' | tr -d '(' | sort -u > "$W/declared"
sort -u "$W/symbols" | comm -23 "$W/declared" - > "$W/log"
if [ -s "$W/log" ]; then bad "declared, but without code"; else ok; fi
# (but for the one whose name is composed of the version and the configuration)
sort -u "$W/symbols" | grep -v '_compiled_with' | comm -13 "$W/declared" - > "$W/log"
if [ -s "$W/log" ]; then bad "exported, but not declared"; else ok; fi
# shellcheck disable=SC2086
$CC $blas -I. -O1 -DCMHA_STATIC -c "$W/user.c" -o "$W/user.o"
nm -g --defined-only "$W/user.o" | awk 'NF == 3 { print $3 }' | grep -v '^_*other$' > "$W/log"
if [ -s "$W/log" ]; then bad "static mode exports symbols"; else ok; fi
# what a program puts before every function: here of a shared object that hides all else
# shellcheck disable=SC2086
$CC $blas -I. -O1 -fPIC -fvisibility=hidden '-DCMHA_DEF=extern __attribute__((visibility("default")))' \
    -DCMHA_IMPLEMENTATION -DCMHA_INFERENCE_ONLY -DCMHA_NO_DISPATCH -x c -c cmha.h -o "$W/shown.o" 2> "$W/log" &&
    $CC -shared "$W/shown.o" -o "$W/shown.so" $CMHA_LIBS 2>> "$W/log"
if nm -D --defined-only "$W/shown.so" 2>> "$W/log" | grep -q ' cmha_version$'; then ok; else bad "CMHA_DEF of a program's own"; fi

macros() { $CC -I. $blas -E -dM -x c - | awk '{ sub(/\(.*/, "", $2); print $2 }' | sort -u; }
printf '#include <stddef.h>\n#include <stdint.h>\n' | macros > "$W/before"
printf '#include "cmha.h"\n' | macros | comm -13 "$W/before" - | grep -v '^CMHA_' > "$W/new"
sed -n 's/^#define \(cmha_[a-z_]*\) CMHA__OLD(.*/\1/p' cmha.h | sort -u | comm -13 - "$W/new" > "$W/log"
if [ -s "$W/log" ]; then bad "macros of the header leak"; else ok; fi
printf '#define CMHA_IMPLEMENTATION\n#include "cmha.h"\n' | macros |
    grep -x -e I -e complex -e min -e max -e MIN -e MAX -e imaginary > "$W/log"
if [ -s "$W/log" ]; then bad "macros of the implementation leak"; else ok; fi
printf '#include "cmha.h"\n' | $CC -I. -E -x c - | grep -c 'cblas_' > "$W/count"
if [ "$(cat "$W/count")" = 0 ]; then ok; else bad "the declarations pull in cblas.h"; fi

# ---------------------------------------------------------------------------------------------- without files, without training
# gcc's objects are those of tests/README.md's table of sizes, whose numbers they must be but for a hundredth: "Sizes"
sizes=
# shellcheck disable=SC2086
small() { gcc $FLAGS -std=c99 -O2 -DCMHA_NO_CBLAS -DCMHA_NO_DISPATCH "$@" -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/part.gcc.o"; }
bytes() { sizes="$sizes $(size "$W/part.gcc.o" | awk 'NR == 2 { print $1 + $2 }')"; }
if has gcc; then try "all of it" small; bytes; fi
# shellcheck disable=SC2086
for m in -DCMHA_NO_FILES -DCMHA_INFERENCE_ONLY "-DCMHA_NO_FILES -DCMHA_INFERENCE_ONLY"; do
    for c in $compilers; do
        xx=g++; [ $c = clang ] && xx=clang++
        # of another compiler than the first its warnings alone
        if [ $c = gcc ]; then try "$m, C99" small $m; bytes
        elif [ " $c" = "$compilers" ]; then try "$m, C99" $c $FLAGS $blas -std=c99 -O1 $m -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$W/part.$c.o"
        else try "$m, C99" $c $FLAGS $blas -std=c99 $m -DCMHA_IMPLEMENTATION -x c -fsyntax-only cmha.h; fi
        if has $xx; then try "$m, C++11" $xx $FLAGS $blas -std=c++11 $m -fsyntax-only "$W/code.cpp"; fi
    done
    first=${compilers# }; first=${first%% *}
    nm "$W/part.$first.o" > "$W/names"
    case $m in *NO_FILES*)
        if awk '$1 == "U" { print $2 }' "$W/names" |
            grep -x -e 'f\{0,1\}open' -e '.*printf' -e read -e write -e close -e lseek -e 'f\{0,1\}stat' -e rename -e remove -e mmap \
                -e getenv -e 'str\{0,1\}error' -e '.*errno.*' -e stderr -e stdout -e fwrite -e fputs > "$W/log"
        then bad "$m refers to files or stdio"; else ok; fi;;
    esac
    case $m in *INFERENCE*) # which saves nothing but its caches
        if awk '$2 == "T" { print $3 }' "$W/names" | grep -e _backward -e trainer_[^t] -e _gradient -e '_save$' -e _write -e adamw |
            grep -v -x cmha_cache_save > "$W/log"
        then bad "$m exports training"; else ok; fi
        if awk '$2 == "t" { print $3 }' "$W/names" | grep -e backward -e cmha__tell -e cmha_trainer_step |
            grep -v -e cmha_activation_backward -e 'cmha__tell_\(cache\|file\|header\|note\|tensor\)$' > "$W/log"
        then bad "$m has the code of training"; else ok; fi;;
    esac
done
if [ "$(uname -m)" = x86_64 ] && gcc --version 2>/dev/null | grep -q ' 12\.2'; then
    sed -n '/^| all of it/,/^$/p' tests/README.md | awk -F'|' -v sizes="$sizes" 'BEGIN { split(sizes, now, " ") }
        NR == 3 { for (i = 1; i <= 4; i++) { said = $(i + 1); gsub(/[ ,]/, "", said)
            if (said + 0 < 1 || (now[i] / said - 1) ^ 2 > 1e-4) print "tests/README.md says " said " bytes, now " now[i] } }
        END { if (NR < 3) print "tests/README.md has no table of sizes" }' > "$W/log"
    if [ -s "$W/log" ]; then bad "sizes in tests/README.md"; else ok; fi
else skip "this compiler is not that of the table of sizes"; fi
printf '%s\n' '#include "cmha.h"' 'int main(void) { return cmha_trainer_init(0, 0, 0) != 0; }' > "$W/trains.c"
$CC -I. -DCMHA_INFERENCE_ONLY "$W/trains.c" "$W/part.$first.o" -o "$W/trains" $CMHA_LIBS > "$W/log" 2>&1 && bad "a program that trains links"
if grep -q "undefined reference to .cmha_trainer_init" "$W/log"; then ok; else bad "the linker does not name what is missing"; fi

# A file that declares first and gets the code later has all of it: training then says that it cannot
printf '%s\n' '#include "cmha.h"' '#define CMHA_IMPLEMENTATION' '#include "cmha.h"' 'int main(void) {' '    cmha_context context;' \
    '    cmha_tape tape;' '    if (cmha_context_init(&context, NULL) || cmha_tape_init(&tape, &context, 0)) return 1;' \
    '    return cmha_tape_backward(&tape, NULL, 1) == CMHA_OK;' '}' > "$W/later.c"
# shellcheck disable=SC2086
runs "declared first, -DCMHA_INFERENCE_ONLY" sh -c "$CC $FLAGS $blas -std=c99 -DCMHA_INFERENCE_ONLY $W/later.c -o $W/later $CMHA_LIBS &&
    $W/later"

# Every configuration of a file without the code, and with it, says nothing. A microcontroller's code has neither files nor a BLAS.
printf '%s\n' '#include "cmha.h"' 'int main(void) { return 0; }' > "$W/plain.c" && cp "$W/plain.c" "$W/plain.cc"
# silent COMPILER: eight of the 32 configurations, in which every two choices meet (code, trains, files, real; PLAIN is no macro of ours)
silent() {
    case $1 in *++) source=$W/plain.cc;; *) source=$W/plain.c;; esac
    while read -r code choices; do
        for choice in $choices; do
            trains= files= real= without=
            case $choice in 1??) trains=-DCMHA_INFERENCE_ONLY;; esac
            case $choice in ?1?) files=-DCMHA_NO_FILES;; esac
            case $choice in ??1) real=-DCMHA_DOUBLE;; esac
            case $1$code in arm*IMPL*|arm*STATIC) files=-DCMHA_NO_FILES without=-DCMHA_NO_CBLAS;; esac
            # shellcheck disable=SC2086
            try "a file that includes it" $1 $FLAGS $blas $without $code $trains $files $real -fsyntax-only "$source"
        done
    done <<'END'
-DPLAIN 000 111
-DCMHA_LINKED 001 110
-DCMHA_IMPLEMENTATION 010 101
-DCMHA_STATIC 011 100
END
}
for c in gcc g++ clang clang++ arm-none-eabi-gcc; do if has $c; then silent $c; else skip "$c is not installed"; fi; done

# ---------------------------------------------------------------------------------------------------------------- another BLAS
# asks FOLDER OPTION...: the functions of a BLAS that the code with these options must find, into FOLDER/asks
asks() {
    to=$1; shift; mkdir -p "$to"
    # shellcheck disable=SC2086
    $CC -I. "$@" -O1 $openmp -DCMHA_NO_DISPATCH -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$to/cmha.o" >"$W/log" 2>&1 &&
        nm -u "$to/cmha.o" | awk '$1 == "U" { print $2 }' | sed 's/^_cblas/cblas/' | grep '^cblas_' | sort > "$to/asks"
}
# documented LETTER FOLDER: README.md names just these
documented() {
    if grep -o "\`cblas_$1[a-z]*\`" README.md | tr -d '\`' | sort -u | diff - "$2/asks" > "$W/log"; then ok; else bad "README.md names other functions of a BLAS"; fi
}
case $CMHA_CFLAGS in *-fopenmp*) openmp=-fopenmp;; *) openmp=;; esac
case $CMHA_CFLAGS in *NO_CBLAS*) skip "there is no CBLAS";; *)
    # shellcheck disable=SC2086
    for l in s d; do
        real=; [ $l = d ] && real=-DCMHA_DOUBLE
        if asks "$W/$l" $blas $real; then documented $l "$W/$l"; else bad "the functions of a BLAS"; fi
    done;;
esac
# BLIS in place of OpenBLAS: links, computes the same, learns
blis=$(for d in /usr/include/*/blis-* /usr/include/blis /usr/local/include/blis; do if [ -f "$d/cblas.h" ]; then echo "$d"; break; fi; done)
if [ -n "$blis" ] && echo 'int main(void) { return 0; }' | $CC -x c - -lblis -o "$W/blis" 2>/dev/null; then
    if asks "$W/blis.d" -isystem "$blis"; then ok; else bad "the code with BLIS"; fi
    # with_blis NAME SOURCE: compiles a program, which must then run with BLIS
    with_blis() {
        # shellcheck disable=SC2086
        runs "$1 with BLIS" $CC -I. -O1 $openmp $3 "$2" "$W/blis.d/cmha.o" -o "$W/blis.d/$1" -lblis -lm &&
            nm -u "$W/blis.d/$1" | grep -q cblas_sgemm || bad "$1 does not ask BLIS"
    }
    with_blis conformance tests/conformance.c -DCMHA_TEST_LINKED
    runs "conformance with BLIS" "$W/blis.d/conformance" --strict tests/cases
    with_blis train_tiny examples/train_tiny.c -DCMHA_LINKED
    runs "train_tiny with BLIS" sh -c "$W/blis.d/train_tiny --steps 40 --out $W/blis.d/tiny.safetensors --csv $W/blis.d/losses.csv README.md &&
        awk -F, 'NR == 2 { first = \$2 } NR > 2 && \$2 > 0 { last = \$2 } END { exit !(last > 0 && last < first - 0.5) }' $W/blis.d/losses.csv"
else skip "BLIS is not installed"; fi

# --------------------------------------------------------------------------------------------------- no exit, print, or globals
# (not grep -w, for which "exit(1" is no word: what follows the bracket is a letter)
prints='(^|[^A-Za-z0-9_])(_?exit|_Exit|abort|assert|perror|printf|puts|putchar|fprintf *\( *std(out|err)) *[(,]'
if sed '1,/#ifndef CMHA_H/d' cmha.h | grep -nE "$prints" > "$W/log"; then bad "the library prints or exits"; else ok; fi
# the test itself must be able to fail
calls='exit(1); _exit(2); abort(); assert(x); (void)printf("x"); fprintf(stderr, "x"); puts("x"); perror(x);'
echo "$calls" | tr ';' '\n' | sed '/^$/d' | grep -vE "$prints" > "$W/log"
if [ -s "$W/log" ]; then bad "a call that prints or exits goes unnoticed"; else ok; fi
# and what the compiler has made of it
nm -u "$W/whole.o" | awk '{ print $NF }' | sed 's/^__\(.*\)_chk$/\1/' |
    grep -xE '_?exit|_Exit|abort|__assert.*|perror|v?f?printf|f?puts|f?putc|putchar|fwrite|std(out|err)' > "$W/log"
if [ -s "$W/log" ]; then bad "the library's object prints or exits"; else ok; fi
# writable data of the object: only which instructions were chosen
nm "$W/whole.o" | awk '$2 ~ /^[bBdDC]$/ && $3 != "cmha__chosen" { print $3 }' > "$W/log"
if [ -s "$W/log" ]; then bad "the library has global state"; else ok; fi

# --------------------------------------------------------------------------------------------------------------- documentation
# program NAME LABEL: compiles $W/NAME.c as README.md says (but for -O1: in a third of the time) and runs it where cmha.h lies
program() {
    mkdir -p "$W/run"; cp cmha.h "$W/run/"
    # shellcheck disable=SC2086
    if $CC $CMHA_CFLAGS -O1 -Wall -Wextra -I. "$W/$1.c" -o "$W/run/$1" $CMHA_LIBS >"$W/log" 2>&1 && [ ! -s "$W/log" ] &&
        (cd "$W/run" && timeout 120 "./$1") >"$W/out" 2>&1 && [ -s "$W/out" ]; then ok
    else cat "$W/out" >> "$W/log" 2>/dev/null; bad "$2 does not compile without warnings, run, and print"; fi
}
awk '/#define CMHA_IMPLEMENTATION .*in exactly one/ { on = 1 }
    on { print substr($0, 8) }
    on && /^       }$/ { exit }' cmha.h > "$W/manual.c"
if grep -q 'int main' "$W/manual.c"; then program manual "the manual's program"; else bad "the manual has no program"; fi
if [ -f README.md ]; then
    awk -v dir="$W" '/^```c$/ { n++; file = dir "/readme" n ".c"; on = 1; next } /^```/ { on = 0 } on { print > file }' README.md
    found=0
    for f in "$W"/readme*.c; do
        [ -f "$f" ] && grep -q 'int main' "$f" || continue
        found=$((found + 1)); name=$(basename "$f" .c); program "$name" "README.md, code block ${name#readme}"
    done
    if [ $found -gt 0 ]; then ok; else bad "README.md has no complete program"; fi
    # it is read on a screen: its lines fit, but for tables
    LC_ALL=C tr -d '\200-\277' < README.md | awk '!/^\|/ && length($0) > 110 { print FNR ": " length($0) " columns" }' > "$W/log"
    if [ -s "$W/log" ]; then bad "README.md has lines of over 110 columns"; else ok; fi
    # every link from page to page leads to a file and, behind a #, to a heading
    LC_ALL=C awk 'FNR == 1 { folder = FILENAME; if (!sub(/[^\/]*$/, "", folder)) folder = "" }
        /^#+ / {
            anchor = tolower($0); sub(/^#+ /, "", anchor); gsub(/[^a-z0-9 _\200-\377-]/, "", anchor); gsub(/ /, "-", anchor)
            headings[FILENAME "#" anchor] = 1
        }
        { rest = $0; while (match(rest, /\]\([^) ]*\)/)) {
            link = substr(rest, RSTART + 2, RLENGTH - 3); rest = substr(rest, RSTART + RLENGTH)
            if (link !~ /:/) links[FILENAME ": " link] = link ~ /^#/ ? FILENAME link : folder link } }
        END { for (l in links) {
            path = links[l]; while (sub(/[a-z]+\/\.\.\//, "", path)) continue
            file = path; sub(/#.*/, "", file)
            if ((getline line < file) < 0 || (path ~ /#/ && !(path in headings))) print l; else close(file) } }' \
        README.md examples/README.md examples/PAPERS.md bench/README.md bench/evidence/*.md \
        bench/evidence/results/*.md tests/README.md > "$W/log" 2>&1
    if [ -s "$W/log" ]; then bad "links that lead nowhere"; else ok; fi
else skip "there is no README.md"; fi
# calls go up, to rooms that come before
if LC_ALL=C awk -f tests/rooms.awk cmha.h cmha.h > "$W/log"; then ok; else bad "a call of a later room" 60; fi
# the Manual's map from equations to functions
if awk -f tests/equations.awk cmha.h > "$W/log"; then ok; else bad "the Manual's map of equations" 60; fi
# an example as its first lines say to compile it
# shellcheck disable=SC2086
runs "examples/train_tiny.c compiles alone" sh -c "$CC $blas examples/train_tiny.c -I. -o $W/train_tiny $CMHA_LIBS && $W/train_tiny --help"

# every struct that is defined in public has its size by name
{
    printf '#include "cmha.h"\n#include <stdio.h>\nint main(void) {\n    size_t wrong = cmha_sizeof("cmha_none") + cmha_sizeof(NULL);\n'
    sed '/^#if (((defined(CMHA_IMPLEMENTATION)/,$d' cmha.h | grep -oE '^(typedef )?struct cmha_[a-z]\w* \{' | grep -oE 'cmha_\w+' |
        sort -u | while read -r name; do
        echo "    if (cmha_sizeof(\"$name\") != sizeof(struct $name)) wrong++, puts(\"$name\");"
    done
    printf '    return wrong != 0;\n}\n'
} > "$W/sizes.c"
if [ "$(grep -c sizeof "$W/sizes.c")" -lt 50 ]; then cp "$W/sizes.c" "$W/log"; bad "structs are not found in cmha.h"; else ok; fi
# shellcheck disable=SC2086
runs "cmha_sizeof knows every struct" sh -c "$CC $blas -I. $W/sizes.c $B/cmha.o -o $W/sizes $CMHA_LIBS && $W/sizes"

# ----------------------------------------------------------------------------------------------------------------------- sizes
lines() { if [ "$(wc -l < "$1")" -le "$2" ]; then ok; else : > "$W/log"; bad "$1 has more than $2 lines"; fi; }
lines examples/train_tiny.c 320
lines examples/block.c 60
lines examples/own_attention.c 90
lines README.md 200
# 765,000 is the aim: what of it structure gives was taken; options of today's models, four bits, streams and products of small
# weights came on top
if [ "$(wc -c < cmha.h)" -le 915000 ]; then ok; else wc -c cmha.h > "$W/log"; bad "cmha.h is over 915 KB"; fi
# characters are counted: awk counts bytes, of which those above 0x7F that continue one are taken away
for f in cmha.h examples/*.c examples/*/*.[ch] bench/*.[ch] bench/evidence/*.[ch] tests/*.[ch] tests/*/*.[ch]; do
    LC_ALL=C tr -d '\200-\277' < "$f" | LC_ALL=C awk -v f="$f" 'length($0) > 110 { print f ":" FNR ": " length($0) " columns" }'
done > "$W/log"
if [ -s "$W/log" ]; then bad "$(wc -l < "$W/log") lines of C are over 110 columns"; else ok; fi
# how the code is written: guards, nested ?:, parameters, lengths
if LC_ALL=C awk -f tests/shape.awk cmha.h > "$W/log"; then ok; else bad "cmha.h's code has more of something than tests/shape.awk allows"; fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
