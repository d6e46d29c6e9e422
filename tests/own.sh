#!/bin/sh
# tests/own.sh BUILD_DIR: `make own ROWS=` and `make evidence CLAIM=`, and what they refuse; unoptimised and in a build folder of their own, into which the library
# is copied. Failures in detail; the last line is N passed, N failed, and so is the exit status.
B=${1:-build}
cd "$(dirname "$0")/.." || exit 2
W=$B/tests/own
rm -rf "$W" && mkdir -p "$W/build" || exit 2
. tests/parts.sh
unset ROWS CLAIM ARGS JOBS
cp -p "$B/config.mk" "$B/cmha.o" "$W/build" && cp -Rp "$B/evidence.objects" "$B/commit.h" "$W/build" || exit 2
O=$W/build
made() { make --no-print-directory B="$O" CPPFLAGS="$CPPFLAGS -O0" "$@" > "$W/out" 2>&1 < /dev/null; }
# other flags build everything anew: what is copied shall count as theirs
made "$O/config.mk"; find "$O" -type f ! -name config.mk -exec touch {} +
says() { grep -q -e "$1" "$W/out"; }
# refuses WORDS ARGUMENT...: make fails and says these words, in one line but for make's own
refuses() {
    want=$1; shift
    made "$@" && return 1
    grep -v -e '^make[:[]' -e ' -o ' "$W/out" > "$W/lines"
    [ "$(wc -l < "$W/lines")" -eq 1 ] && says "$want"
}
works() { "$@" > "$W/out" 2>&1 < /dev/null; }
small="--quiet --threads 1 --set n_layers=1 --set d_model=16 --set d_ff=16 --set n_heads=2 --seq 32 --batch 2 --set eval_tokens=64"

# ---------------------------------------------------------------------------------------------------------------- make own
one "make own without ROWS" refuses '^make own ROWS=FILE.c: the file that defines cmha_own_rows()' own
one "make own, no such file" refuses '^make own ROWS=FILE.c' own ROWS="$W/nowhere.c"
one "and nothing is built" [ ! -e "$O/own" ]
one "make own would build every program with --rows" made -n own ROWS=examples/rows/my_rows.c
# shellcheck disable=SC2016 # backquotes of Markdown
named() { sed -n '/^- `--rows` is an option of/,/[.] /p' examples/README.md | grep -q "[ ,]$1[,. ]"; }
for n in train_tiny signal signal_next spoken forecast generate score classify vectors fill rag look bench \
    evidence; do
    one "$n too" says "-DWITH_OWN_ROWS -DCMHA_LINKED -o $O/own/$n "
    one "$n is in examples/README.md" named "$n"
done
rows="ROWS=examples/rows/my_rows.c"
one "some of them" made $rows "$O/own/train_tiny" "$O/own/generate" "$O/own/vectors" "$O/own/fill" \
    "$O/own/forecast"
one "train_tiny --help" works "$O/own/train_tiny" --help
for word in score=re-tanh score=gated optimiser=signed; do one "it has $word" says "^  $word\$"; done
one "a score of one's own is trained" works "$O/own/train_tiny" --attention re-tanh --steps 3 $small --csv "$W/loss.csv" --out "$W/own" README.md
one "and generates" works "$O/own/generate" --tokens 8 "$W/own"
one "the plain program refuses it" eval '! works "$B/generate" --tokens 8 "$W/own"'
one "and names --rows" says 'no score re-tanh; --rows'
echo 'A line.' > "$W/line"
vectors_of() { "$1/vectors" "$W/own" < "$W/line"; }
one "vectors of it" works vectors_of "$O/own"
one "are some numbers" says '[0-9], '
one "the plain vectors refuses it" eval '! works vectors_of "$B"'
one "and names --rows" says 'no score re-tanh; --rows'
one "the plain fill refuses it" eval '! works "$B/fill" "$W/own" "a [MASK]"'
one "and names --rows" says 'no score re-tanh; --rows'
one "fill opens it" eval '! works "$O/own/fill" "$W/own" "a [MASK]"'
one "and says what it is" says 'no encoder'
awk 'BEGIN { print "a"; for (i = 0; i < 300; i++) print sin(i / 5) }' > "$W/wave.csv"
one "forecast learns with it" works "$O/own/forecast" --attention re-tanh --steps 2 --window 8 --horizon 2 \
    --season 4 --quiet --threads 1 --set n_layers=1 --set d_model=16 --set n_heads=2 --set d_ff=16 \
    "$W/wave.csv"
one "the same again" made $rows "$O/own/train_tiny" "$O/own/generate"
one "compiles nothing" eval '! says " -o "'
sed 's/"re-tanh"/"re-other"/' examples/rows/my_rows.c > "$W/other.c"
one "with other rows it is" made ROWS="$W/other.c" "$O/own/generate"
one "and the rows are the other ones" works "$O/own/generate" --help
one "which it lists" says 're-other'
echo 'int cmha_own_rows(' > "$W/broken.c"
one "rows that are no C" eval '! made ROWS="$W/broken.c" "$O/own/generate"'
echo 'int other_rows;' > "$W/bare.c"
one "rows without cmha_own_rows" eval '! made ROWS="$W/bare.c" "$O/own/generate"'
one "the linker says what is missing" says 'cmha_own_rows'

# ------------------------------------------------------------------------------------------------------- make evidence CLAIM
one "make evidence, no such claim" refuses 'nowhere.c: there is no such file' evidence CLAIM="$W/nowhere.c"
one "a file with another claim" refuses 'my_rows.c does not define evidence_claim_my_rows; see bench/evidence/OWN.md' \
    evidence CLAIM=examples/rows/my_rows.c
one "and nothing is built" [ ! -e "$O/claims/my_rows/evidence" ]
# The example of bench/evidence/OWN.md under another name, with two steps and two seeds
sed -e 's/my_claim/short/; s/claim_my_claim/claim_short/; s/steps=150/steps=2/; s/eval_tokens=8192/eval_tokens=64/; s/, 5, {1.5e-3, 3e-3, 6e-3}/, 2, {1.5e-3, 3e-3, 6e-3}/' \
    examples/rows/my_claim.c > "$W/short.c"
at=$O/claims/short
one "a claim of one's own, with rows" made $rows evidence CLAIM="$W/short.c"
one "it says where the pages are" says "^$at/results/\*.md has the tables, $at/README.md the answers\$"
for word in RoPE 'Re A tanh of the modulus' 'gated layers'; do one "$word is in the table" grep -q "^| *$word" "$at/results/short.md"; done
one "the question is answered" grep -q 'Is re-tanh better than RoPE?' "$at/README.md"
one "the pages of bench are as they were" eval '! grep -rqs "Is re-tanh better" bench/evidence/README.md'
cp "$at/results/short.csv" "$W/rows.csv"
one "again" made $rows evidence CLAIM="$W/short.c"
one "no row is measured twice" cmp "$at/results/short.csv" "$W/rows.csv"
one "after another change of the rows" eval '! made ROWS="$W/other.c" evidence CLAIM="$W/short.c"'
one "it asks for the old ones" says "other.c is not what $at/results/short.csv was measured with; take that away\$"
one "which stay" cmp "$at/results/short.csv" "$W/rows.csv"
one "its page names its own program" grep -q "^Rows: .*\`$at/evidence run short\` makes" "$at/results/short.md"
# A layer that sees later tokens would win
sed -e 's/\*p = at->parameters;/& cmha_attention_args all = at->args; all.causal = 0;/; s/&at->args/\&all/' \
    examples/rows/my_rows.c > "$W/ahead.c"
sed -e 's/short/peeks/g' "$W/short.c" > "$W/peeks.c"
one "a layer that sees later tokens" eval '! made ROWS="$W/ahead.c" evidence CLAIM="$W/peeks.c" ARGS="--only gated"'
one "is refused" says 'score=gated: a later token changes logits'
one "and has no row" [ ! -e "$O/claims/peeks/results/peeks.csv" ]
sed -e '/"value"/s/0, -1, 1}/0, 0, 1}/' "$W/ahead.c" > "$W/later.c"
one "one that shows it only when it has learned" eval '! made ROWS="$W/later.c" evidence CLAIM="$W/peeks.c" ARGS="--only gated"'
one "is refused, too" says 'score=gated: a later token changes logits'
# A field that is misspelt in a part leaves out all there is; two variants of a name would measure one of them in vain
sed -e 's/short/typo/g; s/trainer.steps=/trainer.stepz=/' "$W/short.c" > "$W/typo.c"
one "a field that is none" eval '! made $rows evidence CLAIM="$W/typo.c"'
one "is said of each kind" [ "$(grep -c 'evidence: left out: .*stepz' "$W/out")" -eq 5 ]
one "and that no run is possible" says 'no run is asked for, or none is possible'
sed -e 's/short/twins/g; s/{"gated", "gated/{"re-tanh", "gated/' "$W/short.c" > "$W/twins.c"
one "two variants of a name" eval '! made $rows evidence CLAIM="$W/twins.c"'
one "are named" says 'evidence: twins has two variants named re-tanh$'
total
