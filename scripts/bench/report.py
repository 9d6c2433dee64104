"""The figures of a run as Markdown tables. A ratio above 1 means better, whatever is compared."""

import statistics

from engines import BASELINE
from workloads import WORKLOADS


def summaries(results, threads):
    """For each engine and workload one number: seconds for the query, texts per second for the others."""
    figures = results["threads"][threads]["figures"]
    return {name: {key: statistics.median(some) for key, some in of.items() if some} for name, of in figures.items()}


def better(workload, own, other):
    """How many times better `own` is than `other`."""
    return other / own if workload.latency else own / other


def best_peer(results, summary, workload, precision):
    """Name and number of the best engine of that precision that is not ours, or None."""
    peers = {
        name: of[workload.key]
        for name, of in summary.items()
        if workload.key in of and not results["engines"][name]["ours"] and results["engines"][name]["precision"] == precision
    }
    if not peers:
        return None
    name = (min if workload.latency else max)(peers, key=peers.get)
    return name, peers[name]


def share(result, workload, precision, number):
    """The share of the machine's ceiling in that precision that the arithmetic of the workload takes place at."""
    ceiling = result["ceilings"].get(precision)
    if not ceiling:
        return None
    each = result["operations"][workload.key]
    return (each / number if workload.latency else each * number) / ceiling


def percentile(some, part):
    return sorted(some)[min(len(some) - 1, int(part * len(some)))]


def rows(lines):
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def cell(number, digits, ratios=()):
    ratios = " / ".join("–" if ratio is None else f"{ratio:.2f}×" for ratio in ratios)
    return f"{number:.{digits}f}" + (f" ({ratios})" if ratios else "")


def ordered(results, names):
    """By precision, ours first."""
    kinds = ["f32", "bf16", "f16", "i8"]
    described = results["engines"]
    return sorted(names, key=lambda name: (kinds.index(described[name]["precision"]), not described[name]["ours"]))


def speed(results, threads):
    """Each engine's speed; ratios to the baseline, and for ours also to the best peer of the same precision."""
    workloads = WORKLOADS[results["model"]]
    summary = summaries(results, threads)
    head = ["engine", "precision"]
    for workload in workloads:
        head += [f"{workload.title}, ms", "its 99th percentile"] if workload.latency else [f"{workload.title}, texts/s"]
    lines = [head]
    for name in ordered(results, summary):
        about = results["engines"][name]
        cells = [f"**{about['title']}**" if about["ours"] else about["title"], about["precision"]]
        for workload in workloads:
            own = summary[name].get(workload.key)
            if own is None:
                cells += ["–"] * (2 if workload.latency else 1)
                continue
            base = summary.get(BASELINE, {}).get(workload.key)
            ratios = [better(workload, own, base)] if base and name != BASELINE else []
            if about["ours"]:
                best = best_peer(results, summary, workload, about["precision"])
                ratios.append(better(workload, own, best[1]) if best else None)
            if workload.latency:
                late = percentile(results["threads"][threads]["figures"][name][workload.key], 0.99)
                cells += [cell(own * 1e3, 2, ratios), cell(late * 1e3, 2)]
            else:
                cells.append(cell(own, 1, ratios))
        lines.append(cells)
    return rows(lines)


def ours(results, threads):
    """UForm beside the best peers, and beside what the machine can do at most."""
    result, summary = results["threads"][threads], summaries(results, threads)
    lines = [["UForm", "precision", "workload", "to ONNX Runtime f32", "to the best peer", "which", "share of the ceiling"]]
    for name in ordered(results, summary):
        about = results["engines"][name]
        if not about["ours"]:
            continue
        for workload in WORKLOADS[results["model"]]:
            own = summary[name].get(workload.key)
            if own is None:
                continue
            base = summary.get(BASELINE, {}).get(workload.key)
            best = best_peer(results, summary, workload, about["precision"])
            part = share(result, workload, about["precision"], own)
            lines.append(
                [
                    about["title"].partition(", ")[2] or about["title"],
                    about["precision"],
                    workload.title,
                    f"{better(workload, own, base):.2f}×" if base else "–",
                    f"{better(workload, own, best[1]):.2f}×" if best else "–",
                    results["engines"][best[0]]["title"] if best else "–",
                    f"{part:.0%}" if part else "–",
                ]
            )
    return rows(lines) if len(lines) > 1 else ""


def properties(results):
    """What does not depend on the workload: start, memory, size and accuracy, with the first number of threads."""
    about = next(iter(results["threads"].values()))["about"]
    lines = [
        [
            "engine",
            "precision",
            "first vector after, s",
            "peak memory, MB",
            "installed, MB",
            "mean cosine",
            "least cosine",
            "10 nearest agree",
        ]
    ]

    def shown(value, form, factor=1.0):
        return "–" if value is None else form.format(value * factor)

    for name in ordered(results, about):
        of, described = about[name], results["engines"][name]
        lines.append(
            [
                f"**{described['title']}**" if described["ours"] else described["title"],
                described["precision"],
                shown(of.get("start_seconds"), "{:.3f}"),
                shown(of.get("peak_bytes"), "{:.0f}", 1e-6),
                shown(described["installed_bytes"], "{:.0f}", 1e-6),
                shown(of.get("mean_cosine"), "{:.6f}"),
                shown(of.get("least_cosine"), "{:.6f}"),
                shown(of.get("neighbours"), "{:.1%}"),
            ]
        )
    return rows(lines)


def ceilings(result):
    units = {"f32": "GFLOP/s f32", "bf16": "GFLOP/s bf16", "i8": "GOP/s i8"}
    return ", ".join(
        f"{result['ceilings'][name] / 1e9:.0f} {unit}" for name, unit in units.items() if result["ceilings"].get(name)
    )


def markdown(results):
    machine, settings = results["machine"], results["settings"]
    about = next(iter(results["threads"].values()))["about"]
    versions = sorted({of["version"] for of in about.values() if "version" in of}, key=str.lower)
    parts = [
        f"{results['model']} on {machine['processor']}, {machine['usable_cores']} usable cores, load {machine['load_before']:.1f} before. "
        f"{settings['rounds']} rounds, medians. {'; '.join(versions)}.",
        "Behind each figure, in brackets: how many times better than ONNX Runtime f32, and for UForm also than the best peer of the same precision.",
    ]
    for threads, result in results["threads"].items():
        parts += [f"### {threads} thread{'s' if threads != '1' else ''}", speed(results, threads)]
        if top := ceilings(result):
            parts.append(f"The most that the machine's vector units did in the same run: {top}.")
        parts.append(ours(results, threads))
    parts += ["### Start, memory, size, accuracy", properties(results)]
    if results["model"] != "all-MiniLM-L6-v2":
        parts.append(
            "The weights are random, so that all vectors lie close together: here the cosines tell little about accuracy."
        )
    if results["interpreters"]:
        starts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in results["interpreters"].items())
        parts.append(f"An interpreter that does nothing takes, from its start to its end: {starts}.")
    return "\n\n".join(part for part in parts if part)
