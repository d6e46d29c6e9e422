#!/usr/bin/env python3
"""turns.py [--rounds N] [--count TOKENS] [--what TEXT] [--memory] NAME=COMMAND...: programs do the same work in turns.

A COMMAND answers every line on its standard input with one line: the seconds that one piece of work took, and after them, if it
has another program do the work, that program's peak MiB; before the first it prints one line, "ready ..". `build/bench --serve
WORK` does so, and so do the scripts beside this one. The first command is what the others are held against. Prints medians, TOKENS
over them, quotients of times (of each round: their median, least and largest), and with --memory the peak resident memory.

OpenMP's threads go on spinning for a while after their work, into the next program's turn: between two turns there is a pause of
0.1 seconds, and of more until the one before uses no CPU any more (where there is a /proc).
"""
import argparse, os, shlex, statistics, subprocess, sys, time

PAUSE, MOST_PAUSES = 0.1, 30
TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Contender:
    def __init__(self, text):
        self.name, _, command = text.partition("=")
        try:
            self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            started = self.process.stdout.readline().startswith("ready")
        except (OSError, IndexError):  # no such program, no command at all
            started = False
        if not started:
            sys.exit(f"turns: {self.name} does not start: {command}")
        self.times, self.peak, self.restless = [], None, False

    def turn(self):
        try:
            os.write(self.process.stdin.fileno(), b"\n")  # no buffer, which a later Python flushes once more
            line = self.process.stdout.readline().split()
        except OSError:  # a pipe that nobody reads
            line = []
        if not line:
            sys.exit(f"turns: {self.name} has stopped")
        try:
            self.times.append(float(line[0]))
            if len(line) > 1:
                self.peak = max(self.peak or 0, float(line[1]))
        except ValueError:
            sys.exit(f"turns: {self.name} answers no seconds: {' '.join(line)}")
        self.rest()

    def cpu(self):
        """Seconds of CPU time so far, its children's included; None where there is no /proc."""
        try:
            with open(f"/proc/{self.process.pid}/stat") as f:
                return sum(int(x) for x in f.read().rpartition(")")[2].split()[11:15]) / TICK
        except (OSError, ValueError):
            return None

    def rest(self):
        """Waits until its threads no longer spin; notes it if they never stop."""
        before = self.cpu()
        for _ in range(MOST_PAUSES):
            time.sleep(PAUSE)
            now = self.cpu()
            if now is None or now - before < PAUSE / 5:
                return
            before = now
        self.restless = True

    def memory(self):
        """Peak resident MiB, None where there is no /proc."""
        if self.peak:
            return self.peak
        try:
            with open(f"/proc/{self.process.pid}/status") as f:
                return next(int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM"))
        except (OSError, StopIteration):
            return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=float, default=0, help="tokens of one piece of work")
    parser.add_argument("--what", default="")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("contender", nargs="+")
    options = parser.parse_args()
    if options.rounds < 1:
        sys.exit("turns: --rounds takes a number from 1 up")
    contenders = []
    for text in options.contender:
        contenders.append(Contender(text))
        contenders[-1].rest()
    for _ in range(options.rounds):
        for c in contenders:
            c.turn()
    ours = contenders[0]
    print(f"{options.what}, median of {options.rounds} in turns")
    heading = f"  {'':34} {'ms':>10} {'tokens/s':>10} {'to the first':>13} {'range':>13}"
    print(heading + (f" {'peak MiB':>9} {'to the first':>13}" if options.memory else ""))
    for c in contenders:
        seconds = statistics.median(c.times)
        ratios = [t / o for t, o in zip(c.times, ours.times)]
        speed = f"{options.count / seconds:.0f}" if options.count else "-"
        between = f"{min(ratios):.2f} to {max(ratios):.2f}" if c is not ours else ""
        memory, first = (c.memory(), ours.memory()) if options.memory else (None, None)
        space = f" {memory:9.0f} {memory / first:13.2f}" if memory and first else ""
        print(f"  {c.name:34} {1e3 * seconds:10.3f} {speed:>10} {statistics.median(ratios):13.2f} {between:>13}{space}", flush=True)
    for c in contenders:
        if c.restless:
            print(f"  {c.name} kept using the CPU between its turns: the others were disturbed")
        c.process.stdin.close()
        c.process.wait()


main()
