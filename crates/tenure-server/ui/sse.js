// Reads a stream of events (`text/event-stream`) that arrives in pieces.

/** Calls `tell` with `{ event, id, data }` for every event in the pieces that it is fed. */
export class EventReader {
  #tell;
  #rest = "";
  #event = "";
  #id = null;
  #data = [];

  constructor(tell) {
    this.#tell = tell;
  }

  feed(text) {
    // A piece may end between the two characters of a line break.
    const held = this.#rest + text;
    const whole = held.endsWith("\r") ? held.slice(0, -1) : held;
    const lines = whole.split(/\r\n|\n|\r/);
    this.#rest = lines.pop() + (held.endsWith("\r") ? "\r" : "");
    lines.forEach((line) => this.#line(line));
  }

  #line(line) {
    if (line === "") {
      if (this.#data.length > 0)
        this.#tell({ event: this.#event || "message", id: this.#id, data: this.#data.join("\n") });
      this.#event = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#event = value;
    if (field === "data") this.#data.push(value);
    if (field === "id") this.#id = value;
  }
}
