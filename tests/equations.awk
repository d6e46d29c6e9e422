# awk -f tests/equations.awk cmha.h: follows the Manual's map from the papers' equations to the functions that compute them. An entry is
# "N name" or "N-M name", below a line "Paper, where it is". In the implementation the comment right above that function, or its
# body, must say "Paper eq" and numbers that cover the entry's; a file says so anywhere, a folder in one of its files. Prints what is
# missing, one line each.

/Where the papers' equations are/ { map = 1 }
map && /^ *$/ { map = 0 }
map {
    line = $0
    if (match(line, /^       [^ 0-9][^ ]*, /)) { # seven spaces: a paper
        paper = substr(line, 8, RLENGTH - 9)
        papers[paper] = 1
        line = substr(line, RLENGTH + 1)
    }
    if (paper == "") next
    n = split(line, word, /[ ,;]+/)
    for (i = 1; i <= n; i++) {
        if (word[i] ~ /^[0-9]+(-[0-9]+)?$/) range = word[i]
        else if (word[i] ~ /^(cmha_|CMHA_|examples\/)/) {
            entries++
            of[entries] = paper; numbers[entries] = range; name[entries] = word[i]
            wanted[word[i]] = 1
        } else if (word[i] != "and" && word[i] != "") range = ""
    }
}

# The implementation: the text of a wanted function is the comment right above it and its body.
/Stop here if you only want/ { code = 1 }
!code { next }
inside != "" { text[inside] = text[inside] "\n" $0; if (/^}/) inside = ""; next }
/^\/\*/ { above = ""; comment = 1 }
comment { above = above " " $0; if (/\*\//) comment = 0; next }
/^[a-zA-Z]/ && !/;[ \t]*(\/\*.*)?$/ { # a definition, unless it is one line with its body
    defines($0)
    next
}
/^[a-zA-Z].*\) \{.*\}$/ { defines($0) }
/^(#|[a-zA-Z_]*$)/ { next } # a directive or an attribute may stand between
{ above = "" }

function defines(line,   at, called) {
    at = match(line, /cmha_[a-zA-Z0-9_]*\(/)
    if (line ~ /^CMHA__HOT/) at = match(line, /cmha_[a-zA-Z0-9_]*[,)]/) # CMHA__HOT(static, name, ...) {
    called = at ? substr(line, RSTART, RLENGTH - 1) : ""
    if (called in wanted) {
        text[called] = text[called] " " above "\n" line
        if (line !~ /}$/) inside = called
    }
    above = ""
}

# Which numbers "Paper eq 5-8, 10 and 12" names, into covered
function cover(words, paper,   at, list, part, parts, i, ends, k) {
    split("", covered)
    gsub(/[ \n\t]+/, " ", words)
    while ((at = index(words, paper " eq ")) > 0) {
        words = substr(words, at + length(paper) + 4)
        match(words, /^[0-9]+(-[0-9]+)?((,| and|, and) [0-9]+(-[0-9]+)?)*/)
        list = substr(words, 1, RLENGTH)
        gsub(/(,| and)+ /, " ", list)
        parts = split(list, part, / +/)
        for (i = 1; i <= parts; i++) {
            split(part[i] "-" part[i], ends, "-")
            for (k = ends[1] + 0; k <= ends[2] + 0; k++) covered[k] = 1
        }
    }
}

function file_text(path,   all, line, command) {
    command = "cat " path " " path "/* 2> /dev/null"
    while ((command | getline line) > 0) all = all "\n" line
    close(command)
    return all
}

END {
    for (p in papers) n_papers++
    if (n_papers != 4 || entries < 30) { print "the map has " n_papers " papers and " entries + 0 " entries"; failed = 1 }
    for (e = 1; e <= entries; e++) {
        words = name[e] ~ /^examples\// ? file_text(name[e]) : text[name[e]]
        what = of[e] " eq " numbers[e] ": "
        if (numbers[e] == "") { print of[e] ": " name[e] " has no number"; failed = 1; continue }
        if (words == "") { print what "there is no " name[e]; failed = 1; continue }
        cover(words, of[e])
        split(numbers[e] "-" numbers[e], ends, "-")
        missing = ""
        for (k = ends[1] + 0; k <= ends[2] + 0; k++) if (!(k in covered)) missing = missing " " k
        if (missing != "") { print what name[e] " does not say \"" of[e] " eq\"" missing; failed = 1 }
    }
    exit failed
}
