#!/bin/sh
# bench/peers/llamacpp.sh BUILD GGUF [WORK...]: build/bench and llama.cpp (https://github.com/ggml-org/llama.cpp) read and write
# in turns, in float32 and with weights of 8 bits (int8, Q8_0), llama.cpp with a cache of 16 bits, with and without its flash
# attention. BUILD is the folder of a build of it, with bin/llama-bench; GGUF is its folder gguf-py, whose Python package writes
# the model (PYTHON=python3 has numpy). WORK: prefill/512 prefill/2048 decode/512 decode/2048; all. OMP_NUM_THREADS is llama.cpp's
# number of threads. ROUNDS=5.
if [ ! -x "$1/bin/llama-bench" ] || [ ! -d "$2/gguf" ]; then sed -n 's/^# //p' "$0" >&2; exit 2; fi
LLAMA=$(cd "$1/bin" && pwd)/llama-bench GGUF=$(cd "$2" && pwd); shift 2
cd "$(dirname "$0")/../.." || exit 2
PYTHON=${PYTHON:-python3} BENCH=${BENCH:-build/bench} ROUNDS=${ROUNDS:-5}
[ -x "$BENCH" ] || { echo "llamacpp.sh: make $BENCH first" >&2; exit 2; }
F=$(mktemp -d) || exit 2
trap 'rm -rf "$F"' EXIT
trap 'exit 1' INT TERM
for type in F32 Q8_0; do "$PYTHON" bench/peers/llamacpp.py model "$GGUF" "$F/$type.gguf" "$type" || exit 1; done
[ $# -gt 0 ] || set -- prefill/512 prefill/2048 decode/512 decode/2048
peer() { echo "$PYTHON bench/peers/llamacpp.py serve $LLAMA $F/$1.gguf $2 -ctk f16 -ctv f16 -fa $3"; }
# a file with packed weights alone, from which decoding takes the memory that it needs
GENERATE=$(dirname "$BENCH")/generate
packed=
if [ -x "$GENERATE" ] && "$GENERATE" --help | grep -q -- --pack; then
    "$BENCH" --save "$F/rope" --serve decode/16/rope < /dev/null > "$F/out" || exit 1
    "$GENERATE" --pack int8 "$F/packed" "$F/rope" > "$F/out" || exit 1
    packed="cmha.h, rope, the same, packed file=$BENCH --model $F/packed --serve"
fi
turns() { "$PYTHON" bench/peers/turns.py --memory --rounds "$ROUNDS" "$@" || exit 1; }
for work; do
    case $work in
    prefill/*) count=${work#*/};;
    decode/*) count=1;;
    *) echo "llamacpp.sh: no such work: $work (prefill/N decode/N)" >&2; exit 2;;
    esac
    turns --what "$work, float32" --count "$count" "cmha.h, rope=$BENCH --serve $work/rope" \
        "llama.cpp=$(peer F32 "$work" 0)" "llama.cpp, flash attention=$(peer F32 "$work" 1)" \
        "cmha.h, rope, bf16 cache=$BENCH --serve $work/rope/float/bf16" "cmha.h, cmha=$BENCH --serve $work/cmha"
    turns --what "$work, 8 bits" --count "$count" "cmha.h, rope, bf16 cache=$BENCH --serve $work/rope/int8/bf16" \
        "llama.cpp=$(peer Q8_0 "$work" 0)" "llama.cpp, flash attention=$(peer Q8_0 "$work" 1)" \
        "cmha.h, cmha, bf16 cache=$BENCH --serve $work/cmha/int8/bf16" ${packed:+"$packed $work/rope/float/bf16"}
done
