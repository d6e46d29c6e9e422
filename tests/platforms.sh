#!/bin/sh
# tests/platforms.sh NAME [BUILD_DIR]: compiles the library for another platform, in float and in double, without a warning, runs
# tests there (under an emulator where this machine is another), and reads its files here and the files of this machine there.
# NAME: i386 musl aarch64 riscv64 ppc64le s390x windows wasm; and cortex-m, a Cortex-M7 without a system: one model, in a fixed arena. CMHA_PLATFORM=short in the environment: what fits into CI.
# The native programs are BUILD_DIR/portable_files and portable_files-f64. The last line is N passed, N failed.
# shellcheck disable=SC2086,SC2030,SC2031 # flags are lists of words; a subshell has its own folder
name=$1 B=${2:-build}
cd "$(dirname "$0")/.." || exit 2
W=$B/platform-$name
export CMHA_TEST_QUICK=1 GOMP_SPINCOUNT=4000 OMP_NUM_THREADS=2

# cc: the compiler; run: what runs its programs; link: how they are linked; needs: its commands; packages: where Debian has them;
# tests: what runs there (emulation costs 15 to 40 times); other, other_label: flags of another build that passes conformance
WARN='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror'
few='test_base test_files test_text test_complex test_mobius grad_mobius'
more="$few test_identities grad_kernels grad_complex grad_attention"
most="$more test_training test_families grad_model grad_tape"
# all but those that need libraries of the platform's
every=$(for t in tests/test_*.c tests/grad_*.c; do basename "$t" .c; done | grep -v '^test_tokenizer\|_convert$')
run='' link='-static -lm' loose='' threads='' suffix='' other='' other_label=''
case $name in
i386)
    cc='i686-linux-gnu-gcc -msse2 -mfpmath=sse' needs=i686-linux-gnu-gcc packages='gcc-i686-linux-gnu libc6-dev-i386-cross'
    threads=-fopenmp tests=$every
    other='-mno-sse -mfpmath=387' other_label='x87';;
musl)
    cc=musl-gcc needs=musl-gcc packages=musl-tools tests=$every
    other=-std=c99 other_label=C99;;
aarch64)
    cc=aarch64-linux-gnu-gcc run=qemu-aarch64 needs="aarch64-linux-gnu-gcc qemu-aarch64"
    packages='gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user' threads=-fopenmp tests=$more level=-O3
    other=-std=c99 other_label=C99;;
riscv64)
    cc=riscv64-linux-gnu-gcc run=qemu-riscv64 needs="riscv64-linux-gnu-gcc qemu-riscv64"
    packages='gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-user' threads=-fopenmp tests=$more
    other=-std=c99 other_label=C99;;
ppc64le)
    cc=powerpc64le-linux-gnu-gcc run=qemu-ppc64le needs="powerpc64le-linux-gnu-gcc qemu-ppc64le"
    packages='gcc-powerpc64le-linux-gnu libc6-dev-ppc64el-cross qemu-user' threads=-fopenmp
    tests="$few grad_kernels grad_complex" # qemu emulates its floats one by one: test_identities takes over a quarter of an hour
    other=-std=c99 other_label=C99;;
s390x)
    cc=s390x-linux-gnu-gcc run=qemu-s390x needs="s390x-linux-gnu-gcc qemu-s390x"
    packages='gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user' threads=-fopenmp tests=$more
    other=-std=c99 other_label='C99 (floats computed in double)';;
windows)
    # its macros for isinf and isnan are not -Wconversion's friends, and %zu needs a word
    cc=x86_64-w64-mingw32-gcc run=wine needs="x86_64-w64-mingw32-gcc wine" packages='gcc-mingw-w64-x86-64 wine wine64'
    loose='-D__USE_MINGW_ANSI_STDIO=1 -Wno-conversion -Wno-float-conversion' suffix=.exe
    tests=$most
    other=-std=c99 other_label=C99;;
wasm)
    # files are the machine's own (NODERAWFS); SINGLE_FILE, since node's fetch takes no file names
    cc=emcc run=node needs='emcc node' packages='emscripten nodejs' suffix=.js
    link="-sNODERAWFS=1 -sALLOW_MEMORY_GROWTH=1 -sSINGLE_FILE=1 --pre-js $W/environment.js -lm"
    tests=$most
    other='-msimd128' other_label='SIMD';;
cortex-m)
    cc='arm-none-eabi-gcc -mcpu=cortex-m7 -mthumb -mfpu=fpv5-d16 -mfloat-abi=hard' needs='arm-none-eabi-gcc qemu-system-arm'
    packages='gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm'
    for c in $needs; do
        command -v "$c" >/dev/null 2>&1 || { echo "SKIP platform-$name needs $c (Debian, Ubuntu: apt-get install $packages)"
            echo '0 passed, 0 failed, 1 skipped'; exit 0; }
    done;;
*) echo "usage: $0 i386|musl|aarch64|riscv64|ppc64le|s390x|windows|wasm|cortex-m [BUILD_DIR]" >&2; exit 2;;
esac
for c in $needs; do
    command -v "$c" >/dev/null 2>&1 || { echo "platform-$name needs $c (Debian, Ubuntu: apt-get install $packages)" >&2; exit 1; }
done
if [ "$CMHA_PLATFORM" = short ]; then tests=$few other=; fi

rm -rf "$W" && mkdir -p "$W/here" "$W/there" "$W/here-f64" "$W/there-f64" || exit 2
. tests/parts.sh
if [ "$name" = cortex-m ]; then
    quiet() { "$@" > "$W/out" 2>&1 && [ ! -s "$W/out" ]; }
    tiny='-DCMHA_INFERENCE_ONLY -DCMHA_NO_FILES -DCMHA_NO_CBLAS -ffunction-sections -fdata-sections'
    for bits in '' -DCMHA_DOUBLE; do # the header alone
        one "$name: cmha.h compiles without a warning $bits" quiet $cc -std=c99 -Os $WARN $tiny $bits -DCMHA_IMPLEMENTATION -x c -c cmha.h \
            -o "$W/cmha.o"
    done
    : > "$W/out"
    one "the desktop trains a classifier of signals" "$B/device_train" "$W"
    one "and writes it as an array" sh -c "'$B/embed' '$W/model.safetensors' model_file > '$W/model.h'"
    one "$name: the program compiles without a warning" quiet $cc -O2 -Wall -Wextra -Werror $tiny -DON_DEVICE -DARENA_BYTES=262144 \
        -I. -I"$W" tests/device.c -o "$W/device.elf" --specs=rdimon.specs -T tests/device.ld -Wl,--gc-sections -lm
    part "$name: the desktop's predictions" timeout 120 qemu-system-arm -M mps2-an500 -nographic \
        -semihosting-config enable=on,target=native -kernel "$W/device.elf"
    sed 's/^/    /; $d' "$W/log" | tee "$W/sizes"
    arm-none-eabi-size "$W/device.elf" | awk 'NR == 2 {
        printf "    flash %d bytes, of which the model is MODEL; RAM %d bytes, of which 262144 are the arena, and the stack\n", $1 + $2, $2 + $3 }' |
        sed "s/MODEL/$(wc -c < "$W/model.safetensors")/" | tee -a "$W/sizes"
    # flash, model, most memory, stack: what tests/README.md says, but for a hundredth
    said() { sed -n '/^| Cortex-M7/s/,\([0-9][0-9][0-9]\)/\1/gp' tests/README.md | sed 's/.*flash \([0-9]*\) .*which \([0-9]*\) .*memory \([0-9]*\), stack \([0-9]*\) .*/\1 \2 \3 \4/'; }
    now() { sed -n 's/.*most memory \([0-9]*\) bytes, stack \([0-9]*\).*/\1 \2/p; s/.*flash \([0-9]*\) .*model is \([0-9]*\);.*/\1 \2/p' "$W/sizes" |
        tr '\n' ' ' | awk '{ print $3, $4, $1, $2 }'; }
    close() { echo "now $(now)" > "$W/out"; echo "$(said) $(now)" | awk 'NF != 8 { exit 1 } { for (i = 1; i < 5; i++) if (($(i + 4) / $i - 1) ^ 2 > 1e-4) exit 1 }'; }
    one "$name: the sizes are those of tests/README.md" close
    total; exit
fi
if [ "$name" = wasm ]; then # a program sees no environment of its own accord
    echo 'Module["preRun"] = function () { if (typeof ENV !== "undefined") Object.assign(ENV, process.env); };' > "$W/environment.js"
fi
if [ "$name" = windows ]; then # a fresh drive C of wine's, without its questions about Mono and Gecko
    WINEPREFIX=$(cd "$W" && pwd)/wine; WINEDEBUG=-all; WINEDLLOVERRIDES='mscoree=;mshtml='
    export WINEPREFIX WINEDEBUG WINEDLLOVERRIDES
    wine wineboot --init > "$W/wine.log" 2>&1 || { tail -n 5 "$W/wine.log"; exit 1; }
    # One server for all programs: one that is about to end would reset the connection of the next program
    if command -v wineserver > /dev/null 2>&1; then wineserver -w; wineserver -p; trap 'wineserver -k' EXIT; fi
fi

# library OUT FLAG...; program NAME OUT LIBRARY FLAG...: what the compiler says goes to OUT.log
library() { out=$1; shift; $cc ${level:--O2} $threads $WARN -I. -DCMHA_NO_CBLAS "$@" -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$out" > "$out.log" 2>&1; }
program() {
    source=$1 out=$2 object=$3; shift 3
    $cc -O1 $threads $WARN $loose -I. -DCMHA_TEST_LINKED "$@" "tests/$source.c" "$object" -o "$out$suffix" $link > "$out.log" 2>&1
}
# The test of this name in the precision it is meant for, and the two of conformance and portable_files
build() {
    case $1 in
    grad_*) program "$1" "$W/$1" "$W/cmha-f64.o" -DCMHA_DOUBLE;;
    *-f64) program "${1%-f64}" "$W/$1" "$W/cmha-f64.o" -DCMHA_DOUBLE;;
    *) program "$1" "$W/$1" "$W/cmha.o";;
    esac
}
# on LABEL PROGRAM ARGUMENT...: a part that runs over there, if it could be compiled
on() {
    title=$1 built=$W/$2; shift 2
    if [ ! -e "$built$suffix" ]; then cp "$built.log" "$W/out"; one "$title does not compile" false; return; fi
    part "$title" $run "$built$suffix" "$@"
}

library "$W/cmha.o" & library "$W/cmha-f64.o" -DCMHA_DOUBLE & wait
for o in cmha cmha-f64; do
    cp "$W/$o.o.log" "$W/out"; one "$name: $o.o compiles without a warning" [ -e "$W/$o.o" -a ! -s "$W/out" ]
done
second=
for t in conformance conformance-f64 portable_files portable_files-f64 $tests; do
    build "$t" &
    if [ -n "$second" ]; then wait; second=; else second=1; fi
done
wait

for t in $tests; do on "$name: $t" "$t"; done
for t in conformance conformance-f64; do on "$name: $t" $t --strict tests/cases; done
if [ -n "$other" ]; then
    { library "$W/other.o" $other && program conformance "$W/other" "$W/other.o" $other; } || cat "$W"/other*.log
    on "$name: conformance, $other_label" other --strict tests/cases
fi
if [ "$name" = aarch64 ] && [ -n "$other" ]; then # products of bytes have an instruction of their own
    { library "$W/sdot.o" -march=armv8.2-a+dotprod && program test_quantised "$W/sdot" "$W/sdot.o"; } || cat "$W"/sdot*.log
    on "$name: test_quantised, sdot" sdot
fi
mixed() { program portable_files "$W/mixed" "$1" "${2--UCMHA_DOUBLE}" && return 1; grep -q 'compiled_with' "$W/mixed.log"; }
one "$name: a double program does not link with a float library" mixed "$W/cmha.o" -DCMHA_DOUBLE
one "$name: a float program does not link with a double library" mixed "$W/cmha-f64.o"

# ------------------------------------------------------------------------------------------------------------- files both ways
for bits in '' -f64; do
    part "native$bits writes" "$B/portable_files$bits" write "$W/here$bits"
    on "$name$bits writes" portable_files$bits write "$W/there$bits"
done
for bits in '' -f64; do
    for theirs in '' -f64; do
        part "native$bits reads what $name$theirs wrote" "$B/portable_files$bits" check "$W/there$theirs"
        on "$name$bits reads what native$theirs wrote" portable_files$bits check "$W/here$theirs"
    done
done
printf '%-44s %s\n' "$name: $($cc --version | head -n 1)" "${run:+$(command -v $run) }$($run --version 2>/dev/null | head -n 1)"
total
