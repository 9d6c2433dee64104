// A worker of workers.test.mjs: opens the shared model, and does what it is told.

import { parentPort, workerData } from "node:worker_threads";
import { Executor, Model } from "uform";
import { someTexts } from "./paths.mjs";

const { token, task, path } = workerData;
const model = token === undefined ? Model.loadRam(path) : Model.open(token);
const executor = Executor.forRam({ threads: 1 });
const on = model.on(executor);

if (task === "embed") {
  parentPort.postMessage((await on.deferred.embedTexts("the cat")).data);
  parentPort.once("message", () => parentPort.close());
} else if (task === "pending") {
  // Never settled: the parent ends this thread meanwhile.
  const texts = someTexts(5000);
  for (let call = 0; call < 4; call += 1) void on.deferred.embedTexts(texts, { progress: () => {} });
  void Model.deferred.loadRam(path);
  parentPort.postMessage("started");
  setInterval(() => {}, 1000);
} else if (task === "forget") {
  // The event loop runs empty with handles that nobody freed.
  on.embedTexts("the cat");
  parentPort.postMessage("done");
}
