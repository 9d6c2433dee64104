"""Writes what the workers need: ONNX files, a tokenizer without padding, and the texts of the workloads.

    prepare.py MODEL OUTPUT

Runs in the environment of sentence-transformers, with onnx and onnxruntime on PYTHONPATH.
"""

import json
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
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
    """The model in f32, then with the fusions of ONNX Runtime's transformer optimizer."""
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
    fused = optimizer.optimize_model(
        str(output / "plain.onnx"),
        model_type="bert",
        num_heads=config.num_attention_heads,
        hidden_size=config.hidden_size,
        optimization_options=FusionOptions("bert"),
        opt_level=0,
    )
    print("fused operators:", {name: count for name, count in fused.get_fused_operator_statistics().items() if count})
    fused.save_model_to_file(str(output / "fused.onnx"))


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


def main():
    folder, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    output.mkdir(parents=True, exist_ok=True)
    # The model's own file pads and truncates at 128 tokens, which sentence-transformers overrides.
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    sentences = SENTENCES.read_text(encoding="utf-8").splitlines()
    assert len(tokenizer.encode(QUERY).ids) == 14, len(tokenizer.encode(QUERY).ids)
    texts = {"query": [QUERY], "mixed": sentences[:1024], "long": long_texts(tokenizer, sentences, 256)}
    (output / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    tokenizer.enable_truncation(LIMIT)
    tokenizer.save(str(output / "tokenizer.json"))
    export(folder, output)


if __name__ == "__main__":
    main()
