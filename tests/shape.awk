# awk -f tests/shape.awk cmha.h: how the code behind "Stop here if you only want the API" is written, a line each with its limit.
# Ends with status 1 when one is exceeded; -v show=1 names the places.
#   loops with && in their condition, nested ?:, statements that join assignments by commas, functions of more than 6 and
#   of more than 9 parameters, functions of more than 50 lines
function place(what, at) {
    count[what]++
    if (show) print FILENAME ":" at ": " what
}
# what stands between parentheses from position i of the text on, these not included
function inside(text, i,    depth, k, c) {
    for (k = i; k <= length(text); k++) {
        c = substr(text, k, 1)
        if (c == "(") depth++
        if (c == ")" && --depth == 0) return substr(text, i + 1, k - i - 1)
    }
    return ""
}
# looks at a statement, which ended with c
function statement(text, c,    n, k, depth, open, commas, first, ch) { # how deep a `?` is open is in open[]
    gsub(/^[ \t]+/, "", text)
    first = text
    depth = commas = 0
    split("", open)
    for (k = 1; k <= length(text); k++) {
        ch = substr(text, k, 1)
        if (ch ~ /[(\[]/) depth++
        if (ch ~ /[)\]]/) {
            for (n in open) if (n + 0 >= depth) delete open[n]
            depth--
            if (depth < 0) return # the last piece of a loop's header
        }
        if (ch == "," && depth == 0) {
            commas++
            if (commas == 1) first = substr(text, 1, k)
        }
        if (ch == ",") for (n in open) if (n + 0 >= depth) delete open[n]
        if (ch == "?") {
            for (n in open) {
                place("nested ?:", began)
                break
            }
            open[depth] = 1
        }
    }
    sub(/^(if|while) \(.*\) /, "", first)
    sub(/^else /, "", first)
    if (c == ";" && commas && first ~ /^[a-z_A-Z0-9>.\[\]*()+ -]+ [-+*\/|]?= .*,$/ && first !~ /^[a-zA-Z_0-9]+ [*]*[a-zA-Z_]/)
        place("assignments joined by commas", began)
}
/Stop here if you only want the API/ { on = 1 }
!on { next }
{
    line = $0
    gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
    gsub(/'([^'\\]|\\.)+'/, "0", line)
    gsub(/\/\*[^*]*(\*[^*\/][^*]*)*\*\//, "", line)
    if (comment) {
        if (!sub(/^.*\*\//, "", line)) next
        comment = 0
    }
    if (sub(/\/\*.*$/, "", line)) comment = 1
    if (line ~ /^#/ || macro) {
        macro = line ~ /\\$/
        next
    }
    # a function: from the line in the first column to its }
    if (line ~ /^[a-zA-Z].*\(/ && line !~ /;/) {
        start = FNR
        head = ""
    }
    if (start) {
        head = head " " line
        if (head ~ /[;{]/ && !counted[start]) {
            counted[start] = 1
            sub(/[;{].*/, "", head)
            if (head ~ /^ CMHA__HOT/) sub(/^[^(]*\([^(]*/, "", head)
            list = inside(head, index(head, "("))
            n = gsub(/,/, ",", list) + (list != "" && list != "void")
            if (head !~ /^ (typedef|enum|struct)/) {
                if (n > 6) place("functions of more than 6 parameters", start)
                if (n > 9) place("functions of more than 9 parameters", start)
            }
        }
    }
    if (line ~ /^\}/ && start) {
        if (FNR - start + 1 > 50) place("functions of more than 50 lines", start)
        start = 0
    }
    # loops: the condition between the two semicolons of a header
    if (match(line, /for \(/)) {
        header = ""
        began = FNR
        loop = 1
        line_of = FNR
        header = substr(line, RSTART + 4)
    } else if (loop) header = header " " line
    if (loop) {
        text = inside(header, 1)
        if (text != "" || header ~ /\)[^(]*$/) {
            loop = 0
            split(text, piece, ";")
            if (piece[2] ~ /&&/) place("loops with && in their condition", began)
        }
    }
    # statements
    rest = line
    while (match(rest, /[;{}]/)) {
        here = RSTART
        pending = pending " " substr(rest, 1, here - 1)
        if (!began_at) began_at = FNR
        began = began_at
        statement(pending, substr(rest, here, 1))
        pending = ""
        began_at = 0
        rest = substr(rest, here + 1)
    }
    if (rest ~ /[^ \t]/) {
        if (pending == "") began_at = FNR
        pending = pending " " rest
    }
}
END {
    limit["loops with && in their condition"] = 19
    limit["nested ?:"] = 39
    limit["assignments joined by commas"] = 20
    limit["functions of more than 6 parameters"] = 19
    limit["functions of more than 9 parameters"] = 3
    limit["functions of more than 50 lines"] = 0
    for (what in limit) {
        printf "%4d of at most %3d %s\n", count[what], limit[what], what
        if (count[what] > limit[what]) wrong = 1
    }
    exit wrong
}
