// transformers.js in Node, in f32 or i8 (its "q8"), on onnxruntime-node.

import { join } from 'node:path';
import { load, parsed, serve } from './worker.mjs';

const given = parsed();
const { env, pipeline } = await load(given.packages, '@huggingface/transformers');
env.allowRemoteModels = false;
env.localModelPath = join(given.work, 'transformers.js');
const extract = await pipeline('feature-extraction', 'model', {
  dtype: given.precision === 'i8' ? 'q8' : 'fp32',
  device: 'cpu',
  session_options: { intraOpNumThreads: given.threads, interOpNumThreads: 1 },
});
const embed = async (texts) => (await extract(texts, { pooling: 'mean', normalize: true })).data;
await serve(given, embed, `transformers.js ${env.version}`, { sorted: true });
