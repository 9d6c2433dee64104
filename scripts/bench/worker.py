"""What all workers share: arguments, the workloads, and the conversation with run.py.

A worker is one process for one engine. It loads the model, embeds the query once, and prints `{"ready": version}`: run.py takes the time
from the start of the process to that line. Then it answers each line of standard input with one line, both JSON:

    {"do": "query", "count": n}          n calls with the query: {"seconds": [...]}
    {"do": "mixed" | "long", "count": n} n texts of that workload, 32 a batch: {"seconds": s}
    {"do": "vectors", "path": p, "count": n}   n texts of "mixed", written to p as rows of f32: {"rows": n, "columns": c}
    {"do": "memory"}                     the most memory that the process had so far: {"peak_bytes": b}
    {"do": "quit"}

All times hold everything from text to normalized f32 vectors. An engine in another language that speaks this can be
measured beside the others with `run.py --engine "name=command"`.
"""

import argparse
import json
import os
import pathlib
import sys
import time

BATCH = 32


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="the folder that prepare.py filled")
    given = parser.parse_args()
    # Before the libraries are imported, which read these once.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = str(given.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if given.threads > 1 else "false"
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    return given


def peak_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("/proc/self/status has no VmHWM")


def timed(function, *values):
    start = time.perf_counter()
    function(*values)
    return time.perf_counter() - start


def serve(given, engine, version):
    """Answers run.py until it says quit. `engine.embed(texts)` gives an array with one normalized row per text."""
    texts = json.loads((given.work / "texts.json").read_text(encoding="utf-8"))
    engine.embed(texts["query"])
    print(json.dumps({"ready": version}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        verb, count = command["do"], command.get("count")
        if verb == "quit":
            return
        if verb == "query":
            answer = {"seconds": [timed(engine.embed, texts["query"]) for _ in range(count)]}
        elif verb in ("mixed", "long"):
            answer = {"seconds": timed(engine.embed, texts[verb][:count])}
        elif verb == "vectors":
            rows = engine.embed(texts["mixed"][:count])
            rows.astype("<f4").tofile(command["path"])
            answer = {"rows": rows.shape[0], "columns": rows.shape[1]}
        elif verb == "memory":
            answer = {"peak_bytes": peak_bytes()}
        else:
            raise SystemExit(f"unknown command: {line}")
        print(json.dumps(answer), flush=True)
