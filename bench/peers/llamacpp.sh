#!/bin/sh
# bench/peers/llamacpp.sh LIBRARIES [WORK...]: build/bench and llama.cpp (https://github.com/ggml-org/llama.cpp) read and write in
# turns, in float32 and with weights of 8 bits (int8, Q8_0) and of 4 bits (int4, Q4_0; q4_k, Q4_K: the same numbers). llama.cpp runs with
# and without its flash attention, with caches of 16 bits and of 8 bits (Q8_0), and threads of its own that last. LIBRARIES is a
# folder of its libraries, as npm has them:
#     npm pack @node-llama-cpp/linux-x64 && tar xzf node-llama-cpp-linux-x64-*.tgz # they are in package/bins/linux-x64
# build/convert writes the model for it, of the size of the paper preset in Llama's form.
# bench/peers/llamacpp.sh BUILD GGUF [WORK...]: likewise without 4 bits, where BUILD is the folder of a build of it, with
# bin/llama-bench, and GGUF its folder gguf-py, whose Python package writes the model (PYTHON=python3 has numpy).
# WORK: prefill/512 prefill/2048 decode/512 decode/2048; all. OMP_NUM_THREADS is llama.cpp's number of threads. ROUNDS=5.
# train/512: steps of AdamW on one sequence, of LIBRARIES, and of two layers: ggml's optimiser has no room for the graph of eight.
FORM=rope
case $(echo "$1"/libllama.*so) in
*'*'*) [ -x "$1/bin/llama-bench" ] && [ -d "$2/gguf" ] || { sed -n 's/^# //p' "$0" >&2; exit 2; }
    LLAMA=$(cd "$1/bin" && pwd)/llama-bench GGUF=$(cd "$2" && pwd); shift 2;;
*) LLAMA=$(cd "$1" && pwd) GGUF= FORM=rope,norm=rmsnorm,activation=swiglu,ffn_bias=0; shift;;
esac
cd "$(dirname "$0")/../.." || exit 2
PYTHON=${PYTHON:-python3} BENCH=${BENCH:-build/bench} ROUNDS=${ROUNDS:-5}
[ -x "$BENCH" ] || { echo "llamacpp.sh: make $BENCH first" >&2; exit 2; }
F=$(mktemp -d) || exit 2
trap 'rm -rf "$F"' EXIT
trap 'exit 1' INT TERM
peers="$PYTHON bench/peers/llamacpp.py"
GENERATE=$(dirname "$BENCH")/generate CONVERT=$(dirname "$BENCH")/convert
# files with packed weights alone, from which decoding takes the memory that it needs
"$BENCH" --save "$F/rope" --serve "decode/16/$FORM" < /dev/null > "$F/out" || exit 1
packed=
if [ -n "$GGUF" ]; then
    for type in F32 Q8_0; do $peers model "$GGUF" "$F/$type.gguf" "$type" || exit 1; done
    if [ -x "$GENERATE" ] && "$GENERATE" --help | grep -q -- --pack; then
        "$GENERATE" --pack int8 "$F/packed" "$F/rope" > "$F/out" || exit 1
        packed="cmha.h, rope, the same, packed file=$BENCH --model $F/packed --serve"
    fi
else
    [ -x "$CONVERT" ] || { echo "llamacpp.sh: make $CONVERT first" >&2; exit 2; }
    "$CONVERT" --to gguf "$F/rope" "$F/F32.gguf" > "$F/out" || exit 1
    for type in Q8_0 Q4_0 Q4_K; do $peers quantise "$LLAMA" "$F/F32.gguf" "$F/$type.gguf" "$type" || exit 1; done
    "$CONVERT" --tokenizer none --type int8 "$F/Q8_0.gguf" "$F/packed" > "$F/out" || exit 1
    "$CONVERT" --tokenizer none --type int4 "$F/Q4_0.gguf" "$F/packed4" > "$F/out" || exit 1
    "$CONVERT" --tokenizer none --type q4_k "$F/Q4_K.gguf" "$F/packedk" > "$F/out" || exit 1
    packed="cmha.h, rope, the same, packed file=$BENCH --model $F/packed --serve"
fi
peer() { echo "$peers serve $LLAMA $F/$1.gguf $2 -ctk ${4:-f16} -ctv ${4:-f16} -fa $3"; }
turns() { "$PYTHON" bench/peers/turns.py --memory --rounds "$ROUNDS" "$@" || exit 1; }
[ $# -gt 0 ] || set -- prefill/512 prefill/2048 decode/512 decode/2048
for work; do
    case $work in
    prefill/*) count=${work#*/};;
    train/*)
        count=${work#*/} two=$FORM,n_layers=2
        [ -z "$GGUF" ] || { echo "llamacpp.sh: only LIBRARIES train" >&2; exit 2; }
        "$BENCH" --save "$F/two" --serve "decode/16/$two" < /dev/null > "$F/out" || exit 1
        "$CONVERT" --to gguf "$F/two" "$F/two.gguf" > "$F/out" || exit 1
        turns --what "train step, two layers, 1 x $count" --count "$count" \
            "cmha.h, rope=$BENCH --serve train/paper/$two,batch=1,length=$count,dropout=0" \
            "ggml's optimiser=$(peer two "$work" 0 f32)"
        continue;;
    decode/*) count=1;;
    *) echo "llamacpp.sh: no such work: $work (prefill/N decode/N train/N)" >&2; exit 2;;
    esac
    turns --what "$work, float32" --count "$count" "cmha.h, rope=$BENCH --serve $work/$FORM" \
        "llama.cpp=$(peer F32 "$work" 0)" "llama.cpp, flash attention=$(peer F32 "$work" 1)" \
        "cmha.h, rope, bf16 cache=$BENCH --serve $work/$FORM/float/bf16" "cmha.h, cmha=$BENCH --serve $work/cmha"
    turns --what "$work, 8 bits" --count "$count" "cmha.h, rope, bf16 cache=$BENCH --serve $work/$FORM/int8/bf16" \
        "llama.cpp=$(peer Q8_0 "$work" 0)" "llama.cpp, flash attention=$(peer Q8_0 "$work" 1)" \
        "cmha.h, cmha, bf16 cache=$BENCH --serve $work/cmha/int8/bf16" ${packed:+"$packed $work/$FORM/float/bf16"}
    [ -z "$GGUF" ] || continue
    turns --what "$work, 4 bits" --count "$count" \
        "cmha.h, rope, bf16 cache=$BENCH --model $F/packed4 --serve $work/$FORM/float/bf16" \
        "cmha.h, rope, rounded rows=$BENCH --serve $work/$FORM/int4r/bf16" \
        "llama.cpp, Q4_0=$(peer Q4_0 "$work" 0)" "llama.cpp, Q4_0, flash attention=$(peer Q4_0 "$work" 1)" \
        "llama.cpp, Q4_0, cache of Q8_0=$(peer Q4_0 "$work" 1 q8_0)" "llama.cpp, Q4_K=$(peer Q4_K "$work" 0)" \
        "cmha.h, q4_k, bf16 cache=$BENCH --model $F/packedk --serve $work/$FORM/float/bf16" \
        "cmha.h, q4_k, rounded rows=$BENCH --serve $work/$FORM/q4_kr/bf16" \
        "llama.cpp, Q4_K, flash attention=$(peer Q4_K "$work" 1)"
done
