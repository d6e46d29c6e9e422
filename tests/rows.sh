#!/bin/sh
# tests/rows.sh BUILD_DIR: scores, layers and optimisers of a user's own (examples/rows/my_rows.c) in every program, by --rows and linked.
# Environment: CC, CMHA_CFLAGS, CMHA_LIBS. Failures in detail; the last line is N passed, N failed, and so is the exit status.
B=${1:-build}
CC=${CC:-cc}
cd "$(dirname "$0")/.." || exit 2
W=$B/tests/rows
rm -rf "$W" && mkdir -p "$W" || exit 2
. tests/parts.sh

P=$(cd "$B" && pwd) W=$(cd "$W" && pwd)
works() { "$@" > "$W/out" 2>&1 < /dev/null; }
says() { grep -q -e "$1" "$W/out"; }
# refuses WORDS COMMAND...: one line with these words, status 1 or 2, and no file that was not there
refuses() {
    want=$1; shift
    find "$W" | sort > "$B/tests/rows.before"
    "$@" > "$W/out" 2>&1 < /dev/null; status=$?
    find "$W" | sort | grep -v '/out$' > "$B/tests/rows.after"
    grep -v '/out$' "$B/tests/rows.before" | cmp -s - "$B/tests/rows.after" || { echo 'wrote a file' >> "$W/out"; return 1; }
    [ $status -eq 1 ] || [ $status -eq 2 ] || return 1
    [ "$(wc -l < "$W/out")" -eq 1 ] && says "$want"
}
# object NAME FLAG... SOURCE: $W/NAME.so
mac=; [ "$(uname)" = Darwin ] && mac='-undefined dynamic_lookup'
# shellcheck disable=SC2086
object() { name=$1; shift; works $CC -O1 -shared -fPIC $mac -I. "$@" -o "$W/$name.so"; }
# source NAME: a file that includes what it needs, with the code on standard input
source() { { printf '#include "cmha.h"\n#include "examples/tools/own_rows.h"\n'; cat; } > "$W/$1.c"; }

one "my_rows.c as a shared object" object my -Wall -Wextra examples/rows/my_rows.c
one "without a warning" [ ! -s "$W/out" ]
so="$W/my.so"
small="--threads 1 --set n_layers=1 --set d_model=16 --set d_ff=16 --set n_heads=2"
tiny="--quiet $small --seq 32 --batch 2 --set eval_tokens=64 --csv $W/loss.csv"

# -------------------------------------------------------------------------------- train_tiny, generate, score, look
one "train_tiny --help lists the rows" works "$P/train_tiny" --rows "$so" --help
for word in score=re-tanh score=gated optimiser=signed; do one "it has $word" says "^  $word\$"; done
for kind in re-tanh gated; do
    out=$W/$kind.safetensors
    # shellcheck disable=SC2086
    one "train_tiny --attention $kind" works "$P/train_tiny" --rows "$so" --attention $kind $tiny --steps 4 --out "$out" README.md
    one "generate, $kind" works "$P/generate" --rows "$so" --tokens 20 "$out"
    one "generate without --rows" refuses "there is no score $kind; --rows names the file" "$P/generate" --tokens 20 "$out"
    one "generate --pack int8, $kind" works "$P/generate" --rows="$so" --pack int8 "$W/packed.safetensors" "$out"
    one "generate from it" works "$P/generate" --rows "$so" --tokens 20 "$W/packed.safetensors"
    rm -f "$W/packed.safetensors"
    one "generate --pack without --rows" refuses '; --rows names' "$P/generate" --pack int8 "$W/packed.safetensors" "$out"
    one "score, $kind" works "$P/score" --rows "$so" --judge "$out" LICENSE
    one "score says a perplexity" says 'perplexity (gen-PPL) *[0-9]'
    one "score without --rows" refuses "no score $kind; --rows" "$P/score" --judge "$out" LICENSE
    one "look without --rows" refuses "no score $kind; --rows" "$P/look" "$out"
    one "look, $kind" works "$P/look" --rows "$so" --text 'to be or not' "$out"
    one "look names it" grep -q "<dd>$kind</dd>" "$W/$kind.html"
done
one "look sees where the score looks" grep -q '"see":\[{"name":"attention weights"' "$W/re-tanh.html"
one "train_tiny --from, without --rows" refuses 'no score re-tanh; --rows' "$P/train_tiny" --from "$W/re-tanh.safetensors" --quiet --threads 1 \
    --csv "$W/x.csv" --out "$W/x.safetensors" README.md
one "train_tiny --set score=" works "$P/train_tiny" --rows "$so" --set score=re-tanh --set attention=rope $tiny --steps 2 --out "$W/x" README.md
rm -f "$W"/x*
one "train_tiny, a kind that is none" refuses 'the nearest is gated' "$P/train_tiny" --rows "$so" --attention gatde $tiny --out "$W/x" README.md
one "train_tiny, a score that is none" refuses 'no score tanh-re; the rows given have none' "$P/train_tiny" --rows "$so" --set score=tanh-re \
    ${tiny% --csv *} --csv "$W/x.csv" --out "$W/x" README.md

# A layer that needs whole sequences is trained, and has no sample: it would need a cache
source whole << 'E'
static cmha_tensor *attend(const cmha_layer *at, cmha_tensor *h) { return cmha_attention(at->tape, &at->args, h, h, h, NULL); }
static const cmha_score scores[] = {{.name = "whole", .attend = attend, .whole = 1}};
OWN_ROWS(scores, 1, NULL, 0)
E
one "rows with a layer of whole sequences" object whole "$W/whole.c"
# shellcheck disable=SC2086
one "train_tiny trains it" works "$P/train_tiny" --rows "$W/whole.so" --attention whole $tiny --steps 2 --out "$W/x" README.md
one "and says why there is no sample" says '^train_tiny: no sample: it needs a cache, which does not serve whole$'
one "generate refuses it" refuses 'score whole needs the whole sequence' "$P/generate" --rows "$W/whole.so" "$W/x"
rm -f "$W"/x*

# -------------------------------------------------------------------------------------------------------- an optimiser
own="--rows $so --set optimiser=signed --lr 1e-3 --set schedule=constant --set warmup=0 $tiny"
# shellcheck disable=SC2086
{
    one "train_tiny --optimiser" works "$P/train_tiny" $own --steps 4 --out "$W/once" README.md
    one "half of it" works "$P/train_tiny" $own --steps 2 --out "$W/twice" README.md
    one "resumed without --rows" refuses 'no optimiser signed; --rows names' "$P/train_tiny" $tiny --resume --steps 4 --out "$W/twice" README.md
    one "resumed" works "$P/train_tiny" --rows "$so" $tiny --resume --steps 4 --out "$W/twice" README.md
    one "the same, bit for bit" cmp "$W/once.last" "$W/twice.last"
    one "by its option" works "$P/train_tiny" $own --optimiser signed --steps 4 --out "$W/twice" README.md
    one "the same again" cmp "$W/once.last" "$W/twice.last"
    one "adamw is another" works "$P/train_tiny" $own --set optimiser=adamw --steps 4 --out "$W/twice" README.md
    one "with other weights" sh -c "! cmp -s '$W/once' '$W/twice'"
    one "generate needs no rows for it" works "$P/generate" --tokens 5 "$W/once"
}

# ------------------------------------------------------------------------------------------------------------ classify
for i in 1 2 3 4 5 6 7 8; do printf 'good\ta fine %d day\nbad\ta sad %d night\n' $i $i; done > "$W/texts.tsv"
cut -f 2 "$W/texts.tsv" > "$W/plain.txt"
for kind in re-tanh gated; do
    # shellcheck disable=SC2086
    one "classify, $kind" works "$P/classify" --rows "$so" --attention $kind --train "$W/texts.tsv" --dev "$W/texts.tsv" --columns 1,2 \
        --epochs 2 --take 12 --batch 4 --length 24 --quiet $small --out "$W/labels.safetensors"
    one "classify --predict" works "$P/classify" --rows "$so" --predict "$W/plain.txt" --model "$W/labels.safetensors"
    one "a label each" [ "$(grep -c '^\(good\|bad\)	' "$W/out")" -eq 16 ]
    one "classify without --rows" refuses "no score $kind; --rows" "$P/classify" --predict "$W/plain.txt" --model "$W/labels.safetensors"
done

# --------------------------------------------------------------------------------------------------------------- bench
serve() { echo go | "$P/bench" --rows "$so" --threads 1 --serve "$1" > "$W/out" 2>&1; }
for work in train/tiny/re-tanh,batch=1 train/tiny/gated,batch=1 train/tiny/rope,optimiser=signed,batch=1 decode/64/gated; do
    one "bench --serve $work" serve $work
    one "a time" says '^[0-9.e-]*$'
done
one "bench, a kind that is none" refuses 'no kind of attention "re-tanh"' "$P/bench" --threads 1 --serve train/tiny/re-tanh
one "bench kinds" works "$P/bench" kinds --quick --threads 1 --rows "$so"
for kind in re-tanh gated; do one "bench kinds has $kind" says "^ *$kind "; done

# --------------------------------------------------------------------------------------------- evidence: a claim of one's own
if [ -x "$P/evidence" ]; then
    parts=$(ls "$B"/evidence.objects/*.o | grep -v '/evidence[.]o$\|/questions[.]o$')
    # shellcheck disable=SC2086
    claim() {
        works $CC $CMHA_CFLAGS -O1 -Wall -Wextra -I. '-DEVIDENCE_CLAIMS(X)=X(my_claim)' -DEVIDENCE_FOLDER="\"$W/claim\"" examples/rows/my_claim.c \
            bench/evidence/evidence.c $parts "$B/cmha.o" -o "$W/evidence" -rdynamic $CMHA_LIBS
    }
    one "my_claim.c as a program" claim
    # what is written there is a failure's row or nothing
    mkdir -p "$W/claim/results" "$W/claim/work" && : > "$W/claim/results/my_claim.lock"
    one "its list" works "$W/evidence" list
    one "has the claim" says '^my_claim .* of '
    works "$W/evidence" row my_claim header re-tanh 1 3e-3
    one "a score without --rows" says 'no score re-tanh; --rows names the file'
    one "its rows" works "$W/evidence" run --rows "$so" --seeds 1 --only re-tanh
    one "four of them" [ "$(grep -c '^my_claim,header,re-tanh,' "$W/claim/results/my_claim.csv")" -eq 4 ]
    one "with their command" grep -q "row my_claim header re-tanh 1 0.00[0-9]* --rows $so\$" "$W/claim/results/my_claim.csv"
    one "the same again" works "$W/evidence" row my_claim header re-tanh 0 3e-3 --rows "$so"
    one "to all digits" says 'to all digits'
    one "its report" works "$W/evidence" report
    one "is what the rows say" works "$W/evidence" check
    one "has its page" grep -q '^# Is my score better than RoPE' "$W/claim/results/my_claim.md"
    one "and its question" grep -q '^| Is re-tanh better than RoPE? |' "$W/claim/README.md"
    one "OWN.md shows the file" sh -c "sed -n '/^.include/,\$p' examples/rows/my_claim.c > '$W/shown' &&
        sed -n '/^.include .bench/,/^\`\`\`/p' bench/evidence/OWN.md | sed '\$d' | cmp - '$W/shown'"
fi

# ---------------------------------------------------------------------------------------------------------- check_rows
# checks NAME FROM TO: check_rows with my_rows.c, in which FROM has become TO, as $W/check-NAME; FROM is there
checks() {
    sed "s/$2/$3/" examples/rows/my_rows.c > "$W/check-$1.c"
    [ "$1" = right ] || ! cmp -s "$W/check-$1.c" examples/rows/my_rows.c || return 1
    # shellcheck disable=SC2086
    works $CC $CMHA_CFLAGS -O1 -Wall -Wextra -DCMHA_DOUBLE -DCMHA_LINKED -I. examples/rows/check_rows.c "$W/check-$1.c" "$B/cmha-f64.o" \
        -o "$W/check-$1" $CMHA_LIBS
}
# finds ROW WORDS NAME: exit status 1, and of this row alone, in one line alone, WRONG, with these words
finds() {
    "$W/check-$3" > "$W/out" 2>&1 < /dev/null
    [ $? -eq 1 ] && awk -v row="$1" -v words="$2" '/^[^ ]/ { now = $1 } / WRONG$/ { n++; if (now == row && $0 ~ words) found = 1 }
        END { exit !(n == 1 && found) }' "$W/out"
}
# shellcheck disable=SC2086
one "check_rows with the library in it" works $CC $CMHA_CFLAGS -fsyntax-only -DCMHA_DOUBLE -DCMHA_NO_CBLAS -I. examples/rows/check_rows.c
if [ -e "$B/cmha-f64.o" ]; then
    one "check_rows" checks right '^$' ''
    one "without a warning" [ ! -s "$W/out" ]
    one "the rows of my_rows.c are right" works "$W/check-right"
    one "all of them" [ "$(grep -c '^[^ ]' "$W/out")" -eq 3 ]
    one "nothing is WRONG" eval '! says WRONG'
    one "also with other fields" works "$W/check-right" n_kv_heads=1 window=6 score_softcap=2
    one "and of encoders" works "$W/check-right" causal=0
    one "of which nothing is cached" eval '! says cache'
    one "a field that is none" eval '! works "$W/check-right" widow=6'
    one "is said" says 'widow'
    one "more logits than it has room for" sh -c "'$W/check-right' vocabulary=64 > '$W/out'; [ \$? -eq 1 ]"
    one "are refused" says "^  refused: vocabulary is the program's own field WRONG\$"
    one "a wrong derivative" checks slope 're\[j\] = g \* t\[j\] + along \* re\[j\];' 're[j] = g * t[j];'
    one "is found" finds re-tanh 'gradients within' slope
    one "and a parameter named" says '^  gradient check: .*attn.w'
    one "a derivative that is no number" checks nan 'size\[j\] > 0 ? size\[j\] : 1;' '0 * size[j];'
    one "is found" finds re-tanh 'gradients within inf' nan
    one "a layer that sees the future" checks future 'cmha_tensor \*y = .*' \
        'cmha_attention_args a = at->args; a.causal = 0; cmha_tensor *y = cmha_attention(tape, \&a, q, k, v, NULL);'
    one "is found" eval '! works "$W/check-future"'
    one "by a later token" says 'a later token moves logits by .* WRONG'
    one "a layer whose cache forgets" checks forgets 'cmha_layer_attention(at, ' 'cmha_attention(tape, '
    one "is found" finds gated 'a cache is within' forgets
    one "an optimiser that counts its numbers" checks counts '(double)((m > 0) - (m < 0))' '(double)i'
    one "is found" finds signed 'in two pieces' counts
    one "an optimiser of three moments" checks three '.moments = 1' '.moments = 3'
    one "is refused" finds signed 'moments are wrong' three
fi

# ------------------------------------------------------------------------------------ a layer that needs whole sequences
source whole << 'E'
static cmha_tensor *attend(const cmha_layer *at, cmha_tensor *h) {
    size_t shape[3] = {at->batch, 1, at->model->config.d_model};
    cmha_tensor *mean = cmha_mean_tokens(at->tape, h, at->args.key_mask), *ones;
    mean = cmha_reshape(at->tape, cmha_linear(at->tape, mean, at->parameters[0], NULL), 3, shape);
    shape[1] = at->length, shape[2] = 1;
    ones = cmha_tensor_new(at->tape, 3, shape, 0);
    for (size_t i = 0; ones && !cmha_tape_measures(at->tape) && i < ones->size; i++) ones->data[i] = 1;
    return cmha_add(at->tape, h, cmha_matmul(at->tape, ones, mean, 0));
}
static const cmha_score_parameter weight[] = {{"mean", {CMHA_AXIS_MODEL, CMHA_AXIS_MODEL, 0}, 0, 0.1, 1}};
static const cmha_score scores[] = {{.name = "mean", .parameters = weight, .n_parameters = 1, .attend = attend, .whole = 1}};
OWN_ROWS(scores, 1, NULL, 0)
E
one "a layer that needs whole sequences" object whole "$W/whole.c"
if [ -x "$P/signal_next" ]; then
    # shellcheck disable=SC2086
    one "signals" works "$P/signal" --synthetic "$W/wave" --quiet $small --epochs 1
    # shellcheck disable=SC2086
    one "signal_next learns with it" works "$P/signal_next" --rows "$W/whole.so" --attention mean --quiet $small --epochs 1 \
        --save "$W/next.safetensors" "$W/wave"
    one "says that it is not streamed" says '^signal_next: not streamed: it needs a cache, which does not serve mean$'
    one "and saves it" [ -s "$W/next.safetensors" ]
fi

# ------------------------------------------------------------------------------------------------------ linked: make own
# shellcheck disable=SC2086
linked() {
    works $CC $CMHA_CFLAGS -O1 -I. -c examples/rows/my_rows.c -o "$W/my_rows.o" &&
        works $CC $CMHA_CFLAGS -O1 -DCMHA_LINKED "$1" -I. examples/train_tiny.c $2 "$B/cmha.o" -o "$W/train" $CMHA_LIBS
}
one "rows linked into train_tiny" linked -DWITH_OWN_ROWS "$W/my_rows.o"
one "train with the linked layer" works "$W/train" --attention gated $tiny --steps 4 --out "$W/linked" README.md
one "the same as by --rows, bit for bit" cmp "$W/linked" "$W/gated.safetensors"
one "rows linked and --rows" refuses 'linked into this program already' "$W/train" --rows "$so" --quiet --out "$W/x" README.md
one "a program without -rdynamic" linked -DPLAIN ''
one "cannot load" refuses 'linked without -rdynamic' "$W/train" --rows "$so" --quiet --out "$W/x" README.md

# ------------------------------------------------------------------------------------------------------------ refusals
mkdir "$W/next" && sed 's/define CMHA_VERSION_MINOR .*/define CMHA_VERSION_MINOR 99/' cmha.h > "$W/next/cmha.h"
one "rows in double" object double -DCMHA_DOUBLE examples/rows/my_rows.c
one "rows of another version" object other -include "$W/next/cmha.h" examples/rows/my_rows.c
source none < /dev/null; one "a file without rows" object none "$W/none.c"
# The same with no symbol of the library in it, so that the numbers must tell
cat > "$W/sizes.c" << 'E'
#include "cmha.h"
#include <stdio.h>
int main(void) { return printf("%d %d %d\n", (int)sizeof(cmha_real), (int)sizeof(cmha_score), (int)sizeof(cmha_optimiser)) < 0; }
E
cat > "$W/bare.c" << 'E'
#include <stddef.h>
#include <stdint.h>
typedef struct cmha_score cmha_score;
typedef struct cmha_optimiser cmha_optimiser;
#include "examples/tools/own_rows.h"
static const own_rows rows = {VERSION, BYTES, SCORE, OPTIMISER, 0, COUNT, 0, 0};
const own_rows *cmha_own_rows(void) { return NOTHING ? 0 : &rows; }
E
# shellcheck disable=SC2086
one "sizes" works $CC -I. -DCMHA_LINKED "$W/sizes.c" "$B/cmha.o" -o "$W/sizes" $CMHA_LIBS
read -r bytes score optimiser << E
$("$W/sizes")
E
# bare NAME VERSION BYTES SCORE COUNT NOTHING
bare() { object "$1" "-DVERSION=$2" "-DBYTES=$3" "-DSCORE=$4" "-DOPTIMISER=$optimiser" "-DCOUNT=$5" "-DNOTHING=$6" "$W/bare.c"; }
version=$(awk '/^#define CMHA_VERSION_M/ { v = v * 100 + $3 } END { print v * 100 }' cmha.h)
one "bare rows" bare bare "$version" "$bytes" "$score" 0 0
one "bare rows of another version" bare bare-version 9900 "$bytes" "$score" 0 0
one "bare rows in double" bare bare-double "$version" 8 "$score" 0 0
one "bare rows of other sizes" bare bare-sizes "$version" "$bytes" 8 0 0
one "bare rows that are not there" bare bare-count "$version" "$bytes" "$score" 3 0
one "bare rows that are nothing" bare bare-nothing "$version" "$bytes" "$score" 0 1
# named NAME SCORES OPTIMISERS: rows of these names
named() {
    source "$1" << E
static const cmha_score scores[] = {$2};
static void update(const cmha_optimiser *o, const cmha_update *u) { (void)o; (void)u; }
static const cmha_optimiser optimisers[] = {$3};
OWN_ROWS(scores, sizeof scores / sizeof *scores, optimisers, sizeof optimisers / sizeof *optimisers)
E
    object "$1" "$W/$1.c"
}
sign='{.name = "mine", .update = update}' dot='{.name = "dots", .planes = 1}'
one "a score named rope" named rope '{.name = "rope", .planes = 1}' "$sign"
one "an optimiser named muon" named muon "$dot" '{.name = "muon", .update = update}'
one "two scores of a name" named two "$dot, $dot" "$sign"
one "two optimisers of a name" named pair "$dot" "$sign, $sign"
one "a score without a name" named nameless '{.planes = 1}' "$sign"
one "a name with a blank" named blank '{.name = "my score", .planes = 1}' "$sign"
printf 'no object\n' > "$W/text.so" && head -c 3000 "$so" > "$W/cut.so" && mkdir -p "$W/folder.so"
rm -rf "$W"/x*
while IFS='|' read -r file words; do
    for program in "train_tiny --quiet --steps 1 --csv $W/x.csv --out $W/x README.md" "generate $W/once" "score --judge $W/once LICENSE" \
        "look --out $W/x.html $W/once" "classify --predict $W/plain.txt --model $W/labels.safetensors" "bench kinds" "evidence list"; do
        [ -x "$P/${program%% *}" ] || continue
        case "$file $program" in double*|none*|muon*|*generate*) ;; *) continue;; esac # of the others one program
        # shellcheck disable=SC2086
        one "${program%% *} --rows $file" refuses "$words" "$P"/$program --rows "$W/$file"
    done
done << 'E'
double.so|another version or precision of cmha.h (cmha_[0-9_]*_compiled_with_CMHA_DOUBLE)
other.so|another version or precision of cmha.h (cmha_[0-9]*_99_
none.so|does not define cmha_own_rows()
bare-version.so|compiled for version 0.99 of cmha.h
bare-double.so|compiled with numbers of 8 bytes
bare-sizes.so|other sizes
bare-count.so|counts rows that are not there
bare-nothing.so|returns nothing
rope.so|already an attention rope
muon.so|already an optimiser muon
two.so|already an attention dots
pair.so|already an optimiser mine
nameless.so|1 to 31 letters
blank.so|1 to 31 letters
text.so|cannot load
cut.so|cannot load
folder.so|a folder, not a regular file
nowhere.so|cannot open
E
one "bare rows do" works "$P/generate" --rows "$W/bare.so" --tokens 3 "$W/once"
one "a path of this folder" works sh -c "cd '$W' && '$P/generate' --rows my.so --tokens 3 gated.safetensors"
one "a path with a slash" works sh -c "cd '$W' && '$P/generate' --rows ./my.so --tokens 3 gated.safetensors"
one "the system's folders are not searched" refuses 'cannot open my.so' env LD_LIBRARY_PATH="$W" "$P/generate" --rows my.so "$W/once"
one "two --rows" refuses 'one --rows is enough' "$P/generate" --rows "$so" --rows "$so" "$W/once"
one "bench, two --rows" refuses 'one --rows is enough' "$P/bench" kinds --rows "$so" --rows "$so"
one "no value" refuses 'a value is missing after --rows' "$P/generate" "$W/once" --rows
one "a misspelt option" refuses 'nearest is --rows' "$P/generate" --row "$so" "$W/once"
one "programs without rows" refuses 'no option --rows' "$P/geometry" --rows "$so" "$W/once"
if mkfifo "$W/fifo.so" 2> "$W/out"; then
    one "a FIFO" refuses 'not a regular file' timeout 10 "$P/generate" --rows "$W/fifo.so" "$W/once"
fi
total
