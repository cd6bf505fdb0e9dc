// Events: what this server has seen, the latest first. It is not the whole truth; gaps are shown.

import { h, render, say } from "../dom.js";
import { status, store } from "../live.js";
import { count, span, timeOfDay } from "../text.js";

const WORDS = {
  granted: ["granted", "good"],
  waiting: ["waits", ""],
  released: ["released", ""],
  settled: ["settled", ""],
  quit: ["left the line", ""],
  gone: ["expired", "warn"],
  broken: ["broken", "bad"],
  gap: ["gap", "warn"],
};
const SHOWN = 300;
const memory = { q: "", kinds: new Set() };

/** One event; `link` returns the address of its name, and is null where all are about one name. */
export function eventRow(event, now, link) {
  const [word, tone] = WORDS[event.event] ?? [event.event, ""];
  const at = new Date(Date.now() - (now - event.at));
  if (event.event === "gap") {
    return h(
      "li",
      { key: `gap ${event.at}`, class: "gap" },
      `Events are missing here: the page was away, or the server was restarted (${timeOfDay(at)})`,
    );
  }
  return h(
    "li",
    { key: String(event.id), class: "event" },
    h("time", { title: at.toISOString() }, timeOfDay(at)),
    h("span", { class: "ago" }, now - event.at < 1000 ? "now" : span(now - event.at)),
    h("span", { class: `what ${tone}` }, word),
    link ? h("a", { href: link(event.kind, event.name), class: "mono name" }, say(event.name)) : null,
    h(
      "span",
      { class: "owner" },
      event.event === "broken" ? h("span", { class: "dim" }, "by ") : null,
      say(event.owner, { class: "mono" }),
    ),
    h("span", { class: "mono fence dim" }, event.fence == null ? "" : String(event.fence)),
    event.note ? say(event.note, { class: "note" }) : null,
  );
}

export class EventsView {
  title = "Events";
  isStream = true;
  every = 3_600_000;

  constructor(frame, root) {
    Object.assign(this, { frame, root });
  }

  leave() {
    render(this.root);
  }

  /** Everything comes by the stream. */
  async refresh() {}

  search() {
    document.getElementById("search").focus();
  }

  key(event, isTyping) {
    if (!isTyping || event.key !== "Escape") return false;
    memory.q = "";
    this.frame.draw();
    this.root.focus();
    return true;
  }

  draw(now) {
    const wanted = memory.q.toLowerCase();
    const fits = (event) =>
      event.event === "gap" ||
      ((memory.kinds.size === 0 || memory.kinds.has(event.event)) &&
        (!wanted || `${event.name}\n${event.owner}\n${event.note ?? ""}`.toLowerCase().includes(wanted)));
    const found = store.events.filter(fits);
    const lastMinute = store.events.filter((event) => now - event.at < 60_000).length;
    const toggle = (word) => () => {
      if (!memory.kinds.delete(word)) memory.kinds.add(word);
      this.frame.draw();
    };
    render(
      this.root,
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Events"),
        h(
          "p",
          { class: "dim" },
          "What this server has seen since the page was opened; another server has seen other things. ",
          status.paused
            ? "Paused: what happens meanwhile is read when you go on."
            : `${count(lastMinute, "event")} in the last minute.`,
          store.gaps > 0 ? ` ${count(store.gaps, "gap")}.` : "",
        ),
      ),
      h(
        "div",
        { class: "filters" },
        h("input", {
          id: "search",
          type: "search",
          placeholder: "Name, owner, note",
          "aria-label": "Search",
          autocomplete: "off",
          spellcheck: "false",
          value: memory.q,
          oninput: (event) => ((memory.q = event.target.value), this.frame.draw()),
        }),
        h("kbd", { class: "search-key", "aria-hidden": "true" }, "/"),
        h(
          "div",
          { class: "segments", role: "group", "aria-label": "Event" },
          Object.entries(WORDS)
            .filter(([word]) => word !== "gap")
            .map(([word, [label]]) =>
              h(
                "button",
                { key: word, type: "button", "aria-pressed": String(memory.kinds.has(word)), onclick: toggle(word) },
                label,
              ),
            ),
        ),
      ),
      found.length === 0
        ? h("p", { class: "empty" }, status.stream === "open" ? "Nothing has happened yet." : "The stream is not open.")
        : null,
      h(
        "ol",
        { class: "events wide" },
        found
          .slice(-SHOWN)
          .reverse()
          .map((event) => eventRow(event, now, this.frame.nameLink)),
      ),
      found.length > SHOWN
        ? h(
            "p",
            { class: "dim" },
            `The last ${SHOWN} of ${found.length.toLocaleString("en")} that this page remembers.`,
          )
        : null,
    );
  }
}
