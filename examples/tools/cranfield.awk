# The Cranfield collection in TREC's form, as examples/tools/rag.c reads it: a passage per line, and questions with the numbers of the
# passages that answer them.     Usage, in the collection's folder (names may differ, the order may not):
#
#     awk -f cranfield.awk cran.all.1400.xml cran.qry.xml cranqrel.trec.txt
#
# writes passages.txt and pairs.tsv into the current folder; -v out=DIR/ elsewhere. Passage n is document n; two documents are empty
# and make empty lines. A text begins with its title, but for two of them, where the title is put before it.
# The judgements count the questions 1, 2, 3, .. in the order of the file, whatever their <num> says. Judgements of 0 and below are
# not relevant.

function squeeze(s) { gsub(/[ \t\r\n]+/, " ", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }

# Adds the text of the element `name` on this line, which may have begun on one before.
function collect(name,    s, at) {
    s = $0
    if (!open[name]) {
        at = index(s, "<" name ">")
        if (!at) return
        open[name] = 1
        s = substr(s, at + length(name) + 2)
    }
    at = index(s, "</" name ">")
    if (at) { s = substr(s, 1, at - 1); open[name] = 0 }
    held[name] = held[name] " " s
}

FNR == 1 { part++ }
part < 3 { collect("title") }
part == 1 { collect("text"); collect("docno") }
part == 1 && /<\/doc>/ {
    title = squeeze(held["title"]); text = squeeze(held["text"])
    if (squeeze(held["docno"]) != ++documents) { print "document " squeeze(held["docno"]) " stands in place " documents > "/dev/stderr"; exit 1 }
    print (index(text, title) == 1 ? text : squeeze(title " " text)) > (out "passages.txt")
    split("", held)
}
part == 2 && /<\/top>/ { question[++questions] = squeeze(held["title"]); split("", held) }
part == 3 && $4 + 0 > 0 { relevant[$1 + 0] = relevant[$1 + 0] " #" ($3 + 0) }
END { for (i = 1; i <= questions; i++) if (relevant[i]) print question[i] "\t" substr(relevant[i], 2) > (out "pairs.tsv") }
