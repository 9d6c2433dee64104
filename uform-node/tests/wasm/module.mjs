// What the tests of the backend in WebAssembly share. `npm run test:wasm` asks for it by the condition of the package.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { init } from "uform";

/** Makes the module ready from its bytes, as Node does not fetch files. */
export const ready = () =>
  init(readFileSync(fileURLToPath(new URL("../../dist/esm/wasm/uform_wasm_bg.wasm", import.meta.url))));
