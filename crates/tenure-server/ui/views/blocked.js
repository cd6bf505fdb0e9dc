// Blocked: who waits for whom, is there one root of it all, is there a circle?

import { get } from "../api.js";
import { h, render, say } from "../dom.js";
import { entry } from "../facts.js";
import { blocked } from "../graph.js";
import { count, span, visible } from "../text.js";

const PAGE = 1000;
const MOST_PAGES = 5;
/** How many trees, and how many waiters of one owner, are shown until more are requested. */
const SOME = 12;
const MOST = 300;
const ABOUT =
  "An owner is who its holds say it is: a process, or a token and an address. Candidates of elections are left out.";

export class BlockedView {
  title = "Blocked by";
  every = 2000;

  constructor(frame, root) {
    Object.assign(this, { frame, root, found: null, more: new Set() });
  }

  leave() {
    render(this.root);
  }

  focus() {
    this.root.focus({ preventScroll: true });
  }

  async refresh(signal) {
    const found = [];
    let isWhole = true;
    // Candidates of an election wait for as long as all is well.
    for (const kind of ["lock", "once"]) {
      let [after, pages] = [undefined, 0];
      do {
        const at = performance.now();
        const page = await get("v1/names", { kind, state: "waiting", sort: "name", limit: PAGE, after }, signal);
        for (const view of page.names) found.push(entry(view, at));
        after = page.next;
        pages += 1;
      } while (after && pages < MOST_PAGES);
      isWhole &&= after == null;
    }
    const waiting = found.reduce((sum, one) => sum + one.waiters.length, 0);
    this.found = { ...blocked(found, performance.now()), waiting, isWhole };
  }

  draw() {
    if (this.found == null) return render(this.root, h("p", { class: "dim" }, "Reading…"));
    const { trees, circles, waiting, isWhole } = this.found;
    render(
      this.root,
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Blocked by"),
        h(
          "p",
          { class: "dim" },
          trees.length === 0
            ? "Nobody waits for anybody."
            : `${count(waiting, "claim waits", "claims wait")} for ${count(trees.length, "owner")}. ${ABOUT}`,
          isWhole ? "" : ` Only the first ${PAGE * MOST_PAGES} names with a line are here.`,
        ),
      ),
      circles.map((circle, index) => this.drawCircle(circle, index)),
      h(
        "div",
        { class: "trees" },
        trees.slice(0, this.more.has("trees") ? MOST : SOME).map((tree) => this.drawTree(tree)),
      ),
      trees.length > SOME && !this.more.has("trees") ? this.moreButton("trees", trees.length) : null,
    );
  }

  drawCircle(circle, index) {
    return h(
      "section",
      { key: `circle ${index}`, class: "card circle", role: "alert" },
      h(
        "h2",
        {},
        h("span", { class: "tag risk" }, "circle"),
        ` ${count(circle.length, "owner waits for another", "owners wait for each other")}: none can go on until a hold ends`,
      ),
      h(
        "ol",
        {},
        circle.map(({ owner, name, kind, holder }) =>
          h(
            "li",
            { key: `${owner} ${name}` },
            say(owner, { class: "mono strong" }),
            " waits for ",
            h("a", { href: this.frame.nameLink(kind, name), class: "mono" }, say(name)),
            ", held by ",
            say(holder, { class: "mono strong" }),
          ),
        ),
      ),
    );
  }

  drawTree(tree) {
    return h(
      "section",
      { key: tree.owner, class: "card tree", "aria-label": visible(tree.owner) },
      h(
        "h2",
        {},
        say(tree.owner, { class: "mono strong" }),
        h("span", { class: "dim" }, ` blocks ${tree.blocks.toLocaleString("en")}, with ${count(tree.holds, "name")}`),
        tree.circle ? h("span", { class: "tag risk" }, "in a circle") : null,
      ),
      this.drawBehind(tree, tree.owner),
    );
  }

  drawBehind(node, path) {
    if (node.behind.length === 0) return null;
    const shown = node.behind.slice(0, this.more.has(path) ? MOST : SOME);
    return h(
      "ul",
      {},
      shown.map((one) => {
        const here = `${path}\n${one.key}\n${one.owner}`;
        return h(
          "li",
          { key: here },
          h(
            "div",
            { class: "edge" },
            say(one.owner, { class: "mono" }),
            one.many > 1 ? h("span", { class: "dim" }, ` ×${one.many}`) : null,
            h("span", { class: "dim" }, " waits "),
            h("b", { class: "waited" }, span(one.longest)),
            h("span", { class: "dim" }, " for "),
            h("a", { href: this.frame.nameLink(one.kind, one.name), class: "mono" }, say(one.name)),
            one.circle ? h("span", { class: "tag risk" }, "circle") : null,
            one.again ? h("span", { class: "dim" }, " (see above)") : null,
          ),
          this.drawBehind(one, here),
        );
      }),
      node.behind.length > SOME && !this.more.has(path)
        ? h("li", { key: "more" }, this.moreButton(path, node.behind.length))
        : null,
    );
  }

  moreButton(what, many) {
    return h(
      "button",
      { type: "button", class: "quiet more", onclick: () => (this.more.add(what), this.frame.draw()) },
      `Show ${(Math.min(MOST, many) - SOME).toLocaleString("en")} more`,
    );
  }
}
