#!/bin/sh
# tests/programs.sh BUILD_DIR: the examples and tools as their users run them. Environment: CC, CMHA_CFLAGS, CMHA_LIBS.
# Failures in detail; the last line is N passed, N failed, and so is the exit status.
B=${1:-build}
CC=${CC:-cc}
cd "$(dirname "$0")/.." || exit 2
W=$B/tests/programs
rm -rf "$W" && mkdir -p "$W" || exit 2
. tests/parts.sh

P=$(cd "$B" && pwd)
works() { "$@" > "$W/out" 2>&1 < /dev/null; }
# complains COMMAND...: fails with exactly one line
complains() { "$@" > "$W/out" 2>&1 < /dev/null && return 1; [ "$(wc -l < "$W/out")" -eq 1 ]; }
says() { grep -q "$1" "$W/out"; }
# A failure of writing: the output or a file is the full device
full() {
    [ -c /dev/full ] || return 0
    "$@" 2> "$W/out" < /dev/null > /dev/full && return 1
    [ "$(wc -l < "$W/out")" -eq 1 ]
}
# spares FILE COMMAND...: fails with one line, as it would replace FILE, and leaves that as it was
spares() {
    spared=$1; shift
    cp "$spared" "$W/as_it_was"
    complains "$@" && says 'would replace what is read: ' && cmp "$spared" "$W/as_it_was"
}
# unread WHY OPTION...: of these options, each with its value, $mode reads none; $unread_by is its last argument
unread() {
    why=$1; shift
    for o in "$@"; do
        one "$mode $o" complains $mode $o "$unread_by"
        one "$mode $o: says why" says ": ${o%% *} is for $why"
    done
}
# broken MODEL TENSOR TO: a copy of which these numbers are none
broken() {
    python3 - "$@" 2> "$W/out" << 'PYTHON'
import json, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = int.from_bytes(data[:8], "little")
begin, end = json.loads(data[8:8 + size])[sys.argv[2]]["data_offsets"]
data[8 + size + begin:8 + size + end] = b"\0\0\xc0\x7f" * ((end - begin) // 4)
open(sys.argv[3], "wb").write(data)
PYTHON
}
# The standard output is closed from the start
closed() { "$@" 2> "$W/out" < /dev/null >&- && return 1; [ "$(wc -l < "$W/out")" -eq 1 ]; }
# Without a word on stderr, although the kernel is an old one that the user chose
silent() { OPENBLAS_CORETYPE=Prescott "$@" 2> "$W/out" < /dev/null > /dev/null && [ ! -s "$W/out" ]; }
# On a terminal, where there is a `script` that makes one
terminal() { script -qec "$*" /dev/null > "$W/out" 2> /dev/null < /dev/null; }
if script -qec true /dev/null > "$W/out" 2>&1 < /dev/null; then terminals=1; else terminals=; fi
# What came out harms no terminal: characters of UTF-8, of which \n, \r and \t alone are control characters
harmless() {
    iconv -f UTF-8 -t UTF-8 "$W/out" > "$W/text" || return 1
    [ "$(LC_ALL=C tr -d '\n\r\t\040-\176\200-\377' < "$W/text" | wc -c)" -eq 0 ] || return 1
    ! LC_ALL=C grep -q "$(printf '\302[\200-\237]')" "$W/text"
}
# An SVG that a parser of XML reads, with a title, a description and two labelled axes at least
picture() {
    for word in "<title id='draw" "<desc id='draw" "role='img'" "rotate(-90"; do
        grep -q "$word" "$1" || return 1
    done
    ! command -v python3 > /dev/null 2>&1 || python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$1"
}
# but OPTIONS NAME...: OPTIONS without these and their values, for a command that gives others; --set may come again
but() {
    but=$1; shift
    for o in "$@"; do [ "$o" = --set ] || but=$(printf '%s\n' "$but" | sed "s|$o [^ ]*||"); done
    printf '%s\n' "$but"
}
small="--quiet --seq 32 --batch 2 --out $W/tiny.safetensors --csv $W/loss.csv"
# Was the build made with libutf8proc and cJSON?
tokenizers=; grep -q '^TEXT_LIBS.*cjson' "$B/config.mk" 2> /dev/null && tokenizers=1
if [ -x "$P/train_tiny" ]; then
    one "train_tiny --steps 3" works "$P/train_tiny" --steps 3 $small
    one "train_tiny writes its csv" [ -s "$W/loss.csv" ]
    one "train_tiny writes a checkpoint" [ -s "$W/tiny.safetensors" ]
    printf '3,5.5' >> "$W/loss.csv"
    one "train_tiny --resume" works "$P/train_tiny" --steps 5 $small --resume
    one "train_tiny --resume, behind a row that was cut" [ "$(tail -n 3 "$W/loss.csv" | cut -d, -f1,2 | head -n 1)" = 3,5.5 ]
    one "train_tiny with a file and --set" works "$P/train_tiny" --steps 2 --attention rope --set n_layers=1 --set dropout=0.1 \
        $small README.md
    muon="--set n_layers=1 --set schedule=constant --set warmup=0 --optimiser muon"
    one "train_tiny --optimiser" works "$P/train_tiny" --steps 2 $muon --optimiser '*.wq.*=adamw' $small README.md
    cp "$W/tiny.safetensors.last" "$W/two.last"
    one "train_tiny --optimiser, resumed" works "$P/train_tiny" --steps 4 $small --resume="$W/two.last" README.md
    cp "$W/tiny.safetensors.last" "$W/twice.last"
    one "train_tiny --resume --preset" works "$P/train_tiny" --steps 4 ${small%%--out*} --preset fast --out "$W/preset.safetensors" \
        --csv "$W/loss.csv" --resume="$W/two.last" README.md
    one "train_tiny --resume --preset: of no effect" cmp "$W/preset.safetensors.last" "$W/tiny.safetensors.last"
    one "train_tiny --optimiser, at once" works "$P/train_tiny" --steps 4 $muon --optimiser '*.wq.*=adamw' $small README.md
    one "train_tiny --optimiser: resumed is as at once" cmp -s "$W/twice.last" "$W/tiny.safetensors.last"
    one "train_tiny --seed" works "$P/train_tiny" --steps 4 $muon --seed 7 $small README.md
    cp "$W/out" "$W/seven.out" && cp "$W/tiny.safetensors.last" "$W/seven.last"
    one "train_tiny --seed, before a stop" works "$P/train_tiny" --steps 2 $muon --seed 7 $small README.md
    one "train_tiny --seed, resumed" works "$P/train_tiny" --steps 4 $small --resume README.md
    one "train_tiny --seed: resumed is as at once" cmp "$W/tiny.safetensors.last" "$W/seven.last"
    one "train_tiny --seed: and so is the sample" cmp "$W/out" "$W/seven.out"
    one "train_tiny --seed, resumed with another" complains "$P/train_tiny" --steps 6 --seed 8 $small --resume README.md
    one "train_tiny --seed, resumed with another: says so" says ': --seed: with --resume that of the state holds, not 8$'
    one "train_tiny --seed, resumed with the same" works "$P/train_tiny" --steps 6 --seed 7 $small --resume README.md
    one "train_tiny --optimiser, of a name that is none" complains "$P/train_tiny" --steps 2 --optimiser muno $small
    one "train_tiny --optimiser, a pattern with another" complains "$P/train_tiny" --steps 2 $muon --optimiser '*.wq.*=lion' $small
    one "train_tiny --optimiser, a pattern of nothing" complains "$P/train_tiny" --steps 2 $muon --optimiser '*.nothing=adamw' $small
    one "train_tiny --minutes" works "$P/train_tiny" --minutes 0.02 --set n_layers=1 --set eval_tokens=99 ${small#--quiet } README.md
    fitted=$(sed -n 's/^0.02 minutes are --steps //p' "$W/out")
    cp "$W/tiny.safetensors.last" "$W/fitted.last"
    one "train_tiny --minutes says how many steps" [ "${fitted:-0}" -ge 1 ]
    one "train_tiny --steps as many" works "$P/train_tiny" --steps "${fitted:-0}" --set n_layers=1 --set eval_tokens=99 $small README.md
    one "train_tiny --minutes is --steps, bit for bit" cmp -s "$W/fitted.last" "$W/tiny.safetensors.last"
    one "train_tiny --minutes --quiet" works "$P/train_tiny" --minutes 0.01 --set n_layers=1 --set eval_tokens=99 $small README.md
    one "train_tiny --minutes --quiet: the sample alone" sh -c "! grep -q 'minutes are' '$W/out'"
    one "train_tiny --minutes and --steps" complains "$P/train_tiny" --minutes 1 --steps 3 $small
    one "train_tiny --minutes of nothing" complains "$P/train_tiny" --minutes soon $small
    one "train_tiny --set schedule=wsd" works "$P/train_tiny" --steps 2 --set schedule=wsd --set decay_share=0.5 $small README.md
    one "train_tiny, a field that the optimiser does not read" works "$P/train_tiny" --steps 2 --set momentum=0.5 $small README.md
    one "train_tiny says that nothing reads it" says 'nothing reads momentum'
    one "train_tiny, the same with a kernel chosen" works env OPENBLAS_CORETYPE=Prescott \
        "$P/train_tiny" --steps 2 --set momentum=0.5 $small README.md
    one "train_tiny says so there, too" says 'nothing reads momentum'
    for o in "--timeout 5" "--overlap 0"; do
        one "train_tiny $o" complains "$P/train_tiny" --steps 2 $o $small README.md
        one "train_tiny $o: says whose it is" says ": ${o% *} is for train_mpi (make mpi)$"
    done
    one "train_tiny --set, a field twice" works "$P/train_tiny" --steps 1 --set n_layers=2 --set dropout=0.1 --set n_layers=1 $small README.md
    one "train_tiny --set, a field twice: says which does not hold" says \
        '^train_tiny: --set n_layers=2 does not hold, as the field comes again: n_layers=1$'
    one "train_tiny --set, a field twice: the last holds" grep -q '"cfg.n_layers":"1"' "$W/tiny.safetensors"
    one "train_tiny, a bad option" complains "$P/train_tiny" --no-such-option
    one "train_tiny, a bad value" complains "$P/train_tiny" --steps many
    one "train_tiny, a bad field" complains "$P/train_tiny" --set nothing=1 $small
    one "train_tiny, a misspelt field" complains "$P/train_tiny" --set n_layer=1 $small
    one "train_tiny names both tables and the nearest field" says 'model nor training .* n_layers'
    one "train_tiny, a misspelt option" complains "$P/train_tiny" --stpes 3
    one "train_tiny names the nearest option" says ' --steps'
    for value in -1 3x 1.5 18446744073709551616; do
        one "train_tiny --seed $value" complains "$P/train_tiny" --seed $value $small
        one "train_tiny --threads $value" complains "$P/train_tiny" --threads $value $small
    done
    one "train_tiny, a field that is not read" works "$P/train_tiny" --steps 1 --attention dot --set pcl_tau=0.5 $small
    one "train_tiny names it" says 'nothing reads pcl_tau; pcl_weight'
    one "train_tiny, an encoder" complains "$P/train_tiny" --attention lag $small
    one "train_tiny --model --attention" complains "$P/train_tiny" --model rope --attention cmha $small
    one "train_tiny --model --attention: says so" says ': --attention is --model, and one is enough$'
    # twice WORDS OPTION...: an option comes twice; the line ends with these words
    twice() {
        words=$1; shift
        one "train_tiny $*" complains "$P/train_tiny" --set n_layers=1 "$@"
        one "train_tiny $*: says so" says ": one $words\$"
    }
    twice '--steps is enough, what is 4' --steps 3 --steps=4
    twice '--quiet is enough' --steps 1 --quiet --quiet
    twice '--resume is enough, what is x' --steps 1 --resume --resume=x
    twice '--optimiser is enough, what is muon' --steps 1 --optimiser lion --optimiser '*.wq.*=adamw' --optimiser muon
    one "train_tiny, a bad choice" complains "$P/train_tiny" --attention telepathy
    one "train_tiny, a missing file" complains "$P/train_tiny" $small "$W/nowhere.txt"
    printf 'too short' > "$W/short.txt" && cp "$W/loss.csv" "$W/loss.before"
    mkdir -p "$W/installed/bin" "$W/installed/include" && cp cmha.h "$W/installed/include/" && cp "$P/train_tiny" "$W/installed/bin/"
    one "train_tiny without a file, installed" sh -c "cd '$W/installed' && bin/train_tiny --steps 1 --seq 32 --batch 2 > out 2>&1"
    one "train_tiny without a file, installed: the header" grep -aq '^bin/[.][.]/include/cmha.h, [0-9]* bytes' "$W/installed/out"
    one "train_tiny, less than a sequence" complains "$P/train_tiny" $small "$W/short.txt"
    one "train_tiny leaves the rows of the run before" cmp "$W/loss.before" "$W/loss.csv"
    one "train_tiny, a state that is not there" complains "$P/train_tiny" $small --resume="$W/nowhere.last"
    printf 'kept\n' > "$W/kept.csv"
    one "train_tiny, nowhere to save to" complains "$P/train_tiny" $(but "$small" --out --csv) --csv "$W/kept.csv" --out "$W/nowhere/x" cmha.h
    one "train_tiny --out of no name" complains "$P/train_tiny" $(but "$small" --out --csv) --csv "$W/kept.csv" --out= cmha.h
    one "train_tiny then leaves the CSV as it was" grep -qx kept "$W/kept.csv"
    one "train_tiny, nothing held out" works "$P/train_tiny" --steps 1 --set n_layers=1 --set held_out=0 $small README.md
    one "train_tiny, nothing held out: says so" says '^train_tiny: nothing is held out, so validation is on what is learned$'
    one "train_tiny --help" works "$P/train_tiny" --help
    one "train_tiny --help lists the fields" says d_model
    quick="--quiet --seq 32 --batch 2 --set n_layers=1 --set d_model=16 --set d_ff=16 --set n_heads=2"
    quick="$quick --set eval_tokens=64 --out $W/quick.safetensors --csv $W/quick.csv"
    one "train_tiny: no warning to who chose the kernel" silent "$P/train_tiny" --steps 1 $quick
    one "train_tiny --help > /dev/full" full "$P/train_tiny" --help
    one "train_tiny > /dev/full" full "$P/train_tiny" --steps 1 $quick
    one "train_tiny --csv /dev/full" sh -c \
        "[ ! -c /dev/full ] || ! '$P/train_tiny' --steps 1 $(but "$quick" --csv) --csv /dev/full > $W/out 2>&1"
    one "train_tiny, the output closed" closed "$P/train_tiny" --steps 3 ${quick#--quiet }
    one "train_tiny writes no progress into its csv" [ "$(cut -d, -f1 "$W/quick.csv" | tr '\n' ' ')" = \
        "step 1 2 3 " ]
    one "train_tiny, more tokens than bytes" complains "$P/train_tiny" --steps 2 $quick \
        --set vocabulary=50257 README.md
    one "train_tiny names the way" says 'add --width 2'
    for i in $(seq 200); do printf '\144\003\007\001'; done > "$W/tokens" # 868 and 263
    one "train_tiny --width 2" works "$P/train_tiny" --steps 2 $quick --width 2 \
        --set vocabulary=869 "$W/tokens"
    one "train_tiny prints their numbers" says '^[0-9]* [0-9]*[0-9][0-9][0-9] '
    if [ -x "$P/generate" ]; then
        one "generate, numbers" works "$P/generate" --prompt '868, 1' --tokens 3 "$W/quick.safetensors"
        one "generate, a number outside" complains "$P/generate" --prompt '868 1 1000 2' "$W/quick.safetensors"
        one "generate names it" says 'numbers below 869, not 1000$'
        one "generate, a zero byte among numbers" sh -c "! printf '868\\0001' | '$P/generate' --prompt - '$W/quick.safetensors' > '$W/out' 2>&1"
    fi
    if [ -x "$P/vectors" ]; then
        one "vectors, numbers" complains "$P/vectors" "$W/quick.safetensors"
        one "vectors, numbers: says so" says 'quick.safetensors: its tokens are numbers, and no tokenizer tells what they stand for$'
    fi
    one "train_tiny --width 2, a token outside" complains "$P/train_tiny" --steps 2 $quick \
        --set vocabulary=868 --width 2 "$W/tokens"
    # A run goes on from the state of another and finds no better loss: sample and --out are the best of before
    lasting="$quick --threads 1 --set eval_every=20 README.md"
    one "train_tiny, before a stop" works "$P/train_tiny" --steps 40 --lr 1e-2 $lasting
    cp "$W/out" "$W/best.out" && cp "$W/quick.safetensors" "$W/best.safetensors" && cp "$W/quick.safetensors.last" "$W/best.safetensors.last"
    one "train_tiny --resume, worse" works "$P/train_tiny" --steps 60 --lr 10 --resume $lasting
    one "train_tiny --resume, worse: the best is kept" cmp "$W/quick.safetensors" "$W/best.safetensors"
    one "train_tiny --resume, worse: and the sample is its" cmp "$W/out" "$W/best.out"
    for steps in 60 40; do # of 40 there is none left
        rm -f "$W/quick.safetensors" "$W/quick.safetensors.last"
        one "train_tiny --resume=STATE, step $steps" works "$P/train_tiny" --steps $steps --lr 10 --resume="$W/best.safetensors.last" \
            --set schedule=cosine $lasting
        one "train_tiny --resume=STATE, step $steps: the best comes with it" cmp "$W/quick.safetensors" "$W/best.safetensors"
        one "train_tiny --resume=STATE, step $steps: the sample is its" cmp "$W/out" "$W/best.out"
        one "train_tiny --resume=STATE, step $steps: the last state, too" [ -s "$W/quick.safetensors.last" ]
    done
    rm "$W/quick.safetensors" && mv "$W/best.safetensors.last" "$W/alone.last"
    one "train_tiny --resume, a state alone" works "$P/train_tiny" --steps 60 --lr 10 --resume="$W/alone.last" $lasting
    one "train_tiny --resume, a state alone: says that nothing is kept" says 'nothing is kept as the best: .* beside .*alone.last'
    one "train_tiny --resume, a state alone: nothing is" [ ! -e "$W/quick.safetensors" ]
    i=0; while [ $i -lt 60 ]; do printf 'what %d\tcow%d\n' $i $i; i=$((i + 1)); done > "$W/pairs.tsv"
    sed 's/\(.*\)\t\(.*\)/{"prompt": "\1", "answer": "\2"}/' "$W/pairs.tsv" > "$W/pairs.jsonl"
    learn="--set schedule=constant --set warmup=0 --set eval_every=2"
    one "train_tiny --pairs" works "$P/train_tiny" --steps 4 $quick $learn --pairs "$W/pairs.tsv" --template 'Q:{prompt}\nA:{answer}'
    one "train_tiny --pairs shows what it asks" says 'Q:what 54'
    one "train_tiny --pairs keeps the template" [ "$(cat "$W/quick.template")" = "$(printf 'Q:{prompt}\nA:{answer}')" ]
    if [ -x "$P/generate" ]; then
        one "generate --pack" works "$P/generate" --pack int8 "$W/packed.safetensors" "$W/quick.safetensors"
        one "generate --pack keeps the template" cmp -s "$W/quick.template" "$W/packed.template"
        one "generate --pack says how far training looked back" says 'packed.safetensors looks back 1024 tokens, not the 32 of training; give --context 32'
        one "generate --weights f32 of what is packed" complains "$P/generate" --weights f32 "$W/packed.safetensors"
        one "generate --weights f32 of what is packed: says so" says 'is packed, so its weights cannot be f32$'
    fi
    # Weights alone say no length of training: the state beside them does, unless it is another training's
    mean="$(but "$quick" --out) --set ema=0.9 --out $W/mean.safetensors"
    one "train_tiny, a mean of the weights" works "$P/train_tiny" --steps 2 $mean README.md
    looks() { "$P/generate" --prompt - --tokens 1 "$W/mean.safetensors" < README.md 2>&1 > /dev/null | sed 's/.* the last \([0-9]*\) are used.*/\1/' > "$W/out"; }
    if [ -x "$P/generate" ]; then
        one "generate, a mean of the weights" looks
        one "generate, a mean of the weights: looks back as far as its training" [ "$(cat "$W/out")" = 32 ]
        works "$P/train_tiny" --steps 1 --attention rope $(but "$mean" --out) --out "$W/roped.safetensors" README.md
        for f in "$W/quick.safetensors.last" README.md "$W/roped.safetensors.last"; do
            cp "$f" "$W/mean.safetensors.last"
            one "generate, $(basename "$f") for its state" looks
            one "generate, $(basename "$f") for its state: says so" says '^generate: of another training, .*: .*mean.safetensors.last$'
            one "generate, $(basename "$f") for its state: looks back as usual" [ "$(tail -n 1 "$W/out")" = 1024 ]
        done
    fi
    if [ -x "$P/convert" ]; then
        one "convert --type int8 of ours" works "$P/convert" --type int8 "$W/quick.safetensors" "$W/converted.safetensors"
        one "convert keeps the template" cmp -s "$W/quick.template" "$W/converted.template"
        one "convert keeps the length of training" sh -c "head -c 9999 '$W/converted.safetensors' | grep -aq '\"trainer.length\":\"32\"'"
    fi
    cp "$W/quick.safetensors.last" "$W/pairs.last"
    one "train_tiny --pairs, of JSON" works "$P/train_tiny" --steps 2 $quick $learn --pairs "$W/pairs.jsonl" --template 'Q:{prompt}\nA:{answer}'
    one "train_tiny --pairs, resumed" works "$P/train_tiny" --steps 4 $quick --resume --pairs "$W/pairs.jsonl"
    one "train_tiny --pairs: resumed is as at once" cmp -s "$W/pairs.last" "$W/quick.safetensors.last"
    one "train_tiny --pairs --minutes" works "$P/train_tiny" --minutes 0.01 $quick --pairs "$W/pairs.tsv"
    one "generate puts the prompt into the template" works "$P/generate" --prompt 'what 3' --tokens 3 "$W/quick.safetensors"
    one "generate: the usual template" [ "$(head -n 1 "$W/out")" = 'what 3' ]
    one "generate --template" works "$P/generate" --prompt cow --template '<{prompt}>{answer}' --tokens 3 "$W/quick.safetensors"
    one "generate --template: around the prompt" says '^<cow>'
    one "generate --template, a prompt in a line of Windows" sh -c \
        "printf 'cow\\r\\n' | '$P/generate' --prompt - --template '<{prompt}>' --tokens 3 '$W/quick.safetensors' > '$W/out' 2>&1"
    one "generate --template, a line of Windows: without its end" says '^<cow>'
    one "generate --template without a prompt" complains "$P/generate" --template '<{prompt}>{answer}' "$W/quick.safetensors"
    one "generate --template without a prompt: says so" says ': --template is for a --prompt'
    one "generate --template of nothing" complains "$P/generate" --prompt cow --template '{answer}' "$W/quick.safetensors"
    one "train_tiny without --pairs leaves no template" works "$P/train_tiny" --steps 1 $quick README.md
    one "train_tiny without --pairs: it is gone" [ ! -e "$W/quick.template" ]
    { cat "$W/pairs.tsv"; printf 'what\tcow\tand calf\n'; } > "$W/wider.tsv"
    one "train_tiny --pairs, a third column" works "$P/train_tiny" --steps 1 $quick --pairs "$W/wider.tsv"
    one "train_tiny --pairs, a third column: says so" says '^train_tiny: 1 lines have more columns, which nothing reads, the first is line 61 of .*wider.tsv'
    { printf 'id\tprompt\tanswer\n'; sed 's/^/1\t/' "$W/pairs.tsv"; } > "$W/named.tsv"
    one "train_tiny --pairs, columns by name" works "$P/train_tiny" --steps 1 $quick --pairs "$W/named.tsv"
    one "train_tiny --pairs, columns by name: nothing to say" sh -c "! grep -aq 'more columns' '$W/out'"
    one "train_tiny --pairs, some held out: nothing to say" sh -c "! grep -aq 'nothing is held out' '$W/out'"
    head -n 9 "$W/pairs.tsv" > "$W/nine.tsv"
    one "train_tiny --pairs, too few to hold one out" works "$P/train_tiny" --steps 1 $quick --pairs "$W/nine.tsv"
    one "train_tiny --pairs, too few to hold one out: says so" says '^train_tiny: nothing is held out, so validation is on what is learned$'
    awk '{ p = $0; while (length(p) < 700) p = p " and " p; print p }' "$W/nine.tsv" | sed 's/\t/ /g; s/$/\tcow/' > "$W/wordy.tsv"
    one "train_tiny --pairs, long prompts" works "$P/train_tiny" --steps 1 $(but "$quick" --seq --batch) --seq 2048 --batch 1 --pairs "$W/wordy.tsv"
    one "train_tiny --pairs, long prompts: an answer in the sample" [ "$(sed 1d "$W/out" | wc -c)" -gt 1025 ]
    one "train_tiny --pairs and a FILE" complains "$P/train_tiny" --steps 1 $quick --pairs "$W/pairs.tsv" README.md
    one "train_tiny --template without --pairs" complains "$P/train_tiny" --steps 1 $quick --template '{prompt}{answer}' README.md
    one "train_tiny --template without an answer" complains "$P/train_tiny" --steps 1 $quick --pairs "$W/pairs.tsv" --template '{prompt}'
    one "train_tiny --pairs of a text" complains "$P/train_tiny" --steps 1 $quick --pairs README.md
    one "train_tiny --pairs with accumulate" complains "$P/train_tiny" --steps 1 $quick --pairs "$W/pairs.tsv" --set accumulate=2
    one "train_tiny tells losses in bits a byte" works "$P/train_tiny" --steps 2 ${quick#--quiet } --set eval_every=1
    one "train_tiny: both losses" says 'loss [0-9.]* ([0-9.]* bits/byte)  validation [0-9.]* ([0-9.]* bits/byte)'
    one "train_tiny: bits are nats by log 2" awk -F, 'NR > 1 && ($2 / log(2) - $7) ^ 2 + ($3 / log(2) - $8) ^ 2 > 1e-8 {
        exit 1 } END { exit NR != 3 }' "$W/quick.csv"
    one "train_tiny prints a validation loss where it is measured" works "$P/train_tiny" --steps 41 \
        --set eval_every=21 ${quick#--quiet}
    one "train_tiny repeats no validation loss" [ "$(grep -c 'validation' "$W/out")" -eq 2 ]
    one "train_tiny --plot" works "$P/train_tiny" --steps 5 --set eval_every=2 $quick --plot "$W/plot.svg"
    one "train_tiny --plot: a picture" picture "$W/plot.svg"
    one "train_tiny --plot: units" grep -q 'loss (nats a token)</text>' "$W/plot.svg"
    one "train_tiny --plot: bits as well" grep -q 'loss (bits a byte)</text>' "$W/plot.svg"
    # the best of the validations in the CSV
    said=$(sed -n 's/.*step 5 of 5: .*the best \([0-9.]*\) at step \([0-9]*\).*/\1 \2/p' "$W/plot.svg")
    one "train_tiny --plot: the CSV's numbers" awk -F, -v said="$said" 'NR > 1 && $3 && (!best || $3 < best) {
        best = $3; at = $1 } END { split(said, own, " "); exit !(at && own[2] == at && (own[1] - best) ^ 2 < 1e-8) }' "$W/quick.csv"
    sed '/^4,/d' "$W/quick.csv" > "$W/cut.csv" && printf '5,1' >> "$W/cut.csv" && cp "$W/cut.csv" "$W/quick.csv"
    one "train_tiny --plot --resume" works "$P/train_tiny" --steps 8 --set eval_every=2 $quick --plot "$W/plot.svg" --resume
    one "train_tiny --plot: the run before as well" grep -q 'training: from [0-9.]* at 1 to [0-9.]* at 8' "$W/plot.svg"
    sed -i '3s/^\([0-9]*\),[^,]*,[^,]*,/\1,inf,-inf,/' "$W/quick.csv"
    one "train_tiny --plot --resume, rows with inf" works "$P/train_tiny" --steps 9 --set eval_every=2 $quick --plot "$W/plot.svg" --resume
    one "train_tiny --plot: a picture all the same" picture "$W/plot.svg"
    one "train_tiny --plot: no number that is none" sh -c "! grep -q '[> ]-*inf[ <(]\|[> ]-*nan[ <(]' '$W/plot.svg'"
    one "train_tiny --plot --resume without rows" works "$P/train_tiny" --steps 10 $(but "$quick" --csv) --csv "$W/new.csv" --plot "$W/plot.svg" --resume
    one "train_tiny --plot: from here on" grep -q 'training: from [0-9.]* at 10 to' "$W/plot.svg"
    cp "$W/plot.svg" "$W/kept.svg"
    one "train_tiny --plot, a refused run" complains "$P/train_tiny" $(but "$quick" --out) --plot "$W/plot.svg" --out "$W/nowhere/x"
    one "train_tiny --plot: the old picture stays" cmp "$W/plot.svg" "$W/kept.svg"
    one "train_tiny --plot, no such folder" complains "$P/train_tiny" $(but "$small" --csv) --csv "$W/kept.csv" --plot "$W/nowhere/x.svg"
    one "train_tiny then leaves the CSV alone" grep -qx kept "$W/kept.csv"
    one "train_tiny --plot in place of the CSV" complains "$P/train_tiny" $(but "$small" --csv) --csv "$W/kept.csv" --plot "$W/kept.csv"
    cp "$W/kept.csv" "$W/text.csv"
    one "train_tiny --csv in place of its text" complains "$P/train_tiny" --steps 1 --csv "$W/text.csv" "$W/text.csv"
    one "train_tiny leaves the text alone" cmp "$W/text.csv" "$W/kept.csv"
    for both in "--csv $W/one --out $W/one" "--csv $W/./one --out $W/one" "--csv $W/one.last --out $W/one" "--plot $W/one --out $W/one"; do
        one "train_tiny $both" complains "$P/train_tiny" --steps 1 $(but "$small" --out ${both%% *}) $both
        one "train_tiny says so" says 'would replace'
    done
    cp README.md "$W/one.template" && cp "$W/tiny.safetensors.last" "$W/one.state"
    one "train_tiny, a text that the template would replace" complains "$P/train_tiny" --steps 1 $(but "$small" --out) --out "$W/one.safetensors" "$W/one.template"
    one "train_tiny says what would" says 'the template would replace the text: .*one.template$'
    one "train_tiny leaves it" cmp README.md "$W/one.template"
    one "train_tiny --csv in place of --resume" complains "$P/train_tiny" --steps 9 $(but "$small" --csv) --resume="$W/one.state" --csv "$W/one.state"
    one "train_tiny leaves the state" cmp "$W/tiny.safetensors.last" "$W/one.state"
    one "train_tiny --csv in place of --from" complains "$P/train_tiny" --from "$W/tiny.safetensors" $(but "$small" --out --csv) --out "$W/one" \
        --csv "$W/tiny.safetensors"
    one "train_tiny --plot /dev/full" sh -c "[ ! -c /dev/full ] || { ! '$P/train_tiny' $quick --plot /dev/full > $W/out 2>&1; }"
    one "train_tiny leaves no half picture" sh -c "! ls $W/plot.svg.* 2> /dev/null"
    one "train_tiny with 3 steps again" works "$P/train_tiny" --steps 3 --seed 4 $small
    if [ "$terminals" ]; then
        one "train_tiny on a terminal" terminal "$P/train_tiny" --steps 3 --seed 4 $quick
        one "train_tiny harms no terminal" harmless
        one "train_tiny shows bytes as \xNN" says '\\x[0-9a-f][0-9a-f]'
    fi
fi
# ---- forecast ----
if [ -x "$P/forecast" ]; then
    awk 'BEGIN {
        srand(5); print "date,a,\"b, too\",OT"
        for (t = 0; t < 1000; t++) {
            day = sin(t * 6.283185 / 24); week = sin(t * 6.283185 / 60)
            printf "2016-07-%02d %02d:00,%.4f,%.4f,%.4f\n", t / 24 % 30 + 1, t % 24, 20 + 5 * day + 2 * week + rand(),
                3 * week - day + rand(), 100 * day + 60 * week + 20 * rand()
        } }' > "$W/series.csv"
    few="--window 48 --horizon 12 --steps 40 --quiet --set n_layers=1 --set d_model=32"
    for features in real complex; do
        # shellcheck disable=SC2086
        one "forecast, $features" works "$P/forecast" $few --attention cmha --features $features --out "$W/series.model" "$W/series.csv"
        one "forecast, $features, beats what was last" \
            awk '/^the model/ { model = $3 } /^the last value/ { last = $5 } END { exit !(model > 0 && model < last / 2) }' "$W/out"
    done
    one "forecast --predict" works "$P/forecast" --model "$W/series.model" --predict "$W/series.csv"
    one "forecast names the columns" says '^step,a,"b, too",OT$'
    one "forecast writes the horizon" [ "$(wc -l < "$W/out")" -eq 13 ]
    one "forecast --window with --predict" complains "$P/forecast" --window 9 --model "$W/series.model" --predict "$W/series.csv"
    for o in window horizon season attention features steps seed; do
        one "forecast --predict --$o" complains "$P/forecast" --model "$W/series.model" --predict "$W/series.csv" --$o "$(
            "$P/forecast" --help | awk -v o="--$o" '$1 == o { print $2 }')"
        one "forecast --predict --$o: says so" says ": --$o is the model's own: not with --predict"
    done
    sed '1s/.*/date,"the ""a"" of it",b,OT/' "$W/series.csv" > "$W/marks.csv"
    one "forecast, a name with marks" works "$P/forecast" $(but "$few" --steps) --steps 1 --out "$W/marks.model" "$W/marks.csv"
    one "forecast --predict, a name with marks" works "$P/forecast" --model "$W/marks.model" --predict "$W/marks.csv"
    one "forecast writes that name as it was" says '^step,"the ""a"" of it",b,OT$'
    # bad LABEL TEXT OPTION...: a file that is refused with one line
    bad_series() {
        label=$1; printf '%b' "$2" > "$W/bad.csv"; shift 2
        one "forecast, $label" complains "$P/forecast" "$@" "$W/bad.csv"
    }
    bad_series "an empty file" ''
    bad_series "a header alone" 'a,b\n'
    bad_series "a ragged row" 'a,b\n1,2\n3\n'
    bad_series "a word" 'a,b\n1,2\n3,x\n'
    bad_series "NaN" 'a,b\n1,2\n3,nan\n'
    bad_series "too few rows" 'a,b\n1,2\n3,4\n'
    bad_series "a column that is not there" 'a,b\n1,2\n' --columns a,c
    bad_series "a column twice" 'a,b\n1,2\n' --columns a,a
    bad_series "two columns of a name" 'a,b,a\n1,2,3\n' --columns a,b
    for other in OT date; do # among what is learned, and beside it
        sed "1s/,a,/,$other,/" "$W/series.csv" > "$W/twice.csv"
        one "forecast, two columns $other, unnamed" complains "$P/forecast" $few --out "$W/twice.model" "$W/twice.csv"
        one "forecast, two columns $other: says which" says "the first line has two columns \"$other\""
        one "forecast, two columns $other: nothing is saved" [ ! -e "$W/twice.model" ]
    done
    awk -F, 'NR == 1 { print "date,date,OT" } NR > 1 { print $1 ",x," $NF }' "$W/series.csv" > "$W/twice.csv"
    one "forecast, two columns that nothing reads" works "$P/forecast" $few --out "$W/twice.model" "$W/twice.csv"
    one "forecast --predict, the same" works "$P/forecast" --model "$W/twice.model" --predict "$W/twice.csv"
    for field in steps length accumulate; do
        one "forecast --set $field" complains "$P/forecast" $few "$W/series.csv" --set $field=5
        one "forecast --set $field: says whose it is" says "$field is the program's own field, as "
    done
    one "forecast, features of a third kind" complains "$P/forecast" --features odd "$W/series.csv"
    one "forecast, nowhere to save" complains "$P/forecast" --out /nowhere/model "$W/series.csv"
    awk -F, 'NR == 1 { print "a,b" } NR > 1 { print $2 "e200," $3 }' "$W/series.csv" > "$W/large.csv"
    one "forecast, numbers without a deviation" complains "$P/forecast" $few "$W/large.csv"
    one "forecast, numbers without a deviation: says so" says 'numbers too large to normalise in column a$'
    awk -F, 'NR == 1 { print "a,b" } NR > 1 { print $2 "," (NR < 900 ? 0.1 : 0.2) }' "$W/series.csv" > "$W/still.csv"
    one "forecast, a column that changes in the test alone" works "$P/forecast" $few --out "$W/still.model" "$W/still.csv"
    one "forecast, its deviation in training is 1" awk '$2 == "b" { n = $4 } END { exit n != 1 }' "$W/still.model.columns"
    one "forecast, its errors are of that size" awk '/^the model/ { exit !($3 < 9) }' "$W/out"
    cp "$W/series.csv" "$W/read.columns"
    one "forecast, --out that it reads" spares "$W/series.csv" "$P/forecast" $few --out "$W/series.csv" "$W/series.csv"
    one "forecast, the file beside --out is what it reads" spares "$W/read.columns" "$P/forecast" $few --out "$W/read" "$W/read.columns"
fi

# What each program says of itself: -h is --help, which ends with an example of this program; --version the header's
version=$(awk '/^#define CMHA_VERSION_M|^#define CMHA_VERSION_P/ { printf "%s%s", dot, $3; dot = "." }' cmha.h)
for c in train_tiny tokens generate score convert classify rag geometry look spoken signal signal_next forecast bench evidence; do
    [ -x "$P/$c" ] || continue
    one "$c -h" works "$P/$c" -h && cp "$W/out" "$W/help"
    one "$c -h is --help" sh -c "'$P/$c' --help < /dev/null | cmp - '$W/help'"
    one "$c --help ends with an example" sh -c "tail -n 1 '$W/help' | grep -q '^  build/$c '"
    one "$c --version" works "$P/$c" --version
    one "$c says the version" says "^$c, cmha $version\$"
    for o in -h --help --version; do one "$c $o > /dev/full" full "$P/$c" $o; done
done
# What stands alone takes no value, but where the help shows one
while read -r option command; do
    [ -x "$P/${command%% *}" ] || continue
    # shellcheck disable=SC2086
    one "$command" complains "$P/"$command
    one "$command: takes none" says ": takes no value: $option\$"
done << 'END'
--quiet train_tiny --quiet=no
--help train_tiny --help=all
--verbose generate --verbose=0 x
--endless generate --endless= x
--paragraphs rag --paragraphs=1 --text x
--resume signal --resume=x x
--resume classify --resume=x --train x --dev x
--json spoken --json=1 --predict x
--quiet forecast --quiet=1 x
--help look --help=x
--raw vectors --raw=1 x
--quick evidence --quick=1
END
# The nearest of the words that there are
while read -r word command; do
    [ -x "$P/${command%% *}" ] || continue
    # shellcheck disable=SC2086
    one "$command" complains "$P/"$command
    one "$command names the nearest" says "the nearest is $word"
done << 'END'
cmha train_tiny --attention cmah
tiny train_tiny --preset tyni
rmsnorm train_tiny --set norm=rmsnrom
cmha classify --train x --attention cmah
sst2 classify --train x --task sst3
accuracy classify --train x --metric acuracy
gguf convert a b --to gguff
encode tokens encod x
--special tokens encode --spezial x
--skip-special tokens decode --skip-specal x
--size tokens train --sise 300 --out x x
qwen2 tokens train --split quen2 --out x x
row evidence rows
END
# Tables without tabs, a vocabulary that is none
if [ -x "$P/classify" ]; then
    printf 'label,text\n1,good\n' > "$W/commas.csv" && printf 'label text\n1 good\n' > "$W/blanks.txt"
    one "classify, commas" complains "$P/classify" --train "$W/commas.csv" --dev "$W/commas.csv" --columns label,text
    one "classify: tabs part columns" says 'tabs part columns, and it has none, but commas'
    one "classify, commas and numbers" complains "$P/classify" --train "$W/commas.csv" --dev "$W/commas.csv" --columns 1,2
    one "classify: tabs do" says 'tabs part columns, and it has none, but commas'
    one "classify, blanks" complains "$P/classify" --train "$W/blanks.txt" --dev "$W/blanks.txt" --columns label,text
    one "classify: not blanks" says 'tabs part columns, and it has none, but blanks'
fi
if [ -x "$P/tokens" ]; then
    mkdir -p "$W/words" && printf '{"a": "x"}' > "$W/words/vocab.json" && printf 'a b\n' > "$W/words/merges.txt"
    one "tokens, a bad vocab.json" complains "$P/tokens" inspect "$W/words"
    one "tokens names its path" says 'words/vocab.json: '
fi
# Files of other kinds, and a limit on the size of files
if mkfifo "$W/fifo" 2> "$W/out"; then
    waits() { timeout 10 "$@" > "$W/out" 2>&1 < /dev/null; [ $? -eq 1 ] && [ "$(wc -l < "$W/out")" -eq 1 ]; }
    for c in "train_tiny $small" generate "tokens inspect" "tokens train --out $W/x.json" "convert x" "classify --task sst2 --dev README.md --train" spoken signal \
        "geometry" "look" "score" "embed" "rag --text"; do
        [ -x "$P/${c%% *}" ] || continue
        case $c in convert*) set -- "$P/convert" "$W/fifo" "$W/x"; one "$c, a FIFO" waits "$@"; continue;; esac
        case $c in embed) set -- "$P/embed" "$W/fifo" name; one "$c, a FIFO" waits "$@"; continue;; esac
        # shellcheck disable=SC2086
        one "$c, a FIFO" waits "$P"/$c "$W/fifo"
        one "$c, a FIFO: says so" says 'not a regular file'
    done
fi
limited() { (ulimit -f 1 && "$@") > "$W/out" 2>&1 < /dev/null; [ $? -eq 1 ] && ! ls "$W"/limited*.tmp > /dev/null 2>&1; }
# Vectors of sentences and hidden words: an encoder of bytes, and a model that continues texts
if [ -x "$P/vectors" ] && [ -x "$P/classify" ]; then
    { printf 'label\ttext\n'; i=0; while [ $i -lt 8 ]; do printf 'a\tone %d\nb\tthe other %d\n' $i $i; i=$((i + 1)); done; } > "$W/two.tsv"
    encoder="--set n_layers=1 --set d_model=16 --set d_ff=16 --set n_heads=2 --length 16 --batch 4 --threads 1"
    one "classify for vectors" works "$P/classify" --quiet $encoder --columns label,text --mlm 20 --epochs 1 --train "$W/two.tsv" \
        --dev "$W/two.tsv" --out "$W/encoder.safetensors"
    printf 'one\nthe other, which is longer than sixteen\n\none\n' > "$W/lines"
    vectors() { "$P/vectors" --threads 1 "$@" < "$W/lines" > "$W/out" 2> "$W/err"; }
    for pool in mean cls last; do
        one "vectors --pool $pool" vectors --pool $pool "$W/encoder.safetensors"
        one "vectors --pool $pool: of length 1, each by itself" awk -F'[][, ]+' '{ s = 0; for (i = 2; i <= 17; i++) s += $i * $i
            if (NF != 18 || (s - 1) ^ 2 > 1e-8) bad = 1
            for (i = 2; i <= 17; i++) if (NR == 1) first[i] = $i; else if (NR == 4 && ($i - first[i]) ^ 2 > 1e-10) bad = 1 }
            END { exit bad || NR != 4 }' "$W/out"
    done
    { printf '\357\273\277'; cat "$W/lines"; } > "$W/marked" && cp "$W/out" "$W/unmarked"
    one "vectors, a byte order mark" sh -c "'$P/vectors' --threads 1 --pool last '$W/encoder.safetensors' < '$W/marked' > '$W/out' 2> '$W/err'"
    one "vectors, a byte order mark: is none of the text" cmp "$W/out" "$W/unmarked"
    one "vectors says what is cut" grep -qx 'vectors: 1 lines are longer than 16 tokens, of which only these are read (see --length)' "$W/err"
    one "vectors --length, nothing cut" vectors --length 99 "$W/encoder.safetensors"
    one "vectors --length: says nothing" [ ! -s "$W/err" ]
    one "vectors --raw" vectors --raw --batch 1 "$W/encoder.safetensors"
    one "vectors --raw: not of length 1" awk -F'[][, ]+' '{ s = 0; for (i = 2; i <= 17; i++) s += $i * $i; if ((s - 1) ^ 2 < 1e-8) bad = 1 }
        END { exit bad }' "$W/out"
    one "vectors --format npy" vectors --format npy "$W/encoder.safetensors"
    one "vectors --format npy: a header and 4 x 16 floats" [ "$(wc -c < "$W/out")" -eq 384 ]
    one "vectors --format npy: the shape" says "'shape': (4, 16)"
    printf '5\tone\tone\n1\tone\tthe other\n3\tone 1\tone 2\n' > "$W/scores.tsv"
    printf 'one\nthe other\n' > "$W/both"
    one "vectors --weigh" works sh -c "'$P/vectors' --threads 1 --weigh '$W/both' --raw '$W/encoder.safetensors' < '$W/both' > '$W/weighed'"
    one "vectors --weigh: nothing is left in common" awk -F'[][, ]+' '{ for (i = 2; i <= 17; i++) { s[i] += $i; q[i] += $i * $i } }
        END { for (i = 2; i <= 17; i++) if (q[i] <= 0 || s[i] ^ 2 > 1e-8 * q[i]) bad = 1; exit bad || NR != 2 }' "$W/weighed"
    one "vectors --weigh -" complains "$P/vectors" --weigh - --similarity "$W/scores.tsv" --columns 1,2,3 "$W/encoder.safetensors"
    one "vectors --weigh -: says why" says 'the file of --weigh is read twice'
    one "vectors --weigh, the first state" complains "$P/vectors" --weigh "$W/lines" --pool cls "$W/encoder.safetensors"
    one "vectors --weigh, no lines" complains "$P/vectors" --weigh /dev/null "$W/encoder.safetensors"
    one "vectors --weigh --learn" works "$P/vectors" --threads 1 --weigh "$W/lines" --learn "$W/scores.tsv" --columns 1,2,3 --epochs 2 \
        --out "$W/weighed.safetensors" "$W/encoder.safetensors"
    one "vectors --similarity" vectors --similarity "$W/scores.tsv" --columns 1,2,3 "$W/encoder.safetensors"
    one "vectors --similarity: both correlations" says '^3 pairs: pearson [-0-9.]*, spearman [-0-9.]*$'
    sed 's/^./5/' "$W/scores.tsv" > "$W/alike.tsv"
    for o in --similarity --learn; do
        one "vectors $o, scores that are the same" complains "$P/vectors" $o "$W/alike.tsv" --columns 1,2,3 "$W/encoder.safetensors"
        one "vectors $o, scores that are the same: says so" says 'all scores are the same, so nothing goes with them, in .*alike.tsv$'
    done
    one "vectors of a model that continues texts" works sh -c "echo one | '$P/vectors' --pool last '$W/tiny.safetensors'"
    one "vectors --learn" works "$P/vectors" --threads 1 --learn "$W/scores.tsv" --columns 1,2,3 --epochs 40 --lr 1e-2 --batch 2 \
        --similarity "$W/scores.tsv" --out "$W/learned.safetensors" "$W/encoder.safetensors"
    one "vectors --learn: cosines go with the scores" says '^3 pairs: pearson [01]\.[90][0-9]*, spearman 1.0000$'
    one "vectors --learn keeps the model" vectors --similarity "$W/scores.tsv" --columns 1,2,3 "$W/learned.safetensors"
    one "vectors --learn: the same of the file" says '^3 pairs: pearson [01]\.[90][0-9]*, spearman 1.0000$'
    printf '5\tone\tone\n1\tone\tthe other, which is longer than sixteen\n' > "$W/longer.tsv"
    one "vectors --learn, a sentence that is cut" works "$P/vectors" --threads 1 --learn "$W/longer.tsv" --columns 1,2,3 --epochs 3 \
        --weigh "$W/lines" --out "$W/cut.safetensors" "$W/encoder.safetensors"
    one "vectors --learn: says so once" [ "$(grep -c '^vectors: 1 sentences of the pairs are longer than 16 tokens' "$W/out")" -eq 1 ]
    one "vectors --similarity and --learn: --columns of four" complains "$P/vectors" --similarity "$W/scores.tsv" --columns 1,2,3,4 "$W/encoder.safetensors"
    unread_by=$W/encoder.safetensors mode=$P/vectors
    unread --learn "--out x" "--epochs 4" "--lr 3e-4" "--seed 1"
    unread '--similarity and --learn' "--columns 1,2,3"
    mode="$P/vectors --similarity $W/scores.tsv --columns 1,2,3"
    unread 'vectors, which --similarity does not print' --raw "--format json"
    mode="$P/vectors --learn $W/scores.tsv --columns 1,2,3"
    unread 'vectors, which --learn does not print' --raw "--format npy"
    { cat "$W/scores.tsv"; printf '4\tone\n'; } > "$W/ragged.tsv"
    one "vectors, a line without a column" works "$P/vectors" --similarity "$W/ragged.tsv" --columns 1,2,3 "$W/encoder.safetensors"
    one "vectors says which is left out" says 'warning, left out: .*ragged.tsv has 1 lines without all columns, the first is line 4$'
    printf '2\tone\ttwo\nnan\tone\tthe other\n' > "$W/nan.tsv"
    one "vectors, a score that is no number" complains "$P/vectors" --similarity "$W/nan.tsv" --columns 1,2,3 "$W/encoder.safetensors"
    one "vectors says where" says 'nan.tsv, line 2: "nan" is no number$'
    one "vectors --learn, the last state" complains "$P/vectors" --learn "$W/scores.tsv" --pool last "$W/encoder.safetensors"
    cp "$W/scores.tsv" "$W/judged.tsv"
    one "vectors --learn, --out that it reads" spares "$W/judged.tsv" "$P/vectors" --learn "$W/scores.tsv" --columns 1,2,3 \
        --similarity "$W/judged.tsv" --out "$W/judged.tsv" "$W/encoder.safetensors"
    one "vectors, a folder of others" complains "$P/vectors" tests/models/bert
    one "vectors says how to convert it" says 'first: build/convert tests/models/bert OUT.safetensors'
    one "classify --text" works "$P/classify" --quiet $encoder --text README.md --mlm 5 --out "$W/hidden.safetensors" --set head_transform=1
    one "classify --from it" works "$P/classify" --quiet --from "$W/hidden.safetensors" --length 16 --batch 4 --columns label,text --epochs 1 \
        --train "$W/two.tsv" --dev "$W/two.tsv" --out "$W/from.safetensors"
    one "classify --from: its configuration" grep -q '"cfg.head_transform":"1"' "$W/from.safetensors"
    one "classify --text --from a model with a class head" works "$P/classify" --quiet --from "$W/from.safetensors" --length 16 --batch 4 \
        --text README.md --mlm 2 --out "$W/headless.safetensors"
    one "classify --text --from: the head is left out" says '^classify: the head of 2 classes is left out: .*from.safetensors$'
    one "classify --text --from: no other line" [ "$(wc -l < "$W/out")" -eq 1 ]
    one "classify --text --from: the model has none" grep -q '"cfg.classes":"0"' "$W/headless.safetensors"
    { cat "$W/two.tsv"; printf 'third\ttext\n'; } > "$W/three.tsv"
    one "classify --from, three classes for two" works "$P/classify" --quiet --from "$W/from.safetensors" --length 16 --batch 4 --epochs 1 \
        --columns label,text --train "$W/three.tsv" --dev "$W/three.tsv" --freeze 'blocks.*' --out "$W/three.safetensors"
    one "classify --from, three classes for two: says so" says ': the head of 2 classes is left out, and begins anew: '
    if command -v python3 > /dev/null 2>&1; then
        one "classify --from, three classes for two: all else is taken" python3 -c 'import json, sys
def blocks(path):
    data = open(path, "rb").read()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + size])
    at = {n: t["data_offsets"] for n, t in head.items() if n.startswith("blocks.")}
    return {n: data[8 + size + b:8 + size + e] for n, (b, e) in at.items()}
sys.exit(not blocks(sys.argv[1]) or blocks(sys.argv[1]) != blocks(sys.argv[2]))' "$W/from.safetensors" "$W/three.safetensors"
    fi
    for c in "vectors" "classify --predict $W/two.tsv --columns text --model"; do
        one "${c%% *}, an encoder of bytes, --tokenizer" complains "$P/"$c "$W/encoder.safetensors" --tokenizer tests/wordpiece_vocab.txt
        one "${c%% *}, an encoder of bytes: says so" says 'encoder.safetensors reads bytes, not the tokens of tests/wordpiece_vocab.txt$'
    done
    one "classify --from a decoder" complains "$P/classify" --from "$W/tiny.safetensors" --columns 1,2 --train "$W/two.tsv" --dev "$W/two.tsv"
    one "classify --from and --attention" complains "$P/classify" --from "$W/hidden.safetensors" --attention rope --train x --dev x
    one "classify --text --epochs" complains "$P/classify" --text README.md --mlm 2 --epochs 2
    one "classify --text --epochs: needs labels" says ': --epochs is for labels, which need --train'
    one "classify --text without --mlm" complains "$P/classify" --text README.md
    one "classify --train --text -" complains "$P/classify" $encoder --columns label,text --mlm 2 --train "$W/two.tsv" --dev "$W/two.tsv" --text -
    one "classify --train --text -: says why" says 'text beside --train is read twice'
    one "classify --train --text without --mlm" complains "$P/classify" --train README.md --text README.md
    one "classify --train --text without --mlm: says so" says "text beside --train is what the steps of --mlm read"
    if [ -x "$P/rag" ]; then
        one "rag --encoder" works "$P/rag" --threads 1 --encoder "$W/learned.safetensors" --text "$W/lines" --base "$W/lines.base" --ask one --top 2
        one "rag --encoder finds what is the same" says '1.0000   #1 '
        for ask in '' '  '; do
            one "rag --encoder, an empty question" works "$P/rag" --threads 1 --encoder "$W/learned.safetensors" --base "$W/lines.base" --ask "$ask"
            one "rag --encoder, an empty question: lists nothing" says '^encoder, by cosines: nothing$'
        done
        if [ -s "$W/tiny.safetensors" ]; then # which continues texts
            one "rag --encoder that continues texts" works "$P/rag" --threads 1 --encoder "$W/tiny.safetensors" --text "$W/lines" \
                --base "$W/tiny.base" --ask one --top 9
            one "rag --encoder that continues texts: the numbers of lines" says '1.0000   #1 '
            one "rag --encoder that continues texts: no empty line is found" sh -c "! grep -q '#3\|nan' '$W/out'"
            one "rag --encoder that continues texts, its base" works "$P/rag" --threads 1 --encoder "$W/tiny.safetensors" --base "$W/tiny.base" --ask ''
            one "rag --encoder that continues texts, an empty question" says '^encoder, by cosines: nothing$'
        fi
        for o in "--words 9" "--length 9" "--question 9" "--batch 2" "--steps 3" "--read 3" "--tokens 3" "--temperature 1" "--held-out 0.1" "--set d_model=8"; do
            one "rag --encoder $o" complains "$P/rag" --encoder "$W/learned.safetensors" --text "$W/lines" $o
            one "rag --encoder $o: says so" says ": ${o%% *} is for models of rag's own, not for --encoder"
        done
        yes 'one the other' | head -n 99 | tr '\n' ' ' > "$W/much"
        one "rag --encoder, a long passage and a long question" works "$P/rag" --threads 1 --encoder "$W/learned.safetensors" \
            --text "$W/much" --ask "$(cat "$W/much")"
        for what in passages questions; do
            one "rag --encoder: says so of $what" says "^rag: 1 $what are longer than [0-9]* tokens, of which only these are read"
        done
        one "rag --encoder --base" works "$P/rag" --threads 1 --encoder "$W/learned.safetensors" --base "$W/lines.base" --ask one
        one "rag --encoder, another pool" complains "$P/rag" --encoder "$W/learned.safetensors" --pool cls --base "$W/lines.base" --ask one
        one "rag --encoder, another model" complains "$P/rag" --encoder "$W/hidden.safetensors" --base "$W/lines.base" --ask one
        one "rag --encoder and --model" complains "$P/rag" --encoder "$W/learned.safetensors" --model x --text "$W/lines"
        cp "$W/learned.safetensors" "$W/read.safetensors"
        one "rag --encoder in place of --base" spares "$W/read.safetensors" "$P/rag" --encoder "$W/read.safetensors" --text "$W/lines" \
            --base "$W/read.safetensors"
        mkdir -p "$W/notes" && printf 'one\n\ntwo\n' > "$W/notes/a.txt"
        one "rag --encoder --folder" works "$P/rag" --threads 1 --encoder "$W/learned.safetensors" --folder "$W/notes" --base "$W/notes.base"
        printf 'three\n' > "$W/notes/b.md"
        one "rag --encoder --update" works "$P/rag" --threads 1 --encoder "$W/learned.safetensors" --update "$W/notes" --base "$W/notes.base"
        one "rag --encoder --update makes new vectors alone" says '^files: 1 new, 0 changed, 0 gone; 1 of 2 passages encoded$'
    fi
    one "vectors, no such pool" complains "$P/vectors" --pool men "$W/encoder.safetensors"
    one "vectors names the nearest" says mean
    one "vectors, no checkpoint" complains "$P/vectors"
    one "vectors --help > /dev/full" full "$P/vectors" --help
    one "fill" works "$P/fill" "$W/encoder.safetensors" --text 'the [MASK]ther [MASK]' --top 3
    one "fill: three for each of the two" [ "$(grep -c '^  0\.[0-9]* ' "$W/out") $(grep -c '^.MASK. [12]$' "$W/out")" = '6 2' ]
    cp "$W/out" "$W/fill.out"
    one "fill, a text behind the checkpoint" works "$P/fill" --top 3 "$W/encoder.safetensors" 'the [MASK]ther [MASK]'
    one "fill says the same of it" cmp -s "$W/out" "$W/fill.out"
    if command -v python3 > /dev/null 2>&1; then
        one "a damaged encoder" broken "$W/encoder.safetensors" ln_f.weight "$W/broken.safetensors"
        cp "$W/encoder.safetensors.labels" "$W/broken.safetensors.labels"
        for c in "vectors --similarity $W/scores.tsv --columns 1,2,3" "fill --text the[MASK]" \
            "classify --predict $W/two.tsv --columns text --model"; do
            one "${c%% *}, a damaged model" complains "$P/"$c "$W/broken.safetensors"
            one "${c%% *}, a damaged model: says so" says 'what the model says .*is no number'
        done
        one "a damaged decoder" broken "$W/tiny.safetensors" ln_f.weight "$W/broken.safetensors"
        for c in "generate --score $W/lines" "score $W/lines --judge"; do
            [ ! -x "$P/${c%% *}" ] || one "${c%% *}, a damaged model" complains "$P/"$c "$W/broken.safetensors"
            [ ! -x "$P/${c%% *}" ] || one "${c%% *}, a damaged model: says so" says 'what the .* says is no number'
        done
    fi
    one "fill, a text behind an option" works "$P/fill" "$W/encoder.safetensors" --top=3 'the [MASK]ther [MASK]'
    one "fill says the same of it, too" cmp -s "$W/out" "$W/fill.out"
    one "fill, a text before an option" works "$P/fill" "$W/encoder.safetensors" 'the [MASK]ther [MASK]' --top 3
    one "fill says the same of this" cmp -s "$W/out" "$W/fill.out"
    one "fill --seed" complains "$P/fill" --seed 1 "$W/encoder.safetensors" 'the [MASK]ther [MASK]'
    one "fill, two texts" complains "$P/fill" --text '[MASK]' "$W/encoder.safetensors" 'the [MASK]'
    one "fill: all of them have probability 1 in sum" sh -c "'$P/fill' '$W/encoder.safetensors' --text '[MASK]' --top 260 |
        awk 'NR > 1 { s += \$1 } END { exit (s - 1) ^ 2 > 1e-3 }'"
    one "fill, more tokens than a sentence has" complains "$P/fill" "$W/encoder.safetensors" --text "[MASK] $(seq 2000 | tr '\n' ' ') [MASK]"
    one "fill, nothing to fill" complains "$P/fill" "$W/encoder.safetensors" --text 'the other'
    one "fill, no encoder" complains "$P/fill" "$W/tiny.safetensors" --text '[MASK]'
    one "fill --help > /dev/full" full "$P/fill" --help
fi
[ -x "$P/tokens" ] && one "tokens train, a limit on files" limited "$P/tokens" train --size 3000 --out "$W/limited.json" cmha.h
[ -s "$W/tiny.safetensors" ] && [ -x "$P/geometry" ] &&
    one "geometry, a limit on files" limited "$P/geometry" "$W/tiny.safetensors" --svg "$W/limited.svg"
if [ -x "$P/train_tiny" ] && [ -x "$P/generate" ]; then
    tune="--steps 4 --seq 32 --batch 2 --set eval_tokens=64 --csv $W/tune.csv" base=$W/rope.safetensors former=$W/former.safetensors
    part_of=$W/adapters.safetensors
    one "fine-tuning: a RoPE model" works "$P/train_tiny" --attention rope $(but "$quick" --out) --steps 3 --out "$base"
    one "fine-tuning: as a ComplexFormer, delta and b alone" works "$P/train_tiny" --from "$base" --attention cmha \
        --set delta_init=const --freeze '*' --train '*.delta,*.b' $tune --out "$former" README.md
    one "fine-tuning says how much learns" says '16 of them learn'
    one "fine-tuning: --lora" works "$P/train_tiny" --from "$former" --lora 2,4,wq,w2 $tune --out "$part_of" README.md
    one "fine-tuning: its file is small" sh -c '[ "$(wc -c < "$1")" -lt 6000 ] && grep -q lora_b "$1"' - "$part_of"
    one "fine-tuning: --resume" works "$P/train_tiny" --resume="$part_of.last" --steps 6 --csv "$W/tune.csv" --out "$part_of" README.md
    one "fine-tuning: --lora and --train" works "$P/train_tiny" --from "$former" --lora 2 --train '*.delta' $tune --out "$W/both.safetensors"
    one "train_tiny --lora in place of its base" complains "$P/train_tiny" --from "$former" --lora 2 $tune --out "$former"
    one "fine-tuning: its file has delta, too" grep -q attn.delta "$W/both.safetensors"
    one "generate --adapter" works "$P/generate" --adapter "$part_of" --tokens 9 "$former"
    one "generate --adapter --score" works "$P/generate" --adapter "$part_of" --score README.md --tokens 99 --context 32 "$former"
    unmerged=$(cut -d' ' -f1 "$W/out")
    cp "$former.last" "$W/whole.last"
    for whole in "$former" "$base" "$W/whole.last" "$part_of.last"; do
        one "generate --adapter of a whole model, $(basename "$whole")" complains "$P/generate" --adapter "$whole" "$former"
        one "generate --adapter of a whole model, $(basename "$whole"): says so" says ': a whole model, not what a fine-tuning saved apart'
    done
    one "generate --merge" works "$P/generate" --adapter "$part_of" --merge "$W/merged.safetensors" "$former"
    one "generate --score of what was merged" works "$P/generate" --score README.md --tokens 99 --context 32 "$W/merged.safetensors"
    near() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-8) }'; }
    one "generate: merged, the same loss" near "$unmerged" "$(cut -d' ' -f1 "$W/out")"
    one "generate --merge in place of its base" complains "$P/generate" --adapter "$part_of" --merge "$former" "$former"
    one "generate --merge in place of its adapter" complains "$P/generate" --adapter "$part_of" --merge "$part_of" "$former"
    one "generate --merge, then --pack" works "$P/generate" --pack int8 "$W/packed.safetensors" "$W/merged.safetensors"
    one "generate --adapter, another base" complains "$P/generate" --adapter "$part_of" "$W/merged.safetensors"
    one "generate says so" says 'other numbers'
    one "generate, adapters alone" complains "$P/generate" "$part_of"
    one "generate --merge without --adapter" complains "$P/generate" --merge "$W/x.safetensors" "$former"
    one "train_tiny --from what is no checkpoint" complains "$P/train_tiny" --from README.md $tune
    one "train_tiny --from adapters" complains "$P/train_tiny" --from "$part_of" $tune
    one "train_tiny --from, another size" complains "$P/train_tiny" --from "$base" --set d_model=32 $tune
    one "train_tiny --from and --resume" complains "$P/train_tiny" --from "$base" --resume="$part_of.last" $tune
    one "train_tiny --lora without --from" complains "$P/train_tiny" --lora 4 $tune
    one "train_tiny --from, more layers" works "$P/train_tiny" --from "$base" --set n_layers=2 $tune --out "$W/deeper.safetensors" README.md
    one "train_tiny --from, more layers: says what is new" says \
        "^train_tiny: .*rope.safetensors lacks [1-9][0-9]* of the model's [0-9]* tensors, such as blocks.1.*; they begin as in a new model"
    one "train_tiny --from, all there" works "$P/train_tiny" --from "$base" --lora 2 $tune --out "$W/all.safetensors" README.md
    one "train_tiny --from, all there: nothing of that" sh -c "! grep -q lacks '$W/out'"
    one "train_tiny --lora 0" complains "$P/train_tiny" --lora 0 --from "$base" $tune
    one "train_tiny --lora, no such matrix" complains "$P/train_tiny" --lora 4,8,wq,wx --from "$base" $tune
    one "train_tiny names it" says '"wx"'
    one "train_tiny --train, no such parameter" complains "$P/train_tiny" --from "$base" --train '*.delta' $tune
fi
# PyTorch, where some Python has it
for python in python3 /usr/bin/python3; do
    "$python" -c 'import torch' > "$W/out" 2>&1 || continue
    for x in test_lora grad_lora; do
        mkdir -p "$W/$x"
        one "$x writes a curve" works "$B/$x" "$W/$x"
        one "$x: PyTorch's curve is the same" works "$python" tests/lora.py "$W/$x"
    done
    torch=$python
    break
done
[ "$torch" ] || echo "SKIP no Python here has PyTorch: the curve of LoRA is not compared"
if [ -x "$P/generate" ]; then
    one "generate" works "$P/generate" "$W/tiny.safetensors"
    one "generate says something" [ -s "$W/out" ]
    one "generate --score" works "$P/generate" --score README.md "$W/tiny.safetensors"
    cut -d, -f 1-3 "$W/out" > "$W/scored"
    one "generate --score -" sh -c "'$P/generate' --score - '$W/tiny.safetensors' < README.md > '$W/out' 2>&1"
    one "generate --score -: of bytes, too" sh -c "cut -d, -f 1-3 '$W/out' | cmp - '$W/scored'"
    for c in "generate --prompt x" "generate --score README.md" "generate --pack int8 $W/packed" "score --judge" "look --out $W/x.html"; do
        [ -x "$P/${c%% *}" ] || continue
        model="$W/tiny.safetensors"
        [ "${c#score}" = "$c" ] || model="$model README.md"
        one "${c%% -*}, a model of bytes, --tokenizer" complains "$P/"${c%% *} --tokenizer tests/wordpiece_vocab.txt ${c#* } $model
        one "${c%% -*}, a model of bytes: says so" says 'tiny.safetensors reads bytes, not the tokens of tests/wordpiece_vocab.txt$'
    done
    one "generate --help" works "$P/generate" --help
    one "generate --help lists the sampler's fields as others do" says '^Sampler: field, value, range, meaning$'
    one "generate --help: a field has its value in a column" says '^  repetition_penalty 1  *0.01..100 '
    one "generate, a folder of others" complains "$P/generate" tests/models/llama
    one "generate says how to convert it" says 'first: build/convert tests/models/llama OUT.safetensors'
    one "generate, their weights" complains "$P/generate" tests/models/llama/model.safetensors
    one "generate says to convert their folder" says 'first: build/convert FOLDER'
    printf 'GGUF0123456789' > "$W/x.gguf"
    one "generate, a GGUF file" complains "$P/generate" "$W/x.gguf"
    one "generate says so of a GGUF file" says 'is a GGUF file; first: build/convert'
    one "generate --adapter, a GGUF file below it" complains "$P/generate" --adapter "$W/tiny.safetensors" "$W/x.gguf"
    one "generate says so there, too" says 'is a GGUF file; first: build/convert'
    one "train_tiny --from a GGUF file" complains "$P/train_tiny" --from "$W/x.gguf" README.md
    one "train_tiny says so, too" says 'is a GGUF file; first: build/convert'
    head -c 300 README.md > "$W/prompt.txt"
    one "generate takes as much of a long prompt as it looks back" sh -c "'$P/generate' --prompt - --context 128 --tokens 3 '$W/tiny.safetensors' \
        < '$W/prompt.txt' 2>&1 >/dev/null | grep -q '300 tokens the last 128 '"
    one "train_tiny, learned positions" works "$P/train_tiny" --attention dot+learned --steps 1 $(but "$quick" --out) --set max_positions=40 \
        --out "$W/places.safetensors" README.md
    one "generate, more tokens than positions" works "$P/generate" --context 40 --tokens 60 "$W/places.safetensors"
    one "generate says how many are added" says 'generate: only 39 tokens are added: there are positions for 40$'
    one "generate, more tokens than it looks back" works "$P/generate" --tokens 60 "$W/places.safetensors"
    one "generate names --context" says 'generate: only 31 tokens are added: there are positions for 32 (see --context)$'
    for o in "" "--score README.md"; do
        one "generate --context beyond the positions $o" complains "$P/generate" --context 41 $o "$W/places.safetensors"
        one "generate --context beyond the positions $o: says so" says ': --context is beyond the positions of '
    done
    one "generate, sizes whose product is too large" complains "$P/generate" --batch 4 \
        --tokens 4611686018427387905 "$W/tiny.safetensors"
    one "generate says so" says 'no memory'
    for value in -1 3x '' 18446744073709551616; do
        one "generate --tokens '$value'" complains "$P/generate" --tokens "$value" "$W/tiny.safetensors"
        one "generate --batch '$value'" complains "$P/generate" --batch "$value" "$W/tiny.safetensors"
    done
    one "generate, a misspelt field" complains "$P/generate" --set top_kk=1 "$W/tiny.safetensors"
    one "generate names the nearest field" says 'top_k;'
    one "generate --help without a warning" silent "$P/generate" --help
    one "generate > /dev/full" full "$P/generate" --tokens 5 "$W/tiny.safetensors"
    one "generate --help > /dev/full" full "$P/generate" --help
    one "generate, the output closed" closed "$P/generate" --tokens 5 "$W/tiny.safetensors"
    "$P/generate" --tokens 50 "$W/tiny.safetensors" > "$W/bytes"
    one "generate: as many bytes as tokens, and a newline" sh -c "[ \$(wc -c < $W/bytes) -eq 51 ] &&
        [ \"\$(tail -c 1 $W/bytes | od -An -tx1 | tr -d ' ')\" = 0a ]"
    one "generate --verbose" works "$P/generate" --verbose --tokens 50 "$W/tiny.safetensors"
    one "generate --verbose: on a line of its own" says '^generate: prompt of 1 tokens'
    if [ "$terminals" ]; then
        one "generate on a terminal" terminal "$P/generate" --tokens 300 "$W/tiny.safetensors"
        one "generate harms no terminal" harmless
        one "generate shows bytes as \xNN" says '\\x[0-9a-f][0-9a-f]'
        for i in $(seq 20); do printf '€€€€€€€€€'; done > "$W/euros.txt"
        one "train_tiny learns a character" works "$P/train_tiny" $(but "$quick" --batch --out) --steps 150 --lr 1e-2 --batch 4 \
            --set d_model=32 --set d_ff=32 --out "$W/euros.safetensors" "$W/euros.txt"
        one "generate shows characters of several bytes whole" terminal "$P/generate" --prompt '€' \
            --tokens 30 --set temperature=0 "$W/euros.safetensors"
        one "generate shows no byte alone, and the prompt" [ "$(tr -d '\r' < "$W/out")" = '€€€€€€€€€€€' ]
    fi
    one "generate shows the prompt" sh -c "'$P/generate' --prompt 'a\\tprompt ' --tokens 3 '$W/tiny.safetensors' | grep -q '^a	prompt '"
    one "generate: two samples" works "$P/generate" --batch 2 --prompt abc --separator '\x00.' --tokens 7 "$W/tiny.safetensors"
    # seven bytes each, which may be any, and the separator
    one "generate: the samples alone" [ "$(wc -c < "$W/out") $(od -An -v -tx1 -w9 "$W/out" | cut -c 22- | tr -d '\n')" = \
        "18  00 2e 00 2e" ]
    one "generate --special, a model of bytes" complains "$P/generate" --special none "$W/tiny.safetensors"
    one "generate --special, a model of bytes: says so" says ': --special is for a model with a tokenizer, and this one has none$'
    one "generate --special, no such word" complains "$P/generate" --special some "$W/tiny.safetensors"
    one "generate --score" works "$P/generate" --score LICENSE --context 500 --tokens 500 "$W/tiny.safetensors"
    loss=$(cut -d' ' -f1 "$W/out")
    one "generate --score, room for no more than the text" works "$P/generate" --score LICENSE --context 99999999999 --tokens 500 "$W/tiny.safetensors"
    one "generate --score: the same loss" [ "$(cut -d' ' -f1 "$W/out")" = "$loss" ]
    one "generate --score, a text of one token" complains "$P/generate" --score LICENSE --tokens 1 "$W/tiny.safetensors"
    one "generate --score" works "$P/generate" --score LICENSE --context 64 --tokens 500 "$W/tiny.safetensors"
    one "generate --score: perplexity and bits" awk -v RS='[ ,\n]+' '{ f[NR] = $0 }
        END { exit !((log(f[6]) - f[1]) ^ 2 < 1e-8 && (f[1] / log(2) - f[7]) ^ 2 < 1e-8) }' "$W/out"
    unread_by=$W/tiny.safetensors mode="$P/generate --score LICENSE"
    unread 'continuing a text, not for --score' "--prompt a" "--template {prompt}" "--batch 1" "--separator ." --endless "--seed 1" \
        "--set temperature=1"
    for to in pack merge; do
        mode="$P/generate --pack int8 $W/x.safetensors"
        [ $to = pack ] || mode="$P/generate --adapter LICENSE --merge $W/x.safetensors"
        unread "a model that runs, not for --$to" "--prompt a" "--tokens 5" "--context 5" "--batch 2" "--separator ." "--special all" --endless \
            "--seed 1" "--weights int8" "--cache bf16" "--score LICENSE" --round "--set top_k=1"
    done
    one "generate --pack" works "$P/generate" --pack int8 "$W/packed.safetensors" "$W/tiny.safetensors"
    one "generate --pack: no text but a line" [ "$(wc -l < "$W/out")" -eq 1 ]
    one "generate --pack: less than a tenth of a training state" sh -c \
        "[ \$((10 * \$(wc -c < '$W/packed.safetensors'))) -lt \$(wc -c < '$W/tiny.safetensors') ]"
    one "generate --weights int8" works "$P/generate" --tokens 50 --weights int8 --context 128 "$W/tiny.safetensors"
    mv "$W/out" "$W/bytes"
    one "generate from the packed file" works "$P/generate" --tokens 50 --context 128 "$W/packed.safetensors"
    one "generate: the same text from both" cmp "$W/bytes" "$W/out"
    one "generate, a packed file packed otherwise" complains "$P/generate" --weights bf16 "$W/packed.safetensors"
    one "generate says how it is packed" says 'packed already, as int8'
    one "generate --pack=bf16" works "$P/generate" --pack=bf16 "$W/packed.safetensors" "$W/tiny.safetensors"
    one "generate --pack, no storage" complains "$P/generate" --pack f32 "$W/packed.safetensors" "$W/tiny.safetensors"
    one "generate --pack, no file" complains "$P/generate" "$W/tiny.safetensors" --pack int8
    one "generate --pack, an option in place of the file" complains "$P/generate" --pack int8 --verbose "$W/tiny.safetensors"
    one "generate --pack, an option in place of the file: which is none" [ ! -e ./--verbose ]
    one "generate --pack into nowhere" complains "$P/generate" --pack int8 "$W/nowhere/x" "$W/tiny.safetensors"
    one "generate --pack into nowhere, before it reads" complains "$P/generate" --pack int8 "$W/nowhere/x" "$W/nowhere.safetensors"
    one "generate --pack into nowhere: says so" says ': cannot write .*nowhere/x$'
    one "generate, a bad option" complains "$P/generate" --no-such-option
    one "generate, a missing file" complains "$P/generate" "$W/nowhere.safetensors"
    one "generate, a file that is no checkpoint" complains "$P/generate" cmha.h
    if [ -s "$W/series.model" ]; then
        one "generate, a model of numbers" complains "$P/generate" --prompt x "$W/series.model"
        one "generate, a model of numbers: says so" says 'series.model: a model of numbers, which continues no text$'
    fi
fi
if [ -x "$P/score" ]; then
    # of the row NAME in the table: the number in column N
    cell() { awk -v name="$1" -v n="$2" 'index($0, name) == 1 { print $(NF - 2 + n) }' "$W/out"; }
    printf 'a b a b\nabcabcabc\n\nzzzzzz' > "$W/samples.txt"
    one "score" works "$P/score" "$W/samples.txt"
    one "score: samples and tokens, one column" [ "$(awk '/^samples/ { s = $2 } /^tokens/ { print s, $2 }' "$W/out")" = "4 22" ]
    one "score: Dist-1 and Rep-4" [ "$(awk '/^Dist-1/ { d = $2 } /^Rep-4/ { print d, $2 }' "$W/out")" = "0.2273 0.3889" ]
    cp "$W/out" "$W/scored"
    one "score of the standard input" sh -c "'$P/score' - < '$W/samples.txt' > '$W/out' 2>&1"
    one "score of the standard input: the same" cmp "$W/out" "$W/scored"
    sed 's/$/\r/' "$W/samples.txt" > "$W/crlf.txt"
    one "score, lines of Windows" works "$P/score" "$W/crlf.txt"
    one "score, lines of Windows: the same tokens" [ "$(awk '/^samples/ { s = $2 } /^tokens/ { print s, $2 }' "$W/out")" = "4 22" ]
    one "score --dist, --rep" works "$P/score" --dist tokens --rep pooled "$W/samples.txt"
    one "score: pooled" [ "$(awk '/^Dist-2/ { d = $2 } /^Rep-4/ { print d, $2 }' "$W/out")" = "0.3636 0.3846" ]
    one "score: of nothing" complains "$P/score" /dev/null
    one "score, another separator" works "$P/score" --separator 'b\x20' "$W/samples.txt"
    one "score: it counts" says '^samples  *2$'
    one "score --judge, --human" works "$P/score" --judge "$W/tiny.safetensors" --human README.md "$W/samples.txt"
    one "score: as much of people" [ "$(cell tokens 1) $(cell tokens 2) $(cell samples 2)" = "22 22 4" ]
    "$P/generate" --score LICENSE --context 64 --tokens 99999 "$W/tiny.safetensors" > "$W/bytes"
    one "score --judge" works "$P/score" --judge "$W/tiny.safetensors" --context 64 --separator '' LICENSE
    one "score and generate --score agree" [ "$(awk '/^perplexity/ { print $3 }' "$W/out")" = \
        "$(awk '{ print $6 + 0 == $6 ? $6 : substr($6, 1, length($6) - 1) }' "$W/bytes")" ]
    one "score, ids" works "$P/score" --width 2 --length 3 --eos 263 "$W/tokens"
    one "score: ids end at the eos" [ "$(awk '/^samples/ { s = $2 } /^tokens/ { print s, $2 }' "$W/out")" = "133 67" ]
    one "score, ids: those left over get a line" says '^score: the last 1 ids are no whole sample and left out of '
    one "score, ids of whole samples" works "$P/score" --width 2 --length 4 "$W/tokens"
    one "score, ids of whole samples: no line" sh -c "! grep -q 'left out' '$W/out'"
    one "score, ids of less than a sample" complains "$P/score" --width 2 --length 4000 "$W/tokens"
    one "score, ids of less than a sample: says so" says ': fewer ids than a sample has (see --length) are in .*tokens$'
    one "score, ids without a length" complains "$P/score" --width 2 "$W/tokens"
    unread_by=$W/samples.txt mode=$P/score
    unread 'ids, which need --width 2 or 4' "--length 3"
    unread 'a --judge' "--context 9"
    mode="$P/score --width 2 --length 3"
    unread 'texts, not for ids' "--separator x"
    one "score, too short a text of people" complains "$P/score" --human "$W/samples.txt" LICENSE
    one "score, a judge that is no checkpoint" complains "$P/score" --judge LICENSE LICENSE
    one "score, a bad option" complains "$P/score" --jugde x LICENSE
    one "score, a bad choice" complains "$P/score" --rep some LICENSE
    one "score, a missing file" complains "$P/score" "$W/nowhere.txt"
    one "score --help > /dev/full" full "$P/score" --help
    one "score, the output closed" closed "$P/score" LICENSE
fi
if [ "$tokenizers" ] && [ -x "$P/tokens" ]; then
    one "a tokenizer of ours" works "$P/tokens" train --size 320 --special '<|endoftext|>' --out "$W/bpe.json" README.md
    one "tokens, a pair and its types" [ "$(printf 'the\tthe the\r\n' | "$P/tokens" encode --lines --special tests/wordpiece_vocab.txt |
        cut -f 2)" = "0 0 0 1 1 1" ]
    one "tokens, a text alone and an empty one" [ "$(printf 'the the\n\nthe' | "$P/tokens" encode --lines tests/wordpiece_vocab.txt |
        cut -f 2 | tr '\n' .)" = "0 0..0." ]
    one "tokens, --fit without --lines" complains "$P/tokens" encode --fit tests/wordpiece_vocab.txt
    one "tokens, --lines and --binary" complains "$P/tokens" encode --lines --binary tests/wordpiece_vocab.txt
    one "tokens --lines, three texts" sh -c "! printf 'the\tthe\nthe\tthe\tthe\n' | '$P/tokens' encode --lines tests/wordpiece_vocab.txt > '$W/ids' 2> '$W/out'"
    one "tokens --lines, three texts: says where" says '^tokens: line 2 has more than two texts, which a tab parts$'
    one "tokens decode, a zero byte" sh -c "! printf '1\0002' | '$P/tokens' decode tests/wordpiece_vocab.txt > '$W/ids' 2> '$W/out'"
    one "tokens decode, a zero byte: says so" says ': a zero byte is not the number of a token$'
    one "tokens train --min-count 0" complains "$P/tokens" train --min-count 0 --out "$W/none.json" README.md
    one "tokens train, values behind =" works "$P/tokens" train --size=300 --special='<a=b>' --out="$W/signs.json" README.md
    one "tokens train, values behind blanks" works "$P/tokens" train --size 300 --special '<a=b>' --out "$W/blanks.json" README.md
    one "tokens train: the same" cmp "$W/signs.json" "$W/blanks.json"
    one "tokens train into nowhere, before it reads" complains "$P/tokens" train --size 300 --out "$W/nowhere/x.json" "$W/nowhere.txt"
    one "tokens train into nowhere: says so" says ': cannot write .*nowhere/x.json'
    one "tokens train --size, none" complains "$P/tokens" train --size= --out "$W/none.json" README.md
    one "tokens train, --size twice" complains "$P/tokens" train --size 300 --size=310 --out "$W/none.json" README.md
    one "tokens train, --size twice: says so" says ': one --size is enough, what is 310$'
    one "tokens train, --size twice: nothing is written" [ ! -e "$W/none.json" ]
    one "tokens, decode --lines" complains "$P/tokens" decode --lines tests/wordpiece_vocab.txt
    if [ "$terminals" ]; then
        printf 'a \033[31mred\377 whale\n' | "$P/tokens" encode "$W/bpe.json" > "$W/steer.ids"
        one "tokens decode on a terminal" terminal "'$P/tokens' decode '$W/bpe.json' < '$W/steer.ids'"
        one "tokens decode harms no terminal" harmless
        one "tokens decode shows bytes as \xNN" says 'a \\x1b\[31mred\\xff whale'
    fi
    one "another one" works "$P/tokens" train --size 330 --out "$W/other.json" README.md
    speak="$(but "$quick" --out --csv | sed 's/ --set d_[a-z]*=16//g') --set d_model=32 --set d_ff=32 --set eval_every=2 --out $W/speak.safetensors --csv $W/speak.csv"
    rm -f "$W/speak.tokenizer.json"
    one "train_tiny --tokenizer" works "$P/train_tiny" --steps 4 $speak --tokenizer "$W/bpe.json" LICENSE
    one "train_tiny ends the sample with a newline" [ "$(tail -c 1 "$W/out" | od -An -tx1 | tr -d ' ')" = 0a ]
    one "train_tiny: the sample begins with the text's first token" sh -c \
        "[ \"\$(head -c 1 '$W/out')\" = \"\$(head -c 1 LICENSE)\" ]"
    one "train_tiny keeps the tokenizer" [ "$("$P/tokens" inspect "$W/speak.tokenizer.json" | grep identity)" = \
        "$("$P/tokens" inspect "$W/bpe.json" | grep identity)" ]
    "$P/tokens" encode "$W/bpe.json" < LICENSE > "$W/ids"
    "$P/tokens" encode "$W/bpe.json" --binary < LICENSE > "$W/ids.binary"
    one "train_tiny reads what tokens encode writes" cmp "$W/ids.binary" "$W/speak.ids"
    # the last tenth is held out; of it 64 tokens (eval_tokens) behind the first are scored
    n=$(wc -l < "$W/ids") && tail -n $((n / 10)) "$W/ids" | sed -n 2,65p > "$W/scored"
    one "train_tiny: bits are those of the tokens scored" awk -F, -v n="$(wc -l < "$W/scored")" \
        -v bytes="$("$P/tokens" decode "$W/bpe.json" < "$W/scored" | wc -c)" '
        $3 && NR > 1 { rows++; if (($3 * n / bytes / log(2) - $8) ^ 2 > 1e-8) exit bad = 1 }
        END { exit bad || rows != 2 }' "$W/speak.csv"
    cut -d, -f1-5 "$W/speak.csv" > "$W/first.csv"
    one "train_tiny --width 2 with the same tokens" works "$P/train_tiny" --steps 4 $speak --tokenizer "$W/bpe.json" --width 2 "$W/ids.binary"
    one "train_tiny learns the same" sh -c "cut -d, -f1-5 '$W/speak.csv' | cmp - '$W/first.csv'"
    one "train_tiny --resume knows its tokenizer" works "$P/train_tiny" --steps 6 $speak --resume LICENSE
    one "train_tiny --resume, another tokenizer" complains "$P/train_tiny" --steps 8 $speak --resume --tokenizer "$W/other.json" LICENSE
    one "train_tiny names both" says 'other.json is the tokenizer bpe-[0-9a-f]*, but .* of bpe-'
    one "train_tiny --resume, a tokenizer for bytes" complains "$P/train_tiny" $small --resume --tokenizer "$W/bpe.json" LICENSE
    one "train_tiny, a text that is none" complains "$P/train_tiny" $speak --tokenizer "$W/bpe.json" "$W/nowhere.txt"
    one "train_tiny, the same with another tokenizer" complains "$P/train_tiny" $speak --tokenizer "$W/other.json" "$W/nowhere.txt"
    : > "$W/nothing.txt"
    one "train_tiny, an empty text" complains "$P/train_tiny" $speak --tokenizer "$W/bpe.json" "$W/nothing.txt"
    one "train_tiny, an empty text: says which" says 'nothing.txt into .*speak.ids: the text gives no tokens$'
    one "train_tiny leaves the one beside OUT" works "$P/generate" --tokens 5 "$W/speak.safetensors"
    one "train_tiny, a tokenizer that is none" complains "$P/train_tiny" $speak --tokenizer LICENSE LICENSE
    one "train_tiny, ids without --width" complains "$P/train_tiny" --steps 1 $speak --tokenizer "$W/bpe.json" "$W/speak.ids"
    one "train_tiny leaves them alone" cmp "$W/ids.binary" "$W/speak.ids"
    cp "$W/bpe.json" "$W/bpe.kept" && cp LICENSE "$W/own.tokenizer.json"
    for both in "--csv $W/speak.ids" "--plot $W/speak.ids" "--csv $W/speak.tokenizer.json" "--csv $W/bpe.json" "--out $W/own.safetensors"; do
        one "train_tiny --tokenizer $both" complains "$P/train_tiny" --steps 1 $(but "$speak" ${both%% *}) --tokenizer "$W/bpe.json" $both "$W/own.tokenizer.json"
        one "train_tiny --tokenizer $both: says so" says 'would replace'
    done
    one "train_tiny leaves the tokenizer" cmp "$W/bpe.json" "$W/bpe.kept"
    one "train_tiny, nowhere to put ids" complains "$P/train_tiny" $(but "$speak" --out) --out "$W/nowhere/x.safetensors" \
        --tokenizer "$W/bpe.json" LICENSE

    one "generate on tokens" works "$P/generate" --prompt 'The above copyright' --tokens 5 "$W/speak.safetensors"
    one "generate shows the prompt of tokens" says '^The above copyright'
    one "generate on tokens, numbers of tokens" sh -c "'$P/generate' --prompt 'The above' --tokens 0 '$W/speak.safetensors' | grep -qx 'The above'"
    one "generate, another tokenizer" complains "$P/generate" --tokenizer "$W/other.json" "$W/speak.safetensors"
    # A run that is stopped before it has measured anything leaves the model that is there its tokenizer, and its state has its own
    for f in "" .last; do cp "$W/speak.safetensors$f" "$W/early.safetensors$f"; done
    cp "$W/speak.tokenizer.json" "$W/early.tokenizer.json" && cp "$W/speak.tokenizer.json" "$W/early.kept" && rm -f "$W/early.csv"
    early="--quiet --seq 32 --batch 2 --set n_layers=1 --set d_model=16 --set d_ff=16 --set n_heads=2 --set eval_tokens=64"
    early="$early --set eval_every=1000000 --out $W/early.safetensors --csv $W/early.csv"
    "$P/train_tiny" $early --steps 1000000 --tokenizer "$W/other.json" LICENSE > "$W/out" 2>&1 < /dev/null & run=$!
    while [ ! -s "$W/early.csv" ] || [ "$(wc -l < "$W/early.csv")" -lt 3 ]; do kill -0 $run 2> /dev/null || break; sleep 0.05; done
    kill $run; wait $run
    one "train_tiny, another tokenizer, stopped early" says '^train_tiny: stopped; --resume continues$'
    one "train_tiny, stopped early: the model's tokenizer stays" cmp "$W/early.tokenizer.json" "$W/early.kept"
    one "train_tiny, stopped early: and serves it" works "$P/generate" --tokens 5 "$W/early.safetensors"
    one "train_tiny, stopped early: the state has its own" works "$P/generate" --tokens 5 "$W/early.safetensors.last"
    steps=$(($(grep -ao '"state.step":"[0-9]*"' "$W/early.safetensors.last" | tr -dc 0-9) + 1))
    one "train_tiny, stopped early, resumed" works "$P/train_tiny" $early --steps $steps --resume LICENSE
    one "train_tiny, stopped early, resumed: model and tokenizer are the new ones" works "$P/generate" --tokens 5 "$W/early.safetensors"
    one "train_tiny, stopped early, resumed: nothing is left apart" [ ! -e "$W/early.safetensors.last.tokenizer.json" ]
    mv "$W/speak.tokenizer.json" "$W/tokenizer.json"
    one "generate finds tokenizer.json in the folder" works "$P/generate" --tokens 5 "$W/speak.safetensors"
    mv "$W/tokenizer.json" "$W/speak.json"
    one "generate, no tokenizer there" complains "$P/generate" --tokens 5 "$W/speak.safetensors"
    one "generate says where it looked" says 'speak.tokenizer.json nor tokenizer.json'
    one "generate --pack without it" works "$P/generate" --pack int8 "$W/speak8.safetensors" "$W/speak.safetensors"
    one "generate says that it is missing" says 'no tokenizer was saved'
    mv "$W/speak.json" "$W/speak.tokenizer.json"
    one "generate --pack, a model on tokens" works "$P/generate" --pack int8 "$W/speak8.safetensors" "$W/speak.safetensors"
    one "generate: what was packed has its tokenizer" works "$P/generate" --tokens 5 "$W/speak8.safetensors"
    cp "$W/bpe.json" "$W/learnt.json" && : > "$W/nothing.txt"
    one "tokens train, an empty text" complains "$P/tokens" train --out "$W/learnt.json" "$W/nothing.txt"
    one "tokens train, an empty text: says so" says ': there is no text to learn from in .*nothing.txt$'
    one "tokens train, an empty text: the old one stays" cmp "$W/bpe.json" "$W/learnt.json"
    cp LICENSE "$W/own.txt"
    one "tokens train in place of its text" complains "$P/tokens" train --out "$W/own.txt" "$W/own.txt"
    one "tokens leaves that" cmp LICENSE "$W/own.txt"
    "$P/generate" --score LICENSE --context 64 --tokens 99999 "$W/speak.safetensors" > "$W/bytes"
    n=$(wc -l < "$W/ids")
    one "generate --score on tokens: as many" grep -q ", $((n - 1)) tokens" "$W/bytes"
    one "score on tokens" works "$P/score" --judge "$W/speak.safetensors" --separator '' --context 64 --human README.md LICENSE
    one "score on tokens: as many of people" [ "$(cell tokens 1) $(cell tokens 2)" = "$n $n" ]

    for i in $(seq 60); do printf 'ab<|endoftext|>'; done > "$W/ends.txt"
    one "train_tiny learns where a text ends" works "$P/train_tiny" $(but "$speak" --batch --out) --steps 120 --lr 1e-2 --batch 4 --set eval_every=60 \
        --out "$W/ends.safetensors" --tokenizer "$W/bpe.json" "$W/ends.txt"
    greedy="--set temperature=0 --tokens 6 $W/ends.safetensors"
    ended() { one "generate $1" [ "$("$P/generate" $1 $greedy)" = "$2" ]; }
    ended "--prompt ab" ab
    ended "" ab
    ended "--prompt a --special all" 'ab'
    ended "--prompt ab --endless" ababab
    ended "--prompt ab --endless --special all" 'ab<|endoftext|>ab<|endoftext|>ab'
    ended "--prompt a --batch 2" "$(printf -- '--- 1 ---\nab\n--- 2 ---\nab')"
    ended "--prompt a --batch 3 --separator ." 'b.b.b.'

    tiny="--quiet --train $W/texts.tsv --dev $W/texts.tsv --length 32 --set n_layers=1 --set d_model=16 --set d_ff=16 --out $W/texts.safetensors"
    { echo 'label	text'; for i in 1 2 3 4 5 6 7 8; do printf 'good\tnice %s\nbad\tawful %s\n' $i $i; done; } > "$W/texts.tsv"
    for t in "$W/bpe.json" tests/wordpiece_vocab.txt; do
        one "classify --tokenizer $(basename "$t")" works "$P/classify" $tiny --columns label,text --epochs 20 --batch 4 --lr 1e-2 \
            --set dropout=0 --mlm 2 --tokenizer "$t"
        one "classify --predict finds it" works "$P/classify" --predict "$W/texts.tsv" --columns text --model "$W/texts.safetensors"
        one "classify --predict, the same by name" works "$P/classify" --predict "$W/texts.tsv" --columns text \
            --model "$W/texts.safetensors" --vocab "$t"
        one "classify --predict answers every line" [ "$(wc -l < "$W/out")" -eq 16 ]
        one "classify --predict, another tokenizer" complains "$P/classify" --predict "$W/texts.tsv" --columns text \
            --model "$W/texts.safetensors" --tokenizer "$W/other.json"
    done
    printf 'The whale swims. It sings.\nBread of today. Butter of tomorrow.\nThe sea is deep. It is cold.\nA town of people. It has a market.\n' > "$W/four.txt"
    one "rag --tokenizer" works "$P/rag" --quiet --length 16 --batch 2 --steps 2 --read 2 --tokens 3 --set n_layers=1 --set d_model=16 \
        --set d_ff=16 --held-out 0 --tokenizer "$W/bpe.json" --text "$W/four.txt" --save "$W/four" --base "$W/four.base" --ask whale
    one "rag keeps the tokenizer" works "$P/rag" --quiet --length 16 --tokens 3 --model "$W/four" --base "$W/four.base" --ask whale
    one "rag, another tokenizer" complains "$P/rag" --quiet --length 16 --model "$W/four" --base "$W/four.base" --tokenizer "$W/other.json" \
        --ask whale
fi
if [ ! "$tokenizers" ]; then
    for n in train_tiny generate classify rag score; do
        one "$n names what tokenizers need" complains "$P/$n" --tokenizer LICENSE --text LICENSE --train LICENSE --dev LICENSE
    done
fi
if [ -x "$P/classify" ]; then
    { echo 'label	text'; for i in 1 2 3 4 5 6 7 8; do printf 'good\tnice %s\nbad\tawful %s\n' $i $i; done; } > "$W/texts.tsv"
    tiny="--quiet --train $W/texts.tsv --dev $W/texts.tsv --length 32 --set n_layers=1 --set d_model=16 --set d_ff=16 --out $W/texts.safetensors"
    one "classify learns to tell two words apart" works "$P/classify" $tiny --columns label,text --epochs 30 --batch 4 --lr 1e-2 --set dropout=0
    one "classify says how well" says 'best accuracy 1.0000'
    one "classify --predict" works "$P/classify" --predict "$W/texts.tsv" --columns text --model "$W/texts.safetensors"
    one "classify --predict names the classes" says '^bad	[01]\.'
    one "classify --predict answers every line" [ "$(wc -l < "$W/out")" -eq 16 ]
    one "classify --mlm, with weights" works "$P/classify" $tiny --columns 1,2 --mlm 2 --epochs 1 --class-weights balanced --metric matthews
    one "classify, a bad option" complains "$P/classify" --no-such-option
    cp "$W/texts.tsv" "$W/kept.tsv"
    one "classify, --out that it reads" complains "$P/classify" $(but "$tiny" --out) --columns label,text --out "$W/texts.tsv"
    one "classify leaves it" cmp "$W/texts.tsv" "$W/kept.tsv"
    cp "$W/texts.tsv" "$W/read.labels"
    one "classify, the labels beside --out are what it reads" spares "$W/read.labels" "$P/classify" $(but "$tiny" --dev --out) --columns label,text \
        --dev "$W/read.labels" --out "$W/read"
    one "classify, --out in no folder, at once" complains "$P/classify" $(but "$tiny" --out) --columns label,text --epochs 100000 --out "$W/no/where"
    one "classify, ema" complains "$P/classify" $tiny --columns label,text --set ema=0.9
    # two columns of text: a line without them has no answer, so there is an error
    printf 'label\ttext\tmore\n' > "$W/both.tsv" && sed '1d; s/$/\tso/' "$W/texts.tsv" >> "$W/both.tsv"
    one "classify, pairs" works "$P/classify" --quiet --train "$W/both.tsv" --dev "$W/both.tsv" --length 32 --epochs 1 --set n_layers=1 \
        --set d_model=16 --set d_ff=16 --columns label,text,more --out "$W/both.safetensors"
    printf 'a\tb\nc\td\n' > "$W/some.tsv"
    one "classify --predict, pairs" works "$P/classify" --predict "$W/some.tsv" --columns 1,2 --model "$W/both.safetensors"
    one "classify --predict, pairs: answers every line" [ "$(wc -l < "$W/out")" -eq 2 ]
    printf 'a b c d\tb c\nc\td\n' > "$W/some.tsv"
    one "classify --predict, a long pair" works "$P/classify" --predict "$W/some.tsv" --columns 1,2 --model "$W/both.safetensors" --length 6
    one "classify --predict, a long pair: is cut" says ': 1 of 2 rows have more than 6 tokens and are cut (--length): '
    printf 'a\tb\n\nc\td\n\n' > "$W/some.tsv"
    one "classify --predict, pairs, empty lines" complains "$P/classify" --predict "$W/some.tsv" --columns 1,2 --model "$W/both.safetensors"
    one "classify --predict, pairs, empty lines: says which" says 'has 2 empty lines, .* the first is line 2$'
    printf 'a\n\nc\n' > "$W/some.tsv"
    one "classify --predict, an empty text" works "$P/classify" --predict "$W/some.tsv" --columns 1 --model "$W/texts.safetensors"
    one "classify --predict, an empty text: answers every line" [ "$(wc -l < "$W/out")" -eq 3 ]
    # What training alone reads is not for --predict, also where it has the value that it would have
    for o in "--epochs 3" "--lr 1" "--set d_model=8" "--metric f1" "--class-weights balanced" "--dev $W/texts.tsv" "--out $W/x" "--seed 1" \
        "--preset encoder" "--freeze blocks.0.*" "--mlm 0"; do
        one "classify --predict $o" complains "$P/classify" --predict "$W/texts.tsv" --columns text --model "$W/texts.safetensors" $o
        one "classify --predict $o: says so" says ": ${o%% *} is for a training, not for --predict"
    done
    one "classify --predict, options that it reads" works "$P/classify" --predict "$W/texts.tsv" --columns text --model "$W/texts.safetensors" \
        --threads 1 --batch 3 --length 20 --quiet
    one "classify --predict, a length beyond the model's" complains "$P/classify" --predict "$W/texts.tsv" --columns text \
        --model "$W/texts.safetensors" --length 33
    one "classify --predict, a length beyond the model's: says so" says 'length is beyond the positions of .*texts.safetensors$'
    one "classify --tokenizer --vocab" complains "$P/classify" $tiny --columns label,text --tokenizer tests/wordpiece_vocab.txt --vocab LICENSE
    one "classify --tokenizer --vocab: says so" says ': --vocab is --tokenizer, and one is enough'
    one "classify --model without --predict" complains "$P/classify" $tiny --columns label,text --model "$W/texts.safetensors"
    for field in steps classes tokenizer vocabulary max_positions mask_token eval_every held_out; do
        one "classify --set $field" complains "$P/classify" $tiny --columns label,text --set $field=9
        one "classify --set $field: says whose it is" says "$field is the program's own field, as "
    done
    one "classify --predict, three columns" complains "$P/classify" --predict "$W/texts.tsv" --columns 1,2,1 --model "$W/texts.safetensors"
    { for i in 1 2 3 4 5 6 7 8; do printf 'x	acceptable	*	nice %s\nx	unacceptable	*	awful %s\n' $i $i; done; } > "$W/words.tsv"
    one "classify --task, labels in words" works "$P/classify" --task cola --train "$W/words.tsv" --dev "$W/words.tsv" --quiet --length 32 --epochs 20 \
        --batch 4 --lr 1e-2 --set n_layers=1 --set d_model=16 --set d_ff=16 --set dropout=0 --columns 2,4 --out "$W/words.safetensors"
    one "classify --task: they stay what they are" works "$P/classify" --predict "$W/words.tsv" --columns 4 --model "$W/words.safetensors"
    one "classify --task: in each row" sh -c "cut -f 2 '$W/words.tsv' | grep accept > '$W/want' && grep -o '^[a-z]*acceptable' '$W/out' | cmp - '$W/want'"
    one "classify, no such column" complains "$P/classify" $tiny --columns label,nothing
    one "classify, labels that are no numbers" complains "$P/classify" $tiny --columns label,text --metric spearman
    one "classify, a missing file" complains "$P/classify" $(but "$tiny" --train) --task sst2 --train "$W/nowhere.tsv"
    if [ -s "$W/series.model" ]; then
        one "classify --predict, a model of numbers" complains "$P/classify" --predict README.md --model "$W/series.model"
        one "classify --predict, a model of numbers: says so" says 'series.model: a model of numbers, which reads no text$'
        one "classify --from, a model of numbers" complains "$P/classify" $tiny --columns label,text --from "$W/series.model"
        one "classify --from, a model of numbers: says so" says 'series.model: a model of numbers, which reads no text$'
    fi
    printf 'good\r\tit is\nbad\tit was\ngood\tit was not\n' > "$W/return.tsv"
    one "classify, a label that ends in a carriage return" complains "$P/classify" $(but "$tiny" --train --dev --out) --columns 1,2 \
        --train "$W/return.tsv" --dev "$W/return.tsv" --out "$W/return.safetensors"
    one "classify, a label that ends in a carriage return: says so" says ': line 1: a label ends in a carriage return$'
    one "classify, no types of tokens" works "$P/classify" $(but "$tiny" --out) --columns label,text --epochs 1 \
        --set token_types=0 --out "$W/typeless.safetensors"
    one "classify --predict, no types of tokens" works "$P/classify" --predict "$W/texts.tsv" --columns text --model "$W/typeless.safetensors"
    one "classify, a checkpoint without classes" complains "$P/classify" --predict README.md --model "$W/tiny.safetensors"
    one "classify --help" works "$P/classify" --help
    one "classify, a batch that is too large" complains "$P/classify" $(but "$tiny" --length) --columns label,text \
        --batch 1048576 --length 16777216
    one "classify, no whole number" complains "$P/classify" $tiny --columns label,text --epochs 1e3
    one "classify, a misspelt field" complains "$P/classify" $tiny --columns label,text --set n_layer=1
    one "classify names the nearest field" says 'model nor training .* n_layers'
    one "classify --predict > /dev/full" full "$P/classify" --predict "$W/texts.tsv" --columns text \
        --model "$W/texts.safetensors"
    one "classify, the output closed" closed "$P/classify" --predict "$W/texts.tsv" --columns text \
        --model "$W/texts.safetensors"
    one "classify --help without a warning" silent "$P/classify" --help
    # A run that ends early, or is stopped, and goes on is one that went through: state, best epoch and all
    again="--train $W/texts.tsv --dev $W/texts.tsv --length 32 --batch 4 --lr 1e-2 --columns label,text --set n_layers=1 --set d_model=16
        --set d_ff=16 --threads 1"
    whole="$W/whole.safetensors" parts="$W/parts.safetensors"
    same_run() { for end in '' .labels .last .last.run; do cmp "$whole$end" "$parts$end" || return 1; done; }
    one "classify, at once" works "$P/classify" $again --mlm 3 --epochs 12 --out "$whole"
    one "classify prints a line for each class" awk '/^(bad|good) / && NF == 6 && $2 + $3 == 8 && $6 <= 1 { n++ } END { exit n != 2 }' "$W/out"
    one "classify: of as many as there are rows" says '^16 of 16 right$'
    one "classify: the best value is the last line" sh -c "tail -n 1 '$W/out' | grep -q '^best accuracy 1.0000, in '"
    one "classify --patience" works "$P/classify" $again --mlm 3 --epochs 12 --patience 2 --out "$parts"
    kept=$(sed -n 's/^epoch \([0-9]*\) of [0-9]* is kept: accuracy 1.0000$/\1/p' "$W/out")
    done=$(sed -n 's/^epoch [0-9]* of \([0-9]*\) is kept: accuracy 1.0000$/\1/p' "$W/out")
    one "classify --patience: stops after epoch $done" [ "${done:-12}" -lt 12 ]
    one "classify --patience: and keeps epoch $kept" [ "${kept:-0}" -eq $((done - 2)) ]
    one "classify --patience: the state is another" sh -c "! cmp -s '$whole.last' '$parts.last'"
    one "classify --resume, patience is over" works "$P/classify" $again --mlm 3 --epochs 12 --patience 2 --out "$parts" --resume
    one "classify --resume: the same epoch" says "^epoch $kept of $done is kept: accuracy 1.0000\$"
    sed 2,3d "$W/texts.tsv" > "$W/fewer.tsv"
    for other in "--lr 2e-2" "--epochs 13" "--set n_heads=8" "--seed 2" "--mlm 4" "--metric f1" "--class-weights balanced" "--take 12" \
        "--freeze blocks.0.*" "--rate blocks.0.*=2" "--dev $W/fewer.tsv" "--train $W/fewer.tsv" "--attention cmha" "--resume=$whole.last" "--text $W/fewer.tsv"; do
        one "classify --resume, $other" complains "$P/classify" $(but "$again --mlm 3 --epochs 12" ${other%% *}) --quiet --out "$parts" \
            --resume $other
        one "classify --resume, $other: says of what" says 'another --\|\(n_heads\|attention\) is \|\(lr\|steps\) was \|takes no value: --resume'
    done
    one "classify --resume" works "$P/classify" $again --mlm 3 --epochs 12 --out "$parts" --resume
    one "classify --resume: as at once" same_run
    one "classify --resume says the same" says "^16 of 16 right\$"
    one "classify --resume, all is done" works "$P/classify" $again --mlm 3 --epochs 12 --out "$parts" --resume
    one "classify --resume: still as at once" same_run
    one "classify --resume, no state" complains "$P/classify" $again --quiet --out "$W/nowhere.safetensors" --resume
    cp "$whole" "$parts.last"
    one "classify --resume, a model without a state" complains "$P/classify" $again --mlm 3 --epochs 12 --quiet --out "$parts" --resume
    cp "$whole.last" "$parts.last" && rm "$parts.last.run"
    one "classify --resume, half a state" complains "$P/classify" $again --mlm 3 --epochs 12 --quiet --out "$parts" --resume
    cp "$whole.last.run" "$parts.last.run" && rm "$parts"
    one "classify --resume, without the best epoch" complains "$P/classify" $again --mlm 3 --epochs 12 --quiet --out "$parts" --resume
    one "classify --resume --predict" complains "$P/classify" --resume --predict "$W/texts.tsv" --model "$whole"
    one "classify --patience, no whole number" complains "$P/classify" $again --patience soon
    # Stopped within an epoch, wherever it may be
    dropped="$again --set dropout=0.1 --metric matthews --class-weights 1,2 --quiet --epochs 100"
    one "classify with dropout, at once" works "$P/classify" $dropped --out "$whole"
    rm -f "$parts.last"
    "$P/classify" $dropped --out "$parts" > "$W/stopped" 2>&1 < /dev/null & run=$!
    i=0; while [ ! -e "$parts.last" ] && [ $i -lt 600 ]; do sleep 0.01; i=$((i + 1)); done
    kill -TERM $run; wait $run; stopped=$?
    one "classify, stopped: status $stopped" [ $stopped -eq 143 ]
    one "classify, stopped: says what goes on" grep -q 'stopped; --resume continues' "$W/stopped"
    one "classify, stopped and resumed" works "$P/classify" $dropped --out "$parts" --resume
    one "classify, stopped and resumed: as at once" same_run
    # Names of classes are cut by characters, and steer nothing; of many there is no table, of numbers neither
    printf 'label\ttext\n\320\277\320\276\320\267\320\270\321\202\320\270\320\262\321\213\320\271\tnice\n\033[31mred\377\tawful\n' > "$W/names.tsv"
    one "classify, names in UTF-8" works "$P/classify" $(but "$again" --train --dev) --train "$W/names.tsv" --dev "$W/names.tsv" --epochs 1 --out "$W/names.safetensors"
    one "classify, names in UTF-8: harmless" harmless
    one "classify, names in UTF-8: six characters of a column" says "^ *?\[31mr $(printf '\320\277\320\276\320\267\320\270\321\202\320\270')  precision"
    { echo 'label	text'; for i in $(seq 21); do printf 'c%d\tword %d\n' $i $i; done; } > "$W/many.tsv"
    one "classify, 21 classes" works "$P/classify" $(but "$again" --train --dev) --train "$W/many.tsv" --dev "$W/many.tsv" --epochs 1 --out "$W/many.safetensors"
    one "classify, 21 classes: a line" says '^21 classes: no table '
    for i in 1 2 3 4 5 6; do printf '%d\tword %d\n' $i $i; done > "$W/scored.tsv"
    scored="$(but "$again" --train --dev --columns) --columns 1,2 --train $W/scored.tsv --dev $W/scored.tsv"
    one "classify, numbers" works "$P/classify" $scored --metric pearson --epochs 2 --patience 1 \
        --out "$W/scored.safetensors"
    for metric in pearson spearman; do
        one "classify, numbers, --class-weights" complains "$P/classify" $scored --metric $metric --epochs 2 --out "$W/x.safetensors" --class-weights nonsense
        one "classify, numbers, --class-weights: says why" says "class-weights is for classes, not for --metric $metric"
    done
    one "classify, numbers, once more" works "$P/classify" $scored --metric pearson --epochs 2 \
        --out "$W/scored.safetensors"
    one "classify, numbers: no table" sh -c "! grep -q ' right\$\|no table' '$W/out'"
    if [ "$terminals" ]; then
        printf 'label\ttext\n\033[31m\tred\n\377\tblue\n' > "$W/steer.tsv"
        one "classify, labels that steer a terminal" works "$P/classify" $(but "$tiny" --train --dev) --train "$W/steer.tsv" \
            --dev "$W/steer.tsv" --columns label,text --epochs 1
        one "classify --predict on a terminal" terminal "$P/classify" --predict "$W/steer.tsv" \
            --columns text --model "$W/texts.safetensors"
        one "classify harms no terminal" harmless
    fi
fi
if [ -x "$P/rag" ]; then
    # lists SEARCHER N PATTERN: its list in the last answer has N passages, all of which match
    lists() {
        awk -v name="$1" -v n="$2" -v pattern="$3" '/^[^ ]/ { on = index($0, name) == 1 }
            on && /#[0-9]/ { count++; if ($0 !~ pattern) bad = 1 }
            END { exit bad || count + 0 != n }' "$W/out"
    }
    : > "$W/passages.txt"; printf 'where are the whales\twhale\nbread and butter\t#2 #5\n' > "$W/pairs.tsv"
    for i in 1 2 3 4; do
        printf 'The whale number %s swims. A whale lives in the deep sea and sings.\nBread of %s days. Bread and butter make a meal.\n\n' $i $i
    done >> "$W/passages.txt"
    tiny="--quiet --length 16 --batch 4 --steps 3 --read 2 --held-out 0.3 --set n_layers=1 --set d_model=16 --set d_ff=16"
    one "rag trains, reports and answers" works "$P/rag" $tiny --text "$W/passages.txt" --pairs "$W/pairs.tsv" --save "$W/rag" \
        --base "$W/rag.base" --ask 'the deep sea' --tokens 3
    one "rag: BM25 finds both" says '^BM25, .*1.000'
    one "rag: four searchers are measured" [ "$(grep -c '^[CBbr].*  [01]\.[0-9]*$' "$W/out")" -eq 4 ]
    one "rag: the decoder is measured" says 'nats per token: [0-9.]* with the base'
    grep '^  [0-9w]' "$W/out" > "$W/rag.first"
    one "rag with the saved models and base" works "$P/rag" --quiet --length 16 --tokens 3 --model "$W/rag" --base "$W/rag.base" \
        --ask 'the deep sea'
    grep '^  [0-9w]' "$W/out" > "$W/rag.second"
    one "rag gives the same answer again" cmp "$W/rag.first" "$W/rag.second"
    one "rag: BM25 lists what shares a word" lists BM25 4 'deep sea'
    { printf '\357\273\277whales\n%0149d\303\251 and sands\n' 0; sed '/^$/d' "$W/passages.txt"; } > "$W/marked.txt"
    one "rag, a byte order mark, a long line" works "$P/rag" $(but "$tiny" --read) --read 0 --text "$W/marked.txt" --ask 'whales sands' --tokens 0
    one "rag, a byte order mark: the first word is found" lists BM25 2 'whales$|00 ..$'
    one "rag, a long line: no half character" harmless
    one "rag: either's best may lead both" says '^  0\.03[0-9]* *#'
    { cat "$W/pairs.tsv"; echo 'a question alone'; } > "$W/ragged.tsv"
    one "rag, a question without an answer" works "$P/rag" $(but "$tiny" --read) --read 0 --text "$W/passages.txt" --pairs "$W/ragged.tsv"
    one "rag says which is left out" says 'warning, left out: .*ragged.tsv has 1 lines without all columns, the first is line 3$'
    saved="--quiet --length 16 --model $W/rag"
    one "rag --tokens without --ask" complains "$P/rag" $saved --base "$W/rag.base" --tokens 3
    one "rag --tokens without --ask: says so" says ': --tokens is for continuing a question of --ask$'
    one "rag --tokens 0 without --ask" complains "$P/rag" $saved --base "$W/rag.base" --tokens 0
    one "rag --tokens 0 without --ask: asks nothing" says ': nothing is asked of the base: see --ask and --pairs$'
    one "rag --tokens without a decoder" complains "$P/rag" $(but "$tiny" --read) --read 0 --text "$W/passages.txt" --ask whale --tokens 3
    one "rag --tokens without a decoder: says so" says ': --tokens is for a decoder, and here is none$'
    for o in "--top 3" "--question 9"; do
        one "rag $o without --ask and --pairs" complains "$P/rag" $saved --base "$W/rag.base" $o
        one "rag $o without --ask and --pairs: says so" says ": ${o%% *} is for questions of --ask and --pairs"
    done
    long='the whale swims in the deep sea and sings, and bread and butter make a meal'
    one "rag, a question of many tokens" works "$P/rag" $saved --base "$W/rag.base" --ask "$long" --question 4 --tokens 3
    one "rag says how many are looked for" says "^rag: of the question's [0-9]* tokens the rarest 4 are looked for (see --question)"
    one "rag says how many are continued, once" [ "$(
        grep -c "^rag: of the question's [0-9]* tokens the first 14 are continued (see --length)" "$W/out")" -eq 1 ]
    one "rag --read 0, a field of the decoder" complains "$P/rag" $(but "$tiny" --read) --read 0 --text "$W/passages.txt" --set decoder.d_ff=8
    one "rag --read 0, a field of the decoder: says so" says ': --read 0 trains no decoder; what is decoder.d_ff'
    one "rag --pairs, all with an answer" works "$P/rag" $saved --base "$W/rag.base" --pairs "$W/pairs.tsv"
    one "rag --pairs, all with an answer: no line" sh -c "! grep -q 'no passage has' '$W/out'"
    { cat "$W/pairs.tsv"; printf 'where is nothing\t#99\nwhere are cats\tcat\n'; } > "$W/absent.tsv"
    one "rag --pairs, answers that are nowhere" works "$P/rag" $saved --base "$W/rag.base" --pairs "$W/absent.tsv"
    one "rag --pairs, answers that are nowhere: counted" says '^rag: of 4 questions 2 have an answer that no passage has, and count as not found$'
    printf '%s\twhale\nsea\twhale\n' "$long" > "$W/long.tsv" # without tokenizers bytes are tokens
    one "rag --pairs, one of many tokens" works "$P/rag" $saved --base "$W/rag.base" --pairs "$W/long.tsv" --question 4
    one "rag --pairs says so" says '^rag: 1 questions have more than 4 tokens, of which the rarest are read'
    for ask in '' '%% ~~'; do
        one "rag, a question without a known word" works "$P/rag" $saved --base "$W/rag.base" --ask "$ask"
        one "rag: nothing found" [ "$(grep -ac ': nothing$' "$W/out")" -eq $([ "$tokenizers" ] || [ ! "$ask" ] && echo 3 || echo 1) ]
    done
    { yes 'deep sea' | head -n 9000 | tr '\n' ' '; printf '\r\n\nwhale'; } > "$W/asked" # 81,000 bytes, nothing, and no line end
    asks() { "$P/rag" $saved --base "$W/rag.base" --ask - < "$W/asked" > "$W/out" 2>&1; }
    one "rag --ask -" asks
    one "rag --ask -: a line is a question" [ "$(grep -c '^BM25' "$W/out") $(awk '{ print length($0) }' "$W/out" | sort -n | tail -n 1)" = '2 81000' ]
    one "rag, more asked for than there is" works "$P/rag" $saved --base "$W/rag.base" \
        --ask 'the deep sea' --top 999999999
    one "rag: each passage once" lists BM25 4 'deep sea'
    for o in "--steps 3" "--words 9" "--temperature 1"; do
        one "rag --model $o" complains "$P/rag" $saved --text "$W/passages.txt" $o
        one "rag --model $o: says so" says ": ${o%% *} is for training an encoder, not for --model"
    done
    for o in "--held-out 0.1" "--batch 2" "--set decoder.lr=1" "--read 3"; do
        for from in "--base $W/rag.base" "--text $W/passages.txt"; do # which has a decoder
            one "rag --model ${from%% *} $o" complains "$P/rag" $saved $from $o
            one "rag --model ${from%% *} $o: says so" says ": ${o%% *} is for training a decoder, and here none is trained"
        done
    done
    one "rag --model, a field of its encoder" complains "$P/rag" $saved --text "$W/passages.txt" --set encoder.lr=1
    one "rag --model: it has one" says 'has its encoder already; what is encoder.lr'
    one "rag --pool without --encoder" complains "$P/rag" $tiny --text "$W/passages.txt" --pool cls
    one "rag --pool: says so" says ': --pool is for --encoder$'
    one "rag --tokenizer --vocab" complains "$P/rag" $tiny --text "$W/passages.txt" --tokenizer tests/wordpiece_vocab.txt --vocab LICENSE
    one "rag --tokenizer --vocab: says so" says ': --vocab is --tokenizer, and one is enough'
    one "rag --vocab --words" complains "$P/rag" $tiny --text "$W/passages.txt" --vocab tests/wordpiece_vocab.txt --words 9
    one "rag --vocab --words: says so" says ': --words is for a vocabulary that is learnt'
    one "rag --base --paragraphs" complains "$P/rag" $saved --base "$W/rag.base" --paragraphs
    one "rag --base --paragraphs: says so" says ': --paragraphs is for a --text'
    # One word is in every passage, one in a third of them: the second tells.
    for i in 1 2 3 4 5 6 7 8 9 10; do
        printf 'The bread of day %s is eaten by the people of the town.\n' $i $i
        printf 'The whale of day %s is seen by the people of the ship.\n' $i >&3
    done > "$W/frequent.txt" 3> "$W/whales.txt"
    cat "$W/whales.txt" >> "$W/frequent.txt"
    one "rag, a frequent word that tells" works "$P/rag" --quiet --steps 0 --read 0 --set d_model=64 \
        --text "$W/frequent.txt" --ask 'what is the whale'
    for by in CRAT BM25 both; do one "rag: $by finds it" lists $by 5 'The whale'; done
    head -n 1 "$W/whales.txt" > "$W/whale.txt"
    one "rag, a base of one passage" works "$P/rag" $saved --text "$W/whale.txt" --base "$W/one.base" \
        --ask "$(cat "$W/whale.txt")"
    for by in CRAT BM25 both; do one "rag: $by lists it" lists $by 1 'The whale'; done
    head -c 2000 "$W/rag.base" > "$W/cut.base"
    one "rag, a base that ends early" complains "$P/rag" $saved --base "$W/cut.base" --ask whale
    one "rag, seed 2" works "$P/rag" $(but "$tiny" --read) --read 0 --seed 2 --text "$W/passages.txt" --base "$W/other.base"
    one "rag: not by this encoder" complains "$P/rag" $saved --base "$W/other.base" --ask whale
    cp "$W/rag.decoder" "$W/again.decoder"
    one "rag --save, no decoder in place of one" works "$P/rag" $(but "$tiny" --read) --read 0 --seed 2 --text "$W/passages.txt" --save "$W/again"
    one "rag --save, no decoder: the one of before goes" [ ! -e "$W/again.decoder" ]
    one "rag --save, no decoder: says so" says '^rag: removed, as it was made with another encoder: .*again.decoder$'
    # near FILE TO: the same weights but for a thousandth, which the vectors hardly show
    near() {
        python3 - "$1" "$2" 2> "$W/out" << 'PYTHON'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
size = int.from_bytes(data[:8], "little")
for at in range(8 + size, len(data) - 3, 4):
    x, = struct.unpack_from("<f", data, at)
    struct.pack_into("<f", data, at, x * (1.001 if at % 8 else 0.999))
open(sys.argv[2], "wb").write(data)
PYTHON
    }
    if command -v python3 > /dev/null 2>&1; then
        near "$W/rag.encoder" "$W/near.encoder"
        cp "$W/rag.tokenizer.json" "$W/near.tokenizer.json" 2> /dev/null # bytes have none
        near="--quiet --length 16 --read 0 --model $W/near"
        one "rag: not by an encoder that is much like it" complains "$P/rag" $near --base "$W/rag.base" --ask whale
        one "rag: not by an encoder that is much like it: says so" says ': another encoder made the base .*rag.base$'
        sed 's/"rag.encoder"/"rag.no_name"/' "$W/rag.base" > "$W/unnamed.base"
        one "rag, a base without the name of its encoder" works "$P/rag" $saved --base "$W/unnamed.base" --ask whale --tokens 3
        one "rag, a base without the name of its encoder: says so" says '^rag: note: it names no encoder, .*unnamed.base$'
        cp "$W/rag.counts" "$W/near.counts"
        one "rag --model, counts of another encoder" complains "$P/rag" $near --text "$W/passages.txt" --ask whale
        one "rag --model, counts of another encoder: says so" says ": another encoder's counts: .*near.counts\$"
    fi
    for file in notes.txt notes.counts notes.encoder notes.tokenizer.json; do cp "$W/passages.txt" "$W/$file"; done
    cp "$W/pairs.tsv" "$W/notes.tsv"
    one "rag --text in place of --base" spares "$W/notes.txt" "$P/rag" $tiny --text "$W/notes.txt" --base "$W/notes.txt"
    one "rag --pairs in place of --base" spares "$W/notes.tsv" "$P/rag" $tiny --text "$W/notes.txt" --pairs "$W/notes.tsv" --base "$W/notes.tsv"
    one "rag --vocab in place of --base" spares "$W/notes.tsv" "$P/rag" $tiny --text "$W/notes.txt" --vocab "$W/notes.tsv" --base "$W/notes.tsv"
    for end in counts encoder tokenizer.json; do
        one "rag --text in place of the .$end of --save" spares "$W/notes.$end" "$P/rag" $tiny --text "$W/notes.$end" --save "$W/notes"
    done
    one "rag --model in place of --base" spares "$W/rag.encoder" "$P/rag" $saved --text "$W/notes.txt" --base "$W/rag.encoder"
    one "rag, --base in no folder, at once" complains "$P/rag" $(but "$tiny" --steps) --steps 999999 --text "$W/notes.txt" --base "$W/no/where"
    one "rag, --save in no folder, at once" complains "$P/rag" $(but "$tiny" --steps) --steps 999999 --text "$W/notes.txt" --save "$W/no/where"
    cranfield=../shared/data/qa/cranfield
    if [ -d $cranfield ]; then
        awk -v out="$W/cran." -f examples/tools/cranfield.awk $cranfield/cran.all.1400.xml $cranfield/cran.qry.xml \
            $cranfield/cranqrel.trec.txt
        one "rag on Cranfield" works "$P/rag" --quiet --steps 20 --batch 32 --length 64 --read 0 --top 1 \
            --set d_model=128 --set d_ff=16 --text "$W/cran.passages.txt" \
            --ask 'what is the effect of a shock wave on a boundary layer'
        # by bytes an encoder finds little in 20 steps
        for by in $(if [ "$tokenizers" ]; then echo CRAT BM25 both; else echo BM25; fi); do
            one "rag: $by finds such waves" lists $by 1 'shock.wave|shock.tube'
        done
    fi
    one "rag --paragraphs, another text for the same models" works "$P/rag" --quiet --length 16 --tokens 3 --model "$W/rag" --paragraphs \
        --text "$W/passages.txt" --ask whale
    one "rag --paragraphs joins lines" says '#1  The whale number 1 swims.*sings'
    # Folders: a base that is brought up to date is the one that would be made anew, and every refusal leaves it as it was.
    D=$W/notes && mkdir -p "$D/b/c" "$D/.git"
    for f in a.txt b/c/d.MD b/e.md z.txt; do
        for i in 1 2 3; do
            printf '%s %s\n\n' "Of $f, part $i:" "$(for j in $(seq 60); do printf 'A whale of the sea and bread %s. ' $i; done)"
        done > "$D/$f"
    done
    printf 'The harbour\nlies north.\n\n' > "$W/harbour" && cat "$W/harbour" "$D/z.txt" > "$D/y.md"
    cp "$D/a.txt" "$D/.hidden.txt" && cp "$D/a.txt" "$D/.git/a.txt" && printf 'caf\351\n' > "$D/latin.txt" && printf 'no' > "$D/a.pdf"
    ln -s a.txt "$D/link.txt" && ln -s . "$D/loop"
    one "rag --folder" works "$P/rag" $(but "$tiny" --read) --read 0 --folder "$D" --save "$W/in" --base "$W/in.base" --ask harbour
    one "rag --folder: counts what it leaves out" says 'rag: skipped: 2 hidden, 2 linked, 1 not UTF-8 text$'
    one "rag --folder: nothing else of it" sh -c "! grep -q 'hidden.txt\|\.git\|a\.pdf\|link\.txt\|loop/' '$W/out' '$W/in.base'"
    one "rag --folder: a hit has file and line" says '  y\.md:1  The harbour lies north\.'
    one "rag, nothing held out" works "$P/rag" $(but "${tiny#--quiet}" --held-out --read) --held-out 0 --read 0 --folder "$D" --save "$W/whole" --base "$W/whole.base"
    one "rag says so, and no mean of nothing" eval 'says "nothing is held out" && ! says nan'
    in="--quiet --length 16 --read 0 --tokens 0 --model $W/in"
    fresh() { "$P/rag" $in --folder "$D" --base "$W/fresh.base" > "$W/fresh.out" 2>&1 && cmp -s "$W/fresh.base" "$W/in.base"; }
    update() { works "$P/rag" ${in#--quiet } --base "$W/in.base" --update "$D"; }
    one "rag --folder with the saved model" fresh
    one "rag with the base of a folder" works "$P/rag" $in --base "$W/in.base" --ask 'north' --top 1
    one "rag: the same file and line" says '  y\.md:1  The harbour lies north\.'
    one "rag --update, nothing changed" update
    one "rag --update encodes nothing" says '^files: 0 new, 0 changed, 0 gone; 0 of '
    one "rag --update: the base stays" fresh
    touch "$D/a.txt"
    one "rag --update, a time changed" update
    one "rag --update looks into it" says '^files: 0 new, 0 changed, 0 gone; 0 of '
    one "rag --update: and keeps the time" fresh
    printf '\nOne line more.\n' >> "$D/b/c/d.MD" && sed 's/harbour/lantern/' "$D/y.md" > "$W/y" && cp "$W/y" "$D/y.md"
    printf '\n\nA new one\n' > "$D/b/a.txt" && rm "$D/z.txt" "$D/link.txt"
    one "rag --update" update
    one "rag --update: what changed" says '^files: 1 new, 2 changed, 1 gone; [1-9]'
    one "rag --update is as made anew" fresh
    one "rag --update: what changed is found" works "$P/rag" $in --base "$W/in.base" --ask 'lantern' --top 1
    one "rag --update: where it is" says '  y\.md:1  The lantern lies north\.'
    one "rag --update: in a new file" works "$P/rag" $in --base "$W/in.base" --ask 'A new one' --top 99
    one "rag --update: at its line" says '  b/a\.txt:3  A new one$'
    one "rag --update: nothing of a removed file" sh -c "! grep -q 'z\.txt:\|harbour' '$W/out'"
    cp "$W/in.base" "$W/kept.base"
    # refuses WHAT SAYS ARGUMENT..: fails with one line that says so, and leaves the base alone
    refuses() {
        what=$1 said=$2; shift 2
        usual=$in
        for o in "$@"; do case $o in --length|--model) usual=$(but "$usual" "$o");; esac; done
        one "rag, $what" complains "$P/rag" $usual "$@"
        one "rag, $what: says so" says "$said"
        one "rag, $what: the base stays" cmp "$W/in.base" "$W/kept.base"
    }
    refuses "no such folder" 'no folder' --base "$W/in.base" --update "$W/nowhere"
    refuses "a file in place of a folder" 'no folder' --base "$W/in.base" --folder "$D/a.txt"
    mkdir "$W/blank" && printf ' \n\n' > "$W/blank/a.txt"
    refuses "a folder without a text" 'no text' --base "$W/in.base" --update "$W/blank"
    refuses "another base" 'not the base of a folder' --base "$W/rag.base" --update "$D"
    refuses "no base" 'not a knowledge base' --base "$W/in.encoder" --update "$D"
    refuses "another --length" 'another encoder' --base "$W/in.base" --update "$D" --length 17
    refuses "another model" 'another encoder' --base "$W/in.base" --update "$D" --model "$W/rag"
    yes 'Bread and butter' | head -n "$(grep -ao '"passages":"[0-9]*"' "$W/in.counts" | tr -dc 0-9)" > "$W/equal.txt"
    one "rag, the same encoder with another text's counts" works "$P/rag" $in --text "$W/equal.txt" --save "$W/in2"
    one "rag: it is the same" cmp "$W/in.encoder" "$W/in2.encoder"
    refuses "other counts" 'another encoder, --length, --pool or NAME.counts' --base "$W/in.base" --update "$D" --model "$W/in2"
    refuses "--update and --folder" 'is enough' --base "$W/in.base" --update "$D" --folder "$D"
    refuses "a text in place of a base" 'name is one of a text' --base "$D/a.txt" --folder "$D"
    tab=$(printf 'a\tb.txt') && cp "$D/a.txt" "$D/$tab"
    refuses "a name that steers a terminal" 'control characters' --base "$W/in.base" --update "$D"
    rm "$D/$tab" && touch "$D/a.txt" && chmod 0 "$D/a.txt"
    [ -r "$D/a.txt" ] || refuses "a file that cannot be read" 'cannot open .*a.txt' --base "$W/in.base" --update "$D"
    chmod 644 "$D/a.txt" && : > "$W/grows"
    # a change in this second, where its parts do not show, is waited for, and meanwhile there is another
    while [ -e "$W/grows" ]; do echo word >> "$D/b/grows.md"; touch -d "@$(date +%s)" "$D/b/grows.md"; done 2> /dev/null &
    while [ ! -s "$D/b/grows.md" ]; do sleep 0.01; done
    refuses "a file that changes while it is read" 'grows.md changes while it is read' --base "$W/in.base" --update "$D"
    rm "$W/grows" && wait $! && rm "$D/b/grows.md"
    for seed in 1 2; do "$P/rag" $(but "$tiny" --read) --read 0 --seed $seed --folder "$D" --save "$W/seed$seed" > "$W/out" 2>&1; done
    cp "$W/seed1.counts" "$W/seed2.counts"
    refuses "counts that another encoder left" "another encoder's counts" --base "$W/in.base" --update "$D" --model "$W/seed2"
    mv "$W/in.counts" "$W/in.none"
    refuses "a model without counts" 'no update without' --base "$W/in.base" --update "$D"
    mv "$W/in.none" "$W/in.counts"
    one "rag --update after all that" update
    one "rag --update: still as made anew" fresh
    one "rag, nothing to read" complains "$P/rag"
    one "rag, a missing file" complains "$P/rag" --text "$W/nowhere.txt"
    one "rag, an empty file" complains "$P/rag" --text /dev/null
    one "rag, a bad option" complains "$P/rag" --no-such-option
    one "rag, a bad number" complains "$P/rag" --text "$W/passages.txt" --steps many
    one "rag without a decoder" works "$P/rag" $(but "$tiny" --read) --read 0 --set d_model=8 --text "$W/passages.txt" --base "$W/other.base"
    one "rag, a base of another width" complains "$P/rag" --model "$W/rag" --base "$W/other.base" --ask whale
    one "rag asked nothing" complains "$P/rag" --model "$W/nowhere" --base "$W/nowhere.base"
    one "rag asked nothing says so before it reads" says ': nothing is asked of the base: see --ask and --pairs$'
    one "rag --help" works "$P/rag" --help
    one "rag > /dev/full" full "$P/rag" --quiet --model "$W/rag" --base "$W/rag.base" --ask 'the deep sea'
    one "rag, the output closed" closed "$P/rag" --quiet --model "$W/rag" --base "$W/rag.base" \
        --ask 'the deep sea'
    one "rag, no whole number" complains "$P/rag" --text "$W/passages.txt" --batch 1.5
    one "rag, a batch that is too large" complains "$P/rag" --quiet --text "$W/passages.txt" \
        --batch 999999999 --length 999999999
    one "rag --text - --ask -" complains "$P/rag" --text - --ask -
    one "rag --text - --ask -: says why" says 'only one of --text, --pairs and --ask'
    one "rag, a misspelt field" complains "$P/rag" --text "$W/passages.txt" --set encoder.n_layer=1
    one "rag names the nearest field" says 'model nor training .* n_layers'
    one "rag --help without a warning" silent "$P/rag" --help
    if [ "$terminals" ]; then
        printf 'A whale \033[31mred\033[0m and \377 blue \302\233 swims.\n' | cat - "$W/passages.txt" > \
            "$W/steer.txt"
        one "rag on a terminal" terminal "$P/rag" $tiny --text "$W/steer.txt" --top 20 --ask "'a whale'"
        one "rag harms no terminal" harmless
    fi
fi
if [ -x "$P/bench" ]; then
    one "bench --quick maps" works "$P/bench" --quick maps --json "$W/bench.json" --svg "$W/bench.svg"
    one "bench prints a table" says '^  cmha .* x '
    command -v python3 >/dev/null 2>&1 && one "bench --json is JSON, with numbers" python3 -c \
        'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not (d["machine"]["threads"] > 0 and all(
            r["section"] == "maps" and r["name"] and r["n"] > 0 and r["unit"] and r["value"] > 0 and "ratio" in r for r in d["results"])))' \
        "$W/bench.json"
    one "bench --svg is a chart" picture "$W/bench.svg"
    one "bench --svg: units" grep -q '>time ([a-z]*)</text>' "$W/bench.svg"
    one "bench, no such section" complains "$P/bench" telepathy
    one "bench, no such section: status 2" sh -c "'$P/bench' telepathy 2> $W/out; [ \$? -eq 2 ]"
    one "bench, a file that cannot be written" complains "$P/bench" maps --json "$W/nowhere/bench.json"
    cp "$W/bench.json" "$W/bench.before"
    one "bench, a chart that cannot be written" complains "$P/bench" maps --json "$W/bench.json" --svg "$W/nowhere/x.svg"
    one "bench, before it measures: the numbers of another run stay" cmp "$W/bench.json" "$W/bench.before"
    one "bench, a chart that cannot be written, numbers that are new" complains "$P/bench" maps \
        --json "$W/first.json" --svg "$W/nowhere/x.svg"
    one "bench, before it measures: no empty file" [ ! -e "$W/first.json" ]
    one "bench, --json twice" complains "$P/bench" memory --json "$W/one.json" --json "$W/two.json"
    one "bench, --json twice: says so" says 'one --json is enough, what is --json'
    one "bench, a chart over the numbers" complains "$P/bench" maps --quick --json "$W/one.json" --svg "$W/one.json"
    one "bench, a chart over the numbers: says so" says 'both --json and --svg'
    one "bench --help" works "$P/bench" --help
    one "bench --help > /dev/full" full "$P/bench" --help
    one "bench, a length below zero" complains "$P/bench" --serve attention/-16/rope
    one "bench, no threads" complains "$P/bench" --threads 0 maps
    one "bench memory --model" complains "$P/bench" memory --model "$W/nowhere"
    one "bench memory --model: says who reads it" says 'are for --serve prefill and decode'
    one "bench --serve --json" complains "$P/bench" --serve attention/64/rope --json "$W/none.json"
    small=rope,n_layers=1,d_model=32,n_heads=2
    one "bench --serve --save" works "$P/bench" --serve decode/16/$small --save "$W/bench.model" < /dev/null
    one "bench --serve --model" works "$P/bench" --serve decode/16/$small --model "$W/bench.model" < /dev/null
    small=$small,norm=rmsnorm,activation=swiglu,ffn_bias=0
    if [ -x "$P/convert" ]; then
        one "bench --serve, of GGUF" works sh -c "'$P/bench' --serve decode/16/$small --save '$W/bench.llama' < /dev/null &&
            '$P/convert' --to gguf '$W/bench.llama' '$W/bench.gguf' &&
            '$P/convert' --tokenizer none --type int8 '$W/bench.gguf' '$W/bench.packed' &&
            '$P/bench' --serve decode/16/$small --model '$W/bench.packed' < /dev/null"
    fi
    one "bench --serve of another model" complains "$P/bench" --serve decode/16/cmha --model "$W/bench.model"
    one "bench --serve of another model: says so" says 'another than that of --serve, by its n_layers'
    one "bench, a storage that is none" complains "$P/bench" --serve decode/16/rope/int7
    one "bench --serve, a field that is no number" complains "$P/bench" --serve train/tiny/$small,batch=abc
    one "bench --serve, no number: names it" says 'batch = abc is not a whole number'
    # a KIND of 128 bytes, of which 127 are as good as all
    long=rope$(printf ',n_layers=%d' 1 1 1 1 1 1 1 1 1 1),d_model=00640
    one "bench --serve, a long KIND" complains "$P/bench" --serve "decode/16/$long/int7"
    one "bench --serve, a long KIND: says so" says 'of at most 126 bytes'
    # an OpenBLAS that somebody holds to a kernel below the CPU is told in the first line
    if OPENBLAS_CORETYPE=Prescott "$P/bench" --quick memory 2> /dev/null | grep -q 'OpenBLAS Prescott' && grep -q avx2 /proc/cpuinfo; then
        one "bench, a weaker kernel" works env OPENBLAS_CORETYPE=Prescott "$P/bench" --quick memory
        one "bench says so" says '^[*]* OPENBLAS_CORETYPE=Prescott IS SET'
    fi
    for seconds in 2,3 2s 0 ''; do one "ranks.sh, $seconds seconds" complains bench/ranks.sh model "$seconds"; done
    one "vectors.sh without objdump" complains bench/vectors.sh true "$W/nowhere"
    if command -v python3 > /dev/null 2>&1; then
        one "bench takes turns" works python3 bench/peers/turns.py --rounds 2 --count 16 --memory \
            "one=$P/bench --serve attention/16/dot,aligned" "two=$P/bench --serve attention/16/cmha"
        one "bench takes turns, with a range" says '^  two .* to '
        one "turns.py, a program that stops" complains python3 bench/peers/turns.py --rounds 2 "it=echo ready"
        one "turns.py, a program that stops: says so" says '^turns: it has stopped$'
        one "turns.py, no program" complains python3 bench/peers/turns.py "it=$W/nowhere"
        one "turns.py, no program: says so" says '^turns: it does not start: '
        one "turns.py, a name alone" complains python3 bench/peers/turns.py it
        one "turns.py, no seconds" complains python3 bench/peers/turns.py \
            "it=sh -c 'echo ready; read turn; echo some words'"
        one "turns.py, no seconds: says so" says '^turns: it answers no seconds: some words$'
        one "turns.py, no rounds" complains python3 bench/peers/turns.py --rounds 0 "it=echo ready"
        one "turns.py, no rounds: says so" says '^turns: --rounds takes a number from 1 up$'
        # its PyTorch is a program that says nothing
        printf '#!/bin/sh\n' > "$W/silent" && chmod +x "$W/silent" && printf 'too short' > "$W/short"
        [ -x build/train_tiny ] && one "seconds.sh, a training that fails" complains env ROUNDS=1 \
            PYTHON="$W/silent" OPENMP_BLAS=none bench/peers/seconds.sh "$W/short"
        # llama-bench's time of 32 tokens as seconds of one
        printf '#!/bin/sh\ncase "$*" in *--help*) ;; *-fa\ 1*-n\ 32*) echo \047[{"avg_ns": 3200000}]\047;; esac\n' > "$W/llama-bench"
        chmod +x "$W/llama-bench"
        one "llamacpp.py" works sh -c "echo | python3 bench/peers/llamacpp.py serve $W/llama-bench none decode/16 -fa 1"
        one "llamacpp.py, seconds a token" says '^0.000100000'
        one "llamacpp.py, a program that measures nothing" complains sh -c \
            "echo | python3 bench/peers/llamacpp.py serve $W/llama-bench none decode/16 -fa 0 > $W/turn"
    fi
fi
# killed SAVE COMMAND...: begins a training and kills it as soon as it has kept an epoch beside SAVE
killed() {
    kept=$1.last; shift
    "$@" > "$W/out" 2>&1 < /dev/null &
    for _ in $(seq 3000); do [ -e "$kept" ] && break; sleep 0.01; done
    kill -9 $!
    wait $! 2> /dev/null
    [ -e "$kept" ]
}
if [ -x "$P/signal" ]; then
    tiny="--frame 8 --batch 32 --lr 5e-3 --set n_layers=1 --set d_model=32 --quiet"
    wave=$W/signal.safetensors
    # better THAN: in every row of the table the mean accuracy of all levels and of turned frames is above
    better() { awk -v than="$1" '/^[a-z].* [0-9]+ .*\./ && NF > 9 { n++; if ($(NF - 4) < than || $(NF - 2) < than) bad = 1 }
        END { exit bad || !n }' "$W/out"; }
    one "signal learns plain signals" works "$P/signal" --synthetic "$wave" $tiny --epochs 40 \
        --svg "$W/signal.svg" --csv "$W/signal.csv" --save "$W/signal.model"
    one "signal is right of most, where chance is a quarter" better 75
    one "signal prints the confusion of classes" says '^fsk2 '
    cp "$W/out" "$W/confusion"
    one "signal draws two curves' axes and the classes" grep -q '>qpsk</text>' "$W/signal.svg"
    one "signal --svg is a picture" picture "$W/signal.svg"
    one "signal --svg: units" grep -q '>signal over noise (dB)</text>' "$W/signal.svg"
    one "signal --save: a checkpoint" [ -s "$W/signal.model" ]
    one "signal --csv: a row for every level" [ "$(wc -l < "$W/signal.csv")" -eq 3 ]
    one "signal --compare" works "$P/signal" "$wave" $tiny --epochs 1 --seeds 2 --compare=rope,cope-magnitude,angular
    one "signal --compare: about as many parameters each" awk '/^(rope|cope-magnitude|angular) / { n++
        if (!first) first = $2; if ($2 > first || $2 < 0.98 * first) bad = 1 } END { exit bad || n != 3 }' "$W/out"
    # no more parameters than are asked for, and one line where that cannot be; before any work
    one "signal --parameters" works "$P/signal" "$wave" $tiny --epochs 1 --parameters 9000
    one "signal --parameters: no more" awk '/^rope / { n = $2 } END { exit !(n > 8500 && n <= 9000) }' "$W/out"
    one "signal --parameters, too few" complains "$P/signal" "$wave" $tiny --epochs 1 --parameters 10
    one "signal --parameters, too few: says how many there are" says 'rope has [0-9]* parameters at least, with d_ff = 2, and 10 are asked for'
    one "signal --compare, a kind that is larger" complains "$P/signal" "$wave" $tiny --epochs 1 --compare=rope,cmha --set d_ff=2
    one "signal --compare, a kind that is larger: says which" says "cmha has [0-9]* parameters at least"
    one "signal --attention and --compare" complains "$P/signal" "$wave" $tiny --epochs 1 --attention rope --compare=cmha
    one "signal --attention and --compare: says why" says ': --attention is one kind, and --compare names several$'
    one "signal --attention of nothing" complains "$P/signal" "$wave" $tiny --attention ,
    one "signal says which names nothing" says 'no kind of attention is named by --attention$'
    one "signal --parameters, and d_ff" complains "$P/signal" "$wave" $tiny --epochs 1 --parameters 9000 --set d_ff=8
    one "signal --take" works "$P/signal" "$wave" $tiny --epochs 1 --take 40
    one "signal: the last positions are filled up" works "$P/signal" "$wave" $(but "$tiny" --frame) --epochs 1 --frame 7 --hop 5
    sed 's/"classes":"bpsk,/"classes":"bp\\n,/' "$wave" > "$W/steer.wave"
    one "signal, a class that is no plain text" works "$P/signal" "$W/steer.wave" $tiny --epochs 1
    one "signal shows it as a question mark" says '^bp? '
    sed "s/\"classes\":\"bpsk,/\"classes\":\"b$(printf '\303\266')k,/" "$wave" > "$W/umlaut.wave"
    one "signal, a class beyond ASCII" works "$P/signal" "$W/umlaut.wave" $tiny --epochs 1
    one "signal shows it as it is" says "^b$(printf '\303\266')k "
    head -c 100000 "$wave" > "$W/cut.wave"
    sed 's/"C64"/"F32"/' "$wave" > "$W/lie.wave"
    sed 's/"classes":"bpsk,qpsk,fsk2,am"/"classes":"bpsk............."/' "$wave" > "$W/class.wave"
    sed 's/"label"/"lebal"/' "$wave" > "$W/name.wave"
    for file in cut lie class name; do
        one "signal, $file file" complains "$P/signal" "$W/$file.wave" $tiny --epochs 1
    done
    # classes N: the same file with so many of them
    classes() {
        python3 - "$wave" "$1" "$W/classes.wave" 2> "$W/out" << 'PYTHON'
import json, sys
data = open(sys.argv[1], "rb").read()
size = int.from_bytes(data[:8], "little")
head = json.loads(data[8:8 + size])
head["__metadata__"]["classes"] = ",".join("c%d" % i for i in range(int(sys.argv[2])))
head = json.dumps(head, separators=(",", ":")).encode()
head += b" " * (-len(head) % 8)
open(sys.argv[3], "wb").write(len(head).to_bytes(8, "little") + head + data[8 + size:])
PYTHON
    }
    if command -v python3 > /dev/null 2>&1; then
        classes 64
        one "signal, 64 classes" works "$P/signal" "$W/classes.wave" $tiny --epochs 1
        classes 65
        one "signal, 65 classes" complains "$P/signal" "$W/classes.wave" $tiny --epochs 1
        one "signal, 65 classes: says how many there may be" says ': 65 classes, more than the 64 that .* are in .*classes.wave$'
        python3 - "$wave" "$W/faint.wave" << 'PYTHON'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
at, end = json.loads(data[8:start])["snr"]["data_offsets"]
form = "<%df" % ((end - at) // 4)
data[start + at:start + end] = struct.pack(form, *(x - 30 for x in struct.unpack(form, data[start + at:start + end])))
open(sys.argv[2], "wb").write(data)
PYTHON
        one "signal, no frame of 0 dB or more" works "$P/signal" "$W/faint.wave" $tiny --epochs 1
        one "signal, of which there is no accuracy" says '^rope .*  *[0-9.]*  *- *-  *[0-9]'
    fi
    one "signal, a checkpoint" complains "$P/signal" "$W/tiny.safetensors" $tiny
    one "signal, a missing file" complains "$P/signal" "$W/nowhere.wave" $tiny
    one "signal without a file" complains "$P/signal"
    one "signal, a kind that is none" complains "$P/signal" "$wave" $tiny --attention telepathy
    one "signal, a misspelt field" complains "$P/signal" "$wave" $tiny --set n_layer=1
    one "signal names the nearest field" says 'model nor training .* n_layers'
    for field in classes=9 values=3 features=5000 complex_features=0; do
        one "signal --set $field" complains "$P/signal" "$wave" $tiny --set $field
        one "signal says whose it is" says "are the program's own fields"
    done
    for field in steps length max_positions vocabulary accumulate ema eval_every eval_tokens held_out mask_rate mask_token; do
        one "signal --set $field" complains "$P/signal" "$wave" $tiny --set $field=5
        one "signal --set $field: says whose it is" says "$field is the program's own field, as "
    done
    one "signal, no whole number" complains "$P/signal" "$wave" $tiny --epochs 1e3
    one "signal, a drawing that cannot be written" complains "$P/signal" "$wave" $tiny --epochs 1 --svg "$W/nowhere/x.svg"
    one "signal --help" works "$P/signal" --help
    one "signal --help > /dev/full" full "$P/signal" --help
    one "signal, the output closed" closed "$P/signal" "$wave" $tiny --epochs 1
    one "signal prints precision, recall and F1" awk '/^(bpsk|qpsk|fsk2|am) / && NF == 8 { n++
        if ($6 < 0 || $6 > 1 || $7 < 0 || $7 > 1 || $8 < 0 || $8 > 1) bad = 1 } END { exit bad || n != 4 }' "$W/confusion"
    one "signal: of as many as there are test frames" grep -q '^[0-9]* of 96 right$' "$W/confusion"
    # The weights of the epoch that it says, which are those of a run that ends there
    steady="--frame 8 --batch 32 --lr 5e-3 --threads 1 --set schedule=constant --set warmup=0 --set n_layers=1 --set d_model=32"
    one "signal stops early" works "$P/signal" "$wave" $steady --epochs 60 --patience 2 --save "$W/early.model"
    kept=$(sed -n 's/^epoch \([0-9]*\) of [0-9]* is kept: validation loss .*/\1/p' "$W/out")
    done=$(sed -n 's/^epoch [0-9]* of \([0-9]*\) is kept: validation loss .*/\1/p' "$W/out")
    one "signal says which epoch it keeps: $kept of $done" [ "$done" -eq $((kept + 2)) ]
    one "signal --validate 0" works "$P/signal" "$wave" $steady --epochs "$kept" --validate 0 --save "$W/late.model"
    one "signal keeps that epoch's weights" cmp "$W/early.model" "$W/late.model"
    one "signal --validate 0 --patience" complains "$P/signal" "$wave" $tiny --validate 0 --patience 2
    one "signal --validate 0 --patience: says why" says ': --patience needs what says which epoch is better: '
    one "signal --validate, no share" complains "$P/signal" "$wave" $tiny --validate 2
    # A training that is killed goes on and ends with the same bits
    lasting="$wave --frame 8 --batch 8 --threads 1 --epochs 30 --patience 30 --set n_layers=1 --set d_model=32 --set dropout=0.1"
    one "signal, at once" works "$P/signal" $lasting --save "$W/once.model"
    one "signal, killed" killed "$W/again.model" "$P/signal" $lasting --save "$W/again.model"
    cp "$W/again.model.last" "$W/state.last" && cp "$W/again.model.run" "$W/state.run"
    # other WORDS OPTION...: not the training that stopped, and these words say why
    other() {
        words=$1; shift
        one "signal --resume $*" complains "$P/signal" $(but "$lasting --resume --save $W/again.model" ${1+"$1"}) "$@"
        one "signal --resume $*: says why" says "$words"
    }
    other 'epochs was 30 where this training began, and is 31' --epochs 31
    other 'seed was 1 ' --seed 2
    other 'take was 0 ' --take 100
    other 'lr was 0.002 where this training began, and is 0.001' --lr 1e-3
    other 'd_ff is 128 in the file' --set d_ff=64
    other 'not with those of --compare' --compare
    other 'not with those of --seeds' --seeds 2
    other 'not with those of --attention' --attention rope,cmha
    other 'not for --predict' --predict x.cf32
    other 'no training that stopped' --save "$W/early.model"
    one "signal --resume, no --save" complains "$P/signal" $lasting --resume
    # before it has written its file
    for wrong in "--attention telepathy" "--compare=rope,telepathy" "--set nothing=1" "--set d_model=0" "--batch 0" "--svg $W/no/where"; do
        # shellcheck disable=SC2086
        one "signal --synthetic $wrong" complains "$P/signal" --synthetic "$W/none.wave" --epochs 1 $wrong
        one "signal --synthetic $wrong: no file" [ ! -e "$W/none.wave" ]
    done
    one "signal --synthetic, another seed" works "$P/signal" --synthetic "$W/else.wave" $tiny --epochs 1 --seed 2
    one "signal --resume, other data" complains "$P/signal" "$W/else.wave" ${lasting#* } --resume --save "$W/again.model"
    one "signal --resume, other data: says so" says 'began with other data'
    cp "$W/once.model" "$W/again.model.last" && other 'no training state'
    head -c 3000 "$W/state.last" > "$W/again.model.last" && other 'not a safetensors file'
    cp "$W/state.last" "$W/again.model.last" && cp "$wave" "$W/again.model.run" && other 'not the state of a training by signal'
    rm "$W/again.model.run" && other 'no training that stopped'
    sed 's/"now.step":"./"now.step":"9/; s/"before.step":"./"before.step":"9/' "$W/state.run" > "$W/again.model.run"
    other 'that of another training'
    cp "$W/state.run" "$W/again.model.run"
    one "signal --resume" works "$P/signal" $lasting --resume --save "$W/again.model"
    one "signal --resume says where it goes on" says '^goes on behind epoch [0-9]*$'
    one "signal --resume: as at once" cmp "$W/again.model" "$W/once.model"
    one "signal leaves no state behind" sh -c "! ls '$W/again.model.last' '$W/again.model.run' > /dev/null 2>&1"
    one "signal --resume of what is finished" complains "$P/signal" $lasting --resume --save "$W/again.model"
    one "signal --save, a folder that is none" complains "$P/signal" "$wave" $tiny --epochs 1 --save "$W/nowhere/x"
    for o in svg csv save; do
        one "signal --$o of what it reads" spares "$wave" "$P/signal" "$wave" $tiny --epochs 1 --$o "$wave"
    done
    echo before > "$W/before.csv"
    "$P/signal" "$wave" $tiny --epochs 100000 --patience 100000 --csv "$W/before.csv" --svg "$W/before.svg" --save "$W/before.model" \
        > "$W/out" 2>&1 < /dev/null & run=$!
    while [ ! -s "$W/before.model.last" ] && kill -0 $run 2> /dev/null; do sleep 0.05; done
    kill $run; wait $run 2> /dev/null
    one "signal --csv, killed: the old one stays" [ "$(cat "$W/before.csv")" = before ]
    sh -c "trap '' XFSZ; ulimit -f 0; '$P/signal' '$wave' $tiny --epochs 1 --csv '$W/before.csv'" 2>&1 < /dev/null | cat > "$W/out"
    one "signal --csv, no room: says so" says 'cannot write .*before.csv$'
    one "signal --csv, no room: the old one stays" [ "$(cat "$W/before.csv")" = before ]
    one "signal --svg, killed: none is begun" [ ! -e "$W/before.svg" ]
    one "signal --csv in no folder, at once" complains "$P/signal" "$wave" $tiny --epochs 100000 --csv "$W/nowhere/x.csv"
    one "signal --csv in no folder: says so" says 'cannot write .*nowhere/x.csv$'
    if [ -c /dev/full ]; then one "signal --csv /dev/full" sh -c "! '$P/signal' '$wave' $tiny --epochs 1 --csv /dev/full > '$W/out' 2>&1"; fi
    for both in "--svg $W/outs --csv $W/outs" "--svg $W/outs --save $W/./outs" "--csv $W/outs.classes --save $W/outs"; do
        one "signal $both" complains "$P/signal" "$wave" $tiny --epochs 1 $both
        one "signal $both: nothing is written" sh -c "! ls '$W'/outs* > /dev/null 2>&1"
    done
    for end in classes last run; do
        cp "$wave" "$W/read.$end"
        one "signal --save, its .$end is what it reads" spares "$W/read.$end" "$P/signal" "$W/read.$end" $tiny --epochs 1 --save "$W/read"
    done
    # The set's own frames as one recording: classes alternate from frame to frame
    begin=$(($(od -An -tu8 -N8 "$wave") + 8)) says="$P/signal --model $W/signal.model --predict"
    tail -c +$((begin + 1)) "$wave" | head -c 245760 > "$W/all.cf32"
    head -c 5120 "$W/all.cf32" > "$W/ten.cf32"
    one "signal --predict" works $says "$W/all.cf32"
    one "signal --predict: a row for every frame" [ "$(wc -l < "$W/out")" -eq 481 ]
    one "signal --predict names the classes" says '^file,frame,label,bpsk,qpsk,fsk2,am$'
    one "signal --predict is right of most" awk -F, 'BEGIN { split("bpsk qpsk fsk2 am", name, " ") }
        NR > 1 { n += $3 == name[$2 % 4 + 1]; sum = $4 + $5 + $6 + $7; if (sum < 0.999 || sum > 1.001) exit 1 } END { exit n < 360 }' "$W/out"
    # header DESCR SHAPE FILE: a .npy file's header and what is in the file
    # shellcheck disable=SC2059
    header() {
        text="{'descr': '$1', 'fortran_order': False, 'shape': $2, }"
        printf "$(printf '\\223NUMPY\\001\\000\\%03o\\000' ${#text})%s" "$text" && cat "$3"
    }
    header '<c8' '(640,)' "$W/ten.cf32" > "$W/ten.npy" && header '<f4' '(640, 2)' "$W/ten.cf32" > "$W/pairs.npy"
    od -An -v -tf4 -w8 "$W/ten.cf32" | awk 'BEGIN { print "t,q,i" } { print NR "," $2 "," $1 }' > "$W/ten.csv"
    cp "$W/ten.cf32" "$W/ten.sigmf-data" && echo '{"global":{"core:datatype":"cf32_le"}}' > "$W/ten.sigmf-meta"
    others="$W/ten.npy $W/pairs.npy $W/ten.csv" n=41
    if [ "$tokenizers" ]; then others="$others $W/ten.sigmf-meta" n=51; fi
    # iq_wav BITS FORMAT [CHANNELS]: a WAV file's header and the ten frames, on the standard output; whole numbers are a quarter of them
    # shellcheck disable=SC2059
    iq_wav() {
        printf "$(od -An -v -tf4 -w4 "$W/ten.cf32" | awk -v bits="$1" -v format="$2" -v channels="${3:-2}" '
            function put(v, n) { while (n--) { printf "\\%03o", v % 256; v = int(v / 256) } }
            BEGIN { printf "RIFF"; put(36 + 1280 * bits / 8, 4); printf "WAVEfmt "; put(16, 4); put(format, 2); put(channels, 2)
                put(2400000, 4); put(2400000 * channels * bits / 8, 4); put(channels * bits / 8, 2); put(bits, 2)
                printf "data"; put(1280 * bits / 8, 4); most = 2 ^ (bits - 1) }
            format == 1 { v = int($1 / 4 * most); if (bits == 8) v += 128; if (v < 0) v += 2 * most; put(v, bits / 8) }')"
        [ "$2" -eq 1 ] || cat "$W/ten.cf32"
    }
    iq_wav 32 3 > "$W/float.wav"
    for bits in 8 16 24 32; do iq_wav $bits 1 > "$W/$bits.wav"; done
    others="$others $W/float.wav" n=$((n + 10))
    # shellcheck disable=SC2086
    one "signal --predict, several files of all kinds" works $says "$W/ten.cf32" $others
    one "signal --predict says the same of each" awk -F, -v lines=$n 'NR > 1 { said = $3; for (c = 4; c <= 7; c++) said = said " " int($c * 1e4 + 0.5)
        if (NR <= 11) first[$2] = said; else if (first[$2] != said) bad = 1 } END { exit bad || NR != lines }' "$W/out"
    one "signal --predict, WAV files of whole numbers" works $says "$W/ten.cf32" "$W/16.wav" "$W/24.wav" "$W/32.wav" "$W/8.wav"
    one "signal --predict says the same of these" awk -F, 'NR > 1 { if (NR <= 11) first[$2] = $3; else if (first[$2] != $3) bad = 1 }
        END { exit bad || NR != 51 }' "$W/out"
    # What training alone reads is not for --predict, also where it has the value that it would have
    for o in "--attention rope" --compare "--parameters 9" "--frame 8" "--hop 8" "--take 0" "--epochs 12" "--seed 1" "--seeds 1" "--batch 64" \
        "--lr 1e-3" "--svg x" "--csv x" "--save x" "--validate 1" "--patience 8" --synthetic "--set d_model=32"; do
        one "signal --predict $o" complains $says "$W/ten.cf32" $o
        one "signal --predict $o: says so" says ": ${o%% *} is for a training, not for --predict"
    done
    one "signal --predict, options that it reads" works $says "$W/ten.cf32" --threads 1 --quiet
    head -c 5200 "$W/all.cf32" > "$W/more.cf32"
    one "signal --predict, a part of a frame at the end" works $says "$W/more.cf32"
    one "signal --predict, a part of a frame at the end: says so" says ': left out: 10 samples behind the last whole frame of .*more.cf32$'
    one "signal --predict, a part of a frame at the end: ten frames" [ "$(grep -c '^.*more.cf32,[0-9],' "$W/out")" -eq 10 ]
    one "signal --json" works "$P/signal" --json --predict "$W/ten.cf32" --model "$W/signal.model"
    one "signal --json: lines" [ "$(grep -c '^{"file":".*ten.cf32","frame":[0-9],"label":"[a-z0-9]*","probability":{"bpsk":[01]\.[0-9]*,.*}}$' "$W/out")" -eq 10 ]
    # fault NAME WORDS: a file that is refused with these words, and nothing else is printed
    fault() {
        one "signal --predict, $1" complains $says "$W/ten.cf32" "$W/$1"
        one "signal --predict, $1: says what" says "$2"
    }
    head -c 5119 "$W/ten.cf32" > "$W/cut.cf32" && fault cut.cf32 'ends within a sample'
    { head -c 800 "$W/ten.cf32"; printf '\000\000\300\177\000\000\000\000'; cat "$W/ten.cf32"; } > "$W/nan.cf32" && fault nan.cf32 'sample 101 is no number'
    head -c 504 "$W/ten.cf32" > "$W/short.cf32" && fault short.cf32 '63 samples, and a frame has 64'
    : > "$W/empty.cf32" && fault empty.cf32 'no samples'
    head -c 1000 "$W/ten.npy" > "$W/cut.npy" && fault cut.npy 'another size'
    header '<i2' '(640, 2)' "$W/ten.cf32" > "$W/whole.npy" && fault whole.npy 'dtype .<i2.'
    cp "$W/ten.npy" "$W/lie.cf32" && fault lie.cf32 'another kind of file'
    : > "$W/empty.csv" && fault empty.csv 'an empty file'
    printf 'i\n1\n' > "$W/one.csv" && fault one.csv 'one is missing'
    printf 'i,q\n1,2\n3\n' > "$W/short.csv" && fault short.csv 'line 3'
    head -c 1000 "$W/float.wav" > "$W/cut.wav" && fault cut.wav 'ends beyond the file'
    iq_wav 16 1 1 > "$W/mono.wav" && fault mono.wav 'two channels are needed, I and Q, and there is 1'
    iq_wav 16 1 3 > "$W/three.wav" && fault three.wav 'and there are 3'
    iq_wav 8 7 > "$W/law.wav" && fault law.wav 'neither 8, 16, 24 or 32 bits nor float'
    cp "$W/ten.cf32" "$W/raw.wav" && fault raw.wav 'not a WAV file'
    cp "$W/ten.cf32" "$W/ten.dat" && fault ten.dat 'not called'
    fault nowhere.cf32 'cannot open'
    one "signal --predict twice" complains $says "$W/ten.cf32" --json --predict "$W/ten.cf32"
    one "signal --predict twice: says so" says 'one --predict is enough'
    one "signal --predict, no model" complains "$P/signal" --predict "$W/ten.cf32"
    one "signal --predict, no file" complains "$P/signal" --predict --model "$W/signal.model"
    one "signal --predict, no model of ours" complains "$P/signal" --model "$wave" --predict "$W/ten.cf32"
    cp "$W/signal.model" "$W/bare.model"
    one "signal --predict, a model alone" complains "$P/signal" --model "$W/bare.model" --predict "$W/ten.cf32"
    one "signal --predict names the other file" says 'cannot open .*bare.model.classes'
    sed 's/frame	8/frame	16/' "$W/signal.model.classes" > "$W/bare.model.classes"
    one "signal --predict, frames that are not the model's" complains "$P/signal" --model "$W/bare.model" --predict "$W/ten.cf32"
    sed 's/program	signal/program	spoken/' "$W/signal.model.classes" > "$W/bare.model.classes"
    one "signal --predict, another program's model" complains "$P/signal" --model "$W/bare.model" --predict "$W/ten.cf32"
    one "signal --predict says whose" says 'not a model of signal but of spoken'
    sed 's/^class	qpsk$/class	bpsk/' "$W/signal.model.classes" > "$W/bare.model.classes"
    one "signal --predict, a class twice" complains "$P/signal" --model "$W/bare.model" --predict "$W/ten.cf32"
    one "signal --predict says so" says 'a class that is named twice in .*bare.model.classes'
    sed 's/^class	qpsk$/class	/' "$W/signal.model.classes" > "$W/bare.model.classes"
    one "signal --predict, a class without a name" complains "$P/signal" --model "$W/bare.model" --predict "$W/ten.cf32"
    one "signal --predict says which file" says 'a class without a name in .*bare.model.classes'
    for c in bpsk qpsk fsk2 am; do cp "$W/ten.cf32" "$W/${c}_1.cf32"; done
    one "signal --labelled" works $says "$W"/bpsk_1.cf32 "$W"/qpsk_1.cf32 "$W"/fsk2_1.cf32 "$W"/am_1.cf32 --labelled
    one "signal --labelled counts every frame, a quarter of them right" says '^10 of 40 right$'
    one "signal --labelled, a name without a class" complains $says "$W/bpsk_1.cf32" "$W/ten.cf32" --labelled
    one "signal --predict > /dev/full" full $says "$W/ten.cf32"
    one "signal --model without --predict" complains "$P/signal" "$wave" $tiny --model "$W/signal.model"
fi
if [ -x "$P/signal_next" ] && [ -s "$W/signal.safetensors" ]; then
    tiny="--quiet --set n_layers=1 --set d_model=32"
    one "signal_next" works "$P/signal_next" "$wave" $tiny --epochs 20
    one "signal_next beats the last frame again" awk '/^the model/ { m = $3 } /^the last/ { exit !(m < $5) }' "$W/out"
    one "signal_next streams" says '^Streamed, 8 frames one by one: within [0-9.]*e-0[5-9]'
    one "signal_next --attention cope-magnitude" works "$P/signal_next" "$wave" $tiny --epochs 1 --attention cope-magnitude
    one "signal_next, an encoder" complains "$P/signal_next" "$wave" $tiny --attention lag
    for field in classes=3 values=5000 features=3 complex_features=0 gaussian=0; do
        one "signal_next --set $field" complains "$P/signal_next" "$wave" $tiny --set $field
    done
    for field in steps accumulate ema; do
        one "signal_next --set $field" complains "$P/signal_next" "$wave" $tiny --set $field=5
        one "signal_next --set $field: says whose it is" says "$field is the program's own field, as "
    done
    one "signal_next, frames too long" complains "$P/signal_next" "$wave" $tiny --frame 32
    one "signal_next --save of what it reads" spares "$wave" "$P/signal_next" "$wave" $tiny --epochs 1 --save "$wave"
    if command -v python3 > /dev/null 2>&1; then # one level too many, which ends it before it trains: not even a line of progress
        python3 - "$wave" "$W/levels.wave" <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
at, end = json.loads(data[8:start])["snr"]["data_offsets"]
n = (end - at) // 4
data[start + at:start + end] = struct.pack("<%df" % n, *range(n))
open(sys.argv[2], "wb").write(data)
END
        one "signal_next, more than 32 levels" complains "$P/signal_next" "$W/levels.wave" ${tiny#--quiet} --epochs 2
        one "signal_next, more than 32 levels: says so" says ': more than 32 levels of snr$'
    fi
    one "signal_next, a cut file" complains "$P/signal_next" "$W/cut.wave" $tiny
    one "signal_next without a file" complains "$P/signal_next"
    one "signal_next --help" works "$P/signal_next" --help
    one "signal_next > /dev/full" full "$P/signal_next" "$wave" $tiny --epochs 1
fi
if [ -x "$P/signal_next" ] && [ -x "$P/embed" ] && [ -s "$W/signal.safetensors" ]; then
    # carries NAME FIELD=VALUE: a model of that field in the program of that name
    carries() {
        one "signal_next --save, for $1" works "$P/signal_next" "$wave" $tiny --epochs 2 --set "$2" --save "$W/$1.safetensors"
        mkdir -p "$W/$1.d"
        one "$1: the model as an array" sh -c "'$P/embed' '$W/$1.safetensors' model_bytes > '$W/$1.d/stream_model.h'"
        one "$1 compiles" works $CC -O1 -I. -I"$W/$1.d" examples/stream.c -o "$W/$1" -lm
    }
    # knew: what it says of all next frames, without times
    knew() { sed -n 's/^[0-9]* frames of.*within/within/p' "$W/out"; }
    carries stream window=4
    follows=$W/stream
    one "stream --tone" works "$follows" --tone 2001
    one "stream counts frames of 8 samples" says '^2001 frames of 8 samples, 2.0 s: next frames within -*[0-9.]* dB'
    one "stream, a window: exact" says '^exact without an end; real-time factor'
    one "stream, a line a second" [ "$(grep -c '^ *[12] s: ' "$W/out")" -eq 2 ]
    for twice in "--tone 9 --tone 8" "--tone 9 --again 2 --again 3" "--rate 8000 --rate 8000 -"; do
        # shellcheck disable=SC2086
        one "stream $twice" complains "$follows" $twice
        one "stream $twice: says so" says '^stream: --[a-z]* comes twice, and once is enough$'
    done
    one "stream --again" works "$follows" --tone 300 --again 3
    one "stream --again says the worst" says '^300 frames, least times of 3: .* the worst, frame [0-9]*, '
    # two channels, 16 bits, 8 kHz
    head -c 64000 "$wave" > "$W/bare"
    # wav CHANNELS BITS: the beginning of a WAV file; both in octal
    # shellcheck disable=SC2059
    wav() { printf "RIFF\044\372\0\0WAVEfmt \020\0\0\0\001\0\\$1\0\100\037\0\0\0\175\0\0\004\0\\$2\0data\0\372\0\0"; }
    { wav 2 20; cat "$W/bare"; } > "$W/two.wav"
    one "stream, a WAV file" works "$follows" "$W/two.wav"
    one "stream reads all of it" says '^2000 frames of 8 samples, 2.0 s'
    knew > "$W/knew"
    one "stream says how well it knew" [ -s "$W/knew" ]
    one "stream, a WAV file by standard input" works sh -c "cat '$W/two.wav' | '$follows' -"
    one "stream knows it as well" [ "$(knew)" = "$(cat "$W/knew")" ]
    one "stream, bare samples" works sh -c "'$follows' --rate 16000 - < '$W/bare'"
    one "stream knows them as well" [ "$(knew)" = "$(cat "$W/knew")" ]
    one "stream --rate" says '^2000 frames of 8 samples, 1.0 s'
    one "stream --rate: of few frames a second" works sh -c "'$follows' --rate 100 - < '$W/bare'"
    one "stream --rate: the seconds of the sound" says '^ *160 s: '
    one "stream --rate of a WAV file" complains "$follows" --rate 16000 "$W/two.wav"
    one "stream says whose it is" says 'rate is for bare samples, not for a WAV file: .*two.wav$'
    for cut in 40000 64042; do
        head -c $cut "$W/two.wav" > "$W/less.wav"
        one "stream, a WAV file cut at $cut bytes" sh -c "! '$follows' '$W/less.wav' > '$W/out' 2>&1"
        one "stream, cut at $cut bytes: says so" says '^stream: has fewer samples than it says: .*less.wav$'
    done
    { wav 1 20; cat "$W/bare"; } > "$W/one.wav"
    { wav 2 10; cat "$W/bare"; } > "$W/bits.wav"
    head -c 30 "$W/two.wav" > "$W/cut.wav"
    head -c 36 "$W/two.wav" > "$W/none.wav"
    head -c 80 "$W/two.wav" > "$W/short.wav"
    { head -c 8 "$W/two.wav"; echo AVI and so on; } > "$W/avi.wav"
    : > "$W/empty.wav"
    for file in one bits cut none short avi empty nowhere; do
        one "stream, $file.wav" complains "$follows" "$W/$file.wav"
    done
    one "stream, a WAV file of one channel" complains "$follows" "$W/one.wav"
    one "stream says what it wants" says 'wants two channels.*one.wav'
    one "stream, bare samples without --rate" complains "$follows" "$W/bare"
    one "stream asks for --rate" says 'without --rate no bare samples'
    one "stream, a folder" complains "$follows" --rate 16000 "$W"
    one "stream, a folder: says that it cannot be read" says '^stream: the sound cannot be read$'
    one "stream, bare samples of a file" works "$follows" --rate 16000 "$W/bare"
    one "stream knows them likewise" [ "$(knew)" = "$(cat "$W/knew")" ]
    one "stream, a misspelt option" complains "$follows" --tonne 9
    one "stream names it" says 'no option --tonne'
    one "stream without a sound" complains "$follows"
    one "stream, two sounds" complains "$follows" "$W/two.wav" "$W/one.wav"
    one "stream, a sound and a tone" complains "$follows" "$W/two.wav" --tone 9
    one "stream --tone 0" complains "$follows" --tone 0
    one "stream --tone 1" complains "$follows" --tone 1
    one "stream --tone, no number" complains "$follows" --tone nan
    one "stream --tone without a number" complains "$follows" --tone
    one "stream --again without a tone" complains "$follows" "$W/two.wav" --again 2
    one "stream --help" works "$follows" --help
    one "stream --help > /dev/full" full "$follows" --help
    one "stream -h" works "$follows" -h
    one "stream > /dev/full" full "$follows" --tone 30
    carries forgetful window=0
    one "stream, no window" works "$W/forgetful" --tone 300
    one "stream, no window: it forgets" says '^forgets token by token; real-time factor'
fi
# shellcheck disable=SC2086
if echo '#include <liquid/liquid.h>' | $CC -E - > /dev/null 2>&1; then
    one "signal_data compiles" works $CC $CMHA_CFLAGS -DCMHA_LINKED -I. examples/signal_data.c "$B/cmha.o" -o "$W/signal_data" \
        -lliquid $CMHA_LIBS
    radio=$W/radio.safetensors few="--runs 1 --frames 2 --step 30 --samples 64"
    one "signal_data writes a set" works "$W/signal_data" $few --out "$radio"
    one "signal_data says how large it is" says '^156 frames of 64 samples from 78 runs: 13 classes, 2 levels'
    one "signal reads it" works "$P/signal" "$radio" --epochs 1 --frame 16 --set d_model=32
    one "signal lists its classes" says '^apsk16 '
    one "signal_data once more" works "$W/signal_data" $few --out "$radio.2"
    one "signal_data makes the same of the same seed" cmp "$radio" "$radio.2"
    one "signal_data, another seed" works "$W/signal_data" $few --out "$radio.2" --seed 2
    one "signal_data makes something else of it" sh -c "! cmp -s '$radio' '$radio.2'"
    one "signal_data, levels upside down" complains "$W/signal_data" $few --out "$radio.2" --low 30
    one "signal_data, no number" complains "$W/signal_data" $few --out "$radio.2" --echo half
    one "signal_data, a misspelt option" complains "$W/signal_data" $few --uot "$radio.2"
    one "signal_data, a file that cannot be written" complains "$W/signal_data" $few --out "$W/nowhere/x.safetensors"
    one "signal_data --help > /dev/full" full "$W/signal_data" --help
else echo "SKIP liquid-dsp is not installed"
fi
if [ -x "$P/spoken" ]; then
    # tone FILE RATE PERIOD [CHANNELS]: a WAV file of a square wave of that period, 2000 samples
    # shellcheck disable=SC2059
    tone() {
        printf "$(awk -v rate="$2" -v period="$3" -v channels="${4:-1}" '
            function put(v, n) { while (n--) { printf "\\%03o", v % 256; v = int(v / 256) } }
            BEGIN { printf "RIFF"; put(36 + 4000 * channels, 4); printf "WAVEfmt "; put(16, 4); put(1, 2); put(channels, 2)
                put(rate, 4); put(2 * channels * rate, 4); put(2 * channels, 2); put(16, 2); printf "data"; put(4000 * channels, 4)
                for (i = 0; i < 2000 * channels; i++) put(int(i / channels) % period < period / 2 ? 8000 : 57536, 2) }')" > "$1"
    }
    mkdir -p "$W/digits"
    for d in 0 1 2 3; do for t in 3 4 5 6 7 8; do
        tone "$W/digits/${d}_ann_$t.wav" 8000 $((8 + 6 * d + t % 2)); tone "$W/digits/${d}_bob_$t.wav" 8000 $((9 + 6 * d + t % 2))
    done; done
    mel="--batch 8 --lr 5e-3 --window 64 --set n_layers=1 --set d_model=32 --set d_ff=32 --quiet"
    tiny="--features offset --batch 8 --lr 5e-3 --window 64 --set n_layers=1 --set d_model=32 --set d_ff=32 --quiet"
    # right THAN: the accuracy in the last row of the table
    right() { awk -v than="$1" '/^rope / { last = $(NF - 1) } END { exit !(last >= than) }' "$W/out"; }
    one "spoken learns four tones" works "$P/spoken" "$W/digits" $tiny --epochs 12 --save "$W/spoken.model"
    one "spoken is right of most" right 80
    one "spoken prints precision, recall and F1" awk '/^[0-9] / && NF == 14 { n++; if ($1 < 4 && $14 < 0.5) bad = 1
        if ($1 > 3 && $14 > 0.5) bad = 1 } END { exit bad || n != 10 }' "$W/out"
    one "spoken counts the test recordings" says '^[0-9]* of 16 right$'
    one "spoken says which epoch it keeps" works "$P/spoken" "$W/digits" ${tiny% --quiet} --epochs 2
    one "spoken says it" says '^epoch [12] of 2 is kept: validation loss [0-9.]*$'
    one "spoken --validate 0 --patience" complains "$P/spoken" "$W/digits" $tiny --validate 0 --patience 2
    one "spoken --validate 0 --patience: says why" says ': --patience needs what says which epoch is better: '
    one "spoken --validate 0 keeps the last" works "$P/spoken" "$W/digits" ${tiny% --quiet} --epochs 2 --validate 0
    one "spoken does not say it then" sh -c "! grep -q 'is kept' '$W/out'"
    mkdir -p "$W/umlauts"
    for d in 0 1 2 3; do for t in 3 4 5 6; do
        cp "$W/digits/${d}_ann_$t.wav" "$W/umlauts/${d}_järg_$t.wav"; cp "$W/digits/${d}_bob_$t.wav" "$W/umlauts/${d}_jörg_$t.wav"
    done; done
    one "spoken, speakers with umlauts" works "$P/spoken" "$W/umlauts" ${tiny% --quiet} --epochs 1 --leave jörg
    one "spoken: there are two" says '^32 recordings of 2 speakers$'
    one "spoken says whom it has left out" says '^rope .*  jörg: [0-9.]* ([0-9.]*)$'
    if command -v tar > /dev/null 2>&1; then
        tar -C "$W" -cf "$W/digits.tar" digits
        one "spoken, a speaker left out, from an archive" works "$P/spoken" "$W/digits.tar" $tiny --epochs 12 --leave bob
        one "spoken is right of most of his" right 60
        one "spoken --save of what it reads" spares "$W/digits.tar" "$P/spoken" "$W/digits.tar" $tiny --epochs 1 --save "$W/digits.tar"
        (cd "$W/digits" && LC_ALL=C ls | tar -cf ../sorted.tar -T -)
        one "spoken, an archive in the order of names" works "$P/spoken" "$W/sorted.tar" $tiny --epochs 1 --threads 1 --save "$W/sorted.model"
        one "spoken, the same as a folder" works "$P/spoken" "$W/digits" $tiny --epochs 1 --threads 1 --save "$W/folder.model"
        one "spoken learns the same of both" cmp "$W/sorted.model" "$W/folder.model"
        cp "$W/digits.tar" "$W/twice.tar" && tar -C "$W" -rf "$W/twice.tar" digits/0_ann_3.wav
        one "spoken, a take that is there twice" complains "$P/spoken" "$W/twice.tar" $tiny --epochs 1
        one "spoken, a take that is there twice: says which" says ': 0_ann_3.wav comes more than once in .*twice.tar$'
        head -c 5000 "$W/digits.tar" > "$W/cut.tar"
        one "spoken, an archive that ends early" complains "$P/spoken" "$W/cut.tar" $tiny
    fi
    for what in magnitude complex; do
        one "spoken --features $what" works "$P/spoken" "$W/digits" $(but "$tiny" --features) --epochs 1 --features $what
    done
    # the power in bands; tones whose pitch is what they are need little of the changes
    still="--speed 0.05 --warp 0.02 --colour 0.5 --hearings 3"
    right_mel() { awk -v than="$1" '/^cmha / { last = $(NF - 1) } END { exit !(last >= than) }' "$W/out"; }
    one "spoken --features mel learns them" works "$P/spoken" "$W/digits" $mel $still --epochs 16 --save "$W/mel.model"
    one "and is right of most" right_mel 80
    cp "$W/out" "$W/mel.out"
    one "again with the same seed" works "$P/spoken" "$W/digits" $mel $still --epochs 16
    one "the same" cmp -s "$W/out" "$W/mel.out"
    one "its model labels" works "$P/spoken" --model "$W/mel.model" --predict "$W/digits"/*_4.wav --labelled
    one "and is right of most" awk '/^[0-9]* of 8 right$/ { n = $1 } END { exit n < 6 }' "$W/out"
    lasting="$W/digits $mel $still --epochs 16 --threads 1"
    one "spoken, at once" works "$P/spoken" $lasting --save "$W/once.model"
    cp "$W/out" "$W/once.out"
    one "spoken, killed" killed "$W/again.model" "$P/spoken" $lasting --save "$W/again.model"
    one "spoken --resume, another change" complains "$P/spoken" $(but "$lasting" --warp) --resume --save "$W/again.model" --warp 0.03
    one "it says which" says 'warp was 0.02 where this training began, and is 0.03'
    one "spoken --resume --leave all" complains "$P/spoken" $lasting --resume --save "$W/again.model" --leave all
    one "spoken --resume of signal's" complains "$P/spoken" $lasting --resume --save "$W/signal.model"
    one "spoken --resume" works "$P/spoken" $lasting --resume --save "$W/again.model"
    one "spoken --resume: as at once" cmp "$W/again.model" "$W/once.model"
    one "spoken --resume: and says the same" cmp "$W/out" "$W/once.out"
    for row in 'features	2' 'bands	25' 'context	9' 'hearings	0' 'hearings	16' 'every	1'; do
        cp "$W/mel.model" "$W/else.model"
        sed "s/^${row%%	*}	.*/$row/" "$W/mel.model.classes" > "$W/else.model.classes"
        one "a model with $row" complains "$P/spoken" --model "$W/else.model" --predict "$W/digits/0_ann_4.wav"
        one "is another one" says 'another model than that of the file beside it'
    done
    sed 's/^features	.*/features	3/' "$W/mel.model.classes" > "$W/else.model.classes"
    one "a model of an older version" complains "$P/spoken" --model "$W/else.model" --predict "$W/digits/0_ann_4.wav"
    one "is named as one" says 'its features are those of an older version'
    one "one speaker's files" works "$P/spoken" --model "$W/mel.model" --predict "$W/digits"/*_ann_[45].wav --labelled --one-speaker
    one "and is right of most" awk '/^[0-9]* of 8 right$/ { n = $1 } END { exit n < 6 }' "$W/out"
    cp "$W/out" "$W/one.out"
    one "which their names say" works "$P/spoken" --model "$W/mel.model" --predict "$W/digits"/*_ann_[45].wav --labelled
    one "as well" cmp -s "$W/out" "$W/one.out"
    cp "$W/digits/1_ann_4.wav" "$W/1_x.wav"
    one "a file alone" works "$P/spoken" --model "$W/mel.model" --predict "$W/1_x.wav"
    tail -n 1 "$W/out" > "$W/one.out"
    one "a file of nobody's beside others" works "$P/spoken" --model "$W/mel.model" --predict "$W/digits"/*_ann_4.wav "$W/1_x.wav"
    one "is heard as it is alone" sh -c "tail -n 1 '$W/out' | cmp -s - '$W/one.out'"
    one "the same file twice" works "$P/spoken" --model "$W/mel.model" --predict "$W/digits/1_ann_4.wav" "$W/digits/1_ann_4.wav" --one-speaker
    one "has two rows alike" awk -F, 'NR > 1 { n += $1 == name && $3 == label; name = $1; label = $3 } END { exit n != 1 || NR != 3 }' "$W/out"
    # of 50 recordings of a speaker and more the model learns, and forgets it for the next one
    ann="$W/digits/?_ann_?.wav" mel_says="$P/spoken --model $W/mel.model --threads 1 --predict"
    one "many of one speaker, as they are" works $mel_says $ann $ann $ann --labelled --adapt 0
    cp "$W/out" "$W/many.out"
    one "many of one speaker, learnt from" works $mel_says $ann $ann $ann --labelled --adapt 2
    one "is right of most" awk '/^[0-9]* of 72 right$/ { n = $1 } END { exit n < 60 }' "$W/out"
    one "which changes what is said" sh -c "! cmp -s '$W/out' '$W/many.out'"
    cp "$W/out" "$W/many.out"
    one "the same again" works $mel_says $ann $ann $ann --labelled --adapt 2
    one "in the same bits" cmp -s "$W/out" "$W/many.out"
    one "another speaker" works $mel_says "$W/digits"/?_bob_?.wav --adapt 2
    grep bob "$W/out" > "$W/bob.out"
    one "another speaker behind many of one" works $mel_says $ann $ann $ann "$W/digits"/?_bob_?.wav --adapt 2
    one "is judged as if there were none before" sh -c "grep bob '$W/out' | cmp -s - '$W/bob.out'"
    one "--even of 72 recordings" works $mel_says $ann $ann $ann --even --adapt 0
    one "gives each of ten digits as much" awk -F, 'NR > 1 { for (d = 0; d < 10; d++) all[d] += $(4 + d) }
        END { for (d = 0; d < 10; d++) if (all[d] < 6 || all[d] > 8.5) bad = 1; exit bad }' "$W/out"
    one "--even of 24" works $mel_says $ann --even
    one "says that they are few" says '^spoken: --even is for 50 recordings of a speaker or more; of one there are fewer$'
    one "--even of bins" complains "$P/spoken" "$W/digits" $tiny --even
    one "--even of a model of bins" complains "$P/spoken" --model "$W/spoken.model" --predict "$W/digits/1_ann_4.wav" --even
    one "--adapt of bins" complains "$P/spoken" "$W/digits" $tiny --adapt 1
    one "--adapt, no number" complains "$P/spoken" "$W/digits" $mel --adapt much
    one "--one-speaker, nothing to label" complains "$P/spoken" "$W/digits" $mel --one-speaker
    one "--one-speaker, a missing file" complains "$P/spoken" --model "$W/mel.model" --predict "$W/digits/1_ann_4.wav" "$W/nowhere" --one-speaker
    one "--one-speaker of bins" complains "$P/spoken" --model "$W/spoken.model" --predict "$W/digits/1_ann_4.wav" --one-speaker
    one "it says whose it is" says 'only for --features mel is --one-speaker'
    grep -v '^hearings' "$W/mel.model.classes" > "$W/else.model.classes"
    one "a model without what it hears" complains "$P/spoken" --model "$W/else.model" --predict "$W/digits/0_ann_4.wav"
    for o in stretch warp noise echo pad colour masks; do
        one "spoken, --$o of bins" complains "$P/spoken" "$W/digits" $tiny --$o 0.1
        one "it says whose it is" says "only for --features mel is --$o"
        one "spoken, too much --$o" complains "$P/spoken" "$W/digits" $mel --$o 5
    done
    one "spoken --set features" complains "$P/spoken" "$W/digits" $mel --set features=5000
    one "spoken says whose they are" says "are the program's own fields"
    one "spoken --set ema" complains "$P/spoken" "$W/digits" $mel --set ema=0.9
    one "spoken --set ema: says whose it is" says "ema is the program's own field, as "
    one "spoken, no --features" complains "$P/spoken" "$W/digits" $mel --features mle
    one "spoken, no such speaker" complains "$P/spoken" "$W/digits" $tiny --leave eve
    one "spoken, no archive" complains "$P/spoken" README.md $tiny
    one "spoken, a missing file" complains "$P/spoken" "$W/nowhere" $tiny
    one "spoken, a folder without recordings" complains "$P/spoken" tests $tiny
    mkdir -p "$W/slow" && tone "$W/slow/1_ann_1.wav" 8001 8
    one "spoken, another rate" complains "$P/spoken" "$W/slow" $tiny
    one "spoken says so" says 'not 8 kHz'
    mv "$W/slow/1_ann_1.wav" "$W/slow/one.wav"
    one "spoken, another name" complains "$P/spoken" "$W/slow" $tiny
    mkdir -p "$W/capitals" && cp "$W/digits"/[01]_ann_* "$W/capitals" && cp "$W/digits/1_ann_3.wav" "$W/capitals/1_ann_9.WAV"
    one "spoken, a name in capitals" complains "$P/spoken" "$W/capitals" $tiny --epochs 1
    one "spoken names it" says 'not named DIGIT_SPEAKER_TAKE.wav: 1_ann_9.WAV$'
    one "spoken --attention and --compare" complains "$P/spoken" "$W/digits" $tiny --attention rope --compare cmha
    one "spoken --attention of nothing" complains "$P/spoken" "$W/digits" $tiny --attention ,
    one "spoken says which names nothing" says 'no kind of attention is named by --attention$'
    one "spoken --help" works "$P/spoken" --help
    one "spoken --help > /dev/full" full "$P/spoken" --help
    one "spoken, the output closed" closed "$P/spoken" "$W/digits" $tiny --epochs 1
    says="$P/spoken --model $W/spoken.model --predict"
    # right_of THAN: so many rows at least, and their labels are what their files' names begin with
    right_of() { awk -F, -v least="$1" 'NR > 1 { name = $1; sub(".*/", "", name); n++; if (substr(name, 1, 1) == $3) right++ }
        END { exit !(n >= least && right >= 0.8 * n) }' "$W/out"; }
    one "spoken --predict" works $says "$W/digits"/*_4.wav
    one "spoken --predict is right of most" right_of 8
    for o in "--attention cmha" "--compare rope" "--parameters 9" "--leave ann" "--features mel" "--window 256" "--hearings 3" "--epochs 80" \
        "--seeds 1" "--batch 8" "--lr 1e-3" "--save x" "--validate 0.1" "--patience 8" "--set d_model=32"; do
        one "spoken --predict $o" complains $says "$W/digits/0_ann_4.wav" $o
        one "spoken --predict $o: says so" says ": ${o%% *} is for a training, not for --predict"
    done
    for o in speed warp adapt; do # they are for voices
        one "spoken --predict --$o, a model of bins" complains $says "$W/digits/0_ann_4.wav" --$o 0
        one "spoken --predict --$o, a model of bins: says so" says "only for --features mel is --$o"
        one "spoken --predict --$o" works "$P/spoken" --model "$W/mel.model" --predict "$W/digits/0_ann_4.wav" --$o 0
    done
    narrow="--features offset --batch 8 --window 64 --set n_layers=1 --set d_model=32 --quiet"
    one "spoken --parameters" works "$P/spoken" "$W/digits" $narrow --epochs 1 --parameters 12000
    one "spoken --parameters: no more" awk '/^rope / { n = $2 } END { exit !(n > 11000 && n <= 12000) }' "$W/out"
    one "spoken --parameters, too few" complains "$P/spoken" "$W/digits" $narrow --epochs 1 --parameters 10
    one "spoken --parameters, too few: says how many there are" says 'parameters at least, with d_ff = 2, and 10 are asked for'
    one "spoken --set steps" complains "$P/spoken" "$W/digits" $tiny --set steps=5
    one "spoken --labelled" works $says "$W/digits"/*_4.wav --labelled
    one "spoken --labelled counts them" says '^[0-9]* of 8 right$'
    one "spoken --predict, in the middle of the options" works "$P/spoken" --predict "$W/digits"/*_4.wav --json --model "$W/spoken.model"
    one "spoken --json: lines" [ "$(grep -c '^{"file":".*wav","frame":0,"label":"[0-9]","probability":{"0":.*}}$' "$W/out")" -eq 8 ]
    mkdir -p "$W/sound"
    for d in 0 1 2 3; do tone "$W/sound/${d}_stereo.wav" 16000 $((16 + 12 * d)) 2; done
    if grep -q '^SOUND_LIBS.*sndfile' "$B/config.mk" 2> /dev/null; then
        one "spoken --predict, another rate and two channels" works $says "$W/sound"/*
        one "spoken --predict is right of these" right_of 4
    else
        one "spoken --predict, another rate, without libsndfile" complains $says "$W/sound"/*
        one "spoken --predict names the packages" says 'apt-get install libsndfile1-dev libsamplerate0-dev'
    fi
    head -c 3000 "$W/digits/0_ann_4.wav" > "$W/cut.wav"
    for f in cut.wav nowhere.wav spoken.model.classes digits; do
        one "spoken --predict, $f" complains $says "$W/digits/0_ann_4.wav" "$W/$f"
    done
    one "spoken --predict, a model of signal" complains "$P/spoken" --model "$W/signal.model" --predict "$W/digits/0_ann_4.wav"
    one "spoken --predict, no model" complains "$P/spoken" --predict "$W/digits/0_ann_4.wav"
    one "spoken --predict > /dev/full" full $says "$W/digits/0_ann_4.wav"
fi
# paged PROGRAM: -h and --help show the same short page on the standard output
paged() {
    "$1" --help > "$W/page" 2> "$W/out" < /dev/null && [ ! -s "$W/out" ] && "$1" -h > "$W/out" 2>&1 < /dev/null &&
        cmp -s "$W/page" "$W/out" && [ "$(wc -l < "$W/page")" -le 5 ] && grep -q "$(basename "$1")" "$W/page"
}
for n in block plain_kernels own_attention embed; do
    if [ -x "$P/$n" ]; then
        one "$n --help" paged "$P/$n"
        one "$n --help > /dev/full" full "$P/$n" --help
        one "$n, no such option" complains "$P/$n" --halp
    fi
done
[ ! -x "$P/own_attention" ] || one "own_attention, two texts" complains "$P/own_attention" README.md LICENSE
if [ -x "$P/embed" ]; then
    : > "$W/empty"
    one "embed, an empty file" complains "$P/embed" "$W/empty" name
    one "embed, an empty file: says so, and writes nothing" says '^embed: .*empty is empty$'
    for name in int while static_assert _Bool __x; do
        one "embed, the name $name" complains "$P/embed" LICENSE $name
        one "embed, the name $name: says why" says "^embed: C keeps this name for itself: $name\$"
    done
    for name in integer whil _bool x__; do one "embed, the name $name" works "$P/embed" LICENSE $name; done
fi
for n in block plain_kernels; do
    [ -x "$P/$n" ] && one "$n" works "$P/$n" && one "$n says something" [ -s "$W/out" ] &&
        one "$n > /dev/full" full "$P/$n"
done
if [ -x "$P/geometry" ]; then
    drawn="--steps 1 --quiet --seq 32 --batch 2 --set d_model=32 --set d_ff=32 --csv $W/loss.csv LICENSE"
    # names that XML would take for something else
    name="$W/$(printf 'a&b<c>\377\033.safetensors')"
    # shellcheck disable=SC2086
    for layers in 1 2 4 8; do
        one "train_tiny, $layers layers" works "$P/train_tiny" --set n_layers=$layers --set n_heads=4 \
            --out "$name" $drawn
        one "geometry, $layers layers" works "$P/geometry" "$name" --svg "$W/layers.svg"
        one "geometry: as many rows of its table" [ "$(grep -c '^b  ' "$W/out")" -eq $((layers * 4)) ]
        one "geometry: a delta and a b of every layer" [ "$(grep -c '>layer [0-9]*: delta<' "$W/layers.svg") $(
            grep -c '>layer [0-9]*: b<' "$W/layers.svg")" = "$layers $layers" ]
        one "geometry: lines at delta = 1 and b = 0, and in the legend" [ \
            "$(grep -c "stroke-dasharray='9 3 2 3'" "$W/layers.svg")" -eq $((2 * layers + 1)) ]
        one "geometry: a title with the checkpoint's name" grep -q \
            '>a&amp;b&lt;c&gt;??.safetensors: delta and b of every head</title>' "$W/layers.svg"
        one "geometry --svg is a picture" picture "$W/layers.svg"
    done
    one "train_tiny, Möbius maps" works "$P/train_tiny" --attention mobius --set n_layers=2 \
        --set n_heads=2 --out "$W/maps.safetensors" $drawn
    one "geometry, Möbius maps" works "$P/geometry" "$W/maps.safetensors" --svg "$W/maps.svg"
    one "geometry counts them" says 'loxodromic'
    one "geometry: the maps' unit" grep -q '>channels of the head</text>' "$W/maps.svg"
    one "geometry: a title for maps" grep -q '>maps.safetensors: maps of every head</title>' "$W/maps.svg"
    one "geometry, a drawing that cannot be written" sh -c \
        "[ ! -c /dev/full ] || ! '$P/geometry' '$W/maps.safetensors' --svg /dev/full > $W/out 2>&1"
    one "geometry > /dev/full" full "$P/geometry" "$W/maps.safetensors" --svg "$W/maps.svg"
    one "geometry, the output closed" closed "$P/geometry" "$W/maps.safetensors" --svg "$W/closed.svg"
    one "geometry draws the same without an output" cmp "$W/maps.svg" "$W/closed.svg"
    one "geometry, a bad tolerance" complains "$P/geometry" --tol -1 "$W/maps.safetensors"
    one "geometry --svg of what it reads" spares "$W/maps.safetensors" "$P/geometry" --svg "$W/maps.safetensors" "$W/maps.safetensors"
    one "geometry, a bad option" complains "$P/geometry" --sgv x "$W/maps.safetensors"
    one "geometry names the nearest option" says ' --svg'
fi
for e in examples/extensions/*.c; do
    n=$(basename "$e" .c)
    one "extension $n" works "$P/extensions/$n"
    one "extension $n checks its gradient" says 'gradient against differences'
    one "extension $n gives its verdict" says '^Verdict: '
done

total
