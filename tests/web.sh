#!/bin/sh
# tests/web.sh BUILD_DIR: the page of `make web`: its size, that it fetches nothing and, where Chromium and node are installed, that it
# learns, writes, saves and refuses in the browser, from a folder (tests/web.js). Environment: CHROMIUM: the browser; PICTURES: a folder
# that gets screenshots. The last line is N passed, N failed.
B=$(cd "${1:-build}" && pwd) || exit 2
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-4000}"
cd "$(dirname "$0")/.." || exit 2
PAGE=$B/web/index.html W=$B/web-pages
passed=0 failed=0
if [ ! -e "$PAGE" ]; then
    echo 'SKIP there is no page: make web needs emscripten (apt-get install emscripten)'
    echo '0 passed, 0 failed, 1 skipped'; exit 0
fi
rm -rf "$W" && mkdir -p "$W" || exit 2
is() {
    label=$1; shift
    if "$@" > "$W/out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $label"; head -n 5 "$W/out"; fi
}
not() { ! "$@"; }

# -------------------------------------------------------------------------------------------------- the page as a file
size=$(gzip -9 < "$PAGE" | wc -c)
echo "$size bytes gzipped"
is "the page is under 300 KB gzipped" [ "$size" -lt 300000 ]
is "it loads nothing" not grep -n -E "(src|href)=|https?://[^w]|@import|url\(|fetch\(|XMLHttp|importScripts" "$PAGE"
is "its script is well formed" sh -c "awk '/<script id=\"page\">/ { on = 1; next } /<\\/script>/ { on = 0 } on' '$PAGE' > '$W/page.js' &&
    awk '/id=\"worker\">/ { on = 1; next } /<\\/script>/ { on = 0 } on' '$PAGE' > '$W/worker.js' && [ -s '$W/page.js' ] && [ -s '$W/worker.js' ]"
if command -v wasm-objdump > /dev/null 2>&1; then # wabt: the loops are vectors
    is "its loops are vectors" sh -c "[ \$(wasm-objdump -d '$B/web/cmha.wasm' | grep -c 'f32x4.mul') -gt 1000 ]"
fi

# ------------------------------------------------------------------------------------------ texts and checkpoints to pick
head -c 60000 examples/README.md > "$W/text.txt"
: > "$W/empty.txt"
printf 'too short' > "$W/short.txt"
# bytes HEADER FILE: a checkpoint with this JSON and 8 bytes of data
bytes() {
    n=${#1}
    # shellcheck disable=SC2059
    { printf "\\$(printf %o $((n % 256)))\\$(printf %o $((n / 256)))\0\0\0\0\0\0"; printf '%s' "$1"; printf '\0\0\0\0\0\0\0\0'; } > "$W/hostile-$2"
}
printf 'no header' > "$W/hostile-words"
: > "$W/hostile-empty"
printf '\377\377\377\377\377\377\377\377{}' > "$W/hostile-length"
head -c 4096 "$B/web/cmha.wasm" > "$W/hostile-program"
bytes '{}' nothing
bytes '{"a":{"dtype":"F32","shape":[4294967295,4294967295],"data_offsets":[0,8]}}' shape
bytes '{"__metadata__":{"cfg.d_model":"99999999999999999999"}}' number
bytes '{"__metadata__":{"cfg.d_model":"65536","cfg.n_layers":"1000","cfg.n_heads":"8"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' huge
bytes '{"__metadata__":{"cfg.causal":"0"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}' encoder
if [ -x "$B/train_tiny" ]; then
    is "train_tiny leaves a checkpoint" "$B/train_tiny" --quiet --threads 1 --steps 30 --seq 32 --batch 4 --set d_model=32 --set d_ff=32 \
        --set n_heads=2 --set n_layers=2 --set eval_tokens=64 --out "$W/native.safetensors" --csv "$W/native.csv" LICENSE
    head -c 3000 "$W/native.safetensors" > "$W/hostile-half"
fi

# ----------------------------------------------------------------------------------------------------------------- a browser
for b in "$CHROMIUM" chromium chromium-browser google-chrome; do if [ -n "$b" ] && command -v "$b" > /dev/null 2>&1; then browser=$b; break; fi; done
if [ -z "$browser" ]; then echo 'SKIP chromium is not installed (apt-get install chromium): the page is not opened'
elif ! command -v node > /dev/null 2>&1; then echo 'SKIP node is not installed (apt-get install nodejs): the page is not opened'
else
    is "its scripts are JavaScript" sh -c "node --check '$W/page.js' && node --check '$W/worker.js'"
    node tests/web.js "$browser" "$W" "${PICTURES:--}" "$PAGE" > "$W/log" 2>&1
    grep -v ' passed, ' "$W/log"
    passed=$((passed + $(sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p' "$W/log" | tail -n 1)))
    failed=$((failed + $(sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p' "$W/log" | tail -n 1)))
    if [ -x "$B/look" ]; then
        is "look reads the page's checkpoint" "$B/look" --threads 1 --text 'The header' --out "$W/look.html" "$W/page.safetensors"
    fi
    if [ -x "$B/generate" ]; then
        is "generate reads the page's checkpoint" sh -c "'$B/generate' --tokens 40 '$W/page.safetensors' > '$W/said' && [ -s '$W/said' ]"
    fi
fi
[ $failed -eq 0 ] && rm -rf "$W"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
