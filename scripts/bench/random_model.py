"""A BERT of a known size with seeded random weights, in the folder layout of sentence-transformers: for measuring speed, not for use."""

import json
import os
import pathlib
import shutil

import torch
from transformers import BertConfig, BertModel

SIZES = {
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
SEED = 20
# The vocabulary and the rules of the tokenizer are those of BERT uncased, which all-MiniLM-L6-v2 has as well.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def write(size, folder):
    cache = pathlib.Path(os.environ.get("UFORM_CACHE", pathlib.Path.home() / ".cache/uform"))
    small = cache / "models/all-MiniLM-L6-v2"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    # Said although there is no other choice left: some readers of the file ask for it.
    config = BertConfig(**SIZES[size], vocab_size=30522, max_position_embeddings=512, position_embedding_type="absolute")
    model = BertModel(config, add_pooling_layer=False)
    model.save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copy(small / name, folder / name)
    types = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(types)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256, "do_lower_case": False}))
    for name in ("1_Pooling", "2_Normalize"):
        (folder / name).mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
