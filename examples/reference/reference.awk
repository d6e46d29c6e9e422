# awk -f maths.awk -f reference.awk examples/PAPERS.md cmha.h FILE.. > reference.html
# The reference as one page, from the header's own comments: rooms, functions, structs with their fields, lists with their rows, and the papers'
# equations (examples/PAPERS.md, "Every equation", and the map at the head of cmha.h) with links to the code. Style and script of
# the page stand beside this file, in the folder HERE. FILE: what the map leads to in examples/, whose first comment names equations.
#
# An entry is a comment in the first column and the declarations below it, up to a blank line or the next comment. What
# stands behind a declaration or a field belongs to it. Every public name is an anchor, once.

BEGIN {
    split("ComplexFormer CoPE MöbiusAttention CRAT", paper, " ")
    n_papers = 4
    for (p = 1; p <= n_papers; p++) key[paper[p]] = p == 3 ? "mobiusattention" : tolower(paper[p])
}

# ---------------------------------------------------------------------------------------------------------- what is read

FNR == 1 { file++ }
file == 1 { papers_line(); next }
file > 2 { file_line(); next }
{ line[++n_lines] = $0 }

# A row "| 3-9 | what | `formula`, `formula` |" below a line "**Paper**, ..."
function papers_line(   cell, n) {
    if (/^## /) equations = /Every equation/
    if (!equations) return
    if (match($0, /^\*\*[^*]+\*\*/)) {
        row_paper = substr($0, 3, RLENGTH - 4)
        about[row_paper] = substr($0, RLENGTH + 3)
    }
    if (row_paper == "" || $0 !~ /^\| [0-9]/) return
    gsub(/\\\|/, "\001")
    n = split($0, cell, / *\| */)
    if (n < 5) fails("PAPERS.md: " $0)
    rows[row_paper]++
    row_number[row_paper, rows[row_paper]] = cell[2]
    row_what[row_paper, rows[row_paper]] = cell[3]
    gsub(/\001/, "|", cell[4])
    row_formula[row_paper, rows[row_paper]] = cell[4]
}

# The first comment of a file of the examples, and the equations that it names
function file_line(   text, p, ends, k, found) {
    if (FNR == 1) {
        path[++paths] = FILENAME
        lead[paths] = ""
        leading = 1
    }
    if (!leading) return
    lead[paths] = lead[paths] (lead[paths] == "" ? "" : "\n") $0
    if (!/\*\//) return
    leading = 0
    text = lead[paths]
    gsub(/\n */, " ", text)
    for (p = 1; p <= n_papers; p++) {
        found = text
        while (match(found, paper[p] " eq [0-9]+(-[0-9]+)?")) {
            split(substr(found, RSTART + length(paper[p]) + 4, RLENGTH - length(paper[p]) - 4), ends, "-")
            if (ends[2] == "") ends[2] = ends[1]
            for (k = ends[1] + 0; k <= ends[2] + 0; k++) if (!((paper[p], k) in file_of)) file_of[paper[p], k] = paths
            found = substr(found, RSTART + RLENGTH)
            delete ends[2]
        }
    }
}

function fails(what) {
    print "reference: " what > "/dev/stderr"
    failed = 1
}

END {
    if (failed) exit 1
    read_places()
    if (failed) exit 1
    read_map()
    read_code()
    read_declarations()
    read_called()
    write_page()
    exit failed
}

function read_places(   i) {
    for (i = 1; i <= n_lines; i++) {
        if (line[i] ~ /^#ifndef CMHA_H$/) first_line = i
        if (line[i] ~ /^#endif \/\* CMHA_H \*\//) last_line = i
        if (line[i] ~ /^#define CMHA_VERSION_(MAJOR|MINOR|PATCH)/) {
            version = version dot substr(line[i], match(line[i], /[0-9]+$/))
            dot = "."
        }
    }
    if (!first_line || !last_line) fails("this is no cmha.h")
}

# The map from equations to functions at the head of the header, as tests/equations.awk reads it
function read_map(   i, text, n, word, j, from, range, inside, ends, k) {
    for (i = 1; i < first_line; i++) {
        text = line[i]
        if (text ~ /Where the papers' equations are/) { inside = 1; map_line = i }
        if (inside && text ~ /^ *$/) break
        if (!inside) continue
        if (match(text, /^       [^ 0-9][^ ]*, /)) {
            from = substr(text, 8, RLENGTH - 9)
            text = substr(text, RLENGTH + 1)
        }
        if (from == "") continue
        n = split(text, word, /[ ,;]+/)
        for (j = 1; j <= n; j++) {
            if (word[j] ~ /^[0-9]+(-[0-9]+)?$/) range = word[j]
            else if (word[j] ~ /^(cmha_|CMHA_|examples\/)/) {
                split(range "-" range, ends, "-")
                for (k = ends[1] + 0; k <= ends[2] + 0; k++) code_of[from, k] = word[j]
                wanted[word[j]] = 1
            } else if (word[j] != "and" && word[j] != "") range = ""
        }
    }
    map_end = i
}

# Where the code of every function is: begins[name] to ends_at[name], above[name] where its comment begins
function read_code(   i, name, text, comment) {
    for (i = last_line; i <= n_lines; i++) {
        text = line[i]
        if (text ~ /^\/\*/) comment = i
        if (text == "") comment = 0
        if (text !~ /^[a-zA-Z]/ || text ~ /;[ \t]*(\/\*.*)?$/ && text !~ /\{.*\}/) continue
        name = ""
        if (text ~ /^CMHA__HOT/ && match(text, /cmha_[a-zA-Z0-9_]*[,)]/)) name = substr(text, RSTART, RLENGTH - 1)
        else if (match(text, /cmha_[a-zA-Z0-9_]*\(/)) name = substr(text, RSTART, RLENGTH - 1)
        if (name == "" || name in begins) continue
        begins[name] = i
        above[name] = comment ? comment : i
        while (i < n_lines && line[i] !~ /^\}/ && line[i] !~ /^[a-zA-Z].*\}$/ && line[i] !~ /^[a-zA-Z].*;$/) i++
        ends_at[name] = i
        comment = 0
    }
}

# Entries: comment[e], room[e], section[e]; declaration d: text[d], of entry of[d]
function read_declarations(   i, text, open, part, stop, now) {
    now = ""
    for (i = first_line; i <= last_line; i++) {
        text = line[i]
        if (text ~ /^\/\* =+ .* =+ \*\/$/) {
            gsub(/^\/\* =+ | =+ \*\/$/, "", text)
            room_name[++n_rooms] = text
            part = ""
            open = 0
            continue
        }
        if (text ~ /^\/\* ---- .* ---- \*\/$/) {
            gsub(/^\/\* ---- | ---- \*\/$/, "", text)
            part = text
            open = 0
            continue
        }
        if (text ~ /^\/\*/) {
            open = new_entry(n_rooms, part, i)
            while (text !~ /\*\// && i < last_line) text = text "\n" line[++i]
            comment[open] = text
            continue
        }
        if (text == "") { open = 0; continue }
        if (!n_rooms && text !~ /^#define/) continue
        if (text ~ /^#/ && text !~ /^#define/) continue
        if (text ~ /^(__attribute__|    )/) continue
        if (text ~ /^#define/) {
            now = text
            stop = i
            while (now ~ /\\$/) now = now "\n" line[++i]
            if (text ~ /^#define CMHA__/) continue
            sub(/CMHA__OLD\([^,]*, /, "", now) # an old name: its new one
            if (text ~ /CMHA__OLD/) sub(/\)$/, "", now)
        } else {
            stop = i
            now = text
            while (!complete(now) && i < last_line) now = now "\n" line[++i]
        }
        declared[++n_declared] = now
        declared_at[n_declared] = stop
        note_names(n_declared)
        # a struct behind another declaration is one of its own: the comment is not about it
        if (!open || kind[n_declared] ~ /^(struct|enum)$/ && of[n_declared - 1] == open && kind[n_declared - 1] != "macro")
            open = new_entry(n_rooms, part, stop)
        of[n_declared] = open
    }
}

# Which public functions say in their comments that they compute an equation: called[paper, number]. A comment's first one and its operation
function read_called(   e, d, text, who, p, list, n, part, i, k, ends, names) {
    for (e = 1; e <= n_entries; e++) {
        names = ""
        for (d = 1; d <= n_declared; d++) {
            if (of[d] != e || kind[d] != "function") continue
            if (names == "" || names == " " name[d] "_forward") names = names " " name[d]
        }
        if (names == "") continue
        text = comment[e]
        gsub(/[ \n]+/, " ", text)
        for (p = 1; p <= n_papers; p++) {
            who = text
            while (match(who, paper[p] " [(]?eq [0-9]")) {
                who = substr(who, RSTART + RLENGTH - 1)
                match(who, /^[0-9]+(-[0-9]+)?((,| and|, and) [0-9]+(-[0-9]+)?)*/)
                list = substr(who, 1, RLENGTH)
                gsub(/(,| and)+ /, " ", list)
                n = split(list, part, " ")
                for (i = 1; i <= n; i++) {
                    split(part[i] "-" part[i], ends, "-")
                    for (k = ends[1] + 0; k <= ends[2] + 0; k++) called[paper[p], k] = called[paper[p], k] names
                }
            }
        }
    }
}

function new_entry(in_room, in_part, at_line) {
    room[++n_entries] = in_room
    section[n_entries] = in_part
    entry_line[n_entries] = at_line
    return n_entries
}

# A declaration ends with ; outside of braces, a comment behind it belongs to it
function complete(text,   depth, i, c) {
    if (text ~ /\/\*/ && last_of(text, "/*") > last_of(text, "*/")) return 0
    gsub(/"([^"\\]|\\.)*"/, "", text)
    while (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//)) text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
    depth = gsub(/\{/, "{", text) - gsub(/\}/, "}", text)
    return depth == 0 && text ~ /;[ \t\n]*$/
}

function last_of(text, what,   sum, found) {
    while ((found = index(text, what)) > 0) {
        sum += found + length(what) - 1
        text = substr(text, found + length(what))
    }
    return sum + 0
}

# What a declaration is and the name it is for: kind[d], name[d]
function note_names(d,   text, opens) {
    text = declared[d]
    if (text ~ /^#define/) {
        kind[d] = "macro"
        sub(/^#define /, "", text)
        match(text, /^[A-Za-z0-9_]+/)
        name[d] = substr(text, 1, RLENGTH)
        list_text[name[d]] = declared[d]
        if (name[d] ~ /_FIELDS$/) note_fields(d)
    } else if (text ~ /^CMHA_(DEF|_FIT) /) {
        kind[d] = "function"
        match(text, /(cmha_[a-z0-9_]+|CMHA_CONFIGURATION)\(/)
        name[d] = substr(text, RSTART, RLENGTH - 1)
    } else if (text ~ /^(typedef )?struct /) {
        opens = index(text, "{")
        kind[d] = opens ? "struct" : "forward"
        name[d] = text ~ /^struct / ? second_word(text) : last_word(text)
        if (opens) defined[name[d]] = 1
    } else if (text ~ /^(typedef )?enum/) {
        kind[d] = index(text, "{") ? "enum" : "forward"
        name[d] = text ~ /^enum / ? second_word(text) : last_word(text)
        if (kind[d] == "enum" && name[d] != "") defined[name[d]] = 1
    } else {
        kind[d] = "type"
        name[d] = match(text, /\(\*cmha_[a-z_0-9]+\)/) ? substr(text, RSTART + 2, RLENGTH - 3) : last_word(text)
    }
    if (name[d] ~ /^(cmha|CMHA)_/) public[name[d]] = 1
}

# The name that a declaration ends with; the one behind its first word, if there is one
function last_word(text) {
    text = bare_code(text)
    sub(/;[ \t\n]*$/, "", text)
    return match(text, /[A-Za-z0-9_]+$/) ? substr(text, RSTART) : ""
}

function second_word(text,   part) {
    split(text, part, / +/)
    return part[2] ~ /^[a-z]/ ? part[2] : ""
}

# Fields of configurations are linked to where they are mentioned; of a name that two have, to the first
function note_fields(d,   text, owner, row) {
    text = declared[d]
    owner = tolower(name[d])
    sub(/_fields$/, "_config", owner)
    while (match(text, /\n *(SIZE|REAL|FLAG|ENUM|NAME)\([a-z0-9_]+/)) {
        row = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        sub(/^[^(]*\(/, "", row)
        if (row ~ /_/ && !(row in field_of)) field_of[row] = owner
    }
}

# ------------------------------------------------------------------------------------------------------------ the pieces

# An anchor with the name, the first time; later, as any known name, a link
function anchor(what, class) {
    if (what in anchored) return link(what)
    anchored[what] = 1
    return "<a class=\"n " class "\" id=\"" what "\" href=\"#" what "\">" what "</a>"
}

function link(what) {
    if (what in public) return "<a href=\"#" what "\">" what "</a>"
    if (what in wanted) return "<a href=\"#code-" what "\">" what "</a>"
    return what
}

# Names in code that is escaped already. `own` is the name whose anchor this is.
function linked(text, own, class,   out, found) {
    out = ""
    while (match(text, /(cmha_|CMHA_)[A-Za-z0-9_]+/)) {
        found = substr(text, RSTART, RLENGTH)
        out = out substr(text, 1, RSTART - 1) (found == own ? anchor(found, class) : link(found))
        text = substr(text, RSTART + RLENGTH)
    }
    return out text
}

# A declaration without its comments
function bare_code(text) {
    while (match(text, /[ \t]*\/\*([^*]|\*+[^*\/])*\*+\//)) text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
    return text
}

# The text of a comment: without its signs and the columns that it is indented by
function comment_text(text, within,   n, part, i, out, indent) {
    sub(/^[ \t]*\/\*[ \t]*/, "", text)
    sub(/[ \t]*\*\/[ \t]*$/, "", text)
    n = split(text, part, "\n")
    indent = 3
    if (within) { # a field's comment is indented as far as the field
        indent = 99
        for (i = 2; i <= n; i++)
            if (match(part[i], /^ +/) && RLENGTH < indent) indent = RLENGTH
    }
    out = part[1]
    for (i = 2; i <= n; i++) {
        if (substr(part[i], 1, indent) ~ /^ *$/) out = out "\n" substr(part[i], indent + 1)
        else sub(/^ +/, "", part[i]) + (out = out "\n" part[i])
    }
    return out
}

# Paragraphs of a comment; lines that are indented further are formulas, points of a list, or a table as it stands
function paragraphs(text, unindented,   n, part, i, out, run, shown, item) {
    n = split(text, part, "\n")
    out = run = shown = ""
    for (i = 1; i <= n + 1; i++) {
        if (i <= n && part[i] ~ /^ +- / && shown == "") {
            if (run != "") out = out "<p>" prose(run) "</p>"
            run = ""
            out = out "<ul>"
            while (i <= n && part[i] ~ /^ +/) {
                item = part[i]
                sub(/^ +- /, "", item)
                while (i < n && part[i + 1] ~ /^ +/ && part[i + 1] !~ /^ +- /) item = item " " trimmed(part[++i])
                out = out "<li>" prose(item) "</li>"
                i++
            }
            out = out "</ul>"
            i--
            continue
        }
        if (i <= n && part[i] ~ /^(    |  [a-z]+  +[A-Z])/ || shown != "" && i <= n && part[i] ~ /^  /) {
            if (run != "") out = out "<p>" prose(run) "</p>"
            run = ""
            shown = shown (shown == "" ? "" : "\n") part[i]
            continue
        }
        if (shown != "") out = out display(shown)
        shown = ""
        if (i > n || part[i] ~ /^ *$/) {
            if (run != "") out = out "<p>" prose(run) "</p>"
            run = ""
        } else run = run (run == "" ? "" : " ") part[i]
    }
    return out
}

function trimmed(text) {
    gsub(/^[ \t\n]+|[ \t\n]+$/, "", text)
    return text
}

# Lines of formulas, as mathematics if each of them can be read and words are few; else as they stand
function display(text,   n, part, i, ml, out, words, formula) {
    n = split(text, part, "\n")
    out = ""
    for (i = 1; i <= n; i++) {
        formula = trimmed(part[i])
        words = formula
        ml = words_in(words) > 2 ? "" : formulas(formula)
        if (ml == "" && part[1] ~ /^ *[a-z]+   *[A-Za-z]/ && n > 2) return definitions(text)
        if (ml == "") return "<pre class=\"shown\">" linked(escaped(outdented(text)), "", "") "</pre>"
        out = out "<div class=\"shown\">" ml "</div>"
    }
    return out
}

# "word   what it means" over several lines
function definitions(text,   n, part, i, out, item, what) {
    n = split(outdented(text), part, "\n")
    out = "<dl class=\"macros\">"
    for (i = 1; i <= n; i++) {
        match(part[i], /^[^ ]+/)
        what = substr(part[i], 1, RLENGTH)
        item = trimmed(substr(part[i], RLENGTH + 1))
        while (i < n && part[i + 1] ~ /^ /) item = item " " trimmed(part[++i])
        out = out "<dt><code>" escaped(what) "</code></dt><dd>" prose(item) "</dd>"
    }
    return out "</dl>"
}

function outdented(text,   n, part, i, least, out) {
    n = split(text, part, "\n")
    least = 99
    for (i = 1; i <= n; i++)
        if (match(part[i], /^ */) && RLENGTH < least && part[i] != "") least = RLENGTH
    for (i = 1; i <= n; i++) out = out (i > 1 ? "\n" : "") substr(part[i], least + 1)
    return out
}

# Formulas that ; or wide blanks part
function formulas(text,   n, part, i, ml, out) {
    n = split(text, part, /;|   +/)
    out = ""
    for (i = 1; i <= n; i++) {
        if (trimmed(part[i]) == "") continue
        ml = mathml(trimmed(part[i]), 1)
        if (ml == "") return ""
        out = out (out == "" ? "" : "<span class=\"gap\"></span>") ml
    }
    return out
}

# English words of a text: what is no variable and no function
function words_in(text,   n, part, i, count) {
    gsub(/[^A-Za-z_]+/, " ", text)
    n = split(text, part, / +/)
    for (i = 1; i <= n; i++)
        if (length(part[i]) > 2 && part[i] !~ /_/ && !(part[i] in maths_function) && !(part[i] in greek)) count++
    return count + 0
}

# ------------------------------------------------------------------------------------------------- prose and its formulas

# One line of prose: names become links, "Paper eq 5-8" a link to the equation, formulas mathematics, `words` code
function prose(text,   n, i, out, piece, used) {
    gsub(/\n/, " ", text)
    n = split(text, said, / +/)
    n_said = n
    out = ""
    for (i = 1; i <= n; i += used) {
        used = 1
        piece = equation_link(i)
        if (piece == "") piece = shape(i)
        if (piece == "") piece = inline_formula(i)
        if (piece == "") piece = word(said[i])
        else used = taken
        out = out (i > 1 ? " " : "") piece
    }
    return out
}

function word(text,   out, before, inside) {
    text = escaped(text)
    if (match(text, /`[^`]+`/)) {
        before = substr(text, 1, RSTART - 1)
        inside = substr(text, RSTART + 1, RLENGTH - 2)
        text = substr(text, RSTART + RLENGTH)
        return word(before) "<code>" linked(inside, "", "") "</code>" linked(text, "", "")
    }
    if (match(text, /(cmha_|CMHA_)[A-Za-z0-9_]+/)) {
        before = substr(text, 1, RSTART - 1)
        inside = substr(text, RSTART, RLENGTH)
        return before "<code>" link(inside) "</code>" linked(substr(text, RSTART + RLENGTH), "", "")
    }
    if (match(text, /^[(]?[a-z0-9]+_[a-z0-9_]+/) && (!looks_like_index(text) || trimmed_name(text) in field_of)) {
        out = text ~ /^[(]/ ? "(" : ""
        text = substr(text, length(out) + 1)
        match(text, /^[a-z0-9_]+([.][a-z_]+)*/)
        inside = substr(text, 1, RLENGTH)
        text = substr(text, RLENGTH + 1)
        if (inside in field_of) inside = "<a href=\"#" field_of[inside] "." inside "\">" inside "</a>"
        return out "<code>" inside "</code>" text
    }
    return text
}

function trimmed_name(text) {
    gsub(/^[(]|[^a-z0-9_]+$/, "", text)
    return text
}

function looks_like_index(text) {
    return text ~ /^[(]?[a-z]_[a-z]/ && text !~ /^[(]?[a-z]_[a-z][a-z][a-z][a-z]/
}

# "ComplexFormer eq 1-4": taken words
function equation_link(i,   lead, who, number, tail) {
    if (said[i + 1] != "eq" || i + 2 > n_said || said[i + 2] !~ /^[0-9]/) return ""
    who = said[i]
    lead = ""
    if (match(who, /^[(]+/)) {
        lead = substr(who, 1, RLENGTH)
        who = substr(who, RLENGTH + 1)
    }
    sub(/'s$/, "", who)
    if (!(who in key)) return ""
    match(said[i + 2], /^[0-9]+(-[0-9]+)?/)
    number = substr(said[i + 2], 1, RLENGTH)
    tail = substr(said[i + 2], RLENGTH + 1)
    taken = 3
    return escaped(lead) "<a href=\"#eq-" key[who] "-" first_of(number) "\">" who " eq&#160;" number "</a>" escaped(tail)
}

function first_of(range) {
    sub(/-.*/, "", range)
    return range
}

# "[B, N, d]", the shape of an array, in one piece
function shape(i,   text, j, inside, behind) {
    if (said[i] !~ /^[(]?[[]/) return ""
    text = said[i]
    j = i
    while (text !~ /[]]/ && j < n_said && j < i + 9) text = text "\240" said[++j]
    gsub(/\240/, " ", text)
    if (text !~ /[]]/) return ""
    match(text, /[[][^]]*[]]/)
    inside = substr(text, RSTART, RLENGTH)
    behind = substr(text, RSTART + RLENGTH)
    text = substr(text, 1, RSTART - 1)
    taken = j - i + 1
    return escaped(text) "<code class=\"shape\">" escaped(inside) "</code>" escaped(behind)
}

# A formula in prose: words of mathematics in a row that hold a sign of it, up to a comma or a full stop at depth 0. Words of English
# end it.
function inline_formula(i,   j, text, depth, w, strong, ended, tail, lead, best, best_at, ml) {
    text = ""
    depth = strong = ended = 0
    best = ""
    if (said[i] ~ /^(-|=|\/)$/ || (said[i] ~ /^(a|A|I)$/ && said[i + 1] != "=")) return ""
    if (said[i] ~ /^(cap|gate|scale)$/ && said[i + 1] ~ /^[a-z]$/ && said[i + 2] ~ /^(=|[[].*)$/) return "" # "the soft cap y = .."
    for (j = i; j <= n_said && !ended && j < i + 40; j++) {
        w = said[j]
        tail = ""
        if (!mathematical(w, depth)) break
        if (w in key) break
        if (j > i && w ~ /^[0-9.]+[,.;:]?$/ && said[j - 1] !~ /^(=|-|\+|\*|\/|<=|>=|<|>|->|-=|\+=)$/) break # "d_v 0: ..."
        depth += count(w, "(") + count(w, "[") + count(w, "{") - count(w, ")") - count(w, "]") - count(w, "}")
        if (depth < 0) { # a bracket of the sentence ends here
            if (depth < -1 || w !~ /\)[,.;:]*$/) break
            match(w, /\)[,.;:]*$/)
            tail = substr(w, RSTART)
            w = substr(w, 1, RSTART - 1)
            ended = 1
            depth = 0
        } else if (depth == 0 && match(w, /[,.;:]+$/)) {
            tail = substr(w, RSTART)
            w = substr(w, 1, RSTART - 1)
            ended = 1
        }
        text = text (text == "" ? "" : " ") w
        strong += signs(w, j > i)
        if (depth == 0 && w !~ /^(=|-|\+|\*|\/|<=|>=|<|>|->|-=|\+=|a|sum)$/ && strong) {
            best = text "\001" tail
            best_at = j
        }
    }
    if (best == "") return ""
    split(best, part_of_best, "\001")
    text = part_of_best[1]
    lead = ""
    if (text ~ /^\(/ && !matched_bracket(text)) {
        lead = "("
        text = substr(text, 2)
    }
    if (text ~ /(cmha_|CMHA_|`|"|--)/ || !whole_formula(i, best_at, text, part_of_best[2])) return ""
    ml = mathml(text, 0)
    if (ml == "") return ""
    taken = best_at - i + 1
    if (length(text) > 24) ml = "<span class=\"formula\">" ml "</span>"
    return lead ml escaped(part_of_best[2])
}

# Is it a formula by itself, and not a piece of one whose other words are no mathematics, or a name with a shape?
function whole_formula(from, to, text, tail) {
    if (text ~ /^(\+|=|\*|\/|<|>|- )/ || text ~ /^[A-Za-z_]+ [[][^]=]*[]]$/) return 0
    if (from > 1 && (said[from - 1] ~ /^(=|-|\+|\*|\/|<=|>=|<|>|->|-=|\+=)$/ || said[from - 1] ~ /[A-Za-z][(][^)]*$/)) return 0
    if (from > 1 && said[from - 1] !~ /[,.;:)]$/ && signs(said[from - 1], 0)) return 0
    if (count(text, "|") % 2 || text ~ /<[a-z][(]/) return 0
    if (tail != "" || to == n_said) return 1
    if (text ~ /=/ && said[to + 1] ~ /^[[]/) return 0
    return said[to + 1] !~ /^(=|-|\+|\*|\/|<=|>=|<|>|-=|\+=)$/ && said[to + 1] !~ /^[A-Za-z_]+[(]/
}

function count(text, what,   n, found) {
    while ((found = index(text, what)) > 0) {
        n++
        text = substr(text, found + 1)
    }
    return n + 0
}

# Does the bracket that opens the text close at its end, or before? Then it belongs to the formula.
function matched_bracket(text) {
    return count(text, "(") == count(text, ")")
}

# May this word stand in a formula? In brackets a function's argument may be a name.
function mathematical(w, depth,   bare_word) {
    bare_word = w
    if (w ~ /["`#@&?!%]/ || w ~ /\.\.[^.]/ || w ~ /'s$/ || w ~ /^[(]?or$/) return 0
    if (w ~ /^(=|-|\+|\*|\/|<=|>=|<|>|->|-=|\+=)$/) return 1
    gsub(/[^A-Za-z_]+/, " ", bare_word)
    return known_words(trimmed(bare_word), depth)
}

function known_words(text, depth,   n, part, i) {
    if (text == "") return 1
    n = split(text, part, / +/)
    for (i = 1; i <= n; i++) {
        if (part[i] in field_of) return 0
        if (length(part[i]) == 1 || part[i] in greek || part[i] in maths_function) continue
        if (part[i] ~ /^(eps|scale|cap|gate|lam|up|lr|base)$/) continue
        if (part[i] ~ /^[A-Za-z]_[A-Za-z]+$/ || part[i] ~ /^(sum|max|min|softmax|mean)_[a-z]+$/) continue
        if (greek_index(part[i])) continue
        return 0
    }
    return 1
}

function greek_index(text,   base) {
    base = text
    sub(/_.*/, "", base)
    return base in greek && text ~ /^[a-z]+_[a-z]+$/
}

# Signs of mathematics in a word: powers, indices, roots, functions of something; a letter alone is none
function signs(w, within) {
    if (w ~ /\^/ || w ~ /^[(|]*[A-Za-z]_[a-z]/ || w ~ /(sum|max|softmax)_/ || w ~ /(^|[^a-z])(sqrt|exp|cos|sin|tanh|conj|ln|log|softmax)\(/) return 1
    if (w ~ /^[(]?\|[A-Za-z]/ || w ~ /^(=|<=|>=|<|>)$/ && within) return 1
    if (w ~ /[A-Za-z0-9)]\/[(A-Za-z0-9]/ && w ~ /[A-Za-z]/ && w !~ /[a-z][a-z]\/[a-z][a-z]/) return 1
    return greek_index(w) ? 1 : 0
}

# ------------------------------------------------------------------------------------------------- fields, values, rows

# The members between braces: member[i] with member_says[i], up to `by` (; of a struct, a comma of an enum)
function read_members(text, by,   depth, c, i, n, now, waiting, after, note) {
    n_members = 0
    now = waiting = ""
    after = 0
    while (text != "") {
        if (substr(text, 1, 2) == "/*") {
            match(text, /^\/\*([^*]|\*+[^*\/])*\*+\//)
            note = substr(text, 1, RLENGTH)
            text = substr(text, RLENGTH + 1)
            note = comment_text(note, 1)
            if (depth) now = now "/* " note " */"
            else if (after) member_says[n_members] = joined(member_says[n_members], note)
            else waiting = joined(waiting, note)
            continue
        }
        c = substr(text, 1, 1)
        text = substr(text, 2)
        if (c == "#" && (now ~ /\n *$/ || trimmed(now) == "")) { # a directive within
            sub(/^[^\n]*/, "", text)
            continue
        }
        if (c == "\n") after = 0
        if (c ~ /[[{(]/) depth++
        if (c ~ /[]})]/) depth--
        if (c == by && depth == 0) {
            new_member(now, waiting)
            now = waiting = ""
            after = 1
            continue
        }
        now = now c
        if (c !~ /[ \t\n]/ && after == 1 && text != "") after = 0
    }
    if (trimmed(now) != "" || waiting != "") {
        if (trimmed(now) == "" && n_members) member_says[n_members] = joined(member_says[n_members], waiting)
        else new_member(now, waiting)
    }
}

function joined(a, b) {
    return a == "" ? b : a " " b
}

function new_member(text, says) {
    if (trimmed(text) == "" && says == "") return
    member[++n_members] = trimmed(text)
    member_says[n_members] = says
}

function body_of(text,   from, i, depth) {
    from = index(text, "{")
    text = substr(text, from + 1)
    sub(/\}[^}]*$/, "", text)
    return text
}

function struct_table(d,   out, i, code) {
    if (name[d] ~ /_config$/ && declared[d] ~ /CMHA__MEMBERS/) {
        match(declared[d], /CMHA_[A-Z]+_FIELDS/)
        return "<p>Has a member for each field of " link(substr(declared[d], RSTART, RLENGTH)) ": <code>size_t</code>, <code>double</code>," \
            " <code>int</code> of flags and words, <code>char [32]</code> of names.</p>"
    }
    read_members(body_of(declared[d]), ";")
    out = "<div class=\"wide\"><table class=\"fields\"><thead><tr><th>field</th><th>meaning</th></tr></thead><tbody>"
    for (i = 1; i <= n_members; i++) {
        code = outdented_tail(member[i])
        out = out "<tr><td><code>" linked(escaped(code), "", "") "</code></td><td>" prose(member_says[i]) "</td></tr>"
    }
    return out "</tbody></table></div>"
}

# The first line of a member has lost its indentation, the others have not
function outdented_tail(text) {
    gsub(/\n        /, "\n    ", text)
    return text
}

function enum_table(d,   out, i, n, constant, says, value, m, item, noted, cells) {
    read_members(body_of(declared[d]), ",")
    n = 0
    for (m = 1; m <= n_members; m++) {
        item = member[m]
        while (match(item, /^CMHA_[A-Z_]+\([A-Z_a-z]+\)/)) { # a list of rows
            value = substr(item, 1, RLENGTH)
            item = trimmed(substr(item, RLENGTH + 1))
            n = add_rows(value, n)
        }
        if (item !~ /^CMHA_/) continue
        constant = item
        sub(/[ =].*/, "", constant)
        value = item
        sub(/^[A-Z_0-9a-z]+/, "", value)
        row_constant[++n] = constant
        row_value[n] = trimmed(value)
        row_says[n] = prose(member_says[m])
        row_word[n] = ""
    }
    noted = 0
    for (i = 1; i <= n; i++) if (row_says[i] != "" || row_word[i] != "") noted = 1
    if (!noted) {
        out = "<p class=\"values\">"
        for (i = 1; i <= n; i++) {
            public[row_constant[i]] = 1
            out = out (i > 1 ? " " : "") "<code>" anchor(row_constant[i], "constant") " " escaped(row_value[i]) "</code>"
        }
        return out "</p>"
    }
    out = "<div class=\"wide\"><table class=\"fields\"><thead><tr><th>constant</th><th>meaning</th></tr></thead><tbody>"
    for (i = 1; i <= n; i++) {
        public[row_constant[i]] = 1
        cells = row_word[i] == "" ? "" : "<code>" row_word[i] "</code>" (row_says[i] == "" ? "" : ": ")
        out = out "<tr><td><code>" anchor(row_constant[i], "constant") " " escaped(row_value[i]) "</code></td><td>" cells row_says[i] "</td></tr>"
    }
    return out "</tbody></table></div>"
}

# CMHA_NORMS(CMHA__NORM_NAME): the rows of the list with the prefix that the macro puts before them
function add_rows(call, n,   list, maker, prefix, i, text, part, cell, rest, note) {
    list = call
    sub(/\(.*/, "", list)
    maker = call
    sub(/.*\(/, "", maker)
    sub(/\).*/, "", maker)
    prefix = ""
    for (i = first_line; i <= last_line; i++)
        if (line[i] ~ ("^#define " maker "\\(") && match(line[i], /CMHA_[A-Z_]*##/)) prefix = substr(line[i], RSTART, RLENGTH - 2)
    split_rows(list_text[list])
    for (i = 1; i <= n_list; i++) {
        row_constant[++n] = prefix list_cell[i, 1]
        row_value[n] = ""
        row_word[n] = list_cell[i, 2]
        gsub(/"/, "", row_word[n])
        row_says[n] = prose(list_note[i])
    }
    return n
}

# Rows WORD(a, b, ..) of a list, with the comment behind each: list_kind, list_cell[i, j], list_note
function split_rows(text,   depth, c, cell, n, quoted, note) {
    n_list = 0
    gsub(/\\\n/, "\n", text)
    sub(/^#define [A-Z_]+\([^)]*\)/, "", text)
    while (match(text, /[A-Z]+\(/)) {
        if (index(text, "/*") && index(text, "/*") < RSTART) {
            match(text, /\/\*([^*]|\*+[^*\/])*\*+\//)
            note = substr(text, RSTART, RLENGTH)
            text = substr(text, RSTART + RLENGTH)
            list_note[n_list] = comment_text(note, 1)
            continue
        }
        list_kind[++n_list] = substr(text, RSTART, RLENGTH - 1)
        list_note[n_list] = ""
        text = substr(text, RSTART + RLENGTH)
        depth = 1
        cell = ""
        n = quoted = 0
        while (depth && text != "") {
            c = substr(text, 1, 1)
            text = substr(text, 2)
            if (c == "\"") quoted = !quoted
            if (!quoted && c == "(") depth++
            if (!quoted && c == ")") depth--
            if (!quoted && (depth == 0 || (depth == 1 && c == ","))) {
                list_cell[n_list, ++n] = trimmed(cell)
                cell = ""
                continue
            }
            cell = cell c
        }
        list_cells[n_list] = n
    }
    if (match(text, /\/\*([^*]|\*+[^*\/])*\*+\//)) list_note[n_list] = comment_text(substr(text, RSTART, RLENGTH))
}

# Fields of a configuration: name, kind and range, default, help
function fields_table(d,   out, i, k, owner, at_last, range, start) {
    split_rows(declared[d])
    owner = tolower(name[d])
    sub(/_fields$/, "_config", owner)
    out = "<div class=\"wide\"><table class=\"fields config\"><thead><tr><th>field</th><th>values</th><th>default</th><th>meaning</th></tr></thead><tbody>"
    for (i = 1; i <= n_list; i++) {
        k = list_kind[i]
        at_last = list_cells[i]
        start = list_cell[i, 2]
        if (k == "SIZE" || k == "REAL") range = "<code>" list_cell[i, 3] "</code> to <code>" list_cell[i, 4] "</code>"
        if (k == "FLAG") range = "<code>0</code>, <code>1</code>"
        if (k == "NAME") { range = "a name"; start = "" }
        if (k == "ENUM") {
            range = words_of(list_cell[i, 4])
            start = range
            sub(/\|.*/, "", start)
            gsub(/\|/, "</code>, <code>", range)
            range = "<code>" range "</code>"
        }
        out = out "<tr><td><code><a class=\"n field\" id=\"" owner "." list_cell[i, 1] "\" href=\"#" owner "." list_cell[i, 1] "\">" \
            list_cell[i, 1] "</a></code></td><td>" range "</td><td>" (start == "" ? "" : "<code>" start "</code>") "</td><td>" \
            prose(unquoted(list_cell[i, at_last])) "</td></tr>"
    }
    return out "</tbody></table></div>"
}

function unquoted(text) {
    gsub(/"[ \n\t]*"/, "", text)
    gsub(/^"|"$/, "", text)
    return text
}

# The words of an ENUM: as they stand, or those of a list's rows
function words_of(text,   list, i, out, kept, kinds, cells, j) {
    if (text ~ /^"/) return unquoted(text)
    match(text, /\(CMHA_[A-Z_]+/)
    list = list_text[substr(text, RSTART + 1, RLENGTH - 1)]
    out = ""
    gsub(/\\\n/, "\n", list)
    while (match(list, /[A-Z]+\([A-Z0-9_]+, "[a-z0-9_]+"/)) {
        kept = substr(list, RSTART, RLENGTH)
        list = substr(list, RSTART + RLENGTH)
        sub(/.*, "/, "", kept)
        sub(/"$/, "", kept)
        out = out (out == "" ? "" : "|") kept
    }
    return out
}

# ---------------------------------------------------------------------------------------------------------------- the page

function include(path,   text) {
    while ((getline text < path) > 0) print text
    close(path)
}

function id_of(text) {
    text = tolower(text)
    gsub(/ö/, "o", text)
    gsub(/[^a-z0-9]+/, "-", text)
    gsub(/^-|-$/, "", text)
    return text
}

function write_page(   r, e, last_section) {
    print "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
    print "<title>cmha.h " version ": reference</title>\n<style>"
    include(HERE "/page.css")
    print "</style>\n</head>\n<body>"
    write_head()
    print "<main>"
    write_manual()
    write_equations()
    for (r = 1; r <= n_rooms; r++) {
        print "<section id=\"room-" id_of(room_name[r]) "\"><h2>" room_name[r] "</h2>"
        last_section = ""
        for (e = 1; e <= n_entries; e++) {
            if (room[e] != r) continue
            if (section[e] != last_section) {
                last_section = section[e]
                print "<h3 id=\"part-" id_of(last_section) "\">" escaped(last_section) "</h3>"
            }
            write_entry(e)
        }
        print "</section>"
    }
    write_code()
    print "</main>\n</div>\n<script>"
    include(HERE "/page.js")
    print "</script>\n</body>\n</html>"
}

function write_head(   r, e, last_section) {
    print "<header><div class=\"bar\"><a class=\"home\" href=\"#top\" id=\"top\">cmha.h <small>" version "</small></a>"
    print "<div class=\"find\"><label for=\"find\">Find</label><input id=\"find\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\"" \
        " placeholder=\"a name, eq 7, Euler transform\"><ol id=\"found\" hidden></ol></div>"
    print "<button type=\"button\" id=\"theme\">Dark colours</button></div></header>"
    print "<div class=\"page\"><nav><details id=\"contents\" open><summary>Contents</summary><ul>"
    print "<li><a href=\"#manual\">Manual</a></li>"
    print "<li><a href=\"#equations\">The papers&#39; equations</a><ul>"
    for (e = 1; e <= n_papers; e++) print "<li><a href=\"#paper-" key[paper[e]] "\">" paper[e] "</a></li>"
    print "</ul></li>"
    for (r = 1; r <= n_rooms; r++) {
        print "<li><a href=\"#room-" id_of(room_name[r]) "\">" room_name[r] "</a>"
        last_section = ""
        for (e = 1; e <= n_entries; e++) {
            if (room[e] != r || section[e] == last_section || section[e] == "") continue
            if (last_section == "") print "<ul>"
            last_section = section[e]
            print "<li><a href=\"#part-" id_of(last_section) "\">" escaped(last_section) "</a></li>"
        }
        print (last_section == "" ? "" : "</ul>") "</li>"
    }
    print "<li><a href=\"#code\">Code of the equations</a></li>"
    print "</ul></details></nav>"
}

# The comment at the head of the header: paragraphs, code and lists as they stand; macros become anchors
function write_manual(   i, text, block, title) {
    text = line[1]
    sub(/^\/\* */, "", text)
    sub(/^cmha[.]h - /, "", text)
    print "<h1>cmha.h</h1><p class=\"lead\">" prose(text) " Reference of version " version ".</p>"
    print "<section id=\"manual\"><h2>Manual</h2>"
    for (i = 2; i < first_line; i++) {
        text = line[i]
        if (i == map_line) i = map_end
        text = line[i]
        if (text ~ /^   Rooms, in this order/) break
        if (text ~ /^ *$/) {
            # a blank line within code does not end it
            if (block ~ /\n       [^\n]*$/ && line[i + 1] ~ /^       /) block = block "\n"
            else { manual_block(block); block = "" }
            continue
        }
        block = block (block == "" ? "" : "\n") text
    }
    manual_block(block)
    print "<article><pre class=\"code\">" prefixes() "</pre></article></section>"
}

function manual_block(block,   n, part, i, head, rest) {
    if (block == "") return
    n = split(block, part, "\n")
    head = ""
    for (i = 1; i <= n && (part[i] !~ /^       / && part[i] !~ /^     - /); i++) head = head (head == "" ? "" : " ") trimmed(part[i])
    rest = ""
    for (; i <= n; i++) rest = rest (rest == "" ? "" : "\n") part[i]
    if (head != "") print (rest == "" ? "<p>" prose(head) "</p>" : "<h3>" prose(head) "</h3>")
    if (rest ~ /^       CMHA_/) return manual_macros(rest)
    if (rest ~ /^     - /) print paragraphs(rest)
    else if (rest != "") manual_code(rest)
}

# Code or a table of commands as it stands; what follows at the margin is a paragraph
function manual_code(text,   n, part, i, code, tail) {
    n = split(text, part, "\n")
    for (i = 1; i <= n && (part[i] ~ /^       / || part[i] == ""); i++) code = code (code == "" ? "" : "\n") part[i]
    for (; i <= n; i++) tail = tail " " trimmed(part[i])
    print "<pre class=\"code\">" linked(escaped(outdented(code)), "", "") "</pre>"
    if (tail != "") print "<p>" prose(trimmed(tail)) "</p>"
}

function manual_macros(text,   n, part, i, what, says) {
    n = split(text, part, "\n")
    print "<dl class=\"macros\">"
    for (i = 1; i <= n; i++) {
        match(part[i], /CMHA_[A-Z_]+/)
        what = substr(part[i], RSTART, RLENGTH)
        says = trimmed(substr(part[i], RSTART + RLENGTH))
        while (i < n && part[i + 1] ~ /^         /) says = says " " trimmed(part[++i])
        public[what] = 1
        print "<dt><code>" anchor(what, "macro") "</code></dt><dd>" prose(says) "</dd>"
    }
    print "</dl>"
}

# What stands before the first room: prefixes of declarations, and cmha_real
function prefixes(   i, text, out, what) {
    for (i = first_line; i < last_line && line[i] !~ /^\/\* =+/; i++) {
        text = escaped(line[i])
        what = ""
        if (match(text, /^#define CMHA_[A-Z]+/)) what = substr(text, 9, RLENGTH - 8)
        if (match(text, / cmha_real;/)) what = "cmha_real"
        if (what ~ /^CMHA_/) public[what] = 1
        out = out (i > first_line ? "\n" : "") (what == "" ? text : linked(text, what, "macro"))
    }
    return out
}

# ------------------------------------------------------------------------------------------------------------- equations

function write_equations(   p, r, who) {
    print "<section id=\"equations\"><h2>The papers&#39; equations</h2>"
    print "<p>Each numbered equation as it is computed here, with the function that computes it. What the papers leave open, and where" \
        " they err, is in <code>examples/PAPERS.md</code>. Type <kbd>eq 7</kbd> or a few words into the field above.</p>"
    for (p = 1; p <= n_papers; p++) {
        who = paper[p]
        print "<h3 id=\"paper-" key[who] "\">" who "</h3><p>" prose(about[who]) "</p>"
        print "<div class=\"wide\"><table class=\"equations\"><thead><tr><th>eq</th><th>what, and its formula</th><th>function</th></tr></thead><tbody>"
        for (r = 1; r <= rows[who]; r++) equation_row(who, r)
        print "</tbody></table></div>"
    }
    print "</section>"
}

function equation_row(who, r,   ends, k, anchors, name_of, tick, n, i, ml, formula) {
    split(row_number[who, r] "-" row_number[who, r], ends, "-")
    anchors = ""
    for (k = ends[1] + 0; k <= ends[2] + 0; k++) {
        anchors = anchors (k > ends[1] ? "–" : "") "<a class=\"n equation\" id=\"eq-" key[who] "-" k "\" href=\"#eq-" key[who] "-" k "\">" k "</a>"
        if (k > ends[1] + 0 && k < ends[2] + 0) sub(/–<a class="n equation" id="[^"]*" href="[^"]*">[0-9]*<\/a>$/, \
            "<a class=\"n equation unseen\" id=\"eq-" key[who] "-" k "\">" k "</a>", anchors)
    }
    name_of = (who, ends[1] + 0) in code_of ? code_of[who, ends[1] + 0] : code_of[who, 2] # CoPE's 3-9 discuss its 2
    n = split(row_formula[who, r], tick, "`")
    formula = ""
    for (i = 2; i <= n; i += 2) {
        ml = mathml(tick[i], 1)
        if (ml == "") fails(who " eq " row_number[who, r] ": cannot read " tick[i])
        formula = formula (formula == "" ? "" : "<span class=\"gap\"></span>") ml
    }
    print "<tr data-find=\"" who " eq " row_number[who, r] "\"><td>" anchors "</td><td><p class=\"what\">" prose(row_what[who, r]) "</p><div class=\"shown\">" formula \
        "</div></td><td>" (name_of ~ /^examples\// ? file_cell(who, ends[1] + 0) : callers(who, ends[1] + 0, ends[2] + 0, name_of) function_cell(name_of)) "</td></tr>"
}

function file_cell(who, k,   i) {
    if (!((who, k) in file_of)) { fails("no file names " who " eq " k); return "" }
    i = file_of[who, k]
    shown_file[i] = 1
    return "<a href=\"#code-" id_of(path[i]) "\"><code>" path[i] "</code></a>"
}

# Where an internal function computes the equation: the public ones whose comments name it
function callers(who, first, last, what,   k, n, i, names, listed, out) {
    if (what in public) return ""
    for (k = first; k <= last; k++) {
        n = split(called[who, k], names, " ")
        for (i = 1; i <= n; i++) {
            if (names[i] in listed) continue
            listed[names[i]] = 1
            out = out "<a href=\"#" names[i] "\"><code>" names[i] "</code></a><br>"
        }
    }
    return out
}

function function_cell(what) {
    if (!(what in begins)) { fails("no code of " what); return "" }
    if (what in public) return "<a href=\"#" what "\"><code>" what "</code></a><br><a class=\"lines\" href=\"#code-" what "\">code, line " begins[what] "</a>"
    return "<a href=\"#code-" what "\"><code>" what "</code></a><br><a class=\"lines\" href=\"#code-" what "\">code, line " begins[what] "</a>"
}

# ---------------------------------------------------------------------------------------------------------------- entries

function write_entry(e,   d, says, codes, tables, tail, any) {
    codes = tables = ""
    any = 0
    for (d = 1; d <= n_declared; d++) {
        if (of[d] != e) continue
        if (kind[d] == "forward" && name[d] in defined) continue
        any = 1
        codes = codes signature(d)
        tables = tables table_of(d)
    }
    says = comment[e] == "" ? "" : paragraphs(comment_text(comment[e]))
    if (!any && says == "") return
    if (!any) {
        print "<div class=\"note\">" says "</div>"
        return
    }
    print "<article>" codes (says == "" ? "" : "<div class=\"says\">" says "</div>") tables "</article>"
}

# The line or lines of a declaration, its comment below it
function signature(d,   text, note, place, class) {
    text = declared[d]
    note = ""
    class = kind[d] == "function" ? "function" : kind[d] == "macro" ? "macro" : "type"
    if (kind[d] == "struct" || kind[d] == "enum") {
        if (match(text, /\}[^}]*;[ \t]*\/\*([^*]|\*+[^*\/])*\*+\/[ \t]*$/)) note = substr(text, RSTART)
        text = substr(text, 1, index(text, "{")) " … }"
        if (declared[d] ~ /^typedef/) text = text " " name[d]
        text = text ";"
    } else if (kind[d] == "macro" && text ~ /\n/) {
        text = substr(text, 1, index(text, "\\\n") - 1) "…"
    } else if (match(text, /\/\*([^*]|\*+[^*\/])*\*+\/[ \t\n]*$/)) {
        note = substr(text, RSTART)
        text = bare_code(text)
    }
    if (match(note, /\/\*/)) note = substr(note, RSTART)
    sub(/^CMHA_(DEF|_FIT) /, "", text)
    place = "line " declared_at[d] (name[d] in begins ? ", code " begins[name[d]] : "")
    text = escaped(text)
    gsub(/\n +/, "\n    ", text)
    return "<div class=\"declared\"><pre class=\"code\">" linked(text, name[d], class) "</pre><span class=\"lines\">" place "</span></div>" \
        (note == "" ? "" : "<p class=\"behind\">" prose(comment_text(note)) "</p>")
}

function table_of(d,   text) {
    if (kind[d] == "struct") return struct_table(d)
    if (kind[d] == "enum") return enum_table(d)
    if (kind[d] == "macro" && name[d] ~ /_FIELDS$/) return fields_table(d)
    if (kind[d] == "macro" && declared[d] ~ /\n/ && declared[d] !~ /##/ && name[d] != "CMHA_STATUSES") {
        text = declared[d]
        gsub(/ *\\\n/, "\n", text)
        sub(/^[^\n]*\n/, "", text)
        return "<pre class=\"code\">" linked(escaped(outdented(text)), "", "") "</pre>"
    }
    return ""
}

# --------------------------------------------------------------------------------------------------------------- the code

# The code of what the equations name, with its comment, in the order of the header
function write_code(   i, what, n, order, j, swap, text) {
    n = 0
    for (what in wanted) if (what in begins) order[++n] = what
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && begins[order[j]] < begins[order[j - 1]]; j--) {
            swap = order[j]
            order[j] = order[j - 1]
            order[j - 1] = swap
        }
    print "<section id=\"code\"><h2>Code of the equations</h2><p>The functions that the table of equations names, as they stand in" \
        " <code>cmha.h</code>. Names that begin with <code>cmha__</code> are internal.</p>"
    for (i = 1; i <= n; i++) {
        what = order[i]
        text = ""
        for (j = above[what]; j <= ends_at[what]; j++) text = text (text == "" ? "" : "\n") line[j]
        print "<article id=\"code-" what "\"><h3><code>" what "</code> <span class=\"lines\">lines " above[what] " to " ends_at[what] "</span></h3><pre class=\"code\">" \
            linked(escaped(text), "", "") "</pre></article>"
    }
    for (i = 1; i <= paths; i++)
        if (i in shown_file) print "<article id=\"code-" id_of(path[i]) "\"><h3><code>" path[i] "</code> <span class=\"lines\">its first comment</span></h3>" \
            "<pre class=\"code\">" linked(escaped(lead[i]), "", "") "</pre></article>"
    print "</section>"
}
