"""evidence.py RESULTS README: computes every number of the report's tables from the CSV files again, with Python's csv and SciPy,
and says which differ. Knows nothing of the program but the columns and the words of README.md. Without SciPy: says so and ends well."""
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
    if abs(float(text) - value) > 0.5000001 * 10.0 ** -digits + 1e-8 * abs(value):
        say(f"{what}: {text}, not {value}")


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
        for r in trials:
            v, rate = r["m"].get(by, math.nan), float(r["rate"])
            last = float(r["curve"].split(";")[-1].split(":")[1]) if r["curve"] else math.nan
            last = last if math.isfinite(last) else math.inf
            if math.isfinite(v):  # of equals the lowest loss at the end, then the middle rate, then the lowest
                key = (-v if higher else v, last, len(rates) < 2 or rate != rates[1], rate)
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


def corrected_p(of, base, floors, measure):
    """Holm's p of every kind that is compared with the baseline, the differences, and who has a finite number for each seed."""
    d = {v: paired(of[v], of[base], measure) for v in of if v != base}
    finite = {v: all(math.isfinite(r["m"].get(measure, math.nan)) for r in of[v].values()) for v in of}
    raw = {}
    for v in d:
        if v not in floors and finite[v] and len(d[v]) > 1:
            same = np.all(d[v] == d[v][0])
            raw[v] = float(stats.ttest_1samp(d[v], 0).pvalue) if not same else float(d[v][0] == 0)
            # the same by pairs, as SciPy has it
            a = [of[v][s]["m"][measure] for s in sorted(of[v]) if s in of[base]]
            b = [of[base][s]["m"].get(measure, math.nan) for s in sorted(of[v]) if s in of[base]]
            if not same and np.all(np.isfinite(b)) and abs(float(stats.ttest_rel(a, b).pvalue) - raw[v]) > 1e-9:
                say(f"{measure} of {v}: SciPy disagrees with itself")
    return holm(raw), d, finite


def check_table(claim, name, part, higher, measure, lines):
    rows = []
    for line in lines:
        cells = [c.strip() for c in line.strip().strip("|").split(" | ")]
        rows.append((re.search(r"\(`([^`]+)`\)$", cells[0]).group(1), cells))
    base = rows[0][0]
    of = {v: claim.seeds(part, v, measure, higher) for v, _ in rows}
    floors = {v for v in of if claim.rows_of(part, v) and "like" in claim.rows_of(part, v)[0]["w"]}
    corrected, d, finite = corrected_p(of, base, floors, measure)
    for v, cells in rows:
        what = f"{name}/{part}/{v}"
        values = np.array([r["m"][measure] for r in of[v].values() if math.isfinite(r["m"][measure])])
        near(cells[3], len(of[v]), what + " seeds")
        if not of[v]:
            if "not measured yet" not in cells[9]:
                say(what + ": says nothing of rows that are not there")
            continue
        near(cells[1], float(next(iter(of[v].values()))["parameters"]), what + " parameters")
        near(cells[2], claim.rate(part, v, measure, higher), what + " rate")
        near(cells[4], values.mean() if len(values) else math.nan, what + " mean")
        near(cells[5], values.std(ddof=1) if len(values) > 1 else 0.0, what + " deviation")
        solved = re.search(r"(\d+) of (\d+) at (\S+) or more", cells[9])
        if solved:
            near(solved[1], (values >= float(solved[3])).sum(), what + " solved")
            near(solved[2], len(of[v]), what + " seeds")
        if v == base:
            continue
        near(cells[6], d[v].mean() if len(d[v]) else math.nan, what + " difference")
        if len(d[v]) > 1:
            half = stats.sem(d[v]) * stats.t.ppf(0.975, len(d[v]) - 1)
            low, high = cells[7].split(" to ")
            near(low, d[v].mean() - half, what + " interval")
            near(high, d[v].mean() + half, what + " interval")
        if v in corrected:
            p = corrected[v]
            if cells[8].startswith("<"):
                if p >= float(cells[8][1:]):
                    say(f"{what}: p {cells[8]}, not {p}")
            else:
                near(cells[8], p, what + " p")
            verdict = "not told apart" if p >= 0.05 else "**better**" if (d[v].mean() > 0) == higher else "**worse**"
        else:
            near(cells[8], math.nan, what + " p")
            verdict = "noise floor" if v in floors else "diverged" if not finite[v] else "not told apart"
        if not cells[9].startswith(verdict):
            say(f"{what}: {cells[9]}, not {verdict}")
    return of, d, floors


def check_others(claim, name, part, of, lines):
    heads = re.findall(r"`([^`]+)`", lines[0])
    for line in lines[2:]:
        cells = [c.strip() for c in line.strip().strip("|").split(" | ")]
        for v, cell in zip(heads, cells[1:]):
            x = np.array([r["m"][cells[0]] for r in of[v].values() if math.isfinite(r["m"].get(cells[0], math.nan))])
            what = f"{name}/{part}/{v} {cells[0]}"
            if not len(x):
                near(cell, math.nan, what)
                continue
            mean, deviation = re.fullmatch(r"(\S+) \((\S+)\)", cell).groups()
            near(mean, x.mean(), what)
            near(deviation, x.std(ddof=1) if len(x) > 1 else 0.0, what + " deviation")


def check_sentence(sentence, labels, of, d, base, what):
    """The differences with their intervals, and the baseline's mean."""
    for label, mean, half in re.findall(r"(?:[:,] )([^:]*?) \(([-+][\d.]+) ± ([\d.]+)\)", sentence):
        v = [v for v in labels if labels[v] == label or label.endswith(labels[v])]
        v = max(v, key=lambda k: len(labels[k])) if v else None
        if v is None:
            say(f"{what}: nothing is known of {label}")
            continue
        near(mean, d[v].mean(), f"{what} {label}")
        near(half, stats.sem(d[v]) * stats.t.ppf(0.975, len(d[v]) - 1), f"{what} {label}")


def check_second(sentence, labels, of, floors, base, measure, higher, what):
    """A sentence about a second measure: its numbers, and in which list each kind stands."""
    corrected, d, finite = corrected_p(of, base, floors, measure)
    values = np.array([x for x in (r["m"].get(measure, math.nan) for r in of[base].values()) if math.isfinite(x)])
    near(re.match(r"against .*? \(([\d.]+)\)", sentence).group(1), values.mean(), what + " mean")
    check_sentence(sentence, labels, of, d, base, what)
    seeds, compared = re.search(r"(\d+) seeds, p corrected for (\d+) comparisons", sentence).groups()
    near(seeds, len(of[base]), what + " seeds")
    near(compared, len(corrected), what + " comparisons")
    for v in corrected:
        verdict = "not told apart" if corrected[v] >= 0.05 else "better" if (d[v].mean() > 0) == higher else "worse"
        places = [part for part in re.split("; |\\. ", sentence) if f" {labels[v]} (" in part]
        if len(places) != 1 or not places[0].startswith(verdict + ": "):
            say(f"{what}: {labels[v]} is not among those {verdict}")


def main(results, readme):
    text = open(readme, encoding="utf-8").read()
    text = text.split("<!-- rows: begin")[1].split("-->\n", 1)[1].split("<!-- rows: end -->")[0]
    claims = {os.path.basename(p)[:-4]: Claim(p) for p in glob.glob(os.path.join(results, "*.csv"))}
    seen = set()
    overview, *sections = text.split("\n### ")
    for name, there in re.findall(r"\| (\S+): .*? \| (\d+) of \d+ \|", overview):
        if name in claims and int(there) > len(claims[name].rows):
            say(f"{name}: {there} rows, but the file has {len(claims[name].rows)}")
    for section in sections:
        name = re.search(r"`build/evidence run (\S+?)`", section).group(1)
        tables = re.split(r"\n\*\*(.+?)\*\* \(`(\S+?)`; (more|less) is better\)\n\n", section)
        sentences = dict(re.findall(r"\*Found, (.*?):\* (.*)\n", tables[0]))
        seconds = re.findall(r"\*By `(\S+?)`, (.*) \((more|less) is better\):\* (.*)\n", tables[0])
        if len(seconds) != len(re.findall(r"^\*By ", tables[0], re.M)):
            say(f"{name}: a second sentence that cannot be read")
        for label, part, better, body in zip(tables[1::4], tables[2::4], tables[3::4], tables[4::4]):
            head, rows = body.split("\n", 1)
            lines = re.findall(r"^\| .*$", body.split("<details>")[0], re.M)
            measure = re.search(r"mean of `(\S+?)`", lines[0]).group(1)
            rows = [l for l in lines[1:] if not l.startswith("|---")]
            of, d, floors = check_table(claims[name], name, part, better == "more", measure, rows)
            labels = {}
            for l in rows:
                m = re.match(r"\| (.*) \(`(\S+?)`\) \|", l)
                labels[m.group(2)] = m.group(1)
            check_sentence(sentences[label], labels, of, d, rows[0], f"{name}/{part}: the sentence")
            for second, its, more, sentence in seconds:
                if its == label:
                    check_second(sentence, labels, of, floors, next(iter(of)), second, more == "more", f"{name}/{part}: {second}")
            if "<details>" in body:
                others = re.findall(r"^\|.*$", body.split("<details>")[1].split("</details>")[0], re.M)
                check_others(claims[name], name, part, of, others)
            seen.add((name, part))
    for line in re.findall(r"^\| \S+: .*$", overview, re.M):
        name, cells = line[2:].split(":")[0], [c.strip() for c in line.strip("| ").split(" | ")]
        words = ["**better**", "**worse**", "not told apart", "diverged"]
        verdicts = [l.strip("| ").split(" | ")[-1] for s in sections if f"`build/evidence run {name}`" in s
                    for l in re.findall(r"^\| .*\(`[^`]+`\) \| .*$", s, re.M)]
        for word, cell in zip(words, cells[4:]):
            near(cell, sum(v.startswith(word) for v in verdicts), f"{name}: kinds {word}")
    for name, claim in claims.items():
        for part in {r["part"] for r in claim.rows if r["chosen"] == "1"}:
            if (name, part) not in seen:
                say(f"{name}/{part}: rows without a table")
    print(f"{checked} numbers compared, {wrong} wrong")
    return 1 if wrong else 0


sys.exit(main(*sys.argv[1:3]))
