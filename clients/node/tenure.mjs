// The client of `tenure serve`: locks, semaphores, read-write locks, elections and run-once jobs over HTTP.
//
// One file without dependencies, so that it can be copied, bundled, or served as it is. The wire format, and the rules
// that a client must keep, are in docs/http.md ("rule 3" below is a rule of that page). From top to bottom: durations and
// errors; what runs on the pulse's thread; the pulse; a live hold; waiting for one; the classes that programs see.

import { randomBytes } from "node:crypto";
import http from "node:http";
import https from "node:https";
import os from "node:os";
import { Worker } from "node:worker_threads";

/** The longest time for which the server lets one request wait; a 202 means to ask again. */
const LONGEST_POLL = 20_000;
/**
 * How often the main loop shows that it is alive. After the machine wakes from sleep, losses are noticed within this
 * time, too.
 */
const BEAT_EVERY = 250;
/** The longest delay that a timer accepts. */
const LONGEST_TIMER = 2 ** 31 - 1;
/** How a hold can end, by its number in shared memory; 0 is a live hold. */
const ENDINGS = ["live", "expired", "broken", "forgotten", "clock_step", "conflict", "elsewhere", "other_engine"];

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of `"250ms"`, `"10s"`, `"2m"`, `"1h"` or a number. */
function milliseconds(value, what) {
    if (typeof value === "number" && value >= 0) return value;
    const parts = typeof value === "string" ? /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(value) : null;
    if (!parts) {
        throw new TypeError(`${what} must be a duration such as "10s" or a number of milliseconds, not ${show(value)}`);
    }
    return Number(parts[1]) * UNITS[parts[2]];
}

function show(value) {
    return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/**
 * Why something was not granted, or ended. `code` is for programs: `busy`, `lost`, `unavailable` (nothing happened),
 * `in_doubt` (it may have happened), `closed`, or a code of the server such as `unauthorized`.
 */
class TenureError extends Error {
    constructor(code, message, { cause, ...details } = {}) {
        super(message, cause === undefined ? undefined : { cause });
        this.code = code;
        for (const [key, value] of Object.entries(details)) if (value !== undefined) this[key] = value;
    }
}
Object.defineProperty(TenureError.prototype, "name", { value: "TenureError", configurable: true, writable: true });

/**
 * Renames `held_ms` to `heldMs`, and so on, at every depth. What users wrote themselves, an outcome or meta, stays as it
 * is.
 */
function camel(value) {
    if (Array.isArray(value)) return value.map(camel);
    if (value === null || typeof value !== "object") return value;
    const renamed = ([key, inner]) => {
        const own = key === "meta" || key === "outcome";
        return [key.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase()), own ? inner : camel(inner)];
    };
    return Object.fromEntries(Object.entries(value).map(renamed));
}

/** The error for an answer other than success. */
function refusal(answer, resource) {
    const { code, detail, title, holder, position, ended, by, reason } = answer.problem ? answer.data : {};
    const said = detail ?? title ?? `the server answered ${answer.status}`;
    const place = position === undefined ? "" : `; place in line: ${position}`;
    const details = { resource, status: answer.status, holder: camel(holder), position, ended, by, reason };
    return new TenureError(code ?? "unreadable", said + place, details);
}

/**
 * The error for an answer that this version of tenure does not give: a proxy's page, say. It is no success, whatever its
 * status.
 */
function unreadable(answer, resource) {
    const text = `${show(resource)}: the answer ${answer.status} is not one of a tenure server of this version`;
    return new TenureError("unreadable", text, { resource, status: answer.status });
}

function isObject(value) {
    return value !== null && typeof value === "object" && !Array.isArray(value);
}

function isCount(value) {
    return Number.isFinite(value) && value >= 0;
}

/** Whether a 201 is a complete grant of this claim: work must not begin on half of one. */
function isGrant({ data, engine }, claim) {
    return isObject(data) && data.claim === claim && typeof data.confirm === "boolean" && Boolean(engine)
        && [data.fence, data.left_ms, data.renew_ms, data.waited_ms].every(isCount);
}

/** Whether a 200 says that a once was done, and how. */
function isSettled(data) {
    return isObject(data) && data.settled === true && ("outcome" in data || "outcome_base64" in data);
}

/** The error for a loss. */
function loss(resource, fence, { ended, by, reason, withheld, maxBlock }) {
    const why = {
        expired: "no renewal was answered in time",
        broken: `broken${by ? ` by ${by}` : ""}${reason ? `: ${reason}` : ""}`,
        other_engine: "the server now has another engine, which knows nothing of it",
        closed: "the client was closed",
    };
    const blocked = `the event loop was blocked for longer than maxBlock (${maxBlock} ms), so it was not renewed`;
    const text = `${show(resource)} was lost: ${withheld ? blocked : (why[ended] ?? ended)}`;
    return new TenureError("lost", text, { resource, fence, ended, by, reason });
}

/**
 * What the main thread and the pulse's thread both need: a clock, deadlines, requests, and the pulse itself.
 *
 * The worker is started from the text of this function, because bundlers lose files. So it uses nothing from outside
 * except its arguments and what every Node has.
 */
function transport({ http, https, base, token, ca }) {
    const url = new URL(base);
    const secure = url.protocol === "https:";
    // http+unix:/run/tenure/tenure.sock
    const socketPath = url.protocol === "http+unix:" ? decodeURIComponent(url.pathname) : undefined;
    const prefix = socketPath === undefined ? url.pathname.replace(/\/$/, "") : "";
    const root = socketPath === undefined ? url : new URL("http://localhost");
    const library = secure ? https : http;
    const agent = new library.Agent({ keepAlive: true, ...(secure && ca ? { ca } : {}) });

    /** The same instant on two clocks. The monotonic one stops while the machine sleeps; the other one can be set. */
    function moment() {
        return { steady: Number(process.hrtime.bigint()) / 1e6, wall: Date.now() };
    }

    /** How long ago that was, by whichever clock says longer. */
    function since(then) {
        const now = moment();
        return Math.max(now.steady - then.steady, now.wall - then.wall);
    }

    /** How long a hold can be relied on after the request that was answered with `left` was sent (rule 3). */
    function reliable(left) {
        return left - left / 100 - Math.min(left / 20, 25);
    }

    // A hold in shared memory: deadline on the steady clock, deadline on the wall clock, how it ended, whether the pulse
    // withholds renewals. Whole milliseconds, rounded down: early is safe.

    /** Moves the deadline, if that moves it forward. */
    function extend(slots, sent, left) {
        const steady = BigInt(Math.floor(sent.steady + reliable(left)));
        if (steady <= Atomics.load(slots, 0)) return;
        Atomics.store(slots, 0, steady);
        Atomics.store(slots, 1, BigInt(Math.floor(sent.wall + reliable(left))));
    }

    function remaining(slots) {
        const now = moment();
        const steady = Number(Atomics.load(slots, 0)) - now.steady;
        return Math.min(steady, Number(Atomics.load(slots, 1)) - now.wall);
    }

    /**
     * Sends one request. An error has `sent`: whether any of it may have reached the server.
     * A `background` request does not keep the program running.
     */
    function send(path, body, { timeout, signal, method = "POST", background = false }) {
        const sent = moment();
        const text = body === undefined ? undefined : JSON.stringify(body);
        const headers = { accept: "application/json" };
        if (token) headers.authorization = `Bearer ${token}`;
        if (text !== undefined) {
            headers["content-type"] = "application/json";
            headers["content-length"] = Buffer.byteLength(text);
        }
        return new Promise((resolve, reject) => {
            let connected = false;
            const target = new URL(prefix + path, root);
            const request = library.request(target, { method, headers, agent, socketPath });
            const timer = setTimeout(() => request.destroy(new Error(`no answer within ${timeout} ms`)), timeout);
            if (background) timer.unref();
            const abort = () => request.destroy(new Error("aborted"));
            const done = (finish, value) => {
                clearTimeout(timer);
                signal?.removeEventListener("abort", abort);
                finish(value);
            };
            const fail = (error) => done(reject, Object.assign(error, { sent: connected }));
            if (signal?.aborted) abort();
            signal?.addEventListener("abort", abort, { once: true });
            request.on("socket", (socket) => {
                if (background) socket.unref();
                if (socket.connecting) socket.once(secure ? "secureConnect" : "connect", () => (connected = true));
                else connected = true;
            });
            request.on("error", fail);
            request.on("response", (response) => {
                let text = "";
                response.setEncoding("utf8");
                response.on("data", (part) => {
                    text += part;
                    if (text.length > 4 << 20) request.destroy(new Error("the answer is too long"));
                });
                response.on("error", fail);
                response.on("aborted", () => fail(new Error("the answer broke off")));
                response.on("end", () => {
                    let data = null;
                    try {
                        if (text) data = JSON.parse(text);
                    } catch {
                        // Not from the server: a proxy's page, say. The status decides.
                    }
                    const problem = /problem\+json/.test(response.headers["content-type"] ?? "") && data !== null;
                    const engine = response.headers["tenure-engine"];
                    done(resolve, { status: response.statusCode, data, problem, engine, sent });
                });
            });
            request.end(text);
        });
    }

    /**
     * Renews holds until they are removed, lost, or past their deadline. `tell` is told of losses and of renewals that
     * failed. `beat` is when the main loop last showed that it is alive: after `maxBlock` of silence nothing is renewed,
     * because a program that hangs would otherwise keep its locks for ever.
     */
    function startPulse({ beat, maxBlock, endings, background, tell }) {
        const holds = new Map();
        let timer;

        function add(hold) {
            hold.slots = new BigInt64Array(hold.shared);
            hold.next = hold.renewedAt + hold.renewMs;
            holds.set(hold.id, hold);
            arm();
        }

        function remove(id) {
            holds.delete(id);
            arm();
        }

        function arm() {
            clearTimeout(timer);
            if (holds.size === 0) return;
            const now = moment().steady;
            let delay = 1000; // Looks at the wall clock now and then: a timer does not run while the machine sleeps.
            for (const hold of holds.values()) delay = Math.min(delay, remaining(hold.slots), hold.next - now);
            timer = setTimeout(look, Math.max(1, Math.ceil(delay)));
            if (background) timer.unref();
        }

        function end(hold, details) {
            holds.delete(hold.id);
            const number = Math.max(1, endings.indexOf(details.ended));
            if (Atomics.compareExchange(hold.slots, 2, 0n, BigInt(number)) === 0n) tell({ lost: hold.id, details });
        }

        function look() {
            const now = moment().steady;
            const silent = now - Number(Atomics.load(beat, 0)) > maxBlock;
            let due = [];
            for (const hold of holds.values()) {
                if (remaining(hold.slots) <= 0) end(hold, { ended: "expired" });
                // Include those that are nearly due, so that many holds need few requests.
                else if (hold.next - hold.renewMs / 8 <= now) due.push(hold);
            }
            if (!due.some((hold) => hold.next <= now)) due = [];
            for (const hold of due) Atomics.store(hold.slots, 3, silent ? 1n : 0n);
            if (silent) {
                for (const hold of due) hold.next = now + 100;
            } else {
                for (const batch of batches(due)) renew(batch);
            }
            arm();
        }

        /** Splits holds into requests: at most 256 in each, and well under 64 KiB. */
        function batches(due) {
            const all = [];
            let size = 0;
            for (const hold of due) {
                const bytes = Buffer.byteLength(JSON.stringify(hold.name)) + 160;
                if (all.length === 0 || all.at(-1).length === 256 || size + bytes > 48_000) {
                    all.push([]);
                    size = 0;
                }
                all.at(-1).push(hold);
                size += bytes;
            }
            return all;
        }

        /**
         * Sends one request. While it is not answered, another one follows on another connection, because this one may
         * hang; a late answer is still of use.
         */
        async function renew(batch) {
            const shortest = Math.min(...batch.map((hold) => hold.renewMs));
            const started = moment().steady;
            for (const hold of batch) {
                hold.lastSent = started;
                hold.next = started + Math.max(500, hold.renewMs / 2);
            }
            const lines = batch.map(({ name, kind, claim, fence, ttl }) => ({ name, kind, claim, fence, ttl }));
            let answer;
            let failure;
            try {
                const timeout = Math.max(1000, 2 * shortest);
                answer = await send("/v1/holds/renew", { holds: lines }, { timeout, background });
                if (answer.status !== 200 || answer.data?.holds?.length !== batch.length || !answer.engine) {
                    failure = answer.data?.code ?? `status ${answer.status}`;
                }
            } catch (error) {
                failure = error.code ?? error.message;
            }
            batch.forEach((hold, i) => {
                // Released meanwhile, or past its deadline: a late answer does not bring it back.
                if (!holds.has(hold.id)) return;
                if (remaining(hold.slots) <= 0) end(hold, { ended: "expired" });
                else if (failure) again(hold, failure, started);
                else if (answer.engine !== hold.engine) end(hold, { ended: "other_engine" });
                else renewed(hold, answer.data.holds[i], answer.sent, started);
            });
            arm();
        }

        function renewed(hold, item, sent, started) {
            if (item?.status === 200 && item.fence === hold.fence && Number.isFinite(item.left_ms)) {
                extend(hold.slots, sent, item.left_ms);
                hold.next = sent.steady + hold.renewMs;
            } else if (item?.status === 410) {
                end(hold, { ended: item.ended ?? "forgotten", by: item.by, reason: item.reason });
            } else {
                again(hold, item?.code ?? `status ${item?.status}`, started);
            }
        }

        function again(hold, failure, started) {
            tell({ late: hold.id, failure });
            // If a later request was sent, that one decides when the next is due.
            if (hold.lastSent === started) hold.next = moment().steady + Math.max(hold.renewMs / 10, 100);
        }

        return { add, remove, stop: () => holds.clear() || clearTimeout(timer) };
    }

    return { moment, since, reliable, extend, remaining, send, startPulse, close: () => agent.destroy() };
}

/**
 * What the worker runs. Some bundlers wrap each function in a helper that preserves its name; what the helper is called
 * is up to them. So every unknown name in the text of `transport` is treated as such a helper, which returns its
 * function.
 */
const workerSource = () => `
const { parentPort, workerData } = require("node:worker_threads");
const helpers = new Proxy({}, {
    has: (_, name) => typeof name === "string" && !(name in globalThis),
    get: (_, name) => (typeof name === "string" ? (f) => f : undefined),
});
const transport = new Function("helpers", ${JSON.stringify(`with (helpers) return (${transport.toString()});`)})(helpers);
const wire = transport({ http: require("node:http"), https: require("node:https"), ...workerData.server });
const tell = (news) => parentPort.postMessage(news);
const pulse = wire.startPulse({ ...workerData.pulse, background: false, tell });
parentPort.on("message", ({ add, remove }) => (add ? pulse.add(add) : pulse.remove(remove)));
tell({ ready: true });
`;

/** Keeps the holds of a client alive: on a thread of its own, or on the main thread if there cannot be one. */
class Pulse {
    #wire;
    #server;
    #maxBlock;
    #tell;
    #beat = new BigInt64Array(new SharedArrayBuffer(8));
    #holds = new Map();
    #worker;
    #inline;
    #started;
    #beating;

    constructor(wire, server, { maxBlock, thread, tell }) {
        this.#wire = wire;
        this.#server = server;
        this.#maxBlock = maxBlock;
        this.#tell = tell;
        if (thread === "main") this.#pulseHere();
    }

    /** `worker`, `main`, or null before the first hold. */
    get thread() {
        return this.#inline ? "main" : this.#worker ? "worker" : null;
    }

    /** Resolves once a hold would be renewed. */
    start() {
        this.#started ??= this.#inline ? Promise.resolve() : this.#startWorker();
        return this.#started;
    }

    #options() {
        return { beat: this.#beat, maxBlock: this.#maxBlock, endings: ENDINGS };
    }

    #startWorker() {
        return new Promise((resolve) => {
            const fallBack = (error) => {
                clearTimeout(slow);
                if (!this.#inline && this.#started !== null) {
                    this.#pulseHere();
                    this.#tell({ fallback: error });
                }
                resolve();
            };
            const slow = setTimeout(() => fallBack(new Error("it did not start within 5 s")), 5000);
            try {
                const workerData = { server: this.#server, pulse: this.#options() };
                // Without the program's own flags and variables: loaders and debuggers have no business here.
                const worker = new Worker(workerSource(), { eval: true, workerData, execArgv: [], env: {} });
                this.#worker = worker;
                worker.on("message", (news) => {
                    if (!news.ready) return this.#tell(news);
                    clearTimeout(slow);
                    worker.unref();
                    resolve();
                });
                worker.on("error", fallBack);
                worker.on("exit", () => fallBack(new Error("it ended")));
            } catch (error) {
                fallBack(error);
            }
        });
    }

    #pulseHere() {
        this.#worker?.removeAllListeners("message").terminate();
        this.#worker = undefined;
        this.#inline = this.#wire.startPulse({ ...this.#options(), background: true, tell: this.#tell });
        for (const { record } of this.#holds.values()) this.#inline.add({ ...record });
    }

    add(live) {
        this.#holds.set(live.record.id, live);
        this.alive();
        this.#beating ??= setInterval(() => {
            this.alive();
            for (const hold of this.#holds.values()) hold.look();
        }, BEAT_EVERY).unref();
        if (this.#inline) this.#inline.add({ ...live.record });
        else this.#worker.postMessage({ add: live.record });
    }

    remove(id) {
        if (!this.#holds.delete(id)) return;
        if (this.#inline) this.#inline.remove(id);
        else this.#worker?.postMessage({ remove: id });
        if (this.#holds.size === 0) {
            clearInterval(this.#beating);
            this.#beating = undefined;
        }
    }

    get(id) {
        return this.#holds.get(id);
    }

    all() {
        return [...this.#holds.values()];
    }

    /** The main loop, or blocking code that calls `check`, is alive. */
    alive() {
        Atomics.store(this.#beat, 0, BigInt(Math.floor(this.#wire.moment().steady)));
    }

    async stop() {
        this.#started = null;
        clearInterval(this.#beating);
        this.#inline?.stop();
        await this.#worker?.terminate();
    }
}

/** A hold from its grant to its end, as the main thread sees it. */
class LiveHold {
    #client;
    #slots;
    #timer;
    #controller = new AbortController();
    #over = false;
    /** The client was closed: the hold is lost to the program, but renewed until it is released or nobody waits for that. */
    #closed = false;
    /** Whether an earlier request of this claim was never answered. */
    doubt = false;

    constructor(client, record) {
        this.#client = client;
        this.record = record;
        this.#slots = new BigInt64Array(record.shared);
        this.#arm();
    }

    get signal() {
        return this.#controller.signal;
    }

    get remaining() {
        return this.#closed ? 0 : this.left;
    }

    /** How long the server certainly keeps it, even after `close`, until it has ended. */
    get left() {
        return this.#over || Atomics.load(this.#slots, 2) !== 0n ? 0 : Math.max(0, this.#client.wire.remaining(this.#slots));
    }

    #arm() {
        clearTimeout(this.#timer);
        const delay = Math.min(LONGEST_TIMER, Math.max(1, Math.floor(this.#client.wire.remaining(this.#slots))));
        this.#timer = setTimeout(() => this.isKept && this.#arm(), delay).unref();
    }

    /** Whether it is still held. Declares the loss if it is not. */
    look() {
        if (this.#over) return false;
        const ended = Number(Atomics.load(this.#slots, 2));
        if (ended !== 0) this.lose({ ended: ENDINGS[ended] });
        else if (this.#client.wire.remaining(this.#slots) <= 0) this.lose({ ended: "expired" });
        return !this.#over && !this.#closed;
    }

    /** Whether the server keeps it, although it may be lost to the program. */
    get isKept() {
        this.look();
        return !this.#over;
    }

    lose(details) {
        if (!this.finish()) return;
        Atomics.compareExchange(this.#slots, 2, 0n, BigInt(Math.max(1, ENDINGS.indexOf(details.ended))));
        if (!this.#closed) this.#announce(details);
    }

    /** Lost to the program, because its client is closed: the work is told, and the server still keeps it. */
    close() {
        if (!this.look()) return;
        this.#closed = true;
        this.#announce({ ended: "closed" });
    }

    #announce(details) {
        const withheld = details.ended === "expired" && Atomics.load(this.#slots, 3) === 1n;
        const { name, fence } = this.record;
        const error = loss(name, fence, { ...details, withheld, maxBlock: this.#client.options.maxBlock });
        this.#controller.abort(error);
        this.#client.report({ event: "lost", name, fence, ended: details.ended, error });
    }

    /** Ends the pulse. False if it had ended before. */
    finish() {
        if (this.#over) return false;
        this.#over = true;
        clearTimeout(this.#timer);
        this.#client.pulse.remove(this.record.id);
        return true;
    }
}

/** What all classes below share: settings, requests, the pulse, and the loops that wait and repeat. */
class Core {
    #background = new Set();
    /** The waits in line, each by the `AbortController` that ends it. */
    #waits = new Map();
    /** The work of `run`, until its hold is released. */
    #works = new Set();
    #ids = 0;
    #closing;

    get closed() {
        return this.#closing !== undefined;
    }

    constructor(url, options) {
        this.options = options;
        const server = { base: url.href, token: options.token, ca: options.ca };
        this.wire = transport({ http, https, ...server });
        const tell = (news) => this.#hear(news);
        this.pulse = new Pulse(this.wire, server, { maxBlock: options.maxBlock, thread: options.thread, tell });
    }

    #hear({ lost, late, fallback, details, failure }) {
        if (fallback) {
            const why = `tenure: holds are renewed on the main thread, because the worker failed: ${fallback.message}`;
            process.emitWarning(`${why}. A blocked event loop can now lose them.`, { code: "TENURE_MAIN_THREAD" });
            this.report({ event: "main_thread", error: fallback });
            return;
        }
        const live = this.pulse.get(lost ?? late);
        if (live && lost !== undefined) live.lose(details);
        if (live && late !== undefined) {
            const { name, fence } = live.record;
            this.report({ event: "renewal_failed", name, fence, failure, remaining: live.remaining });
        }
    }

    /** Reports to the program, whose errors must not end a renewal or a release. */
    report(event) {
        const failed = (error) =>
            process.emitWarning(`tenure: onEvent failed: ${error?.message}`, { code: "TENURE_ON_EVENT" });
        try {
            const told = this.options.onEvent?.(event);
            if (typeof told?.then === "function") told.then(undefined, failed);
        } catch (error) {
            failed(error);
        }
    }

    /** Sends a request, and repeats it while nobody knows what became of it, for at most `patience`. */
    async ask(path, body, { patience, method, resource, background = false, signal }) {
        const start = this.wire.moment();
        let doubt = false;
        for (let pause = 25; ; pause = Math.min(pause * 2, 1000)) {
            const { answer, failure } = await this.attempt(path, body, {
                timeout: Math.max(250, Math.min(this.options.requestTimeout, patience)), method, background, signal,
            });
            if (answer && !failure) return { ...answer, doubt };
            doubt ||= failure.doubt;
            if (signal?.aborted) throw signal.reason;
            if (this.wire.since(start) + pause >= patience) throw this.gaveUp(failure, doubt, resource);
            await sleep(pause * (0.75 + Math.random() / 2), { background, signal });
        }
    }

    /**
     * Sends one request. Answers that say nothing about the lock (5xx, 408) are failures, in doubt unless the server says
     * otherwise.
     */
    async attempt(path, body, options) {
        let answer;
        try {
            answer = await this.wire.send(path, body, options);
        } catch (error) {
            return { failure: { error, doubt: error.sent, text: error.message } };
        }
        if (answer.status < 500 && answer.status !== 408) return { answer };
        const text = answer.problem ? answer.data.detail ?? answer.data.code : `status ${answer.status}`;
        const nothing = answer.problem && answer.data.code === "unavailable";
        return { answer, failure: { error: undefined, doubt: !nothing, text } };
    }

    gaveUp(failure, doubt, resource) {
        const what = doubt ? "it may have happened" : "nothing happened";
        const text = `${show(resource)}: no answer from the server, ${what}: ${failure.text}`;
        return new TenureError(doubt ? "in_doubt" : "unavailable", text, { resource, cause: failure.error });
    }

    /** Waits in line until the claim is granted. Returns a live hold, or the answer 200 to a once that was done. */
    async obtain(path, request, { wait, signal }) {
        if (this.closed) throw this.#closedError(request);
        signal?.throwIfAborted();
        const stop = new AbortController();
        const abort = () => stop.abort();
        signal?.addEventListener("abort", abort, { once: true });
        const waiting = this.#wait(path, request, wait, stop.signal);
        this.#waits.set(stop, waiting);
        try {
            return await waiting;
        } catch (error) {
            if (!stop.signal.aborted) throw error;
            throw signal?.aborted ? signal.reason : this.#closedError(request);
        } finally {
            signal?.removeEventListener("abort", abort);
            this.#waits.delete(stop);
        }
    }

    #closedError({ name }) {
        return new TenureError("closed", "the client was closed", { resource: name });
    }

    /** Once `signal` has aborted, any error of this function stands for that. */
    async #wait(path, request, wait, signal) {
        const ready = this.pulse.start();
        const asked = this.wire.moment();
        const anew = () => ({ claim: newClaim(), ticket: undefined, doubt: false, known: false });
        let attempt = anew();
        let failing;
        let pause = 25;
        try {
            for (;;) {
                signal.throwIfAborted();
                const left = Math.max(0, wait - this.wire.since(asked));
                const body = { ...request, claim: attempt.claim, ticket: attempt.ticket };
                if (path === "/v1/once") delete body.kind;
                body.wait = Math.min(Math.ceil(left), UNITS.d);
                const before = this.wire.moment();
                const timeout = Math.min(left, LONGEST_POLL) + this.options.requestTimeout;
                const { answer, failure } = await this.attempt(path, body, { timeout, signal });
                attempt.known ||= !failure || failure.doubt;
                signal.throwIfAborted();
                if (failure) {
                    attempt.doubt ||= failure.doubt;
                    failing ??= this.wire.moment();
                    const patience = wait === Infinity ? this.options.patience : Math.max(1000, wait);
                    if (this.wire.since(wait === Infinity ? failing : asked) + pause >= patience) {
                        throw this.gaveUp(failure, attempt.doubt, request.name);
                    }
                    await sleep(pause * (0.75 + Math.random() / 2), { signal });
                    pause = Math.min(pause * 2, 1000);
                    continue;
                }
                failing = undefined;
                pause = 25;
                if (answer.status === 200 && path === "/v1/once" && isSettled(answer.data)) {
                    attempt.known = attempt.doubt;
                    return { settled: answer.data };
                }
                if (answer.status === 202 && isObject(answer.data)) {
                    attempt.ticket = answer.data.ticket ?? attempt.ticket;
                    const { position, holder } = answer.data;
                    this.report({ event: "waiting", name: request.name, position, holder: camel(holder) });
                    // A server that shuts down sends everyone away at once; the next one may not be there yet.
                    if (this.wire.since(before) < 100) await sleep(100, { signal });
                } else if (answer.status === 201 && isGrant(answer, attempt.claim)) {
                    await ready;
                    const live = await this.#confirm(request, attempt, answer, signal);
                    if (live) {
                        attempt.known = false;
                        return { live, waited: this.wire.since(asked) };
                    }
                    signal.throwIfAborted();
                    this.leave(request, attempt.claim, true);
                    attempt = anew();
                } else if (answer.status === 410 && answer.problem) {
                    // The claim ended before we heard of its grant. The next try is a new claim.
                    attempt = anew();
                    await sleep(25, { signal });
                } else if (answer.status === 400 && attempt.ticket !== undefined) {
                    // A server with another key does not know the ticket. The claim may still be in line.
                    attempt.ticket = undefined;
                } else if (answer.status < 300) {
                    throw unreadable(answer, request.name);
                } else {
                    attempt.known = attempt.doubt;
                    throw refusal(answer, request.name);
                }
            }
        } finally {
            // The server may have granted it, or be about to.
            if (attempt.known) this.leave(request, attempt.claim, true);
        }
    }

    /**
     * Rule 4: a grant that may not have been heard is renewed once before work starts. Returns null if it ended before
     * that.
     */
    async #confirm(request, attempt, granted, signal) {
        const { data, engine, sent } = granted;
        const shared = new SharedArrayBuffer(32);
        const slots = new BigInt64Array(shared);
        this.wire.extend(slots, sent, data.left_ms);
        let renewedAt = sent.steady;
        const about = { name: request.name, kind: request.kind, claim: attempt.claim, fence: data.fence, ttl: request.ttl };
        for (let confirmed = !data.confirm; !confirmed; ) {
            const left = this.wire.remaining(slots);
            if (left <= 0 || signal.aborted) return null;
            const timeout = Math.max(1, Math.min(left, 1000));
            const { answer } = await this.attempt("/v1/holds/renew", about, { timeout, signal });
            if (answer?.status === 410 || (answer?.engine && answer.engine !== engine)) return null;
            const renewed = answer?.status === 200 && answer.engine && isObject(answer.data)
                && answer.data.fence === data.fence && isCount(answer.data.left_ms);
            // The first life may be over by the time that the answer is read.
            if (renewed && this.wire.remaining(slots) > 0) {
                this.wire.extend(slots, answer.sent, answer.data.left_ms);
                renewedAt = answer.sent.steady;
                confirmed = true;
            } else {
                await sleep(100, { signal });
            }
        }
        if (signal.aborted || this.wire.remaining(slots) <= 0) return null;
        const id = ++this.#ids;
        const live = new LiveHold(this, { ...about, id, shared, engine, renewMs: Math.max(50, data.renew_ms), renewedAt });
        live.doubt = attempt.doubt;
        this.pulse.add(live);
        return live;
    }

    /** Leaves a claim in the background, and tries for as long as it could be held. */
    leave({ name, kind, ttl }, claim, inDoubt) {
        const body = { name, kind, claim, in_doubt: inDoubt || undefined };
        const options = { patience: Math.min(ttl, this.options.patience), resource: name };
        const leaving = this.ask("/v1/holds/release", body, options).then(
            () => undefined,
            (error) => this.report({ event: "release_failed", name, error }),
        );
        this.#background.add(leaving);
        leaving.finally(() => this.#background.delete(leaving));
    }

    /** Ends a hold with a request. Its pulse stops first: a renewal must not arrive after it. */
    async release(live) {
        const { name, kind, claim, fence } = live.record;
        if (!live.isKept) return false;
        // It could be relied on until now, so a 410 to a repeated request means that an earlier one released it.
        const patience = Math.max(1000, Math.min(live.left, this.options.patience));
        live.finish();
        const body = { name, kind, claim, in_doubt: live.doubt || undefined };
        const answer = await this.ask("/v1/holds/release", body, { patience, resource: name });
        const released = answer.status === 204 || (answer.status === 410 && answer.doubt);
        if (!released && answer.status !== 410) throw refusal(answer, name);
        this.report({ event: released ? "released" : "expired_before_release", name, fence });
        return released;
    }

    /** Makes `close` wait for this work, whose hold is released after it. */
    work(doing) {
        this.#works.add(doing);
        const done = () => this.#works.delete(doing);
        doing.then(done, done);
        return doing;
    }

    close(wait) {
        this.#closing ??= this.#close(wait);
        return this.#closing;
    }

    async #close(wait) {
        // The rest runs once `closed` is true.
        await undefined;
        const waits = Promise.allSettled(this.#waits.values());
        for (const stop of this.#waits.keys()) stop.abort();
        for (const live of this.pulse.all()) live.close();
        const ended = Promise.allSettled([waits, ...this.#works]).then(() => Promise.all(this.#background));
        const over = new AbortController();
        await Promise.race([ended, sleep(wait, { signal: over.signal })]);
        over.abort();
        // Work may still depend on what is not released yet: it ends with its ttl.
        await this.pulse.stop();
        this.wire.close();
    }
}

function newClaim() {
    return randomBytes(16).toString("hex");
}

/** Resolves early when `signal` aborts: the caller checks for that afterwards. */
function sleep(delay, { signal, background = false } = {}) {
    return new Promise((resolve) => {
        const done = () => {
            clearTimeout(timer);
            signal?.removeEventListener("abort", done);
            resolve();
        };
        const timer = setTimeout(done, delay);
        if (background) timer.unref();
        if (signal?.aborted) done();
        signal?.addEventListener("abort", done, { once: true });
    });
}

/** A hold, until `release` or a loss. */
class Hold {
    #core;
    #live;
    #releasing;

    constructor(core, live, waited) {
        this.#core = core;
        this.#live = live;
        this.name = live.record.name;
        this.fence = live.record.fence;
        this.waited = Math.round(waited);
    }

    /**
     * Aborts when it is lost, before anyone else can hold it; its reason is the `TenureError`. Does not abort on release.
     */
    get signal() {
        return this.#live.signal;
    }

    /** Whether it was lost. False after a release. */
    get lost() {
        this.#live.look();
        return this.signal.aborted;
    }

    /** How long it is certainly held even if no further renewal is answered, in ms. 0 once it has ended. */
    get remaining() {
        return this.#live.remaining;
    }

    /** The same, as a time of `Date.now()`. */
    get deadline() {
        return Date.now() + this.remaining;
    }

    /**
     * Throws if it is lost or released. For code that blocks the event loop and so cannot hear `signal`; it also shows
     * that such code is alive (see `maxBlock`).
     */
    check = () => {
        this.#core.pulse.alive();
        if (this.#live.look()) return;
        if (this.signal.aborted) throw this.signal.reason;
        throw new TenureError("lost", `${show(this.name)} was released`, { resource: this.name, fence: this.fence });
    };

    /** Resolves to true if this freed it, and to false if it had already ended. */
    release() {
        this.#releasing ??= this.#core.release(this.#live);
        return this.#releasing;
    }
}

/** Releases, and ignores errors: what is not released ends by itself. */
async function letGo(core, hold) {
    try {
        await hold.release();
    } catch (error) {
        core.report({ event: "release_failed", name: hold.name, fence: hold.fence, error });
    }
}

/** Runs work that must stop when its hold is lost, or when the caller aborts. Throws the loss, if there was one. */
async function runHeld(hold, fn, extra, outer) {
    const stop = new AbortController();
    const onLost = () => stop.abort(hold.signal.reason);
    const onOuter = () => stop.abort(outer.reason);
    if (hold.lost) throw hold.signal.reason;
    if (outer?.aborted) onOuter();
    hold.signal.addEventListener("abort", onLost, { once: true });
    outer?.addEventListener("abort", onOuter, { once: true });
    try {
        const result = await fn({ fence: hold.fence, signal: stop.signal, check: hold.check, hold, ...extra });
        if (hold.lost) throw hold.signal.reason;
        return result;
    } catch (error) {
        if (!hold.lost || error === hold.signal.reason) throw error;
        const { resource, fence, ended, by, reason, message } = hold.signal.reason;
        throw new TenureError("lost", message, { resource, fence, ended, by, reason, cause: error });
    } finally {
        hold.signal.removeEventListener("abort", onLost);
        outer?.removeEventListener("abort", onOuter);
    }
}

const CLAIM_OPTIONS = ["ttl", "wait", "owner", "reason", "meta", "maxWaiters", "signal"];

/** The options of a call override those of its lock, which override those of the client. A misspelt option is an error. */
function settle(core, known, ...layers) {
    const all = Object.assign({}, ...layers);
    for (const key of Object.keys(all)) {
        if (!known.includes(key)) throw new TypeError(`unknown option ${show(key)}; known: ${known.join(", ")}`);
    }
    const { options } = core;
    const request = {
        ttl: Math.round(milliseconds(all.ttl ?? options.ttl, "ttl")),
        owner: all.owner ?? options.owner,
        reason: all.reason,
        meta: all.meta,
        max_waiters: all.maxWaiters,
    };
    return { request, wait: milliseconds(all.wait ?? options.wait, "wait"), signal: all.signal, all };
}

/** A mutex, a semaphore, or one side of a read-write lock. */
class Lock {
    #core;
    #kind;
    #options;

    constructor(core, name, kind, options) {
        this.#core = core;
        this.#kind = kind;
        this.#options = options;
        this.name = name;
        settle(core, CLAIM_OPTIONS, options);
    }

    /** Waits in line. Throws `busy` when `wait` is over. */
    async acquire(options = {}) {
        const { request, wait, signal } = settle(this.#core, CLAIM_OPTIONS, this.#options, options);
        const full = { name: this.name, ...this.#kind, ...request };
        const { live, waited } = await this.#core.obtain("/v1/holds", full, { wait, signal });
        const hold = new Hold(this.#core, live, waited);
        this.#core.report({ event: "acquired", name: this.name, fence: hold.fence, waited: hold.waited });
        return hold;
    }

    /** Returns null if others hold it. Never waits in line. */
    async tryAcquire(options = {}) {
        try {
            return await this.acquire({ ...options, wait: 0 });
        } catch (error) {
            if (error.code !== "busy") throw error;
            this.#core.report({ event: "busy", name: this.name, holder: error.holder });
            return null;
        }
    }

    /**
     * Acquires, runs `fn`, releases. When the hold is lost, `signal` aborts, and the promise is rejected with `lost` once
     * `fn` has ended: until then its work is still running.
     */
    async run(fn, options = {}) {
        const hold = await this.acquire(options);
        return this.#core.work(this.#runNow(hold, fn, options.signal ?? this.#options.signal));
    }

    async #runNow(hold, fn, signal) {
        try {
            return await runHeld(hold, fn, {}, signal);
        } finally {
            await letGo(this.#core, hold);
        }
    }
}

/** One leader among many candidates. */
class Election {
    #core;
    #options;

    constructor(core, name, options) {
        this.#core = core;
        this.#options = options;
        this.name = name;
        settle(core, [...CLAIM_OPTIONS, "value"], options);
    }

    /** Waits until it leads. The fence of the hold is the number of the term; releasing it resigns. */
    async campaign(options = {}) {
        const { request, wait, signal, all } = settle(this.#core, [...CLAIM_OPTIONS, "value"], this.#options, options);
        const full = { name: this.name, kind: "election", value: all.value, ...request };
        const { live, waited } = await this.#core.obtain("/v1/holds", full, { wait, signal });
        this.#core.report({ event: "elected", name: this.name, fence: live.record.fence });
        return new Hold(this.#core, live, waited);
    }

    /**
     * Campaigns, and works while it leads; campaigns again after every loss, also while the server is away. Ends, and
     * resigns, when the work does, or when `signal` aborts.
     */
    async run(fn, options = {}) {
        const signal = options.signal ?? this.#options.signal;
        for (let pause = 250; ; ) {
            let term;
            try {
                term = await this.campaign(options);
                pause = 250;
            } catch (error) {
                if (error.code !== "unavailable" && error.code !== "in_doubt") throw error;
                await sleep(pause, { signal });
                signal?.throwIfAborted();
                pause = Math.min(pause * 2, 5000);
                continue;
            }
            try {
                return await this.#core.work(this.#lead(term, fn, signal));
            } catch (error) {
                if (!term.lost || this.#core.closed) throw error;
                // The work has ended, and others may lead by now: join the line again.
                signal?.throwIfAborted();
            }
        }
    }

    async #lead(term, fn, signal) {
        try {
            return await runHeld(term, fn, { term: term.fence }, signal);
        } finally {
            await letGo(this.#core, term);
        }
    }

    /** Who leads now, or null. */
    async leader() {
        const path = `/v1/leader?name=${encodeURIComponent(this.name)}`;
        return look(this.#core, path, this.name);
    }
}

const ONCE_OPTIONS = [...CLAIM_OPTIONS, "content", "keep", "rerun"];

/** Work that is done once, whoever asks. */
class Once {
    #core;
    #options;

    constructor(core, name, options) {
        this.#core = core;
        this.#options = options;
        this.name = name;
        settle(core, ONCE_OPTIONS, options);
    }

    /**
     * Runs `fn` if nobody has, and stores what it returns, as JSON; `true` if that is nothing. `replayed` says that it
     * was done before. If `fn` throws, the work has not happened, and the next caller runs it; if the hold was lost as
     * well, nobody knows, and it is `unsettled`.
     */
    async run(fn, options = {}) {
        const core = this.#core;
        const { request, wait, signal, all } = settle(core, ONCE_OPTIONS, this.#options, options);
        const keep = all.keep === undefined ? undefined : Math.round(milliseconds(all.keep, "keep"));
        const full = { name: this.name, kind: "once", ...request, keep, rerun: all.rerun, content: all.content };
        const { live, waited, settled } = await core.obtain("/v1/once", full, { wait, signal });
        if (settled) return { outcome: stored(settled), replayed: true };
        return core.work(this.#runNow(new Hold(core, live, waited), live, fn, signal));
    }

    async #runNow(hold, live, fn, signal) {
        let outcome;
        let begun = false;
        const work = (context) => {
            begun = true;
            return fn(context);
        };
        try {
            outcome = await runOnce(hold, work, signal);
        } catch (error) {
            // After a loss the error says nothing about what was done: it stays unsettled.
            if (begun && hold.lost) throw error;
            await this.#settle(live, undefined).catch((failure) => this.#failed(hold, failure));
            throw error;
        }
        // To the server, null means that it has not happened, and then the next caller would do it again.
        const json = JSON.stringify(outcome);
        const text = json === undefined || json === "null" ? "true" : json;
        await this.#settle(live, JSON.parse(text));
        return { outcome: JSON.parse(text), replayed: false };
    }

    #failed(hold, error) {
        this.#core.report({ event: "release_failed", name: hold.name, fence: hold.fence, error });
    }

    /**
     * Stores the outcome while the hold is still renewed. Also tried after a loss: it counts if nobody else has run it
     * since.
     */
    async #settle(live, outcome) {
        const core = this.#core;
        const { name, claim, fence } = live.record;
        const options = { patience: Math.max(1000, Math.max(live.remaining, core.options.patience)), resource: name };
        try {
            const answer = await core.ask("/v1/once/settle", { name, claim, fence, outcome }, options);
            if (answer.status === 204) return;
            if (answer.status === 410 && answer.doubt) {
                // An earlier try that was not answered may have settled it.
                if (await this.#isStored(outcome)) return;
                const text = `${show(name)} has ended; whether by an earlier request to settle it is not known`;
                throw new TenureError("in_doubt", text, { resource: name, fence, status: 410 });
            }
            throw answer.status === 410
                ? loss(name, fence, { ended: answer.data?.ended ?? "expired" })
                : refusal(answer, name);
        } finally {
            live.finish();
        }
    }

    /** Whether the server remembers this outcome. False if that cannot be found out: not every token may look. */
    async #isStored(outcome) {
        const path = `/v1/name?kind=once&name=${encodeURIComponent(this.name)}`;
        let found;
        try {
            found = await look(this.#core, path, this.name);
        } catch {
            return false;
        }
        if (outcome === undefined) return !found?.record;
        return found?.record?.settled === true && JSON.stringify(found.record.outcome) === JSON.stringify(outcome);
    }
}

/** Like `runHeld`, but work that finished counts even if its hold was lost: its outcome decides. */
async function runOnce(hold, fn, signal) {
    let done;
    try {
        return await runHeld(hold, async (context) => (done = { value: await fn(context) }).value, {}, signal);
    } catch (error) {
        if (done) return done.value;
        throw error;
    }
}

/** The outcome, as JSON; what another program stored that is not JSON comes as bytes. */
function stored({ outcome, outcome_base64: bytes }) {
    return bytes === undefined ? outcome : Buffer.from(bytes, "base64");
}

/** Asks without changing anything. Returns the answer, or null for 404. */
async function look(core, path, resource) {
    const answer = await core.ask(path, undefined, { method: "GET", patience: core.options.requestTimeout, resource });
    if (answer.status === 404) return null;
    if (answer.status !== 200) throw refusal(answer, resource);
    if (!isObject(answer.data)) throw unreadable(answer, resource);
    return camel(answer.data);
}

/** A connection to `tenure serve`, made by `connect`. */
class Tenure {
    #core;
    #ns;

    constructor(url, options) {
        this.#ns = options.ns ? `${options.ns}/` : "";
        this.#core = new Core(url, options);
    }

    #name(name) {
        if (typeof name !== "string" || name === "") throw new TypeError(`a name must be a text, not ${show(name)}`);
        return this.#ns + name;
    }

    /** Which thread renews: `worker`, `main`, or null before the first hold. */
    get thread() {
        return this.#core.pulse.thread;
    }

    mutex(name, options = {}) {
        return new Lock(this.#core, this.#name(name), { kind: "lock" }, options);
    }

    /** `permits` at a time; every program must give the same number. */
    semaphore(name, permits, { weight, ...options } = {}) {
        return new Lock(this.#core, this.#name(name), { kind: "semaphore", permits, weight }, options);
    }

    /** `read()` is shared among readers; `write()` is exclusive. */
    rwlock(name, options = {}) {
        const side = (kind) => (more) => new Lock(this.#core, this.#name(name), { kind }, { ...options, ...more });
        return { read: side("read"), write: side("write") };
    }

    elect(name, options = {}) {
        return new Election(this.#core, this.#name(name), options);
    }

    once(key, options = {}) {
        return new Once(this.#core, this.#name(key), options);
    }

    /** The holders and the line of a name, or null if it is not in use. */
    inspect(name, { kind = "lock" } = {}) {
        const path = `/v1/name?kind=${encodeURIComponent(kind)}&name=${encodeURIComponent(this.#name(name))}`;
        return look(this.#core, path, name);
    }

    /** Whether the server and its engine answer now: for health checks. Never throws. */
    async ready() {
        const { answer } = await this.#core.attempt("/readyz", undefined, { method: "GET", timeout: 2000 });
        return answer?.status === 200;
    }

    /**
     * Waits in line end with `closed`. Holds are lost to this program (`ended` is `closed`), so that their work stops. A
     * hold that is released after that, by `release()` or by the end of `run`, is free at once; the others end with their
     * ttl, because their work may still be running. Waits for the work of `run`, whose holds are renewed meanwhile, for
     * at most `wait`.
     */
    async close({ wait = "5s" } = {}) {
        await this.#core.close(milliseconds(wait, "wait"));
    }
}

if (Symbol.asyncDispose) {
    const define = (type, value) => Object.defineProperty(type.prototype, Symbol.asyncDispose, { value, writable: true });
    define(Hold, async function () {
        // What is not released ends by itself, and an error here would hide the one that ended the block.
        await this.release().catch(() => undefined);
    });
    define(Tenure, function () {
        return this.close();
    });
}

const CONNECT_OPTIONS = [
    "token", "ns", "owner", "ttl", "wait", "patience", "maxBlock", "requestTimeout", "thread", "ca", "onEvent",
];

/** Opens no connection yet: the first request does. */
function connect(url = "http://127.0.0.1:7117", options = {}) {
    const parsed = new URL(url);
    const isSocket = parsed.protocol === "http+unix:" && !parsed.host && parsed.pathname.startsWith("/");
    const isAddress = /^https?:$/.test(parsed.protocol);
    if (!(isSocket || isAddress) || parsed.username || parsed.password || parsed.search) {
        throw new TypeError("the URL must be http://HOST:PORT, https://HOST:PORT or http+unix:/PATH; a token goes into the options");
    }
    for (const key of Object.keys(options)) {
        if (!CONNECT_OPTIONS.includes(key)) {
            throw new TypeError(`unknown option ${show(key)}; known: ${CONNECT_OPTIONS.join(", ")}`);
        }
    }
    const { thread = "worker" } = options;
    if (thread !== "worker" && thread !== "main") throw new TypeError(`thread must be "worker" or "main"`);
    return new Tenure(parsed, {
        token: options.token,
        ns: options.ns,
        ca: options.ca,
        onEvent: options.onEvent,
        thread,
        owner: options.owner ?? `${os.hostname()}:${process.pid}`,
        ttl: options.ttl ?? "30s",
        wait: options.wait ?? Infinity,
        patience: milliseconds(options.patience ?? "15s", "patience"),
        maxBlock: milliseconds(options.maxBlock ?? "60s", "maxBlock"),
        requestTimeout: milliseconds(options.requestTimeout ?? "5s", "requestTimeout"),
    });
}

/** For the tests of this package. */
const internals = { milliseconds, camel, refusal, transport, workerSource };

export { connect, TenureError, internals };
