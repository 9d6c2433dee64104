"""fastembed in f32 or i8: ONNX Runtime behind the interface that its users call, with a model of one's own."""

import json
from importlib.metadata import version

import numpy
import worker
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

NAME = "local/model"


class Engine(worker.TextEngine):
    def __init__(self, given):
        folder = given.work / "transformers.js/model"
        width = json.loads((folder / "config.json").read_text())["hidden_size"]
        TextEmbedding.add_custom_model(
            model=NAME,
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf=NAME),
            dim=width,
            model_file="onnx/model.onnx" if given.precision == "f32" else "onnx/model_quantized.onnx",
        )
        self.model = TextEmbedding(
            NAME, specific_model_path=str(folder), threads=given.threads, providers=["CPUExecutionProvider"]
        )

    def embed(self, texts):
        return numpy.asarray(list(self.model.embed(texts, batch_size=worker.BATCH)), numpy.float32)


given = worker.arguments()
worker.serve(given, Engine(given), f"fastembed {version('fastembed')}")
