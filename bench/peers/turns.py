#!/usr/bin/env python3
"""turns.py [--rounds N] [--count TOKENS] [--what TEXT] [--memory] NAME=COMMAND...: programs do the same work in turns.

A COMMAND answers every line on its standard input with one line: the seconds that one piece of work took; before the first it
prints one line, "ready ..". `build/bench --serve WORK` does so, and so do the scripts beside this one. The first command is what
the others are held against. Prints medians, TOKENS over them, quotients of times (of each round, then their median), and with
--memory the peak resident memory of the commands.
"""
import argparse, shlex, statistics, subprocess, sys


class Contender:
    def __init__(self, text):
        self.name, _, command = text.partition("=")
        self.process = subprocess.Popen(shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline().startswith("ready"):
            sys.exit(f"turns: {self.name} does not start: {command}")
        self.times = []

    def turn(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"turns: {self.name} has stopped")
        self.times.append(float(line))

    def memory(self):
        """Peak resident MiB, None where there is no /proc."""
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
    contenders = [Contender(text) for text in options.contender]
    for _ in range(options.rounds):
        for c in contenders:
            c.turn()
    ours = contenders[0]
    print(f"{options.what}, median of {options.rounds} in turns")
    heading = f"  {'':28} {'ms':>10} {'tokens/s':>10} {'to the first':>13}"
    print(heading + (f" {'peak MiB':>9} {'to the first':>13}" if options.memory else ""))
    for c in contenders:
        time = statistics.median(c.times)
        ratio = statistics.median(t / o for t, o in zip(c.times, ours.times))
        speed = f"{options.count / time:.0f}" if options.count else "-"
        memory, first = (c.memory(), ours.memory()) if options.memory else (None, None)
        space = f" {memory:9.0f} {memory / first:13.2f}" if memory and first else ""
        print(f"  {c.name:28} {1e3 * time:10.2f} {speed:>10} {ratio:13.2f}{space}", flush=True)
    for c in contenders:
        c.process.stdin.close()
        c.process.wait()


main()
