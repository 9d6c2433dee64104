// Runs a program of wasm32-wasip1 in Node, with this machine's files and its environment: node wasi.mjs PROGRAM.wasm ARGUMENTS

import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";

const [file, ...rest] = process.argv.slice(2);
const args = [file, ...rest];
const wasi = new WASI({ version: "preview1", args, env: process.env, preopens: { "/": "/" }, returnOnExit: true });
const { instance } = await WebAssembly.instantiate(await readFile(file), wasi.getImportObject());
process.exit(wasi.start(instance));
