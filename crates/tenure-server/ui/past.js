// What was observed of a name's past: which holds there were, and how long they lasted. No DOM here.

const ENDS = new Set(["released", "gone", "broken", "settled"]);

/**
 * The holds in a list of events, oldest first: `{ fence, owner, from, to, end }`. `from` is null if the grant was not seen,
 * `to` if the end was not: it may still be held. Times are those of `event.at`.
 */
export function holds(events) {
  const found = new Map();
  for (const event of events) {
    const { owner, at } = event;
    const fence = event.fence ?? (ENDS.has(event.event) ? openFence(found, event) : null);
    if (fence == null) continue;
    if (event.event === "granted") {
      if (!found.has(fence)) found.set(fence, { fence, owner, from: at, to: null, end: null });
    } else if (ENDS.has(event.event)) {
      const hold = found.get(fence) ?? { fence, owner, from: null };
      if (hold.end == null) found.set(fence, { ...hold, to: at, end: event.event });
    }
  }
  return [...found.values()].sort((a, b) => (a.from ?? a.to) - (b.from ?? b.to) || a.fence - b.fence);
}

/** Which hold an event without a fence ends: the only one, or the only one of its owner. */
function openFence(found, { event, owner }) {
  const open = [...found.values()].filter((hold) => hold.end == null);
  const fitting = open.length === 1 && event !== "gone" ? open : open.filter((hold) => hold.owner === owner);
  return fitting.length === 1 ? fitting[0].fence : null;
}

/** How long the holds lasted of which both ends were seen, shortest first. */
export function lengths(holds) {
  const known = holds.filter((hold) => hold.from != null && hold.to != null);
  return known.map((hold) => Math.max(0, hold.to - hold.from)).sort((a, b) => a - b);
}

/** The value that this share of the sorted numbers does not exceed. */
export function quantile(sorted, share) {
  return sorted.length === 0 ? null : sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)];
}

const EDGES = [
  1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000, 21_600_000, 86_400_000,
];

/** How many lengths are in each bucket, from the first that has one to the last: `{ upTo, many }`. */
export function histogram(sorted) {
  if (sorted.length === 0) return [];
  const buckets = [...EDGES, Infinity].map((upTo) => ({ upTo, many: 0 }));
  for (const length of sorted) buckets.find((bucket) => length <= bucket.upTo).many += 1;
  const first = buckets.findIndex((bucket) => bucket.many > 0);
  const last = buckets.findLastIndex((bucket) => bucket.many > 0);
  return buckets.slice(Math.max(0, first - 1), last + 2);
}
