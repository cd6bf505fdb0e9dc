// A real `tenure serve` for the tests, processes of their own, and a proxy that loses answers.
//
// TENURE_BIN is the `tenure` command; without it the one in target/debug or target/release is used. The engine is a file,
// so that what is held survives a server that is killed.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";
import { connect } from "../tenure.mjs";

// The tests' own settings, not those of whoever runs them.
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("TENURE_")));

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.join(here, "../../../target");
const built = ["debug/tenure", "release/tenure"].map((file) => path.join(target, file)).find(existsSync);
const binary = process.env.TENURE_BIN ?? built;
if (!binary) throw new Error("set TENURE_BIN to the tenure command, or build it: cargo build -p tenure-cli");

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits until `test` says something true. */
export async function until(what, test, within = 20_000) {
    for (const start = Date.now(); Date.now() - start < within; await sleep(20)) {
        const found = await test();
        if (found) return found;
    }
    throw new Error(`not within ${within} ms: ${what}`);
}

/** A port that was free a moment ago. */
export function freePort() {
    return new Promise((resolve, reject) => {
        const listener = net.createServer().listen(0, "127.0.0.1", () => {
            const { port } = listener.address();
            listener.close(() => resolve(port));
        });
        listener.on("error", reject);
    });
}

/** `place`: a port, or the path of a unix socket. */
function isListening(place) {
    return new Promise((resolve) => {
        const socket = typeof place === "string" ? net.connect(place) : net.connect(place, "127.0.0.1");
        socket.on("connect", () => resolve(true));
        socket.on("error", () => resolve(false));
        socket.on("connect", () => socket.destroy());
    });
}

/** What the `tenure` command prints. */
export function command(...args) {
    return execFileSync(binary, args, { encoding: "utf8", env }).trim();
}

/** A directory that is removed after the test. */
export function directory(t) {
    const dir = mkdtempSync(path.join(os.tmpdir(), "tenure-node-"));
    t.after(() => rmSync(dir, { recursive: true, force: true }));
    return dir;
}

/** `tenure serve`, which a test can kill and start again on the same port and engine. */
export class Server {
    #child;
    #output = "";
    #clients = [];

    static async start(t, { dir = directory(t), memory = false, tls = false, unix = false, args = [] } = {}) {
        const server = new Server();
        server.port = unix ? path.join(dir, "socket") : await freePort();
        server.url = unix ? `http+unix:${server.port}` : `${tls ? "https" : "http"}://127.0.0.1:${server.port}`;
        const engine = memory ? ["--memory", "--fresh"] : ["--url", `file:${path.join(dir, "locks.db")}`];
        const listen = ["--listen", unix ? `unix:${server.port}` : `127.0.0.1:${server.port}`, "--key-file", path.join(dir, "server.key")];
        server.args = ["serve", ...engine, ...listen, ...args];
        t.after(async () => {
            // While their server is still there, so that they release what they hold.
            await Promise.all(server.#clients.map((client) => client.close()));
            await server.kill();
        });
        await server.start();
        return server;
    }

    async start() {
        const child = spawn(binary, this.args, { stdio: ["ignore", "pipe", "pipe"], env });
        this.#child = child;
        for (const stream of [child.stdout, child.stderr]) stream.on("data", (part) => (this.#output += part));
        await until("the server listens", () => {
            if (child.exitCode !== null) throw new Error(`tenure ${this.args.join(" ")} failed: ${this.#output}`);
            return isListening(this.port);
        });
    }

    signal(name) {
        this.#child.kill(name);
    }

    async kill(signal = "SIGKILL") {
        const child = this.#child;
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = new Promise((resolve) => child.once("exit", resolve));
        child.kill(signal);
        await ended;
    }

    /** A client that is closed after the test. */
    connect(t, options = {}, url = this.url) {
        const client = connect(url, { ttl: "5s", ...options });
        t.after(() => client.close());
        this.#clients.push(client);
        return client;
    }

    async post(route, body) {
        const headers = { "content-type": "application/json" };
        const answer = await fetch(this.url + route, { method: "POST", headers, body: JSON.stringify(body) });
        const text = await answer.text();
        return { status: answer.status, body: text ? JSON.parse(text) : undefined };
    }

    /** What an operator does. */
    breakHold(name, fence, reason = "test", kind = "lock") {
        return this.post("/v1/break", { name, fence, reason, kind });
    }
}

/** Passes bytes on; can lose answers, or everything. */
export class Proxy {
    #sockets = new Set();
    #clients = [];
    #listener;
    #server;
    /** How many of the next answers are lost: the server gets the request, the client a closed connection. */
    losing = 0;
    /** Nothing is passed on, and nobody is told. */
    silent = false;
    /** How late answers come, in ms. */
    delay = 0;
    /** The requests that reached the server. */
    requests = [];

    static async start(t, server) {
        const proxy = new Proxy();
        proxy.#server = server;
        proxy.#listener = net.createServer((client) => proxy.#pass(client, net.connect(server.port, "127.0.0.1")));
        await new Promise((resolve) => proxy.#listener.listen(0, "127.0.0.1", resolve));
        proxy.url = `http://127.0.0.1:${proxy.#listener.address().port}`;
        t.after(async () => {
            await Promise.all(proxy.#clients.map((client) => client.close()));
            proxy.#listener.close();
            for (const socket of proxy.#sockets) socket.destroy();
        });
        return proxy;
    }

    /** A client that connects through this. */
    connect(t, options) {
        const client = this.#server.connect(t, options, this.url);
        this.#clients.push(client);
        return client;
    }

    #pass(client, server) {
        for (const socket of [client, server]) {
            this.#sockets.add(socket);
            socket.on("error", () => undefined);
            socket.on("close", () => {
                this.#sockets.delete(socket);
                client.destroy();
                server.destroy();
            });
        }
        client.on("data", (part) => {
            const line = /^(?:POST|GET) \S+/.exec(part.toString("latin1"));
            const arrived = () => line && this.requests.push(line[0]);
            if (server.connecting) server.once("connect", arrived);
            else arrived();
            if (!this.silent) server.write(part);
        });
        server.on("data", (part) => {
            if (this.silent) return;
            if (this.losing > 0) {
                this.losing -= 1;
                client.destroy();
            } else if (this.delay > 0) {
                setTimeout(() => client.write(part), this.delay);
            } else {
                client.write(part);
            }
        });
    }

    /** Cuts what is open. */
    cut() {
        for (const socket of this.#sockets) socket.destroy();
    }
}

/**
 * Takes the place of the server, and answers what `answer` returns: a status, a body, headers. If it returns nothing, the
 * server answers.
 */
export class Impostor {
    /** The bodies that clients sent, each with its `path`. */
    requests = [];

    static async start(t, server, answer) {
        const impostor = new Impostor();
        const listener = http.createServer((request, response) => {
            let text = "";
            request.on("data", (part) => (text += part));
            request.on("end", async () => {
                const asked = { path: request.url, ...JSON.parse(text || "{}") };
                impostor.requests.push(asked);
                const own = answer(asked);
                if (own) {
                    const { status = 200, body = "", type = "application/json", headers = {} } = own;
                    const sent = typeof body === "string" ? body : JSON.stringify(body);
                    return response.writeHead(status, { "content-type": type, ...headers }).end(sent);
                }
                const { method, headers } = request;
                const onwards = http.request(server.url + request.url, { method, headers }, (real) => {
                    response.writeHead(real.statusCode, real.headers);
                    real.pipe(response);
                });
                onwards.on("error", () => response.destroy());
                response.on("close", () => onwards.destroy());
                onwards.end(text);
            });
        });
        await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
        impostor.url = `http://127.0.0.1:${listener.address().port}`;
        t.after(() => {
            listener.closeAllConnections();
            listener.close();
        });
        return impostor;
    }

    /** Whether a client asked to leave a claim. */
    left() {
        return this.requests.some(({ path }) => path === "/v1/holds/release");
    }
}

/** A program of test/programs, or an example, as a process of its own that prints lines. */
export class Program {
    lines = [];
    errors = "";
    #wake = [];

    static start(t, file, { args = [], env: more = {}, flags = [] } = {}) {
        const program = new Program();
        const script = path.join(here, file.startsWith("../") ? file : `programs/${file}`);
        const child = spawn(process.execPath, [...flags, script, ...args.map(String)], {
            stdio: ["pipe", "pipe", "pipe"], env: { ...env, ...more },
        });
        program.child = child;
        readline.createInterface({ input: child.stdout }).on("line", (line) => {
            program.lines.push(line);
            program.#wake.splice(0).forEach((wake) => wake());
        });
        child.stderr.on("data", (part) => (program.errors += part));
        program.exit = new Promise((resolve) => child.on("close", (code, signal) => {
            program.ended = { code, signal };
            program.#wake.splice(0).forEach((wake) => wake());
            resolve(program.ended);
        }));
        t.after(() => child.kill("SIGKILL"));
        return program;
    }

    /** The first line that matches, now or later. */
    async line(pattern, within = 30_000) {
        const deadline = new Promise((resolve) => setTimeout(resolve, within, "late").unref());
        for (;;) {
            const found = this.lines.map((line) => pattern.exec(line)).find(Boolean);
            if (found) return found;
            const woken = new Promise((resolve) => this.#wake.push(resolve));
            const over = this.ended || (await Promise.race([woken, deadline])) === "late";
            if (over && !this.lines.some((line) => pattern.test(line))) {
                throw new Error(`no line ${pattern}; said ${JSON.stringify(this.lines)} ${this.errors}; ended ${JSON.stringify(this.ended)}`);
            }
        }
    }
}
