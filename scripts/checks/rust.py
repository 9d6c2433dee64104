"""Rust sources without what the checks must not look into."""

import re


def code(text: str) -> str:
    """The source with comments and the insides of strings blanked out; every line keeps its place."""
    pattern = re.compile(
        r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>\#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\[^\n]+?|[^'\\\n])'""",
        re.S,
    )
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def body(text: str, start: int) -> str:
    """What stands between the first brace after `start` and the one that closes it, in a text from `code`."""
    begin = text.index("{", start)
    depth = 0
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin + 1 : position]
    raise ValueError("a brace is never closed")
