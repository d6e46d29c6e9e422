#!/bin/sh
# tests/symbols.sh OBJECT: the public names, sorted: the functions that OBJECT, the compiled library, exports, and the types,
# constants and macros that the header declares. tests/symbols.txt is the list that a change of the API changes: make symbols.
CC=${CC:-cc}
cd "$(dirname "$0")/.." || exit 2
{
    # the one symbol that names the configuration changes with every version
    nm -g --defined-only "$1" | awk 'NF == 3 { sub(/^_/, "", $3); print "function", $3 }' | grep -v '_compiled_with'
    # what is left of the header itself after preprocessing: names in capitals are constants of enums
    printf '#include "cmha.h"\n' | $CC -I. -E -x c - |
        awk '/^# [0-9]+ "/ { ours = $3 ~ /cmha\.h"$/; next } ours' | tr '{};,()' '\n' > "$1.declared"
    sed -n -e 's/^ *typedef .*\(cmha_[a-z0-9_]*\) *$/type \1/p' -e 's/^ *\*\(cmha_[a-z0-9_]*\) *$/type \1/p' "$1.declared"
    grep -o '\bCMHA_[A-Z0-9_]*' "$1.declared" | sed 's/^/constant /'
    rm "$1.declared"
    printf '#include "cmha.h"\n' | $CC -I. -E -dM -x c - | sed -n 's/^#define \(CMHA_[A-Z0-9][A-Z0-9_]*\).*/macro \1/p'
} | LC_ALL=C sort -u
