#!/usr/bin/env python3
"""Compares UForm with other libraries that embed texts on a CPU, all engines in one run.

    scripts/bench/setup.sh && scripts/bench/run.py [--quick] [--only NAME,...] [--json FILE] [--plot FILE]
    scripts/bench/setup.sh --model bert-base && scripts/bench/run.py --model bert-base

Every engine is a process of its own that stays loaded; the rounds go through them in turn, so that a slow moment of the machine
hits all, and only the one that is asked may run. With bert-base and bert-large each is started when its turn comes, one at a
time. Reported are medians over the rounds, as Markdown. A full run on all-MiniLM-L6-v2 takes one to two hours; keep the machine
quiet meanwhile.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import engines
import plot
import report
from conversation import Ended, Worker
from workloads import ACCURACY, WORKLOADS, operations

CACHE = pathlib.Path(os.environ.get("UFORM_CACHE", pathlib.Path.home() / ".cache/uform"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=CACHE / "bench", help="what setup.sh filled")
    parser.add_argument("--model", choices=list(WORKLOADS), default="all-MiniLM-L6-v2")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=200, help="calls with the query, in each round")
    parser.add_argument("--mixed", type=int, default=1024, help="sentences of mixed length")
    parser.add_argument("--long", type=int, default=256, help="texts of 256 tokens")
    parser.add_argument("--starts", type=int, default=5, help="process starts that are timed")
    parser.add_argument("--quick", action="store_true", help="one round of few texts: a check, not a measurement")
    parser.add_argument("--only", type=lambda names: names.split(","), help="only these engines: openvino, or openvino-i8")
    parser.add_argument(
        "--engine", action="append", default=[], metavar="NAME[:PRECISION]=COMMAND", help="another; the protocol is in worker.py"
    )
    parser.add_argument("--ceilings", help="a command that prints the machine's ceilings as ceilings.rs does, given the threads")
    parser.add_argument("--json", type=pathlib.Path, help="where to write all figures")
    parser.add_argument("--plot", type=pathlib.Path, help="where to write the plot, as SVG")
    parser.add_argument("--show", type=pathlib.Path, help="show what an earlier run wrote to --json, and measure nothing")
    given = parser.parse_args()
    if given.quick:
        parser.set_defaults(rounds=1, queries=20, mixed=64, long=16, starts=1)
        given = parser.parse_args()
    if given.model != "all-MiniLM-L6-v2":
        given.long = min(given.long, 16)
    given.work = given.folder / "work" / given.model
    given.logs = given.folder / "logs"
    return given


def chosen(given):
    found, missing = engines.available(given.folder)
    for family in missing:
        print(f"{family}: not set up in {given.folder}, left out", file=sys.stderr)
    found += [engines.parsed(text) for text in given.engine]
    if given.only:
        found = [engine for engine in found if engine.name in given.only or engine.family in given.only]
    if not found:
        raise SystemExit("no engine is left to measure")
    return found


def ceilings(given, threads):
    """Operations per second in each precision that this machine's vector units can do at most, and null for the others."""
    command = given.ceilings.split() if given.ceilings else [str(given.folder / "ceilings")]
    return json.loads(subprocess.run([*command, str(threads)], check=True, capture_output=True, text=True).stdout)


def ask(worker, workload, given):
    """One measurement: seconds of each call, or texts per second."""
    if workload.verb == "query":
        return worker.ask("query", count=given.queries)["seconds"]
    count = getattr(given, workload.texts)
    return [count / worker.ask("embed", texts=workload.texts, order=workload.order, count=count)["seconds"]]


def warm(worker, given):
    for workload in WORKLOADS[given.model]:
        if workload.verb == "query":
            worker.ask("query", count=10)
        else:
            worker.ask("embed", texts=workload.texts, order=workload.order, count=min(32, getattr(given, workload.texts)))


class Run:
    """What is measured with one number of threads."""

    def __init__(self, given, chosen, threads):
        self.given = given
        self.threads = threads
        self.chosen = chosen
        self.figures = {engine.name: {workload.key: [] for workload in WORKLOADS[given.model]} for engine in chosen}
        self.about = {engine.name: {} for engine in chosen}
        self.ceilings = []

    def order(self, number):
        """Each round begins with another engine."""
        return self.chosen[number % len(self.chosen) :] + self.chosen[: number % len(self.chosen)]

    def start(self, engine):
        """A worker that is warm, or None, and then the engine is out."""
        try:
            worker = Worker(engine, self.threads, self.given.work, self.given.logs)
        except Ended as ended:
            print(f"left out: {ended}", file=sys.stderr)
            self.chosen = [other for other in self.chosen if other is not engine]
            del self.figures[engine.name], self.about[engine.name]
            return None
        self.about[engine.name]["version"] = worker.version
        warm(worker, self.given)
        return worker

    def together(self, scratch):
        """All engines loaded at once; the rounds alternate between them."""
        with contextlib.ExitStack() as stack:
            workers = {}
            for engine in list(self.chosen):
                if worker := self.start(engine):
                    workers[engine.name] = stack.enter_context(worker)
            for number in range(self.given.rounds):
                self.ceilings.append(ceilings(self.given, self.threads))
                for workload in WORKLOADS[self.given.model]:
                    for engine in self.order(number):
                        self.figures[engine.name][workload.key] += ask(workers[engine.name], workload, self.given)
            for engine in self.chosen:
                self.close(workers[engine.name], scratch)

    def one_at_a_time(self, scratch):
        for number in range(self.given.rounds):
            self.ceilings.append(ceilings(self.given, self.threads))
            for engine in self.order(number):
                worker = self.start(engine)
                if worker is None:
                    continue
                with worker:
                    for workload in WORKLOADS[self.given.model]:
                        self.figures[engine.name][workload.key] += ask(worker, workload, self.given)
                    if number == self.given.rounds - 1:
                        self.close(worker, scratch)

    def close(self, worker, scratch):
        """Writes the vectors whose accuracy is told, and asks for the memory that everything before took."""
        about = self.about[worker.engine.name]
        about["peak_bytes"] = worker.ask("memory")["peak_bytes"]
        texts = ACCURACY[self.given.model]
        worker.ask("vectors", texts=texts, path=str(scratch / worker.engine.name), count=getattr(self.given, texts))

    def starts(self):
        """Medians of the seconds from the start of a process to its first vector."""
        seconds = {engine.name: [] for engine in self.chosen}
        for _ in range(self.given.starts):
            for engine in self.chosen:
                with Worker(engine, self.threads, self.given.work, self.given.logs) as worker:
                    seconds[engine.name].append(worker.start_seconds)
        for name, some in seconds.items():
            self.about[name]["start_seconds"] = statistics.median(some) if some else None

    def accuracy(self, scratch):
        python = self.given.folder / "uform/bin/python"
        here = pathlib.Path(__file__).resolve().parent
        names = [engine.name for engine in self.chosen]
        count = getattr(self.given, ACCURACY[self.given.model])
        command = [python, here / "accuracy.py", self.given.work / "reference.f32", str(count)]
        output = subprocess.run(
            [*command, *(scratch / name for name in names)], check=True, capture_output=True, text=True
        ).stdout
        for name, line in zip(names, output.splitlines(), strict=True):
            self.about[name] |= json.loads(line)

    def measure(self):
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            together = self.given.model == "all-MiniLM-L6-v2"
            (self.together if together else self.one_at_a_time)(scratch)
            self.accuracy(scratch)
        self.starts()
        tokens = json.loads((self.given.work / "tokens.json").read_text())
        config = json.loads((self.given.work / "model/config.json").read_text())
        work = {}
        for workload in WORKLOADS[self.given.model]:
            some = tokens[workload.texts][: getattr(self.given, workload.texts, 1)]
            work[workload.key] = operations(config, some) / len(some)
        top = {
            name: max(some) if None not in (some := [round[name] for round in self.ceilings]) else None
            for name in self.ceilings[0]
        }
        # Operations are those of one text, on average. A ceiling is the most that was seen.
        return {"figures": self.figures, "about": self.about, "ceilings": top, "operations": work}


def interpreters(given):
    """The seconds that Python and Node take to start and do nothing; below that no engine in them can come."""
    commands = {"Python": [str(given.folder / "uform/bin/python"), "-c", "pass"], "Node": ["node", "--eval", "0"]}
    seconds = {}
    for name, command in commands.items():
        some = []
        for _ in range(given.starts):
            start = time.perf_counter()
            subprocess.run(command, check=True)
            some.append(time.perf_counter() - start)
        seconds[name] = statistics.median(some)
    return seconds


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def measured(given):
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"The machine is busy (load {load:.1f}): the figures will be worth little.", file=sys.stderr)
    given.logs.mkdir(exist_ok=True)
    found = chosen(given)
    results = {
        "machine": {
            "processor": processor(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "system": platform.platform(),
            "load_before": load,
        },
        "model": given.model,
        "settings": {key: getattr(given, key) for key in ("rounds", "queries", "mixed", "long", "starts")},
        "engines": {
            engine.name: {
                "title": engine.title,
                "precision": engine.precision,
                "ours": engine.ours,
                "installed_bytes": engine.installed_bytes(),
            }
            for engine in found
        },
        "interpreters": interpreters(given) if given.starts else {},
        "threads": {},
    }
    for threads in given.threads.split(","):
        results["threads"][threads] = Run(given, found, int(threads)).measure()
    return results


def main():
    given = arguments()
    try:
        results = json.loads(given.show.read_text()) if given.show else measured(given)
    except Ended as ended:
        raise SystemExit(str(ended)) from None
    if given.json and not given.show:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    print(report.markdown(results))
    if given.plot:
        given.plot.write_text(plot.svg(results))


if __name__ == "__main__":
    main()
