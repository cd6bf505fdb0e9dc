// Work that is done once.

import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Program, Proxy, Server, until } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

test("the second caller gets the stored outcome, as JSON", async (t) => {
    const tenure = server.connect(t);
    let runs = 0;
    const charge = () => ({ receipt: ++runs, at: new Date(0), note: "snake_case" });
    const first = await tenure.once("charge:1", { content: "10 EUR" }).run(charge);
    const second = await tenure.once("charge:1", { content: "10 EUR" }).run(charge);
    const outcome = { receipt: 1, at: "1970-01-01T00:00:00.000Z", note: "snake_case" };
    assert.deepEqual(first, { outcome, replayed: false });
    assert.deepEqual(second, { outcome, replayed: true });
    const other = await tenure.once("charge:1", { content: "99 EUR" }).run(charge).catch((error) => error);
    assert.equal(other.code, "other_content");
    assert.equal(runs, 1);
});

test("work that returns nothing was done, too", async (t) => {
    const tenure = server.connect(t);
    for (const nothing of [undefined, null, { toJSON: () => null }, () => "no JSON"]) {
        const once = tenure.once(`nothing-${typeof nothing}-${nothing === null}`);
        assert.deepEqual(await once.run(() => nothing), { outcome: true, replayed: false });
        assert.deepEqual(await once.run(() => assert.fail("a second time")), { outcome: true, replayed: true });
    }
});

test("callers at the same time: one runs, the others wait for its outcome, or are told who runs it", async (t) => {
    const tenure = server.connect(t);
    let runs = 0;
    let finish;
    const slow = () => new Promise((resolve) => { runs += 1; finish = resolve; });
    const all = [1, 2, 3].map(() => tenure.once("together").run(slow));
    await until("one runs", () => finish);
    const error = await tenure.once("together", { wait: 0 }).run(slow).catch((error) => error);
    assert.equal(error.code, "busy");
    finish("done");
    const outcomes = await Promise.all(all);
    assert.equal(runs, 1);
    assert.deepEqual(outcomes.map(({ outcome }) => outcome), ["done", "done", "done"]);
    assert.deepEqual(outcomes.filter(({ replayed }) => !replayed).length, 1);
});

test("work that throws has not happened", async (t) => {
    const tenure = server.connect(t);
    await assert.rejects(tenure.once("retry").run(() => Promise.reject(new Error("card declined"))), /card declined/);
    assert.deepEqual(await tenure.once("retry").run(() => "paid"), { outcome: "paid", replayed: false });
});

test("a program that dies in the middle leaves it unsettled; rerun runs it", async (t) => {
    const tenure = server.connect(t);
    const program = Program.start(t, "once.mjs", { args: [server.url, "dies"] });
    await program.line(/begun/);
    program.child.kill("SIGKILL");
    await program.exit;
    const again = (options) => tenure.once("dies", options).run(() => "by another").catch((error) => error);
    assert.equal((await again({})).code, "unsettled");
    assert.deepEqual(await again({ rerun: true }), { outcome: "by another", replayed: false });
});

test("a lost answer to the settling is asked for again", async (t) => {
    const proxy = await Proxy.start(t, server);
    const tenure = proxy.connect(t, {});
    const work = () => { proxy.losing = 1; return "paid"; };
    assert.deepEqual(await tenure.once("lost-settle").run(work), { outcome: "paid", replayed: false });
    assert.equal(proxy.losing, 0);
    assert.equal(proxy.requests.filter((line) => line === "POST /v1/once/settle").length, 2);
    assert.deepEqual(await tenure.once("lost-settle").run(() => "again"), { outcome: "paid", replayed: true });
});

test("an outcome that is too long is an error, and nobody runs it again", async (t) => {
    const tenure = server.connect(t);
    const long = await tenure.once("long").run(() => "x".repeat(40 << 10)).catch((error) => error);
    assert.equal(long.code, "invalid");
    const next = await tenure.once("long").run(() => assert.fail("a second time")).catch((error) => error);
    assert.equal(next.code, "unsettled");
});
