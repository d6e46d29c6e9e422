#!/bin/sh
# bench/peers/llmc.sh PROGRAM [BATCH LENGTH]: build/bench and llm.c's program for CPUs, train_gpt2 (https://github.com/karpathy/llm.c,
# built with OpenMP), do training steps in turns. BATCH and LENGTH are the B and T in PROGRAM's source, 4 and 64 if they were not
# edited. OMP_NUM_THREADS is PROGRAM's number of threads. ROUNDS=5.
[ -x "$1" ] || { sed -n 's/^# //p' "$0" >&2; exit 2; }
B=${2:-4} T=${3:-64}
PROGRAM=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../.." || exit 2
PYTHON=${PYTHON:-python3} BENCH=${BENCH:-build/bench} ROUNDS=${ROUNDS:-5}
[ -x "$BENCH" ] || { echo "llmc.sh: make $BENCH first" >&2; exit 2; }
same=d_ff=2048,batch=$B,length=$T,dropout=0,attention_dropout=0
"$PYTHON" bench/peers/turns.py --rounds "$ROUNDS" --count $((B * T)) --what "train step, 8 layers, d 512, d_ff 2048, $B x $T" \
    "cmha.h, dot+learned=$BENCH --serve train/paper/dot+learned,$same,max_positions=$T" \
    "llm.c=$PYTHON bench/peers/llmc.py $PROGRAM $T" \
    "cmha.h, cmha=$BENCH --serve train/paper/cmha,$same"
