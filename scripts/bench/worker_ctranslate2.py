"""CTranslate2 in f32, bf16 or i8; it quantizes the f32 model while it loads."""

import ctranslate2
import numpy
import worker

# In i8, what is not a matmul with weights is in f32. bf16 is refused on processors where the library has no fast matmul for it.
TYPES = {"f32": "float32", "bf16": "bfloat16", "i8": "int8_float32"}


class Engine(worker.TokenEngine):
    def __init__(self, given):
        super().__init__(given.work)
        kind = TYPES[given.precision]
        self.encoder = ctranslate2.Encoder(
            str(given.work / "ctranslate2"), device="cpu", compute_type=kind, inter_threads=1, intra_threads=given.threads
        )
        if self.encoder.compute_type != kind:
            raise SystemExit(f"CTranslate2 computes in {self.encoder.compute_type} here, asked for {kind}")

    def hidden(self, ids):
        # It pads and masks the lists itself.
        output = self.encoder.forward_batch(ids).last_hidden_state
        if output.dtype != ctranslate2.DataType.float32:
            output = output.to(ctranslate2.DataType.float32)
        return numpy.asarray(output)


given = worker.arguments()
worker.serve(given, Engine(given), f"CTranslate2 {ctranslate2.__version__}")
