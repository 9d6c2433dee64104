"""The figures of a run as a plot: a panel for each workload, a bar for each engine, its length the ratio to ONNX Runtime f32."""

from xml.sax.saxutils import escape

from engines import BASELINE
from report import better, summaries
from workloads import WORKLOADS

# Told apart by people who see colours differently, on white and on black; peers are paler than UForm.
COLOURS = {"f32": "#4477aa", "bf16": "#ee7733", "f16": "#aa3377", "i8": "#228833"}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.ours { font-weight: 600 }
.note { fill: #59636e }
.one { stroke: #59636e; stroke-dasharray: 3 3 }
.peer { opacity: 0.45 }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .note { fill: #9198a1 } .one { stroke: #9198a1 } }
"""
PANEL, GAP, NAMES, ROW, HEAD = 450, 40, 185, 18, 34


def text(x, y, words, classes="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{classes}" text-anchor="{anchor}">{escape(words)}</text>'


def bars(results, threads, workload):
    """Engines from the best down: name, ratio, and the figure as it is read."""
    summary = summaries(results, threads)
    base = summary[BASELINE][workload.key]
    found = []
    for name, of in summary.items():
        if workload.key in of:
            own = of[workload.key]
            shown = f"{own * 1e3:.2f} ms" if workload.latency else f"{own:.{0 if own >= 100 else 1}f}/s"
            found.append((name, better(workload, own, base), shown))
    return sorted(found, key=lambda bar: -bar[1])


def panel(results, threads, workload, left, top):
    found = bars(results, threads, workload)
    scale = (PANEL - NAMES - 90) / max(ratio for _, ratio, _ in found)
    lines = [text(left, top + 14, workload.title, "title")]
    one = left + NAMES + scale
    lines.append(f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{top + HEAD - 8}" y2="{top + HEAD + ROW * len(found)}"/>')
    for index, (name, ratio, shown) in enumerate(found):
        about = results["engines"][name]
        y = top + HEAD + ROW * index
        kind = "ours" if about["ours"] else "peer"
        lines.append(
            text(left + NAMES - 6, y + 10, f"{about['title']} {about['precision']}", "ours" if about["ours"] else "", "end")
        )
        lines.append(
            f'<rect class="{kind}" x="{left + NAMES}" y="{y - 1}" width="{ratio * scale:.1f}" height="{ROW - 5}" fill="{COLOURS[about["precision"]]}"/>'
        )
        lines.append(text(left + NAMES + ratio * scale + 5, y + 10, f"{shown}, {ratio:.2f}×", "note"))
    return lines


def svg(results):
    """The first number of threads of a run. Needs the baseline among the engines."""
    threads, result = next(iter(results["threads"].items()))
    if BASELINE not in result["figures"]:
        raise SystemExit(f"a plot needs {BASELINE} in the run: the bars are ratios to it")
    workloads = WORKLOADS[results["model"]]
    height = HEAD + ROW * len(result["figures"]) + GAP
    width, total = 2 * PANEL + GAP, 70 + height * ((len(workloads) + 1) // 2)
    title = f"{results['model']}, {threads} thread{'s' if threads != '1' else ''}, {results['machine']['processor']}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -6 {width + 20} {total}" width="{width + 20}" height="{total}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        text(0, 16, title, "title"),
        text(0, 36, "Times as fast as ONNX Runtime f32 (dashed). UForm is solid, peers are pale.", "note"),
    ]
    x = width - 60.0 * len(COLOURS)
    for precision in COLOURS:
        if any(about["precision"] == precision for about in results["engines"].values()):
            lines.append(
                f'<rect x="{x:.0f}" y="26" width="12" height="12" fill="{COLOURS[precision]}"/>' + text(x + 17, 36, precision)
            )
            x += 60
    for index, workload in enumerate(workloads):
        lines += panel(results, threads, workload, (index % 2) * (PANEL + GAP), 60 + height * (index // 2))
    return "\n".join([*lines, "</svg>"]) + "\n"
