# awk -v NAME=generate -v COMMAND=cmha-generate -f help.awk < what --help prints: the same text in the form that help2man reads: first a line
# "Usage: COMMAND ..", then a sentence, then options with a default behind what they say, under the name they are installed by.
# -v SUMMARY=1: only what the program does, a line for a manual page's heading.

# The first paragraph is "NAME ARGUMENTS: what it does"
NR == 1 { paragraph = 1 }
paragraph && /^ *$/ { head() }
paragraph && NR > 1 && /^  [^ ]/ { head() }
paragraph && NR > 1 && index($0, NAME " [") == 1 { more[++others] = substr($0, length(NAME) + 1); next }
paragraph && others { more[others] = more[others] " " trimmed($0); next }
paragraph { first = first (first == "" ? "" : " ") trimmed($0); next }
{ rest() }
END { if (paragraph) head() }

function trimmed(text) {
    sub(/^ +/, "", text)
    return text
}

function head(   i, cut, usage, says) {
    paragraph = 0
    sub(/^[^ ]*/, "", first)
    cut = index(first, ": ")
    usage = cut ? substr(first, 1, cut - 1) : first
    says = cut ? substr(first, cut + 2) : ""
    if (SUMMARY) {
        sub(/[;:.,] .*/, "", says)
        sub(/[.:;,]$/, "", says)
        if (length(says) > 90) says = substr(says, 1, 90)
        print says
        exit
    }
    print "Usage: " COMMAND usage
    for (i = 1; i <= others; i++) print "  or:  " COMMAND (index(more[i], ": ") ? substr(more[i], 1, index(more[i], ": ") - 1) : more[i])
    print toupper(substr(says, 1, 1)) substr(says, 2) (says ~ /[.:]$/ ? "" : ".")
    for (i = 1; i <= others; i++) {
        cut = index(more[i], ": ")
        if (!cut) continue
        usage = substr(more[i], 1, cut - 1)
        sub(/^ *[[]OPTION[.][.][.][]] */, "", usage)
        print "\nWith " usage ": " substr(more[i], cut + 2) "."
    }
    print ""
}

# A row of a table of fields, "  name  value  range  meaning": the meaning, value and range behind it. A name has no value.
function field_row(   i, text, value, range) {
    value = $3 == "NAME" || $2 == "NAME" ? "" : $2
    range = $2 == "NAME" ? $2 : $3
    text = ""
    for (i = $2 == "NAME" ? 3 : 4; i <= NF; i++) text = text (text == "" ? "" : " ") $i
    print "  " $1 "  " text " (" (value == "" ? "" : value "; ") range ")"
}

# A text with the names that its programs are installed by; a file in build/ has a dot in its name.
function installed(text,   done, name) {
    while (match(text, /build\/[a-z_]+/)) {
        name = substr(text, RSTART + 6, RLENGTH - 6)
        if (substr(text, RSTART + RLENGTH) ~ /^[.]/) name = substr(text, RSTART, RLENGTH)
        else { gsub(/_/, "-", name); name = "cmha-" name }
        done = done substr(text, 1, RSTART - 1) name
        text = substr(text, RSTART + RLENGTH)
    }
    return done text
}

function rest(   text, option, start) {
    text = $0
    if (text ~ /: field, value, range, meaning$/) {
        fields = 1
        sub(/, value, range, meaning$/, "s, their meaning, default and range", text)
    }
    if (text ~ /^ *$/) fields = 0
    if (text ~ /^  [a-z]/ && (fields || text ~ /^  [a-z0-9_]+ +[^ ]+ +[^ ]+[.][.][^ ]+ +[^ ]/)) { field_row(); return }
    text = installed(text)
    # "  --words      8000      tokens": option, default, meaning; after a long name one blank and no default
    if (match(text, /^  --[a-z-]+ +[^ ]+  +[^ ]/) && text ~ /^  --[a-z-]+ ( |- )/) {
        match(text, /^  --[a-z-]+/)
        option = substr(text, 3, RLENGTH - 2)
        text = substr(text, RLENGTH + 1)
        sub(/^ +/, "", text)
        start = text
        sub(/ .*/, "", start)
        sub(/^[^ ]+ +/, "", text)
        if (text !~ /^[^ ]+:/ && start != "-" && text !~ /^[0-9.]+ = /) text = text " (" start ")"
        text = "  " option "  " text
    }
    # explanations below the options begin a paragraph of their own
    if (text ~ /^-h is --help/) {
        sub(/ Example:$/, "", text)
        print "\n" text "\n"
        print "Examples:"
        return
    }
    print text
}
