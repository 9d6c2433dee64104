"""ONNX Runtime in f32 or i8, on the graph that its transformer optimizer fused; i8 is that graph dynamically quantized."""

import onnxruntime
import worker


class Engine(worker.TokenEngine):
    def __init__(self, given):
        super().__init__(given.work)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = given.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        path = given.work / f"onnx/{given.precision}.onnx"
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def hidden(self, ids):
        return self.session.run(None, self.padded(ids))[0]


given = worker.arguments()
worker.serve(given, Engine(given), f"ONNX Runtime {onnxruntime.__version__}")
