// Requests to the server that this page comes from. The token is kept for this tab alone, and travels in a header.

import { EventReader } from "./sse.js";

const TOKEN = "tenure.token";
const ROOT = new URL("../", document.baseURI);
/** A stream that says nothing for this long is dead. */
const SILENCE = 12_000;

/** What the answers say about the server itself. */
export const server = { engine: null, engineChanged: false, roundTrip: null };

/** An answer other than success, or none at all (`status` 0). */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the server answered ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.body = body;
  }
}

export function token() {
  return sessionStorage.getItem(TOKEN) ?? "";
}

export function setToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

/** Sends a GET and returns the JSON. */
export async function get(path, query = {}, signal) {
  const response = await ask(path, query, { signal });
  return response.json();
}

/** Sends a GET and returns the text. */
export async function getText(path, signal) {
  const response = await ask(path, {}, { signal });
  return response.text();
}

/** Sends a POST and returns the JSON, or null if there is none. */
export async function post(path, body) {
  const headers = { "content-type": "application/json" };
  const response = await ask(path, {}, { method: "POST", headers, body: JSON.stringify(body) });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/**
 * Reads the events after `lastId` until the stream ends. `alive` is called when the stream opens, and when something
 * arrives.
 */
export async function stream(lastId, signal, alive, tell) {
  const cut = new AbortController();
  const stop = () => cut.abort(signal.reason);
  signal.addEventListener("abort", stop);
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => cut.abort(new Error("the stream was silent for 12 s")), SILENCE);
  };
  try {
    heard();
    const headers = lastId == null ? {} : { "last-event-id": String(lastId) };
    const response = await ask("v1/events", {}, { signal: cut.signal, headers });
    alive();
    const reader = new EventReader(tell);
    const decoder = new TextDecoder();
    for (const body = response.body.getReader(); ;) {
      const { value, done } = await body.read();
      if (done) return;
      heard();
      alive();
      reader.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

async function ask(path, query, options) {
  const url = new URL(path, ROOT);
  for (const [field, value] of Object.entries(query)) {
    if (value != null && value !== "") url.searchParams.set(field, value);
  }
  const headers = { ...options.headers };
  if (token()) headers.authorization = `Bearer ${token()}`;
  const began = performance.now();
  let response;
  try {
    response = await fetch(url, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (options.signal?.aborted) throw options.signal.reason ?? error;
    throw new Problem(0, { detail: "the server does not answer" });
  }
  server.roundTrip = performance.now() - began;
  const engine = response.headers.get("tenure-engine");
  if (engine) {
    server.engineChanged ||= server.engine != null && server.engine !== engine;
    server.engine = engine;
  }
  if (!response.ok) throw new Problem(response.status, await problem(response));
  return response;
}

async function problem(response) {
  try {
    return await response.json();
  } catch {
    return { detail: `the server answered ${response.status}` };
  }
}
