"""What all workers share: arguments, the workloads, and the conversation with run.py.

A worker is one process for one engine in one precision. It loads the model, embeds the query once, and prints
`{"ready": version}`: run.py takes the time from the start of the process to that line. Then it answers each line of
standard input with one line, both JSON:

    {"do": "query", "count": n}
        n calls with the query: {"seconds": [...]}
    {"do": "embed", "texts": "mixed" | "long", "order": "file" | "length", "count": n}
        the first n texts of that file, 32 a batch, in the order of the file or as the engine sorts them: {"seconds": s}
    {"do": "vectors", "texts": name, "path": p, "count": n}
        the first n texts of that file, written to p as rows of f32: {"rows": n, "columns": c}
    {"do": "memory"}
        the most memory that the process had so far: {"peak_bytes": b}
    {"do": "quit"}

Its arguments are --threads N, --precision NAME and --work FOLDER, which prepare.py filled: FOLDER/model is the model, and
FOLDER/texts has the texts, a JSON file each. The numbers of threads of the libraries come in the environment. All times hold everything
from text to normalized f32 vectors. An engine in another language that speaks this can be measured beside the others with
`run.py --engine "name=command"`.
"""

import argparse
import json
import pathlib
import sys
import time

BATCH = 32


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--work", type=pathlib.Path, required=True, help="the folder that prepare.py filled")
    return parser.parse_args()


def batches(items):
    return [items[start : start + BATCH] for start in range(0, len(items), BATCH)]


class TextEngine:
    """An engine that takes texts. A subclass has `embed(texts)`: a float32 array of one normalized row per text, for one batch."""

    def embed_in_file_order(self, texts):
        import numpy

        return numpy.concatenate([self.embed(batch) for batch in batches(texts)])

    def embed_by_length(self, texts):
        """Sorted by characters, as a caller can who has no tokens yet."""
        return self.scattered(texts, [len(text) for text in texts], self.embed)

    @staticmethod
    def scattered(items, lengths, embed):
        """Batches of items of like length, the longest first; rows in the order of the items."""
        import numpy

        output = None
        for chosen in batches(sorted(range(len(items)), key=lambda index: -lengths[index])):
            rows = embed([items[index] for index in chosen])
            if output is None:
                output = numpy.empty((len(items), rows.shape[1]), numpy.float32)
            output[chosen] = rows
        return output


class TokenEngine(TextEngine):
    """An engine that takes tokens and gives the last layer. A subclass has `hidden(ids)`: for the lists of tokens of one batch,
    a float32 array of batch, longest, dimensions. Tokenizing, mean pooling and normalizing are the same for all of these."""

    def __init__(self, work):
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))

    def embed(self, texts):
        return self.embed_tokens([encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)])

    def embed_by_length(self, texts):
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        return self.scattered(ids, [len(numbers) for numbers in ids], self.embed_tokens)

    def embed_tokens(self, ids):
        import numpy

        hidden = self.hidden(ids)
        weights = numpy.zeros(hidden.shape[:2], numpy.float32)
        for row, numbers in enumerate(ids):
            weights[row, : len(numbers)] = 1
        pooled = numpy.matmul(weights[:, None, :], hidden)[:, 0, :] / weights.sum(1, keepdims=True)
        return pooled / numpy.maximum(numpy.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)

    @staticmethod
    def padded(ids):
        """The inputs of an exported BERT: tokens, mask and segments, padded to the longest."""
        import numpy

        tokens = numpy.zeros((len(ids), max(map(len, ids))), numpy.int64)
        mask = numpy.zeros_like(tokens)
        for row, numbers in enumerate(ids):
            tokens[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1
        return {"input_ids": tokens, "attention_mask": mask, "token_type_ids": numpy.zeros_like(tokens)}


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
    """Answers run.py until it says quit."""
    texts = {}

    def load(name):
        if name not in texts:
            texts[name] = json.loads((given.work / f"texts/{name}.json").read_text(encoding="utf-8"))
        return texts[name]

    query = load("query")
    engine.embed(query)
    print(json.dumps({"ready": version}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        verb, count = command["do"], command.get("count")
        if verb == "quit":
            return
        if verb == "query":
            answer = {"seconds": [timed(engine.embed, query) for _ in range(count)]}
        elif verb == "embed":
            function = engine.embed_by_length if command["order"] == "length" else engine.embed_in_file_order
            answer = {"seconds": timed(function, load(command["texts"])[:count])}
        elif verb == "vectors":
            rows = engine.embed_by_length(load(command["texts"])[:count])
            rows.astype("<f4").tofile(command["path"])
            answer = {"rows": rows.shape[0], "columns": rows.shape[1]}
        elif verb == "memory":
            answer = {"peak_bytes": peak_bytes()}
        else:
            raise SystemExit(f"unknown command: {line}")
        print(json.dumps(answer), flush=True)
