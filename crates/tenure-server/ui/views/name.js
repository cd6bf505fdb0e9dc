// Name: who holds it, since when, is the holder alive, who waits, what happened before, and how to break it.

import { get } from "../api.js";
import { mayBreak, whyNot } from "../access.js";
import { breakHold } from "../dialogs.js";
import { h, render, say } from "../dom.js";
import { finish, host, isFixed, isLate, key, renewedAgo, state, troubles, TROUBLE } from "../facts.js";
import { now as lookNow, store } from "../live.js";
import { holds } from "../past.js";
import { count, precise, span, visible } from "../text.js";
import { holdTimes, timeline } from "./drawing.js";
import { eventRow } from "./events.js";

/** How much of a line, of the holders and of the past is shown until more is requested. */
const SOME = 20;
const OWN_META = new Set(["cmd", "host", "pid", "ttl"]);

export class NameView {
  every = 1000;

  constructor(frame, root, kind, name) {
    Object.assign(this, { frame, root, kind, name, title: name, history: [], isRead: false, more: new Set() });
  }

  leave() {
    render(this.root);
  }

  focus() {
    this.root.focus({ preventScroll: true });
  }

  async refresh(signal) {
    const at = performance.now();
    try {
      const view = await get("v1/name", { name: this.name, kind: this.kind }, signal);
      store.page([view], at);
      this.keep(view.history ?? [], at);
    } catch (error) {
      if (error.code !== "not_found") throw error;
      store.forget(this.kind, this.name);
      this.keep(error.body.history ?? [], at);
    }
    this.isRead = true;
  }

  /** Adds a server's history. Each server numbers its events differently, so the number identifies an event. */
  keep(history, at) {
    const known = new Map(this.history.map((event) => [String(event.id), event]));
    for (const event of history) {
      if (!known.has(String(event.id))) known.set(String(event.id), { ...event, at: at - event.ago_ms });
    }
    this.history = [...known.values()].sort((a, b) => a.at - b.at).slice(-500);
  }

  /** What was seen: by the server before, and in the stream since. */
  past() {
    const seen = new Set(this.history.map((event) => String(event.id)));
    const mine = store.events.filter(
      (event) =>
        event.name === this.name &&
        key(event.kind, event.name) === key(this.kind, this.name) &&
        !seen.has(String(event.id)),
    );
    return [...this.history, ...mine].sort((a, b) => a.at - b.at);
  }

  draw(now) {
    const known = store.names.get(key(this.kind, this.name));
    // The engine does not know unused names; here such a name is one that nobody holds.
    const free = { name: this.name, kind: this.kind, capacity: 1, holders: [], waiters: [], at: now };
    const entry = known ?? (this.isRead ? finish(free) : null);
    this.entry = entry;
    const past = this.past();
    const found = entry ? troubles(entry, now) : [];
    render(
      this.root,
      h(
        "div",
        { class: "title" },
        h("a", { class: "back", href: "#/now", title: "esc" }, "← Now"),
        h("h1", { class: "mono" }, say(this.name)),
        h(
          "p",
          { class: "about" },
          h("span", { class: "kind" }, known?.word ?? { lock: "lock", election: "leader", once: "once" }[this.kind]),
          entry ? h("span", { class: `state ${entry.weight > 0 ? "on" : "off"}` }, state(entry)) : null,
          found.map((what) =>
            h("span", { key: what, class: `tag ${what}`, title: TROUBLE[what].about }, TROUBLE[what].label),
          ),
          h("button", { type: "button", class: "quiet small", onclick: () => this.copy() }, "Copy name"),
        ),
      ),
      entry ? null : h("p", { class: "dim" }, "Reading…"),
      h(
        "div",
        { class: "columns" },
        entry ? h("div", { key: "now" }, this.drawEntry(entry, now)) : null,
        this.drawPast(past, entry, now),
      ),
    );
  }

  drawFree() {
    const others = { lock: "name", election: "leader", once: "once" };
    const rest = Object.entries(others).filter(([kind]) => kind !== this.kind);
    const labels = { lock: "as a lock", election: "as an election", once: "as a once" };
    return [
      h("p", {}, "Nobody holds it, and nobody waits for it."),
      h(
        "p",
        { class: "dim" },
        "Locks, elections and onces have names of their own: look ",
        rest.map(([kind, word], index) => [
          index ? " or " : "",
          h("a", { href: `#/${word}/${encodeURIComponent(this.name)}` }, labels[kind]),
        ]),
        ".",
      ),
    ];
  }

  drawEntry(entry, now) {
    const { holders, waiters, record } = entry;
    const shown = this.some("holders", holders);
    return [
      h(
        "section",
        { key: "holders", class: "card holders", "aria-label": "Holders" },
        h(
          "h2",
          {},
          holders.length > 1
            ? `Holders ${entry.weight}/${entry.capacity}`
            : entry.word === "leader"
              ? "Leader"
              : "Holder",
        ),
        holders.length > 0
          ? null
          : record
            ? h("p", { class: "dim" }, remembered(record))
            : waiters.length > 0
              ? h("p", { class: "dim" }, "Nobody holds it.")
              : this.drawFree(),
        shown.map((holder) => this.drawHolder(entry, holder, now)),
        this.moreButton("holders", holders.length),
      ),
      h(
        "section",
        { key: "line", class: "card line", "aria-label": "Line" },
        h(
          "h2",
          {},
          entry.word === "leader" ? "Candidates" : "In line",
          h("span", { class: "dim" }, ` ${waiters.length.toLocaleString("en")}`),
        ),
        waiters.length === 0
          ? h("p", { class: "dim" }, "Nobody waits.")
          : h(
              "ol",
              { class: "waiters" },
              this.some("line", waiters).map((waiter, index) =>
                h(
                  "li",
                  { key: `${waiter.ticket ?? index}` },
                  h("span", { class: "place" }, String(index + 1)),
                  say(waiter.owner, { class: "mono who" }),
                  waiter.weight > 1 && entry.word === "sem"
                    ? h("span", { class: "dim" }, `wants ${waiter.weight}`)
                    : null,
                  waiter.reason ? say(waiter.reason, { class: "dim reason" }) : null,
                  h("span", { class: "waited" }, span(now - waiter.since)),
                ),
              ),
            ),
        this.moreButton("line", waiters.length),
      ),
    ];
  }

  drawHolder(entry, holder, now) {
    const { meta = {} } = holder;
    const left = holder.left == null ? null : Math.max(0, holder.left - (now - holder.leftAt));
    const share = holder.ttl && left != null ? Math.min(1, left / holder.ttl) : null;
    const since = new Date(Date.now() - (now - holder.since));
    const facts = [
      ["fence", h("span", { class: "mono" }, String(holder.fence))],
      ["since", h("span", { title: since.toISOString() }, since.toLocaleString("en-GB"))],
      host(holder) ? ["host", say(host(holder), { class: "mono" })] : null,
      meta.pid ? ["process", say(meta.pid, { class: "mono" })] : null,
      meta.cmd ? ["command", say(meta.cmd, { class: "mono" })] : null,
      holder.weight > 1 && entry.word === "sem" ? ["permits", String(holder.weight)] : null,
      holder.value ? ["value", say(holder.value, { class: "mono" })] : null,
      holder.reason ? ["reason", say(holder.reason)] : null,
      holder.trace ? ["trace", say(holder.trace, { class: "mono" })] : null,
      ...Object.entries(meta)
        .filter(([word]) => !OWN_META.has(word))
        .map(([word, value]) => [word, say(value)]),
    ].filter(Boolean);
    return h(
      "article",
      { key: String(holder.fence), class: "holder" },
      h(
        "div",
        { class: "who" },
        say(holder.owner, { class: "mono strong" }),
        h("span", { class: "held" }, `held ${span(now - holder.since)}`),
        mayBreak()
          ? h("button", { type: "button", class: "danger quiet", onclick: () => this.break(holder) }, "Break…")
          : null,
      ),
      h(
        "div",
        { class: "life" },
        h(
          "div",
          {
            class: `life-bar ${share == null ? "unknown" : isLate(holder) ? "low" : ""}`,
            role: "progressbar",
            "aria-label": "left of the ttl",
            "aria-valuemin": 0,
            "aria-valuemax": 100,
            "aria-valuenow": share == null ? null : Math.round(share * 100),
          },
          h("span", { style: { width: share == null ? "0%" : `${(share * 100).toFixed(1)}%` } }),
        ),
        h(
          "span",
          { class: "life-text" },
          left == null
            ? ""
            : `${precise(left)} left${holder.ttl ? ` of ${holder.isSeen ? "about " : ""}${span(holder.ttl)}` : " unless renewed"}`,
        ),
        h("span", { class: "alive" }, alive(holder, now)),
      ),
      h(
        "dl",
        { class: "facts" },
        facts.map(([word, value]) => h("div", { key: word }, h("dt", {}, say(word)), h("dd", {}, value))),
      ),
    );
  }

  drawPast(past, entry, now) {
    const seen = holds(past);
    const isExclusive = entry == null || entry.capacity === 1;
    const oldest = entry?.oldest;
    return h(
      "section",
      { class: "card past", "aria-label": "Past" },
      h("h2", {}, "Observed", h("span", { class: "dim" }, " by this server; another one has seen other things")),
      past.length === 0
        ? h("p", { class: "dim" }, "Nothing yet.")
        : [
            timeline(seen, now, isExclusive),
            entry?.word === "leader" && seen.length === 0
              ? null
              : h(
                  "div",
                  { class: "hold-times" },
                  h("h3", {}, "Hold times"),
                  holdTimes(seen, oldest && entry.word !== "leader" ? now - oldest.since : null),
                ),
            h("h3", {}, count(past.length, "event")),
            h(
              "ol",
              { class: "events" },
              this.some("past", [...past].reverse()).map((event) => eventRow(event, now, null)),
            ),
            this.moreButton("past", past.length),
          ],
    );
  }

  some(what, list) {
    return this.more.has(what) ? list.slice(0, 2000) : list.slice(0, SOME);
  }

  moreButton(what, many) {
    if (many <= SOME || this.more.has(what)) return null;
    return h(
      "button",
      { type: "button", class: "quiet more", onclick: () => (this.more.add(what), this.frame.draw()) },
      `Show ${(many - SOME).toLocaleString("en")} more`,
    );
  }

  break(holder) {
    breakHold(this.entry, holder, (text, isBad) => {
      this.frame.notice(text, isBad);
      lookNow();
    });
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.name);
      this.frame.notice("Copied.");
    } catch {
      this.frame.notice(`Cannot copy here: ${visible(this.name)}`, true);
    }
  }

  key(event, isTyping) {
    const holder = this.entry?.oldest;
    if (isTyping || event.key !== "b" || !holder) return false;
    if (mayBreak()) this.break(holder);
    else this.frame.notice(whyNot(), true);
    return true;
  }
}

function alive(holder, now) {
  const ago = renewedAgo(holder);
  if (ago == null) return h("span", { class: "dim" }, "whether it renews has not been seen yet");
  const since = ago + (now - holder.leftAt);
  if (isFixed(holder)) return h("span", {}, "taken for a fixed time: never renewed");
  if (isLate(holder))
    return h(
      "span",
      { class: "bad" },
      `last renewed ${span(since)} ago, due every ${span(holder.ttl / 3)}: may be dead`,
    );
  return h("span", { class: "good" }, `renewed ${span(since)} ago: looks alive`);
}

function remembered(record) {
  const [ago, left] = [span(record.age_ms), span(record.remaining_ms)];
  if (!record.settled) return `Was started ${ago} ago and never settled. Remembered for another ${left}.`;
  const outcome = record.outcome === undefined ? record.outcome_base64 : JSON.stringify(record.outcome);
  return [
    `Was done ${ago} ago, and is remembered for another ${left}. Outcome: `,
    say(String(outcome ?? "").slice(0, 2000), { class: "mono" }),
  ];
}
