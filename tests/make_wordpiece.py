#!/usr/bin/env python3
"""Writes tests/wordpiece_cases.txt: what BERT's uncased tokenizer makes of some texts with the vocabulary wordpiece_vocab.txt.

    python3 tests/make_wordpiece.py [file]

One case a line: the text, a tab, the ids with a blank between. The text itself may hold tabs, so the LAST tab of the line counts.
Neither [CLS] nor [SEP] is added.
"""
import os
import sys
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))

CJK = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
       (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def is_blank(c):
    return c in " \t\n\r" or unicodedata.category(c) == "Zs"


def is_control(c):
    return c not in "\t\n\r" and unicodedata.category(c) in ("Cc", "Cf")


def is_punctuation(c):
    return (c.isascii() and c.isprintable() and not c.isalnum() and c != " ") or unicodedata.category(c).startswith("P")


def basic(text):
    """Controls out, blanks unified, CJK characters apart, lower case without accents, punctuation apart."""
    clean = ""
    for c in text:
        if c in "\0\ufffd" or is_control(c):
            continue
        if is_blank(c):
            c = " "
        clean += " %s " % c if any(lo <= ord(c) <= hi for lo, hi in CJK) else c
    words = []
    for word in clean.split():
        bare = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn")
        words += "".join(" %s " % c if is_punctuation(c) else c for c in bare).split()
    return words


def wordpiece(word, vocab):
    """The longest piece that fits, again and again; one character without a piece makes the whole word unknown."""
    pieces, at = [], 0
    if len(word) > 100:
        return [vocab["[UNK]"]]
    while at < len(word):
        for end in range(len(word), at, -1):
            piece = ("##" if at else "") + word[at:end]
            if piece in vocab:
                pieces.append(vocab[piece])
                at = end
                break
        else:
            return [vocab["[UNK]"]]
    return pieces


TEXTS = [
    # nothing, blanks
    "", " ", "   \t  ", "\u00a0\u2009\u3000",
    # plain words and pieces, case, runs of blanks
    "the cat sat on the mat", "  The   CAT  sat ", "unaffable running runs", "played unrunning", "catcat catss", "runnable unsat",
    # the longest piece wins even where a shorter one would have gone on; one missing piece loses the word
    "playing playful", "runq", "quiz", "abx cat", "xcat", "un unx unq",
    # punctuation
    "the cat, the mat.", "don't can't 'tis", "well-known cat--mat", "(cat) [mat] {sat}", "cat!?...",
    "a_b*c&d@e#f$g%h^i~j`k|l\\m", "cat/mat; \"sat\": <on> = +1", "##s ##ing",
    "cat\u2019s \u201cmat\u201d \u2013 sat\u2014on\u2026", "\u00bfcat? \u00a1mat! \u00absat\u00bb",
    "cat\u00a7mat cat\u00b7mat \u00b6",
    # digits
    "1 12 123", "2024 20-24 3.14", "a1 1a cat9", "0123456789", "1,000",
    # accents: words; Latin-1; Latin Extended-A; combining marks; letters that only look accented; symbols, which do not split
    "caf\u00e9 na\u00efve \u00dcber r\u00e9sum\u00e9",
    "\u00c0\u00c1\u00c2\u00c3\u00c4\u00c5 \u00c8\u00c9\u00ca\u00cb \u00e0\u00e1\u00e2\u00e3\u00e4\u00e5 \u00e8\u00e9\u00ea\u00eb",
    "\u00e7\u00c7 \u00f1\u00d1 \u00fd\u00dd\u00ff \u00d2\u00d3\u00d4\u00d5\u00d6 \u00f2\u00f3\u00f4\u00f5\u00f6",
    "\u00cc\u00cd\u00ce\u00cf\u00ec\u00ed\u00ee\u00ef \u00d9\u00da\u00db\u00dc\u00f9\u00fa\u00fb\u00fc",
    "\u0101\u0103\u0105 \u0107\u0109\u010b\u010d \u010f \u0113\u0115\u0117\u0119\u011b \u011d\u011f\u0121\u0123 \u0125 "
    "\u0129\u012b\u012d\u012f",
    "\u0135 \u0137 \u013a\u013c\u013e \u0144\u0146\u0148 \u014d\u014f\u0151 \u0155\u0157\u0159 \u015b\u015d\u015f\u0161 "
    "\u0163\u0165",
    "\u0169\u016b\u016d\u016f\u0171\u0173 \u0175 \u0177 \u017a\u017c\u017e",
    "\u0100\u0102\u0104 \u0106\u0108\u010a\u010c \u010e \u0112\u0114\u0116\u0118\u011a \u011c\u011e\u0120\u0122 \u0124 "
    "\u0128\u012a\u012c\u012e\u0130",
    "\u0134 \u0136 \u0139\u013b\u013d \u0143\u0145\u0147 \u014c\u014e\u0150 \u0154\u0156\u0158 \u015a\u015c\u015e\u0160 "
    "\u0162\u0164",
    "\u0168\u016a\u016c\u016e\u0170\u0172 \u0174 \u0176\u0178 \u0179\u017b\u017d",
    "cafe\u0301 nai\u0308ve \u0301cat \u0301", "\u00e6 \u00c6 \u00f8 \u00df \u00f0 \u00fe",
    "\u0142\u0142 \u0141 \u0111 \u0110 \u0131 \u0153 \u0152 \u0127 \u014b \u0149 \u017f \u0133",
    "\u00b5 cat\u00d7mat 1\u00b0 \u00a31 1\u00b2 1\u00bd",
    # CJK, kana, full-width punctuation, beyond the basic plane
    "cat\u4e2d\u56fdmat\u4e00s", "\u4e2d\u3002cat\uff0cmat", "\u304c \u30ab\u30bf", "\U00020000\U0001f600cat \U0001f600",
    # tabs, controls, invisible characters
    "the\tcat\t", "\tcat \t mat", "ca\u0001t m\u007fat\u001b", "the\rcat", "c\u00ada\u200bt\ufeff m\ufffda\u0085t",
    "cat\u00a0mat\u2003sat\u202fon\u2028mat",
    # length: 100 and 101 characters, counted in lower case without accents, not in bytes; punctuation ends the count
    "a" * 100, "a" * 101 + " cat", "\u00e9" * 100 + " " + "e\u0301" * 60 + " " + "e\u0301" * 101, "ab" * 49 + "a-" + "a" * 99,
]


def main():
    with open(os.path.join(HERE, "wordpiece_vocab.txt"), encoding="utf-8", newline="\n") as f:
        vocab = {piece: i for i, piece in enumerate(f.read().rstrip("\n").split("\n"))}
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "wordpiece_cases.txt")
    with open(out, "w", encoding="utf-8", newline="\n") as f:
        for text in TEXTS:
            assert "\n" not in text
            f.write("%s\t%s\n" % (text, " ".join(str(i) for word in basic(text) for i in wordpiece(word, vocab))))


if __name__ == "__main__":
    main()
