import type { Backend } from "../src/backend.js";

declare const addon: Backend;
export = addon;
