// Who may break holds in the dashboard, and what a break does; in a real browser, before a real server.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { closeBrowser, open as visit, row, Server } from "./stage.js";

let server;

before(async () => {
  server = await Server.start({ mayBreak: true });
});

after(async () => {
  await closeBrowser();
  await server?.end();
});

test("a break asks for the exact fence and a reason, and ends that hold", async (t) => {
  const hold = await server.hold("to-break");
  const page = await visit(t, server, "#/name/to-break", { expect: ["/v1/name?"] });
  await page.getByRole("button", { name: "Break…" }).click();
  const dialog = page.getByRole("dialog", { name: "Break a hold" });
  assert.match(await dialog.textContent(), /Breaking does not stop that process/);
  const button = dialog.getByRole("button", { name: "Break the hold" });
  const fence = dialog.locator("#break-fence");
  await dialog.locator("#break-reason").fill("stuck since 3 a.m.");
  for (const wrong of ["", String(hold.fence - 1), `${hold.fence}0`, "yes"]) {
    await fence.fill(wrong);
    assert.equal(await button.isDisabled(), true, wrong);
  }
  await fence.fill(String(hold.fence));
  assert.equal(await button.isDisabled(), false);
  await dialog.locator("#break-reason").fill(" ");
  assert.equal(await button.isDisabled(), true, "without a reason");
  await dialog.locator("#break-reason").fill("stuck since 3 a.m.");
  await button.click();
  await dialog.waitFor({ state: "detached" });
  await page.getByRole("status").getByText("has ended").waitFor();
  const read = await server.post("/v1/holds/read", { name: hold.name, claim: hold.claim, fence: hold.fence });
  assert.deepEqual([read.status, read.body.ended, read.body.reason], [410, "broken", "stuck since 3 a.m."]);
  await page.getByText("Nobody holds it").waitFor();
});

test("a break that comes too late breaks nothing, and says so", async (t) => {
  const before = await server.hold("moves-on");
  const page = await visit(t, server, "#/name/moves-on", { expect: ["/v1/name?", "/v1/break"] });
  await page.getByRole("button", { name: "Break…" }).click();
  await page.locator("#break-fence").fill(String(before.fence));
  await page.locator("#break-reason").fill("too late");
  await server.release(before);
  const next = await server.hold("moves-on", { owner: "next:1" });
  await page.getByRole("button", { name: "Break the hold" }).click();
  await page.getByRole("alert").getByText("Nothing was broken").waitFor();
  assert.equal((await server.name("moves-on")).holders[0].fence, next.fence);
});

test("a break of many breaks exactly what was shown", async (t) => {
  const names = ["cron:a", "cron:b", "cron:c"];
  const holds = [];
  for (const name of names) holds.push(await server.hold(name, { owner: `${name}:1` }));
  await server.hold("cro");
  await server.hold("cron:leader", { kind: "election" });
  const page = await visit(t, server, "#/now", { expect: ["/v1/name?"] });
  await page.getByRole("button", { name: "may break" }).waitFor();
  await row(page, "cron:a").waitFor();
  await page.keyboard.press("B");
  const dialog = page.getByRole("dialog", { name: "Break many holds" });
  const show = dialog.getByRole("button", { name: "Show which" });
  assert.equal(await show.isDisabled(), true, "not all there are");
  await dialog.locator("#many-prefix").fill("cron:");
  await page.keyboard.press("Enter");
  await dialog.getByText("3 holds of 3 names").waitFor();
  const shown = await dialog.locator(".holds li").allTextContents();
  assert.deepEqual(
    shown.map((text) => /^(cron:.)\1:1 for .*, fence (\d+)$/.exec(text)?.slice(1)),
    holds.map(({ name, fence }) => [name, String(fence)]),
  );
  const button = dialog.getByRole("button", { name: "Break these 3" });
  await dialog.locator("#many-reason").fill("a bad deploy");
  for (const wrong of ["", "2", "33"]) {
    await dialog.locator("#many-count").fill(wrong);
    assert.equal(await button.isDisabled(), true, wrong);
  }
  // Meanwhile one changes hands, and another is added: neither was shown.
  await server.release(holds[1]);
  const next = await server.hold("cron:b", { owner: "next:1" });
  const late = await server.hold("cron:late");
  await dialog.locator("#many-count").fill("3");
  await button.click();
  await dialog.getByText("Not broken, or not known to be: 1 hold.").waitFor();
  assert.match((await dialog.locator(".holds li").allTextContents()).join(), /^cron:b.*had ended before/);
  await page.getByRole("status").getByText("Broke 2 holds, not 1 other.").waitFor();
  const fences = async (name) => (await server.name(name))?.holders.map(({ fence }) => fence) ?? [];
  assert.deepEqual(await fences("cron:a"), []);
  assert.deepEqual(await fences("cron:c"), []);
  assert.deepEqual(await fences("cron:b"), [next.fence]);
  assert.deepEqual(await fences("cron:late"), [late.fence]);
  assert.equal((await fences("cro")).length, 1);
  const read = await server.post("/v1/holds/read", { ...holds[0] });
  assert.deepEqual([read.body.ended, read.body.reason], ["broken", "a bad deploy"]);
  // Another prefix is another preview.
  await dialog.locator("#many-prefix").fill("cron:l");
  assert.equal(await dialog.locator(".holds").count(), 0);
  await dialog.locator("#many-kind").selectOption("election");
  await dialog.getByRole("button", { name: "Show which" }).click();
  await dialog.getByText("1 hold of 1 name").waitFor();
  assert.match(await dialog.locator(".holds li").first().textContent(), /^cron:leader/);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
});

test("a server that asks for a token gets it from this tab alone", async (t) => {
  const [reader, admin] = ["reader-4f7d0a1e9b6c4c1f8a52d3e6b7f8", "admin-4f7d0a1e9b6c4c1f8a52d3e6b7f80"];
  const closed = await Server.start({ tokens: [`watch ${reader} role=read`, `ops ${admin} role=lock,read,admin`] });
  const hold = await closed.hold("guarded");
  const page = await visit(t, closed, "#/name/guarded", { expect: ["401", "403"] });
  t.after(() => closed.end());
  const dialog = page.getByRole("dialog", { name: "Token" });
  await dialog.waitFor();
  assert.equal((await page.textContent("main")).includes("web-3:4121"), false);
  const enter = async (token) => {
    await page.locator("#token").fill(token);
    await page.getByRole("button", { name: "Use it" }).click();
  };
  await enter(reader);
  await page.locator(".holder").getByText("web-3:4121").waitFor();
  const kept = await page.evaluate(() => [
    JSON.stringify(sessionStorage),
    JSON.stringify(localStorage),
    document.cookie,
    location.href,
  ]);
  assert.deepEqual(
    kept.map((text) => text.includes(reader)),
    [true, false, false, false],
  );
  const mayBreak = page.getByRole("button", { name: "Break…" });
  await page.getByRole("button", { name: "read-only" }).waitFor();
  assert.equal(await mayBreak.count(), 0);
  await page.keyboard.press("b");
  await page.getByRole("status").getByText("needs the role admin").waitFor();
  assert.equal((await closed.name("guarded")).holders[0].fence, hold.fence);
  await page.locator("#head .status button").nth(1).click();
  await enter(admin);
  await mayBreak.waitFor();
});

test("without a token the page only reads, and the server enforces that", async (t) => {
  const open = await Server.start();
  const hold = await open.hold("looked-at");
  const page = await visit(t, open, "#/name/looked-at", { expect: ["403"] });
  t.after(() => open.end());
  await page.locator(".holder").getByText("web-3:4121").waitFor();
  await page.getByRole("button", { name: "read-only" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Break…" }).count(), 0);
  await page.keyboard.press("b");
  await page.getByRole("status").getByText("--ui-may-break").waitFor();
  await page.keyboard.press("1");
  await row(page, "looked-at").waitFor();
  assert.equal(await page.getByRole("button", { name: "Break many…" }).count(), 0);
  const status = await page.evaluate(async (fence) => {
    const body = JSON.stringify({ name: "looked-at", fence, reason: "by hand" });
    const headers = { "content-type": "application/json" };
    return (await fetch("/v1/break", { method: "POST", headers, body })).status;
  }, hold.fence);
  assert.equal(status, 403);
  assert.equal((await open.name("looked-at")).holders[0].fence, hold.fence);
});
