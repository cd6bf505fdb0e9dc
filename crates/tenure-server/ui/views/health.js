// Health: does the engine answer, is it fit for locks, and what does the server count?

import { get, getText, Problem, server } from "../api.js";
import { access, mayBreak } from "../access.js";
import { h, render, say } from "../dom.js";
import { status } from "../live.js";
import { count, precise, span } from "../text.js";

/** The order in which findings are shown. */
const WORST = ["problem", "warning", "good"];
const MARKS = { good: ["✓", "good"], warning: ["!", "warn"], problem: ["✗", "bad"] };

export class HealthView {
  title = "Health";
  every = 5000;

  constructor(frame, root) {
    Object.assign(this, { frame, root, ready: null, trip: null, doctor: null, metrics: null, at: null });
  }

  leave() {
    render(this.root);
  }

  focus() {
    this.root.focus({ preventScroll: true });
  }

  async refresh(signal) {
    const began = performance.now();
    this.ready = await answer(get("readyz", {}, signal));
    this.trip = performance.now() - began;
    this.at = began;
    const [doctor, metrics] = await Promise.all([answer(get("v1/doctor", {}, signal)), answer(getText("metrics", signal))]);
    this.doctor = doctor;
    this.metrics = metrics.value == null ? metrics : { value: read(metrics.value) };
    if (this.ready.problem?.status === 401) throw this.ready.problem;
  }

  draw() {
    if (this.ready == null) return render(this.root, h("p", { class: "dim" }, "Reading…"));
    const label = (this.ready.value ?? this.ready.problem.body).engine;
    render(
      this.root,
      h("div", { class: "title" }, h("h1", {}, "Health")),
      h(
        "section",
        { class: "card" },
        h("h2", {}, "Server and engine"),
        h(
          "dl",
          { class: "facts wide" },
          fact(
            "engine",
            this.ready.problem
              ? h(
                  "span",
                  { class: "bad" },
                  this.ready.problem.status === 503 ? "does not answer" : this.ready.problem.message,
                )
              : h("span", { class: "good" }, `answers, in ${precise(Math.max(1, this.trip))}`),
          ),
          label ? fact("address", say(label, { class: "mono" })) : null,
          server.engine ? fact("engine id", say(server.engine, { class: "mono" })) : null,
          fact(
            "stream",
            status.stream === "open"
              ? h("span", { class: "good" }, "open")
              : h("span", { class: status.stream === "broken" ? "bad" : "" }, status.stream),
          ),
          fact(
            "you",
            access.roles == null
              ? "the server has not said yet what you may do"
              : access.open
                ? `no token is asked for; pages may ${mayBreak() ? "look and break" : "look"}`
                : [say(access.name), `: ${access.roles.join(", ")}`],
          ),
        ),
      ),
      this.drawDoctor(),
      this.drawMetrics(),
    );
  }

  drawDoctor() {
    const { value, problem } = this.doctor ?? {};
    const findings = [...(value?.findings ?? [])].sort((a, b) => WORST.indexOf(a.mark) - WORST.indexOf(b.mark));
    return h(
      "section",
      { class: "card" },
      h(
        "h2",
        {},
        "Is the engine fit for locks?",
        value
          ? [
              h("b", { class: value.fit ? "good" : "bad" }, value.fit ? " Yes." : " No."),
              h(
                "span",
                { class: "dim" },
                ` ${value.ok} ok, ${count(value.warnings, "warning")}, ${count(value.problems, "problem")}`,
                value.age_ms >= 1000 ? `, looked at ${span(value.age_ms)} ago` : "",
              ),
            ]
          : null,
      ),
      problem ? h("p", { class: "dim" }, problem.message) : null,
      h(
        "ul",
        { class: "findings" },
        findings.map((finding) => {
          const [sign, tone] = MARKS[finding.mark] ?? ["?", ""];
          return h(
            "li",
            { key: `${finding.check} ${finding.what}` },
            h("span", { class: `sign ${tone}`, role: "img", "aria-label": finding.mark }, sign),
            h("span", { class: "check" }, finding.check),
            h(
              "div",
              {},
              say(finding.what),
              finding.code ? h("span", { class: "mono dim" }, ` ${finding.code}`) : null,
              finding.why ? h("p", { class: "dim" }, say(finding.why)) : null,
              finding.fix ? h("p", {}, h("b", {}, "fix: "), say(finding.fix)) : null,
            ),
          );
        }),
      ),
    );
  }

  drawMetrics() {
    const { value, problem } = this.metrics ?? {};
    return h(
      "section",
      { class: "card" },
      h(
        "h2",
        {},
        "What the server counts",
        value ? h("span", { class: "dim" }, ` since it was started; ${count(value.length, "series", "series")}`) : null,
      ),
      problem ? h("p", { class: "dim" }, problem.message) : null,
      h(
        "table",
        { class: "metrics" },
        h(
          "tbody",
          {},
          (value ?? []).map(({ name, labels, text }) =>
            h(
              "tr",
              { key: `${name} ${labels}` },
              h("td", { class: "mono" }, say(name)),
              h("td", { class: "mono dim" }, say(labels)),
              h("td", { class: "mono number" }, text),
            ),
          ),
        ),
      ),
    );
  }
}

function fact(word, value) {
  return h("div", { key: word }, h("dt", {}, word), h("dd", {}, value));
}

/** An answer, or the problem in its place. */
async function answer(promise) {
  try {
    return { value: await promise };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return { problem: error };
  }
}

/** The series of a Prometheus text that are of interest to people: no buckets and sums, our own first. */
function read(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)$/.exec(line) ?? [];
    if (!name || /_(?:bucket|sum)$/.test(name) || /quantile=/.test(labels)) continue;
    const number = Number(value);
    found.push({
      name,
      labels,
      text: Number.isFinite(number) ? number.toLocaleString("en", { maximumFractionDigits: 3 }) : value,
    });
  }
  const byName = (one) => `${one.name.startsWith("tenure") ? 0 : 1}${one.name} ${one.labels}`;
  return found.sort((a, b) => (byName(a) < byName(b) ? -1 : 1));
}
