# Sourced by the scripts that run tests: one line a part with what it took, failures in detail, and the sum of everything at the end.
# W is their folder for scratch files.
# shellcheck shell=sh disable=SC2034,SC2154
passed=0 failed=0

# verdict FOLDER LABEL COMMAND...: runs a program whose last line is "N passed, N failed[, N skipped]" and whose status is its verdict;
# prints its line, and leaves the two numbers in p and f
verdict() {
    log=$1/log label=$2; shift 2
    begun=$(date +%s)
    "$@" > "$log" 2>&1; status=$?
    took=$(($(date +%s) - begun))
    last=$(tail -n 1 "$log")
    p=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\1/p')
    f=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\2/p')
    if [ -z "$p" ]; then p=0 f=1; tail -n 15 "$log"; last="stopped with status $status"; fi
    if [ "$f" -eq 0 ] && [ $status -ne 0 ]; then f=1 last="$last, but status $status"; fi
    if [ "$f" -ne 0 ]; then grep -v '^PASS\|^SKIP' "$log" | sed '$d' | head -n 60
    else grep '^SKIP [^a-z]*[a-z+]* is\|^SKIP there\|^SKIP this\|^[0-9]* kills' "$log"
    fi
    printf '%-44s %s%s\n' "$label" "$last" "$([ $took -lt 2 ] || echo "  ($took s)")"
}
# part LABEL COMMAND...: one after the other
part() { verdict "$W" "$@"; passed=$((passed + p)) failed=$((failed + f)); }
# beside LABEL COMMAND...: as many at a time as there are cores, each with its line when it ends; beside_end waits for them all. Each
# keeps to a core: threads of two programs that wait for each other on two cores take several times as long.
besides=0
if taskset -c 0 true 2> /dev/null; then keeps() { taskset -c "$@"; }
else keeps() { shift; "$@"; }; fi
# the cores that this process may use: their numbers
cores() {
    list=$(taskset -pc $$ 2> /dev/null | sed -n 's/.*: //p')
    [ "$list" ] || list=0-$(($(getconf _NPROCESSORS_ONLN) - 1))
    for range in $(echo "$list" | tr , ' '); do seq "${range%-*}" "${range#*-}"; done
}
beside() {
    if [ $besides -eq 0 ]; then
        rm -rf "$W/beside" && mkdir -p "$W/beside" && mkfifo "$W/beside/slots" && exec 9<> "$W/beside/slots"
        for core in $(cores); do echo "$core" >&9; done
    fi
    besides=$((besides + 1))
    mkdir "$W/beside/$besides"
    read -r core <&9
    (
        own=$W/beside/$besides
        label=$1; shift
        verdict "$own" "$label" keeps "$core" "$@" > "$own/said"
        cat "$own/said"
        echo "$p $f" > "$own/counts"
        echo "$core" >&9
    ) &
}
beside_end() {
    wait
    while [ $besides -gt 0 ]; do
        read -r p f < "$W/beside/$besides/counts" || p=0 f=1
        passed=$((passed + p)) failed=$((failed + f)) besides=$((besides - 1))
    done
    exec 9>&-
}
# one LABEL TEST...: a single check
one() {
    label=$1; shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $label"; [ -s "$W/out" ] && head -n 5 "$W/out"; fi
}

# The last line, and the verdict
total() { echo "$passed passed, $failed failed"; [ "$failed" -eq 0 ]; }
