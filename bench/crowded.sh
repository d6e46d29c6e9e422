#!/bin/sh
# bench/crowded.sh [BUSY]: what a second thread is worth while BUSY other programs (1) keep a core busy each. Tokens and training steps
# by one thread and by one for each core, in turns: the median of the rounds and their range. ROUNDS=25, BENCH=build/bench.
cd "$(dirname "$0")/.." || exit 2
PYTHON=${PYTHON:-python3} BENCH=${BENCH:-build/bench} ROUNDS=${ROUNDS:-25}
[ -x "$BENCH" ] || { echo "crowded.sh: make $BENCH first" >&2; exit 2; }
case ${1:-1} in *[!0-9]*) echo "crowded.sh: $1 is no number of programs" >&2; exit 2;; esac
loops=
# shellcheck disable=SC2086 # several numbers
trap '[ -z "$loops" ] || kill $loops' EXIT
trap 'exit 1' INT TERM
i=0
while [ $i -lt "${1:-1}" ]; do
    (while :; do :; done) &
    loops="$loops $!" i=$((i + 1))
done
for work in decode/512/cmha decode/512/cmha/int8/bf16 train/tiny/cmha; do
    "$PYTHON" bench/peers/turns.py --rounds "$ROUNDS" --what "$work, beside $i busy programs" \
        "one thread=$BENCH --threads 1 --serve $work" "all threads=$BENCH --serve $work" || exit 1
done
