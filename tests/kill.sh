#!/bin/sh
# tests/kill.sh BUILD_DIR [KILLS]: kills build/train_tiny at random moments and resumes it, as a user would, until it has reached its end:
# the checkpoints must be those of a run that nobody disturbed, byte for byte. Then SIGTERM and SIGINT, which save first.
B=$(cd "${1:-build}" && pwd) || exit 2
kills=${2:-${CMHA_TEST_KILLS:-8}}
seed=${CMHA_TEST_SEED:-1}
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-4000}"
cd "$(dirname "$0")/.." || exit 2
W=$B/kill
rm -rf "$W" && mkdir -p "$W" || exit 2
passed=0 failed=0
is() { label=$1; shift; if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $label"; [ -s "$W/out" ] && head -n 5 "$W/out"; fi; }
draw() { seed=$(((seed * 1103515245 + 12345) % 2147483648)) drawn=$((seed / 65536 % $1)); } # below $1
# trains NAME OPTION...: the program on the licence, in the background; its process is $run
trains() {
    name=$1; shift
    "$B/train_tiny" --quiet --seq 16 --batch 2 --set d_model=32 --set d_ff=64 --set n_heads=2 --set eval_every=3 --set eval_tokens=64 \
        --out "$W/$name" --csv "$W/$name.csv" "$@" LICENSE > "$W/out" 2>&1 < /dev/null &
    run=$!
}
rows() { # of every step there is one; a kill may have left a step twice
    for step in $(seq 1 "$2"); do grep -q "^$step,[^,]*,[^,]*,[^,]*,[^,]*,[0-9]*,[0-9.]*,[0-9.]*\$" "$1" || { echo "no row of step $step" > "$W/out"; return 1; }; done
}

steps=200
trains whole --steps $steps
is "train_tiny trains" wait $run
killed=0 runs=0
while [ $killed -lt "$kills" ] && [ $runs -lt $((4 * kills)) ] && [ $failed -eq 0 ]; do
    if [ -e "$W/killed.last" ]; then trains killed --resume; else trains killed --steps $steps; fi
    draw 230
    sleep "0.$(printf %03d $((20 + drawn)))"
    kill -KILL $run 2>/dev/null
    wait $run 2>/dev/null; status=$?
    runs=$((runs + 1))
    if [ $status -eq 137 ]; then killed=$((killed + 1)); continue; fi
    is "train_tiny resumes" [ $status -eq 0 ] # it was at its end before the kill: from the start
    is "a killed and resumed run ends as an undisturbed one" cmp "$W/whole.last" "$W/killed.last"
    is "its best checkpoint is the same" cmp "$W/whole" "$W/killed"
    rm -f "$W"/killed*
done
if [ -e "$W/killed.last" ]; then trains killed --resume; else trains killed --steps $steps; fi
is "train_tiny resumes after the last kill" wait $run
is "a killed and resumed run ends as an undisturbed one" cmp "$W/whole.last" "$W/killed.last"
is "its best checkpoint is the same" cmp "$W/whole" "$W/killed"
is "its csv has every step" rows "$W/killed.csv" $steps
is "there were kills" [ $killed -gt 0 ]

for signal in TERM INT; do
    rm -f "$W"/stopped*
    # an interrupt is ignored by what a shell without job control starts in the background, until the program sets its handler
    trains stopped --steps 100000
    while [ ! -e "$W/stopped.last" ] && kill -0 $run 2>/dev/null; do sleep 0.05; done
    kill -$signal $run
    wait $run; status=$?
    case $signal in TERM) want=143;; *) want=130;; esac
    is "SIG$signal: status $status, not $want" [ $status -eq $want ]
    is "SIG$signal: one line says how to go on" grep -qx 'train_tiny: stopped; --resume continues' "$W/out"
    is "SIG$signal: one line" [ "$(wc -l < "$W/out")" -eq 1 ]
    at=$(tail -n 1 "$W/stopped.csv" | cut -d, -f1)
    trains stopped --resume --steps $((at + 2))
    is "SIG$signal: goes on" wait $run
    is "SIG$signal: not a step is lost or done twice" [ "$(tail -n 2 "$W/stopped.csv" | cut -d, -f1 | tr '\n' ' ')" = "$((at + 1)) $((at + 2)) " ]
done
echo "$killed kills of train_tiny"
rm -rf "$W"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
