// Takes the pictures for the documentation from a real server with something to see: TENURE_BIN=… node picture.js FOLDER.
// It takes a minute and a half, because nothing in them is faked: a claim that has waited for a minute really has.

import { randomBytes } from "node:crypto";
import path from "node:path";

import { chromium } from "playwright-core";

import { Server } from "./stage.js";

const folder = process.argv[2] ?? ".";
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const server = await Server.start({ mayBreak: true });
const renewed = [];
const owner = () => `web-${1 + Math.floor(Math.random() * 9)}:${1000 + Math.floor(Math.random() * 9000)}`;
let isOver = false;

async function hold(name, more = {}) {
  const { isRenewed = true, ...rest } = more;
  const held = await server.hold(name, {
    ttl: "30s",
    owner: owner(),
    ...rest,
    meta: { ttl: rest.ttl ?? "30s", ...rest.meta },
  });
  if (isRenewed) renewed.push(held);
  return held;
}

/** Waits in line for as long as the pictures take. */
async function wait(name, who, more = {}) {
  let body = {
    name,
    claim: randomBytes(16).toString("hex"),
    owner: who,
    ttl: "30s",
    wait: "10m",
    confirm: false,
    ...more,
  };
  while (!isOver) {
    const answer = await server.post("/v1/holds", body, server.waiting.signal).catch(() => null);
    if (answer?.status !== 202) return;
    body = { ...body, ticket: answer.body.ticket };
  }
}

async function keepRenewing() {
  while (!isOver) {
    for (const { name, claim, fence, kind } of renewed) {
      await server.post("/v1/holds/renew", {
        name,
        claim,
        fence,
        ttl: "30s",
        ...(kind === "election" ? { kind } : {}),
      });
    }
    await pause(8000);
  }
}

/** A name that changes hands all the time, so that it has a past. */
async function changeHands(name, lasts) {
  for (const until = performance.now() + lasts; performance.now() < until;) {
    const held = await server.hold(name, { ttl: "30s", owner: owner(), meta: { ttl: "30s" } });
    await pause(60 + Math.random() * Math.random() * 3500);
    await server.release(held);
    await pause(50 + Math.random() * 400);
  }
}

const groups = ["cart", "invoice", "session", "shard", "tenant/acme/job", "booking:table"];
await hold("backup", {
  owner: "web-3:4121",
  reason: "nightly dump",
  meta: { host: "web-3", pid: "4121", cmd: "./backup.sh" },
});
await hold("scheduler", { kind: "election", owner: "cron-1:88", value: "10.0.3.17:8080" });
for (let index = 0; index < 3; index += 1) await hold("api:partner", { kind: "semaphore", permits: 5 });
for (let index = 0; index < 2; index += 1) await hold("catalog", { kind: "read" });
await hold("invoice:77", { owner: "relay-2:1" });
await hold("account:1", { owner: "pay-1:7" });
await hold("account:2", { owner: "pay-2:8" });
await hold("migration:orders", {
  ttl: "2h",
  owner: "ops@10.0.0.4",
  reason: "moving orders to the new cluster",
  isRenewed: false,
});
for (let index = 0; index < 60; index += 1)
  await hold(`${groups[index % groups.length]}:${String((index * 7919) % 10_000).padStart(4, "0")}`);
changeHands("booking:table:12", 75_000).catch(() => {});
keepRenewing().catch(() => {});
for (const [name, who, more] of [
  ["backup", "web-5:912"],
  ["backup", "web-1:77"],
  ["invoice:77", "web-4:9"],
  ["account:1", "pay-2:8"],
  ["account:2", "pay-1:7"],
  ["scheduler", "cron-2:91", { kind: "election" }],
])
  wait(name, who, more);
await changeHands("wallet:0x9f3a77c0", 48_000);
// Dies 21 s before the first picture: two thirds of its ttl are over, and it is not yet lost.
await hold("wallet:0x9f3a77c0", {
  owner: "relay-7:1",
  isRenewed: false,
  reason: "transfer 5120",
  meta: { host: "relay-7", pid: "1", cmd: "/app/relay --chain 295" },
});
for (let index = 0; index < 14; index += 1) wait("wallet:0x9f3a77c0", `relay-${2 + (index % 5)}:1`);
await pause(21_500);

const browser = await chromium.launch({
  executablePath: process.env.TENURE_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
const take = async (file, hash, { then, ...options } = {}) => {
  const page = await browser.newPage({ viewport: { width: 1280, height: 720 }, ...options });
  await page.goto(`${server.base}/ui/${hash}`);
  await page.locator(".as-of.fresh").waitFor();
  await page.waitForTimeout(600);
  await then?.(page);
  await page.screenshot({ path: path.join(folder, file) });
  await page.close();
};
await take("dashboard.png", "#/now");
await take("dashboard-name.png", "#/name/wallet:0x9f3a77c0", { colorScheme: "dark" });
await take("dashboard-dark.png", "#/now", { colorScheme: "dark" });
await take("dashboard-small.png", "#/now", { viewport: { width: 400, height: 800 } });
await take("dashboard-past.png", "#/name/booking:table:12");
await take("dashboard-blocked.png", "#/blocked");
await take("dashboard-health.png", "#/health");
await take("dashboard-break.png", "#/name/backup", {
  then: async (page) => {
    await page.keyboard.press("b");
    await page.waitForTimeout(200);
  },
});
await browser.close();
isOver = true;
await server.end();
process.exit(0);
