"""sentence-transformers in f32 or bf16 on torch, as its users run it; it sorts by length itself what it gets in one call."""

from importlib.metadata import version

import torch
import worker
from sentence_transformers import SentenceTransformer


class Engine(worker.TextEngine):
    def __init__(self, given):
        torch.set_num_threads(given.threads)
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[given.precision]
        self.model = SentenceTransformer(
            str(given.work / "model"), device="cpu", local_files_only=True, model_kwargs={"dtype": kind}
        )

    def embed(self, texts):
        # NumPy has no bf16, so that the result comes as a tensor.
        rows = self.model.encode(texts, batch_size=worker.BATCH, show_progress_bar=False, convert_to_tensor=True)
        return rows.float().numpy()

    embed_by_length = embed


given = worker.arguments()
worker.serve(given, Engine(given), f"sentence-transformers {version('sentence-transformers')} on torch {version('torch')}")
