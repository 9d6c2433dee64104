#!/usr/bin/env python3
"""Times programs from their start to their end, in turn, and prints the median and the most memory each held.

    scripts/bench/start.py [--rounds N] NAME=COMMAND ...

To see what a start with UForm costs, name programs that load a model and embed a few texts, beside interpreters that do nothing:

    cc -std=c11 -O2 -Iinclude tests/c/example.c target/release/libuform_c.so -Wl,-rpath,$PWD/target/release -o example
    scripts/bench/start.py "C=./example MODEL" "Python=python3 tests/example.py MODEL" "Python alone=python3 -c pass"

The page cache holds the files from the second round on; the first is not counted.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import time


def run(command):
    """Seconds from start to end, and the most resident bytes."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"{shlex.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("programs", nargs="+", metavar="NAME=COMMAND")
    given = parser.parse_args()
    if given.rounds < 1 or not all("=" in program for program in given.programs):
        parser.error("expected at least one round, and programs as NAME=COMMAND")
    programs = {name: shlex.split(command) for name, command in (each.split("=", 1) for each in given.programs)}
    found = {name: [] for name in programs}
    for _ in range(given.rounds + 1):
        for name, command in programs.items():
            found[name].append(run(command))
    for name, runs in found.items():
        seconds = sorted(seconds for seconds, _ in runs[1:])
        memory = max(memory for _, memory in runs[1:])
        print(f"{name:24} {statistics.median(seconds) * 1e3:8.1f} ms  least {seconds[0] * 1e3:8.1f} ms  {memory / 1e6:7.1f} MB")


if __name__ == "__main__":
    main()
