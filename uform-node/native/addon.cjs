"use strict";

// Loads the addon of this platform: what an installed package brings along, or what `npm run build` made. This file is
// copied into each build of the TypeScript layer, two folders below the package.

const { existsSync } = require("node:fs");
const { join } = require("node:path");
const { addonName, platform } = require("./platform.cjs");

const path = join(__dirname, "..", "..", addonName);
if (!existsSync(path)) {
  throw new Error(`uform has no addon for ${platform}: ${path} does not exist; in the sources, "npm run build" makes it`);
}
module.exports = require(path);
