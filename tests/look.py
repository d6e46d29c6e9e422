# look.py PAGE..: is a page of build/look well formed, does it stand alone, has every figure a name? Prints what is wrong.
import html.parser
import json
import re
import sys

VOID = {"meta", "link", "br", "input", "img", "hr"}
IMPLIED = {"li": {"li"}, "tr": {"tr", "td", "th"}, "td": {"td", "th"}, "th": {"td", "th"}}  # what each begins after, ended by it
OPEN_END = {"li", "tr", "td", "th"}  # their own ends may be missing
wrong, bad = [], 0


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.refers, self.scripts, self.figures = [], [], [], [], 0
        self.text, self.labels = "", 0

    def handle_starttag(self, tag, attributes):
        names = [k for k, _ in attributes]
        if len(set(names)) < len(names):
            wrong.append(f"an attribute twice: {tag} {names}")
        a = dict(attributes)
        while self.open and self.open[-1] in IMPLIED.get(tag, ()):
            self.open.pop()
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.open.append(tag)
        if "id" in a:
            self.ids.append(a["id"])
        for k in ("aria-labelledby", "aria-describedby", "for"):
            self.refers += a.get(k, "").split()
        for k in ("src", "href", "action", "data"):
            if k in a and not re.match("(data:|#)", a[k]):
                wrong.append(f"{tag} {k}={a[k]}")
        if any(k.startswith("on") for k in a):
            wrong.append(f"{tag} with a handler")
        named = a.get("role") == "img" and (a.get("aria-label") or a.get("aria-labelledby"))
        if tag == "svg" and not named and a.get("aria-hidden") != "true":  # a sample beside its name
            wrong.append("an SVG without a name")
        if tag in ("select", "input") and "label" not in self.open:
            wrong.append(f"{tag} without a label")
        if tag == "script":
            self.scripts.append([a.get("type"), ""])

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag and self.open[-1] in OPEN_END:
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            wrong.append(f"</{tag}> at {self.getpos()} ends nothing")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        else:
            self.text += data


def check(path):
    raw = open(path, "rb").read()
    text = raw.decode("utf-8")  # fails if it is none
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        wrong.append("control characters")
    page = Page()
    page.feed(text)
    page.close()
    if page.open:
        wrong.append(f"not ended: {page.open}")
    if len(set(page.ids)) < len(page.ids):
        wrong.append("an id twice")
    if set(page.refers) - set(page.ids):
        wrong.append(f"refers to nothing: {set(page.refers) - set(page.ids)}")
    if len(page.scripts) != 2:
        wrong.append(f"{len(page.scripts)} scripts")
    data = json.loads(page.scripts[0][1])
    n = len(data["tokens"])
    for layer in data["layers"]:
        for head in layer["heads"]:
            for see in head["see"]:
                if len(see["w"]) != (n * (n + 1) if data["causal"] else 2 * n * n):
                    wrong.append(f"{len(see['w'])} letters for {n} tokens")
    for link in re.findall(r"https?:[^'\"\s<>)]*", text):
        if link != "http://www.w3.org/2000/svg":
            wrong.append(link)
    if re.search(r"@import|url\((?!#|'#)|fetch\(|XMLHttpRequest|WebSocket|import\(", re.sub(r"'url\(#'", "", text)):
        wrong.append("the page could ask for something")


for path in sys.argv[1:]:
    wrong.clear()
    try:
        check(path)
    except ValueError as e:
        wrong.append(str(e))
    bad += len(wrong)
    for line in wrong[:5]:
        print(f"{path}: {line}")
sys.exit(bad > 0)
