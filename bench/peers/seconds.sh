#!/bin/sh
# bench/peers/seconds.sh TEXT: seconds of training until the loss on TEXT's held-out tenth is so low: train_tiny with the presets
# tiny (AdamW) and fast (Muon), and nanoGPT's CPU recipe in PyTorch on characters, in turns, two threads each. A character of a text in
# ASCII is a byte, so the losses compare. ROUNDS=3, each with a seed of its own; LOSSES="1.65 1.56"; PYTHON=python3 has torch.
cd "$(dirname "$0")/../.." || exit 2
PYTHON=${PYTHON:-python3} ROUNDS=${ROUNDS:-3} LOSSES=${LOSSES:-1.65 1.56}
[ -r "$1" ] || { echo "usage: bench/peers/seconds.sh TEXT" >&2; exit 2; }
[ -x build/train_tiny ] || { echo "seconds.sh: make build/train_tiny first" >&2; exit 2; }
"$PYTHON" -c 'import torch' 2> /dev/null || { echo "seconds.sh: $PYTHON has no torch" >&2; exit 2; }
. bench/peers/openmp_blas.sh
F=$(mktemp -d) || exit 2
trap 'rm -rf "$F"' EXIT
# step, seconds of training so far, validation loss: the rows of train_tiny's CSV that have one
ours() {
    build/train_tiny --preset "$1" --seed "$2" --threads 2 --set eval_every=25 --quiet --out "$F/out.safetensors" --csv "$F/csv" "$3" \
        > "$F/log" 2>&1 || { cat "$F/log" >&2; exit 1; }
    tokens=$(build/train_tiny --preset "$1" --help | awk '$1 == "batch" { b = $2 } $1 == "length" { l = $2 } END { print b * l }')
    awk -F, -v tokens="$tokens" 'NR > 1 { spent += tokens / $6 } NR > 1 && $3 != "" { print $1 "," spent "," $3 }' "$F/csv"
}
# the first row at or below each loss, and the lowest: NAME ROUND
told() {
    awk -F, -v name="$1" -v seed="$2" -v losses="$LOSSES" '$1 + 0 > 0 {
            if (best == "" || $3 < best) { best = $3; at = $2; step = $1 }
            n = split(losses, limit, " ")
            for (i = 1; i <= n; i++) if ($3 <= limit[i] && !(i in reached)) reached[i] = sprintf("%.1f s (step %d)", $2, $1)
        }
        END {
            printf "%-20s seed %d", name, seed
            n = split(losses, limit, " ")
            for (i = 1; i <= n; i++) printf "  %s: %s", limit[i], i in reached ? reached[i] : "never"
            printf "  lowest %.4f nats, %.3f bits a character, at %.1f s (step %d)\n", best, best / log(2), at, step
        }'
}
round=1
while [ "$round" -le "$ROUNDS" ]; do
    for preset in tiny fast; do
        ours $preset "$round" "$1" > "$F/rows" || exit 1 # in a pipe its end would not be seen
        told "train_tiny, $preset" "$round" < "$F/rows"
        sleep 0.1
    done
    # shellcheck disable=SC2086 # TORCH is several words
    OMP_NUM_THREADS=2 $TORCH bench/peers/nanogpt.py "$1" 2 2000 "$round" > "$F/rows" || exit 1
    told "nanoGPT, PyTorch" "$round" < "$F/rows"
    sleep 0.1
    round=$((round + 1))
done
