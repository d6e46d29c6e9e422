#!/bin/sh
# tests/abi.sh BUILD_DIR [TAG]: what the library of TAG (the last tag v*, else the commit that gave the last released version its number) and this one have
# in common, by libabigail: a line for each function that is gone or has another type, and for each public type whose members or
# size differ. Added functions and types are no difference. tests/abi.known lists those that are meant; a line that is not there
# fails, and so does one there that is no difference. Environment: CC; ARGS=--list prints the differences as they go into that list.
B=${1:-build} tag=$2
CC=${CC:-cc}
cd "$(dirname "$0")/.." || exit 2
command -v abidiff > /dev/null 2>&1 || { echo 'make abi needs abidiff: apt-get install abigail-tools (Debian, Ubuntu)' >&2; exit 1; }
W=$B/abi
rm -rf "$W" && mkdir -p "$W/old" "$W/new" || exit 2
[ -n "$tag" ] || tag=$(git describe --tags --abbrev=0 --match 'v*' 2> /dev/null) ||
    tag=$(sed -n 's/^## \([0-9]*\)\.\([0-9]*\)\.\([0-9]*\), .*/\1 \2 \3/p' .github/CHANGELOG.md | {
        read -r major minor patch
        for commit in $(git log --format=%h -G'define CMHA_VERSION_(MAJOR|MINOR|PATCH)' -- cmha.h); do
            numbers=$(git show "$commit:cmha.h" | awk '/^#define CMHA_VERSION_(MAJOR|MINOR|PATCH)/ { v = v s $3; s = " " } END { print v }')
            [ "$numbers" = "$major $minor $patch" ] && echo "$commit" && break
        done
    })
git show "$tag:cmha.h" > "$W/old/cmha.h" || { echo "make abi: there is no $tag with a cmha.h" >&2; exit 1; }
cp cmha.h "$W/new/cmha.h"

# The symbol that carries the version's number is not part of the comparison
echo '{ global: cmha_*; local: *; };' > "$W/map"
for side in old new; do
    $CC -std=gnu99 -O0 -g -w -fPIC -shared -DCMHA_NO_CBLAS -DCMHA_NO_DISPATCH -DCMHA_IMPLEMENTATION -x c "$W/$side/cmha.h" -x none \
        -Wl,--version-script="$W/map" -o "$W/$side/libcmha.so" -lm || exit 2
done
abidiff --no-added-syms --leaf-changes-only --no-show-locs --no-linkage-name --no-corpus-path "$W/old/libcmha.so" "$W/new/libcmha.so" > "$W/report" 2> "$W/errors"
[ $(($? & 3)) -eq 0 ] || { cat "$W/errors"; exit 2; } # its own failures; other bits say that there are differences

awk '
    # "[D] '"'"'function void cmha_x(..)'"'"'" is gone; "[C] '"'"'function ..'"'"' has some sub-type changes" and, of leaves, the name in quotes
    function name_of(text) {
        if (!match(text, /cmha_[a-z0-9_]+[({]/) && !match(text, /cmha_[a-z0-9_]+/)) return ""
        text = substr(text, RSTART, RLENGTH)
        sub(/[({]$/, "", text)
        return text
    }
    function function_of(text) {
        sub(/\(.*/, "", text)
        sub(/.*[ *]/, "", text)
        return text
    }
    /\[D\] .function / { sub(/.*function /, ""); n = function_of($0); if (n !~ /_compiled_with/) print "gone " n; next }
    /\[C\] .function / { sub(/.*function /, ""); print "changed " function_of($0); next }
    /^.(struct|enum|union) cmha_[a-z0-9_]+. changed:/ || /^.(typedef|class) cmha_[a-z0-9_]+. changed:/ { n = name_of($0); if (n !~ /^cmha__/) print "type " n }
' "$W/report" | LC_ALL=C sort -u > "$W/differences"
if [ "$ARGS" = --list ]; then cat "$W/differences"; exit 0; fi
sed -e 's/ *#.*//' -e '/^ *$/d' tests/abi.known | LC_ALL=C sort -u > "$W/known"
LC_ALL=C comm -23 "$W/differences" "$W/known" > "$W/unknown"
LC_ALL=C comm -13 "$W/differences" "$W/known" > "$W/stale"
sed 's/^/FAIL not meant, according to tests\/abi.known: /' "$W/unknown"
sed 's/^/FAIL in tests\/abi.known, but no difference: /' "$W/stale"
bad=$(($(wc -l < "$W/unknown") + $(wc -l < "$W/stale")))
echo "against $tag: $(grep -c '^gone' "$W/differences") functions gone, $(grep -c '^changed' "$W/differences") changed, $(grep -c '^type' "$W/differences") types changed"
[ $bad -eq 0 ]
