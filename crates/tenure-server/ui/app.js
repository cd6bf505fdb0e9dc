// The frame of the page: the current view, the head, the keys, the theme, notices.

import { server, token } from "./api.js";
import { access, learnAccess } from "./access.js";
import { askForToken, help, isDialogOpen } from "./dialogs.js";
import { h, render } from "./dom.js";
import { space } from "./facts.js";
import * as live from "./live.js";
import { precise, span, visible } from "./text.js";
import { BlockedView } from "./views/blocked.js";
import { EventsView } from "./views/events.js";
import { HealthView } from "./views/health.js";
import { NameView } from "./views/name.js";
import { NowView } from "./views/now.js";

const VIEWS = [
  ["now", "Now"],
  ["blocked", "Blocked by"],
  ["events", "Events"],
  ["health", "Health"],
];
const KINDS = { name: "lock", leader: "election", once: "once" };
const THEMES = ["auto", "light", "dark"];
/** After this long, what is shown counts as old. */
const STALE = 10_000;

const head = document.getElementById("head");
const main = document.getElementById("view");
const makers = { now: NowView, blocked: BlockedView, events: EventsView, health: HealthView };
let view = null;
let page = "";
let asked = false;

/** The address of a name. */
export function nameLink(kind, name) {
  const word = { lock: "name", election: "leader", once: "once" }[space(kind)];
  return `#/${word}/${encodeURIComponent(name)}`;
}

const frame = {
  nameLink,
  go: (address) => (location.hash = address),
  draw: schedule,
  notice,
};

function route() {
  const [, word = "now", rest = ""] = /^#\/([a-z]+)(?:[/?](.*))?$/s.exec(location.hash) ?? [];
  const next = KINDS[word] && rest ? `${word}/${rest}` : makers[word] ? word : "now";
  if (next === page) {
    view.arrive?.(rest);
    return schedule();
  }
  page = next;
  view?.leave?.();
  render(main);
  main.className = `view-${KINDS[word] && rest ? "name" : next}`;
  view =
    KINDS[word] && rest ? new NameView(frame, main, KINDS[word], decoded(rest)) : new makers[next](frame, main, rest);
  main.scrollTop = 0;
  // Whatever can be scrolled can be focused, too; the list of names scrolls by itself.
  main.tabIndex = next === "now" ? -1 : 0;
  live.show(view);
  draw();
  view.focus?.();
}

/** A link that somebody typed need not be encoded. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

let scheduled = false;
function schedule() {
  if (scheduled || document.hidden) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    draw();
  });
}

function draw() {
  const began = performance.now();
  drawHead(began);
  view.draw(began);
  const title = view.title ? `${visible(view.title)} · tenure` : "tenure";
  if (document.title !== title) document.title = title;
  performance.clearMeasures("tenure:update");
  performance.measure("tenure:update", { start: began });
}

function drawHead(now) {
  if (live.status.problem?.status === 401 && !asked && !isDialogOpen()) {
    asked = true;
    askForToken(changeToken, live.status.problem.message);
  }
  const current = makers[page] ? page : "now";
  render(
    head,
    h(
      "a",
      { class: "brand", href: "#/now", "aria-label": "tenure" },
      h(
        "svg",
        { viewBox: "0 0 32 32", class: "mark", "aria-hidden": "true" },
        h("rect", { width: 32, height: 32, rx: 7 }),
        h("path", { d: "M8 10h16M16 10v13" }),
        h("circle", { cx: 24, cy: 22.5, r: 2.6 }),
      ),
      "tenure",
    ),
    h(
      "nav",
      { "aria-label": "Views" },
      VIEWS.map(([word, label], index) =>
        h(
          "a",
          { key: word, href: `#/${word}`, "aria-current": word === current ? "page" : null, title: `key ${index + 1}` },
          label,
        ),
      ),
    ),
    h(
      "div",
      { class: "status" },
      h(
        "span",
        { class: `as-of ${freshness(now)}`, title: streamTitle() },
        h("span", { class: "dot", "aria-hidden": "true" }),
        asOf(now),
      ),
      h(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-pressed": String(live.status.paused),
          onclick: togglePause,
          title: "key p",
        },
        live.status.paused ? "Resume" : "Pause",
      ),
      h(
        "button",
        { type: "button", class: "quiet", onclick: () => askForToken(changeToken), title: roleTitle() },
        role(),
      ),
      h(
        "button",
        {
          type: "button",
          class: "quiet icon",
          onclick: nextTheme,
          "aria-label": `Theme: ${theme()}`,
          title: `Theme: ${theme()} (key t)`,
        },
        { auto: "◐", light: "○", dark: "●" }[theme()],
      ),
      h(
        "button",
        {
          type: "button",
          class: "quiet icon",
          onclick: help,
          "aria-label": "Keys and what the words mean",
          title: "key ?",
        },
        "?",
      ),
    ),
    banner(),
  );
}

function freshness(now) {
  const asOf = dataFrom();
  if (live.status.paused) return "paused";
  if (live.status.problem) return "failed";
  if (live.status.stream === "broken" || (asOf != null && now - asOf > STALE)) return "late";
  return asOf == null ? "opening" : "fresh";
}

/** The time of the shown data: what comes by the stream is as new as its last sign of life. */
function dataFrom() {
  return view.isStream ? live.status.heard : live.status.asOf;
}

function asOf(now) {
  const { paused, stream } = live.status;
  const asOf = dataFrom();
  const words = paused ? "paused" : stream === "open" ? "live" : stream === "broken" ? "no stream" : "…";
  return asOf == null ? words : `${words} · as of ${now - asOf < 1000 ? "now" : `${span(now - asOf)} ago`}`;
}

function streamTitle() {
  const why = live.status.streamProblem ? ` (${live.status.streamProblem})` : "";
  const trip = server.roundTrip == null ? "" : `; the last answer took ${precise(server.roundTrip)}`;
  return `stream of events: ${live.status.stream}${why}${trip}`;
}

function role() {
  if (access.roles == null) return token() ? "token" : "read-only";
  return access.roles.includes("admin") ? "may break" : "read-only";
}

function roleTitle() {
  if (access.roles == null) return "Enter a token";
  if (access.open) return `this server asks for no token; pages may: ${access.roles.join(", ")}`;
  return `token ${visible(access.name)}: ${access.roles.join(", ")}`;
}

function banner() {
  const { problem } = live.status;
  if (server.engineChanged) {
    return h(
      "p",
      { class: "banner bad", role: "alert" },
      "The engine behind this server is another one than before. Holds of the old one are lost. ",
      h("button", { type: "button", class: "quiet", onclick: () => location.reload() }, "Start again"),
    );
  }
  if (!problem || problem.status === 404) return null;
  const what =
    problem.status === 401
      ? "This server wants a token."
      : problem.status === 403
        ? "This token does not allow to look."
        : `No answer: ${visible(problem.message)}`;
  return h(
    "p",
    { class: "banner bad", role: "alert" },
    `${what} ${live.status.asOf == null ? "" : "What you see is old."} `,
    problem.status === 401 || problem.status === 403
      ? h("button", { type: "button", class: "quiet", onclick: () => askForToken(changeToken) }, "Enter a token")
      : h("button", { type: "button", class: "quiet", onclick: live.now }, "Try now"),
  );
}

function changeToken() {
  learnAccess().then(schedule);
  live.again();
  schedule();
}

function togglePause() {
  live.pause(!live.status.paused);
}

function theme() {
  return document.documentElement.dataset.theme;
}

function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  schedule();
}

function setTheme(word) {
  document.documentElement.dataset.theme = THEMES.includes(word) ? word : "auto";
  localStorage.setItem("tenure.theme", theme());
}

let noticeTimer;
/** Shows a notice for a while; a bad one stays longer. */
function notice(text, isBad = false) {
  render(document.getElementById("notice"), h("p", { class: isBad ? "bad" : "good" }, text));
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => render(document.getElementById("notice")), isBad ? 15_000 : 6_000);
}

const KEYS = {
  p: togglePause,
  t: nextTheme,
  r: () => live.now(),
  "?": help,
  "/": () => (view.search ? view.search() : ((frame.searchNext = true), frame.go("#/now"))),
};

function keydown(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen()) return;
  const isTyping = event.target.matches?.("input, textarea, select");
  if (view.key?.(event, isTyping)) return event.preventDefault();
  if (isTyping) return;
  const number = VIEWS[Number(event.key) - 1];
  if (number) frame.go(`#/${number[0]}`);
  else if (event.key === "Escape" && page !== "now") frame.go("#/now");
  else if (KEYS[event.key]) KEYS[event.key]();
  else return;
  event.preventDefault();
}

setTheme(localStorage.getItem("tenure.theme"));
document.addEventListener("keydown", keydown);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", schedule);
// Ages grow while nothing happens.
setInterval(() => {
  if (live.status.paused) return;
  schedule();
  // Asks whether this page may break anything, if the server was away when that was asked before.
  if (access.roles == null && live.status.asOf != null && !live.status.problem) learnAccess().then(schedule);
}, 1000);
live.start(schedule);
learnAccess().then(schedule);
route();
