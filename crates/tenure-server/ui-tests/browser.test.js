// The dashboard in a real browser, before a real server.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import axe from "axe-core";

import { closeBrowser, open as visit, row, Server } from "./stage.js";

const OFFLINE = [
  "ERR_CONNECTION_REFUSED",
  "ERR_EMPTY_RESPONSE",
  "ERR_CONNECTION_RESET",
  "ERR_INCOMPLETE_CHUNKED_ENCODING",
];
const VIEWS = ["#/now", "#/name/backup", "#/blocked", "#/events", "#/health"];
let server;

before(async () => {
  server = await Server.start({ mayBreak: true });
  await server.hold("backup", {
    reason: "nightly dump",
    meta: { ttl: "10m", host: "web-3", pid: "4121", cmd: "./backup.sh" },
  });
  server.wait("backup", "web-5:912");
  await server.hasInLine("backup", 1);
});

after(async () => {
  await closeBrowser();
  await server?.end();
});

test("shows who holds a name and who waits, and what is in trouble first", async (t) => {
  await server.hold("aaa-quiet");
  await server.hold("wallet:0x9f");
  for (let index = 0; index < 10; index += 1) server.wait("wallet:0x9f", `relay-${index}:1`);
  await server.hasInLine("wallet:0x9f", 10);
  const page = await visit(t, server);
  const first = page.locator(".grid-body .row").first();
  await first.waitFor();
  await page.waitForFunction(() => document.querySelector(".grid-body .row .tag")?.textContent.includes("long line"));
  assert.match(await first.textContent(), /wallet:0x9f.*web-3:4121/);
  assert.match(await row(page, "backup").textContent(), /nightly dump/);
  await page.getByRole("button", { name: "Only trouble" }).click();
  await row(page, "aaa-quiet").waitFor({ state: "detached" });
  assert.match(page.url(), /only=any/);
});

test("a hold comes and goes without a reload", async (t) => {
  const page = await visit(t, server, "#/now?q=comes-and-goes");
  await page.getByText("No name fits").waitFor();
  const hold = await server.hold("comes-and-goes");
  await row(page, "comes-and-goes").waitFor();
  await server.release(hold);
  await page.getByText("No name fits").waitFor();
});

test("nothing that a name, an owner or a reason contains becomes markup", async (t) => {
  const image = '<img src=x onerror="window.pwned=1">';
  const names = [
    image,
    '"><script>window.pwned=1</script>',
    "safe\u202Egnp.exe",
    "🦀 👩‍🚀 deploy",
    "a/../b?c=d&e#f%41 g",
    "é".repeat(512),
  ];
  for (const name of names) {
    await server.hold(name, { owner: `${image}:1`, reason: "<b>bold</b>", meta: { "<i>": image } });
    server.wait(name, `${image} waits`);
    await server.hasInLine(name, 1);
  }
  const page = await visit(t, server, "#/now?q=window.pwned");
  await row(page, "<script>").waitFor();
  assert.equal(await page.locator("main img, main b b, main script, #head img").count(), 0);
  for (const name of names) {
    await page.goto(`${server.base}/ui/#/name/${encodeURIComponent(name)}`);
    await page.locator(".holder .who").getByText(`${image}:1`).waitFor();
    const shown = await page.locator("h1").textContent();
    assert.equal(shown, name.replace("\u202E", "U+202E"));
    assert.ok((await page.locator(".facts").textContent()).includes("<b>bold</b>"));
    assert.equal(await page.locator("main img, main i, main script").count(), 0);
  }
  await page.goto(`${server.base}/ui/#/blocked`);
  await page.locator(".tree").first().waitFor();
  assert.equal(await page.locator("main img").count(), 0);
});

test("keys do what the help says", async (t) => {
  const page = await visit(t, server, "#/now?sort=name");
  await row(page, "backup").waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("backup");
  await page.getByText("1 of").waitFor();
  await page.keyboard.press("Enter");
  await page.keyboard.press("j");
  assert.equal(await page.locator('[aria-selected="true"] .name-text').textContent(), "backup");
  await page.keyboard.press("Enter");
  await page.locator("h1", { hasText: "backup" }).waitFor();
  assert.match(page.url(), /#\/name\/backup$/);
  await page.keyboard.press("Escape");
  await page.locator("#search").waitFor();
  assert.equal(await page.locator("#search").inputValue(), "backup");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector("#search").value === "");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  const chosen = () => page.locator('[aria-selected="true"]').getAttribute("aria-rowindex");
  await page.keyboard.press("Home");
  assert.equal(await chosen(), "2");
  await page.keyboard.press("j");
  assert.equal(await chosen(), "3");
  for (const [key, title] of [
    ["2", "Blocked by"],
    ["3", "Events"],
    ["4", "Health"],
  ]) {
    await page.keyboard.press(key);
    await page.locator("h1", { hasText: title }).waitFor();
  }
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Help" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await page.keyboard.press("p");
  await page.getByRole("button", { name: "Resume" }).waitFor();
  await page.keyboard.press("/");
  await page.locator("#search:focus").waitFor();
});

test("a paused or hidden page asks for nothing, and continues where it was", async (t) => {
  const page = await visit(t, server, "#/now?q=meanwhile");
  await page.locator(".as-of.fresh", { hasText: "live" }).waitFor();
  await server.hold("meanwhile-0");
  await row(page, "meanwhile-0").waitFor();
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  const stays = async (name) => {
    asked.length = 0;
    await server.hold(name);
    await page.waitForTimeout(2500);
    assert.deepEqual(asked, []);
    assert.equal(await row(page, name).count(), 0);
  };
  await page.keyboard.press("p");
  await stays("meanwhile-1");
  await page.keyboard.press("p");
  await row(page, "meanwhile-1").waitFor();
  const hide = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await stays("meanwhile-2");
  await hide(false);
  await row(page, "meanwhile-2").waitFor();
  await page.keyboard.press("3");
  await page.locator(".event", { hasText: "meanwhile-2" }).waitFor();
});

test("what happens in a first pause, before any event, is not missed", async (t) => {
  const quiet = await Server.start();
  const page = await visit(t, quiet);
  t.after(() => quiet.end());
  await page.locator(".as-of.fresh", { hasText: "live" }).waitFor();
  await page.keyboard.press("p");
  await page.getByRole("button", { name: "Resume" }).waitFor();
  await quiet.hold("in-the-pause");
  await page.keyboard.press("p");
  await page.keyboard.press("3");
  await page.locator(".event", { hasText: "in-the-pause" }).waitFor();
  assert.equal(await page.locator(".events .gap").count(), 0);
});

test("circles of owners are named", async (t) => {
  for (const [name, owner, waiter] of [
    ["account:1", "pay-1:7", "pay-2:8"],
    ["account:2", "pay-2:8", "pay-1:7"],
  ]) {
    await server.hold(name, { owner });
    server.wait(name, waiter);
    await server.hasInLine(name, 1);
  }
  const page = await visit(t, server, "#/blocked");
  const circle = page.locator(".circle");
  await circle.waitFor();
  const lines = await circle.locator("li").allTextContents();
  assert.deepEqual(lines, [
    "pay-1:7 waits for account:2, held by pay-2:8",
    "pay-2:8 waits for account:1, held by pay-1:7",
  ]);
  await circle.getByRole("link", { name: "account:1" }).click();
  await page.locator("h1", { hasText: "account:1" }).waitFor();
});

test("the past of a name has its holds, and how long they took", async (t) => {
  for (let index = 0; index < 3; index += 1) await server.release(await server.hold("has-a-past"));
  await server.hold("has-a-past");
  const page = await visit(t, server, "#/name/has-a-past");
  await page.getByText("3 seen").waitFor();
  assert.equal(await page.locator(".timeline .hold").count(), 4);
  assert.equal(await page.locator(".timeline .hold.current").count(), 1);
});

test("a name that nobody holds has a page, with what was seen of it", async (t) => {
  await server.release(await server.hold("was-held"));
  const page = await visit(t, server, "#/name/was-held", { expect: ["/v1/name?"] });
  await page.getByText("Nobody holds it").waitFor();
  await page.getByText("1 seen").waitFor();
  await page.getByRole("link", { name: "as an election" }).click();
  await page.waitForURL(/#\/leader\/was-held/);
});

test("a once that was begun and never settled is named", async (t) => {
  const begun = await server.post("/v1/once", {
    name: "webhook:1042",
    ttl: "1s",
    claim: "0f".repeat(16),
    confirm: false,
  });
  assert.equal(begun.status, 201);
  const page = await visit(t, server, "#/once/webhook:1042");
  await page.locator(".tag.unsettled").waitFor();
  await page.getByText("never settled").waitFor();
});

test("leaders are a filter", async (t) => {
  await server.hold("cron", { kind: "election", value: "10.0.3.17:8080" });
  const page = await visit(t, server);
  await row(page, "backup").waitFor();
  await page.getByRole("button", { name: "Leaders" }).click();
  await row(page, "backup").waitFor({ state: "detached" });
  assert.match(await row(page, "cron").textContent(), /leads.*10\.0\.3\.17:8080/);
  await row(page, "cron").getByRole("link").click();
  await page.getByText("10.0.3.17:8080").waitFor();
  assert.match(page.url(), /#\/leader\/cron/);
});

test("fits into 400 px, in every view", async (t) => {
  const page = await visit(t, server, "#/now", { viewport: { width: 400, height: 800 } });
  for (const view of VIEWS) {
    await page.goto(`${server.base}/ui/${view}`);
    await page.locator("main .card, .grid-body .row, main .title").first().waitFor();
    await page.waitForTimeout(300);
    const tooWide = await page.evaluate(() => {
      const parts = [document.scrollingElement, ...document.querySelectorAll("#head, main, .grid, .grid-body .row, .card")];
      return parts
        .filter((part) => part.scrollWidth > part.clientWidth)
        .map((part) => `${part.className || part.id}: ${part.scrollWidth}`);
    });
    assert.deepEqual(tooWide, [], view);
  }
  await page.goto(`${server.base}/ui/#/now`);
  await page.getByRole("button", { name: "Break many…" }).click();
  await page.locator("#many-prefix").fill("b");
  await page.keyboard.press("Enter");
  await page.locator(".holds li").first().waitFor();
  const isWide = await page.locator("dialog").evaluate((dialog) => dialog.scrollWidth > dialog.clientWidth);
  assert.equal(isWide, false, "the dialog");
});

test("is light or dark as the system is, until somebody chooses", async (t) => {
  const ground = (page) => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await visit(t, server);
  const dark = await visit(t, server, "#/now", { colorScheme: "dark" });
  assert.notEqual(await ground(light), await ground(dark));
  await light.locator("#head .status").waitFor();
  await light.keyboard.press("t");
  await light.keyboard.press("t");
  await light.waitForFunction(() => document.documentElement.dataset.theme === "dark");
  assert.equal(await ground(light), await ground(dark));
  await light.reload();
  assert.equal(await ground(light), await ground(dark));
});

for (const colorScheme of ["light", "dark"]) {
  test(`has no problem that axe can find, ${colorScheme}`, async (t) => {
    const page = await visit(t, server, "#/now", { colorScheme });
    const check = async (where) => {
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() =>
        window.axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"] }),
      );
      assert.deepEqual(
        violations.map(({ id, nodes }) => `${where}: ${id}: ${nodes[0].html.slice(0, 200)}`),
        [],
      );
    };
    for (const view of VIEWS) {
      await page.goto(`${server.base}/ui/${view}`);
      await page.locator("main .card, .grid-body .row, main .title").first().waitFor();
      await page.waitForTimeout(300);
      await check(view);
    }
    await page.goto(`${server.base}/ui/#/name/backup`);
    await page.getByRole("button", { name: "Break…" }).click();
    await check("break");
    await page.keyboard.press("Escape");
    await page.goto(`${server.base}/ui/#/now`);
    await page.getByRole("button", { name: "Break many…" }).click();
    await page.locator("#many-prefix").fill("b");
    await page.keyboard.press("Enter");
    await page.locator(".holds li").first().waitFor();
    await check("break many");
  });
}

test("health says whether the engine is fit for locks, as the doctor does", async (t) => {
  const page = await visit(t, server, "#/health");
  const card = page.locator(".card").filter({ hasText: "Is the engine fit for locks?" });
  await card.locator(".findings li").first().waitFor();
  const said = await (await fetch(`${server.base}/v1/doctor`)).json();
  assert.equal(await card.locator(".findings li").count(), said.findings.length);
  assert.match(await card.locator("h2").textContent(), said.fit ? / Yes\. \d+ ok/ : / No\./);
  for (const { what, fix } of said.findings) {
    assert.ok((await card.textContent()).includes(what), what);
    if (fix) assert.ok((await card.textContent()).includes(fix), fix);
  }
});

test("says when the server is away, continues when it is back, and says that events may be missing", async (t) => {
  const other = await Server.start();
  await other.hold("survives");
  const page = await visit(t, other, "#/now", { expect: OFFLINE });
  t.after(() => other.end());
  await row(page, "survives").waitFor();
  await other.release(await other.hold("an-event"));
  await other.kill();
  await page.getByRole("alert").getByText("No answer").waitFor();
  assert.equal(await row(page, "survives").count(), 1, "what was seen stays");
  await other.run();
  await page.getByRole("alert").waitFor({ state: "detached", timeout: 30_000 });
  await other.hold("after");
  await row(page, "after").waitFor({ timeout: 30_000 });
  await page.keyboard.press("3");
  await page.locator(".events .gap").first().waitFor({ timeout: 30_000 });
});

test("a proxy that holds the stream back is noticed, and the page continues by polling", async (t) => {
  const server = await Server.start();
  t.after(() => server.end());
  const page = await visit(t, server, "#/now", { expect: ["v1/events"], before: (page) => page.route("**/v1/events*", () => {}) });
  await page.getByText("no stream").waitFor({ timeout: 30_000 });
  await server.hold("asked/for");
  await row(page, "asked/for").waitFor();
});

test("10,000 names: the first is shown soon, and only a few are in the page", async (t) => {
  const many = await Server.start();
  const names = Array.from({ length: 10_000 }, (_, index) => `booking:table:${String(index).padStart(5, "0")}`);
  await Promise.all(
    Array.from({ length: 16 }, async (_, lane) => {
      for (let index = lane; index < names.length; index += 16)
        await many.hold(names[index], { owner: `web-${index % 9}:${index}` });
    }),
  );
  const page = await visit(t, many);
  t.after(() => many.end());
  await page.locator(".foot").getByText("10,000 names").waitFor({ timeout: 60_000 });
  await page.waitForTimeout(3000);
  assert.ok((await page.locator(".grid-body .row").count()) < 100);
  await page.keyboard.press("End");
  const last = page.locator('[aria-selected="true"]');
  await last.waitFor();
  assert.equal(await last.getAttribute("aria-rowindex"), "10001");
  await page.keyboard.press("/");
  await page.keyboard.type("owner:web-3:9777");
  await row(page, "booking:table:").first().waitFor();
  const { firstRow, updates } = await page.evaluate(() => ({ firstRow: window.firstRow, updates: window.updates }));
  const slowest = Math.max(...updates);
  t.diagnostic(
    `first row after ${Math.round(firstRow)} ms; slowest of ${updates.length} updates ${Math.round(slowest)} ms`,
  );
  // The goals are 1 s and 100 ms; a busy machine gets five times as long.
  assert.ok(firstRow < 5000 && slowest < 500, `${firstRow} ${slowest}`);
});
