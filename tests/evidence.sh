#!/bin/sh
# tests/evidence.sh BUILD_DIR: the program of bench/evidence with a claim that takes no time (evidence_dice.c): killed and resumed, twice at once,
# broken files, full disks, wrong names, the report against the rows. Then the report that is committed.
B=$(cd "${1:-build}" && pwd) || exit 2
seed=${CMHA_TEST_SEED:-1}
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.." || exit 2
W=$B/tests-evidence
E=$B/evidence_test
rm -rf "$W" && mkdir -p "$W" || exit 2
passed=0 failed=0
is() { label=$1; shift; if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $label"; [ -s "$W/out" ] && head -n 3 "$W/out"; fi; }
draw() { seed=$(((seed * 1103515245 + 12345) % 2147483648)) drawn=$((seed / 65536 % $1)); } # below $1
dice() { verb=$1 folder=$2; shift 2; "$E" "$verb" "$@" --results "$W/$folder" --report "$W/$folder.report" --work "$W/work" > "$W/out" 2>&1; }
# rows FOLDER: what does not depend on time, in an order of their own
rows() { python3 -c 'import csv, sys
for row in sorted((r[:9] + r[10:12] for r in csv.reader(open(sys.argv[1], newline="", encoding="utf-8"))), key=str): print(row)' "$W/$1/dice.csv"; }
same() { rows "$1" > "$W/a" && rows "$2" > "$W/b" && cmp "$W/a" "$W/b"; }
# refuses STATUS WORD COMMAND..: it ends with the status and one line that has the word
refuses() {
    status=$1 word=$2; shift 2
    "$@"; [ $? -eq "$status" ] && [ "$(wc -l < "$W/out")" -eq 1 ] && grep -q -- "$word" "$W/out"
}

command -v python3 >/dev/null || { echo 'without python3: left out'; echo '0 passed, 0 failed'; exit 0; }
is "all rows" dice run whole
is "132 rows" [ "$(wc -l < "$W/whole/dice.csv")" -eq 133 ]
is "nothing is missing then" dice run whole
is "and nothing is added" [ "$(wc -l < "$W/whole/dice.csv")" -eq 133 ]

# Killed at random moments, each time with the processes that it has begun
for turn in $(seq 1 "${CMHA_TEST_KILLS:-12}"); do
    draw 3
    "$E" run --results "$W/killed" --work "$W/work" --jobs $((1 + drawn)) > "$W/out" 2>&1 & run=$!
    draw 120; sleep "0.$(printf %03d $((5 + drawn)))"
    kill -KILL $run 2>/dev/null; wait $run 2>/dev/null
done
is "killed and resumed" dice run killed --jobs 2
is "the same rows as undisturbed" same whole killed
"$E" run --results "$W/ended" --work "$W/work" > "$W/out" 2>&1 & run=$!
sleep 0.1; kill -TERM $run; wait $run; status=$?
is "SIGTERM ends it" [ $status -eq 143 ]
is "and it can go on" dice run ended --jobs 3
is "to the same rows" same whole ended
"$E" run --results "$W/two" --work "$W/work" --jobs 2 > "$W/out2" 2>&1 & run=$!
is "two at once: one" dice run two --jobs 2
is "two at once: the other" wait $run
is "two at once: the same rows" same whole two
is "no run twice" [ "$(cat "$W/out2" "$W/out" | grep -c '^dice ')" -eq 132 ]

# Rows again
is "a row again" dice row whole dice small heavy 2
is "is the same" grep -q 'the same to all digits' "$W/out"
is "a trial again" dice row whole dice small heavy 0 0.01
is "is the same" grep -q 'the same to all digits' "$W/out"

# Files that are not whole
broken() { mkdir -p "$W/broken" && rm -f "$W/broken"/* && sed "$@" "$W/whole/dice.csv" > "$W/broken/dice.csv"; }
broken '$ s/.......$//' && truncate -s -1 "$W/broken/dice.csv"
is "a cut file" refuses 1 'line 133 is cut' dice run broken
head -c 5000 "$W/whole/dice.csv" > "$W/broken/dice.csv"
is "a file cut anywhere" refuses 1 'cut or broken' dice list broken
broken '7 s/,small,/,tiny,/; 7 s/,large,/,tiny,/; 7 s/,"large[^"]*",/,tiny,/'; is "an unknown part" refuses 1 'line 7 has no valid part' dice run broken
broken '9 s/,even,/,uneven,/; 9 s/,heavy,/,uneven,/; 9 s/,light,/,uneven,/; 9 s/,alike,/,uneven,/; 9 s/,broken,/,uneven,/'
is "an unknown variant" refuses 1 'line 9 has no valid variant' dice report broken
broken '5 s/value=/value=x/'; is "a number that is none" refuses 1 'line 5 has no valid measures' dice check broken
broken '5 s/value=[^;,]*;//'; is "a row without its measure" refuses 1 'line 5 has no valid measures' dice list broken
broken '5 p'; is "a run twice" refuses 1 'line 6 repeats the run of line 5' dice run broken
broken '1 s/seed/sead/'; is "other columns" refuses 1 'line 1' dice run broken
broken '5 s/steps=/steps=9/'; is "other settings" refuses 1 'line 5 was made with other settings' dice run broken
: > "$W/broken/dice.csv"; is "an empty file" refuses 1 'line 1' dice run broken
rm "$W/broken/dice.csv"; mkdir "$W/broken/dice.csv"; is "a folder" refuses 1 'regular file' dice run broken

# A disk that is full: rows that are there stay, and nothing is left beside them
mkdir -p "$W/full" && head -n 30 "$W/whole/dice.csv" > "$W/full/dice.csv" && cp "$W/full/dice.csv" "$W/before"
full() { (ulimit -f 8; trap '' XFSZ; dice "$@"); }
is "a full disk" [ "$(wc -c < "$W/before")" -gt 8192 ]
is "is an error" eval '! full run full --only large,light'
is "which is said" grep -q 'cannot write' "$W/out"
is "rows stay" cmp "$W/before" "$W/full/dice.csv"
is "nothing is left" [ -z "$(ls "$W/full" | grep -v -e '^dice.csv$' -e '^dice.lock$')" ]

# Names
is "an unknown claim" refuses 2 'the nearest is dice' dice run whole dise
is "an unknown part" refuses 2 'no part' dice row whole dice tiny even 1
is "an unknown variant" refuses 2 'no variant' dice row whole dice small odd 1
is "an unknown verb" refuses 2 'no verb' dice rerun whole
is "an unknown option" refuses 2 'the nearest is --jobs' dice run whole --job 2
is "no jobs" refuses 2 '--jobs is a whole number' dice run whole --jobs 0
is "a seed that is none" refuses 2 'SEED is a whole number' dice row whole dice small even one
is "nothing is asked for" refuses 2 'no run is asked for' dice run whole --only nothing

# The report
is "a report" dice report whole
is "is what the rows say" dice check whole
sed -i '0,/1\.5/ s//1.6/' "$W/whole.report/README.md"
is "of equal rates the one of the lowest loss" [ "$(grep -c '^| flat dice .* | 0.01 | 6 |' "$W/whole.report/README.md")" -eq 2 ]
is "seeds that solve are counted" grep -q '^| light dice .*; [0-6] of 6 at 1.5 or more |$' "$W/whole.report/README.md"
is "a changed number" refuses 1 'README.md, line .* is not what the rows say' dice check whole
is "mended" dice report whole
sed -i 's/stroke-width/stroke-widht/' "$W/whole.report/figures/dice.svg"
is "a changed figure" refuses 1 'dice.svg is not what the rows say' dice check whole
is "mended again" dice report whole
echo 'no marks' > "$W/whole.report/README.md"
is "a page without marks" refuses 1 'lacks the marks' dice report whole
rm "$W/whole.report/README.md"; is "a new page" dice report whole
mkdir -p "$W/part" && head -n 60 "$W/whole/dice.csv" > "$W/part/dice.csv"
is "a report of some rows" dice report part
is "says what is missing" grep -q '2 of 6 seeds so far' "$W/part.report/README.md"
mkdir -p "$W/none"; is "a report of no rows" dice report none
is "says so" grep -q 'Found, small dice:\* not measured yet' "$W/none.report/README.md"

# Everything again by SciPy
for python in python3 /usr/bin/python3; do "$python" -c 'import scipy' 2>/dev/null && break; done
for folder in whole part; do
    is "SciPy, $folder" eval '"$python" tests/evidence.py "$W/$folder" "$W/$folder.report/README.md" > "$W/out"'
    grep -q 'without scipy' "$W/out" && echo 'without scipy: numbers not computed again'
done
if "$python" -c 'import scipy' 2>/dev/null; then
    sed '0,/+0\.0/ s//+0.1/' "$W/whole.report/README.md" > "$W/wrong.md"
    is "SciPy notices a wrong number" eval '! "$python" tests/evidence.py "$W/whole" "$W/wrong.md" > "$W/out"'
    sed '/^\*By/ s/worse: /better: /' "$W/whole.report/README.md" > "$W/wrong.md"
    is "SciPy notices a wrong verdict of a second measure" eval '! "$python" tests/evidence.py "$W/whole" "$W/wrong.md" > "$W/out"'
    is "and says which" grep -q 'twice.value: heavy dice is not among' "$W/out"
fi

# What is committed
"$B/evidence" list > "$W/out" 2> "$W/left"
is "the program knows its claims" [ "$(wc -l < "$W/out")" -ge 5 ]
is "the report is what its rows say" eval '"$B/evidence" check > "$W/out" 2>&1'
if ls bench/evidence/results/*.csv >/dev/null 2>&1; then
    is "SciPy, the report" eval '"$python" tests/evidence.py bench/evidence/results bench/evidence/README.md > "$W/out"'
fi
for number in $(sed -n '/^## Evidence/,/^## Where/p' README.md | grep -o '[0-9]\.[0-9]\{3,\}'); do
    is "README's $number stands in the report" grep -q -- "$number" bench/evidence/README.md
done
# the differences that other pages name
grep -oh '[0-9]\.[0-9]* ± [0-9.]*[0-9]' README.md bench/README.md examples/*.md | sort -u > "$W/named"
sed -n '/rows: begin/,$p' bench/evidence/README.md > "$W/tables.md"
while read -r pair; do is "$pair is a difference of the report" grep -qF -- "$pair" "$W/tables.md"; done < "$W/named"
grep -l ',[0-9a-f]\{7,\}+,' bench/evidence/results/*.csv > "$W/out"
is "no row is of a changed tree" [ ! -s "$W/out" ]
grep -l 'program=.*trainer\.\|trainer\..*program=' bench/evidence/results/*.csv > "$W/out"
is "rows of other programs name no preset" [ ! -s "$W/out" ]
is "no two kinds are one model" python3 -c 'import csv, sys
seen = {}
for path in sys.argv[1:]:
    for r in csv.DictReader(open(path, newline="", encoding="utf-8")):
        run = r["claim"], r["part"], r["seed"], r["rate"], r["curve"]
        if r["curve"] and r["threads"] == "1" and seen.setdefault(run, r["variant"]) != r["variant"]:
            sys.exit("%s is %s: %s" % (r["variant"], seen[run], run[:4]))' bench/evidence/results/*.csv
data=${CMHA_DATA:-../shared/data}
if [ -d "$data" ] && command -v sha256sum > /dev/null; then
    sums=$PWD/bench/evidence/data.sha256
    is "the data are those of the rows" eval '(cd "$data" && sha256sum --quiet --ignore-missing -c "$sums") > "$W/out" 2>&1'
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
