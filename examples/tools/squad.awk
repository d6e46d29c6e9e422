# SQuAD 2.0's JSON as examples/tools/rag.c reads it: a passage per line, and the questions that have an answer with the number of the
# passage that they were asked about.     Usage (the file is one of https://rajpurkar.github.io/SQuAD-explorer):
#
#     LC_ALL=C awk -f squad.awk dev-v2.0.json
#
# writes passages.txt and pairs.tsv into the current folder; -v out=DIR/ elsewhere. In the file a passage's questions stand before it.

function digit(s, i) { return index("0123456789abcdef", tolower(substr(s, i, 1))) - 1 }

# What \uXXXX stands for, in UTF-8; halves of pairs stay as they are.
function decoded(s,    head, n, i) {
    while (match(s, /\\u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]/)) {
        n = 0
        for (i = RSTART + 2; i < RSTART + 6; i++) n = 16 * n + digit(s, i)
        head = head substr(s, 1, RSTART - 1)
        if (n < 128) head = head sprintf("%c", n)
        else if (n < 2048) head = head sprintf("%c%c", 192 + int(n / 64), 128 + n % 64)
        else if (n < 55296 || n > 57343) head = head sprintf("%c%c%c", 224 + int(n / 4096), 128 + int(n / 64) % 64, 128 + n % 64)
        else head = head substr(s, RSTART, 6)
        s = substr(s, RSTART + 6)
    }
    return head s
}

function plain(s) {
    gsub(/\\[ntr]/, " ", s); gsub(/\\\//, "/", s); s = decoded(s)
    gsub(/\001/, "\"", s); gsub(/\002/, "\\", s); gsub(/[ \t\r\n]+/, " ", s)
    return s
}

{ text = text $0 "\n" }

END {
    gsub(/\\\\/, "\002", text); gsub(/\\"/, "\001", text) # what is left of quotation marks bounds strings: the even parts
    n = split(text, part, "\"")
    for (i = 2; i < n; i += 2) {
        after = part[i + 1]
        if (after !~ /^[ \n]*:/) continue                 # a string that is no key
        if (part[i] == "question") asked = part[i + 2]
        if (part[i] == "is_impossible" && after ~ /^[ \n]*:[ \n]*false/) waiting[++questions] = asked
        if (part[i] != "context") continue
        print plain(part[i + 2]) > (out "passages.txt"); passages++
        for (q = 1; q <= questions; q++) print plain(waiting[q]) "\t#" passages > (out "pairs.tsv")
        questions = 0
    }
    if (!passages) { print "there are no passages" > "/dev/stderr"; exit 1 }
}
