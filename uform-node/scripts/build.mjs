// Builds the package: the addon by cargo, and the TypeScript layer as ES modules and as CommonJS.
//
//   node scripts/build.mjs [--release] [--no-addon] [--features numa] [--wasm FOLDER]
//
// With a folder that scripts/wasm/build.sh has written, the ES modules also have the backend of WebAssembly.

import { execFileSync } from "node:child_process";
import { copyFileSync, cpSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    release: { type: "boolean", default: false },
    "no-addon": { type: "boolean", default: false },
    features: { type: "string", default: "" },
    wasm: { type: "string", default: "" },
  },
});
const here = join(dirname(fileURLToPath(import.meta.url)), "..");

/** The file that cargo writes on this platform. */
const artifacts = {
  darwin: "libuform_node.dylib",
  win32: "uform_node.dll",
};

function buildAddon() {
  const profile = options.release ? "release" : "debug";
  const features = options.features ? ["--features", options.features] : [];
  const release = options.release ? ["--release"] : [];
  const log = execFileSync(
    "cargo",
    ["build", "-p", "uform-node", "--message-format=json-render-diagnostics", ...release, ...features],
    { cwd: here, encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "inherit"] },
  );
  const name = artifacts[process.platform] ?? "libuform_node.so";
  const built = log
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .flatMap((line) => JSON.parse(line).filenames ?? [])
    .find((file) => file.endsWith(name));
  if (built === undefined) throw new Error(`cargo built no ${name} (${profile})`);
  const addonPath = join(here, createRequire(import.meta.url)("../native/platform.cjs").addonName);
  // A new file, as the old one may be mapped into a process that still runs.
  rmSync(addonPath, { force: true });
  copyFileSync(built, addonPath);
}

/** The condition of each runtime that loads the addon. */
const addonRuntimes = ["node", "bun", "deno", "electron"];

/** Which file is the backend, by the condition of a runtime. The condition of our own asks for WebAssembly anywhere. */
function backends(wasm) {
  const addons = Object.fromEntries(addonRuntimes.map((runtime) => [runtime, "./addon.cjs"]));
  return wasm ? { "uform-wasm": "./wasm/backend.mjs", ...addons, default: "./wasm/backend.mjs" } : addons;
}

function buildTypeScript() {
  const tsc = createRequire(import.meta.url).resolve("typescript/package.json");
  const run = (project) =>
    execFileSync(process.execPath, [join(dirname(tsc), "bin", "tsc"), "-p", project], { cwd: here, stdio: "inherit" });
  rmSync(join(here, "dist"), { recursive: true, force: true });
  run("tsconfig.json");
  run("tsconfig.cjs.json");
  for (const [folder, type] of [["esm", "module"], ["cjs", "commonjs"]]) {
    const to = join(here, "dist", folder);
    // The nearest package.json says what a file is and where its imports lead, and they lead only into its own folder.
    const wasm = options.wasm !== "" && folder === "esm";
    const imports = { "#backend": backends(wasm) };
    if (wasm) cpSync(options.wasm, join(to, "wasm"), { recursive: true });
    writeFileSync(join(to, "package.json"), `${JSON.stringify({ type, imports }, null, 2)}\n`);
    for (const file of ["addon.cjs", "platform.cjs"]) copyFileSync(join(here, "native", file), join(to, file));
  }
}

if (!options["no-addon"]) buildAddon();
buildTypeScript();
