"""Runs the checks that are named as arguments, or all. Each is a module here with a function `problems(root)` that
returns one sentence per violation."""

import importlib
import sys
import time
import unittest

from tree import ROOT

CHECKS = ["words", "sizes", "docs", "guard", "layers", "coverage", "generated", "abi", "assembly"]


def selftest() -> list[str]:
    """The checks can fail: each of them finds what is wrong with a small wrong tree."""
    suite = unittest.defaultTestLoader.loadTestsFromName("test_checks")
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(suite)
    return [f"{test}: {trace}" for test, trace in result.failures + result.errors]


def main(names: list[str]) -> int:
    if names == ["--list"]:
        for name in CHECKS:
            print(f"{name:10} {' '.join(importlib.import_module(name).__doc__.split())}")
        print(f"{'selftest':10} {selftest.__doc__}")
        return 0
    failed = 0
    for name in names or [*CHECKS, "selftest"]:
        if name not in CHECKS and name != "selftest":
            sys.exit(f"no check {name!r}; there are {', '.join(CHECKS)} and selftest")
        start = time.monotonic()
        found = selftest() if name == "selftest" else importlib.import_module(name).problems(ROOT)
        for problem in found:
            print(f"{name}: {problem}")
        print(f"{name}: {f'{len(found)} problems' if found else 'ok'} ({time.monotonic() - start:.1f} s)", flush=True)
        failed += bool(found)
    return 1 if failed else 0


sys.exit(main(sys.argv[1:]))
