/* The types of the verbs, and `using` as a compiler lowers it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Arena, Executor, Model, On, UFormError, type Embeddings, type EmbedTextsOptions, type Status } from "uform";

const tiny = fileURLToPath(new URL("../../../tests/conformance/models/bert-mean", import.meta.url));

test("using frees", () => {
  let executor: Executor;
  let model: Model;
  let arena: Arena;
  {
    using threads = Executor.forRam({ threads: 2 });
    using loaded = Model.loadRam(tiny, { executor: threads });
    using outputs = Arena.newIn(threads);
    using matrix = outputs.allocate(1, loaded.dimensions);
    loaded.on(threads).embedTexts("a cat", { into: matrix });
    [executor, model, arena] = [threads, loaded, outputs];
  }
  for (const freed of [() => executor.describe(), () => model.describe(), () => arena.describe()]) {
    assert.throws(freed, (error: unknown) => error instanceof UFormError && error.code === "invalid-argument");
  }
  for (const handle of [executor, model, arena]) handle.free();
});

test("the type of the elements follows the options", async () => {
  using threads = Executor.forRam({ threads: 2 });
  using model = Model.loadRam(tiny);
  const on: On = model.on(threads);
  const floats: Float32Array<ArrayBuffer> = on.embedTexts(["a cat", "a dog"]).data;
  const bytes: Int8Array<ArrayBuffer> = on.embedTexts("a cat", { dtype: "i8" }).data;
  const halves: Uint16Array<ArrayBuffer> = (await on.deferred.embedQueries("a cat", { dtype: "bf16" })).data;
  const bits: Embeddings<"b1"> = model.embedDocuments("a cat", { dtype: "b1", reports: true });
  const status: Status | undefined = bits.reports?.[0]?.status;
  assert.deepEqual(
    [floats.length, bytes.length, halves.length, bits.data.length, status],
    [2 * model.dimensions, model.dimensions, model.dimensions, Math.ceil(model.dimensions / 8), "ok"],
  );
  // @ts-expect-error: roles are chosen by the name of the verb.
  assert.throws(() => on.embedQueries("a cat", { role: "document" }), { code: "invalid-argument", message: /^role/ });
  const given: EmbedTextsOptions = { role: "query" };
  // @ts-expect-error: so they are where the options are made elsewhere.
  assert.equal(model.embedQueries("a cat", given).rows, 1);
  // @ts-expect-error: and in the deferred form.
  await assert.rejects(on.deferred.embedDocuments("a cat", given), { code: "invalid-argument", message: /^role/ });
  // @ts-expect-error: there is no such type.
  assert.throws(() => on.embedTexts("a cat", { dtype: "f64" }), { code: "invalid-argument" });
});
