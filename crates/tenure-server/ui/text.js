// Formats durations, texts from strangers and times of day. No DOM here.

const UNITS = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
  [1, "s"],
];

/** A duration in its two largest units, as the command line writes it: `3m12s`. */
export function span(ms) {
  if (ms == null || Number.isNaN(ms)) return "–";
  const seconds = Math.floor(Math.max(0, ms) / 1000);
  const largest = UNITS.findIndex(([size]) => seconds >= size);
  if (largest < 0) return ms >= 1 ? `${Math.floor(ms)}ms` : "0s";
  const [size, unit] = UNITS[largest];
  const first = `${Math.floor(seconds / size)}${unit}`;
  const below = UNITS[largest + 1];
  const rest = below ? Math.floor((seconds % size) / below[0]) : 0;
  return rest > 0 ? `${first}${rest}${below[1]}` : first;
}

/** The same with a tenth where that is useful: `4.2s`. */
export function precise(ms) {
  return ms >= 1000 && ms < 60_000 ? `${(Math.floor(ms / 100) / 10).toFixed(1).replace(".0", "")}s` : span(ms);
}

/** The milliseconds of `30s`, `1m 30s` or `250ms`; null if it cannot be read. */
export function duration(text) {
  const sizes = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  let total = 0;
  const rest = String(text).replace(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*/g, (_, number, unit) => {
    total += Number(number) * sizes[unit];
    return "";
  });
  return rest === "" && text !== "" ? total : null;
}

// Control characters, characters without a glyph, marks that change the direction of writing, and spaces that look like
// the usual one. A joiner between two emoji stays: without it one picture becomes several.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Cs}\p{Zl}\p{Zp}\u3164\uFFA0\u115F\u1160]|(?! )\p{Zs}/u;
const JOINED = /\p{Extended_Pictographic}\uFE0F?\p{Emoji_Modifier}?$/u;

/**
 * Splits a text from a stranger into pieces that can be shown: `{ text, hidden }`, where the hidden ones are written as
 * `U+202E`. So two names that differ never look the same because of what cannot be seen.
 */
export function pieces(text) {
  const found = [];
  let plain = "";
  const all = Array.from(String(text));
  all.forEach((character, index) => {
    const joins =
      character === "\u200D" && JOINED.test(plain) && /\p{Extended_Pictographic}/u.test(all[index + 1] ?? "");
    if (!joins && HIDDEN.test(character)) {
      if (plain) found.push({ text: plain, hidden: false });
      plain = "";
      const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      found.push({ text: `U+${code}`, hidden: true });
    } else {
      plain += character;
    }
  });
  if (plain) found.push({ text: plain, hidden: false });
  return found;
}

/** The same as one text, for places that cannot have pieces, such as a title. */
export function visible(text) {
  return pieces(text)
    .map((piece) => (piece.hidden ? `⟨${piece.text}⟩` : piece.text))
    .join("");
}

/** `1 name`, `2 names`. */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** `12:00:01`, by the clock of this browser. */
export function timeOfDay(date) {
  return date.toLocaleTimeString("en-GB", { hour12: false });
}
