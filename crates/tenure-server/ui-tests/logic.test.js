// What the page computes, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  breaks,
  entry,
  holdsOf,
  host,
  isFixed,
  isLate,
  key,
  recall,
  renewedAgo,
  search,
  state,
  troubles,
  weight,
} from "../ui/facts.js";
import { blocked } from "../ui/graph.js";
import { histogram, holds, lengths, quantile } from "../ui/past.js";
import { EventReader } from "../ui/sse.js";
import { Store, totals } from "../ui/store.js";
import { duration, pieces, precise, span, visible } from "../ui/text.js";

const holder = (more = {}) => ({
  owner: "web-3:4121",
  fence: 17,
  weight: 1,
  held_ms: 100_000,
  left_ms: 28_000,
  ...more,
});
const view = (more = {}) => ({ name: "backup", kind: "lock", capacity: 1, holders: [holder()], waiters: [], ...more });

test("spans have their two largest units, as on the command line", () => {
  const said = [
    [0, "0s"],
    [7, "7ms"],
    [41_200, "41s"],
    [192_031, "3m12s"],
    [180_000, "3m"],
    [3_659_000, "1h"],
    [3_660_000, "1h1m"],
    [532_800_000, "6d4h"],
  ];
  for (const [ms, text] of said) assert.equal(span(ms), text);
  assert.equal(precise(41_230), "41.2s");
  assert.equal(precise(3000), "3s");
  assert.equal(span(undefined), "–");
});

test("a duration has a unit, or is not known", () => {
  for (const [text, ms] of [
    ["30s", 30_000],
    ["250ms", 250],
    ["1m 30s", 90_000],
    ["2h", 7_200_000],
  ])
    assert.equal(duration(text), ms);
  for (const text of ["", "30", "soon", "-3s", "3s later"]) assert.equal(duration(text), null, text);
});

test("what cannot be seen in a text is shown", () => {
  assert.equal(visible("safe\u202Egnp.exe"), "safe⟨U+202E⟩gnp.exe");
  assert.equal(visible("a\u200Bb\u00A0c\nd\u0000"), "a⟨U+200B⟩b⟨U+00A0⟩c⟨U+000A⟩d⟨U+0000⟩");
  assert.equal(visible("\u2066x\u2069 \u{E0041}"), "⟨U+2066⟩x⟨U+2069⟩ ⟨U+E0041⟩");
  assert.equal(visible("pay\u200Dload"), "pay⟨U+200D⟩load");
  for (const plain of ["backup", "día/año 1", "שלום", "🦀 👩‍🚀 👍🏽", "<img src=x onerror=alert(1)>"])
    assert.equal(visible(plain), plain);
  assert.deepEqual(
    pieces("a\u202Eb").map((piece) => piece.hidden),
    [false, true, false],
  );
});

test("a renewal is late when two thirds of the ttl have gone", () => {
  const rows = [
    ["30s", 100_000, 28_000, 2000, false],
    ["30s", 100_000, 10_000, 20_000, false],
    ["30s", 100_000, 9000, 21_000, true],
    // A turn in its first life.
    ["30s", 1000, 2000, 1000, false],
    // A value that contradicts the engine, or cannot be read, is ignored.
    ["5s", 100_000, 20_000, null, false],
    ["soon", 100_000, 1000, null, false],
    [undefined, 100_000, 1000, null, false],
  ];
  for (const [ttl, held_ms, left_ms, ago, late] of rows) {
    const [one] = entry(view({ holders: [holder({ held_ms, left_ms, meta: { ttl } })] }), 1e6).holders;
    assert.deepEqual([renewedAgo(one), isLate(one)], [ago, late], `${ttl} ${held_ms} ${left_ms}`);
  }
});

test("a long hold that was never renewed was taken for a fixed time, and is not late", () => {
  const fixed = entry(
    view({ holders: [holder({ held_ms: 5_400_000, left_ms: 1_800_000, meta: { ttl: "2h" } })] }),
    1e7,
  );
  assert.equal(isFixed(fixed.holders[0]), true);
  assert.deepEqual(troubles(fixed, 1e7), ["old"]);
  const renewed = entry(
    view({ holders: [holder({ held_ms: 90_000_000, left_ms: 1_800_000, meta: { ttl: "2h" } })] }),
    1e9,
  );
  assert.deepEqual(troubles(renewed, 1e9), ["risk", "old"]);
});

test("a holder that was seen to renew has a ttl, even if it reports none", () => {
  const look = (left_ms, at) => entry(view({ holders: [holder({ held_ms: at, left_ms })] }), at);
  const first = look(22_000, 100_000);
  const second = recall(look(20_000, 102_000), first);
  assert.equal(second.holders[0].ttl, null, "it only ran down");
  const third = recall(look(29_500, 104_000), second);
  assert.equal(third.holders[0].ttl, 29_500);
  const stuck = recall(look(5000, 128_500), third);
  assert.deepEqual([isLate(stuck.holders[0]), stuck.late, renewedAgo(stuck.holders[0])], [true, true, 24_500]);
  const other = recall(entry(view({ holders: [holder({ fence: 18, left_ms: 1000 })] }), 130_000), stuck);
  assert.equal(other.holders[0].ttl, null, "another hold has renewed nothing");
});

test("trouble is named, the worst first, and leaders may hold for long", () => {
  const waiters = Array.from({ length: 10 }, (_, index) => ({ owner: `w:${index}`, waited_ms: 31_000, ticket: index }));
  const bad = entry(view({ holders: [holder({ held_ms: 4e6, left_ms: 1000, meta: { ttl: "30s" } })], waiters }), 1e7);
  assert.deepEqual(troubles(bad, 1e7), ["risk", "wait", "line", "old"]);
  const leader = entry(view({ kind: "election", holders: [holder({ held_ms: 4e8 })], waiters }), 1e9);
  assert.deepEqual(troubles(leader, 1e9), []);
  const begun = entry(view({ kind: "once", holders: [], record: { settled: false } }), 0);
  assert.deepEqual(troubles(begun, 0), ["unsettled"]);
  assert.ok(weight(["risk"]) > weight(["unsettled", "wait", "line", "old"]));
});

test("states have the words of the command line", () => {
  const of = (more) => state(entry(view(more), 0));
  assert.equal(of({}), "held");
  assert.equal(of({ holders: [] }), "free");
  assert.equal(of({ capacity: 5, holders: [holder({ weight: 2 }), holder({ fence: 18 })] }), "3/5");
  assert.equal(of({ capacity: 1 << 20, holders: [holder(), holder({ fence: 18 })] }), "2 shared");
  assert.equal(of({ capacity: 1 << 20, holders: [holder({ weight: 1 << 20 })] }), "exclusive");
  assert.equal(of({ kind: "election" }), "leads");
  assert.equal(of({ kind: "once" }), "runs");
  assert.equal(of({ kind: "once", holders: [], record: { settled: true } }), "done");
});

test("a search finds names, owners, hosts and reasons", () => {
  const one = entry(
    view({
      holders: [holder({ reason: "Nightly dump", meta: { cmd: "./backup.sh" } })],
      waiters: [{ owner: "pay-1:7", waited_ms: 1, ticket: 1 }],
    }),
    0,
  );
  for (const text of [
    "",
    "BACK",
    "web-3",
    "nightly dump",
    "pay-1",
    "owner:pay",
    "host:web",
    "name:back",
    "host:web-3 name:back",
    ".sh",
  ])
    assert.ok(search(text)(one), text);
  for (const text of ["x", "owner:backup", "host:eb-3", "name:web", "back nothing"])
    assert.ok(!search(text)(one), text);
  assert.ok(search("owner:7")(entry(view({ name: "owner:7" }), 0)), "a name may begin with owner:");
  assert.equal(host({ owner: "fe80::1:912" }), "fe80::1");
  assert.equal(host({ owner: "alone" }), "");
});

test("a lock and an election of one name are two", () => {
  assert.notEqual(key("lock", "x"), key("election", "x"));
  assert.equal(key("lock", "x"), key("semaphore", "x"));
});

test("events change names until the next look, and a look is believed", () => {
  const store = new Store();
  store.page([view({ waiters: [{ owner: "web-5:912", waited_ms: 10, ticket: 1 }] })], 1000);
  const say = (event, more) =>
    store.event({ event, name: "backup", kind: "lock", owner: "web-5:912", at: 2000, id: 1, ...more });
  const now = () => store.names.get("lock backup");
  say("released", { owner: "web-3:4121", at: 900 });
  assert.equal(now().holders[0].fence, 17, "the look was later");
  say("granted", { fence: 18 });
  assert.deepEqual(
    now().holders.map((one) => one.fence),
    [18],
    "one holder: the other has ended",
  );
  assert.equal(now().waiters.length, 0);
  say("granted", { fence: 18 });
  assert.equal(now().holders.length, 1);
  say("waiting", { owner: "x:1" });
  say("quit", { owner: "x:1" });
  say("quit", { owner: "x:1" });
  assert.equal(now().waiters.length, 0);
  say("released", { owner: "someone@127.0.0.1" });
  assert.equal(now(), undefined, "a release without a fence is of the only holder");
  say("granted", { name: "new", fence: 3 });
  assert.equal(store.names.get("lock new").holders.length, 1);
});

test("a name that a whole reading did not find is forgotten, unless it is newer", () => {
  const store = new Store();
  store.page([view({ name: "old" }), view({ name: "kept" }), view({ name: "led", kind: "election" })], 1000);
  store.beginSweep();
  store.event({ event: "granted", name: "fresh", kind: "lock", owner: "a", fence: 9, at: 2500 });
  store.page([view({ name: "kept" })], 2100);
  store.endSweep("lock", 2000);
  assert.deepEqual([...store.names.keys()].sort(), ["election led", "lock fresh", "lock kept"]);
  assert.deepEqual(totals(store.names.values(), 3000).names, 3);
});

test("an old page does not undo a newer one", () => {
  const store = new Store();
  store.page([view({ holders: [], waiters: [{ owner: "a", waited_ms: 1, ticket: 1 }] })], 2000);
  store.page([view()], 1000);
  assert.equal(store.names.get("lock backup").holders.length, 0);
});

const waits = (name, holderOwner, ...owners) =>
  entry(
    {
      name,
      kind: "lock",
      capacity: 1,
      holders: [holder({ owner: holderOwner })],
      waiters: owners.map((owner, ticket) => ({ owner, ticket, waited_ms: 5000 })),
    },
    0,
  );

test("who blocks most comes first, with those behind it", () => {
  const { trees, circles } = blocked(
    [waits("invoice", "b", "c", "c"), waits("wallet", "a", "b", "d"), waits("x", "z", "y")],
    0,
  );
  assert.deepEqual(circles, []);
  assert.deepEqual(
    trees.map((tree) => [tree.owner, tree.blocks]),
    [
      ["a", 4],
      ["z", 1],
    ],
  );
  const [behindA] = trees[0].behind;
  assert.deepEqual([behindA.owner, behindA.name, behindA.longest], ["b", "wallet", 5000]);
  assert.deepEqual(
    behindA.behind.map((one) => [one.owner, one.many]),
    [["c", 2]],
  );
});

test("circles are named, whatever depends on them, and a process that waits for itself is not one", () => {
  const { trees, circles } = blocked(
    [waits("1", "a", "b"), waits("2", "b", "c"), waits("3", "c", "a"), waits("4", "a", "q"), waits("5", "s", "s")],
    0,
  );
  assert.equal(circles.length, 1);
  assert.deepEqual(
    circles[0].map(({ owner, name, holder }) => `${owner} ${name} ${holder}`),
    ["a 3 c", "c 2 b", "b 1 a"],
  );
  assert.deepEqual(trees.map((tree) => tree.owner).sort(), ["a", "s"]);
  assert.ok(trees.find((tree) => tree.owner === "a").circle);
});

test("a long row of owners that wait for each other does not overflow the stack", () => {
  const many = Array.from({ length: 2000 }, (_, index) => waits(`n${index}`, `o${index}`, `o${index + 1}`));
  const { trees } = blocked(many, 0);
  assert.equal(trees[0].blocks, 2000);
});

const seen = (event, at, fence, owner = "a") => ({ event, at, fence, owner });

test("holds are put together from what was seen of them", () => {
  const found = holds([
    seen("released", 5, 1),
    seen("granted", 10, 2),
    seen("broken", 30, 2, "ops"),
    seen("released", 31, 2),
    seen("granted", 40, 3),
    seen("released", 45, undefined, "127.0.0.1"),
    seen("granted", 50, 4),
  ]);
  assert.deepEqual(
    found.map(({ fence, from, to, end }) => [fence, from, to, end]),
    [
      [1, null, 5, "released"],
      [2, 10, 30, "broken"],
      [3, 40, 45, "released"],
      [4, 50, null, null],
    ],
  );
  assert.deepEqual(lengths(found), [5, 20]);
});

test("an end without a fence is nobody's if several hold", () => {
  const found = holds([
    seen("granted", 1, 1),
    seen("granted", 2, 2, "b"),
    seen("released", 3, undefined, "c"),
    seen("released", 4, undefined, "b"),
  ]);
  assert.deepEqual(
    found.map(({ fence, to }) => [fence, to]),
    [
      [1, null],
      [2, 4],
    ],
  );
});

test("a histogram counts every length once", () => {
  const sorted = [0, 1, 2, 400, 400, 1e9];
  const buckets = histogram(sorted);
  assert.equal(
    buckets.reduce((sum, bucket) => sum + bucket.many, 0),
    sorted.length,
  );
  assert.equal(buckets.at(-1).upTo, Infinity);
  assert.deepEqual(histogram([]), []);
  assert.equal(quantile([1, 2, 3, 4], 0.5), 2);
  assert.equal(quantile([1, 2, 3, 4], 0.99), 4);
  assert.equal(quantile([], 0.5), null);
});

test("events are read however the stream is cut", () => {
  const text =
    'event: hello\ndata: {"a":1}\n\n: nothing\r\nid: 7\r\nevent: granted\r\ndata: x\r\ndata: y\r\n\r\nevent: ping\ndata: {}\n\n';
  for (let size = 1; size < text.length; size += 1) {
    const found = [];
    const reader = new EventReader((event) => found.push(event));
    for (let at = 0; at < text.length; at += size) reader.feed(text.slice(at, at + size));
    assert.deepEqual(
      found,
      [
        { event: "hello", id: null, data: '{"a":1}' },
        { event: "granted", id: "7", data: "x\ny" },
        { event: "ping", id: "7", data: "{}" },
      ],
      `pieces of ${size}`,
    );
  }
});

test("a break of many is cut into requests that the server takes", () => {
  const views = Array.from({ length: 2500 }, (_, index) =>
    view({ name: `table:${index}`, holders: [holder({ fence: index + 1 })] }),
  );
  const semaphore = view({ name: "é".repeat(512), capacity: 3, holders: [holder({ fence: 1 }), holder({ fence: 2 })] });
  const long = Array.from({ length: 200 }, (_, index) => view({ name: `${index} ${"\u{1F980}".repeat(250)}` }));
  const holds = holdsOf([...views, semaphore, ...long]);
  assert.equal(holds.length, 2702);
  const bodies = breaks(holds, "lock", "x");
  assert.deepEqual(
    bodies.flatMap((body) => body.holds),
    holds.map(({ name, fence }) => ({ name, fence })),
  );
  for (const body of bodies) {
    assert.ok(body.holds.length <= 1000);
    assert.ok(new TextEncoder().encode(JSON.stringify(body)).length <= 64 * 1024);
    assert.deepEqual([body.kind, body.reason], ["lock", "x"]);
  }
  assert.deepEqual(breaks([], "lock", "x"), []);
});
