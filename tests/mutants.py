#!/usr/bin/env python3
"""tests/mutants.py FOLDER [LIST] [--check | --self]: builds wrong changes of cmha.h, or of a header of the
examples, and runs the tests.

Each entry of LIST (tests/mutants.txt, whose first lines describe it) is a mutant. The first test that fails,
crashes or does not end kills it; one that passes all of them survives. --check only looks whether every entry
still fits cmha.h and names tests that are there; --self tests this program. Environment: ONLY takes the entries whose name holds one of its
words, JOBS says how many at a time (as many as cores), CC, CMHA_CFLAGS and CMHA_LIBS compile. cmha.h is never
written; FOLDER is for what is built.
The last line is N passed, N failed: killed, and what survives or does not fit.
"""
import concurrent.futures
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CC = shlex.split(os.environ.get("CC", "cc"))
CFLAGS = shlex.split(os.environ.get("CMHA_CFLAGS", "-march=native -fopenmp"))
LIBS = shlex.split(os.environ.get("CMHA_LIBS", "-fopenmp -lopenblas -lm"))
SECONDS, PATIENCE, MEMORY = 90, 300, 8 << 30  # a test's: processor time, time, address space
DOUBLE = "-f64"  # ends the names of tests that take the library in double


class Mutant:
    def __init__(self, name):
        self.name, self.tries, self.flags, self.old, self.new = name, [], [], [], []
        self.file = "cmha.h"
        self.library, self.lock, self.verdict = {}, threading.Lock(), ""


def read_list(path):
    mutants = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            word, _, rest = line.partition(" ")
            if not line.strip() or word == "#":
                continue
            if word == "mutant":
                mutants.append(Mutant(rest.strip()))
            elif not mutants:
                sys.exit(f"{path}:{number}: before the first mutant")
            elif word == "try":
                mutants[-1].tries = rest.split()
            elif word == "in":
                mutants[-1].file = rest.strip()
            elif word == "with":
                mutants[-1].flags = rest.split()
            elif line[0] in " -+":
                mutants[-1].old += [line[1:]] * (line[0] != "+")
                mutants[-1].new += [line[1:]] * (line[0] != "-")
            else:
                sys.exit(f"{path}:{number}: neither mutant, try, in, with, a comment nor a line of a change")
    for name in (m.name for m in mutants):
        if sum(m.name == name for m in mutants) > 1:
            sys.exit(f"{path}: {name} comes twice")
    return mutants


def read_files(mutants):
    texts = {}
    for path in {"cmha.h"} | {m.file for m in mutants}:
        with open(f"{ROOT}/{path}", encoding="utf-8") as file:
            texts[path] = file.read()
    return texts


def changed(header, mutant):
    """The header with the mutant's change, or None and what is wrong. White space fits any white space."""
    words = "\n".join(mutant.old).split()
    found = list(re.finditer(r"\s+".join(re.escape(word) for word in words), header)) if words else []
    if len(found) != 1:
        return None, f"its old text is found {len(found)} times"
    new = "\n".join(mutant.new).strip()
    if new.split() == words:
        return None, "it changes nothing"
    return header[: found[0].start()] + new + header[found[0].end() :], ""


def names_of_tests():
    names = sorted(n[:-2] for n in os.listdir(f"{ROOT}/tests") if re.match(r"(test|grad)_.*\.c$", n))
    return [n + DOUBLE if n.startswith("grad_") else n for n in names] + ["conformance", "conformance" + DOUBLE]


def unknown(mutant):
    """What keeps a mutant from being tried, whatever the header says."""
    missing = [test for test in mutant.tries if test not in names_of_tests()]
    return f"there is no test {missing[0]}" if missing else ""


class Bench:
    """The tests' objects, compiled once for every set of flags; each mutant's library is linked to them."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.tests = names_of_tests()
        self.seconds = dict.fromkeys(self.tests, 0.0)
        self.lock = threading.Lock()

    def compile(self, source, out, flags, level="-O1"):
        command = CC + CFLAGS + [level, "-w"] + flags + [f"-I{ROOT}", "-c", "-o", out, source]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    def objects(self, flags):
        folder = self.objects_of(flags)
        os.makedirs(folder, exist_ok=True)
        headers = [f"{ROOT}/cmha.h"]
        for part in ("tests", "examples", "examples/tools"):
            headers += [f"{ROOT}/{part}/{n}" for n in os.listdir(f"{ROOT}/{part}") if n.endswith(".h")]
        newest = max(os.path.getmtime(path) for path in headers)
        for test in self.tests:
            source, out = f"{ROOT}/tests/{test.removesuffix(DOUBLE)}.c", f"{folder}/{test}.o"
            if os.path.exists(out) and os.path.getmtime(out) > max(newest, os.path.getmtime(source)):
                continue
            double = ["-DCMHA_DOUBLE"] if test.endswith(DOUBLE) else []
            done = self.compile(source, out, flags + double + ["-DCMHA_TEST_LINKED"])
            if done.returncode:
                sys.exit(f"{source} does not compile\n{done.stderr[-2000:]}")
        return folder

    def library(self, mutant, header, folder, double):
        """Its object, or None where it does not compile."""
        out = f"{folder}/library{DOUBLE if double else ''}.o"
        with mutant.lock:
            if double not in mutant.library:
                with open(f"{folder}/cmha.h", "w", encoding="utf-8") as file:
                    file.write(header)
                flags = ["-DCMHA_IMPLEMENTATION", "-x", "c"] + ["-DCMHA_DOUBLE"] * double
                done = self.compile(f"{folder}/cmha.h", out, mutant.flags + flags, "-O0")
                mutant.library[double] = out if done.returncode == 0 else None
        return mutant.library[double]

    def whole(self, flags, double):
        """The library as it is, for mutants of other files."""
        out = os.path.join(self.objects_of(flags), f"library{DOUBLE if double else ''}.o")
        with self.lock:
            if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(f"{ROOT}/cmha.h"):
                more = ["-DCMHA_IMPLEMENTATION", "-x", "c"] + ["-DCMHA_DOUBLE"] * double
                self.compile(f"{ROOT}/cmha.h", out, flags + more)
        return out

    def objects_of(self, flags):
        return os.path.join(self.folder, "tests" + "".join(flags))

    def with_change(self, mutant, text, folder, test):
        """The test's object with another file than cmha.h changed: compiled in a tree of links to ours."""
        for part in ("", "tests", "examples", "examples/tools"):
            os.makedirs(f"{folder}/tree/{part}", exist_ok=True)
            for name in os.listdir(f"{ROOT}/{part}"):
                link = f"{folder}/tree/{part}/{name}"
                if os.path.isfile(f"{ROOT}/{part}/{name}") and not os.path.lexists(link):
                    os.symlink(f"{ROOT}/{part}/{name}", link)
        os.remove(f"{folder}/tree/{mutant.file}")
        with open(f"{folder}/tree/{mutant.file}", "w", encoding="utf-8") as file:
            file.write(text)
        double = ["-DCMHA_DOUBLE"] if test.endswith(DOUBLE) else []
        done = self.compile(f"{folder}/tree/tests/{test.removesuffix(DOUBLE)}.c", f"{folder}/{test}.o",
                            mutant.flags + double + ["-DCMHA_TEST_LINKED", f"-I{folder}/tree"])
        if done.returncode == 0 and "convert" in test:  # it runs that program
            command = CC + CFLAGS + ["-O1", "-w", f"-I{folder}/tree", "-DWITH_TOKENIZER", "-DCMHA_LINKED",
                                     "-o", f"{folder}/convert", f"{folder}/tree/examples/tools/convert.c",
                                     self.whole(mutant.flags, False)] + LIBS
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return f"{folder}/{test}.o" if done.returncode == 0 else None

    def run(self, mutant, header, folder, test):
        """What the test says against the mutant: nothing, or how it fails."""
        double = test.endswith(DOUBLE)
        if mutant.file == "cmha.h":
            library = self.library(mutant, header, folder, double)
            built = f"{self.objects_of(mutant.flags)}/{test}.o"
        else:
            library = self.whole(mutant.flags, double)
            built = self.with_change(mutant, header, folder, test)
        if not library or not built:
            return "does not compile"
        program = f"{folder}/{test}"
        link = CC + CFLAGS + ["-o", program, built, library] + LIBS + ["-pthread"]
        done = subprocess.run(link, capture_output=True, text=True, check=False)
        if done.returncode:
            return "does not link"
        cases = ["--strict", "tests/cases"] if test.startswith("conformance") else []
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            status = watch([program] + cases, output)
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines() or [""]
        os.remove(program)
        self.seconds[test] = max(self.seconds[test], time.monotonic() - began)
        if status is None:
            return "does not end"
        good = re.match(r"[1-9][0-9]* passed, 0 failed", lines[-1])
        if status == 0 and good:
            return ""
        return lines[-1] if "failed" in lines[-1] else f"stops with status {status}"


def watch(arguments, output):
    """Runs a test, and ends it with all its children when it takes too long: then the status is None."""
    environment = dict(os.environ, CMHA_TEST_QUICK="1", GOMP_SPINCOUNT="100")
    limits = f'ulimit -c 0; ulimit -t {SECONDS}; ulimit -v {MEMORY >> 10}; exec "$@"'
    process = subprocess.Popen(["/bin/sh", "-c", limits, "sh"] + arguments, cwd=ROOT, env=environment,
                               stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        status = None
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return None if status in (-signal.SIGXCPU, -signal.SIGKILL) else status


def judge(bench, mutant, header, order):
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        for test in order:
            why = bench.run(mutant, header, folder, test)
            if why in ("does not compile", "does not link"):
                return why
            if why:
                return f"killed by {test}: {why}"
    return "survives"


def unchanged_passes(bench, header, flags, pool):
    """The header as it is must pass everything, or no verdict would mean anything. What has passed since its
    object was compiled is not run again."""
    plain = Mutant("cmha.h as it is")
    plain.flags = flags
    objects = bench.objects(flags)
    old = [t for t in bench.tests if os.path.exists(f"{objects}/{t}.seconds")
           and os.path.getmtime(f"{objects}/{t}.seconds") > os.path.getmtime(f"{objects}/{t}.o")]
    for test in old:
        with open(f"{objects}/{test}.seconds", encoding="utf-8") as file:
            bench.seconds[test] = max(bench.seconds[test], float(file.read()))
    new = [test for test in bench.tests if test not in old]
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        said = list(pool.map(lambda test: bench.run(plain, header, folder, test), new))
    for test, why in zip(new, said):
        if why:
            print(f"FAIL {test} on cmha.h as it is {' '.join(flags)}: {why}")
        else:
            with open(f"{objects}/{test}.seconds", "w", encoding="utf-8") as file:
                file.write(str(bench.seconds[test]))
    return not any(said)


def run_all(bench, mutants):
    texts = read_files(mutants)
    jobs = int(os.environ.get("JOBS") or os.cpu_count() or 1)
    started = time.monotonic()

    def one(mutant):
        text, why = changed(texts[mutant.file], mutant)
        why = why or unknown(mutant)
        if not why:
            others = bench.tests if mutant.file == "cmha.h" else []  # of other files the named tests alone
            rest = sorted((t for t in others if t not in mutant.tries), key=bench.seconds.get)
            mutant.verdict = judge(bench, mutant, text, mutant.tries + rest)
        else:
            mutant.verdict = f"does not fit: {why}"
        killed = mutant.verdict.startswith("killed")
        print(f"{'    ' if killed else 'FAIL'} {mutant.name}: {mutant.verdict}", flush=True)
        return killed

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for flags in sorted({tuple(m.flags) for m in mutants}):
            if not unchanged_passes(bench, texts["cmha.h"], list(flags), pool):
                return False
        killed = sum(pool.map(one, mutants))
    rooms = {}
    for mutant in mutants:
        room = rooms.setdefault(mutant.name.partition(":")[0], [0, 0])
        room[0] += mutant.verdict.startswith("killed")
        room[1] += 1
    print("; ".join(f"{room} {k} of {n}" for room, (k, n) in rooms.items()))
    for mutant in mutants:
        if not mutant.verdict.startswith("killed"):
            print(f"NOT KILLED {mutant.name}: {mutant.verdict}")
    print(f"{time.monotonic() - started:.0f} seconds, {jobs} at a time")
    print(f"{killed} passed, {len(mutants) - killed} failed")
    return killed == len(mutants)


SELF = """\
mutant self: a change that no test can notice
-{"F64", 8}, {"F32", 4},
+{"F" "64", 8}, {"F32", 4},
mutant self: an old text that is not there
-no such text in the header
+nothing
mutant self: an old text that is there more than once
-if (!y) return NULL;
+if (!y) return y;
mutant self: a change that is none
 {"F64", 8}, {"F32", 4},
mutant self: a test that is not there
try test_of_nothing
-{"F64", 8}, {"F32", 4},
+{"F32", 4}, {"F64", 8},
mutant self: a change that does not compile
-{"F64", 8}, {"F32", 4},
+{F64, 8}, {"F32", 4},
mutant self: a wrong result
try test_base
-return (double)(cmha_rng_next(rng) >> 11) * (1.0 / 9007199254740992.0);
+return 2;
mutant self: a loop that does not end
try test_base
-return (double)(cmha_rng_next(rng) >> 11) * (1.0 / 9007199254740992.0);
+for (;;) cmha_rng_next(rng);
"""
WANTED = ["survives", "does not fit: its old text is found 0", "does not fit: its old text is found ",
          "does not fit: it changes nothing", "does not fit: there is no test", "does not compile",
          "killed by test_base: ", "killed by test_base: does not end"]


def check_self(bench):
    """This program's own test: it must tell each of these apart."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", dir=bench.folder) as file:
        file.write(SELF)
        file.flush()
        mutants = read_list(file.name)
    run_all(bench, mutants)
    wrong = [m for m, want in zip(mutants, WANTED) if not m.verdict.startswith(want)]
    for mutant in wrong:
        print(f"FAIL {mutant.name}: {mutant.verdict}")
    print(f"{len(mutants) - len(wrong)} passed, {len(wrong)} failed")
    return not wrong


def check_list(mutants):
    texts = read_files(mutants)
    said = [(m, changed(texts[m.file], m)[1] or unknown(m)) for m in mutants]
    bad = [(mutant, why) for mutant, why in said if why]
    for mutant, why in bad:
        print(f"FAIL {mutant.name}: {why}")
    print(f"{len(mutants) - len(bad)} passed, {len(bad)} failed")
    return not bad


def main():
    options = [a for a in sys.argv[1:] if a.startswith("--")]
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    if not paths or len(paths) > 2 or options not in ([], ["--check"], ["--self"]):
        sys.exit(__doc__)
    words = os.environ.get("ONLY", "").split()
    mutants = read_list(paths[1] if len(paths) > 1 else f"{ROOT}/tests/mutants.txt")
    mutants = [m for m in mutants if not words or any(word in m.name for word in words)]
    if options == ["--check"]:
        sys.exit(not check_list(mutants))
    bench = Bench(os.path.abspath(paths[0]))
    sys.exit(not (check_self(bench) if options else mutants and run_all(bench, mutants)))


main()
