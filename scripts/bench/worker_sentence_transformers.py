"""sentence-transformers in f32 on torch, as its users run it; it sorts by length itself."""

import worker

given = worker.arguments()

from importlib.metadata import version

import torch
from sentence_transformers import SentenceTransformer

torch.set_num_threads(given.threads)


class Engine:
    def __init__(self):
        self.model = SentenceTransformer(str(given.model), device="cpu", local_files_only=True)

    def embed(self, texts):
        return self.model.encode(texts, batch_size=worker.BATCH, show_progress_bar=False)


worker.serve(given, Engine(), f"sentence-transformers {version('sentence-transformers')}, torch {version('torch')}")
