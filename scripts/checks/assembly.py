"""The built library, where it is one of x86-64, has the instructions of AMX that its kernels write in assembly, each with the
tiles that they mean, as objdump reads them: sums in tiles 0 to 3, inputs in 4 and 5, weights in 6 and 7."""

import re
import shutil
import subprocess
from pathlib import Path

import abi

# Sum, input and weights of each product, in the order of the manual.
PRODUCTS = [(0, 4, 6), (1, 4, 7), (2, 4, 6), (2, 5, 6), (3, 4, 7), (3, 5, 7)]
AMX = re.compile(r"\t((?:tdp\w+|tile\w+|ldtilecfg|sttilecfg)\b.*)")
MEMORY = re.compile(r"\[[^]]*\]")


def expected() -> set[str]:
    """Every instruction with its operands, where any place in memory is `[]`."""
    tiles = {f"tileloadd tmm{tile},[]" for tile in range(8)}
    tiles |= {f"{name}" for tile in range(4) for name in (f"tilezero tmm{tile}", f"tilestored [],tmm{tile}")}
    products = {
        f"{name} tmm{sums},tmm{inputs},tmm{weights}"
        for name in ("tdpbf16ps", "tdpfp16ps", "tdpbusd")
        for sums, inputs, weights in PRODUCTS
    }
    return tiles | products | {"ldtilecfg []", "tilerelease"}


def found(disassembly: str) -> set[str]:
    lines = (match[1] for match in AMX.finditer(disassembly))
    return {" ".join(MEMORY.sub("[]", line).split()) for line in lines}


def differences(disassembly: str) -> list[str]:
    there = found(disassembly)
    return [f"{line} is missing" for line in sorted(expected() - there)] + [
        f"{line} is none that kernels mean" for line in sorted(there - expected())
    ]


def problems(root: Path) -> list[str]:
    path = abi.library(root)
    if path is None:
        return ["no library in target/; build it with 'cargo build -p uform-c'"]
    if path.suffix != ".so":
        return []
    if shutil.which("objdump") is None:
        return ["objdump is missing; it is part of binutils"]
    header = subprocess.run(["objdump", "-f", path], check=True, capture_output=True, text=True).stdout
    if "elf64-x86-64" not in header:
        return []
    command = ["objdump", "--disassemble", "--no-show-raw-insn", "--disassembler-options=intel", path]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [f"{path.relative_to(root)}: {line}" for line in differences(listed)]
