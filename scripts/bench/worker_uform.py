"""UForm in f32 through its Python module. Batches are in the order of the texts: nothing is padded, so that there is nothing to sort."""

import worker

given = worker.arguments()

import numpy
import uform


class Engine:
    def __init__(self):
        self.executor = uform.Executor.for_ram(threads=given.threads)
        model = uform.Model.load_ram(str(given.model), executor=self.executor, precision="f32")
        self.on = model.on(self.executor)

    def embed(self, texts):
        batches = [self.on.embed_texts(texts[start : start + worker.BATCH]) for start in range(0, len(texts), worker.BATCH)]
        return numpy.asarray(batches[0]) if len(batches) == 1 else numpy.concatenate(batches)


worker.serve(given, Engine(), f"uform {uform.version()}")
