// The conformance suite on the module of WebAssembly.

import { test } from "node:test";
import * as uform from "uform";
import { here, runSuite } from "../conformance.mjs";
import { ready } from "./module.mjs";

test("conformance", async (suite) => {
  await ready();
  await runSuite(suite, here(uform, false), ({ path }) => path && "WebAssembly has no files");
});
