"""Starting a worker, and talking to it. The protocol is in worker.py."""

import json
import os
import signal
import subprocess
import time

# How each library is told its number of threads.
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "CANDLE_NUM_THREADS")


class Ended(Exception):
    """A worker ended by itself."""


class Worker:
    """One engine's process, and the seconds from its start to the first vector. While it is not asked it is stopped, so that
    threads that spin for a while after a call take nothing from the others."""

    def __init__(self, engine, threads, work, logs):
        self.engine = engine
        self.log = logs / f"{engine.name}.log"
        environment = os.environ | dict.fromkeys(THREADS, str(threads))
        environment |= {"TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
        environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "ORT_DISABLE_TELEMETRY": "1"}
        command = [*engine.command, "--threads", str(threads), "--precision", engine.precision, "--work", str(work)]
        with self.log.open("w") as log:
            start = time.perf_counter()
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self.version = self.answer()["ready"]
        self.start_seconds = time.perf_counter() - start
        self.process.send_signal(signal.SIGSTOP)

    def answer(self):
        while line := self.process.stdout.readline():
            # Some libraries write to standard output as well.
            if line.startswith("{"):
                return json.loads(line)
        status = self.process.wait()
        last = (self.log.read_text().splitlines() or ["it wrote nothing"])[-1]
        raise Ended(f"{self.engine.name}: the worker ended with {status}: {last} (all of it in {self.log})")

    def ask(self, verb, **keys):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps({"do": verb, **keys}) + "\n")
        self.process.stdin.flush()
        answer = self.answer()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.communicate('{"do": "quit"}\n', timeout=30)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()
