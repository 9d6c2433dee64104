"""Each check accepts a small right tree and finds what is wrong with small wrong ones."""

import subprocess
import tempfile
import unittest
from pathlib import Path

import abi
import assembly
import coverage
import docs
import generated
import guard
import layers
import sizes
import words

HEADER = """\
/// The major part.
#define UFORM_VERSION_MAJOR 4

typedef struct uform_box_t uform_box_t;

/// A status.
typedef int32_t uform_status_t;

/// A box.
struct uform_box_t {
    /// Its size.
    size_t size;
    /// Its width.
    uint32_t width;
};

/// Opens it.
///
/// Thread safety: any thread.
UFORM_API uform_status_t uform_box_open(const uform_box_t *box, size_t count);
"""
EXPORT = """\
//! Boxes.

/// Opens it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uform_box_open(count: usize) -> i32 {
    guard(error, || open(count))
}
"""
MANIFEST = '[package]\nname = "{}"\n[dependencies]\nuform = "4"\n'
SNAPSHOT = "function uform_box_open: int32_t (size_t)\nmember uform_box_t.size: size_t at 0, 8 bytes\nstructure uform_box_t: 16 bytes\n"


class Checks(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def finds(self, check, *parts: str) -> None:
        """One problem that has all the parts in its sentence; none when there are no parts."""
        found = check.problems(self.root)
        self.assertEqual(len(found), 1 if parts else 0, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_words(self):
        self.write("README.md", "See https://docs.rs/uform and ~/.cache, run /usr/bin/env or a/home/run.\n")
        self.write("package-lock.json", "https://" + ".".join(("npmjs", "org")) + "/x\n")
        self.finds(words)
        for name, text, what in [
            ("a.md", "fetch https://" + ".".join(("npmjs", "org")) + "/x", "registry"),
            ("a.md", "static." + ".".join(("crates", "io")), "registry"),
            ("a.sh", "cd /ho" + "me/someone/uform", "machine"),
            ("a.sh", f"cd {self.root.resolve()}/target", "machine"),
            ("a.rs", "fn f() { to" + "do!() }", "unfinished"),
            ("a.py", "# FIX" + "ME later", "unfinished"),
        ]:
            self.write(name, text + "\n")
            self.finds(words, f"{name}:1", what)
            (self.root / name).unlink()

    def test_sizes(self):
        self.write("a.rs", "x\n" * 600)
        self.write("uform-rs/src/sys.rs", "x\n" * 601)
        self.write("a.txt", "x\n" * 601)
        self.finds(sizes)
        self.write("a.rs", "x\n" * 601)
        self.finds(sizes, "a.rs", "601")

    def test_docs(self):
        self.write("include/uform.h", HEADER)
        self.write("a.rs", "#![allow(x)]\n//! What for.\n")
        self.finds(docs)
        self.write("a.rs", "// What for.\n")
        self.finds(docs, "a.rs")
        (self.root / "a.rs").unlink()
        for line, part in [
            ("/// The major part.\n", "UFORM_VERSION_MAJOR"),
            ("/// A status.\n", "uform_status_t"),
            ("    /// Its width.\n", "uform_box_t.width"),
            ("/// Thread safety: any thread.\n", "uform_box_open"),
        ]:
            self.write("include/uform.h", HEADER.replace(line, ""))
            self.finds(docs, part)

    def test_guard(self):
        self.write("uform-c/src/abi/box.rs", EXPORT)
        self.finds(guard)
        self.write("uform-c/src/abi/box.rs", EXPORT.replace("guard(error, || open(count))", "open(count) // guard()"))
        self.finds(guard, "uform_box_open", "does not go through")
        self.write("uform-c/src/abi/box.rs", EXPORT.replace("    guard", "    let x = count.checked_add(1).unwrap();\n    guard"))
        self.finds(guard, "before its guard")
        self.write("uform-c/src/abi/box.rs", EXPORT.replace("pub unsafe ext", "unsafe ext"))
        self.finds(guard, "exports something")
        (self.root / "uform-c/src/abi/box.rs").unlink()
        self.write("uform-c/src/models/box.rs", EXPORT)
        self.finds(guard, "only files of")

    def layered(self) -> None:
        for crate in layers.BINDINGS:
            self.write(f"{crate}/Cargo.toml", MANIFEST.format(crate))
        self.write("uform-rs/src/lib.rs", "use uform_c as _;\n")
        self.write("uform-c/src/lib.rs", "//! models\nmod base;\n")

    def test_layers_of_the_engine(self):
        self.layered()
        self.write("uform-c/src/ops/linear.rs", "use crate::{base::{models, Error}, kernels};\nuse super::mesh;\n// crate::abi\n")
        self.finds(layers)
        for name, text, parts in [
            ("ops/linear.rs", "use crate::{base::Error, models::Model};", ["ops refers up to models"]),
            ("ops/linear.rs", "fn f() { crate::abi::g() }", ["up to abi"]),
            ("ops/linear.rs", "use super::super::models;", ["up to models"]),
            ("ops/mod.rs", "use super::models;", ["up to models"]),
            ("base/mod.rs", "use crate::system::cpu;", ["base refers up to system"]),
            ("ops/linear.rs", "use crate::helpers;", ["crate::helpers", "no layer"]),
            ("helpers.rs", "", ["none of the layers"]),
        ]:
            self.write(f"uform-c/src/{name}", text + "\n")
            self.finds(layers, *parts)
            (self.root / "uform-c/src" / name).unlink()

    def test_layers_of_the_bindings(self):
        self.layered()
        self.write("uform-node/Cargo.toml", MANIFEST.format("uform-node") + 'uform-c = "4"\n')
        self.finds(layers, "uform-node/Cargo.toml")
        self.write("uform-node/Cargo.toml", MANIFEST.format("uform-node") + '[target.x.dependencies]\nengine = { package = "uform-c" }\n')
        self.finds(layers, "uform-node/Cargo.toml")
        self.layered()
        self.write("uform-python/src/lib.rs", "use uform_c::abi;\n")
        self.finds(layers, "uform-python", "names uform_c")
        (self.root / "uform-python/src/lib.rs").unlink()
        self.write("uform-rs/src/lib.rs", "use uform_c::models::Model;\n")
        self.finds(layers, "uform-rs", "more than symbols")

    def test_coverage(self):
        right = '[excuses]\nwasm = "later"\n[uform_box_open]\nnode = "Box.open"\npython = { excused = "no boxes" }\n'
        self.write("include/uform.h", HEADER)
        self.write("uform-rs/src/lib.rs", "fn open() { sys::uform_box_open(1) }\n")
        self.write("include/uform.hpp", "auto open() { return checked(uform_box_open, 1); }\n")
        self.write("uform-node/src/index.ts", "class Box {\n  open(count: number): void {}\n}\n")
        self.write("scripts/coverage.toml", right)
        self.finds(coverage)
        self.write("scripts/coverage.toml", right.replace("Box.open", "Box.close"))
        self.finds(coverage, "uform_box_open", "Box.close", "does not define")
        self.write("scripts/coverage.toml", right.replace("Box.open", "Crate.open"))
        self.finds(coverage, "Crate.open")
        self.write("scripts/coverage.toml", right.replace('node = "Box.open"', ""))
        self.finds(coverage, "neither wrapped nor excused in node")
        self.write("scripts/coverage.toml", right + '[uform_gone]\nnode = "Box.open"\n')
        self.finds(coverage, "uform_gone is not in the header")
        self.write("scripts/coverage.toml", right)
        self.write("uform-node/src/index.ts", "class Box { f() { this.box.open(1) } }\n")
        self.finds(coverage, "does not define")
        self.write("uform-node/src/index.ts", "class Box {\n  open() {}\n}\n")
        self.write("uform-rs/src/lib.rs", "// sys::uform_box_open(1)\n")
        self.finds(coverage, "uform-rs does not call uform_box_open")
        self.write("uform-rs/src/lib.rs", "fn open() { sys::uform_box_open(1) }\n")
        self.write("include/uform.hpp", "// uform_box_open\n")
        self.finds(coverage, "uform.hpp does not call uform_box_open")

    def test_generated(self):
        self.write("scripts/generate.sh", "echo 1 > a.txt\n")
        self.write("a.txt", "1\n")
        self.finds(generated)
        self.write("a.txt", "2\n")
        self.finds(generated, "a.txt is stale")
        (self.root / "a.txt").unlink()
        self.finds(generated, "a.txt is missing")
        self.write("scripts/generate.sh", "echo why >&2; exit 3\n")
        self.finds(generated, "ended with 3", "why")

    def test_abi_may_only_grow(self):
        self.assertEqual(abi.shrunk(SNAPSHOT, SNAPSHOT + "constant UFORM_NEW: 1\n"), [])
        self.assertEqual(abi.shrunk(SNAPSHOT, SNAPSHOT.replace("16", "24")), [])
        for change in [("16 bytes", "12 bytes"), ("int32_t (size_t)", "int32_t (void)"), ("at 0", "at 8"), ("uform_box_open", "uform_box_close")]:
            self.assertEqual(len(abi.shrunk(SNAPSHOT, SNAPSHOT.replace(*change))), 1, change)
        unsized = "structure uform_pair_t: 16 bytes\n"
        self.assertEqual(len(abi.shrunk(unsized, unsized.replace("16", "24"))), 1)

    def test_abi_against_commits(self):
        git = ["git", "-c", "user.name=checks", "-c", "user.email=checks@example.org", "-c", "commit.gpgsign=false"]
        self.write("include/uform.h", HEADER)
        self.write(abi.SNAPSHOT, SNAPSHOT)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
            subprocess.run([*git, *command], cwd=self.root, check=True)
        self.assertEqual(abi.earlier(self.root)["HEAD"], SNAPSHOT)

    def test_assembly(self):
        right = "".join(f"  10:\t{line.replace('[]', '[rax+rdx*1]')}\n" for line in sorted(assembly.expected()))
        self.assertEqual(assembly.differences(right + "  20:\tmov    eax,1\n"), [])
        swapped = right.replace("tdpbf16ps tmm0,tmm4,tmm6", "tdpbf16ps tmm0,tmm6,tmm4")
        self.assertEqual(
            assembly.differences(swapped),
            ["tdpbf16ps tmm0,tmm4,tmm6 is missing", "tdpbf16ps tmm0,tmm6,tmm4 is none that kernels mean"],
        )
        self.assertEqual(assembly.differences(right.replace("tdpbusd", "tdpbssd"))[0], "tdpbusd tmm0,tmm4,tmm6 is missing")
        self.assertIn("no library", assembly.problems(self.root)[0])

    def test_abi_against_a_library(self):
        self.write("include/uform.h", HEADER)
        self.assertIn("no library", abi.exports(self.root)[0])
        self.write("library.c", "int uform_box_close(void) { return 0; }\n")
        (self.root / "target" / "debug").mkdir(parents=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "target/debug/libuform_c.so", "library.c"], cwd=self.root, check=True)
        found = abi.exports(self.root)
        self.assertIn("target/debug/libuform_c.so does not export uform_box_open", found)
        self.assertIn("target/debug/libuform_c.so exports uform_box_close, which the header does not declare", found)
