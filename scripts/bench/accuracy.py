"""How close vectors are to the reference's: mean and least cosine, and the share of the ten nearest neighbours that agree.

    accuracy.py REFERENCE COUNT FILE...        each a file of rows of f32; the first COUNT rows are compared

Prints one JSON line for each file. Runs in an environment with NumPy.
"""

import json
import sys

import numpy

NEIGHBOURS = 10


def rows(path, count):
    return numpy.fromfile(path, "<f4").reshape(count, -1)


def nearest(vectors):
    similarities = vectors @ vectors.T
    numpy.fill_diagonal(similarities, -numpy.inf)
    return numpy.argsort(-similarities, 1)[:, :NEIGHBOURS]


def main():
    count = int(sys.argv[2])
    everything = numpy.fromfile(sys.argv[1], "<f4")
    width = numpy.fromfile(sys.argv[3], "<f4").size // count
    reference = everything.reshape(-1, width)[:count]
    expected = nearest(reference)
    for path in sys.argv[3:]:
        vectors = rows(path, count)
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = (reference * vectors).sum(1)
        found = nearest(vectors)
        agree = (expected[:, :, None] == found[:, None, :]).any(2).mean()
        # Among few texts the nearest ten are most of them, whatever the vectors are.
        enough = count >= 10 * NEIGHBOURS
        print(
            json.dumps(
                {
                    "mean_cosine": float(cosines.mean()),
                    "least_cosine": float(cosines.min()),
                    "neighbours": float(agree) if enough else None,
                }
            )
        )


if __name__ == "__main__":
    main()
