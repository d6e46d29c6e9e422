#!/bin/sh
# tests/docs.sh BUILD_DIR [all]: options in examples/README.md, the reference (its names, links and equations;
# with `all` also in Chromium, with node), manual pages and completion from the programs' --help, and what
# `make install` puts into a folder and `make uninstall` takes away again.
# Environment: PICTURES: a folder for screenshots. The last line is N passed, N failed.
B=${1:-build} all=$2
cd "$(dirname "$0")/.." || exit 2
W=$B/tests/docs
rm -rf "$W" && mkdir -p "$W" || exit 2
passed=0 failed=0
check() { label=$1; shift; if "$@" > "$W/log" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAIL $label"; tail -n 12 "$W/log"; fi; }

# ---------------------------------------------------------------------------------------- examples/README.md
# Every option of these programs stands there
documented() {
    "$1" --help | sed -n 's/^ *\(--[a-z0-9-]*\).*/\1/p' | while read -r o; do
        grep -q -e "[\`, ]${o}[\`= ]" examples/README.md || { echo "$o"; exit 1; }
    done
}
for p in classify fill forecast generate geometry look score signal signal_next spoken train_tiny vectors; do
    if [ -x "$B/$p" ]; then check "examples/README.md has every option of $p" documented "$B/$p"; fi
done

# ---------------------------------------------------------------------------------------------------------------- the reference
reference() { LC_ALL=C awk -v HERE=examples/reference -f examples/reference/maths.awk -f examples/reference/reference.awk "$@" \
    examples/tools/mobius_geometry.h examples/extensions/*.c; }
page=$W/reference.html
writes() { reference examples/PAPERS.md cmha.h > "$page"; }
check 'the reference is written' writes
if command -v python3 > /dev/null 2>&1; then
    python3 tests/reference.py "$page" tests/symbols.txt examples/PAPERS.md cmha.h > "$W/said" 2>&1
    grep '^FAIL' "$W/said"
    # one that stops half-way has said neither PASS nor FAIL of the rest
    ended() { tail -n 3 "$W/said"; tail -n 1 "$W/said" | grep -q '^[1-9][0-9]* passed, [0-9]* failed$'; }
    check 'the reference is read to its end' ended
    passed=$((passed + $(grep -c '^PASS' "$W/said"))) failed=$((failed + $(grep -c '^FAIL' "$W/said")))
    # the test itself must be able to fail, and a page of what is no header must not be written
    # spoiled WHAT SED-COMMAND: the page so changed fails by the check of that name
    spoiled() {
        sed "$2" "$page" > "$W/spoiled.html" && ! cmp -s "$page" "$W/spoiled.html" || return 1
        ! python3 tests/reference.py "$W/spoiled.html" tests/symbols.txt examples/PAPERS.md cmha.h > "$W/said" 2>&1 || return 1
        tail -n 3 "$W/said"
        grep -q "^FAIL $1:" "$W/said"
    }
    check 'a missing name is noticed' spoiled 'every public name is an anchor' 's/id="cmha_tape_push"/id="cmha_tape_pull"/'
    check 'a missing equation is noticed' spoiled 'every equation of the map is there' 's/id="eq-crat-12"/id="eq-crat-112"/'
    check 'a link to nowhere is noticed' spoiled 'every link has a target' 's/href="#cmha_tape_fail"/href="#cmha_tape_fall"/'
    check 'an element without an end is noticed' spoiled 'well formed' '0,/<\/article>/s///'
else echo 'SKIP python3 is not installed: the reference is not parsed'; fi
refused() { ! reference examples/PAPERS.md LICENSE > "$W/none.html"; }
check 'what is no header gives no reference' refused
# shellcheck disable=SC2016 # backquotes of Markdown
sed 's/| `λ_j = [^`]*`/| `λ_j = (`/' examples/PAPERS.md > "$W/unread.md"
unread() { ! reference "$W/unread.md" cmha.h > "$W/none.html" 2> "$W/said" && grep -q 'ComplexFormer eq 1: cannot read' "$W/said"; }
check 'an equation that cannot be read is named' unread
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$all" ]; then :
elif [ -z "$browser" ]; then echo 'SKIP chromium is not installed (apt-get install chromium): the reference is not opened'
elif ! command -v node > /dev/null 2>&1; then echo 'SKIP node is not installed (apt-get install nodejs): the reference is not opened'
else
    node tests/reference.js "$browser" "$W/chromium" "${PICTURES:--}" "$page" > "$W/said"
    grep '^FAIL' "$W/said"
    last=$(tail -n 1 "$W/said")
    passed=$((passed + $(echo "$last" | sed -n 's/^\([0-9]*\) passed.*/\1/p')))
    failed=$((failed + $(echo "$last" | sed -n 's/.* \([0-9]*\) failed.*/\1/p')))
fi

# --------------------------------------------------------------------------------------------------------------- what is installed
programs='generate geometry score train_tiny signal rag tokens forecast'
mkdir -p "$W/build"
for p in $programs; do if [ -x "$B/$p" ]; then cp "$B/$p" "$W/build/"; fi; done
built=$(find "$W/build" -type f -exec basename {} \; | sort | tr '\n' ' ')
cp "$page" "$W/build/reference.html"
export PREFIX=/opt/cmha DESTDIR="$PWD/$W/dest" VERSION=1.2.3 PROGRAMS="$programs" PC_CFLAGS=-fopenmp PC_LIBS='-fopenmp -lopenblas'
case $W in /*) DESTDIR=$W/dest;; esac
at=$DESTDIR$PREFIX
if command -v help2man > /dev/null 2>&1; then
    # shellcheck disable=SC2086
    check 'manual pages' examples/install/man.sh "$W/build" $built
else
    echo 'SKIP help2man is not installed (apt-get install help2man): no manual pages'
    lacks() { ! examples/install/man.sh "$W/build" generate && grep -q 'apt-get install help2man' "$W/log"; }
    check 'make man names what it lacks' lacks
fi

# what others have in the same folders stays
mkdir -p "$at/bin" && echo other > "$at/bin/other"
check 'install' examples/install/install.sh install "$W/build"
check 'install again' examples/install/install.sh install "$W/build"
for f in include/cmha.h lib/pkgconfig/cmha.pc lib/cmake/cmha/cmhaConfig.cmake lib/cmake/cmha/cmhaConfigVersion.cmake share/doc/cmha/reference.html; do
    check "$f" test -s "$at/$f"
done
listed() {
    { find "$at" -type f ! -name other ! -name installed; find "$at" -type d ! -name bin | sed 's|$|/|'; } |
        sed -e "s|^$at/||" -e '/^$/d' | sort > "$W/there"
    sort "$at/share/doc/cmha/installed" | diff - "$W/there"
}
check 'the list says what is there, once each' listed
check 'version in pkg-config' grep -q '^Version: 1.2.3$' "$at/lib/pkgconfig/cmha.pc"
if command -v pkg-config > /dev/null 2>&1; then
    # found FOLDER: pkg-config's flags of an install there, as a shell parts them
    found() {
        DESTDIR='' PREFIX=$1 examples/install/install.sh install "$W/empty" &&
            flags=$(PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config --cflags cmha) && echo "$flags" &&
            eval "set -- \"\$1\" $flags" && [ $# -eq 3 ] && [ "$2" = "-I$1/include" ] && [ "$3" = -fopenmp ]
    }
    P=${DESTDIR%/dest}/prefix
    check 'pkg-config finds the header' found "$P/plain"
    check 'in a folder with a blank' found "$P/a blank"
    moved() {
        PKG_CONFIG_PATH=$P/plain/lib/pkgconfig pkg-config --define-variable=prefix=/moved --cflags cmha |
            grep -e '-I/moved/include'
    }
    check 'and where it was moved to' moved
else echo 'SKIP pkg-config is not installed: cmha.pc is not read'; fi
check 'version in CMake' grep -q '1\.2\.3' "$at/lib/cmake/cmha/cmhaConfigVersion.cmake"

# completes COMMAND WORD..: what bash offers for the last word
completes() {
    bash -c 'source "$1/share/bash-completion/completions/$2" || exit 1
        complete -p "$2" > /dev/null || exit 1
        shift; command=$1; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        "$(complete -p "$command" | sed "s/.*-F \([^ ]*\) .*/\1/")" && printf "%s\n" "${COMPREPLY[@]}"' completes "$at" "$@"
}
offers() { wanted=$1; shift; completes "$@" > "$W/said" && grep -qx -e "$wanted" "$W/said"; }
offers_not() { unwanted=$1; shift; completes "$@" > "$W/said" && ! grep -qx -e "$unwanted" "$W/said"; }
for p in $built; do
    c=cmha-$(echo "$p" | tr _ -)
    check "$c runs" "$at/bin/$c" --version
    if command -v bash > /dev/null 2>&1; then
        check "$c: completion" offers --help "$c" --h
        "$at/bin/$c" --help | sed -n 's/^ *\(--[a-z0-9-]*\).*/\1/p' | sort -u > "$W/options"
        completes "$c" -- | sort -u > "$W/offered"
        check "$c: every option of --help is offered" sh -c "comm -23 '$W/options' '$W/offered' | { ! grep .; }"
    fi
    page=$at/share/man/man1/$c.1
    [ -e "$page" ] || continue
    check "$c: name and synopsis" grep -q "^$c .* [a-z]" "$page"
    # the first lines of --help are usages, each with its meaning, and none begins with an option
    "$at/bin/$c" --help | sed '/^ *$/,$d' > "$W/usages"
    uses() {
        sed -n '/SYNOPSIS/,/DESCRIPTION/p' "$page" > "$W/synopsis"
        grep -v "^--" "$W/usages" | cmp - "$W/usages" &&
            [ "$(grep -c "^[.]B $c\$" "$W/synopsis")" -eq "$(grep -c "^$p " "$W/usages")" ]
    }
    check "$c: every usage" uses
    if command -v man > /dev/null 2>&1; then
        warned() { MANWIDTH=80 man --warnings -l "$page" 2>&1 > "$W/shown" | { ! grep -v 'cannot adjust line\|cannot break line'; }; }
        check "$c: man sets it" warned
        told() { sed 's/.\x08//g; s/‐/-/g' "$W/shown" > "$W/plain"; while read -r o; do grep -q -e "$o" "$W/plain" || { echo "$o"; return 1; }; done < "$W/options"; }
        check "$c: its page has every option" told
        bare() { ! grep -e '^ *--[a-z-]* *-$' -e '^ *--[a-z-]* *- ' "$W/plain"; }
        check "$c: and none with the - of what has no default" bare
    fi
    if command -v mandoc > /dev/null 2>&1; then
        lint() { mandoc -T lint -W warning "$page" | { ! grep -v 'cannot parse date'; }; }
        check "$c: mandoc" lint
    fi
done
page=$at/share/man/man1/cmha-forecast.1
if [ -e "$page" ]; then check 'a file in build/ is no program' grep -q 'build/ett' "$page"; fi
case " $built" in *' generate '*)
    check 'completion: words of an option' offers int8 cmha-generate --weights i
    check 'completion: no words of another' offers_not int8 cmha-generate --tokens i;; esac
case " $built" in *' train_tiny '*) check 'completion: kinds' offers mobius+rope cmha-train-tiny --attention mob;; esac
case " $built" in *' tokens '*) check 'completion: commands' offers inspect cmha-tokens ins;; esac

check 'uninstall' examples/install/install.sh uninstall "$W/build"
left() { [ "$(cd "$DESTDIR" && find . -type f)" = ./opt/cmha/bin/other ] && [ "$(cd "$at" && find . -type d | sort | tr '\n' ' ')" = '. ./bin ' ]; }
check 'nothing is left but what others have' left
again() { ! examples/install/install.sh uninstall "$W/build" && grep -q 'nothing to remove' "$W/log"; }
check 'uninstalling twice says so' again
# a header alone, before anything is built
mkdir -p "$W/empty"
alone() { examples/install/install.sh install "$W/empty" | grep 'header, 0 programs (make), 0 manual pages (make man), no reference (make docs)'; }
check 'install of the header alone says what else there is' alone
check 'and uninstall' examples/install/install.sh uninstall "$W/empty"
# folders that were there before stay, though nothing is in them; those that were not go
R=${DESTDIR%/dest}/stage
there() { (cd "$R" && find . | sort); }
kept() {
    there > "$W/before"
    DESTDIR=$R examples/install/install.sh install "$W/build" && there > "$W/after" &&
        ! cmp -s "$W/before" "$W/after" && DESTDIR=$R examples/install/install.sh uninstall "$W/build" &&
        there | diff "$W/before" -
}
for f in bin include lib share/man share/doc; do mkdir -p "$R$PREFIX/$f"; done
check 'uninstall leaves folders that were there before' kept
rm -rf "$R" && mkdir -p "$R$PREFIX"
check 'and none that were not' kept
# a folder that is another one from elsewhere, or that no shell has put in place of its ~, is none for pkg-config
for relative in here/cmha '~/cmha'; do
    relates() {
        ! DESTDIR='' PREFIX=$relative examples/install/install.sh install "$W/empty" 2> "$W/said" &&
            grep -qF "not $relative" "$W/said" && [ ! -e "$relative" ]
    }
    check "PREFIX=$relative is refused" relates
done
# what root installs others may read, whatever root's umask is
masked() {
    rm -rf "$R" && (umask 077 && DESTDIR=$R examples/install/install.sh install "$W/build") &&
        find "$R$PREFIX/" \( -type d ! -perm -755 -o -type f ! -perm -644 \) | { ! grep .; }
}
check 'others may read what is installed' masked
rm -rf "$R" && mkdir -p "$R$PREFIX"
# an install that stops half-way can be uninstalled, and leaves nothing half-written
stops() {
    there > "$W/before"
    ! DESTDIR=$R examples/install/install.sh install "$W/build" && there > "$W/after" &&
        ! grep '[.]cmha[.]' "$W/after"
}
undone() { DESTDIR=$R examples/install/install.sh uninstall "$W/build" && there | diff "$W/before" -; }
at=$R$PREFIX
mkdir -p "$at/lib" && : > "$at/lib/pkgconfig"
check 'a file where a folder would be stops an install' stops
check 'behind the header' test -s "$at/include/cmha.h"
check 'which can be uninstalled' undone
rm -rf "$R" && mkdir -p "$at/include/cmha.h"
check 'a folder where a file would be stops it' stops
check 'and nothing goes into that folder' undone
rm -rf "$R" && mkdir -p "$at/share" && : > "$at/share/doc"
check 'no place for the list stops it' stops
check 'before anything is written' cmp "$W/before" "$W/after"
rm -rf "$R" && mkdir -p "$at"
mkdir -p "$W/cut"
cat > "$W/cut/cp" <<END
#!/bin/sh
case \$1 in *.cmake) echo half > "\$2"; exit 1;; esac
exec $(command -v cp) "\$@"
END
chmod +x "$W/cut/cp"
cut_off() { (PATH=$(cd "$W/cut" && pwd):$PATH; stops); }
check 'a copy that fails half-way stops it' cut_off
check 'which can be uninstalled, too' undone

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
