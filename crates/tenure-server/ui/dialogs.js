// Dialogs over the page: help, the token, and breaking holds.

import { get, post, Problem, setToken, token } from "./api.js";
import { h, render, say } from "./dom.js";
import { breaks, holdsOf, isLate, LONG_LINE, renewedAgo, space, TROUBLE } from "./facts.js";
import { count, precise, span, timeOfDay, visible } from "./text.js";

export function isDialogOpen() {
  return document.querySelector("dialog[open]") != null;
}

/** Opens a dialog; `draw(close, again)` says what is in it. Returns when it is closed. */
function open(label, draw) {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", label);
  const close = () => dialog.close();
  const again = () => render(dialog, draw(close, again));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  again();
  dialog.showModal();
  dialog.querySelector("[data-first]")?.focus();
  return dialog;
}

const KEYS = [
  ["1 2 3 4", "Now, Blocked by, Events, Health"],
  ["/", "search; escape: all"],
  ["j k ↓ ↑", "choose a name; also page up, page down, home, end"],
  ["enter", "all about the name"],
  ["esc", "back"],
  ["s", "sort by trouble, name, held, left or line"],
  ["o", "only trouble"],
  ["b", "on the page of a name: break a hold, after showing what that means"],
  ["B", "on Now: break all holds whose names begin with a text, after showing which"],
  ["p", "pause and resume"],
  ["r", "look again now"],
  ["t", "theme"],
  ["?", "this"],
];

export function help() {
  open("Help", (close) => [
    h("h2", {}, "Keys"),
    h(
      "dl",
      { class: "keys" },
      KEYS.map(([keys, what]) => [
        h(
          "dt",
          {},
          keys.split(" ").map((key) => [h("kbd", {}, key), " "]),
        ),
        h("dd", {}, what),
      ]),
    ),
    h("h2", {}, "Trouble"),
    h(
      "dl",
      { class: "words" },
      Object.entries(TROUBLE).map(([what, { label, about }]) => [
        h("dt", {}, h("span", { class: `tag ${what}` }, label)),
        h("dd", {}, about),
      ]),
    ),
    h(
      "p",
      { class: "dim" },
      "“Left” is what remains of a hold unless it is renewed, as of the last look. A holder renews after a third of its ttl. ",
      "The list is read from the engine. Events and the past are what this one server has seen: another server has seen other things.",
    ),
    h(
      "p",
      { class: "dim" },
      "A search looks at names, owners, hosts, commands and reasons. ",
      h("code", {}, "owner:web"),
      ", ",
      h("code", {}, "host:web-3"),
      " and ",
      h("code", {}, "name:wallet"),
      " look in one place.",
    ),
    h("footer", {}, h("button", { type: "button", onclick: close, "data-first": true }, "Close")),
  ]);
}

/** Asks for a token, and calls `changed` once there is another one. */
export function askForToken(changed, why) {
  const field = () => document.getElementById("token");
  const use = (close, text) => {
    setToken(text.trim());
    close();
    changed();
  };
  open("Token", (close) =>
    h(
      "form",
      { onsubmit: (event) => (event.preventDefault(), use(close, field().value)) },
      h("h2", {}, "Token"),
      why ? h("p", {}, visible(why)) : null,
      h("label", { for: "token" }, "A token of this server"),
      h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", "data-first": true }),
      h(
        "p",
        { class: "dim" },
        "It is kept until this tab is closed, and sent as a header. ",
        h("code", {}, "tenure token new --role read"),
        " makes one; breaking needs the role ",
        h("code", {}, "admin"),
        ".",
      ),
      h(
        "footer",
        {},
        h("button", { type: "button", class: "quiet", onclick: close }, "Cancel"),
        token() ? h("button", { type: "button", class: "quiet", onclick: () => use(close, "") }, "Forget it") : null,
        h("button", { type: "submit", class: "primary" }, "Use it"),
      ),
    ),
  );
}

/** Shows what breaking a hold means, and does it if its fence is typed and a reason given. */
export function breakHold(entry, holder, done) {
  const form = { fence: "", reason: "", busy: false, error: null };
  const isReady = () => form.fence.trim() === String(holder.fence) && form.reason.trim() !== "" && !form.busy;
  open("Break a hold", (close, again) => {
    const type = (field) => (event) => {
      form[field] = event.target.value;
      again();
    };
    const send = async (event) => {
      event.preventDefault();
      if (!isReady()) return;
      form.busy = true;
      form.error = null;
      again();
      try {
        await post("v1/break", {
          name: entry.name,
          kind: space(entry.kind),
          fence: holder.fence,
          reason: form.reason.trim(),
        });
        close();
        done(`Broke ${visible(entry.name)}: the hold with fence ${holder.fence} has ended.`, false);
      } catch (error) {
        form.busy = false;
        form.error = failed(error);
        again();
      }
    };
    return h(
      "form",
      { onsubmit: send, class: "break" },
      h("h2", {}, "Break ", say(entry.name, { class: "mono" })),
      h(
        "ul",
        { class: "meaning" },
        meaning(entry, holder).map((line) => h("li", {}, line)),
      ),
      h(
        "label",
        { for: "break-fence" },
        "Type the fence ",
        h("output", { class: "mono" }, String(holder.fence)),
        " to say which hold you mean",
      ),
      h("input", {
        id: "break-fence",
        class: "mono",
        inputmode: "numeric",
        autocomplete: "off",
        spellcheck: "false",
        value: form.fence,
        oninput: type("fence"),
        "data-first": true,
        "aria-invalid": form.fence !== "" && !String(holder.fence).startsWith(form.fence.trim()) ? "true" : null,
      }),
      h("label", { for: "break-reason" }, "Reason, which the holder and the log are told"),
      h("input", {
        id: "break-reason",
        autocomplete: "off",
        maxlength: 200,
        value: form.reason,
        oninput: type("reason"),
      }),
      form.error ? h("p", { class: "error", role: "alert" }, form.error) : null,
      h(
        "footer",
        {},
        h("button", { type: "button", class: "quiet", onclick: close }, "Cancel"),
        h(
          "button",
          { type: "submit", class: "danger", disabled: !isReady() },
          form.busy ? "Breaking…" : "Break the hold",
        ),
      ),
    );
  });
}

/** The most holds shown at once before they are broken: more than anyone reads. */
const MOST = 5000;
const KINDS = [
  ["lock", "Locks, semaphores, read-write locks"],
  ["election", "Leaders"],
  ["once", "Onces"],
];

/**
 * Shows exactly which holds begin with a prefix, and breaks the ones that are shown and no others: if such a name is held
 * with another fence by then, that hold stays.
 */
export function breakMany(kind, done) {
  const form = { kind, prefix: "", found: null, many: "", reason: "", busy: "", error: null, kept: null };
  const isReady = () =>
    form.found?.length > 0 && form.many.trim() === String(form.found.length) && form.reason.trim() !== "" && !form.busy;
  open("Break many holds", (close, again) => {
    const type = (field, more) => (event) => {
      Object.assign(form, { [field]: event.target.value, error: null }, more);
      again();
    };
    const attempt = async (busy, work) => {
      Object.assign(form, { busy, error: null });
      again();
      try {
        await work();
      } catch (error) {
        form.error = failed(error);
      }
      form.busy = "";
      again();
    };
    const preview = () => attempt("Looking…", async () => (form.found = await holdsThatBegin(form.kind, form.prefix)));
    const send = () =>
      attempt("Breaking…", async () => {
        const { broken, kept, error } = await breakAll(form);
        // Do not repeat what was done.
        Object.assign(form, { found: null, many: "", kept });
        const whole = kept.length === 0 && !error;
        done(`Broke ${count(broken, "hold")}${kept.length > 0 ? `, not ${count(kept.length, "other")}` : ""}.`, !whole);
        if (whole) close();
        else if (error) throw error;
      });
    return h(
      "form",
      {
        class: "break",
        onsubmit: (event) => {
          event.preventDefault();
          if (form.busy || form.prefix === "") return;
          if (form.found == null) preview();
          else if (isReady()) send();
        },
      },
      h("h2", {}, "Break all holds whose names begin with…"),
      h("label", { for: "many-prefix" }, "The beginning of the names"),
      h("input", {
        id: "many-prefix",
        class: "mono",
        autocomplete: "off",
        spellcheck: "false",
        value: form.prefix,
        oninput: type("prefix", { found: null, many: "", kept: null }),
        "data-first": true,
      }),
      h("label", { for: "many-kind" }, "Of"),
      h(
        "select",
        {
          id: "many-kind",
          onchange: type("kind", { found: null, many: "", kept: null }),
          created: (element) => (element.value = form.kind),
        },
        KINDS.map(([word, label]) => h("option", { key: word, value: word }, label)),
      ),
      form.kept?.length > 0
        ? [
            h("p", { role: "status" }, `Not broken, or not known to be: ${count(form.kept.length, "hold")}.`),
            listed(form.kept),
          ]
        : null,
      form.found == null ? null : previewed(form, type),
      form.error ? h("p", { class: "error", role: "alert" }, form.error) : null,
      h(
        "footer",
        {},
        h("button", { type: "button", class: "quiet", onclick: close }, form.kept ? "Close" : "Cancel"),
        form.found == null
          ? h(
              "button",
              { type: "submit", class: "primary", disabled: form.prefix === "" || form.busy !== "" },
              form.busy || "Show which",
            )
          : h(
              "button",
              { type: "submit", class: "danger", disabled: !isReady() },
              form.busy || `Break these ${form.found.length.toLocaleString("en")}`,
            ),
      ),
    );
  });
}

function previewed(form, type) {
  const { found } = form;
  if (found.length === 0) return h("p", { role: "status" }, "Nobody holds a name that begins so.");
  const names = new Set(found.map(({ name }) => name)).size;
  return [
    h(
      "p",
      { role: "status" },
      h("strong", {}, count(found.length, "hold")),
      ` of ${count(names, "name")}. Exactly these are broken: who gets such a name meanwhile keeps it.`,
    ),
    listed(found),
    h(
      "ul",
      { class: "meaning" },
      h("li", {}, h("strong", {}, "Breaking stops no process."), " Each is told at its next renewal; until then, two may be running."),
    ),
    h("label", { for: "many-count" }, "Type how many these are: ", h("output", { class: "mono" }, String(found.length))),
    h("input", {
      id: "many-count",
      class: "mono",
      inputmode: "numeric",
      autocomplete: "off",
      value: form.many,
      oninput: type("many"),
    }),
    h("label", { for: "many-reason" }, "Reason, which the holders and the log are told"),
    h("input", { id: "many-reason", autocomplete: "off", maxlength: 200, value: form.reason, oninput: type("reason") }),
  ];
}

function listed(holds) {
  return h(
    "ol",
    { class: "holds", tabindex: 0, "aria-label": "holds" },
    holds.map(({ name, fence, owner, held_ms: held, code }) =>
      h(
        "li",
        { key: `${name} ${fence}` },
        say(name, { class: "mono" }),
        h("span", { class: "dim" }, say(owner), ` for ${span(held)}, fence ${fence}`),
        code ? h("b", {}, OUTCOMES[code] ?? code) : null,
      ),
    ),
  );
}

/** What became of a hold that was not broken, by the server's code. */
const OUTCOMES = {
  moved_on: "had ended before, so nothing was broken",
  unavailable: "the engine does not answer: nothing happened",
  in_doubt: "the engine did not answer: it may have happened",
};

async function holdsThatBegin(kind, prefix) {
  const found = [];
  let after;
  do {
    const page = await get("v1/names", { kind, prefix, state: "held", sort: "name", limit: 1000, after });
    found.push(...holdsOf(page.names));
    after = page.next;
    if (found.length > MOST) throw new Error(`More than ${MOST.toLocaleString("en")} holds begin so: type more of the names.`);
  } while (after);
  return found;
}

async function breakAll({ found, kind, reason }) {
  const owners = new Map(found.map((hold) => [`${hold.name} ${hold.fence}`, hold]));
  let broken = 0;
  const kept = [];
  for (const body of breaks(found, kind, reason.trim())) {
    let answer;
    try {
      answer = await post("v1/break", body);
    } catch (error) {
      return { broken, kept, error };
    }
    for (const { name, fence, status, code } of answer.holds) {
      if (status === 200) broken += 1;
      else kept.push({ ...owners.get(`${name} ${fence}`), code });
    }
  }
  return { broken, kept };
}

function failed(error) {
  if (!(error instanceof Problem)) return error.message;
  if (error.code === "moved_on")
    return "Nothing was broken: no hold has this fence any more. Close this, look again, and decide again.";
  if (error.status === 401 || error.status === 403)
    return `Nothing was broken: ${visible(error.message)}`;
  if (error.status === 503) return `Nothing was broken: ${visible(error.message)}`;
  if (error.status === 504 || error.status === 0)
    return "It may have happened: there was no answer. Close this, and look whether the hold is still there.";
  return visible(error.message);
}

/** Who holds it, whether the holder seems alive, and what a break would do. */
function meaning(entry, holder) {
  const now = performance.now();
  const lines = [];
  const since = new Date(Date.now() - (now - holder.since));
  lines.push([
    say(holder.owner, { class: "mono strong" }),
    ` has held it since ${timeOfDay(since)} (${span(now - holder.since)}). `,
    alive(holder),
  ]);
  const told = holder.ttl ? `at its next renewal (within ${span(holder.ttl / 3)})` : "at its next renewal";
  lines.push([
    h("strong", {}, "Breaking does not stop that process."),
    ` It is told ${told}; until then, two may be running.`,
  ]);
  const next = entry.waiters[0];
  if (next && entry.waiters.length >= LONG_LINE)
    lines.push(["Next in line: ", say(next.owner, { class: "mono" }), `, of ${entry.waiters.length}.`]);
  else if (next) lines.push(["Next in line: ", say(next.owner, { class: "mono" }), "."]);
  lines.push("The next holder gets a higher fence; whatever checks fences refuses the old one.");
  if (entry.word === "once") lines.push("The work will be unsettled: nobody runs it again unless they ask to.");
  const { host, pid } = holder.meta ?? {};
  if (/^[A-Za-z0-9][A-Za-z0-9.-]*$/.test(host ?? "") && /^\d+$/.test(pid ?? ""))
    lines.push(["Safer: ", h("code", {}, `ssh ${host} kill ${pid}`)]);
  return lines;
}

function alive(holder) {
  const ago = renewedAgo(holder);
  if (ago == null) return holder.left == null ? "" : `${precise(holder.left)} were left at the last look.`;
  return isLate(holder)
    ? [`Last renewed ${span(ago)} ago, which is late: the holder `, h("strong", { class: "bad" }, "may be dead"), "."]
    : [`Last renewed ${span(ago)} ago: the holder `, h("strong", { class: "good" }, "looks alive"), "."];
}
