# awk -f tests/rooms.awk cmha.h cmha.h: the rooms of the implementation with their lines and bytes, and the calls that go down
# to a later room or, within one, to a function that is declared ahead of its code. A room uses only the rooms above it.
# Ends with status 1 when a call is not among the known ones.
BEGIN {
    # moments are laid by the table of optimisers, and one of them is a function of Training
    # a trainer draws its batches from token streams, whose code opens files
    split("cmha_tokens_at cmha_tokens_part cmha_muon cmha_muon_scratch", names, " ")
    for (i in names) known[names[i]] = 1
    # tables whose rows have functions that ask the table
    split("cmha__score_of cmha__family", names, " ")
    for (i in names) known[names[i]] = 1
}
FNR == 1 { pass++; room = ""; inside = 0 }
{
    macro = $0 ~ /^#/ || continued
    continued = macro && $0 ~ /\\$/
}
/Stop here if you only want the API/ { inside = 1 }
!inside { next }
/^\/\* =+ .* =+ \*\/$/ {
    room = $0
    gsub(/^\/\* =+ | =+ \*\/$/, "", room)
    if (pass == 1) {
        order[++rooms] = room
        number[room] = rooms
    }
}
room == "" { next }
pass == 1 {
    lines[room]++
    bytes[room] += length($0) + 1
}
# a definition begins in the first column and its line, or a later one, opens the body
pass == 1 && /^[a-zA-Z].*[ *](cmha_[a-z0-9_]+)\(/ {
    name = $0
    sub(/^CMHA__PRINTF\([^)]*\) /, "", name)
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    waiting = name
}
pass == 1 && waiting != "" && /[;{]/ {
    if ($0 ~ /\{/ && !(waiting in defined)) defined[waiting] = number[room]
    if ($0 !~ /\{/ && !(waiting in defined)) ahead[waiting] = FNR
    waiting = ""
}
pass == 2 && !macro && /^[ \t]/ {
    rest = $0
    gsub(/"([^"\\]|\\.)*"/, "", rest)
    sub(/\/\*.*/, "", rest)
    while (match(rest, /cmha_[a-z0-9_]+\(/)) {
        name = substr(rest, RSTART, RLENGTH - 1)
        rest = substr(rest, RSTART + RLENGTH)
        if (!(name in defined) || defined[name] <= number[room]) continue
        down[name]++
        from[name] = from[name] " " FNR
    }
}
END {
    printf "%-22s %7s %9s\n", "room", "lines", "bytes"
    for (i = 1; i <= rooms; i++) {
        printf "%-22s %7d %9d\n", order[i], lines[order[i]], bytes[order[i]]
        all += lines[order[i]]
        sum += bytes[order[i]]
    }
    printf "%-22s %7d %9d\n", "all", all, sum
    for (name in down) {
        if (!(name in known)) bad = 1
        printf "%s calls %s of %s, in line%s\n", name in known ? "known:" : "NEW:", name, order[defined[name]], from[name]
    }
    for (name in ahead) {
        if (!(name in defined)) continue
        if (!(name in known)) bad = 1
        printf "%s %s is declared ahead of its code, in line %d\n", name in known ? "known:" : "NEW:", name, ahead[name]
    }
    exit bad
}
