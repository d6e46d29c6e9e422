#!/bin/sh
# bench/compile_lines.sh [NAME...]: what a program pays for how it compiles the header. Builds the bench with each of the lines
# below in a folder of its own; then all take turns with training steps. Prints for each the CPU seconds of compiling the header,
# the KiB of its code, and how many times as long a step of the presets tiny and paper takes as with the first: the median of the
# rounds and their range. NAME: some of the lines; the first is always there. ROUNDS=5, CC=cc, MARCH=-march=native,
# PAPER=train/paper/cmha with 2 of its 8 sequences, for the sake of time, BLAS_CFLAGS and BLAS_LIBS where pkg-config does not know
# the BLAS.
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-python3} CC=${CC:-cc} ROUNDS=${ROUNDS:-5} PAPER=${PAPER:-train/paper/cmha,batch=2} MARCH=${MARCH:--march=native}
BLAS_CFLAGS=${BLAS_CFLAGS-$(pkg-config --cflags openblas 2> /dev/null)}
BLAS_LIBS=${BLAS_LIBS-$(pkg-config --libs openblas 2> /dev/null || echo -lopenblas)}
F=$(mktemp -d) || exit 2
trap 'rm -rf "$F"' EXIT
trap 'exit 1' INT TERM
lines() { # NAME|OPTIONS of compiling the header
    cat <<- END
	native|-O3 $MARCH
	O2|-O2
	O3|-O3
	no-blas|-O3 $MARCH -DCMHA_NO_CBLAS
	O2-no-blas|-O2 -DCMHA_NO_CBLAS
	no-simd|-O3 $MARCH -DCMHA_NO_SIMD
	END
    # without the choice at run time: what an older header did, and what this costs
    if grep -q CMHA_NO_DISPATCH cmha.h; then echo "O2-no-dispatch|-O2 -DCMHA_NO_DISPATCH"; fi
}
wanted() { [ "$1" = native ] || [ -z "$names" ] || case " $names " in *" $1 "*) true;; *) false;; esac; }
names=$*
for name; do
    lines | grep -q "^$name|" && continue
    echo "compile_lines.sh: no such line: $name; there are $(lines | cut -d'|' -f1 | xargs)" >&2
    exit 2
done
lines | while IFS='|' read -r name options; do
    wanted "$name" || continue
    mkdir "$F/$name" || exit 1
    # the second line of `times`: of the compiler, user and system, as 0m1.234s
    # shellcheck disable=SC2016,SC2086 # the options are several words
    sh -c '"$@" && times' sh $CC $options -fopenmp $BLAS_CFLAGS -DCMHA_IMPLEMENTATION -x c -c cmha.h -o "$F/$name/cmha.o" \
        > "$F/spent" || exit 1
    seconds=$(awk 'NR == 2 { split($1, u, /[ms]/); split($2, k, /[ms]/); printf "%.1f", 60 * (u[1] + k[1]) + u[2] + k[2] }' \
        "$F/spent")
    libs=$BLAS_LIBS
    case $options in *CMHA_NO_CBLAS*) libs=;; esac
    # shellcheck disable=SC2086
    $CC -O2 -fopenmp -I. bench/*.c "$F/$name/cmha.o" -o "$F/$name/bench" $libs -lm || exit 1
    text=$(size "$F/$name/cmha.o" 2> /dev/null | awk 'NR == 2 { printf "%.0f", $1 / 1024 }')
    echo "$name|$options|$seconds|${text:--}" >> "$F/built"
    echo "$name=$F/$name/bench --serve" >> "$F/commands"
done || exit 1
for work in train/tiny/cmha "$PAPER"; do
    set --
    while read -r command; do set -- "$@" "$command $work"; done < "$F/commands"
    "$PYTHON" bench/peers/turns.py --rounds "$ROUNDS" --what "$work" "$@" > "$F/turns" || exit 1
    # NAME MS - RATIO LEAST to MOST
    awk 'NR > 2 && $2 ~ /^[0-9.]+$/ { print $1 "|" $4 "|" ($5 ? "(" $5 " to " $7 ")" : "") }' "$F/turns" >> "$F/times"
done
printf '%-15s %-40s %8s %6s  %-21s %s\n' "" "compiled with" "seconds" KiB "tiny, times native" "paper, times native"
while IFS='|' read -r name options compile text; do
    tiny=$(sed -n "s/^$name|//p" "$F/times" | sed -n '1s/|/ /p')
    paper=$(sed -n "s/^$name|//p" "$F/times" | sed -n '2s/|/ /p')
    printf '%-15s %-40s %8s %6s  %-21s %s\n' "$name" "$options" "$compile" "$text" "$tiny" "$paper"
done < "$F/built"
