# maths.awk - formulas as the comments of cmha.h and examples/PAPERS.md write them, to MathML: mathml(text, block). A letter, a Greek
# name or a Greek letter is a variable, _ and ^ (braces or brackets hold longer ones) are subscripts and superscripts, sqrt and
# conj take what follows. Where block = 1, a / b is a fraction, unless a product follows b; within a line of prose, and in superscripts,
# it stays a / b. Returns "" for what it cannot read: the caller shows that as code.

BEGIN {
    split("alpha beta gamma delta epsilon eta theta lambda mu rho sigma tau phi psi omega pi", maths_name, " ")
    split("α β γ δ ε η θ λ μ ρ σ τ φ ψ ω π", maths_letter, " ")
    for (i in maths_name) greek[maths_name[i]] = maths_letter[i]
    greek["infinity"] = "∞"
    split("exp cos sin tanh atan2 arctan arg ln log max min mean softmax logsumexp softplus sigmoid elu erf sign floor det tr Re Im" \
        " FFT IFFT GELU cGELU LN conj sqrt sum round lim cov var lse", maths_name, " ")
    for (i in maths_name) maths_function[maths_name[i]] = 1
    thin = "<mspace width=\"0.17em\"/>"
    # what is set as an operator of its own sign
    operator["-"] = "−"
    operator["*"] = "·"
    operator["<="] = "≤"
    operator[">="] = "≥"
    operator["+-"] = "±"
    operator["-="] = "−="
    operator["->"] = "→"
    operator["<-"] = "←"
    operator["!="] = "≠"
    operator["..."] = "…"
}

function escaped(text) {
    gsub(/&/, "\\&amp;", text)
    gsub(/</, "\\&lt;", text)
    gsub(/>/, "\\&gt;", text)
    gsub(/"/, "\\&quot;", text)
    return text
}

# The next token of a text: letters, digits and what they are joined by, a number, one sign of UTF-8
function maths_token(text) {
    if (match(text, /^[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*/)) return substr(text, 1, RLENGTH)
    if (match(text, /^[0-9]+([.][0-9]+)?(e-?[0-9]+)?/)) return substr(text, 1, RLENGTH)
    if (match(text, /^(<=|>=|-=|[+]=|[+]-|->|<-|!=|[.][.][.])/)) return substr(text, 1, RLENGTH)
    if (match(text, /^[\300-\337]./)) return substr(text, 1, 2)
    if (match(text, /^[\340-\357]../)) return substr(text, 1, 3)
    return substr(text, 1, 1)
}

# Cuts a text into token[1..tokens]; spaced[i]: blanks stood before it
function maths_cut(text,   blank) {
    tokens = 0
    while (text != "") {
        blank = match(text, /^[ \t\n]+/)
        if (blank) text = substr(text, RLENGTH + 1)
        if (text == "") break
        token[++tokens] = maths_token(text)
        spaced[tokens] = blank ? 1 : 0
        text = substr(text, length(token[tokens]) + 1)
    }
    token[tokens + 1] = ""
    spaced[tokens + 1] = 1
}

function mathml(text, block,   inside) {
    maths_cut(text)
    at = 1
    unread = lowered = 0
    flat = !block
    inside = maths_row("")
    if (at <= tokens || unread) return ""
    return "<math" (block ? " displaystyle=\"true\"" : "") "><mrow>" inside "</mrow></math>"
}

function begins_atom(t) {
    if (t == "") return 0
    return t ~ /^[[A-Za-z0-9({]/ || t ~ /^(√|Σ)$/ || is_letter(t)
}

function long_name(t) {
    return length(t) > 1 && t ~ /^[A-Za-z]/ && !(t in greek) && t !~ /^[A-Za-z]_/
}

function is_letter(t) {
    return t ~ /^(\316|\317)/ || t ~ /^∞$/
}

# A row up to the token `stop`, which stays: products, parted by operators. Of a product `last` are the last atoms without a blank between
# them, as in 2j/d: the numerator of a / without blanks.
function maths_row(stop,   done, before, last, t, below, wide) {
    done = before = last = ""
    while (at <= tokens && token[at] != stop) {
        t = token[at]
        if (t == "/" && last != "") {
            wide = spaced[at] && spaced[at + 1]
            at++
            below = maths_atom()
            if (flat || (wide && begins_atom(token[at]))) { # a / b c: of what is the fraction?
                before = before last "<mo>/</mo>"
                last = below
            } else if (wide) {
                last = "<mfrac>" bare(before last, before == "") bare(below, 1) "</mfrac>"
                before = ""
            } else last = "<mfrac>" bare(last, 1) bare(below, 1) "</mfrac>"
            continue
        }
        if (begins_atom(t) || (t == "|" && closes(at))) {
            if (spaced[at]) {
                before = before last
                if (before != "" && (long_name(t) || long_name(token[at - 1]))) before = before thin
                last = ""
            }
            if (before last != "" && length(t) > 1 && t in maths_function && t != "conj" && t !~ /^(sqrt|sum)/) last = last thin
            last = last maths_atom()
            continue
        }
        if (t ~ /^[])}]$/) unread = 1
        done = done before last "<mo>" escaped(t in operator ? operator[t] : t) "</mo>"
        before = last = ""
        at++
    }
    return done before last
}

# Is there another | behind this one, at the same depth?
function closes(from,   i, depth) {
    for (i = from + 1; i <= tokens; i++) {
        if (token[i] ~ /^[[({]$/) depth++
        if (token[i] ~ /^[])}]$/) depth--
        if (depth < 0) return 0
        if (token[i] == "|" && depth == 0) return 1
    }
    return 0
}

# One element of MathML; round brackets around the whole are not needed in fractions and above roots
function bare(ml, may) {
    if (may && ml ~ /^<mrow><mo[^>]*>[(]<\/mo>/ && whole(ml)) {
        sub(/^<mrow><mo[^>]*>[(]<\/mo>/, "<mrow>", ml)
        sub(/<mo[^>]*>[)]<\/mo><\/mrow>$/, "</mrow>", ml)
    }
    return ml ~ /^<mrow>/ && whole(ml) ? ml : "<mrow>" ml "</mrow>"
}

# Is the element that begins a text all of it?
function whole(ml,   depth, tag) {
    while (match(ml, /<\/?mrow>/)) {
        tag = substr(ml, RSTART, RLENGTH)
        ml = substr(ml, RSTART + RLENGTH)
        depth += tag == "<mrow>" ? 1 : -1
        if (depth == 0) return ml == ""
    }
    return 0
}

# Brackets around a fraction alone are left out, but for those of a function: softmax(O/c) V
function maths_group(opens, ends,   of_function, inside) {
    of_function = argument
    argument = 0
    at++
    inside = maths_row(ends)
    if (token[at] != ends) unread = 1
    at++
    if (!of_function && inside ~ /^<mfrac>/ && inside ~ /<\/mfrac>$/ && token[at] != "^" && gsub(/<mfrac>/, "<mfrac>", inside) == 1) return inside
    if (opens == "{") return "<mrow>" inside "</mrow>"
    return "<mrow>" bracket(opens, inside) inside bracket(ends, inside) "</mrow>"
}

# Brackets grow with fractions alone
function bracket(sign, inside) {
    return inside ~ /<mfrac>/ ? "<mo>" sign "</mo>" : "<mo stretchy=\"false\">" sign "</mo>"
}

function variable(name,   base) {
    if (name in greek) return "<mi>" greek[name] "</mi>"
    if (name ~ /^[A-Za-z]$/ || name in maths_function) return "<mi>" name "</mi>"
    if (name ~ /^[0-9]+$/) return "<mn>" name "</mn>"
    if (lowered && name ~ /^[a-z][a-z][a-z]?$/ && name != "max" && name != "min") return letters(name)
    base = name
    sub(/[0-9]+$/, "", base)
    if (base != name && (length(base) == 1 || base in greek))
        return "<msub>" variable(base) "<mn>" substr(name, length(base) + 1) "</mn></msub>"
    return "<mi>" escaped(name) "</mi>"
}

# Indices that stand together, as in x_tj
function letters(name,   ml, i) {
    ml = ""
    for (i = 1; i <= length(name); i++) ml = ml "<mi>" substr(name, i, 1) "</mi>"
    return "<mrow>" ml "</mrow>"
}

# x_tj, w_logits, sum_j: a subscript; weight_decay: a name of the code
function named(name,   cut, base, rest) {
    cut = index(name, "_")
    if (!cut) return variable(name)
    base = substr(name, 1, cut - 1)
    rest = substr(name, cut + 1)
    if (length(base) > 1 && !(base in greek) && !(base in maths_function) && base !~ /^[A-Za-z][0-9]$/ && length(rest) > 3)
        return "<mtext class=\"code\">" escaped(name) "</mtext>"
    lowered++
    rest = variable(rest)
    lowered--
    if (base == "sum") return "<munder><mo>∑</mo>" rest "</munder>"
    return "<msub>" variable(base) rest "</msub>"
}

function maths_primary(   t, inside) {
    t = token[at]
    if (t == "(") return maths_group("(", ")")
    if (t == "[") return maths_group("[", "]")
    if (t == "{") return maths_group("{", "}")
    if (t == "|") {
        at++
        inside = maths_row("|")
        at++
        return "<mrow>" bracket("|", inside) inside bracket("|", inside) "</mrow>"
    }
    at++
    if (t == "√" || t == "sqrt") return "<msqrt>" bare(maths_primary_scripted(), 1) "</msqrt>"
    if (t == "conj") return "<mrow class=\"conj\">" bare(maths_atom(), 1) "</mrow>"
    if (t == "Σ" || t == "sum") {
        if (token[at] != "_") return "<mo>∑</mo>"
        at++
        lowered++
        inside = maths_primary()
        lowered--
        return "<munder><mo>∑</mo>" inside "</munder>"
    }
    if (t ~ /^[0-9]/) return "<mn>" t "</mn>"
    if (t == "") unread = 1
    return is_letter(t) ? "<mi>" t "</mi>" : named(t)
}

# √c |v| is the root of c alone, √(c + d) of all in brackets
function maths_primary_scripted() {
    if (token[at] == "(") return maths_primary()
    return maths_scripts(maths_primary())
}

function maths_script(   sign, kept, ml) {
    sign = ""
    kept = flat
    flat = 1
    if (token[at] ~ /^(-|−)$/) {
        sign = "<mo>−</mo>"
        at++
    }
    ml = bare(maths_primary(), 1)
    flat = kept
    return sign == "" ? ml : "<mrow>" sign ml "</mrow>"
}

function maths_scripts(base,   low, high) {
    low = high = ""
    while (at <= tokens && token[at] ~ /^(_|\^|'|′|″|~)$/ && !(spaced[at])) {
        if (token[at] == "_") {
            at++
            lowered++
            low = low maths_script()
            lowered--
        } else if (token[at] == "^") {
            at++
            high = high maths_script()
        } else if (token[at] == "~") {
            high = high "<mo>~</mo>"
            at++
        } else {
            base = "<mrow>" base "<mo>" (token[at] == "'" ? "′" : token[at]) "</mo></mrow>"
            at++
        }
    }
    if (base ~ /^<msub>/ && low == "" && high != "") {
        sub(/^<msub>/, "<msubsup>", base)
        sub(/<\/msub>$/, one(high) "</msubsup>", base)
        return base
    }
    if (low != "" && high != "") return "<msubsup>" one(base) one(low) one(high) "</msubsup>"
    if (low != "") return "<msub>" one(base) one(low) "</msub>"
    if (high != "") return "<msup>" one(base) one(high) "</msup>"
    return base
}

function one(ml) {
    if (ml ~ /^<m[in]>[^<]*<\/m[in]>$/ || (ml ~ /^<mrow>/ && whole(ml))) return ml
    return "<mrow>" ml "</mrow>"
}

# A primary with its scripts and, of a function, its argument
function maths_atom(   name, ml) {
    name = token[at]
    ml = maths_scripts(maths_primary())
    sub(/_.*/, "", name)
    if (token[at] ~ /^[[(]$/ && !spaced[at] && name !~ /^[[0-9(|{]/) {
        argument = name in maths_function
        return maths_scripts("<mrow>" ml maths_primary() "</mrow>")
    }
    if (name in maths_function && name !~ /^(sqrt|conj|sum)$/ && (begins_atom(token[at]) || (token[at] == "|" && closes(at))))
        return "<mrow>" ml thin maths_atom() "</mrow>"
    return ml
}
