// A table of any length: only the rows that can be seen are in the page.

import { h, render } from "../dom.js";

/** Rows above and below what is seen. */
const SPARE = 8;

export class List {
  selected = null;
  #rows = [];
  #options;
  #scroll;
  #header;
  #body;
  #resize;
  #sorted = "";
  #height = 32;
  #waits = false;

  /** `options`: label, columns, cells(row), rowClass(row), link(row), open(row), sort(word). A row has a `key`. */
  constructor(frame, options) {
    this.#options = options;
    this.#scroll = document.createElement("div");
    this.#scroll.className = "grid";
    this.#scroll.tabIndex = 0;
    this.#scroll.setAttribute("role", "grid");
    this.#scroll.setAttribute("aria-label", options.label);
    this.#scroll.setAttribute("aria-readonly", "true");
    this.#header = document.createElement("div");
    this.#header.className = "grid-head";
    this.#header.setAttribute("role", "rowgroup");
    this.#body = document.createElement("div");
    this.#body.className = "grid-body";
    this.#body.setAttribute("role", "rowgroup");
    this.#scroll.append(this.#header, this.#body);
    frame.append(this.#scroll);
    this.#scroll.addEventListener("scroll", () => this.#later(), { passive: true });
    this.#resize = new ResizeObserver(() => this.#later());
    this.#resize.observe(this.#scroll);
  }

  end() {
    this.#resize.disconnect();
  }

  focus() {
    this.#scroll.focus({ preventScroll: true });
  }

  toTop() {
    this.#scroll.scrollTop = 0;
  }

  draw(rows, sorted) {
    this.#rows = rows;
    this.#sorted = sorted;
    this.#window();
  }

  empty(text) {
    render(this.#body, h("p", { class: "empty" }, text));
  }

  key(event) {
    const at = this.#rows.findIndex((row) => row.key === this.selected);
    const page = Math.max(1, Math.floor(this.#scroll.clientHeight / this.#height) - 2);
    const steps = {
      j: 1,
      ArrowDown: 1,
      k: -1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    const isButton = event.target.matches?.("button, a, summary");
    if (event.key in steps) {
      const next = at < 0 && Number.isFinite(steps[event.key]) ? 0 : Math.max(0, at) + steps[event.key];
      this.#select(Math.max(0, Math.min(this.#rows.length - 1, next)));
    } else if (event.key === "Enter" && at >= 0 && !isButton) {
      this.#options.open(this.#rows[at]);
    } else {
      return false;
    }
    return true;
  }

  #select(index) {
    this.selected = this.#rows[index]?.key ?? null;
    const top = index * this.#height;
    const room = this.#scroll.clientHeight - this.#header.offsetHeight;
    if (top < this.#scroll.scrollTop) this.#scroll.scrollTop = top;
    else if (top + this.#height > this.#scroll.scrollTop + room) this.#scroll.scrollTop = top + this.#height - room;
    this.#window();
    this.focus();
  }

  #later() {
    if (this.#waits) return;
    this.#waits = true;
    requestAnimationFrame(() => {
      this.#waits = false;
      if (this.#rows.length > 0) this.#window();
    });
  }

  #window() {
    const { columns, cells, rowClass, link, sort } = this.#options;
    // The style sheet says how high a row is, since that depends on the width of the page.
    this.#height = parseFloat(getComputedStyle(this.#scroll).getPropertyValue("--row")) || 32;
    const from = Math.max(0, Math.floor(this.#scroll.scrollTop / this.#height) - SPARE);
    const to = Math.min(
      this.#rows.length,
      Math.ceil((this.#scroll.scrollTop + this.#scroll.clientHeight) / this.#height) + SPARE,
    );
    this.#scroll.setAttribute("aria-rowcount", String(this.#rows.length + 1));
    this.#scroll.setAttribute("aria-colcount", String(columns.length));
    this.#body.style.setProperty("height", `${this.#rows.length * this.#height}px`);
    let active = "";
    const shown = this.#rows.slice(from, to).map((row, offset) => {
      const index = from + offset;
      const id = `row-${index}`;
      const isSelected = row.key === this.selected;
      if (isSelected) active = id;
      const parts = cells(row);
      return h(
        "div",
        {
          key: row.key,
          id,
          role: "row",
          class: `row ${rowClass(row)}`,
          "aria-rowindex": index + 2,
          "aria-selected": String(isSelected),
          style: { transform: `translateY(${index * this.#height}px)` },
          onclick: (event) => this.#click(event, row),
        },
        columns.map(({ word, number }) =>
          h(
            "div",
            { role: "gridcell", class: `cell ${word} ${number ? "number" : ""}` },
            word === "name" ? h("a", { href: link(row), tabindex: -1 }, parts.name) : parts[word],
          ),
        ),
      );
    });
    const header = columns.map(({ word, label, number, sort: by }) =>
      h(
        "div",
        {
          role: "columnheader",
          class: `cell ${word} ${number ? "number" : ""}`,
          "aria-sort": by
            ? by === this.#sorted
              ? by === "name" || by === "left"
                ? "ascending"
                : "descending"
              : "none"
            : null,
        },
        by
          ? h(
              "button",
              { type: "button", tabindex: -1, onclick: () => sort(by === this.#sorted ? "trouble" : by) },
              label,
            )
          : label,
      ),
    );
    render(this.#header, h("div", { role: "row", class: "row", "aria-rowindex": 1 }, header));
    render(this.#body, shown);
    if (active) this.#scroll.setAttribute("aria-activedescendant", active);
    else this.#scroll.removeAttribute("aria-activedescendant");
  }

  #click(event, row) {
    if (event.target.closest("a, button") || getSelection()?.toString()) return;
    this.selected = row.key;
    this.#options.open(row);
  }
}
