// What the page shows about a name, and what about it is trouble. No DOM here.
//
// `run` and `acquire` of the command line put what the engine does not know into the meta of a hold: the command, the
// host, the process, the ttl. Others need not, so all of that may be missing.

import { duration } from "./text.js";

/** The capacity of a read-write lock. No semaphore can have it. */
const RWLOCK = 1 << 20;

export const LONG_WAIT = 30_000;
export const LONG_LINE = 10;
export const OLD_HOLD = 3_600_000;
/** By how much two readings of an unchanged hold may differ. */
const NOISE = 400;
/** A hold with at least this ttl that was never renewed was taken for a fixed time. */
const FIXED = 300_000;
/** A grant that waited is confirmed this much later, at most. */
const FIRST_LIFE = 5000;

/** What can be wrong with a name, the worst first; `many` is the label of several. */
export const TROUBLE = {
  risk: { label: "at risk", about: "a renewal is overdue: the holder may be dead" },
  unsettled: {
    label: "unsettled",
    about: "a once was begun, and nobody knows how it ended (said on the page of its name)",
  },
  wait: { label: "long wait", many: "long waits", about: "somebody has waited for more than 30 s" },
  line: { label: "long line", many: "long lines", about: "10 or more are in line" },
  old: { label: "old hold", many: "old holds", about: "held for more than an hour (leaders do not count)" },
};
const RANK = Object.fromEntries(Object.keys(TROUBLE).map((what, index, all) => [what, all.length - index]));

/** A name as the server shows it, with times on the page's own clock; `at` is when it was asked for. */
export function entry(view, at) {
  const holders = (view.holders ?? []).map((holder) => held(holder, at));
  const waiters = (view.waiters ?? []).map((waiter) => ({ ...waiter, since: at - waiter.waited_ms }));
  return finish({ ...view, holders, waiters, at });
}

function held(holder, at) {
  const ttl = duration(holder.meta?.ttl ?? "");
  // A value that contradicts the engine's numbers is ignored.
  const known = ttl != null && ttl >= holder.left_ms ? ttl : null;
  return {
    ...holder,
    since: at - holder.held_ms,
    left: holder.left_ms,
    leftAt: at,
    ttl: known,
    isSeen: false,
    most: holder.left_ms,
  };
}

/**
 * Adds what an earlier look at the same holds showed: a holder that was seen to renew has a ttl, even if it reports none.
 */
export function recall(entry, before) {
  for (const holder of entry.holders) {
    const known = before.holders.find((one) => one.fence === holder.fence);
    if (holder.ttl != null || known?.left == null) continue;
    const renewed = holder.left > known.left - (holder.leftAt - known.leftAt) + NOISE;
    holder.most = Math.max(holder.most, known.most ?? 0);
    if (renewed || known.isSeen) Object.assign(holder, { ttl: holder.most, isSeen: true });
  }
  return finish(entry);
}

/** Fills in what follows from holders and waiters. Called again when those change. */
export function finish(entry) {
  entry.key = key(entry.kind, entry.name);
  entry.word = word(entry);
  entry.weight = entry.holders.reduce((sum, holder) => sum + (holder.weight ?? 1), 0);
  entry.oldest = entry.holders.reduce((best, holder) => (!best || holder.since < best.since ? holder : best), null);
  entry.first = entry.waiters.reduce((best, waiter) => (!best || waiter.since < best.since ? waiter : best), null);
  entry.least = entry.holders.reduce(
    (best, holder) => (holder.left != null && (!best || holder.left < best.left) ? holder : best),
    null,
  );
  entry.late = entry.holders.some(isLate);
  entry.text = null;
  return entry;
}

/** The key of a name: a lock and an election may have the same name. */
export function key(kind, name) {
  return `${space(kind)} ${name}`;
}

/** `lock`, `election` or `once`: the kinds that have names of their own. */
export function space(kind) {
  return kind === "election" || kind === "once" ? kind : "lock";
}

function word({ kind, capacity }) {
  if (kind === "election") return "leader";
  if (kind === "once") return "once";
  if (capacity === RWLOCK) return "rwlock";
  return capacity == null || capacity === 1 ? "lock" : "sem";
}

/** The state of a name in a word or two. */
export function state(entry) {
  if (entry.word === "sem") return `${entry.weight}/${entry.capacity}`;
  if (entry.weight === 0) {
    if (entry.record) return entry.record.settled ? "done" : "unsettled";
    return "free";
  }
  if (entry.word === "rwlock") return entry.weight < RWLOCK ? `${entry.weight} shared` : "exclusive";
  if (entry.word === "leader") return "leads";
  return entry.word === "once" ? "runs" : "held";
}

/** How long ago a hold was renewed or granted, as of the last look; null if its ttl is unknown. */
export function renewedAgo(holder) {
  if (holder.ttl == null || holder.left == null) return null;
  // A pushed turn has a short first life, which looks like a renewal long ago; but that cannot be older than the hold.
  return Math.max(0, Math.min(holder.ttl - holder.left, holder.leftAt - holder.since));
}

/** Whether a hold was never renewed, and lasts long: it was taken for a fixed time. */
export function isFixed(holder) {
  const ago = renewedAgo(holder);
  return ago != null && holder.ttl >= FIXED && ago >= holder.leftAt - holder.since - FIRST_LIFE;
}

/** Whether a renewal is overdue. It is due after a third of the ttl, so two thirds mean trouble. */
export function isLate(holder) {
  const ago = renewedAgo(holder);
  return ago != null && ago > (holder.ttl * 2) / 3 && !isFixed(holder);
}

/** What is wrong with a name, the worst first. */
export function troubles(entry, now) {
  const found = [];
  if (entry.late) found.push("risk");
  if (entry.record && !entry.record.settled && entry.weight === 0) found.push("unsettled");
  if (entry.word !== "leader") {
    if (entry.first && now - entry.first.since > LONG_WAIT) found.push("wait");
    if (entry.waiters.length >= LONG_LINE) found.push("line");
    if (entry.oldest && now - entry.oldest.since > OLD_HOLD) found.push("old");
  }
  return found;
}

/** The holds of some names, each as a break identifies it. */
export function holdsOf(views) {
  return views.flatMap(({ name, holders }) => holders.map(({ fence, owner, held_ms }) => ({ name, fence, owner, held_ms })));
}

/** Bodies of requests that break `holds`: a request has at most 1000 of them, and 64 KiB. */
export function breaks(holds, kind, reason) {
  const bodies = [];
  let size = 0;
  for (const { name, fence } of holds) {
    const bytes = new TextEncoder().encode(JSON.stringify({ name, fence })).length + 1;
    if (bodies.length === 0 || bodies.at(-1).holds.length === 1000 || size + bytes > 60_000) {
      bodies.push({ kind, reason, holds: [] });
      size = 0;
    }
    bodies.at(-1).holds.push({ name, fence });
    size += bytes;
  }
  return bodies;
}

/** A number for sorting trouble: its kind first. */
export function weight(found) {
  return found.reduce((sum, what) => sum + 2 ** RANK[what], 0);
}

/** The host of an owner: what its holder reports, or the part before the last colon. */
export function host(details) {
  if (details.meta?.host) return details.meta.host;
  const owner = details.owner ?? "";
  const colon = owner.lastIndexOf(":");
  return colon > 0 ? owner.slice(0, colon) : "";
}

/** The text that a search looks at, in lower case. */
export function searched(entry) {
  if (entry.text == null) {
    const people = [...entry.holders, ...entry.waiters].map(
      (one) => `${one.owner}\n${one.meta?.host ?? ""}\n${one.meta?.cmd ?? ""}`,
    );
    const notes = entry.holders.map((one) => `${one.reason ?? ""}\n${one.value ?? ""}`);
    entry.text = [entry.name, ...people, ...notes].join("\n").toLowerCase();
  }
  return entry.text;
}

/** A predicate for what somebody typed: all words must be found; `owner:`, `host:`, `name:` look in one place. */
export function search(text) {
  const words = text
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const [, place, rest] = /^(owner|host|name):(.+)$/.exec(word) ?? [];
      // A name may itself begin with "owner:", so that is looked for too.
      return { word, place, rest };
    });
  const people = (entry) => [...entry.holders, ...entry.waiters];
  const looks = {
    owner: (entry, rest) => people(entry).some((one) => (one.owner ?? "").toLowerCase().includes(rest)),
    host: (entry, rest) => people(entry).some((one) => host(one).toLowerCase().startsWith(rest)),
    name: (entry, rest) => entry.name.toLowerCase().includes(rest),
  };
  return (entry) =>
    words.every(
      ({ word, place, rest }) => searched(entry).includes(word) || (place !== undefined && looks[place](entry, rest)),
    );
}
