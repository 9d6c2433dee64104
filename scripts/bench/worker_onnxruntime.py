"""ONNX Runtime in f32, on the graph that its transformer optimizer fused. Batches are sorted by length and padded to their longest."""

import worker

given = worker.arguments()

import numpy
import onnxruntime
from tokenizers import Tokenizer


class Engine:
    def __init__(self):
        self.tokenizer = Tokenizer.from_file(str(given.work / "tokenizer.json"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = given.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(str(given.work / "fused.onnx"), options, providers=["CPUExecutionProvider"])

    def embed(self, texts):
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
        output = None
        for start in range(0, len(order), worker.BATCH):
            chosen = order[start : start + worker.BATCH]
            rows = self.batch([ids[index] for index in chosen])
            if output is None:
                output = numpy.empty((len(texts), rows.shape[1]), numpy.float32)
            output[chosen] = rows
        return output

    def batch(self, ids):
        tokens = numpy.zeros((len(ids), len(ids[0])), numpy.int64)
        mask = numpy.zeros_like(tokens)
        for row, numbers in enumerate(ids):
            tokens[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = 1
        inputs = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": numpy.zeros_like(tokens)}
        hidden = self.session.run(None, inputs)[0]
        weights = mask.astype(numpy.float32)
        pooled = numpy.matmul(weights[:, None, :], hidden)[:, 0, :] / weights.sum(1, keepdims=True)
        return pooled / numpy.maximum(numpy.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)


worker.serve(given, Engine(), f"onnxruntime {onnxruntime.__version__}")
