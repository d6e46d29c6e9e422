"""evidence.py RESULTS REPORT QUESTIONS: computes every number of the report's pages from the CSV files again, with Python's csv and
SciPy, and says which differ. Knows nothing of the program but the columns, the words of the pages and QUESTIONS, the table of
questions in C. Without SciPy: says so and ends well."""
import csv, glob, math, os, re, sys

try:
    import numpy as np
    from scipy import stats
except ImportError:
    print("without scipy: left out")
    sys.exit(0)

csv.field_size_limit(1 << 24)
wrong = checked = 0


def say(what):
    global wrong
    wrong += 1
    print("FAIL", what)


def near(text, value, what):
    """Is the text this number, rounded to its own digits?"""
    global checked
    checked += 1
    text = text.strip()
    if text == "–" or not math.isfinite(value):
        if (text == "–") != (not math.isfinite(value)):
            say(f"{what}: {text}, not {value}")
        return
    digits = len(text.split(".")[1]) if "." in text else 0
    if text.startswith("<"):
        if value >= float(text[1:]):
            say(f"{what}: {text}, not {value}")
    elif abs(float(text) - value) > 0.5000001 * 10.0 ** -digits + 1e-8 * abs(value):
        say(f"{what}: {text}, not {value}")


def last_loss(row):
    last = float(row["curve"].split(";")[-1].split(":")[1]) if row["curve"] else math.nan
    return last if math.isfinite(last) else math.inf


class Claim:
    def __init__(self, path):
        self.rows = []
        with open(path, newline="", encoding="utf-8") as f:
            for row in csv.DictReader(f):
                row["m"] = {k: float(v) for k, v in (p.split("=") for p in row["measures"].split(";"))}
                words = [w.split("=", 1) for w in " ".join(row["settings"].split("; ")[-2:]).split()]
                row["w"] = dict(words)
                self.rows.append(row)

    def rows_of(self, part, variant):
        return [r for r in self.rows if r["part"] == part and r["variant"] == variant]

    def rate(self, part, variant, measure, higher):
        rows = self.rows_of(part, variant)
        like = rows[0]["w"].get("like") if rows else None
        by = rows[0]["w"].get("choose", measure) if rows else measure
        trials = [r for r in self.rows_of(part, like or variant) if r["chosen"] == "0"]
        best = None
        rates = sorted({float(r["rate"]) for r in trials})
        of_rate = {rate: [r for r in trials if float(r["rate"]) == rate] for rate in rates}
        tuners = max((len(of) for of in of_rate.values()), default=0)
        for rate, of in of_rate.items():
            v = sum(r["m"].get(by, math.nan) for r in of) / len(of)
            last = sum(last_loss(r) for r in of) / len(of)
            if math.isfinite(v) and len(of) == tuners:  # of equals the lowest loss at the end, then the middle rate, then the lowest
                key = (-v if higher else v, last, len(rates) != 3 or rate != rates[1], rate)
                best = min(best, key) if best else key
        return best[3] if best else rates[1] if len(rates) > 1 else min((float(r["rate"]) for r in (trials or rows)), default=math.nan)

    def seeds(self, part, variant, measure, higher):
        rate = self.rate(part, variant, measure, higher)
        return {int(r["seed"]): r for r in self.rows_of(part, variant) if r["chosen"] == "1" and math.isclose(float(r["rate"]), rate)}


def holm(p):
    order = sorted(p, key=lambda k: p[k])
    out, least = {}, 0.0
    for i, k in enumerate(order):
        least = max(least, min(1.0, p[k] * (len(order) - i)))
        out[k] = least
    return out


def paired(a, b, measure):
    both = [(a[s]["m"].get(measure, math.nan), b[s]["m"].get(measure, math.nan)) for s in sorted(a) if s in b]
    return np.array([x - y for x, y in both if math.isfinite(x) and math.isfinite(y)])


def finite(rows, measure):
    return np.array([x for x in (r["m"].get(measure, math.nan) for r in rows.values()) if math.isfinite(x)])


def cells_of(line):
    return [c.strip() for c in line.strip()[1:-1].split("|")]


class Table:
    """A table of a page, by one measure, and what the rows say of it."""

    def __init__(self, claim, name, part, higher, by, by_higher, chance, goes_on, lines, primary):
        self.claim, self.name, self.part, self.higher = claim, name, part, higher
        head = cells_of(lines[0])
        self.measure = re.match(r"`(\S+)`", head[4]).group(1)
        self.second = self.measure != by
        self.rows = {}
        for line in lines[2:]:
            cells = cells_of(line)
            label, variant = re.fullmatch(r"(.*) \(`([^`]+)`\)", cells[0]).groups()
            self.rows[variant] = (label, cells)
        self.base = next(iter(self.rows))
        self.of = {v: claim.seeds(part, v, by, by_higher) for v in self.rows}
        self.rate = {v: claim.rate(part, v, by, by_higher) for v in self.rows}
        self.floors = {v for v in self.of if claim.rows_of(part, v) and "like" in claim.rows_of(part, v)[0]["w"]}
        far = {v: re.search(r"(\d+) of (\d+) seeds so far", cells[8]) for v, (_, cells) in self.rows.items()}
        self.part_way = {v for v in far if primary and (far[v] or far[self.base])}
        for v, m in far.items():
            if m and (int(m[1]) != len(self.of[v]) or int(m[2]) <= int(m[1])):
                say(f"{name}/{part}/{v}: {m[0]}, but rows are of {len(self.of[v])}")
        self.compare()
        self.find_failure(chance, goes_on)

    def compare(self):
        measure, of, base = self.measure, self.of, self.base
        self.d = {v: paired(of[v], of[base], measure) for v in of if v != base}
        self.whole = {v: len(finite(of[v], measure)) == len(of[v]) for v in of}
        self.raw = {}
        for v, d in self.d.items():
            if v in self.floors or v in self.part_way or not self.whole[v] or len(d) < 2:
                continue
            same = np.all(d == d[0])
            self.raw[v] = float(stats.ttest_1samp(d, 0).pvalue) if not same else float(d[0] == 0)
            # the same by pairs, as SciPy has it
            a = [of[v][s]["m"][measure] for s in sorted(of[v]) if s in of[base]]
            b = [of[base][s]["m"].get(measure, math.nan) for s in sorted(of[v]) if s in of[base]]
            if not same and np.all(np.isfinite(b)) and abs(float(stats.ttest_rel(a, b).pvalue) - self.raw[v]) > 1e-9:
                say(f"{measure} of {v}: SciPy disagrees with itself")
        self.p = holm(self.raw)
        self.half = {v: stats.sem(d) * stats.t.ppf(0.975, len(d) - 1) if len(d) > 1 else math.nan for v, d in self.d.items()}
        self.mean = {v: d.mean() if len(d) else math.nan for v, d in self.d.items()}
        most = [abs(self.mean[w]) + self.half[w] for w in self.floors if w in self.d and math.isfinite(self.half[w])]
        self.noise = {v: bool(most) and abs(self.mean[v]) <= max(most) for v in self.d}

    def find_failure(self, chance, goes_on):
        """goes_on: the grid of rates does; then rates beyond an end may be bad ones, and do not count."""
        self.failed, self.at_chance = False, 0
        if not chance:
            return
        measure, value, higher = chance
        low = (lambda x: not x > 1.01 * value) if higher else (lambda x: not x < 0.99 * value)
        trials = [r for r in self.claim.rows_of(self.part, self.base) if r["chosen"] == "0"]
        self.at_chance = sum(low(r["m"].get(measure, math.nan)) for r in trials)
        x = finite(self.of[self.base], measure)
        self.failed = bool(len(x)) and (low(x.mean()) or (self.at_chance > 1 and not goes_on))

    def edge(self, v):
        like = self.claim.rows_of(self.part, v)[0]["w"].get("like", v)
        rates = {float(r["rate"]) for r in self.claim.rows_of(self.part, like) if r["chosen"] == "0"}
        return len(rates) > 1 and not min(rates) < self.rate[v] < max(rates)

    def verdict(self, v):
        if v == self.base:
            return "baseline"
        if v in self.floors:
            return "noise floor"
        if not self.whole[v]:
            return "diverged"
        if v in self.part_way:
            return "interim"
        if v not in self.p or self.p[v] >= 0.05:
            return "not told apart"
        return "**better**" if (self.mean[v] > 0) == self.higher else "**worse**"

    def told(self, v):
        return self.verdict(v) in ("**better**", "**worse**")

    def check(self, over_all):
        for v, (_, cells) in self.rows.items():
            what = f"{self.name}/{self.part}/{v}" + (f" by {self.measure}" if self.second else "")
            values = finite(self.of[v], self.measure)
            near(cells[3], len(self.of[v]), what + " seeds")
            if not self.of[v]:
                if "not measured yet" not in cells[8]:
                    say(what + ": says nothing of rows that are not there")
                continue
            near(cells[1], float(next(iter(self.of[v].values()))["parameters"]), what + " parameters")
            rate, *edge = cells[2].split(", ")
            near(rate, self.rate[v], what + " rate")
            if (edge == ["edge"]) != self.edge(v):
                say(f"{what}: {cells[2]}, but at the edge is {self.edge(v)}")
            check_mean(cells[4], values, what)
            if v != self.base:
                check_difference(cells[5], self.mean[v], self.half[v], what)
            near(cells[6], self.p.get(v, math.nan), what + " p")
            near(cells[7], over_all.get((self.name, self.part, v), math.nan) if not self.second else math.nan, what + " p over all")
            self.check_words(v, cells[8], values, what)

    def check_words(self, v, cell, values, what):
        compared = v in self.d and v not in self.floors and v not in self.part_way and self.whole[v]
        verdict = "baseline failed" if compared and self.failed else self.verdict(v)
        if re.split("[;,]", cell)[0] != verdict:
            say(f"{what}: {cell}, not {verdict}")
        if ("; noise" in cell) != (compared and not self.failed and self.told(v) and self.noise[v]):
            say(f"{what}: {cell}, but noise is {self.noise.get(v)}")
        solved = re.search(r"(\d+) of (\d+) at (\S+) or more", cell)
        if solved:
            near(solved[1], (values >= float(solved[3])).sum(), what + " solved")
            near(solved[2], len(self.of[v]), what + " seeds")


def check_mean(cell, x, what):
    if not len(x):
        near(cell, math.nan, what + " mean")
        return
    mean, deviation = re.fullmatch(r"(\S+) \((\S+)\)", cell).groups()
    near(mean, x.mean(), what + " mean")
    near(deviation, x.std(ddof=1) if len(x) > 1 else 0.0, what + " deviation")


def check_difference(cell, mean, half, what):
    if not math.isfinite(half):
        near(cell.split()[0], mean, what + " difference")
        return
    parts = re.match(r"(\S+) \((\S+) to (\S+)\)", cell)
    for text, value in zip(parts.groups(), (mean, mean - half, mean + half)):
        near(text, value, what + " difference")


def check_others(table, lines):
    heads = re.findall(r"`([^`]+)`", lines[0])
    for line in lines[2:]:
        cells = cells_of(line)
        for v, cell in zip(heads, cells[1:]):
            check_mean(cell, finite(table.of[v], cells[0]), f"{table.name}/{table.part}/{v} {cells[0]}")


def tokens_until(row, loss):
    """Tokens until the curve, with lines between its points, falls to a loss."""
    points = [tuple(map(float, p.split(":"))) for p in row["curve"].split(";")]
    i = next(i for i, (_, y) in enumerate(points) if y <= loss)
    # the other way round than a line through two points: interp wants a rising abscissa
    step = points[i][0] if not i else np.interp(-loss, [-points[i - 1][1], -points[i][1]], [points[i - 1][0], points[i][0]])
    return step / points[-1][0] * float(row["tokens"])


def check_sooner(table, lines):
    for line in lines[2:]:
        cells = cells_of(line)
        v = re.search(r"\(`([^`]+)`\)$", cells[0]).group(1)
        what = f"{table.name}/{table.part}/{v} how soon"
        pairs = [(table.of[v][s], table.of[table.base][s]) for s in sorted(table.of[v]) if s in table.of[table.base]]
        loss = max(last_loss(row) for pair in pairs for row in pair)
        near(cells[1], loss, what)
        tokens = np.array([[tokens_until(row, loss) for row in pair] for pair in pairs])
        all_tokens = np.array([[float(row["tokens"]) for row in pair] for pair in pairs])
        seconds = tokens / all_tokens * np.array([[float(row["seconds"]) for row in pair] for pair in pairs])
        check_mean(cells[2], tokens[:, 0] / 1e6, what)
        check_mean(cells[3], tokens[:, 1] / 1e6, what + " baseline")
        spread = max(max(float(row["seconds"]) for row in rows) / min(float(row["seconds"]) for row in rows) for rows in zip(*pairs))
        if (cells[5] == "–") != (spread > 1.25):
            say(f"{what}: {cells[5]}, but equal runs lie {spread} apart")
        for cell, x in ((cells[4], tokens), (cells[5], seconds)):
            if cell == "–":
                continue
            d = np.log(x[:, 0] / x[:, 1])
            half = stats.sem(d) * stats.t.ppf(0.975, len(d) - 1)
            parts = re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", cell).groups()
            for text, value in zip(parts, (d.mean(), d.mean() - half, d.mean() + half)):
                near(text, math.exp(value), what + " ratio")


def blocks_of(text):
    """The tables of a text, each as its lines."""
    return [b.strip("\n").split("\n") for b in re.findall(r"(?:^\|.*\n)+", text, re.M)]


def read_chance(text, higher):
    m = re.search(r"Chance:\s+`(\S+)`\s+(\S+)\s+\(([^)]*)\)\.\s+The\s+baseline\s+is\s+no\s+better\s+at\s+(\d+)\s+of", text)
    return ((m[1], float(m[2]), higher and m[1] not in ("loss", "val")), int(m[4]), "failed**" in text) if m else (None, 0, False)


def read_page(claim, name, text, primary):
    """The tables of a claim's page; the first of a part decides."""
    tables = []
    for section in text.split("\n## ")[1:]:
        m = re.search(r"^Part `(\S+)`: (more|less) is", section, re.M)
        part, higher = m.groups() if m else (re.search(r"Part `(\S+?)`", section).group(1), "less")
        if not m:
            if "not measured yet" not in section or any(r["part"] == part and r["chosen"] == "1" for r in claim.rows):
                say(f"{name}/{part}: no table")
            continue
        halves = re.split(r"^By `\S+` \((more|less) is better\)", section.split("<details>")[0], flags=re.M)
        goes_on = bool(re.search(r"as\s+many\s+beyond", halves[0]))
        by = re.match(r"`(\S+)`", cells_of(blocks_of(halves[0])[0][0])[4]).group(1)
        for text_of, more in zip(halves[::2], [higher] + halves[1::2]):
            chance, trials, failed = read_chance(text_of, more == "more")
            table = Table(claim, name, part, more == "more", by, higher == "more", chance, goes_on,
                          blocks_of(text_of)[0], primary)
            near(str(trials), table.at_chance, f"{name}/{part}: trials at chance")
            if failed != table.failed:
                say(f"{name}/{part}: the baseline failed: {table.failed}")
            tables.append(table)
            for block in blocks_of(text_of)[1:]:
                check_sooner(table, block)
        if "<details>" in section:
            check_others(table if len(halves) == 1 else tables[-2], blocks_of(section.split("<details>")[1])[0])
    return tables


def read_questions(path):
    text = open(path, encoding="utf-8").read()
    names = dict(re.findall(r'#define (\w+) ("[^"]*")', text))
    text = text.split("evidence_questions[] = {")[1].split("};")[0]
    text = re.sub(r'"\s*\n\s*"', "", text)  # a string over two lines
    text = re.sub(r"\b(" + "|".join(names) + r")\b", lambda m: names[m[1]], text) if names else text
    row = r'\{"([^"]*)",\s*"([^"]*)", "([^"]*)",\s*"([^"]*)", (\d), (\d), (\S+?)\}'
    return [r for r in re.findall(row, text) if r[0]]


def read_primaries(path):
    """Hypothesis, claim, part, variant, margin of each row of the primary family."""
    text = open(path, encoding="utf-8").read()
    names = dict(re.findall(r'#define (\w+) ("[^"]*")', text))
    m = re.search(r"evidence_primaries\[\] = \{(.*?)\};", text, re.S)
    found = []
    for line in re.findall(r"(?:WITH_BOTH\(|\{)(\".*?)[)}],?\n", m[1] if m else ""):
        words = [names.get(w.strip(), w.strip()).strip('"') for w in re.split(r",\s*(?=\"|[A-Z0-9.]+(?:,|$))", line)]
        if len(words) == 4:
            found += [[words[0] + how, words[1], part, *words[2:]]
                      for how, part in ((", with AdamW", "adamw"), (", with the recipe `fast`", "fast"))]
        elif words[0]:
            found.append(words)
    return found


def check_primaries(primaries, rows, tables):
    """The family's rows: Holm over all of them, p = 1 for what is not whole."""
    if len(rows) != len(primaries):
        say(f"README.md: {len(rows)} rows of {len(primaries)} hypotheses")
    p, of = {}, {}
    for i, (hypothesis, name, part, v, margin) in enumerate(primaries):
        table = next((t for t in tables if (t.name, t.part, t.second) == (name, part, False)), None)
        seeds = int(rows[i][4].split(" of ")[1])
        whole = table is not None and len(table.of[v]) == len(table.of[table.base]) == seeds
        p[i], of[i] = 1.0, (table, whole)
        if whole and len(table.d[v]) == seeds and not table.failed:
            behind, margin = -table.mean[v] if table.higher else table.mean[v], float(margin)
            spread = stats.sem(table.d[v])
            t = (behind - margin) / spread if spread else math.copysign(math.inf, behind - margin)
            p[i] = table.raw[v] if not margin else float(stats.t.cdf(t, seeds - 1))
    corrected = holm(p)
    for i, (hypothesis, name, part, v, margin) in enumerate(primaries):
        table, whole = of[i]
        cells, verdict = rows[i], "not measured yet"
        if whole:
            behind = -table.mean[v] if table.higher else table.mean[v]
            holds = behind < float(margin) and corrected[i] < 0.05
            other = "**does not hold**" if behind - table.half[v] > float(margin) else "cannot be told"
            verdict = "**holds**" if holds else other
            verdict = "diverged" if len(table.d[v]) < len(table.of[v]) else verdict
            verdict = "baseline failed" if table.failed else verdict
            check_difference(cells[2], table.mean[v], table.half[v], hypothesis)
            near(cells[3], corrected[i] if verdict not in ("diverged", "baseline failed") else math.nan, hypothesis + " p")
        if cells[:2] != [hypothesis, verdict]:
            say(f"README.md: {cells[:2]}, not {hypothesis}: {verdict}")


def answer(table, variants, worse, claimed):
    """Which kind answers, in which words, and whether its rate or the baseline's is at the edge."""
    sign = 1 if table.higher != worse else -1
    v = max(variants.split(","), key=lambda k: sign * table.mean[k])
    if not table.of[v] or not table.of[table.base]:
        return v, "not measured yet"
    if table.failed:
        return v, "baseline failed"
    if table.verdict(v) == ("**worse**" if worse else "**better**"):
        return v, "holds within noise: not shown" if table.noise[v] else "**holds**"
    number = claimed / 100 * finite(table.of[table.base], table.measure).mean()
    outside = claimed and abs(number - table.mean[v]) > table.half[v]
    return v, "**does not hold**" if table.verdict(v) != "not told apart" or outside else "cannot be told"


def check_question(question, cells, tables, over_all):
    ask, name, part, variants, second, worse, claimed = question
    if cells[0] != ask:
        say(f"{ask}: the row is of {cells[0]}")
    if not variants:
        if cells[1] != "not tested":
            say(f"{ask}: {cells[1]}, but it is not tested")
        return
    found = [t for t in tables if (t.name, t.part, t.second) == (name, part, second == "1")]
    if not found:
        if cells[1] != "not measured yet":
            say(f"{ask}: {cells[1]}, but there is no table")
        return
    table = found[0]
    v, words = answer(table, variants, worse == "1", float(claimed))
    if cells[1] != words:
        say(f"{ask}: {cells[1]}, not {words}")
    if words == "not measured yet":
        return
    label, _, difference = cells[2].rpartition(": ")
    if label != (table.rows[v][0] if "," in variants else ""):
        say(f"{ask}: {cells[2]} is not of {v}")
    check_difference(difference, table.mean[v], table.half[v], ask)
    base = finite(table.of[table.base], table.measure).mean()
    for number, wanted, value in ((r"`; baseline ([^\s,]+)", table.second, base),
                                  (r", claimed (\S+)$", float(claimed) != 0, base * float(claimed) / 100)):
        there = re.search(number, difference)
        if bool(there) != wanted:
            say(f"{ask}: {cells[2]}")
        if there and abs(float(there[1]) - value) > 0.005 * abs(value):
            say(f"{ask}: {there[0]}")
    near(cells[3], len(table.of[v]), ask + " seeds")
    told = table.told(v) and not table.failed
    survives = "–"
    if told:
        survives = "not counted" if second == "1" else "yes" if over_all[(name, part, v)] < 0.05 else "no"
    care = [w for w, is_so in (("edge", table.edge(v) or table.edge(table.base)), ("noise", told and table.noise[v])) if is_so]
    if cells[4] != survives or cells[5] != ", ".join(care):
        say(f"{ask}: {cells[4:6]}, not {survives}, {care}")


def check_tally(text, tables, over_all):
    first = [t for t in tables if not t.second]
    numbers = re.search(r"\*Over all tables:\*(.*?or\s+the\s+highest)", text, re.S).group(1)
    got = [int(n) for n in re.findall(r"\d+", numbers)]
    bad, good = [t for t in first if t.raw and t.failed], [t for t in first if t.raw and not t.failed]
    compared = [sum(len(t.raw) for t in g) for g in (good, bad)]
    told = [sum(t.told(v) for t in g for v in t.raw) for g in (good, bad)]
    survive = [sum(over_all[(t.name, t.part, v)] < 0.05 for t in g for v in t.raw) for g in (good, bad)]
    kinds = [(t, v) for t in first for v in t.of if v not in t.floors and t.of[v]]
    trials = [[r for r in t.claim.rows_of(t.part, v) if r["chosen"] == "0"] for t, v in kinds]
    tuned = [rows for rows in trials if len({(str(r["m"]), r["curve"]) for r in rows}) > 1]  # else all rates are one
    want = [sum(compared), len(good) + len(bad), len(bad), compared[1], compared[0], told[0], survive[0], sum(compared),
            sum(t.edge(v) for t, v in kinds), len(tuned)]
    for a, b in zip(got, want, strict=True):
        near(str(a), b, "over all tables")


def check_costs(text, claims, tables):
    words = ["**better**", "**worse**", "not told apart", "diverged"]
    for line in blocks_of(text.split("<!-- rows: begin")[1])[0][2:]:
        cells = cells_of(line)
        name = re.match(r"\[(\S+)\]", cells[0]).group(1)
        mine = [t for t in tables if t.name == name and not t.second]
        kinds = [(t, v) for t in mine for v in t.of if t.of[v] and v not in t.floors and v != t.base]
        for word, cell in zip(words, cells[4:]):
            count = sum(t.verdict(v) == word for t, v in kinds if not t.failed or word == "diverged")
            near(cell, count, f"{name}: kinds {word}")
        near(cells[9], sum(len(t.raw) for t in mine if t.failed), f"{name}: baseline failed")
        if name in claims and int(cells[1].split()[0]) > len(claims[name].rows):
            say(f"{name}: {cells[1]} rows, but the file has {len(claims[name].rows)}")


def main(results, report, questions):
    read = lambda name: open(os.path.join(report, name), encoding="utf-8").read()
    claims = {os.path.basename(p)[:-4]: Claim(p) for p in glob.glob(os.path.join(results, "*.csv"))}
    pages = {n: read(f"results/{n}.md").split("<!-- rows: end -->")[0] for n in claims}
    primaries = read_primaries(questions)
    primary = {name for _, name, *_ in primaries}
    tables = [t for n in claims for t in read_page(claims[n], n, pages[n], n in primary)]
    explored = [t for t in tables if t.name not in primary]
    over_all = holm({(t.name, t.part, v): p for t in explored if not t.second for v, p in t.raw.items()})
    for t in tables:
        t.check(over_all)
    asked = read_questions(questions)
    overview = read("README.md")
    if primaries:
        rows = [cells_of(l) for l in blocks_of(overview)[0][2:]]
        check_primaries(primaries, rows, tables)
        for (hypothesis, name, *_), cells in zip(primaries, rows):
            if name in pages and "| " + " | ".join(cells[:5]) + " |\n" not in pages[name]:
                say(f"{name}.md: does not repeat the answer to {hypothesis}")
    rows = [cells_of(l) for l in blocks_of(overview)[1 if primaries else 0][2:]]
    if len(rows) != len(asked):
        say(f"README.md: {len(rows)} rows of {len(asked)} questions")
    for question, cells in zip(asked, rows):
        check_question(question, cells, tables, over_all)
        if question[1] in pages and "| " + " | ".join(cells[:6]) not in pages[question[1]]:
            say(f"{question[1]}.md: does not repeat the answer to {question[0]}")
    check_tally(overview, explored, over_all)
    check_costs(read("METHOD.md"), claims, tables)
    for name, claim in claims.items():
        for part in {r["part"] for r in claim.rows if r["chosen"] == "1"}:
            if not any((t.name, t.part) == (name, part) for t in tables):
                say(f"{name}/{part}: rows without a table")
    print(f"{checked} numbers compared, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:4]))
