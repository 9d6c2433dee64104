#!/usr/bin/env python3
"""Makes the committed fixtures from the reference libraries. Set those up with scripts/fixtures/setup.sh, then:

    ENVIRONMENT/bin/python scripts/make_fixtures.py parity --model "$(scripts/get-model.sh)"
    ENVIRONMENT/bin/python scripts/make_fixtures.py conformance

`parity` writes tests/data/parity: vectors of all-MiniLM-L6-v2. `conformance` writes tests/conformance: tiny random
models and the cases that every language's runner goes through. Both are seeded and computed on one thread, with the
instructions of AVX2 alone: with others the last bits are other ones.
"""

import argparse
import os
import pathlib

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="")
os.environ.update(ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2", ONEDNN_MAX_CPU_ISA="AVX2")

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["parity", "conformance"])
    parser.add_argument("--model", type=pathlib.Path, help="the folder of all-MiniLM-L6-v2, for parity")
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    if arguments.what == "parity":
        from fixtures import parity

        if arguments.model is None:
            parser.error("parity needs --model")
        sentences = (TESTS / "data/sentences.txt").read_text(encoding="utf-8").splitlines()
        parity.write(TESTS / "data/parity", arguments.model, sentences)
    else:
        from fixtures import conformance

        conformance.write(TESTS / "conformance")


if __name__ == "__main__":
    main()
