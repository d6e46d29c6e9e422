#!/bin/sh
# examples/install/install.sh install|uninstall BUILD_DIR: what `make install` and `make uninstall` do.
# Environment: PREFIX, DESTDIR, VERSION, PROGRAMS (of BUILD_DIR; those that are built), PC_CFLAGS and PC_LIBS
# (for pkg-config). PREFIX/share/doc/cmha/installed lists what is installed: files, and folders that were not
# there before, with a / at the end. It is written as they come, so that an install that stopped half-way can
# be uninstalled. Uninstalling removes the files, then those of the folders that are empty.
set -eu
umask 022 # others may read the folders that it makes, too, whatever root's mask is
what=$1 B=$2
cd "$(dirname "$0")/../.."
: "${PREFIX:=/usr/local}" "${DESTDIR:=}" "${VERSION:=}" "${PROGRAMS:=}" "${PC_CFLAGS:=}" "${PC_LIBS:=}"
case $PREFIX in
    /* | [A-Za-z]:*) ;;
    *) echo "PREFIX is a whole path, such as /usr/local, not $PREFIX" >&2; exit 2;; # cmha.pc is read from anywhere
esac
at=$DESTDIR$PREFIX
list=$at/share/doc/cmha/installed

# folder PATH: makes a folder below the prefix; each one that was not there gets its line in the list
folder() {
    here='' rest=$1/
    while [ -n "$rest" ]; do
        here=$here${rest%%/*}/ rest=${rest#*/}
        [ ! -d "$at/$here" ] || continue
        mkdir -p "$at/$here"
        printf '%s\n' "$here" >> "$lines"
    done
}

# put FILE FOLDER NAME [MODE]: a file below the prefix, and its line in the list. A program that runs is
# replaced, not written into.
put() {
    folder "$2"
    if [ -d "$at/$2/$3" ]; then echo "$at/$2/$3 is a folder" >&2; exit 1; fi
    half=$at/$2/.cmha.$$
    cp "$1" "$half"
    chmod "${4:-644}" "$half"
    printf '%s\n' "$2/$3" >> "$lines"
    mv -f "$half" "$at/$2/$3"
    half=
}

# remove_folders LIST: those of a list that are empty, the deepest first
remove_folders() {
    LC_ALL=C sort -ru "$1" | sed -n -e '/^\//d' -e '/[.][.]/d' -e '/\/$/p' > "$work/folders"
    while IFS= read -r folder; do
        rmdir "$at/$folder" 2> /dev/null || true # what others have files in stays
    done < "$work/folders"
}

# clean: removes what is half-written, and the folders of a list that could not be written
clean() {
    [ -z "$half" ] || rm -f "$half"
    [ "$lines" = "$list" ] || [ ! -e "$lines" ] || remove_folders "$lines"
    rm -rf "$work"
}
half='' lines='' work=$(mktemp -d)
trap clean EXIT
trap 'exit 1' HUP INT TERM

# The name that a program has on a system: cmha-train-tiny
command_of() { printf 'cmha-%s\n' "$1" | tr _ -; }

install_all() {
    lines=$work/lines # the folders of the list itself, until it can be written
    : > "$lines"
    folder share/doc/cmha
    cat "$lines" >> "$list"
    lines=$list

    put cmha.h include cmha.h
    put examples/install/cmhaConfig.cmake lib/cmake/cmha cmhaConfig.cmake
    sed "s/@VERSION@/$VERSION/" examples/install/cmhaConfigVersion.cmake > "$work/version.cmake"
    put "$work/version.cmake" lib/cmake/cmha cmhaConfigVersion.cmake
    # shellcheck disable=SC2016 # a variable of pkg-config's
    printf '%s\n' "prefix=$PREFIX" '' 'Name: cmha' "Version: $VERSION" \
        'Description: Transformers with attention in the complex plane, in one C header' \
        'Cflags: "-I${prefix}/include" '"$PC_CFLAGS" "Libs: $PC_LIBS -lm" > "$work/cmha.pc"
    put "$work/cmha.pc" lib/pkgconfig cmha.pc

    programs=0 pages=0
    for p in $PROGRAMS; do
        [ -x "$B/$p" ] || continue
        c=$(command_of "$p")
        put "$B/$p" bin "$c" 755
        "$B/$p" --help | awk -v COMMAND="$c" -f examples/install/completion.awk > "$work/completion"
        put "$work/completion" share/bash-completion/completions "$c"
        programs=$((programs + 1))
        [ -e "$B/man/$c.1" ] || continue
        put "$B/man/$c.1" share/man/man1 "$c.1"
        pages=$((pages + 1))
    done
    reference=no
    if [ -e "$B/reference.html" ]; then
        put "$B/reference.html" share/doc/cmha reference.html
        reference=the
    fi
    half=$list.$$
    sort -u "$list" > "$half" # a line of an earlier install may come twice
    chmod 644 "$half"
    mv -f "$half" "$list"
    half=
    echo "$at: header, $programs programs (make), $pages manual pages (make man), $reference reference (make docs)"
}

uninstall_all() {
    if [ ! -e "$list" ]; then echo "$list is not there: nothing to remove" >&2; exit 1; fi
    while IFS= read -r file; do
        case $file in /*|*..*|*/|'') continue;; esac
        rm -f "$at/$file"
    done < "$list"
    cp "$list" "$work/list"
    rm -f "$list"
    remove_folders "$work/list"
    echo "$at: removed"
}

case $what in
    install) install_all;;
    uninstall) uninstall_all;;
    *) echo "install.sh install|uninstall BUILD_DIR" >&2; exit 2;;
esac
