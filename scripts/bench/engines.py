"""The engines that setup.sh can set up, and how each is started."""

import dataclasses
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# What is not a part of an engine: pip itself.
NOT_INSTALLED = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "distutils-precedence.pth", "__pycache__")
# What throughputs and latencies are compared with.
BASELINE = "onnxruntime-f32"
# Family, title, worker, precisions.
PYTHON = [
    ("uform", "UForm, Python", ("f32", "bf16", "i8")),
    ("onnxruntime", "ONNX Runtime", ("f32", "i8")),
    ("openvino", "OpenVINO", ("f32", "bf16", "i8")),
    ("ctranslate2", "CTranslate2", ("f32", "bf16", "i8")),
    ("sentence-transformers", "sentence-transformers", ("f32", "bf16")),
    ("fastembed", "fastembed", ("f32", "i8")),
]
RUST = [("uform-rust", "UForm, Rust", "uform", ("f32", "bf16", "i8")), ("candle", "candle", "candle", ("f32",))]
NODE = [
    ("uform-node", "UForm, Node", "uform", "uform", ("f32", "bf16", "i8")),
    ("transformers.js", "transformers.js", "@huggingface/transformers", "transformersjs", ("f32", "i8")),
]


@dataclasses.dataclass(frozen=True)
class Engine:
    family: str
    title: str
    precision: str
    command: tuple
    # Folders and files that were installed for it.
    installed: tuple = ()

    @property
    def name(self):
        return f"{self.family}-{self.precision}"

    @property
    def ours(self):
        return self.family.startswith("uform")

    def installed_bytes(self):
        return sum(size(path) for path in self.installed) or None


def size(path):
    if path.is_symlink():
        return 0
    if path.is_file():
        return path.stat().st_size
    return sum(size(entry) for entry in path.iterdir() if not entry.name.startswith(NOT_INSTALLED))


def node_packages(folder, name):
    """The folders of a package and of all that it depends on."""
    listed = subprocess.run(
        ["npm", "ls", "--all", "--parseable", "--prefix", str(folder)], capture_output=True, text=True
    ).stdout.splitlines()
    own = folder / "node_modules/uform"
    others = [pathlib.Path(path) for path in listed[1:] if pathlib.Path(path).resolve() != own.resolve()]
    # A package inside another is a part of it already.
    return (own.resolve(),) if name == "uform" else tuple(path for path in others if str(path).count("node_modules") == 1)


def available(folder):
    """All engines that are set up in the folder, and the families that are not."""
    found, missing = [], []
    for family, title, precisions in PYTHON:
        python = folder / family / "bin/python"
        # -P: a folder of that name in the current one is no module.
        if python.exists() and (
            family != "uform" or subprocess.run([python, "-P", "-c", "import uform"], stderr=subprocess.DEVNULL).returncode == 0
        ):
            command = (str(python), str(HERE / f"worker_{family.replace('-', '_')}.py"))
            packages = tuple(python.parent.parent.resolve().glob("lib/python3*/site-packages"))
            found += [Engine(family, title, precision, command, packages) for precision in precisions]
        else:
            missing.append(family)
    for family, title, binary, precisions in RUST:
        path = folder / "rust" / binary / "release" / binary
        if path.exists():
            found += [Engine(family, title, precision, (str(path),), (path,)) for precision in precisions]
        else:
            missing.append(family)
    for family, title, package, worker, precisions in NODE:
        if (folder / "node/node_modules" / package).exists():
            command = ("node", str(HERE / f"node/worker_{worker}.mjs"))
            packages = node_packages(folder / "node", package)
            found += [Engine(family, title, precision, command, packages) for precision in precisions]
        else:
            missing.append(family)
    return found, missing


def parsed(text):
    """An engine from the command line: NAME=COMMAND, or NAME:PRECISION=COMMAND."""
    name, _, command = text.partition("=")
    family, _, precision = name.partition(":")
    return Engine(family, family, precision or "f32", tuple(command.split()))
