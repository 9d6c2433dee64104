"""Writes include/uform.abi: what programs that were compiled against the header rely on, one sorted line each.
Functions and callbacks with their types, constants with their values, types, and the sizes and offsets of structures
as a C compiler for a 64-bit machine lays them out. `scripts/check.sh abi` demands that it only grows."""

import os
import subprocess
import tempfile
from pathlib import Path

from declarations import HEADER, ROOT, Declaration, header

TARGET = ROOT / "include" / "uform.abi"


def layout(items: list[Declaration]) -> list[str]:
    """Compiles and runs a program that prints the size of each structure and the place of each member."""
    lines = ['#include "uform.h"', "#include <stdio.h>", "int main(void) {"]
    for item in items:
        if item.kind != "structure":
            continue
        lines.append(f'    printf("structure {item.name}: %zu bytes\\n", sizeof({item.name}));')
        for member in item.members:
            if member.name == "reserved":  # may become something else one day, in the same place
                continue
            count = f"[{member.count}]" if member.count else ""
            lines.append(
                f'    printf("member {item.name}.{member.name}: {member.type}{count} at %zu, %zu bytes\\n", '
                f"offsetof({item.name}, {member.name}), sizeof((({item.name} *)0)->{member.name}));"
            )
    source = "\n".join([*lines, "    return sizeof(void *) == 8 ? 0 : 1;", "}", ""])
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "layout"
        program.with_suffix(".c").write_text(source)
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-std=c99", f"-I{HEADER.parent}", f"{program}.c", "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def snapshot() -> str:
    items = header()
    lines = layout(items)
    for item in items:
        types = ", ".join(member.type for member in item.members) or "void"
        if item.kind == "constant" and not item.name.startswith("UFORM_VERSION_"):
            lines.append(f"constant {item.name}: {item.value}")
        elif item.kind == "type":
            lines.append(f"type {item.name}: {item.type}")
        elif item.kind in ("function", "callback"):
            lines.append(f"{item.kind} {item.name}: {item.type} ({types})")
        elif item.kind == "opaque":
            lines.append(f"handle {item.name}: opaque")
    return "".join(f"{line}\n" for line in sorted(lines))


if __name__ == "__main__":
    TARGET.write_text(snapshot())
