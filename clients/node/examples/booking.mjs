// A service that books tables, each at most once, however many guests ask at the same moment and however many instances
// there are.
//
//     tenure serve &
//     node booking.mjs
//     curl -i -d '{"table": 12, "time": "19:00", "guest": "Ann"}' http://127.0.0.1:3000/book
//
// A guest gets 409 at once if somebody is booking the table. While the lock server does not answer, bookings and /health
// are answered with 503. SIGTERM and Ctrl-C end the service once the bookings that have begun are done.
//
//     variable       default                  what it is
//     TENURE_URL     http://127.0.0.1:7117    the lock server that all instances share
//     TENURE_TOKEN   none                     its token
//     LOCK_TTL       5s                       how long the lock of a process that died lasts
//     PORT           3000                     where to listen on 127.0.0.1; 0 is any free port
//     BOOKINGS       ./bookings               the folder of bookings, which all instances share, too
//     PAYMENT_MS     300                      how long a payment takes
//
// To see what can happen to such a lock, case by case:
//
//     node booking.mjs race      two guests, one table
//     node booking.mjs crash     the process dies in the middle of a booking
//     node booking.mjs stolen    the process is stopped for longer than its lock lasts, and continues

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { connect } from "tenure-client";

const { env } = process;
const folder = env.BOOKINGS ?? "./bookings";
const ttl = env.LOCK_TTL ?? "5s";
const payment = Number(env.PAYMENT_MS ?? 300);

/** One line for each thing that happens to a lock: an incident can be reconstructed from them. */
function log(level, fields) {
    const text = Object.entries(fields).filter(([, value]) => value !== undefined);
    console.log(`${new Date().toISOString()} [Lock] ${level} ${text.map(([key, value]) => `${key}=${value}`).join(" ")}`);
}

function onEvent({ event, name, fence, waited, error, failure, holder }) {
    const fields = { name, fence, pid: process.pid };
    if (event === "acquired") log("ACQUIRED", { ...fields, ttl, waited });
    else if (event === "busy") log("REJECTED", { ...fields, holder: holder?.owner, request: holder?.meta?.request });
    else if (event === "released") log("RELEASED", fields);
    else if (event === "expired_before_release") log("WARN", { ...fields, what: "expired before its release: raise LOCK_TTL" });
    else log("WARN", { ...fields, what: event, why: error?.message ?? failure });
}

const tenure = connect(env.TENURE_URL, { token: env.TENURE_TOKEN, ttl, onEvent });

/** The bookings, one file each. It refuses a second booking, and a writer whose lock was taken over by another. */
const shop = {
    file: (table, time) => path.join(folder, `table-${table}-${time.replace(/\W/g, "")}.json`),
    find(table, time) {
        try {
            return JSON.parse(readFileSync(shop.file(table, time), "utf8"));
        } catch {
            return null;
        }
    },
    write(booking) {
        mkdirSync(folder, { recursive: true });
        writeFileSync(shop.file(booking.table, booking.time), JSON.stringify(booking), { flag: "wx" });
    },
};

/** Books, or says why not. `request` is the correlation id, which also appears in the logs of whoever is refused. */
async function book({ table, time, guest }, request = randomUUID()) {
    const lock = tenure.mutex(`table:${table}:${time}`, { reason: `booking for ${guest}`, meta: { request } });
    const hold = await lock.tryAcquire();
    if (!hold) return { status: 409, says: "somebody is booking this table right now: try again in a moment" };
    try {
        if (shop.find(table, time)) return { status: 409, says: "this table is taken" };
        await sleep(payment);
        // The last moment to notice that the lock was lost; after it, the shop's own check is the guard.
        hold.check();
        shop.write({ table, time, guest, fence: hold.fence });
        return { status: 201, says: `table ${table} at ${time} is yours, ${guest}` };
    } catch (error) {
        if (error.code === "lost") return { status: 409, says: "the booking took too long; nothing was booked" };
        if (error.code === "EEXIST") return { status: 409, says: "this table is taken" };
        throw error;
    } finally {
        // The ttl is the last line of defence; this is the first.
        await hold.release().catch((error) => log("WARN", { what: "release", why: error.message }));
    }
}

function serve() {
    const server = http.createServer(async (request, response) => {
        const answer = (status, says) => response.writeHead(status, { "content-type": "text/plain" }).end(`${says}\n`);
        try {
            if (request.url === "/health") {
                const ready = await tenure.ready();
                return answer(ready ? 200 : 503, ready ? "the lock server answers" : "the lock server does not answer");
            }
            if (request.method !== "POST" || request.url !== "/book") return answer(404, "POST /book or GET /health");
            let body = "";
            for await (const part of request) body += part;
            const { status, says } = await book(JSON.parse(body), request.headers["x-request-id"]);
            answer(status, says);
        } catch (error) {
            if (error instanceof SyntaxError) return answer(400, "not JSON");
            // Never book without a lock.
            const away = error.code === "unavailable" || error.code === "in_doubt";
            answer(away ? 503 : 500, away ? "try again later" : "a bug");
            log("WARN", { what: error.code ?? error.name, why: error.message });
        }
    });
    server.listen(Number(env.PORT ?? 3000), "127.0.0.1", () => {
        console.log(`listening on http://127.0.0.1:${server.address().port}`);
    });
    for (const signal of ["SIGTERM", "SIGINT"]) {
        process.once(signal, () => {
            server.close(() => tenure.close());
            server.closeIdleConnections();
        });
    }
}

/** Two guests ask for the same table at the same moment. */
async function race(table) {
    const guests = ["Ann", "Ben"].map((guest) => book({ table, time: "19:00", guest }));
    for (const { status, says } of await Promise.all(guests)) console.log(status, says);
}

/** Another process books, and says when it has the lock. */
async function other(table) {
    const script = fileURLToPath(import.meta.url);
    const child = spawn(process.execPath, [script, "slow", table], {
        env: { ...env, PAYMENT_MS: "3000" }, stdio: ["ignore", "pipe", "inherit"],
    });
    let ended = false;
    const end = new Promise((resolve) => child.once("close", resolve)).then(() => (ended = true));
    await new Promise((resolve) => {
        child.stdout.on("data", (part) => {
            process.stdout.write(`  other: ${part}`);
            if (String(part).includes("ACQUIRED")) resolve();
        });
        end.then(resolve);
    });
    if (ended) throw new Error("the other process did not get the lock");
    return { child, end };
}

/** Books as soon as the lock is free. */
async function bookWhenFree(table) {
    for (;;) {
        const { status, says } = await book({ table, time: "19:00", guest: "Ben" });
        if (status === 201 || says.includes("taken")) return console.log(status, says);
        await sleep(250);
    }
}

async function crash(table) {
    const { child, end } = await other(table);
    child.kill("SIGKILL");
    await end;
    console.log(`the other process is dead; its lock ends within ${ttl}`);
    await bookWhenFree(table);
}

async function stolen(table) {
    const { child, end } = await other(table);
    await sleep(500); // By now it has seen that the table is free, and takes the payment.
    child.kill("SIGSTOP");
    console.log(`the other process is stopped; its lock ends within ${ttl}`);
    await bookWhenFree(table);
    child.kill("SIGCONT");
    await end;
    console.log(`booked for ${shop.find(table, "19:00").guest}`);
}

const [command = "serve", table = String(Math.floor(Math.random() * 1e6))] = process.argv.slice(2);
const commands = { serve, race, crash, stolen, slow: async () => console.log(await book({ table, time: "19:00", guest: "Ann" })) };
if (!Object.hasOwn(commands, command)) throw new Error(`there is no ${command}: serve (default), race, crash or stolen`);
await commands[command](table);
