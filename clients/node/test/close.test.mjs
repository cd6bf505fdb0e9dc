// What `close` does to work that is still running. The Python client does the same.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Server, sleep, until } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

const aborted = (signal) => new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));

test("close tells the work of run to stop, and the next holder starts only after it has ended", async (t) => {
    const [going, staying] = [server.connect(t, { ttl: "3s" }), server.connect(t)];
    const order = [];
    let reason;
    let began;
    const working = new Promise((resolve) => (began = resolve));
    const running = going.mutex("close-run").run(async ({ signal, check }) => {
        began();
        await aborted(signal);
        reason = signal.reason;
        assert.throws(check, (error) => error === reason);
        // Longer than its ttl: it is renewed while `close` waits for the work.
        await sleep(4500);
        order.push("the work ended");
    }).catch((error) => error);
    await working;
    const next = staying.mutex("close-run").acquire().then((hold) => order.push("the next has it") && hold);
    await until("it waits", async () => (await staying.inspect("close-run")).waiters.length === 1);
    await going.close({ wait: "30s" });
    assert.deepEqual(order.slice(0, 1), ["the work ended"], "close waits for it");
    await next;
    assert.deepEqual(order, ["the work ended", "the next has it"]);
    assert.deepEqual([reason.code, reason.ended], ["lost", "closed"]);
    assert.deepEqual([(await running).code, (await running).ended], ["lost", "closed"]);
});

test("work that does not end is waited for until the bound, and its lock is not released", async (t) => {
    const [going, staying] = [server.connect(t, { ttl: "20s" }), server.connect(t)];
    let end;
    const running = going.mutex("close-stuck").run(() => new Promise((resolve) => (end = resolve))).catch((error) => error);
    await until("it works", () => end);
    const before = Date.now();
    await going.close({ wait: "300ms" });
    const took = Date.now() - before;
    assert(took >= 290 && took < 10_000, `${took} ms`);
    assert.equal(await staying.mutex("close-stuck").tryAcquire(), null, "its work still runs");
    // When the work ends, it is released all the same: run knows that the work is over.
    end();
    assert.equal((await running).ended, "closed");
    assert(await staying.mutex("close-stuck").acquire({ wait: "5s" }));
});

test("a hold in the program's own hand is lost by close, and freed by its release alone", async (t) => {
    const events = [];
    const onEvent = ({ event, ended }) => events.push(`${event} ${ended ?? ""}`.trim());
    const [going, staying] = [server.connect(t, { ttl: "20s", onEvent }), server.connect(t)];
    const hold = await going.mutex("close-hold").acquire();
    await going.close();
    assert.equal(hold.lost, true);
    assert.equal(hold.remaining, 0);
    assert.throws(() => hold.check(), { code: "lost", ended: "closed" });
    assert.equal(hold.signal.reason.ended, "closed");
    assert.equal(await staying.mutex("close-hold").tryAcquire(), null, "whoever has it may still work");
    assert.equal(await hold.release(), true);
    assert(await staying.mutex("close-hold").tryAcquire());
    assert.deepEqual(events, ["acquired", "lost closed", "released"]);
});

test("close gives up what is waited for, also between two requests", async (t) => {
    const [going, staying] = [server.connect(t), server.connect(t)];
    const other = await staying.mutex("close-line").acquire();
    const waiting = going.mutex("close-line").acquire().catch((error) => error);
    await until("it waits", async () => (await staying.inspect("close-line")).waiters.length === 1);
    await going.close();
    assert.equal((await waiting).code, "closed");
    await until("it left", async () => (await staying.inspect("close-line")).waiters.length === 0);
    await other.release();
    const away = await Server.start(t);
    const retrying = away.connect(t, { patience: "60s" });
    await away.kill();
    const failing = retrying.mutex("x").acquire().catch((error) => error);
    await sleep(2500);
    await retrying.close();
    assert.equal((await failing).code, "closed");
});

test("a once whose work ends while the client closes is settled", async (t) => {
    const [going, staying] = [server.connect(t), server.connect(t)];
    let began;
    const working = new Promise((resolve) => (began = resolve));
    const running = going.once("close-once").run(async ({ signal }) => {
        began();
        await aborted(signal);
        return "paid";
    });
    await working;
    await going.close();
    assert.deepEqual(await running, { outcome: "paid", replayed: false });
    assert.deepEqual(await staying.once("close-once").run(() => "again"), { outcome: "paid", replayed: true });
});

test("an election ends with the client", async (t) => {
    const [going, staying] = [server.connect(t), server.connect(t)];
    let terms = 0;
    const running = going.elect("close-leader").run(async ({ signal }) => {
        terms += 1;
        await aborted(signal);
        throw signal.reason;
    }).catch((error) => error);
    await until("it leads", () => terms === 1);
    await going.close();
    assert.equal((await running).ended, "closed");
    assert.equal(terms, 1);
    assert.equal(await staying.elect("close-leader").leader(), null, "it has resigned");
});
