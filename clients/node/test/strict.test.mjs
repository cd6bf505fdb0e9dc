// Answers that do not come from the server, but from a proxy, a portal or another version. None of them counts as
// success.

import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import path from "node:path";
import { before, test } from "node:test";
import { command, directory, Impostor, Proxy, Server, until } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

/** How a request ends if all answers are `answer`. */
async function given(t, answer, ask) {
    const impostor = await Impostor.start(t, server, answer);
    const tenure = server.connect(t, { patience: "500ms" }, impostor.url);
    const error = await ask(tenure).then((value) => assert.fail(`it was taken for a yes: ${value}`), (error) => error);
    return { error, impostor };
}

const on = (path, answer) => (asked) => asked.path === path && { headers: { "tenure-engine": "e" }, ...answer };

test("a 200 that does not say settled is not a once that was done", async (t) => {
    for (const body of [{ ok: true }, { settled: false, outcome: 1 }, { settled: true }, [], null, "<p>sign in</p>"]) {
        let runs = 0;
        const ask = (tenure) => tenure.once("portal").run(() => (runs += 1));
        const { error, impostor } = await given(t, on("/v1/once", { body }), ask);
        assert.equal(error.code, "unreadable", JSON.stringify(body));
        assert.equal(runs, 0);
        await until("the claim is left", () => impostor.left());
    }
});

test("a 200 is no answer to an acquire", async (t) => {
    const { error } = await given(t, on("/v1/holds", { body: { settled: true, outcome: 1 } }), (tenure) => tenure.mutex("x").acquire());
    assert.equal(error.code, "unreadable");
});

test("a grant that lacks something is none, and its claim is left", async (t) => {
    const whole = (claim) => ({ name: "x", claim, fence: 7, ttl_ms: 5000, left_ms: 5000, renew_ms: 1000, confirm: false, waited_ms: 0 });
    const wrong = [
        { confirm: undefined }, { confirm: "false" }, { left_ms: "5000" }, { left_ms: undefined }, { renew_ms: null },
        { fence: undefined }, { claim: "0".repeat(32) }, { waited_ms: undefined },
    ];
    for (const change of wrong) {
        const answer = (asked) => asked.path === "/v1/holds" && {
            status: 201, body: { ...whole(asked.claim), ...change }, headers: { "tenure-engine": "e" },
        };
        const { error, impostor } = await given(t, answer, (tenure) => tenure.mutex("x").acquire());
        assert.equal(error.code, "unreadable", JSON.stringify(change));
        await until("the claim is left", () => impostor.left());
    }
    const nameless = (asked) => asked.path === "/v1/holds" && { status: 201, body: whole(asked.claim) };
    const { error } = await given(t, nameless, (tenure) => tenure.mutex("x").acquire());
    assert.equal(error.code, "unreadable", "without Tenure-Engine nobody can tell whether the engine changed");
});

test("a 201 or 202 without JSON leaves no claim behind", async (t) => {
    for (const status of [201, 202]) {
        const answer = on("/v1/holds", { status, body: "<p>accepted</p>", type: "text/html" });
        const { error, impostor } = await given(t, answer, (tenure) => tenure.mutex("x").acquire());
        assert.equal(error.code, "unreadable", String(status));
        await until("the claim is left", () => impostor.left());
    }
});

test("a renewal that is answered by somebody else renews nothing", async (t) => {
    const answers = [{ body: "<p>sign in</p>", type: "text/html" }, { body: { holds: [{ status: 200, left_ms: 60_000, fence: 1 }] } }];
    for (const [i, answer] of answers.entries()) {
        let intruding = false;
        let engine;
        const impostor = await Impostor.start(t, server, (asked) =>
            intruding && asked.path === "/v1/holds/renew" && { ...answer, headers: { "tenure-engine": engine } });
        const tenure = server.connect(t, { ttl: "1s" }, impostor.url);
        engine = (await fetch(`${server.url}/healthz`)).headers.get("tenure-engine");
        assert(engine, "what it says must fail by its content");
        const hold = await tenure.mutex(`renewal-${i}`).acquire();
        intruding = true;
        await new Promise((resolve) => hold.signal.addEventListener("abort", resolve));
        assert.equal(hold.signal.reason.ended, "expired");
    }
});

test("what is known about a name is not made up from a page", async (t) => {
    const page = (asked) => asked.path.startsWith("/v1/") && { body: "<p>sign in</p>", type: "text/html" };
    const { error } = await given(t, page, (tenure) => tenure.inspect("x"));
    assert.equal(error.code, "unreadable");
});

test("a waiter continues at a server that does not know its ticket", async (t) => {
    const dir = directory(t);
    const own = await Server.start(t, { dir });
    const proxy = await Proxy.start(t, own);
    const tenure = proxy.connect(t, { ttl: "20s" });
    const hold = await tenure.mutex("ticket").acquire();
    const next = tenure.mutex("ticket").acquire();
    await until("it waits", async () => (await tenure.inspect("ticket")).waiters.length === 1);
    // A server that shuts down gives everyone a ticket; the next one has another key and cannot read it.
    await own.kill("SIGTERM");
    rmSync(path.join(dir, "server.key"));
    proxy.requests.length = 0;
    await own.start();
    await until("it asks again", () => proxy.requests.filter((line) => line === "POST /v1/holds").length >= 2);
    await hold.release();
    assert((await next).fence > hold.fence);
});

test("a settle whose answer was lost is in doubt where the token cannot look", async (t) => {
    const dir = directory(t);
    const file = path.join(dir, "tokens");
    const add = (name, role) => command("token", "new", name, "--role", role, "--tokens-file", file).split("\n").at(-1);
    const [locks, reads] = [add("locks", "lock"), add("reads", "lock,read")];
    const own = await Server.start(t, { dir, args: ["--tokens-file", file] });
    const proxy = await Proxy.start(t, own);
    const work = () => { proxy.losing = 1; return "paid"; };
    const error = await proxy.connect(t, { token: locks }).once("blind").run(work).catch((error) => error);
    assert.equal(error.code, "in_doubt", error.message);
    const seen = await proxy.connect(t, { token: reads }).once("seen").run(work);
    assert.deepEqual(seen, { outcome: "paid", replayed: false });
});

test("an onEvent that rejects is a warning, not the end of the program", async (t) => {
    const warned = new Promise((resolve) => process.once("warning", resolve));
    const tenure = server.connect(t, { onEvent: async () => { throw new Error("no log"); } });
    await tenure.mutex("events").run(() => undefined);
    const warning = await warned;
    assert.equal(warning.code, "TENURE_ON_EVENT");
    assert.match(warning.message, /no log/);
});
