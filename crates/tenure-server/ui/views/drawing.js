// Small pictures.

import { h } from "../dom.js";
import { precise, span } from "../text.js";
import { histogram, lengths, quantile } from "../past.js";

/** A line of the last values. */
export function sparkline(values, label) {
  if (values.length < 3) return null;
  const most = Math.max(1, ...values);
  const step = 64 / (values.length - 1);
  const points = values
    .map((value, index) => `${(index * step).toFixed(1)},${(15 - (value / most) * 14).toFixed(1)}`)
    .join(" ");
  return h(
    "svg",
    { class: "sparkline", viewBox: "0 0 64 16", width: 64, height: 16, role: "img", "aria-label": label },
    h("polyline", { points }),
  );
}

/** How long holds lasted, with the current one beside them. */
export function holdTimes(holds, heldNow) {
  const sorted = lengths(holds);
  if (sorted.length === 0) return h("p", { class: "dim" }, "No hold was seen from its beginning to its end yet.");
  const buckets = histogram(sorted);
  const most = Math.max(...buckets.map((bucket) => bucket.many));
  const median = quantile(sorted, 0.5);
  const high = quantile(sorted, 0.99);
  const isOdd = heldNow != null && heldNow > 2 * high;
  return [
    h(
      "p",
      { class: "quantiles" },
      `${sorted.length} seen · half within `,
      h("b", {}, precise(median)),
      " · 99 % within ",
      h("b", {}, precise(high)),
      heldNow == null
        ? null
        : [
            " · now ",
            h("b", { class: isOdd ? "bad" : "" }, precise(heldNow)),
            isOdd && high > 0 ? ` = ${Math.round(heldNow / high).toLocaleString("en")}× that` : "",
          ],
    ),
    h(
      "div",
      {
        class: "histogram",
        role: "img",
        "aria-label": `Hold times: half within ${precise(median)}, 99 percent within ${precise(high)}`,
      },
      buckets.map(({ upTo, many }, index) => {
        const from = index === 0 ? 0 : buckets[index - 1].upTo;
        const label = upTo === Infinity ? `> ${span(from)}` : `≤ ${span(upTo)}`;
        return h(
          "div",
          { key: index, class: "bucket", title: `${label}: ${many}` },
          h("span", { class: "many" }, many > 0 ? many.toLocaleString("en") : ""),
          h("span", { class: "column", style: { height: `${Math.round((many / most) * 56) + (many > 0 ? 2 : 0)}px` } }),
          h("span", { class: "edge" }, upTo === Infinity ? "more" : span(upTo)),
        );
      }),
    ),
  ];
}

const END_WORDS = { released: "released", gone: "expired", broken: "broken by force", settled: "settled" };

/** The last holds on a time line. Overlapping holds of a name that only one can hold are marked. */
export function timeline(holds, now, isExclusive) {
  const shown = holds.slice(-40);
  if (shown.length === 0) return null;
  const first = Math.min(...shown.map((hold) => hold.from ?? hold.to));
  const whole = Math.max(1, now - first);
  const place = (at) => ((at - first) / whole) * 100;
  return h(
    "div",
    { class: "timeline" },
    h(
      "div",
      { class: "lane", role: "img", "aria-label": `The last ${shown.length} holds` },
      shown.map((hold, index) => {
        const from = hold.from ?? hold.to;
        const to = hold.to ?? now;
        const before = shown[index - 1];
        // A short overlap only shows the order in which this server heard of the two.
        const overlaps = isExclusive && before && hold.from != null && (before.to ?? now) - from > 50;
        const end = hold.to == null ? "held now" : END_WORDS[hold.end];
        return h("span", {
          key: hold.fence,
          class: `hold ${hold.to == null ? "current" : hold.end} ${overlaps ? "overlap" : ""}`,
          title: `fence ${hold.fence}, ${span(to - from)}, ${end}${overlaps ? ", while another was seen to hold" : ""}`,
          style: { left: `${place(from)}%`, width: `${Math.max(0.4, place(to) - place(from))}%` },
        });
      }),
    ),
    h("div", { class: "axis" }, h("span", {}, `${span(now - first)} ago`), h("span", {}, "now")),
  );
}
