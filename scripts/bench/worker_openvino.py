"""OpenVINO in f32, bf16 or i8. i8 is the model that prepare_openvino.py quantized; what stays in floating point there runs in bf16."""

import openvino
import worker


class Engine(worker.TokenEngine):
    def __init__(self, given):
        super().__init__(given.work)
        # Without a hint it computes in bf16 wherever the processor can.
        precision = "f32" if given.precision == "f32" else "bf16"
        settings = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": given.threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "ENABLE_CPU_PINNING": False,
        }
        path = given.work / ("openvino/i8.xml" if given.precision == "i8" else "onnx/plain.onnx")
        compiled = openvino.Core().compile_model(str(path), "CPU", settings)
        self.names = {name for tensor in compiled.inputs for name in tensor.get_names()}
        self.request = compiled.create_infer_request()

    def hidden(self, ids):
        inputs = {name: values for name, values in self.padded(ids).items() if name in self.names}
        return self.request.infer(inputs, share_inputs=True, share_outputs=True)[0]


given = worker.arguments()
worker.serve(given, Engine(given), f"OpenVINO {openvino.__version__.partition('-')[0]}")
