// One leader among many.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Server, until } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

/** Work that continues until it is told to stop. */
const forever = (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

test("one leads, others know who, and the next leads when it resigns", async (t) => {
    const tenure = server.connect(t);
    assert.equal(await tenure.elect("cron").leader(), null);
    const first = await tenure.elect("cron", { value: "10.0.0.1:80", owner: "a" }).campaign();
    const next = tenure.elect("cron", { value: "10.0.0.2:80", owner: "b" }).campaign();
    const leader = await tenure.elect("cron").leader();
    assert.equal(leader.value, "10.0.0.1:80");
    assert.equal(leader.owner, "a");
    assert.equal(leader.term, first.fence);
    await first.release();
    assert((await next).fence > first.fence);
    assert.equal((await tenure.elect("cron").leader()).value, "10.0.0.2:80");
});

test("run campaigns again after a loss, with a higher term, and ends with its signal", async (t) => {
    const tenure = server.connect(t, { ttl: "1s" });
    const terms = [];
    const stop = new AbortController();
    const running = tenure.elect("again").run(async ({ term, fence, signal }) => {
        assert.equal(term, fence);
        terms.push(term);
        if (terms.length === 3) stop.abort(new Error("enough"));
        else await server.breakHold("again", term, "test", "election");
        if (signal.aborted) throw signal.reason;
        await forever(signal);
    }, { signal: stop.signal });
    await assert.rejects(running, /enough/);
    assert.equal(terms.length, 3);
    assert.deepEqual(terms, [...new Set(terms)].sort((a, b) => a - b));
    await until("it resigned", async () => (await tenure.elect("again").leader()) === null);
});

test("run ends when the work does", async (t) => {
    const tenure = server.connect(t);
    assert.equal(await tenure.elect("ends").run(() => 42), 42);
    await assert.rejects(tenure.elect("ends").run(() => Promise.reject(new Error("own"))), /own/);
    assert.equal(await tenure.elect("ends").leader(), null);
});

test("aborting a candidate leaves the line", async (t) => {
    const tenure = server.connect(t);
    await tenure.elect("line").campaign();
    const stop = new AbortController();
    const running = tenure.elect("line").run(() => assert.fail("it does not lead"), { signal: stop.signal });
    const waiting = async () => (await tenure.inspect("line", { kind: "election" })).waiters.length;
    await until("it waits", async () => (await waiting()) === 1);
    stop.abort();
    await assert.rejects(running, { name: "AbortError" });
    await until("it left", async () => (await waiting()) === 0);
});

test("a candidate outlives a server that is away for longer than its patience", async (t) => {
    const own = await Server.start(t);
    const tenure = own.connect(t, { patience: "300ms" });
    await own.kill();
    const running = tenure.elect("away").run(({ term }) => term);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await own.start();
    assert((await running) > 0);
});
