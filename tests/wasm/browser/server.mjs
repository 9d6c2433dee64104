// Serves one folder to this machine, as a browser has to be given modules.

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";

const types = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".wasm": "application/wasm",
};

/** The address of `folder`, and the server to be closed. */
export async function serve(folder) {
  const server = createServer(async ({ url }, response) => {
    const path = normalize(decodeURIComponent(new URL(url, "http://localhost").pathname));
    try {
      const body = await readFile(join(folder, path));
      response.writeHead(200, { "content-type": types[extname(path)] ?? "application/octet-stream" }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { address: `http://127.0.0.1:${server.address().port}`, server };
}
