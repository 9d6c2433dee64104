"""UForm through its Python module. Nothing is padded, so that there is nothing to sort: both orders are that of the file."""

import uform
import worker


class Engine(worker.TextEngine):
    def __init__(self, given):
        self.executor = uform.Executor.for_ram(threads=given.threads)
        # Between calls too, as those of ONNX Runtime and OpenMP do for a while.
        self.executor.drain("spinning")
        model = uform.Model.load_ram(str(given.work / "model"), executor=self.executor, precision=given.precision)
        self.on = model.on(self.executor)

    def embed(self, texts):
        return self.on.embed_texts(texts)

    embed_by_length = worker.TextEngine.embed_in_file_order


given = worker.arguments()
worker.serve(given, Engine(given), f"uform {uform.version()}")
