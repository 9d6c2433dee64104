// UForm through its Node package, called as a program calls it that waits for the result.

import { join } from 'node:path';
import { load, parsed, serve } from './worker.mjs';

const given = parsed();
const { Executor, Model, Mood, init, version } = await load(given.packages, 'uform');
await init();
const threads = Executor.forRam({ threads: given.threads });
threads.drain(Mood.Spinning);
const model = Model.loadRam(join(given.work, 'model'), { executor: threads, precision: given.precision });
const on = model.on(threads);
await serve(given, (texts) => on.embedTexts(texts).data, `uform ${version()}`, { sorted: false });
