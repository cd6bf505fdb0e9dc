// What needs no server.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { createRequire } from "node:module";
import { inspect } from "node:util";
import { test } from "node:test";
import { made } from "../make-commonjs.mjs";
import { connect, internals, TenureError } from "../tenure.mjs";

const { milliseconds, camel, refusal, transport } = internals;
const wire = transport({ http, https, base: "http://127.0.0.1:1" });

test("durations are texts with a unit or milliseconds", () => {
    const rows = [[0, 0], [250, 250], ["250ms", 250], ["10s", 10_000], ["1.5s", 1500], ["2m", 120_000], ["1h", 3_600_000],
        ["1d", 86_400_000], [Infinity, Infinity]];
    for (const [text, expected] of rows) assert.equal(milliseconds(text, "ttl"), expected);
    for (const bad of ["10", "s", "-1s", "1 s", "1e3s", "", -1, NaN, null, {}, "1w"]) {
        assert.throws(() => milliseconds(bad, "ttl"), /ttl must be a duration/, String(bad));
    }
});

test("a hold is relied on for less than the server says", () => {
    for (const [left, expected] of [[30_000, 29_675], [1000, 965], [400, 376], [0, 0]]) {
        assert.equal(wire.reliable(left), expected);
    }
});

test("a deadline counts from the sending, on both clocks, and moves only forward", () => {
    const slots = new BigInt64Array(4);
    const sent = wire.moment();
    wire.extend(slots, sent, 10_000);
    const first = wire.remaining(slots);
    assert(first > 9000 && first <= 9875, `${first}`);
    wire.extend(slots, sent, 5000);
    assert(wire.remaining(slots) > 9000, "moved back");
    // An answer that took 8 s leaves 2 s.
    const late = { steady: sent.steady - 8000, wall: sent.wall - 8000 };
    const other = new BigInt64Array(4);
    wire.extend(other, late, 10_000);
    assert(wire.remaining(other) <= 1875);
});

test("a machine that slept has lost what the wall clock says, though the steady clock stood still", () => {
    const slots = new BigInt64Array(4);
    const asleep = { steady: wire.moment().steady, wall: Date.now() - 60_000 };
    wire.extend(slots, asleep, 30_000);
    assert(wire.remaining(slots) < 0);
    assert(wire.since(asleep) >= 60_000);
    const setBack = { steady: wire.moment().steady - 60_000, wall: Date.now() + 3_600_000 };
    assert(wire.since(setBack) >= 60_000, "a wall clock that was set back hides nothing");
});

test("a problem becomes an error with a code, the holder and the place", () => {
    const data = { code: "busy", detail: '"x" is held by web-3', position: 2, holder: { owner: "web-3", held_ms: 5, left_ms: 7 } };
    const error = refusal({ status: 409, problem: true, data }, "x");
    assert(error instanceof TenureError && error instanceof Error);
    assert.equal(error.name, "TenureError");
    assert.equal(error.code, "busy");
    assert.equal(error.message, '"x" is held by web-3; place in line: 2');
    assert.deepEqual(error.holder, { owner: "web-3", heldMs: 5, leftMs: 7 });
    assert.equal(error.position, 2);
    const page = refusal({ status: 404, problem: false, data: null }, "x");
    assert.equal(page.code, "unreadable");
    assert.match(page.message, /404/);
});

test("what users wrote themselves keeps its spelling", () => {
    const found = camel({ held_ms: 1, meta: { trace_id: "a" }, outcome: { snake_case: 1 }, holders: [{ left_ms: 2 }] });
    const expected = { heldMs: 1, meta: { trace_id: "a" }, outcome: { snake_case: 1 }, holders: [{ leftMs: 2 }] };
    assert.deepEqual(found, expected);
});

test("misspelt options and bad addresses are errors", () => {
    const tenure = connect("http://127.0.0.1:1");
    assert.throws(() => tenure.mutex("x", { tll: "5s" }), /unknown option "tll"/);
    assert.throws(() => tenure.mutex(""), /a name must be a text/);
    assert.throws(() => tenure.mutex("x", { ttl: "5 minutes" }), /ttl must be a duration/);
    assert.throws(() => connect("http://127.0.0.1:1", { tokn: "x" }), /unknown option "tokn"/);
    assert.throws(() => connect("redis://127.0.0.1"), /the URL must be http/);
    assert.throws(() => connect("http://user:secret@127.0.0.1"), (error) => !error.message.includes("secret"));
});

test("a server that is not there is unavailable, and says so soon enough", async () => {
    const tenure = connect("http://127.0.0.1:1", { token: "s3cret-token" });
    const failed = await tenure.mutex("x").tryAcquire().catch((error) => error);
    assert.equal(failed.code, "unavailable");
    assert.match(failed.message, /nothing happened/);
    const waited = await tenure.mutex("x", { wait: Infinity }).acquire({ signal: AbortSignal.timeout(300) }).catch((e) => e);
    assert.equal(waited.name, "TimeoutError");
    assert.equal(await tenure.ready(), false);
    assert(!inspect({ tenure, failed }, { depth: 20, showHidden: true }).includes("s3cret"), "a secret is shown");
    await tenure.close();
    assert.equal((await tenure.mutex("x").tryAcquire().catch((error) => error)).code, "closed");
});

test("the CommonJS form is made from the module, and works", () => {
    for (const [name, text] of Object.entries(made())) {
        const found = readFileSync(new URL(`../${name}`, import.meta.url), "utf8");
        assert(found === text, `${name} is out of date: npm run commonjs`);
    }
    const required = createRequire(import.meta.url)("tenure-client");
    assert.deepEqual(Object.keys(required), ["connect", "TenureError", "internals"]);
    const code = 'import("tenure-client").then((m) => console.log(Object.keys(m).sort().join()))';
    const out = execFileSync(process.execPath, ["-e", code], { cwd: new URL("..", import.meta.url), encoding: "utf8" });
    assert.equal(out.trim(), "TenureError,connect,internals");
});

test("the worker's source is complete without the module", () => {
    // A bundler may minify it: it must not use a name from outside.
    const source = internals.workerSource();
    assert.doesNotThrow(() => new Function("require", source));
    assert.doesNotThrow(() => new Function(`"use strict"; return (${internals.transport.toString()});`)()(
        { http, https, base: "http://127.0.0.1:1" },
    ).startPulse({ tell: () => undefined }).stop());
    for (const outside of ["ENDINGS", "UNITS", "milliseconds(", "randomBytes", "TenureError"]) {
        assert(!source.includes(outside), outside);
    }
});
