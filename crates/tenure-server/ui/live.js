// Keeps the page up to date: reads the stream of events and requests the active view again and again. Does neither while
// the page is paused or hidden (a browser has six connections to a host).

import * as api from "./api.js";
import { Store } from "./store.js";

const SLOWEST_RETRY = 15_000;
/** The time between two requests for a view is at least this many times as long as its answer takes. */
const SHARE = 8;

export const store = new Store();

/** What the head shows. `asOf` is when the shown data was asked for, `heard` when the stream last said something. */
export const status = { paused: false, stream: "off", asOf: null, heard: null, problem: null, streamProblem: null };

let view = null;
let changed = () => {};
let lastId = null;
let running = null;
let timer = null;

/** Calls `tell` whenever there is something new to show. */
export function start(tell) {
  changed = tell;
  document.addEventListener("visibilitychange", update);
  update();
}

/** Sets which view is requested: `{ every, refresh(signal) }`. */
export function show(next) {
  view = next;
  status.asOf = null;
  status.problem = null;
  restart();
}

export function pause(paused) {
  status.paused = paused;
  update();
  changed();
}

/** Requests the view at once. */
export function now() {
  restart();
}

/** Starts again, with another token. */
export function again() {
  running?.abort(new Error("another token"));
  running = null;
  update();
}

function update() {
  const wanted = !status.paused && !document.hidden;
  if (wanted && !running) {
    running = new AbortController();
    listen(running.signal);
    restart();
  } else if (!wanted && running) {
    running.abort(new Error("not shown"));
    running = null;
    clearTimeout(timer);
    status.stream = "off";
  }
}

let round = 0;
function restart() {
  clearTimeout(timer);
  round += 1;
  if (running && view) refresh(view, running.signal, round, 0);
}

async function refresh(asked, signal, mine, failures) {
  const began = performance.now();
  const isOld = () => signal.aborted || mine !== round;
  let wait;
  try {
    await asked.refresh(signal);
    if (isOld()) return;
    status.problem = null;
    status.asOf = began;
    failures = 0;
    wait = Math.max(asked.every, (performance.now() - began) * SHARE);
  } catch (error) {
    if (isOld()) return;
    if (!(error instanceof api.Problem)) console.error(error);
    status.problem = error;
    failures += 1;
    wait = Math.min(SLOWEST_RETRY, 1000 * 2 ** Math.min(failures - 1, 4));
    // With a wrong token, it continues once there is another one.
    if (error.status === 401 || error.status === 403) wait = SLOWEST_RETRY;
  }
  changed();
  timer = setTimeout(() => refresh(asked, signal, mine, failures), wait);
}

async function listen(signal) {
  for (let failures = 0; !signal.aborted;) {
    status.stream = "opening";
    try {
      await api.stream(
        lastId,
        signal,
        () => {
          Object.assign(status, { stream: "open", streamProblem: null, heard: performance.now() });
          failures = 0;
          changed();
        },
        hear,
      );
      status.streamProblem = "the server closed the stream";
    } catch (error) {
      if (signal.aborted) return;
      status.streamProblem = error.message;
    }
    failures += 1;
    status.stream = "broken";
    changed();
    const wait = Math.min(SLOWEST_RETRY, 500 * 2 ** Math.min(failures, 5)) * (0.8 + Math.random() * 0.4);
    await new Promise((resolve) => {
      const done = setTimeout(resolve, wait);
      signal.addEventListener("abort", () => resolve(clearTimeout(done)), { once: true });
    });
  }
}

let wasOpen = false;
function hear({ event, id, data }) {
  if (event === "ping" || event === "moving") return;
  let said;
  try {
    said = JSON.parse(data);
  } catch {
    return;
  }
  if (event === "hello") {
    // Without the number of an event, the stream cannot continue where it was.
    if (wasOpen && lastId == null) store.event({ event: "gap", at: performance.now() });
    wasOpen = true;
    lastId ??= said.last ?? null;
    return;
  }
  if (id != null && id !== "") lastId = id;
  store.event({ ...said, event, id, at: performance.now() - (said.ago_ms ?? 0) });
  changed();
}
