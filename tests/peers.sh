#!/bin/sh
# tests/peers.sh BUILD_DIR: build/tokens against other people's tokenizers, as far as they are installed:
#     npm install --prefix build/peers gpt-tokenizer js-tiktoken tokenizers @huggingface/tokenizers
#     apt-get install python3-sentencepiece                                      (Debian, Ubuntu)
# A tokenizer is trained here, read by them and by us; so are models of SentencePiece's; GPT-2, cl100k and o200k are compared too. More
# tokenizer.json files may be put into BUILD_DIR/peers/try, and models/ggml-vocab-* of llama.cpp into BUILD_DIR/peers/models. SHOW=20: so
# many of the texts that differ. The last line is N passed, N failed, N skipped.
B=${1:-build}
PYTHON=${PYTHON:-/usr/bin/python3}
cd "$(dirname "$0")/.." || exit 2
W=$B/peers
mkdir -p "$W/try" "$W/models" || exit 2
NODE_PATH=${NODE_PATH:-$PWD/$W/node_modules}
export NODE_PATH
text=../shared/data/wikitext-2/valid.txt
[ -f $text ] || text=README.md
for split in gpt2 llama3 qwen2 none; do
    "$B/tokens" train --size 2000 --special '<|endoftext|>' --split $split --out "$W/try/trained_$split.json" $text || exit 1
done
${CC:-cc} -O2 -I. tests/peers.c -o "$W/peers" -lutf8proc -lcjson -lm || exit 1
{
    if command -v "$PYTHON" > "$W/log" 2>&1; then "$PYTHON" tests/peers.py "$W/peers" "$W/models"
    else echo 'SKIP python3 is not installed'; echo '0 passed, 0 failed, 1 skipped'; fi
    if command -v node > "$W/log" 2>&1; then node tests/peers.js "$W/peers" "$W/try" "$W/models"
    else echo 'SKIP node is not installed (apt-get install nodejs)'; echo '0 passed, 0 failed, 1 skipped'; fi
} | awk '/^[0-9]+ passed/ { p += $1; f += $3; s += $5; next } { print }
         END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || !p && !s }'
