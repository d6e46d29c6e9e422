#!/bin/sh
# bench/peers/pytorch.sh [WORK...]: build/bench and PyTorch do the same work in turns. WORK: attention tiny paper literal; all.
# PYTHON=python3 has torch (Debian: apt-get install python3-torch). Its BLAS may be an OpenBLAS that takes an old kernel, which
# build/bench corrects for itself and says so: set OPENBLAS_CORETYPE, e.g. SkylakeX, so that PyTorch has the right one too.
# OPENMP_BLAS: see openmp_blas.sh. ROUNDS=5.
cd "$(dirname "$0")/../.." || exit 2
PYTHON=${PYTHON:-python3} BENCH=${BENCH:-build/bench} ROUNDS=${ROUNDS:-5}
[ -x "$BENCH" ] || { echo "pytorch.sh: make $BENCH first" >&2; exit 2; }
"$PYTHON" -c 'import torch' 2> /dev/null || { echo "pytorch.sh: $PYTHON has no torch" >&2; exit 2; }
. bench/peers/openmp_blas.sh
torch="$TORCH bench/peers/pytorch.py"
turns() { "$PYTHON" bench/peers/turns.py --memory --rounds "$ROUNDS" "$@" || exit 1; }
[ $# -gt 0 ] || set -- attention tiny paper literal
for work; do
    case $work in
    attention) turns --what "attention, 8 heads of 64, 1 x 2048, forward and backward" \
        "cmha.h, dot=$BENCH --serve attention/2048/dot" \
        "cmha.h, cmha=$BENCH --serve attention/2048/cmha" "PyTorch, dot=$torch attention/2048";;
    tiny) turns --what "train step, tiny, 16 x 128" --count 2048 "cmha.h, cmha=$BENCH --serve train/tiny/cmha" \
        "PyTorch, cmha factorised=$torch train/tiny/cmha" "PyTorch, plain=$torch train/tiny/plain";;
    paper) turns --what "train step, paper, 8 x 512" --count 4096 "cmha.h, cmha=$BENCH --serve train/paper/cmha" \
        "PyTorch, cmha factorised=$torch train/paper/cmha" "PyTorch, plain=$torch train/paper/plain";;
    literal) turns --what "train step, paper, 1 x 512, eq 8 as written in PyTorch" --count 512 \
        "cmha.h, cmha=$BENCH --serve train/paper/cmha,batch=1" "PyTorch, n^2 d cosines=$torch train/paper/literal/1";;
    *) echo "pytorch.sh: no such work: $work (attention tiny paper literal)" >&2; exit 2;;
    esac
done
