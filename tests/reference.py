# reference.py PAGE SYMBOLS PAPERS HEADER: is the page of `make docs` whole? It must be well formed and ask for nothing; every public name
# must be an anchor, once; every link must have a target; every equation of the header's map and of the papers' table must be there.
# Prints what is wrong, and last N passed, N failed.
import html.parser
import re
import sys

VOID = {"meta", "link", "br", "input", "img", "hr", "mspace"}
page_path, symbols_path, papers_path, header_path = sys.argv[1:]
results = []


def check(what, wrong):
    wrong = list(wrong)
    results.append(not wrong)
    print(("FAIL " if wrong else "PASS ") + what + (": " + "; ".join(map(str, wrong[:6])) if wrong else ""))


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.wrong, self.asks, self.text = [], [], [], [], [], []
        self.formulas = 0

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if len(given) < len(attributes):
            self.wrong.append(f"an attribute twice: {tag} at {self.getpos()}")
        if tag not in VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"])
        if "href" in given:
            self.links.append(given["href"])
        self.asks += [f"{tag} {k}" for k in given if k in ("src", "srcset", "action", "data", "style") or k.startswith("on")]
        self.formulas += tag == "math"
        if tag in ("link", "img", "iframe", "object", "base"):
            self.asks.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()} ends nothing")

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


raw = open(page_path, "rb").read()
source = raw.decode("utf-8")
page = Page()
page.feed(source)
page.close()
header = open(header_path, encoding="utf-8").read()
symbols = [line.split()[1] for line in open(symbols_path, encoding="utf-8")]

check("well formed", page.wrong + [f"not ended: {t}" for t in page.open])
check("less than 2 MB", [] if len(raw) < 2e6 else [len(raw)])
check("no control characters", re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f]", source))
check("asks for nothing", page.asks + re.findall(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", source))
check("no id twice", {i for i in page.ids if page.ids.count(i) > 1})
ids = set(page.ids)
check("every link has a target", {k for k in page.links if not k.startswith("#") or k[1:] not in ids})
check("there are public names", [] if len(symbols) > 400 else [len(symbols)])
check("every public name is an anchor", [s for s in symbols if s not in ids])
old = set(re.findall(r"^#define (cmha_\w+) CMHA__OLD\(", header, re.M))
check("every old name is one", (old - ids) if len(old) == 7 else old)
known = set(symbols) | old
check("and no other name is one", [i for i in page.ids if re.match("(cmha|CMHA)_[A-Za-z0-9_]+$", i) and i not in known
                                   and not re.search(rf"^       {i} ", header, re.M)])

# the map at the head of the header: every number of every entry; the rows of the papers' table
papers = {"ComplexFormer": "complexformer", "CoPE": "cope", "MöbiusAttention": "mobiusattention", "CRAT": "crat"}
place = header[header.index("Where the papers' equations are"):header.index("Rooms, in this order")]
numbers, paper = set(), None
for line in place.split("\n"):
    begun = re.match(r"       ([^ 0-9][^ ]*), ", line)
    if begun:
        paper = begun.group(1)
        line = line[begun.end():]
    for first, last in re.findall(r"(\d+)(?:-(\d+))? (?:cmha_|examples/)", line):
        numbers |= {f"eq-{papers[paper]}-{k}" for k in range(int(first), int(last or first) + 1)}
check("the map names equations of four papers", [] if len(numbers) > 75 and {n.split("-")[1] for n in numbers} == set(papers.values()) else
      [len(numbers)])
check("every equation of the map is there", sorted(numbers - ids))
table, paper = set(), None
for line in open(papers_path, encoding="utf-8"):
    paper = (re.match(r"\*\*([^*]+)\*\*, ", line) or [None, paper])[1]
    row = re.match(r"\| (\d+)(?:-(\d+))? \| .*`.*` \|$", line)
    if row and paper in papers:
        table |= {f"eq-{papers[paper]}-{k}" for k in range(int(row[1]), int(row[2] or row[1]) + 1)}
check("every equation of the map is in the papers' table", sorted(numbers - table))
check("every row of the papers' table is there", sorted(table - ids))
rows = re.findall(r'<tr data-find="([^"]*)">(.*?)</tr>', source, re.S)
check("every equation leads to its code", [name for name, row in rows if 'href="#code-' not in row] + ([] if len(rows) > 75 else [len(rows)]))
functions = set(re.findall(r"\b(cmha_+[a-z0-9_]+)", place))
check("the code of every function of the map is there", sorted(f for f in functions if f"code-{f}" not in ids))

# what the header documents is said: each field and each comment of the declarations, by its words
check("formulas are set", [] if page.formulas > 200 else [page.formulas])
words = re.sub(r"\s+", " ", "".join(page.text))
fields = re.findall(r'^    (?:SIZE|REAL|FLAG|ENUM|NAME)\((\w+),', header, re.M)
check("every field is there", [f for f in fields if not any(f"cmha_{c}_config.{f}" in ids for c in ("model", "trainer", "sampler"))])
declared = header[header.index("/* ================ Base"):header.index("#endif /* CMHA_H */")]
declared = re.sub(r"^#(?!define).*", "", declared, flags=re.M)
plain = re.compile(r"(?<![\w^|/=+*(-])[A-Za-z]{4,}(?:,? [a-z]{3,}){4,}")
missing = []
for comment in re.findall(r"/\*(.*?)\*/", declared, re.S):
    said = re.sub(r"\s*\\?\n\s*", " ", comment)
    missing += [m for m in plain.findall(said) if m not in words]
check("every sentence of the declarations' comments is there", missing)
print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
sys.exit(not all(results))
