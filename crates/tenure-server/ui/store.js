// The names that the page knows. Pages of the list are the truth at the time of their request; events of the stream, which
// are what this one server has seen, change it in between. No DOM, no requests here.

import { entry, finish, key, recall, space } from "./facts.js";

/** How many events are remembered. */
const MOST_EVENTS = 2000;

export class Store {
  names = new Map();
  events = [];
  gaps = 0;
  #sweep = 0;

  /** A page of the list that was asked for at `at`. */
  page(views, at) {
    for (const view of views) {
      const next = entry(view, at);
      next.sweep = this.#sweep;
      const known = this.names.get(next.key);
      if (known && known.at > at) known.sweep = this.#sweep;
      else this.names.set(next.key, known ? recall(next, known) : next);
    }
  }

  /** From here on, pages are counted as one reading of the whole list. */
  beginSweep() {
    this.#sweep += 1;
  }

  /** All names of this kind were read, from `began` on: those that were not there are no longer in use. */
  endSweep(kind, began) {
    for (const [key, one] of this.names) {
      if (one.sweep !== this.#sweep && one.at < began && space(one.kind) === kind) this.names.delete(key);
    }
  }

  /** A name is no longer in use. */
  forget(kind, name) {
    this.names.delete(key(kind, name));
  }

  /** An event of the stream, which happened at `event.at` by the page's clock. */
  event(event) {
    this.events.push(event);
    if (this.events.length > MOST_EVENTS) this.events.splice(0, this.events.length - MOST_EVENTS);
    if (event.event === "gap") {
      this.gaps += 1;
      return;
    }
    const known = this.names.get(key(event.kind, event.name));
    // A page that was requested later includes it already.
    if (known && event.at < known.at) return;
    const next = known ?? {
      name: event.name,
      kind: space(event.kind),
      holders: [],
      waiters: [],
      at: event.at,
      sweep: this.#sweep,
    };
    if (change(next, event)) this.#keep(next, event.at);
  }

  #keep(one, at) {
    one.at = Math.max(one.at, at);
    finish(one);
    const isUsed = one.holders.length > 0 || one.waiters.length > 0 || one.record != null;
    if (isUsed) this.names.set(one.key, one);
    else this.names.delete(one.key);
  }
}

/** Applies an event to a name; false if it changes nothing. */
function change(one, { event, owner, fence, at }) {
  const holder = whose(one.holders, event, owner, fence);
  const waiter = one.waiters.findIndex((waiter) => waiter.owner === owner);
  switch (event) {
    case "granted":
      if (holder >= 0) return false;
      if (waiter >= 0) one.waiters.splice(waiter, 1);
      // The previous holder has ended, even if nobody here saw how.
      if (one.capacity === 1) one.holders = [];
      one.holders.push({ owner, fence, weight: 1, since: at, left: null, leftAt: at, ttl: null, most: 0 });
      return true;
    case "waiting":
      one.waiters.push({ owner, since: at, weight: 1 });
      return true;
    case "quit":
      if (waiter >= 0) one.waiters.splice(waiter, 1);
      return waiter >= 0;
    case "released":
    case "gone":
    case "broken":
    case "settled":
      if (holder >= 0) one.holders.splice(holder, 1);
      return holder >= 0;
    default:
      return false;
  }
}

/** Which hold an event is about. A release need not name the fence; then it is the only hold, or the owner's. */
function whose(holders, event, owner, fence) {
  if (fence != null || event === "granted") return holders.findIndex((holder) => holder.fence === fence);
  if (holders.length === 1 && event !== "gone") return 0;
  const own = holders.filter((holder) => holder.owner === owner);
  return own.length === 1 ? holders.indexOf(own[0]) : -1;
}

/** The totals. */
export function totals(entries, now) {
  const sum = { names: 0, held: 0, waiting: 0, oldestWait: null };
  for (const one of entries) {
    sum.names += 1;
    sum.held += one.holders.length;
    sum.waiting += one.waiters.length;
    // Candidates of an election wait for as long as all is well.
    if (one.first && one.word !== "leader") sum.oldestWait = Math.max(sum.oldestWait ?? 0, now - one.first.since);
  }
  return sum;
}
