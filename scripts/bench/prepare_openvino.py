"""Quantizes the plain ONNX model to i8 for OpenVINO, as its documentation says: NNCF's post-training quantization for transformers.

    prepare_openvino.py OUTPUT

It needs texts to calibrate with; those are none of the texts of mixed length that the accuracy is measured on.
"""

import json
import pathlib
import sys

import nncf
import numpy
import openvino
from tokenizers import Tokenizer

output = pathlib.Path(sys.argv[1])
tokenizer = Tokenizer.from_file(str(output / "tokenizer.json"))
texts = json.loads((output / "texts/calibration.json").read_text(encoding="utf-8"))


def inputs(text):
    ids = numpy.array([tokenizer.encode(text).ids], numpy.int64)
    return {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}


model = openvino.Core().read_model(str(output / "onnx/plain.onnx"))
quantized = nncf.quantize(model, nncf.Dataset(texts, inputs), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(texts))
(output / "openvino").mkdir(exist_ok=True)
openvino.save_model(quantized, str(output / "openvino/i8.xml"), compress_to_fp16=False)
