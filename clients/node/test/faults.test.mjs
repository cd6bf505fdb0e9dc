// Servers that are killed, stopped and restarted, and answers that are lost.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Program, Proxy, Server, directory, sleep, until } from "./setup.mjs";

/** A client behind a proxy. */
async function behind(t, server, options = {}) {
    const proxy = await Proxy.start(t, server);
    return { proxy, tenure: proxy.connect(t, options) };
}

test("a hold outlives a server that is killed and started again", async (t) => {
    const server = await Server.start(t);
    const events = [];
    const tenure = server.connect(t, { ttl: "6s", onEvent: (event) => events.push(event.event) });
    const hold = await tenure.mutex("restart").acquire();
    await server.kill();
    await until("a renewal fails", () => events.includes("renewal_failed"));
    await server.start();
    await sleep(6000);
    hold.check();
    assert.equal((await tenure.inspect("restart")).holders[0].fence, hold.fence);
    assert.equal(await hold.release(), true);
});

test("without a server, the hold is lost before anyone else can have it", async (t) => {
    const dir = directory(t);
    const [near, far] = [await Server.start(t, { dir }), await Server.start(t, { dir })];
    const { proxy, tenure } = await behind(t, near, { ttl: "2s" });
    const other = far.connect(t);
    const hold = await tenure.mutex("cut").acquire();
    let lostAt;
    hold.signal.addEventListener("abort", () => (lostAt = process.hrtime.bigint()));
    const next = other.mutex("cut").acquire().then((hold) => [process.hrtime.bigint(), hold]);
    await until("it waits", async () => (await other.inspect("cut")).waiters.length === 1);
    proxy.silent = true;
    const [heldAt, after] = await next;
    assert(lostAt < heldAt, `lost ${heldAt - lostAt} ns after the next one had it`);
    assert.equal(hold.signal.reason.ended, "expired");
    assert(after.fence > hold.fence);
    // Its late answers bring nothing back.
    proxy.silent = false;
    await sleep(500);
    assert.throws(() => hold.check(), { code: "lost" });
});

test("waiters keep their places while their server is restarted", async (t) => {
    for (const signal of ["SIGTERM", "SIGKILL"]) {
        const server = await Server.start(t);
        const { proxy, tenure } = await behind(t, server, { ttl: "20s" });
        const hold = await tenure.mutex("wait").acquire();
        const served = [];
        const waiting = ["first", "second"].map(async (owner, i) => {
            await until("it is next", async () => (await tenure.inspect("wait")).waiters.length === i);
            await tenure.mutex("wait", { owner }).run(({ fence }) => served.push([owner, fence > hold.fence]));
        });
        await until("both wait", async () => (await tenure.inspect("wait")).waiters.length === 2);
        await server.kill(signal);
        proxy.requests.length = 0;
        await server.start();
        const asked = () => proxy.requests.filter((line) => line === "POST /v1/holds").length;
        await until("both ask again", async () => asked() >= 2);
        await sleep(500);
        assert.equal(await hold.release(), true);
        await Promise.all(waiting);
        assert.deepEqual(served, [["first", true], ["second", true]]);
    }
});

test("a lost answer to an acquire is asked for again with the same claim", async (t) => {
    const server = await Server.start(t);
    const { proxy, tenure } = await behind(t, server);
    proxy.losing = 2;
    const hold = await tenure.mutex("lost-grant").tryAcquire();
    assert(hold, "its own lost grant is not in its way");
    assert.equal(proxy.requests.filter((line) => line === "POST /v1/holds").length, 3);
    const seen = await tenure.inspect("lost-grant");
    assert.deepEqual(seen.holders.map(({ fence }) => fence), [hold.fence]);
    await hold.release();
    assert.equal(await tenure.inspect("lost-grant").then((seen) => seen?.holders.length ?? 0), 0);
});

test("a lost answer to a release is asked for again, and counts as ours", async (t) => {
    const server = await Server.start(t);
    const { proxy, tenure } = await behind(t, server);
    const hold = await tenure.mutex("lost-release").acquire();
    proxy.losing = 1;
    assert.equal(await hold.release(), true);
    assert.equal(proxy.requests.filter((line) => line === "POST /v1/holds/release").length, 2);
});

test("lost renewals are sent again until one is answered", async (t) => {
    const server = await Server.start(t);
    const events = [];
    const { proxy, tenure } = await behind(t, server, { ttl: "3s", onEvent: ({ event }) => events.push(event) });
    const hold = await tenure.mutex("lost-renewal").acquire();
    for (let i = 0; i < 3; i += 1) {
        proxy.losing = 2;
        await until("they were lost", () => proxy.losing === 0);
    }
    await sleep(3000);
    hold.check();
    assert(events.filter((event) => event === "renewal_failed").length >= 6);
});

test("an acquire that was given up without an answer leaves nothing held", async (t) => {
    const server = await Server.start(t);
    const { proxy, tenure } = await behind(t, server, { requestTimeout: "500ms" });
    server.signal("SIGSTOP");
    const error = await tenure.mutex("doubt", { ttl: "60s" }).tryAcquire().catch((error) => error);
    server.signal("SIGCONT");
    assert.equal(error.code, "in_doubt");
    assert.match(error.message, /may have happened/);
    // The requests are still in the server's sockets, and are granted before, or refused after, the leave.
    const direct = server.connect(t);
    await until("nobody holds it", async () => {
        const hold = await direct.mutex("doubt").tryAcquire();
        return hold?.release();
    }, 10_000);
    assert(proxy.requests.includes("POST /v1/holds/release"));
});

test("a release that is never answered is in doubt, and the hold ends by itself", async (t) => {
    const server = await Server.start(t);
    const tenure = server.connect(t, { ttl: "2s" });
    const hold = await tenure.mutex("silent").acquire();
    await server.kill();
    const error = await hold.release().catch((error) => error);
    assert.match(error.code, /^(in_doubt|unavailable)$/);
    assert.equal(hold.remaining, 0);
    await server.start();
    assert(await server.connect(t).mutex("silent").acquire({ wait: "10s" }));
});

test("run gives the result of its work even if its release is never answered", async (t) => {
    const server = await Server.start(t);
    const events = [];
    const tenure = server.connect(t, { ttl: "2s", onEvent: ({ event }) => events.push(event) });
    const result = await tenure.mutex("run").run(async () => {
        await server.kill();
        return "done";
    });
    assert.equal(result, "done");
    assert(events.includes("release_failed"));
});

test("a server that is away fails an acquire: soon without a wait, and when its wait is over with one", async (t) => {
    const server = await Server.start(t);
    const tenure = server.connect(t);
    await server.kill();
    const before = Date.now();
    const error = await tenure.mutex("away").tryAcquire().catch((error) => error);
    assert.equal(error.code, "unavailable");
    assert(Date.now() - before < 5000);
    const waiting = tenure.mutex("away").acquire({ wait: "20s" });
    await sleep(1500);
    await server.start();
    assert(await waiting, "it came back within the wait");
});

test("a program whose server dies has no unhandled rejection, and ends as it wants to", async (t) => {
    const server = await Server.start(t);
    const program = Program.start(t, "holder.mjs", { args: [server.url, "dies", "tick"] });
    await program.line(/^check: held/);
    await server.kill();
    await program.line(/^aborted expired/);
    await program.line(/^check: lost/);
    assert.deepEqual(await program.exit, { code: 0, signal: null }, program.errors);
    assert.equal(program.errors, "");
});
