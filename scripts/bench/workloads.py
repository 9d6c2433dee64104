"""What is measured, and how much arithmetic it is."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Workload:
    key: str
    title: str
    # What the worker is asked to do, with which texts, in which order of them.
    verb: str
    texts: str
    order: str = "file"

    @property
    def latency(self):
        return self.verb == "query"


QUERY = Workload("query", "query of 14 tokens", "query", "query")
SMALL = [
    QUERY,
    Workload("mixed_by_length", "mixed sentences, by length", "embed", "mixed", "length"),
    Workload("mixed_in_file_order", "mixed sentences, file order", "embed", "mixed"),
    Workload("long", "256 tokens", "embed", "long"),
]
LARGE = [QUERY, Workload("long", "256 tokens", "embed", "long")]
# The texts whose vectors are compared with the reference's.
ACCURACY = {"all-MiniLM-L6-v2": "mixed", "bert-base": "long", "bert-large": "long"}
WORKLOADS = {"all-MiniLM-L6-v2": SMALL, "bert-base": LARGE, "bert-large": LARGE}


def operations(config, tokens):
    """Multiplications and additions of the matmuls and of attention, for texts of so many tokens each. Padding is not work."""
    width, inner, layers = (config[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    weights = 4 * width * width + 2 * width * inner
    return sum(layers * 2 * (count * weights + 2 * count * count * width) for count in tokens)
