// The package from outside: both module systems, packing, and what happens without an addon.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as imported from "uform";
import { tiny } from "./paths.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "uform-package-"));
const installed = join(folder, "node_modules", "uform");
after(() => rmSync(folder, { recursive: true, force: true }));

const run = (...arguments_) => spawnSync(process.execPath, arguments_, { cwd: folder, encoding: "utf8" });

test("import and require give the same package", () => {
  const required = createRequire(import.meta.url)("uform");
  const names = (module) => Object.keys(module).filter((name) => name !== "default" && name !== "module.exports").sort();
  assert.deepEqual(names(required), names(imported));
  assert.deepEqual(names(imported), [
    "Arena",
    "ArenaMatrix",
    "Executor",
    "GpuVendor",
    "Model",
    "Mood",
    "On",
    "OnDeferred",
    "UFormError",
    "capabilitiesAvailable",
    "capabilitiesCompiled",
    "cpuClassDetected",
    "gpuDevices",
    "init",
    "setLogCallback",
    "version",
  ]);
});

test("handles of one module system serve the other", () => {
  const required = createRequire(import.meta.url)("uform");
  const executor = required.Executor.forRam({ threads: 1 });
  const model = imported.Model.loadRam(tiny(), { executor });
  const matrix = required.Arena.newIn(executor).allocate(1, model.dimensions);
  model.on(executor).embedTexts("the cat", { into: matrix });
  assert.deepEqual(matrix.copy(), model.embedTexts("the cat").data);
  executor.free();
});

test("what is packed works where it is installed", () => {
  const [{ files, filename }] = JSON.parse(
    execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], {
      cwd: root,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    }),
  );
  const paths = files.map(({ path }) => path);
  for (const path of ["dist/esm/index.d.ts", "dist/cjs/index.js", "dist/esm/addon.cjs", "README.md"]) {
    assert.ok(paths.includes(path), path);
  }
  assert.ok(paths.some((path) => path.endsWith(".node")));
  assert.ok(!paths.some((path) => /^(src|tests|scripts)\//.test(path) || path.includes("dist/tests")), paths.join());
  mkdirSync(installed, { recursive: true });
  execFileSync("tar", ["-xzf", join(folder, filename), "-C", installed, "--strip-components=1"]);
  const body = `const { data } = Model.loadRam(${JSON.stringify(tiny())}).embedTexts("a"); console.log(data.length);`;
  const expected = `${imported.Model.loadRam(tiny()).dimensions}\n`;
  const esm = run("--input-type=module", "-e", `import { Model } from "uform"; ${body}`);
  assert.deepEqual([esm.stdout, esm.stderr, esm.status], [expected, "", 0]);
  const cjs = run("-e", `const { Model } = require("uform"); ${body}`);
  assert.deepEqual([cjs.stdout, cjs.stderr, cjs.status], [expected, "", 0]);
});

test("without an addon the error says which one is missing", () => {
  const bare = join(folder, "bare", "node_modules", "uform");
  for (const part of ["dist", "package.json"]) {
    cpSync(join(root, part), join(bare, part), { recursive: true });
  }
  const { stderr, status } = spawnSync(process.execPath, ["-e", `require("uform")`], {
    cwd: join(folder, "bare"),
    encoding: "utf8",
  });
  assert.notEqual(status, 0);
  assert.match(stderr, new RegExp(`no addon for ${process.platform}-${process.arch}`));
});

test("examples of the README run", () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const examples = [...readme.matchAll(/^```(javascript|typescript)\n(.*?)^```$/gms)].map(([, language, code]) => ({
    language,
    code: code.replaceAll('"all-MiniLM-L6-v2"', JSON.stringify(tiny())),
  }));
  assert.ok(examples.length >= 4);
  for (const [index, { language, code }] of examples.entries()) {
    const folder = join(root, "dist", "examples");
    mkdirSync(folder, { recursive: true });
    const commonJs = !/^import /m.test(code);
    const file = join(folder, `example-${index}.${language === "typescript" ? "mts" : commonJs ? "cjs" : "mjs"}`);
    writeFileSync(file, code);
    if (language === "typescript") {
      const compiler = createRequire(import.meta.url).resolve("typescript/package.json");
      const options = ["--ignoreConfig", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,esnext.disposable", "--types", "node"];
      execFileSync(process.execPath, [join(compiler, "..", "bin", "tsc"), ...options, "--strict", file], {
        cwd: root,
        stdio: "inherit",
      });
    }
    const { stderr, status } = spawnSync(process.execPath, [file.replace(/\.mts$/, ".mjs")], {
      cwd: root,
      encoding: "utf8",
    });
    assert.deepEqual([status, stderr], [0, ""], code);
  }
});
