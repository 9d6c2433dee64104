#!/usr/bin/env python3
"""Draws where the time of a model goes: what `cargo bench -p uform-c --bench layers -- MODEL` prints, as SVG.

    cargo bench -p uform-c --bench layers -- MODEL > layers.txt
    scripts/bench/profile.py layers.txt docs/profile.svg

Every bar is a precision and a workload on one thread, its parts are the steps of all layers; beside the products stands the share
of what the machine can multiply and add at most.
"""

import pathlib
import sys
from xml.sax.saxutils import escape

from plot import STYLE, text

# Told apart by people who see colours differently; products are warm or blue, what is around them is grey.
COLOURS = ["#4477aa", "#ee6677", "#66ccee", "#ccbb44", "#ee7733", "#777777", "#999999", "#bbbbbb"]
WIDTH, NAMES, ROW, BAR, HEAD = 640, 120, 26, 18, 92


def read(lines):
    """Steps by precision and workload: name, microseconds, share of the limit."""
    bars = {}
    for line in lines:
        fields = line.rstrip("\n").split("\t")
        if len(fields) == 5:
            precision, workload, step, microseconds, share = fields
            bars.setdefault((precision, workload), []).append((step, float(microseconds), share))
    return bars


def draw(bars):
    steps = [step for step, _, _ in next(iter(bars.values()))]
    height = HEAD + ROW * len(bars) + 10
    width = NAMES + WIDTH + 90
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -6 {width + 20} {height}" width="{width + 20}" height="{height}" role="img">',
        f"<title>Where the time goes, on one thread</title><style>{STYLE}\n.in {{ fill: #ffffff; font-size: 10px }}</style>",
        text(0, 14, "Where the time goes, on one thread", "title"),
        text(0, 32, "Per cent in a bar: share of the machine's limit in that type.", "note"),
    ]
    for index, step in enumerate(steps):
        x, y = 190 * (index % 4), 48 + 20 * (index // 4)
        lines.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{COLOURS[index]}"/>' + text(x + 17, y + 10, step))
    for row, ((precision, workload), parts) in enumerate(bars.items()):
        y, x = HEAD + ROW * row, float(NAMES)
        whole = sum(microseconds for _, microseconds, _ in parts)
        lines.append(text(NAMES - 8, y + 13, f"{workload} {precision}", "", "end"))
        for index, (step, microseconds, share) in enumerate(parts):
            length = WIDTH * microseconds / whole
            about = f"{step}: {microseconds:.0f} µs, {100 * microseconds / whole:.0f} % of the time"
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{COLOURS[index]}"><title>{escape(about)}</title></rect>'
            )
            if share != "-" and length > 34:
                lines.append(text(x + length / 2, y + 12.5, share, "in", "middle"))
            x += length
        shown = f"{whole / 1e3:.2f} ms"
        lines.append(text(NAMES + WIDTH + 8, y + 13, shown, "note"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    bars = read(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    if not bars:
        raise SystemExit(f"{sys.argv[1]}: expected lines of the bench layers, found none")
    pathlib.Path(sys.argv[2]).write_text(draw(bars), encoding="utf-8")


if __name__ == "__main__":
    main()
