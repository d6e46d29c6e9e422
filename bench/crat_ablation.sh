#!/bin/sh
# bench/crat_ablation.sh TEXT [STEPS [SEEDS [MODEL]]]: the rows of CRAT's Table 6 that its text defines, and the plain residual, which
# is an option of this library and no row of that table; each is one option away from the whole model. build/rag learns to find the passages of TEXT (a line each) once; then for every row and seed it trains a decoder
# with those passages at hand and reports nats per token on held-out ones. Prints a table of means, and the spread over the seeds.
# MODEL: an encoder that build/rag --save MODEL --read 0 has left, instead of learning one, which takes minutes.
TEXT=$1 STEPS=${2:-100} SEEDS=${3:-3} MODEL=$4
[ -r "$TEXT" ] || { echo "usage: bench/crat_ablation.sh TEXT [STEPS [SEEDS [MODEL]]]" >&2; exit 2; }
RAG=${RAG:-build/rag}
F=$(mktemp -d) || exit 2
trap 'rm -rf "$F"' EXIT
trap 'exit 1' INT TERM
[ -n "$MODEL" ] || echo "crat_ablation.sh: first an encoder learns to find passages, some minutes without a word" >&2
[ -n "$MODEL" ] || { MODEL=$F/m; "$RAG" --quiet --text "$TEXT" --read 0 --save "$MODEL" > "$F/log" 2>&1; } || { cat "$F/log" >&2; exit 1; }
printf '%-40s %10s %10s   (of %d seeds, %d steps)\n' 'nats per token' mean spread "$SEEDS" "$STEPS"
row() { # LABEL OPTION...
    label=$1; shift
    : > "$F/losses"
    seed=1
    while [ "$seed" -le "$SEEDS" ]; do
        "$RAG" --quiet --text "$TEXT" --model "$MODEL" --length 64 --read "$STEPS" --seed "$seed" "$@" > "$F/log" 2>&1 ||
            { cat "$F/log" >&2; exit 1; }
        sed -n 's/.*nats per token: \([0-9.]*\) with the base.*/\1/p' "$F/log" >> "$F/losses"
        seed=$((seed + 1))
    done
    awk -v label="$label" '{ s += $1; q += $1 * $1 } END { m = s / NR; v = q / NR - m * m
        if (v < 0) v = 0
        printf "%-40s %10.4f %10.4f\n", label, m, sqrt(v * NR / (NR > 1 ? NR - 1 : 1)) }' "$F/losses"
}
row "the whole model" --set decoder.n_layers=2
row "real only: family=real" --set decoder.family=real
row "dot product: crat_attention=dot" --set decoder.crat_attention=dot
row "no window: irw_layers=0" --set decoder.irw_layers=0
row "single frequency: pe_terms=1" --set decoder.pe_terms=1
row "no rotation: state_rotation=0" --set decoder.state_rotation=0
row "plain layer norm: complex_norm=split" --set decoder.complex_norm=split
row "one dense layer: experts=0" --set decoder.experts=0
row "plain residual: complex_residual=none" --set decoder.complex_residual=none
