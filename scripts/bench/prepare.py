"""Writes what the workers need: texts, a tokenizer without padding, the model in the peers' formats, and the reference's vectors.

    prepare.py MODEL OUTPUT        MODEL is a folder, or bert-base or bert-large for one of those sizes with random weights

Runs in the environment of sentence-transformers, with onnx, onnxruntime and ctranslate2 on PYTHONPATH.
"""

import json
import os
import pathlib
import shutil
import sys

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import onnx
import random_model
import torch
from ctranslate2.converters import TransformersConverter
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers import AutoModel

SENTENCES = pathlib.Path(__file__).resolve().parents[2] / "tests/data/sentences.txt"
LIMIT = 256
QUERY = "Where can I rent a bicycle near the old town station?"


class Encoder(torch.nn.Module):
    """The transformer alone; the workers pool and normalize."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).last_hidden_state


def export(folder, output):
    """The model as plain ONNX; with the fusions of ONNX Runtime's transformer optimizer; and that quantized dynamically."""
    output.mkdir(exist_ok=True)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False, dtype=torch.float32).eval()
    ids = torch.randint(1000, 2000, (2, 16))
    mask = torch.ones_like(ids)
    mask[1, 10:] = 0
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        Encoder(model),
        (ids, mask, torch.zeros_like(ids)),
        str(output / "plain.onnx"),
        input_names=names,
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in [*names, "last_hidden_state"]},
        opset_version=17,
        dynamo=False,
    )
    config = model.config
    del model
    fused = optimizer.optimize_model(
        str(output / "plain.onnx"),
        model_type="bert",
        num_heads=config.num_attention_heads,
        hidden_size=config.hidden_size,
        optimization_options=FusionOptions("bert"),
        opt_level=0,
    )
    print("fused operators:", {name: count for name, count in fused.get_fused_operator_statistics().items() if count})
    fused.save_model_to_file(str(output / "f32.onnx"))
    # Weights per channel, activations per tensor while it runs, all eight bits: what the processors with VNNI are meant to get.
    quantize_dynamic(
        output / "f32.onnx",
        output / "i8.onnx",
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=False,
        extra_options={
            "MatMulConstBOnly": True,
            "ActivationSymmetric": False,
            "WeightSymmetric": True,
            "DefaultTensorType": onnx.TensorProto.FLOAT,
        },
    )


def lay_out_for_hubs(output):
    """The folder that transformers.js and fastembed expect of a model; ONNX files under the names that they look for."""
    folder = output / "transformers.js/model"
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(output / "model" / name, folder / name)
    shutil.copy(output / "tokenizer.json", folder / "tokenizer.json")
    for name, source in (("model", "f32"), ("model_quantized", "i8")):
        link = folder / f"onnx/{name}.onnx"
        link.unlink(missing_ok=True)
        link.hardlink_to(output / f"onnx/{source}.onnx")
    # Both take the limit from here.
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": LIMIT}))


def long_texts(tokenizer, sentences, count):
    """Texts of exactly LIMIT tokens: sentences in a row, cut behind a token."""
    texts = []
    for index in range(count):
        start = index * len(sentences) // count
        text = " ".join((sentences[start:] + sentences)[:80])
        end = tokenizer.encode(text, add_special_tokens=False).offsets[LIMIT - 3][1]
        texts.append(text[:end])
    assert all(len(encoding.ids) == LIMIT for encoding in tokenizer.encode_batch(texts))
    return texts


def write_texts(output, small):
    """The texts of the workloads, and the tokens in each, from which run.py knows the work that they are."""
    # The model's own file pads and truncates at 128 tokens, which sentence-transformers overrides.
    tokenizer = Tokenizer.from_file(str(output / "model/tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    assert len(tokenizer.encode(QUERY).ids) == 14, len(tokenizer.encode(QUERY).ids)
    texts = {
        "query": [QUERY],
        "calibration": sentences[1024:1152],
        "long": long_texts(tokenizer, sentences, 256 if small else 16),
    }
    if small:
        texts["mixed"] = sentences[:1024]
    tokenizer.enable_truncation(LIMIT)
    tokenizer.save(str(output / "tokenizer.json"))
    (output / "texts").mkdir(exist_ok=True)
    for name, some in texts.items():
        (output / f"texts/{name}.json").write_text(json.dumps(some), encoding="utf-8")
    counts = {name: [len(encoding.ids) for encoding in tokenizer.encode_batch(some)] for name, some in texts.items()}
    (output / "tokens.json").write_text(json.dumps(counts))
    return texts


def main():
    source, output = sys.argv[1], pathlib.Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    model = output / "model"
    small = source not in random_model.SIZES
    if small:
        model.unlink(missing_ok=True)
        model.symlink_to(pathlib.Path(source).resolve())
    else:
        random_model.write(source, model)
    texts = write_texts(output, small)
    reference = SentenceTransformer(str(model), device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float32})
    rows = reference.encode(texts["mixed" if small else "long"], batch_size=32, show_progress_bar=False)
    rows.astype("<f4").tofile(output / "reference.f32")
    del reference
    export(model, output / "onnx")
    lay_out_for_hubs(output)
    TransformersConverter(str(model)).convert(str(output / "ctranslate2"), force=True)


if __name__ == "__main__":
    main()
