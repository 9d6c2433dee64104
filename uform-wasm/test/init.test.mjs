// The module loads, refuses calls before that, and says what it is.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import * as uform from '../index.mjs';

const workspace = await readFile(new URL('../../Cargo.toml', import.meta.url), 'utf8');

test('calls before init are refused', () => {
    assert.throws(() => uform.version(), /init/);
});

test('version and capabilities', async () => {
    await uform.init(await readFile(new URL('../dist/uform_wasm_bg.wasm', import.meta.url)));
    assert.equal(uform.version(), /^version = "(.*)"/m.exec(workspace)[1]);
    const compiled = uform.capabilitiesCompiled().split(',');
    assert.ok(compiled.includes('serial'), compiled.join());
    for (const name of uform.capabilitiesAvailable().split(',')) assert.ok(compiled.includes(name), name);
    await uform.init();
});
