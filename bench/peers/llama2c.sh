#!/bin/sh
# bench/peers/llama2c.sh RUN [CONTEXT...]: build/bench and llama2.c's program RUN (https://github.com/karpathy/llama2.c, built with
# OpenMP) write tokens in turns; CONTEXT 512 and 2048. OMP_NUM_THREADS is RUN's number of threads. ROUNDS=5.
[ -x "$1" ] || { sed -n 's/^# //p' "$0" >&2; exit 2; }
RUN=$(cd "$(dirname "$1")" && pwd)/$(basename "$1"); shift
cd "$(dirname "$0")/../.." || exit 2
PYTHON=${PYTHON:-python3} BENCH=${BENCH:-build/bench} ROUNDS=${ROUNDS:-5}
[ -x "$BENCH" ] || { echo "llama2c.sh: make $BENCH first" >&2; exit 2; }
[ $# -gt 0 ] || set -- 512 2048
for n; do
    "$PYTHON" bench/peers/turns.py --rounds "$ROUNDS" --count 1 --what "decode, float32, one token at context $n" \
        "cmha.h, rope=$BENCH --serve decode/$n/rope" "llama2.c=$PYTHON bench/peers/llama2c.py $RUN $n" \
        "cmha.h, cmha=$BENCH --serve decode/$n/cmha" || exit 1
done
