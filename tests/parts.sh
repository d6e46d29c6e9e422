# Sourced by the scripts that run tests: one line a part, failures in detail, and the sum of everything at the end.
# W is their folder for scratch files.
# shellcheck shell=sh disable=SC2034,SC2154
passed=0 failed=0

# part LABEL COMMAND...: a program whose last line is "N passed, N failed[, N skipped]" and whose status is its verdict
part() {
    label=$1; shift
    "$@" > "$W/log" 2>&1; status=$?
    last=$(tail -n 1 "$W/log")
    p=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\1/p')
    f=$(printf '%s\n' "$last" | sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\2/p')
    if [ -z "$p" ]; then p=0 f=1; tail -n 15 "$W/log"; last="stopped with status $status"; fi
    if [ "$f" -eq 0 ] && [ $status -ne 0 ]; then f=1 last="$last, but status $status"; fi
    if [ "$f" -ne 0 ]; then grep -v '^PASS\|^SKIP' "$W/log" | sed '$d' | head -n 60
    else grep '^SKIP [^a-z]*[a-z+]* is\|^SKIP there\|^SKIP this\|^[0-9]* kills' "$W/log"
    fi
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-44s %s\n' "$label" "$last"
}
# one LABEL TEST...: a single check
one() {
    label=$1; shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $label"; [ -s "$W/out" ] && head -n 5 "$W/out"; fi
}

# The last line, and the verdict
total() { echo "$passed passed, $failed failed"; [ "$failed" -eq 0 ]; }
