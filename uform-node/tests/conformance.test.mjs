// The conformance suite on the addon.

import { test } from "node:test";
import * as uform from "uform";
import { here, runSuite } from "./conformance.mjs";

test("conformance", (suite) => runSuite(suite, here(uform, true)));
