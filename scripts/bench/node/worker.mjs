// The conversation of worker.py for engines in Node.

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const BATCH = 32;

/** The arguments: `threads`, `precision`, `work`, and `packages`, the folder whose node_modules are used. */
export function parsed() {
  const options = { threads: { type: 'string' }, precision: { type: 'string', default: 'f32' }, work: { type: 'string' } };
  const { threads, precision, work } = parseArgs({ options }).values;
  return { threads: Number(threads), precision, work, packages: join(work, '../../node') };
}

/** Imports a package of `packages`: this file does not lie beside it. */
export function load(packages, name) {
  return import(pathToFileURL(createRequire(join(packages, 'package.json')).resolve(name)));
}

/** Answers run.py until it says quit. `embed(texts)` gives the rows of one batch, one after another, as a Float32Array;
 * an engine that does not pad is not `sorted`. */
export async function serve(given, embed, version, { sorted }) {
  const texts = (name) => JSON.parse(readFileSync(join(given.work, 'texts', `${name}.json`), 'utf8'));

  async function embedAll(some, byLength) {
    const order = some.map((_, index) => index);
    if (byLength && sorted) order.sort((a, b) => some[b].length - some[a].length);
    let output, columns;
    for (let start = 0; start < order.length; start += BATCH) {
      const chosen = order.slice(start, start + BATCH);
      const rows = await embed(chosen.map((index) => some[index]));
      columns ??= rows.length / chosen.length;
      output ??= new Float32Array(some.length * columns);
      chosen.forEach((index, row) => output.set(rows.subarray(row * columns, (row + 1) * columns), index * columns));
    }
    return { output, columns };
  }

  async function timed(call) {
    const start = process.hrtime.bigint();
    await call();
    return Number(process.hrtime.bigint() - start) / 1e9;
  }

  const verbs = {
    async query({ count }) {
      const seconds = [];
      for (let index = 0; index < count; index++) seconds.push(await timed(() => embed(query)));
      return { seconds };
    },
    async embed({ texts: name, order, count }) {
      const some = texts(name).slice(0, count);
      return { seconds: await timed(() => embedAll(some, order === 'length')) };
    },
    async vectors({ texts: name, path, count }) {
      const { output, columns } = await embedAll(texts(name).slice(0, count), true);
      writeFileSync(path, new Uint8Array(output.buffer));
      return { rows: count, columns };
    },
    async memory() {
      const kilobytes = readFileSync('/proc/self/status', 'utf8').match(/^VmHWM:\s+(\d+)/m)[1];
      return { peak_bytes: Number(kilobytes) * 1024 };
    },
  };

  const query = texts('query');
  await embed(query);
  console.log(JSON.stringify({ ready: version }));
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    if (command.do === 'quit') break;
    console.log(JSON.stringify(await verbs[command.do](command)));
  }
  process.exit(0);
}
