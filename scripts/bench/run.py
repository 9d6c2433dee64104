#!/usr/bin/env python3
"""Compares UForm with ONNX Runtime and sentence-transformers on all-MiniLM-L6-v2 in f32, all engines in one run.

    scripts/bench/setup.sh && scripts/bench/run.py [--threads 1,2] [--rounds 5] [--quick] [--json FILE]

Every engine is a process of its own that stays loaded; the rounds go through them in turn, so that a slow moment of the machine
hits all. Reported are medians over the rounds. Prints a Markdown table; a ratio above 1 means better than ONNX Runtime.
"""

import argparse
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from array import array

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("UFORM_CACHE", pathlib.Path.home() / ".cache/uform"))
BASELINE = "onnxruntime"
REFERENCE = "sentence-transformers"
# What is not a part of an engine: pip itself, and what only the export needs.
NOT_INSTALLED = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "distutils-precedence.pth", "__pycache__")


class Worker:
    """One engine's process, and the seconds from its start to the first vector."""

    def __init__(self, name, command, threads, given):
        self.name = name
        arguments = ["--threads", str(threads), "--model", str(given.model), "--work", str(given.folder / "work")]
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.version = self.answer()["ready"]
        self.start_seconds = time.perf_counter() - start

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"{self.name}: the worker ended with {self.process.wait()}; run it by hand: {shlex.join(self.process.args)}"
            )
        return json.loads(line)

    def ask(self, verb, **keys):
        self.process.stdin.write(json.dumps({"do": verb, **keys}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def quit(self):
        self.process.stdin.write('{"do": "quit"}\n')
        self.process.stdin.close()
        self.process.wait()


def engines(given):
    """Names and commands: those that are set up, and those of the command line."""
    found = {}
    for name in ("uform", BASELINE, REFERENCE):
        python = given.folder / name / "bin/python"
        if not python.exists():
            raise SystemExit(f"{python} is not there: run scripts/bench/setup.sh")
        # -P: a folder of that name in the current one is no module.
        if name != "uform" or subprocess.run([python, "-P", "-c", "import uform"], capture_output=True).returncode == 0:
            found[name] = [str(python), str(HERE / f"worker_{name.replace('-', '_')}.py")]
        else:
            print(f"{name}: not installed in {given.folder / name}, left out", file=sys.stderr)
    for extra in given.engine:
        name, _, command = extra.partition("=")
        found[name] = shlex.split(command)
    return {name: command for name, command in found.items() if not given.only or name in given.only}


def installed_bytes(environment):
    """What pip put into an environment, without pip."""
    packages = next(environment.resolve().glob("lib/python3*/site-packages"))
    total = 0
    for entry in packages.iterdir():
        if entry.name.startswith(NOT_INSTALLED):
            continue
        total += (
            sum(path.stat().st_size for path in entry.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
            if entry.is_dir()
            else entry.stat().st_size
        )
    return total


def measure(commands, threads, given):
    """The figures of every engine with that many threads."""
    workers = {name: Worker(name, command, threads, given) for name, command in commands.items()}
    figures = {name: {"version": worker.version, "query": [], "mixed": [], "long": []} for name, worker in workers.items()}
    for verb in ("query", "mixed", "long"):
        for worker in workers.values():
            worker.ask(verb, count=20 if verb == "query" else 32)
    for number in range(given.rounds):
        # Each round begins with another engine.
        names = list(workers)[number % len(workers) :] + list(workers)[: number % len(workers)]
        for verb, count in (("query", given.queries), ("mixed", given.mixed), ("long", given.long)):
            for name in names:
                seconds = workers[name].ask(verb, count=count)["seconds"]
                figures[name][verb] += seconds if verb == "query" else [count / seconds]
    with tempfile.TemporaryDirectory() as scratch:
        for name, worker in workers.items():
            path = pathlib.Path(scratch) / "vectors"
            worker.ask("vectors", path=str(path), count=128)
            figures[name]["vectors"] = array("f", path.read_bytes())
            figures[name]["peak_bytes"] = worker.ask("memory")["peak_bytes"]
    for worker in workers.values():
        worker.quit()
    starts = {name: [] for name in commands}
    for _ in range(given.starts):
        for name, command in commands.items():
            worker = Worker(name, command, threads, given)
            starts[name].append(worker.start_seconds)
            worker.quit()
    return {name: summary(figure, starts[name], figures.get(REFERENCE)) for name, figure in figures.items()}


def summary(figure, starts, reference):
    queries = sorted(figure["query"])
    vectors = figure["vectors"]
    return {
        "version": figure["version"],
        "query_median_seconds": statistics.median(queries),
        "query_99th_percentile_seconds": queries[min(len(queries) - 1, int(0.99 * len(queries)))],
        "mixed_texts_per_second": statistics.median(figure["mixed"]),
        "long_texts_per_second": statistics.median(figure["long"]),
        "start_seconds": statistics.median(starts) if starts else None,
        "peak_bytes": figure["peak_bytes"],
        "largest_difference": max(abs(a - b) for a, b in zip(vectors, reference["vectors"], strict=True)) if reference else None,
    }


# Key, title, factor and digits for showing, and whether more is better.
ROWS = [
    ("query_median_seconds", "one query of 14 tokens, median, ms", 1e3, 2, False),
    ("query_99th_percentile_seconds", "the same, 99th percentile, ms", 1e3, 2, False),
    ("mixed_texts_per_second", "{mixed} sentences of 4 to 128 tokens, texts/s", 1, 1, True),
    ("long_texts_per_second", "{long} texts of 256 tokens, texts/s", 1, 2, True),
    ("start_seconds", "process start to first vector, s", 1, 2, False),
    ("peak_bytes", "peak resident memory, MB", 1e-6, 0, False),
    ("installed_bytes", "installed size, MB", 1e-6, 0, False),
    ("largest_difference", "largest difference from sentence-transformers", 1, None, None),
]


def table(results, names, given):
    lines = ["| threads | what | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for threads, figures in results.items():
        for key, title, factor, digits, more in ROWS:
            base = figures.get(BASELINE, {}).get(key)
            cells = []
            for name in names:
                value = figures[name].get(key)
                if value is None:
                    cells.append("–")
                elif digits is None:
                    cells.append(f"{value:.1e}")
                else:
                    ratio = "" if not base or name == BASELINE else f" ({value / base if more else base / value:.2f}×)"
                    cells.append(f"{value * factor:.{digits}f}{ratio}")
            lines.append(f"| {threads} | {title.format(mixed=given.mixed, long=given.long)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=CACHE / "bench", help="what setup.sh filled")
    parser.add_argument("--model", type=pathlib.Path, default=CACHE / "models/all-MiniLM-L6-v2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=100, help="calls with the query, in each round")
    parser.add_argument("--mixed", type=int, default=1024, help="sentences of mixed length")
    parser.add_argument("--long", type=int, default=256, help="texts of 256 tokens")
    parser.add_argument("--starts", type=int, default=5, help="process starts that are timed")
    parser.add_argument("--quick", action="store_true", help="one round of few texts: a check, not a measurement")
    parser.add_argument("--only", type=lambda names: names.split(","), help="only these engines")
    parser.add_argument(
        "--engine", action="append", default=[], metavar="NAME=COMMAND", help="another engine; the protocol is in worker.py"
    )
    parser.add_argument("--json", type=pathlib.Path, help="where to write all figures")
    given = parser.parse_args()
    if given.quick:
        parser.set_defaults(rounds=1, queries=50, mixed=256, long=32, starts=1)
        given = parser.parse_args()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"The machine is busy (load {load:.1f}): the figures will be worth little.", file=sys.stderr)
    commands = engines(given)
    sizes = {name: installed_bytes(given.folder / name) for name in commands if (given.folder / name).exists()}
    results = {}
    for threads in map(int, given.threads.split(",")):
        results[threads] = measure(commands, threads, given)
        for name, figures in results[threads].items():
            figures["installed_bytes"] = sizes.get(name)
    machine = {
        "processor": processor(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "load_before": load,
    }
    print(
        f"{machine['processor']}, {machine['usable_cores']} usable cores. "
        + "; ".join(figures["version"] for figures in next(iter(results.values())).values())
        + ".\n"
    )
    print(table(results, list(commands), given))
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, "rounds": given.rounds, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
