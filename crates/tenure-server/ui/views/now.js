// Now: is anything stuck, and what is worst? All names, what needs attention first.

import { mayBreak, whyNot } from "../access.js";
import { get } from "../api.js";
import { breakMany } from "../dialogs.js";
import { h, render, say } from "../dom.js";
import { isLate, search, space, state, troubles, TROUBLE, weight } from "../facts.js";
import { now as lookNow, store } from "../live.js";
import { totals } from "../store.js";
import { count, span } from "../text.js";
import { List } from "./list.js";
import { sparkline } from "./drawing.js";

/** The largest page that the server gives. */
const PAGE = 1000;
/** Longer lists are not read to the end. */
const MOST = { lock: 20_000, election: 5000, once: 5000 };
const SAMPLE_EVERY = 5000;
const SORTS = ["trouble", "name", "held", "left", "line"];
const KINDS = [
  ["", "All"],
  ["lock", "Locks"],
  ["election", "Leaders"],
  ["once", "Onces"],
];

// What outlives the view: whoever comes back to it sees what was there.
const memory = { filter: { q: "", kind: "", sort: "trouble", only: "" }, reading: null, waiting: [], selected: null };

export class NowView {
  title = "";
  every = 2000;

  constructor(frame, root, query) {
    this.frame = frame;
    this.root = root;
    this.tools = document.createElement("div");
    this.table = document.createElement("div");
    this.foot = document.createElement("footer");
    this.tools.className = "tools";
    this.table.className = "table-frame";
    this.foot.className = "foot";
    root.append(this.tools, this.table, this.foot);
    this.list = new List(this.table, {
      label: "Names",
      columns: COLUMNS,
      cells: (entry) => cells(entry, this.now),
      rowClass: (entry) => entry.found[0] ?? "",
      link: (entry) => frame.nameLink(entry.kind, entry.name),
      open: (entry) => frame.go(frame.nameLink(entry.kind, entry.name)),
      sort: (word) => this.set({ sort: word }),
    });
    this.list.selected = memory.selected;
    this.arrive(query);
  }

  /** The filter is in the address, so that a link shows the same. */
  arrive(query) {
    const params = new URLSearchParams(query);
    if (!query) return;
    const { filter } = memory;
    filter.q = params.get("q") ?? "";
    filter.kind = KINDS.some(([kind]) => kind === params.get("kind")) ? params.get("kind") : "";
    filter.sort = SORTS.includes(params.get("sort")) ? params.get("sort") : "trouble";
    filter.only = params.get("only") === "any" || TROUBLE[params.get("only")] ? params.get("only") : "";
  }

  set(change) {
    Object.assign(memory.filter, change);
    const { q, kind, sort, only } = memory.filter;
    const params = new URLSearchParams();
    if (q) params.set("q", q);
    if (kind) params.set("kind", kind);
    if (sort !== "trouble") params.set("sort", sort);
    if (only) params.set("only", only);
    const query = params.toString();
    history.replaceState(null, "", query ? `#/now?${query}` : "#/now");
    this.list.toTop();
    this.frame.draw();
  }

  leave() {
    memory.selected = this.list.selected;
    this.list.end();
    this.root.replaceChildren();
  }

  focus() {
    if (this.frame.searchNext) this.search();
    else this.list.focus();
    this.frame.searchNext = false;
  }

  search() {
    const field = document.getElementById("search");
    field.focus();
    field.select();
  }

  /** Reads the whole list; if it is too long for that, the worst of it as well. */
  async refresh(signal) {
    const began = performance.now();
    store.beginSweep();
    const parts = await Promise.all(Object.entries(MOST).map(([kind, most]) => this.read(kind, most, signal)));
    memory.reading = { isWhole: parts.every(Boolean), at: began };
  }

  /** Reads the names of a kind; false if there are too many. */
  async read(kind, most, signal) {
    const began = performance.now();
    let [after, many] = [undefined, 0];
    do {
      const at = performance.now();
      const page = await get("v1/names", { kind, sort: "name", limit: PAGE, after }, signal);
      store.page(page.names, at);
      after = page.next;
      many += page.names.length;
      if (memory.reading == null) this.frame.draw();
    } while (after && many < most);
    if (after == null) {
      store.endSweep(kind, began);
      return true;
    }
    const at = performance.now();
    for (const query of [{ sort: "held" }, { sort: "waiting", state: "waiting" }]) {
      const page = await get("v1/names", { kind, limit: PAGE, ...query }, signal);
      store.page(page.names, at);
    }
    return false;
  }

  draw(now) {
    this.now = now;
    const { filter } = memory;
    // A once that nobody runs is known only because somebody looked at its page.
    const all = [...store.names.values()].filter((entry) => entry.holders.length > 0 || entry.waiters.length > 0);
    const counts = Object.fromEntries(Object.keys(TROUBLE).map((what) => [what, 0]));
    const fits = search(filter.q);
    const rows = [];
    for (const entry of all) {
      entry.found = troubles(entry, now);
      entry.found.forEach((what) => (counts[what] += 1));
      if (filter.kind && space(entry.kind) !== filter.kind) continue;
      if (filter.only && !(filter.only === "any" ? entry.found.length > 0 : entry.found.includes(filter.only)))
        continue;
      if (filter.q && !fits(entry)) continue;
      rows.push(entry);
    }
    sort(rows, filter.sort);
    this.sample(now, totals(all, now));
    this.drawTools(counts);
    this.list.draw(rows, filter.sort);
    if (rows.length === 0)
      this.list.empty(
        memory.reading == null ? "Reading…" : all.length === 0 ? "Nothing is held, and nobody waits." : "No name fits.",
      );
    this.drawFoot(rows.length, all.length);
  }

  sample(now, sum) {
    this.sum = sum;
    const last = memory.waiting.at(-1);
    if (memory.reading && (!last || now - last.at >= SAMPLE_EVERY)) memory.waiting.push({ at: now, many: sum.waiting });
    if (memory.waiting.length > 180) memory.waiting.shift();
  }

  drawTools(counts) {
    const { filter } = memory;
    const { names, held, waiting, oldestWait } = this.sum;
    const some = memory.reading && !memory.reading.isWhole ? "+" : "";
    const figure = (label, value, more) => h("div", { class: "figure" }, h("dt", {}, label), h("dd", {}, value, more));
    const any = Object.values(counts).some((many) => many > 0);
    render(
      this.tools,
      h("h1", { class: "unseen" }, "Now"),
      h(
        "dl",
        { class: "figures" },
        figure("Names", names.toLocaleString("en") + some),
        figure("Held", held.toLocaleString("en") + some),
        figure(
          "Waiting",
          waiting.toLocaleString("en") + some,
          sparkline(
            memory.waiting.map((one) => one.many),
            "waiting, since this page was opened",
          ),
        ),
        figure("Oldest wait", oldestWait == null ? "–" : span(oldestWait)),
      ),
      h(
        "div",
        { class: "chips", role: "group", "aria-label": "Trouble" },
        any ? null : h("span", { class: "calm" }, memory.reading ? "No trouble" : ""),
        Object.entries(counts)
          .filter(([what, many]) => many > 0 || filter.only === what)
          .map(([what, many]) =>
            h(
              "button",
              {
                key: what,
                type: "button",
                class: `chip ${what}`,
                title: TROUBLE[what].about,
                "aria-pressed": String(filter.only === what),
                onclick: () => this.set({ only: filter.only === what ? "" : what }),
              },
              h("b", {}, many.toLocaleString("en")),
              ` ${(many !== 1 && TROUBLE[what].many) || TROUBLE[what].label}`,
            ),
          ),
      ),
      h(
        "div",
        { class: "filters" },
        h("input", {
          id: "search",
          type: "search",
          placeholder: "Name, owner, host, reason",
          "aria-label": "Search",
          autocomplete: "off",
          spellcheck: "false",
          value: filter.q,
          oninput: (event) => this.set({ q: event.target.value }),
        }),
        h("kbd", { class: "search-key", "aria-hidden": "true" }, "/"),
        h(
          "div",
          { class: "segments", role: "group", "aria-label": "Kind" },
          KINDS.map(([kind, label]) =>
            h(
              "button",
              {
                key: kind,
                type: "button",
                "aria-pressed": String(filter.kind === kind),
                onclick: () => this.set({ kind }),
              },
              label,
            ),
          ),
        ),
        h(
          "button",
          {
            type: "button",
            class: "toggle",
            "aria-pressed": String(filter.only !== ""),
            onclick: () => this.set({ only: filter.only ? "" : "any" }),
            title: "key o",
          },
          "Only trouble",
        ),
        mayBreak()
          ? h(
              "button",
              { type: "button", class: "danger quiet", onclick: () => this.breakMany(), title: "key B" },
              "Break many…",
            )
          : null,
        h(
          "label",
          { class: "sort" },
          h("span", {}, "Sort"),
          h(
            "select",
            {
              value: filter.sort,
              onchange: (event) => this.set({ sort: event.target.value }),
              created: (element) => (element.value = filter.sort),
            },
            SORTS.map((word) => h("option", { key: word, value: word }, word)),
          ),
        ),
      ),
    );
  }

  drawFoot(shown, all) {
    const { reading } = memory;
    const part = shown === all ? count(all, "name") : `${shown.toLocaleString("en")} of ${count(all, "name")}`;
    const how =
      reading == null
        ? "reading…"
        : reading.isWhole
          ? ""
          : "There are more: of those only the oldest holds and the longest lines are here.";
    render(
      this.foot,
      h("span", {}, part),
      how ? h("span", {}, how) : null,
      h(
        "span",
        { class: "hints" },
        h("kbd", {}, "j"),
        h("kbd", {}, "k"),
        " choose ",
        h("kbd", {}, "enter"),
        " open ",
        h("kbd", {}, "?"),
        " help",
      ),
    );
  }

  breakMany() {
    breakMany(memory.filter.kind || "lock", (text, isBad) => {
      this.frame.notice(text, isBad);
      lookNow();
    });
  }

  key(event, isTyping) {
    if (isTyping) {
      if (event.target.id !== "search") return false;
      if (event.key === "Escape") {
        if (memory.filter.q) this.set({ q: "" });
        else this.list.focus();
        return true;
      }
      if (event.key === "Enter" || event.key === "ArrowDown") {
        this.list.focus();
        return true;
      }
      return false;
    }
    if (event.key === "s") this.set({ sort: SORTS[(SORTS.indexOf(memory.filter.sort) + 1) % SORTS.length] });
    else if (event.key === "o") this.set({ only: memory.filter.only ? "" : "any" });
    else if (event.key === "B") mayBreak() ? this.breakMany() : this.frame.notice(whyNot(), true);
    else if (event.key === "Escape" && (memory.filter.q || memory.filter.only || memory.filter.kind))
      this.set({ q: "", only: "", kind: "" });
    else return this.list.key(event);
    return true;
  }
}

/** Sorts rows; equal ones stay in the order of their names. */
function sort(rows, word) {
  const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  const since = (one) => one?.since ?? Infinity;
  const orders = {
    trouble: (a, b) =>
      b.score - a.score || since(a.waits) - since(b.waits) || since(a.oldest) - since(b.oldest) || byName(a, b),
    name: byName,
    held: (a, b) => since(a.oldest) - since(b.oldest) || byName(a, b),
    left: (a, b) => (a.least?.left ?? Infinity) - (b.least?.left ?? Infinity) || byName(a, b),
    line: (a, b) => b.waiters.length - a.waiters.length || since(a.first) - since(b.first) || byName(a, b),
  };
  if (word === "trouble") {
    for (const row of rows) {
      row.score = weight(row.found);
      // Candidates of an election wait for as long as all is well.
      row.waits = row.word === "leader" ? null : row.first;
    }
  }
  rows.sort(orders[word]);
}

const COLUMNS = [
  { word: "name", label: "Name", sort: "name" },
  { word: "state", label: "State" },
  { word: "owner", label: "Holder" },
  { word: "held", label: "Held", sort: "held", number: true },
  { word: "left", label: "Left", sort: "left", number: true },
  { word: "line", label: "In line", sort: "line", number: true },
  { word: "oldest", label: "Oldest wait", number: true },
  { word: "note", label: "Note" },
];

function cells(entry, now) {
  const { oldest, least, holders, waiters, first, found } = entry;
  const others = holders.length > 1 ? h("span", { class: "dim" }, ` +${holders.length - 1}`) : null;
  const note = [oldest?.value, oldest?.reason].filter(Boolean).join(", ");
  return {
    name: [
      h("span", { class: "name-text" }, say(entry.name)),
      found.length > 0
        ? h(
            "span",
            { class: `tag ${found[0]}`, title: found.map((what) => TROUBLE[what].label).join(", ") },
            TROUBLE[found[0]].label,
            found.length > 1 ? ` +${found.length - 1}` : "",
          )
        : null,
    ],
    state: [
      h("span", { class: "kind" }, entry.word),
      h("span", { class: `state ${entry.weight > 0 ? "on" : "off"}` }, state(entry)),
      entry.word === "sem" ? meter(entry) : null,
    ],
    owner: oldest ? [say(oldest.owner), others] : h("span", { class: "dim" }, "–"),
    held: oldest ? span(now - oldest.since) : "",
    left: least ? [bar(least), h("span", { class: "left-text" }, span(least.left))] : "",
    line: waiters.length > 0 ? waiters.length.toLocaleString("en") : "",
    oldest: first ? span(now - first.since) : "",
    note: note ? say(note) : "",
  };
}

/** What is left of the ttl, as a bar, if the ttl is known. */
function bar(holder) {
  if (holder.ttl == null) return null;
  const share = Math.min(1, holder.left / holder.ttl);
  return h(
    "span",
    { class: `bar ${isLate(holder) ? "low" : ""}`, "aria-hidden": "true" },
    h("span", { style: { width: `${Math.round(share * 100)}%` } }),
  );
}

function meter(entry) {
  const share = Math.min(1, entry.weight / entry.capacity);
  return h(
    "span",
    { class: "meter", "aria-hidden": "true" },
    h("span", { style: { width: `${Math.round(share * 100)}%` } }),
  );
}
