// Processes that block, stop, exit, and contend.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { before, test } from "node:test";
import { directory, Program, Server, sleep, until } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

function holder(t, name, what, options = {}, flags = []) {
    return Program.start(t, "holder.mjs", { args: [server.url, name, what, JSON.stringify(options)], flags });
}

test("a blocked event loop does not lose the hold", async (t) => {
    const tenure = server.connect(t);
    const program = holder(t, "blocked", "block:4000");
    const [, fence] = await program.line(/^held (\d+) on worker/);
    await sleep(3000);
    const seen = await tenure.inspect("blocked");
    assert.equal(seen.holders[0].fence, Number(fence), "three times its ttl later, it still holds");
    await program.line(/^check: held/);
    await program.line(/^released true/);
    assert.deepEqual(await program.exit, { code: 0, signal: null });
});

test("on the main thread a blocked event loop loses it, and check says so before anything else runs", async (t) => {
    const program = holder(t, "blocked-main", "block:2500", { thread: "main" });
    await program.line(/on main/);
    await program.exit;
    const expected = ["check: lost: \"blocked-main\" was lost: no renewal was answered in time", "aborted expired", "released false"];
    assert.deepEqual(program.lines.slice(1).sort(), expected.sort(), program.errors);
});

test("a loop that is silent for longer than maxBlock is taken for hung", async (t) => {
    const program = holder(t, "hung", "block:9000", { maxBlock: "1s", ttl: "4s" });
    await program.line(/on worker/);
    const tenure = server.connect(t);
    const next = await tenure.mutex("hung").acquire({ wait: "8s" });
    assert(next, "others are served while it hangs");
    await program.line(/^check: lost: .*blocked for longer than maxBlock/);
    assert.equal((await program.exit).code, 0);
});

test("blocking code that calls check is alive", async (t) => {
    const program = holder(t, "computes", "compute:4000", { maxBlock: "1s" });
    await program.line(/^check: held/);
    await program.line(/^released true/);
});

test("a process that was stopped knows that it lost the lock before it does anything", async (t) => {
    const tenure = server.connect(t);
    const program = holder(t, "stopped", "tick");
    const [, fence] = await program.line(/^held (\d+)/);
    await program.line(/^check: held/);
    program.child.kill("SIGSTOP");
    const next = await tenure.mutex("stopped").acquire({ wait: "15s" });
    assert(next.fence > Number(fence));
    const before = program.lines.length;
    program.child.kill("SIGCONT");
    await program.line(/^check: lost/);
    await program.line(/^aborted expired/);
    assert(!program.lines.slice(before).includes("check: held"), "it believed to hold what another holds");
    assert.equal((await program.exit).code, 0);
    next.check();
});

test("a program can end while it holds; the next has the lock one ttl later", async (t) => {
    const tenure = server.connect(t);
    const program = holder(t, "exits", "exit");
    await program.line(/^held/);
    assert.deepEqual(await program.exit, { code: 0, signal: null });
    assert(await tenure.mutex("exits").acquire({ wait: "10s" }));
});

test("a killed holder is followed by the next in line", async (t) => {
    const tenure = server.connect(t);
    const program = holder(t, "killed", "stay");
    const [, fence] = await program.line(/^held (\d+)/);
    const next = tenure.mutex("killed").acquire({ wait: "15s" });
    await until("it waits", async () => (await tenure.inspect("killed")).waiters.length === 1);
    program.child.kill("SIGKILL");
    assert((await next).fence > Number(fence));
});

test("a waiter that is killed leaves the line", async (t) => {
    const tenure = server.connect(t);
    const hold = await tenure.mutex("waiter").acquire();
    const program = holder(t, "waiter", "stay");
    await until("it waits", async () => (await tenure.inspect("waiter")).waiters.length === 1);
    program.child.kill("SIGKILL");
    await until("it left", async () => (await tenure.inspect("waiter")).waiters.length === 0);
    await hold.release();
});

test("processes that contend lose no update, and fences rise", async (t) => {
    const file = path.join(directory(t), "count");
    writeFileSync(file, "0");
    const programs = [1, 2, 3].map(() => Program.start(t, "counter.mjs", { args: [server.url, file, 30] }));
    for (const program of programs) assert.equal((await program.exit).code, 0, program.errors);
    assert.equal(readFileSync(file, "utf8"), "90");
    const fences = readFileSync(`${file}.fences`, "utf8").trim().split("\n").map(Number);
    assert.equal(fences.length, 90);
    fences.slice(1).forEach((fence, i) => assert(fence > fences[i], `${fence} after ${fences[i]}`));
});

const major = Number(process.versions.node.split(".")[0]);
test("without a worker it continues on the main thread, and says so", { skip: major < 20 || major > 24 }, async (t) => {
    const flag = major < 22 ? "--experimental-permission" : "--permission";
    const program = holder(t, "no-worker", "stay", {}, [flag, "--allow-fs-read=*"]);
    await program.line(/on main/);
    await until("it warns", () => /TENURE_MAIN_THREAD.*on the main thread/.test(program.errors));
    await sleep(2500);
    const seen = await server.connect(t).inspect("no-worker");
    assert.equal(seen.holders.length, 1, "it is renewed all the same");
});
