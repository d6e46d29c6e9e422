#!/bin/sh
# examples/install/man.sh BUILD_DIR PROGRAM..: manual pages of the programs that are built, from their own --help, into BUILD_DIR/man. Needs
# help2man. Environment: VERSION.
set -eu
B=$1
shift
cd "$(dirname "$0")/../.."
command -v help2man > /dev/null 2>&1 || { echo 'make man needs help2man: apt-get install help2man (Debian, Ubuntu)' >&2; exit 1; }
mkdir -p "$B/man"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# the day of the last change of what the pages are made from
if day=$(git log -1 --format=%ct -- cmha.h examples 2> /dev/null) && [ -n "$day" ]; then export SOURCE_DATE_EPOCH="$day"; fi
made=0
for p in "$@"; do
    [ -x "$B/$p" ] || continue
    c=$(printf 'cmha-%s\n' "$p" | tr _ -)
    "$B/$p" --help > "$work/help"
    awk -v NAME="$p" -v COMMAND="$c" -f examples/install/help.awk < "$work/help" > "$work/page"
    summary=$(awk -v NAME="$p" -v COMMAND="$c" -v SUMMARY=1 -f examples/install/help.awk < "$work/help")
    printf '%s\n' '#!/bin/sh' "case \$1 in --version) echo '$c (cmha.h) ${VERSION:-}';; *) cat '$work/page';; esac" > "$work/$c"
    chmod +x "$work/$c"
    help2man --no-info --locale=C.UTF-8 --section=1 --manual='cmha.h' --name="$summary" --output="$B/man/$c.1" "$work/$c"
    made=$((made + 1))
done
[ $made -gt 0 ] || { echo "make man: no program is built in $B" >&2; exit 1; }
echo "$B/man: $made manual pages"
