// What locks do when nothing fails.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { TenureError } from "../tenure.mjs";
import { Proxy, Server, sleep, until } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

test("run acquires, works and releases, and fences rise", async (t) => {
    const events = [];
    const tenure = server.connect(t, { onEvent: ({ event }) => events.push(event) });
    const lock = tenure.mutex("run");
    const first = await lock.run(async ({ fence, signal, check }) => {
        check();
        assert.equal(signal.aborted, false);
        assert.equal(await tenure.mutex("run").tryAcquire(), null);
        return fence;
    });
    const second = await lock.run(({ fence }) => fence);
    assert(second > first);
    assert.equal(tenure.thread, "worker");
    assert.deepEqual(events, ["acquired", "busy", "released", "acquired", "released"]);
});

test("the error of the work comes through, and the hold is released", async (t) => {
    const tenure = server.connect(t);
    const own = new Error("no table");
    await assert.rejects(tenure.mutex("throws").run(() => Promise.reject(own)), (error) => error === own);
    const hold = await tenure.mutex("throws").tryAcquire();
    assert(hold);
    assert.equal(await hold.release(), true);
});

test("busy says who holds it, and which place it was", async (t) => {
    const tenure = server.connect(t);
    const meta = { request: "r-17" };
    const hold = await tenure.mutex("busy", { owner: "web-3", reason: "nightly", meta }).acquire();
    const error = await tenure.mutex("busy").acquire({ wait: "300ms" }).catch((error) => error);
    assert(error instanceof TenureError);
    assert.equal(error.code, "busy");
    assert.equal(error.resource, "busy");
    assert.equal(error.position, 1);
    assert.equal(error.holder.owner, "web-3");
    assert.equal(error.holder.reason, "nightly");
    assert.deepEqual(error.holder.meta, meta);
    assert.equal(error.holder.fence, hold.fence);
    assert.match(error.message, /"busy" is held by web-3; place in line: 1/);
});

test("waiters are served in order, each as soon as it is free", async (t) => {
    const tenure = server.connect(t);
    const first = await tenure.mutex("order").acquire();
    const served = [];
    const waiting = [];
    for (const i of [1, 2, 3]) {
        waiting.push(tenure.mutex("order", { owner: `w${i}` }).run(({ fence }) => served.push([i, fence])));
        await until("it waits", async () => (await tenure.inspect("order")).waiters.length === i);
    }
    await first.release();
    await Promise.all(waiting);
    assert.deepEqual(served.map(([i]) => i), [1, 2, 3]);
    assert.deepEqual(served.map(([, fence]) => fence), served.map(([, fence]) => fence).sort((a, b) => a - b));
});

test("a turn that was waited for is confirmed before it counts, and then lasts its whole ttl", async (t) => {
    const proxy = await Proxy.start(t, server);
    const tenure = proxy.connect(t, { ttl: "30s" });
    const first = await tenure.mutex("confirm").acquire();
    const second = tenure.mutex("confirm").acquire();
    await until("it waits", async () => (await tenure.inspect("confirm")).waiters.length === 1);
    await first.release();
    assert((await second).remaining > 20_000);
    assert.equal(proxy.requests.filter((line) => line === "POST /v1/holds/renew").length, 1);
});

test("a deadline counts from the sending, however late the answer comes", async (t) => {
    const proxy = await Proxy.start(t, server);
    const tenure = proxy.connect(t, { ttl: "6s" });
    proxy.delay = 1500;
    const hold = await tenure.mutex("late").acquire();
    assert(hold.remaining <= 4500, `${hold.remaining}`);
    // So do those of renewals.
    for (const start = Date.now(); Date.now() - start < 5000; await sleep(20)) {
        assert(hold.remaining > 0 && hold.remaining <= 4500, `${hold.remaining}`);
    }
    proxy.delay = 0;
});

test("aborting gives up and leaves the line", async (t) => {
    const proxy = await Proxy.start(t, server);
    const tenure = proxy.connect(t, {});
    const hold = await tenure.mutex("abort").acquire();
    const giveUp = new AbortController();
    const waiting = tenure.mutex("abort").acquire({ signal: giveUp.signal });
    await until("it waits", async () => (await tenure.inspect("abort")).waiters.length === 1);
    giveUp.abort(new Error("the guest left"));
    await assert.rejects(waiting, /the guest left/);
    await until("it left", async () => (await tenure.inspect("abort")).waiters.length === 0);
    assert.equal(proxy.requests.filter((line) => line === "POST /v1/holds/release").length, 1, "it said so");
    await hold.release();
    const next = await tenure.mutex("abort").tryAcquire();
    assert(next, "the claim that was given up holds nothing");
    await assert.rejects(tenure.mutex("abort").acquire({ signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("the caller's signal reaches the work", async (t) => {
    const tenure = server.connect(t);
    const stop = new AbortController();
    const running = tenure.mutex("stop").run(({ signal }) => new Promise((resolve) => {
        signal.addEventListener("abort", () => resolve(signal.reason.message));
        stop.abort(new Error("shutting down"));
    }), { signal: stop.signal });
    assert.equal(await running, "shutting down");
});

test("a hold that an operator breaks is lost at the next renewal, and says by whom", async (t) => {
    const tenure = server.connect(t, { ttl: "2s" });
    const hold = await tenure.mutex("broken").acquire();
    assert.equal((await server.breakHold("broken", hold.fence, "stuck")).status, 200);
    await new Promise((resolve) => hold.signal.addEventListener("abort", resolve));
    const { reason } = hold.signal;
    assert.equal(reason.code, "lost");
    assert.equal(reason.ended, "broken");
    assert.equal(reason.reason, "stuck");
    assert.throws(() => hold.check(), (error) => error === reason);
    assert.equal(hold.lost, true);
    assert.equal(hold.remaining, 0);
    assert.equal(await hold.release(), false);
});

test("run rejects with the loss once its work has ended", async (t) => {
    const tenure = server.connect(t, { ttl: "2s" });
    let ended = false;
    const running = tenure.mutex("lost-run").run(async ({ fence, signal }) => {
        await server.breakHold("lost-run", fence);
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        await sleep(50);
        ended = true;
        throw new Error("stopped half-way");
    });
    const error = await running.catch((error) => error);
    assert.equal(error.code, "lost");
    assert.equal(error.cause.message, "stopped half-way");
    assert(ended);
    const finished = tenure.mutex("lost-run").run(async ({ fence, signal }) => {
        await server.breakHold("lost-run", fence);
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        return "done without a lock";
    });
    await assert.rejects(finished, { code: "lost", ended: "broken" });
});

test("a hold is renewed for much longer than its ttl", async (t) => {
    const tenure = server.connect(t, { ttl: "1s" });
    const holds = await Promise.all(["a", "b", "c"].map((name) => tenure.mutex(`long-${name}`).acquire()));
    await sleep(3500);
    for (const hold of holds) {
        hold.check();
        assert(hold.remaining > 0 && hold.remaining <= 1000);
        assert(hold.deadline > Date.now());
        assert.equal(await hold.release(), true);
        assert.throws(() => hold.check(), /was released/);
        assert.equal(hold.signal.aborted, false, "a release is not a loss");
    }
});

test("semaphore: as many as there are permits", async (t) => {
    const tenure = server.connect(t);
    const five = (options) => tenure.semaphore("partner-api", 5, options);
    const heavy = await five({ weight: 4 }).acquire();
    const light = await five().tryAcquire();
    assert(light);
    assert.equal(await five().tryAcquire(), null);
    await heavy.release();
    assert(await five({ weight: 3 }).tryAcquire());
    const other = await tenure.semaphore("partner-api", 6).tryAcquire().catch((error) => error);
    assert.equal(other.code, "conflict");
});

test("rwlock: readers together, a writer alone", async (t) => {
    const tenure = server.connect(t);
    const catalog = tenure.rwlock("catalog");
    const readers = await Promise.all([catalog.read().acquire(), catalog.read().acquire()]);
    assert.equal(await catalog.write().tryAcquire(), null);
    await Promise.all(readers.map((reader) => reader.release()));
    await catalog.write().run(async () => assert.equal(await catalog.read().tryAcquire(), null));
});

test("a namespace keeps names apart", async (t) => {
    const [shop, bank] = [server.connect(t, { ns: "shop" }), server.connect(t, { ns: "bank" })];
    const hold = await shop.mutex("same").acquire();
    assert.equal(hold.name, "shop/same");
    assert(await bank.mutex("same").tryAcquire());
    assert.equal(await shop.mutex("same").tryAcquire(), null);
});

test("await using releases", { skip: !Symbol.asyncDispose }, async (t) => {
    const tenure = server.connect(t);
    const hold = await tenure.mutex("using").acquire();
    await hold[Symbol.asyncDispose]();
    assert(await tenure.mutex("using").tryAcquire());
});

test("many holds are renewed in few requests", async (t) => {
    const tenure = server.connect(t, { ttl: "5s" });
    const names = Array.from({ length: 300 }, (_, i) => `many-${i}-${"x".repeat(600)}`);
    const holds = await Promise.all(names.map((name) => tenure.mutex(name).acquire()));
    await sleep(7000);
    holds.forEach((hold) => hold.check());
});

test("a wait that is longer than one request continues with its ticket", async (t) => {
    const events = [];
    const tenure = server.connect(t, { onEvent: (event) => events.push(event) });
    const hold = await tenure.mutex("ticket").acquire();
    const served = [];
    const wait = (owner) => tenure.mutex("ticket", { owner }).run(({ hold }) => served.push([owner, hold.waited > 19_000]));
    const second = wait("second");
    await until("it waits", async () => (await tenure.inspect("ticket")).waiters.length === 1);
    await sleep(5000);
    const third = wait("third");
    const told = await until("it was told its place", () => events.find(({ event }) => event === "waiting"), 40_000);
    assert.equal(told.position, 1);
    assert.equal(told.holder.fence, hold.fence);
    await sleep(500);
    await hold.release();
    await Promise.all([second, third]);
    assert.deepEqual(served, [["second", true], ["third", false]]);
});
