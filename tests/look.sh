#!/bin/sh
# tests/look.sh BUILD_DIR: build/look on models of every family: pages that are well formed and ask for nothing, whatever the model and the
# text hold; then, where Chromium and node are installed, in the browser (tests/look.js). Environment: CC, CMHA_CFLAGS, CMHA_LIBS;
# CHROMIUM: the browser; PICTURES: a folder that gets screenshots of every page. The last line is N passed, N failed.
B=$(cd "${1:-build}" && pwd) || exit 2
CC=${CC:-cc}
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-4000}"
cd "$(dirname "$0")/.." || exit 2
W=$B/look-pages
rm -rf "$W" && mkdir -p "$W" || exit 2
passed=0 failed=0
is() { label=$1; shift; if "$@" > "$W/out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $label"; head -n 5 "$W/out"; fi; }
# refuses WORDS COMMAND...: one line with these words, status 1 or 2, no page
refuses() {
    want=$1; shift
    "$@" > "$W/said" 2> "$W/err" < /dev/null; status=$?
    cat "$W/err"
    [ $status -eq 1 ] || [ $status -eq 2 ] || return 1
    [ "$(wc -l < "$W/err")" -eq 1 ] && [ ! -s "$W/said" ] && grep -q -e "$want" "$W/err"
}
# tells WORDS COMMAND...: writes its page, and one line on stderr with these words
tells() {
    want=$1; shift
    "$@" > "$W/said" 2> "$W/err" < /dev/null || return 1
    cat "$W/err"
    [ "$(wc -l < "$W/err")" -eq 1 ] && [ -s "$W/said" ] && grep -q -e "$want" "$W/err"
}
# shellcheck disable=SC2086
is "tests/look.c compiles" $CC ${CMHA_CFLAGS--O1} -DCMHA_LINKED -I. tests/look.c "$B/cmha.o" -o "$W/make" ${CMHA_LIBS--fopenmp -lopenblas -lm}
make() { name=$1; shift; is "a model: $name" "$W/make" make "$W/$name.safetensors" "$@"; }
look() { name=$1; shift; is "a page: $name" "$B/look" --threads 1 "$W/$name.safetensors" "$@"; }
has() { is "$1 has $2" grep -q -e "$2" "$W/$1.html"; }

# ---------------------------------------------------------------------------------------------------- a model of every family
small="n_layers=2 d_model=24 n_heads=3 d_ff=16 max_positions=64"
is "train_tiny leaves a model and a CSV" "$B/train_tiny" --quiet --threads 1 --steps 30 --seq 16 --batch 2 --set d_model=32 --set d_ff=32 \
    --set n_heads=2 --set n_layers=2 --set eval_every=10 --set eval_tokens=64 --out "$W/tiny.safetensors" --csv "$W/tiny.csv" LICENSE
make cmha "$small attention=cmha n_kv_heads=1" wild
make half "$small attention=rope layout=half rotary_dims=4"
make dot "$small attention=dot position=learned"
make pope "$small attention=pope beta_uniform=1 rotary_dims=4"
make ropepp "$small attention=ropepp n_kv_heads=1"
make cope "$small family=cope attention=rope cope_score=hybrid causal=0 vocabulary=260 head_temperature=1 cope_gamma_learned=1"
make linear "$small family=cope attention=dot cope_score=linear"
make mobius "$small family=mobius attention=rope head_temperature=1 mobius_heads=2 placement=post position=learned" wild
make yang "$small family=mobius attention=dot mobius_heads=2 mobius_softmax=yang8 mobius_mode=full placement=post position=learned"
make crat "$small family=crat attention=dot position=multifreq real_heads=1 imag_heads=1 experts=3 irw_layers=1 irw_top=2 irw_width=5"
make atan "$small family=crat attention=dot position=multifreq angle=atan real_heads=1 head_temperature=1"
make fixed "$small attention=cmha share=fixed head_temperature=1"
make lag "$small family=crat attention=dot position=multifreq crat_attention=lag causal=0 low_rank=2"
make int8 "$small" int8
make odd "$small family=crat attention=dot position=multifreq experts=3 experts_top=1 irw_layers=1 irw_width=5" odd
make mixed "$small family=mobius attention=pope mobius_heads=2 placement=post position=learned"
make oddmobius "$small family=mobius attention=cmha mobius_heads=2 placement=post position=learned" odd
make signal "$small tokens=0 vocabulary=0 features=4 classes=2 causal=0"
is "a knowledge base" "$W/make" base "$W/base.safetensors" 5

speaks=
if [ -x "$B/tokens" ]; then
    is "a tokenizer" "$B/tokens" train --size 300 --out "$W/bpe.json" LICENSE
    is "a model that speaks its tokens" "$B/train_tiny" --quiet --threads 1 --steps 3 --seq 16 --batch 2 --set d_model=16 --set d_ff=16 \
        --set n_heads=2 --set n_layers=1 --set eval_tokens=64 --tokenizer "$W/bpe.json" --out "$W/speak.safetensors" --csv "$W/speak.csv" LICENSE
    is "its page" "$B/look" --threads 1 --text 'the permission €€ <of> the Software' "$W/speak.safetensors"
    is "its tokens" grep -q '"tokens":\["t.*"\\\\xe2",.*"€",.*oftware"\],' "$W/speak.html"
    speaks=speak
fi

words='To be, or not to be: that is it.'
for name in tiny cmha half dot pope ropepp cope linear mobius yang atan fixed lag int8 mixed oddmobius; do look $name --text "$words"; done
look crat --base "$W/base.safetensors" --text "$words"
look odd --base "$W/base.safetensors" --text "$words"
look signal
has tiny 'id="training"'; has tiny '>Learning rate<'; has tiny 'id="phases"'; has cmha 'id="phases"'; has crat 'id="experts"'
has crat 'id="passages"'; has crat 'Passages are counted from 1'; has mobius '"maps":\['; has atan '"temperature":1,'; has mobius '"temperature":1,'; has cope 'learned</dd>'; has mobius 'loxodromic'; has signal 'reads numbers'; has dot 'id="attention"'
has int8 'phases and moduli, experts and passages: parameters: [a-z_.0-9]* is packed, it stays as it is'

# ----------------------------------------------------------------------------------------------------------- awkward contents
printf '%s\n' '</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1> & "quotes" '"'"'and'"'"' \u003c <!-- ' > "$W/hostile"
printf 'NUL \0 and \001\002\033[31m, \377\376 no UTF-8, \342\200\250 ends a line, \342\200\256 turns it, half a character \342\202' >> "$W/hostile"
evil="$W/a <b>&'\"\$(x) name"
cp "$W/tiny.safetensors" "$evil.safetensors"
is "a name and a text with marks" "$B/look" --tokens 200 --csv "$W/tiny.csv" --out "$W/hostile.html" "$evil.safetensors" "$W/hostile"
# shellcheck disable=SC2016 # nothing is to be expanded
is "the name is escaped" grep -q '<h1>a &lt;b&gt;&amp;&#39;&quot;$(x) name' "$W/hostile.html"
is "no script but ours" [ "$(grep -o '<script' "$W/hostile.html" | wc -l)" -eq 2 ]
: > "$W/empty"
is "an empty text" "$B/look" --out "$W/empty.html" "$W/tiny.safetensors" "$W/empty"; has empty 'histograms: the text is empty'
is "a text of one token" "$B/look" --out "$W/one.html" --text a "$W/tiny.safetensors"
look tiny --tokens 7 --text "$words" --out "$W/cut.html"
has cut 'the first 7 of 32 tokens'
head -c 99999 cmha.h > "$W/long"
is "a long text is cut" "$B/look" --out "$W/long.html" "$W/tiny.safetensors" "$W/long"
has long 'the first 128 of more than 65536 tokens'
is "a page of a tiny model is small" [ "$(wc -c < "$W/long.html")" -lt 400000 ]
for csv in 'step,loss' 'step,loss
1,2
x,y
2,nan
2,1e999,,,' ; do
    printf '%s' "$csv" > "$W/odd.csv"
    look tiny --csv "$W/odd.csv" --out "$W/csv.html"
done
printf 'no table' > "$W/odd.csv"
is "a CSV without its columns" tells '^look: warning: --csv: .*odd.csv has no columns step and loss$' "$B/look" --threads 1 \
    --csv "$W/odd.csv" --out "$W/csv.html" "$W/tiny.safetensors"
has csv 'has no columns step and loss'
echo 'step,loss' > "$W/odd.csv"
is "a CSV without rows" tells '^look: warning: --csv: the CSV has no rows$' "$B/look" --threads 1 \
    --csv "$W/odd.csv" --out "$W/csv.html" "$W/tiny.safetensors"

# ----------------------------------------------------------------------- several runs, frames, a model under training, own rows
train() {
    is "train_tiny, $*" "$B/train_tiny" --quiet --threads 1 --seq 16 --batch 2 --set d_model=32 --set d_ff=32 --set n_heads=2 \
        --set n_layers=2 --set eval_every=10 --set eval_tokens=64 "$@" LICENSE
}
train --steps 30 --seed 2 --lr 1e-2 --out "$W/second.safetensors" --csv "$W/second.csv"
train --steps 30 --attention pope --out "$W/third.safetensors" --csv "$W/third.csv"
make fourth "$small attention=cmha"
cp "$W/second.safetensors" "$evil.second.safetensors"
is "several runs" "$B/look" --threads 1 --text "$words" --out "$W/runs.html" --with "$W/second.safetensors" --with="$W/third.safetensors" \
    --with "$W/fourth.safetensors" --with "$evil.second.safetensors" "$W/tiny.safetensors"
has runs '>What differs<'; has runs '<th class="word">training: lr<td>0.003<td>0.01<td>'; has runs '<th class="word">attention<td>cmha<td>cmha<td>pope'
has runs 'loss and rate of fourth.safetensors: no CSV'; has runs '<ul class="legend">'
is "settings that are alike are no rows" sh -c "! grep -q '<th class=\"word\">tied' '$W/runs.html'"
is "the names are escaped" grep -q '<th>a &lt;b&gt;&amp;&#39;&quot;' "$W/runs.html"
is "a run beside itself" "$B/look" --threads 1 --text "$words" --out "$W/itself.html" --with "$W/tiny.safetensors" "$W/tiny.safetensors"
is "has its path as its name" grep -q "<th>$W/tiny" "$W/itself.html"
make slow "$small attention=cmha base=100"
is "runs of other frequencies" "$B/look" --threads 1 --text "$words" --out "$W/slow.html" --with "$W/fourth.safetensors" \
    --with "$W/slow.safetensors" "$W/fourth.safetensors"
is "runs of one CSV alone" "$B/look" --threads 1 --text "$words" --out "$W/bare.html" --with "$W/fourth.safetensors" "$W/cmha.safetensors"
awk 'BEGIN { for (i = 0; i < 9; i++) printf "%g, %g\t%g %g\n\n", sin(i), cos(i), i / 9, -1 }' > "$W/frames.txt"
is "frames" "$B/look" --threads 1 --frames "$W/frames.txt" --out "$W/frames.html" "$W/signal.safetensors"
has frames 'id="attention"'; has frames '"tokens":\["0 ","1 ",'; has frames 'a token is a frame'
make radio "$small tokens=0 vocabulary=0 features=2 complex_features=1 classes=2 causal=0 family=crat attention=dot position=multifreq"
is "complex frames, cut" "$B/look" --threads 1 --frames "$W/frames.txt" --tokens 5 --out "$W/radio.html" "$W/radio.safetensors"
has radio 'the first 5 of 9 frames'

# follow FILE.html CHECKPOINT OPTION..: a follower, its number in $follower
follow() { to=$1; shift; "$B/look" --threads 1 --follow=1 --text "$words" --out "$to" "$@" > "$W/follow.log" 2>&1 & follower=$!; }
follow "$W/live.html" "$W/live.safetensors"
train --steps 200 --out "$W/live.safetensors" --csv "$W/live.csv"
ended() { for _ in $(seq 100); do kill -0 $follower 2> /dev/null || return 0; sleep 0.1; done; cat "$W/follow.log"; return 1; }
is "--follow ends with the training" ended
is "with status 0" wait $follower
is "having waited" grep -q '^waiting for' "$W/follow.log"
is "and told of the last step" grep -q ' 32 tokens, step 200$' "$W/follow.log"
is "its last page stays" grep -q '"renew":0}' "$W/live.html"
follow "$W/running.html" "$W/tiny.safetensors"
for _ in $(seq 50); do [ -s "$W/running.html" ] && break; sleep 0.1; done
is "a training that is over has its page at once" ended
sed '$d' "$W/tiny.csv" > "$W/shorter.csv"
follow "$W/running.html" --csv "$W/shorter.csv" "$W/tiny.safetensors"
for _ in $(seq 50); do grep -q 'step 29$' "$W/follow.log" && break; sleep 0.1; done
cp "$W/running.html" "$W/renews.html"
is "a page that renews itself" grep -q '"renew":1}' "$W/renews.html"
has renews 'id="hold"'
echo '30,2.5,,0.001,1,100,,' >> "$W/shorter.csv"
is "a row more, a page more" ended
follow "$W/running.html" --csv "$W/shorter.csv" --with "$W/second.safetensors" "$W/fourth.safetensors"
for _ in $(seq 50); do grep -q 'step 30$' "$W/follow.log" && break; sleep 0.1; done
kill -INT $follower 2> /dev/null
is "Ctrl-C ends it" ended
is "the page stays" grep -q '"renew":0}' "$W/running.html"

# ------------------------------------------------------------------------------------------------------------------- refusals
printf 'no header' > "$W/short.safetensors"
printf '1 2 3 4\n1 2 3\n' > "$W/narrow" && printf '1 2 three 4\n' > "$W/worded"
head -c 2000 "$W/tiny.safetensors" > "$W/half-a-file.safetensors"
is "no checkpoint" refuses 'name a checkpoint' "$B/look"
is "a missing checkpoint" refuses 'nowhere' "$B/look" "$W/nowhere.safetensors"
is "a broken checkpoint" refuses 'short' "$B/look" "$W/short.safetensors"
is "a cut checkpoint" refuses 'half-a-file' "$B/look" "$W/half-a-file.safetensors"
is "no page of them" [ ! -e "$W/short.html" ]
is "a missing text" refuses 'nowhere' "$B/look" "$W/tiny.safetensors" "$W/nowhere"
is "a text for a model of numbers" refuses 'signal.safetensors: a model of numbers, which reads no text' "$B/look" "$W/signal.safetensors" "$W/hostile"
for o in "--text a" "--tokens 5" "--tokenizer $W/bpe.json"; do
    # shellcheck disable=SC2086
    is "$o for a model of numbers" refuses "look: ${o%% *} is for a text" "$B/look" $o "$W/signal.safetensors"
done
is "--text with --frames" refuses 'one of them is enough' "$B/look" --text a --frames "$W/frames.txt" "$W/signal.safetensors"
is "a missing CSV" refuses 'cannot open .*nowhere.csv' "$B/look" --csv "$W/nowhere.csv" "$W/tiny.safetensors"
is "three files" refuses 'one file is enough' "$B/look" "$W/tiny.safetensors" "$W/hostile" "$W/long"
is "a frame too narrow" refuses '4 numbers are wanted in line 2 of ' "$B/look" --frames "$W/narrow" "$W/signal.safetensors"
is "a frame that is no number" refuses '4 numbers are wanted in line 1 of ' "$B/look" --frames "$W/worded" "$W/signal.safetensors"
printf '1\0002 3 4\n' > "$W/zeroed"
is "a frame with a zero byte" refuses '4 numbers are wanted in line 1 of ' "$B/look" --frames "$W/zeroed" "$W/signal.safetensors"
is "no frames" refuses 'there are no frames' "$B/look" --frames "$W/empty" "$W/signal.safetensors"
is "frames for a text" refuses 'models that read numbers alone' "$B/look" --frames "$W/frames.txt" "$W/tiny.safetensors"
is "frames and a text" refuses 'one of them' "$B/look" --frames "$W/frames.txt" --text a "$W/signal.safetensors"
is "another run that is none" refuses 'short' "$B/look" --with "$W/short.safetensors" --out "$W/x.html" "$W/tiny.safetensors"
is "another run in place of the page" refuses 'what is read' "$B/look" --with "$W/second.safetensors" --out "$W/second.safetensors" "$W/tiny.safetensors"
is "--with nothing" refuses 'a value is missing' "$B/look" "$W/tiny.safetensors" --with
with="--with $W/second.safetensors"
# shellcheck disable=SC2086
is "nine runs" refuses '7 runs at most' "$B/look" $with $with $with $with $with $with $with $with "$W/tiny.safetensors"
is "--follow of the standard input" refuses 'follow shows is read again' "$B/look" --follow "$W/tiny.safetensors" -
is "--follow of no seconds" refuses 'follow is a whole number' "$B/look" --follow=0 "$W/tiny.safetensors"
is "two texts" refuses 'text' "$B/look" --text a "$W/tiny.safetensors" "$W/long"
is "a misspelt option" refuses 'nearest is --tokens' "$B/look" --token 5 "$W/tiny.safetensors"
is "no number of tokens" refuses 'tokens is a whole number' "$B/look" --tokens x "$W/tiny.safetensors"
is "a base for a model without a window" refuses 'window' "$B/look" --base "$W/base.safetensors" "$W/tiny.safetensors"
is "a page in place of its checkpoint" refuses 'what is read' "$B/look" --out "$W/tiny.safetensors" "$W/tiny.safetensors"
is "a page nowhere" refuses 'cannot write' "$B/look" --out "$W/nowhere/x.html" "$W/tiny.safetensors"
if [ -c /dev/full ]; then is "the line > /dev/full" refuses 'cannot write' sh -c "'$B/look' --out '$W/one.html' '$W/tiny.safetensors' > /dev/full"; fi
is "nothing half-written is left" [ -z "$(find "$W" -name '*.tmp')" ]

# --------------------------------------------------------------------------------------------------- pages without a browser
if command -v python3 > /dev/null 2>&1; then
    is "pages are well formed" python3 tests/look.py "$W"/*.html
else echo 'SKIP python3 is not installed: pages are not parsed'; fi

# ----------------------------------------------------------------------------------------------------------------- a browser
for b in "$CHROMIUM" chromium chromium-browser google-chrome; do if [ -n "$b" ] && command -v "$b" > /dev/null 2>&1; then browser=$b; break; fi; done
if [ -z "$browser" ]; then echo 'SKIP chromium is not installed (apt-get install chromium): pages are not opened'
elif ! command -v node > /dev/null 2>&1; then echo 'SKIP node is not installed (apt-get install nodejs): pages are not opened'
else
    see() { "$W/make" see "$W/$1.safetensors" "$2" "$3" "$words" > "$W/$1-$2-$3" && seen="$seen,$2,$3,$W/$1-$2-$3"; }
    set --
    for page in tiny,0,0,1,1 cmha,1,2 pope,1,0 ropepp,1,5 cope,0,1 mobius,1,2 yang fixed,1,1 atan,1,1 crat,0,2 hostile $speaks odd mixed oddmobius signal runs itself slow bare frames radio renews; do
        name=${page%%,*} seen=
        case $page in *,*) rest=${page#*,}; while [ -n "$rest" ]; do
            l=${rest%%,*} rest=${rest#*,} h=${rest%%,*}
            case $rest in *,*) rest=${rest#*,};; *) rest=;; esac
            see "$name" "$l" "$h"
        done;; esac
        set -- "$@" "$W/$name.html$seen"
    done
    mkdir -p "${PICTURES:-$W}"
    node tests/look.js "$browser" "$W" "${PICTURES:--}" "$@" > "$W/log" 2>&1
    grep -v ' passed, ' "$W/log" | { if grep -q '^FAIL' "$W/log"; then cat; else grep 'tiny'; fi; }
    passed=$((passed + $(sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p' "$W/log" | tail -n 1)))
    failed=$((failed + $(sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p' "$W/log" | tail -n 1)))
fi
[ $failed -eq 0 ] && [ -z "$PICTURES" ] && rm -rf "$W"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
