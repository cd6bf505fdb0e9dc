// A real `tenure serve`, and a real browser that looks at it. In this folder, with Debian's chromium or TENURE_CHROMIUM, after
// `cargo xtask test set-up`:
//
//     TENURE_BIN=../../../target/debug/tenure npm test

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";

import { chromium } from "playwright-core";

const TENURE = process.env.TENURE_BIN;
const CHROMIUM = process.env.TENURE_CHROMIUM ?? "/usr/bin/chromium";
if (!TENURE) throw new Error("set TENURE_BIN to the `tenure` that is tested");

async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return port;
}

/**
 * A server on an engine of its own: a file, which outlives the server, or its memory. With `tokens`, a list of `name
 * token role=…`, it requires one; without, pages may only read, unless `mayBreak`.
 */
export class Server {
  static async start({ tokens, memory = false, mayBreak = false } = {}) {
    const server = new Server();
    Object.assign(server, { memory, mayBreak });
    server.folder = await mkdtemp(path.join(tmpdir(), "tenure-ui-"));
    server.base = `http://127.0.0.1:${(server.port = await freePort())}`;
    server.waiting = new AbortController();
    if (tokens) {
      server.tokens = path.join(server.folder, "tokens");
      await writeFile(server.tokens, `${tokens.join("\n")}\n`, { mode: 0o600 });
      server.token = tokens.find((line) => line.includes("admin")).split(" ")[1];
    }
    await server.run();
    return server;
  }

  /** Starts the process; after `kill`, starts it again. */
  async run() {
    const args = ["serve", "--listen", `127.0.0.1:${this.port}`, "--key-file", path.join(this.folder, "server.key")];
    if (this.memory) args.push("--memory", "--fresh");
    if (this.mayBreak) args.push("--ui-may-break");
    if (this.tokens) args.push("--tokens-file", this.tokens);
    const env = { ...process.env };
    if (!this.memory) env.TENURE_URL = `file:${this.folder}/tenure.db`;
    this.process = spawn(TENURE, args, { env, stdio: ["ignore", "ignore", "pipe"] });
    let said = "";
    this.process.stderr.on("data", (text) => (said += text));
    for (let tries = 0; tries < 200; tries += 1) {
      if (this.process.exitCode != null) throw new Error(`the server ended: ${said}`);
      const ready = await fetch(`${this.base}/readyz`, { headers: this.headers() }).catch(() => null);
      if (ready?.ok) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`the server is not ready: ${said}`);
  }

  async kill() {
    const ended = once(this.process, "exit");
    this.process.kill("SIGKILL");
    await ended;
  }

  async end() {
    this.waiting.abort();
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }

  headers() {
    return this.token ? { authorization: `Bearer ${this.token}` } : {};
  }

  async post(path, body, signal) {
    const headers = { "content-type": "application/json", ...this.headers() };
    const response = await fetch(`${this.base}${path}`, {
      method: "POST",
      headers,
      body: JSON.stringify(body),
      signal,
    });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : null };
  }

  /** Holds a name; it is released by `release`, or with the server. */
  async hold(name, more = {}) {
    const claim = randomBytes(16).toString("hex");
    const answer = await this.post("/v1/holds", {
      name,
      claim,
      ttl: "10m",
      confirm: false,
      owner: "web-3:4121",
      ...more,
    });
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
    return { name, claim, kind: more.kind, fence: answer.body.fence };
  }

  release({ name, claim, kind }) {
    return this.post("/v1/holds/release", { name, claim, ...(kind === "election" ? { kind } : {}) });
  }

  /** Waits for a name until the test is over. */
  wait(name, owner, more = {}) {
    const claim = randomBytes(16).toString("hex");
    const body = { name, claim, owner, ttl: "10m", wait: "20s", confirm: false, ...more };
    this.post("/v1/holds", body, this.waiting.signal).catch(() => {});
  }

  async name(name) {
    const response = await fetch(`${this.base}/v1/name?${new URLSearchParams({ name })}`, { headers: this.headers() });
    return response.ok ? response.json() : null;
  }

  async hasInLine(name, many) {
    for (let tries = 0; tries < 200; tries += 1) {
      if ((await this.name(name))?.waiters.length === many) return;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    assert.fail(`${name} never had ${many} in line`);
  }
}

// Root cannot have a sandbox. The others turn off what a browser does by itself: looking for updates, signing in, and so
// on.
const ARGUMENTS = [
  ...(process.getuid?.() === 0 ? ["--no-sandbox"] : []),
  "--disable-gpu",
  "--disable-quic",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--no-first-run",
];

let browser;
export async function closeBrowser() {
  await browser?.close();
}

/**
 * Opens the page. The test fails if the page logs an error or breaks its content security policy. The browser itself logs
 * an error for every answer that is a refusal; `expect` has parts of the expected ones. `before` prepares the page.
 */
export async function open(t, server, hash = "#/now", { expect = [], before = () => {}, ...options } = {}) {
  browser ??= await chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
  const context = await browser.newContext({ viewport: { width: 1280, height: 760 }, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(error.stack));
  page.on("console", (message) => {
    const text = `${message.text()} ${message.location().url}`;
    if (["error", "warning"].includes(message.type()) && !expect.some((part) => text.includes(part))) wrong.push(text);
  });
  await page.exposeFunction("violated", (what) => wrong.push(`content security policy: ${what}`));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) =>
      window.violated(`${event.violatedDirective} ${event.blockedURI}`),
    );
    window.updates = [];
    new PerformanceObserver((list) => {
      for (const { name, duration } of list.getEntries()) if (name === "tenure:update") window.updates.push(duration);
    }).observe({ entryTypes: ["measure"] });
    const first = setInterval(() => {
      if (!document.querySelector(".grid-body .row")) return;
      window.firstRow = performance.now();
      clearInterval(first);
    }, 5);
  });
  t.after(async () => {
    const pwned = await page.evaluate(() => window.pwned).catch(() => undefined);
    await context.close();
    assert.deepEqual(wrong, []);
    assert.equal(pwned, undefined, "a text of a stranger was run");
  });
  await before(page);
  await page.goto(`${server.base}/ui/${hash}`);
  return page;
}

/** The row of a name. */
export function row(page, name) {
  return page.locator(".grid-body .row").filter({ has: page.locator(".name-text", { hasText: name }) });
}
