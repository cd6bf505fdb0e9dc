// The examples do what they say.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { before, test } from "node:test";
import { directory, Program, Server, until } from "./setup.mjs";

let server;
before(async (t) => (server = await Server.start(t)));

function example(t, name, { args, env } = {}) {
    return Program.start(t, `../examples/${name}.mjs`, { args, env: { TENURE_URL: server.url, PORT: "0", ...env } });
}

async function address(program) {
    return (await program.line(/listening on (http:\S+)/))[1];
}

async function send(url, body, headers = {}) {
    const answer = await fetch(url, { method: body === undefined ? "GET" : "POST", body, headers });
    return [answer.status, (await answer.text()).trim()];
}

test("booking: one guest books the table, the other hears 409, and the log says who", async (t) => {
    const env = { BOOKINGS: directory(t), PAYMENT_MS: "500" };
    const services = [example(t, "booking", { env }), example(t, "booking", { env })];
    const [one, other] = await Promise.all(services.map(address));
    const body = (guest) => JSON.stringify({ table: 12, time: "19:00", guest });
    const answers = await Promise.all([
        send(`${one}/book`, body("Ann"), { "x-request-id": "r-1" }),
        send(`${other}/book`, body("Ben"), { "x-request-id": "r-2" }),
    ]);
    assert.deepEqual(answers.map(([status]) => status).sort(), [201, 409], JSON.stringify(answers));
    assert.deepEqual(await send(`${one}/book`, body("Eve")), [409, "this table is taken"]);
    assert.deepEqual(await send(`${one}/health`), [200, "the lock server answers"]);
    assert.equal((await send(`${one}/book`, "{"))[0], 400);
    const logs = services.flatMap((service) => service.lines).join("\n");
    assert.match(logs, /\[Lock\] ACQUIRED name=table:12:19:00 fence=\d+ pid=\d+ ttl=5s/);
    assert.match(logs, /\[Lock\] REJECTED name=table:12:19:00 .*request=r-[12]/);
    assert.match(logs, /\[Lock\] RELEASED name=table:12:19:00 fence=\d+/);
    services.forEach((service) => service.child.kill("SIGTERM"));
    for (const service of services) assert.deepEqual(await service.exit, { code: 0, signal: null }, service.errors);
});

test("booking: without the lock server it is 503, never a booking", async (t) => {
    const own = await Server.start(t);
    const service = example(t, "booking", { env: { TENURE_URL: own.url, BOOKINGS: directory(t) } });
    const url = await address(service);
    await own.kill();
    const body = JSON.stringify({ table: 1, time: "19:00", guest: "Ann" });
    assert.deepEqual(await send(`${url}/book`, body), [503, "try again later"]);
    assert.deepEqual(await send(`${url}/health`), [503, "the lock server does not answer"]);
    await own.start();
    assert.equal((await send(`${url}/book`, body))[0], 201);
});

for (const [command, expected] of [
    ["race", [/^201 table 7/, /^409 somebody is booking/]],
    ["crash", [/is dead/, /^201 table 7 at 19:00 is yours, Ben/]],
    ["stolen", [/is stopped/, /^201 table 7 at 19:00 is yours, Ben/, /other: .*(took too long; nothing was booked|this table is taken)/, /^booked for Ben/]],
]) {
    test(`booking ${command} plays what it says`, async (t) => {
        const env = { BOOKINGS: directory(t), LOCK_TTL: "2s", TENURE_URL: (await Server.start(t)).url };
        const program = example(t, "booking", { args: [command, 7], env });
        assert.deepEqual(await program.exit, { code: 0, signal: null }, program.errors);
        for (const line of expected) await program.line(line);
    });
}

test("wallet signer: two processes, six signers, no nonce missing or twice", async (t) => {
    const folder = directory(t);
    const programs = [1, 2].map(() => example(t, "wallet-signer", { args: [folder, 6] }));
    for (const program of programs) assert.deepEqual(await program.exit, { code: 0, signal: null }, program.errors);
    for (const wallet of ["0xab", "0xcd"]) {
        const lines = readFileSync(path.join(folder, `chain-${wallet}.txt`), "utf8").trim().split("\n");
        assert.deepEqual(lines.map((line) => Number(line.split(" ")[0])), Array.from({ length: 18 }, (_, i) => i));
        const fences = lines.map((line) => Number(line.split("fence ")[1]));
        assert.deepEqual(fences, [...new Set(fences)].sort((a, b) => a - b), "fences rise with the nonces");
    }
});

test("webhook: processed once, replayed later, other content refused", async (t) => {
    const programs = [example(t, "webhook"), example(t, "webhook")];
    const urls = await Promise.all(programs.map(address));
    const both = await Promise.all(urls.map((url) => send(`${url}/webhook/42`, "42 euros")));
    assert.deepEqual(both.map(([status]) => status).sort(), [200, 409], JSON.stringify(both));
    const [, first] = both.find(([status]) => status === 200);
    assert.deepEqual(await send(`${urls[1]}/webhook/42`, "42 euros"), [200, first.replace("processed", "already processed")]);
    assert.equal((await send(`${urls[0]}/webhook/42`, "43 euros"))[0], 422);
    const processed = programs.flatMap((program) => program.lines).filter((line) => line.startsWith("processing"));
    assert.equal(processed.length, 1);
});

test("cron leader: one runs the jobs; the next when it is told to stop, and when it is killed", async (t) => {
    const programs = [1, 2, 3].map(() => example(t, "cron-leader"));
    const leads = (program) => program.lines.some((line) => / leads, term /.test(line));
    const left = new Set(programs);
    for (const signal of ["SIGTERM", "SIGKILL", "SIGINT"]) {
        const leader = await until("one leads", () => [...left].find(leads), 30_000);
        assert.equal([...left].filter(leads).length, 1);
        await leader.line(/runs job 2/);
        left.delete(leader);
        leader.child.kill(signal);
        const { code } = await leader.exit;
        if (signal !== "SIGKILL") {
            assert.equal(code, 0, leader.errors);
            await leader.line(/has handed over/);
        }
    }
});

test("worker: the second takes over, and both say who leads", async (t) => {
    const first = example(t, "worker");
    await first.line(/heavy work/);
    const second = example(t, "worker");
    const [, port] = await second.line(/listening on (\d+)/);
    const [id] = first.lines[0].split(" ");
    const url = `http://127.0.0.1:${port}`;
    assert.match((await send(url))[1], new RegExp(`is waiting; leader: ${id}$`));
    first.child.kill("SIGTERM");
    assert.deepEqual(await first.exit, { code: 0, signal: null }, first.errors);
    assert(first.lines.at(-2).endsWith("work has stopped"));
    await second.line(/heavy work/);
    assert.match((await send(url))[1], /is working/);
    assert.equal((await send(`${url}/health`))[0], 200);
});
