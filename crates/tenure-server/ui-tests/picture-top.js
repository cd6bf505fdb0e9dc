// Takes the picture of `tenure top` in the documentation, as SVG: TENURE_BIN=… node picture-top.js FILE
// The picture is a capture of a terminal (tmux) in which the command runs. Its locks are those of a Redis server, and
// real processes hold them and wait for them.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

const TENURE = process.env.TENURE_BIN;
const file = process.argv[2];
if (!TENURE || !file) throw new Error("TENURE_BIN=… node picture-top.js FILE");
const [COLUMNS, LINES, PORT] = [104, 13, 6391];
const folder = mkdtempSync(path.join(tmpdir(), "tenure-top-"));
const env = { ...process.env, TENURE_URL: `redis://127.0.0.1:${PORT}` };
const running = [];
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function start(...args) {
  running.push(spawn(TENURE, args, { env, stdio: "ignore" }));
}

const run = (name, owner, ...more) => start("run", name, "--owner", owner, ...more, "--", "sleep", "600");

// --- a terminal's cells as SVG ---

const NAMED = ["#0d1117", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4"];
const BRIGHT = ["#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc"];
const [INK, GROUND] = ["#c9d1d9", "#0d1117"];
const [WIDE, HIGH, EDGE] = [8.43, 19, 14];

/** Colour n of the 256. */
function indexed(n) {
  if (n < 8) return NAMED[n];
  if (n < 16) return BRIGHT[n - 8];
  const level = (step) => (step === 0 ? 0 : 55 + 40 * step);
  const rgb =
    n < 232
      ? [Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6].map(level)
      : Array(3).fill(8 + 10 * (n - 232));
  return `rgb(${rgb.join(",")})`;
}

/** Changes a style as an escape sequence with these numbers says. */
function restyle(style, numbers) {
  const codes = numbers === "" ? [0] : numbers.split(";").map(Number);
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    const target = code === 38 ? "ink" : code === 48 ? "ground" : null;
    if (code === 0) Object.assign(style, plain());
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underlined = true;
    else if (code === 7) style.reversed = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 27) style.reversed = false;
    else if (target && codes[at + 1] === 5) ((style[target] = indexed(codes[at + 2])), (at += 2));
    else if (target && codes[at + 1] === 2)
      ((style[target] = `rgb(${codes.slice(at + 2, at + 5).join(",")})`), (at += 4));
    else if (code >= 30 && code < 38) style.ink = NAMED[code - 30];
    else if (code >= 90 && code < 98) style.ink = BRIGHT[code - 90];
    else if (code === 39) style.ink = INK;
    else if (code >= 40 && code < 48) style.ground = NAMED[code - 40];
    else if (code >= 100 && code < 108) style.ground = BRIGHT[code - 100];
    else if (code === 49) style.ground = GROUND;
    else throw new Error(`the escape code ${code} is not known`);
  }
}

const plain = () => ({ ink: INK, ground: GROUND, bold: false, dim: false, italic: false, underlined: false, reversed: false });
const escaped = (text) => text.replace(/[&<>]/g, (character) => `&#${character.codePointAt(0)};`);

function drawn(capture) {
  const style = plain();
  const shapes = [];
  const lines = capture.replace(/\n$/, "").split("\n");
  lines.forEach((line, row) => {
    let column = 0;
    for (const [, numbers, text] of line.matchAll(/\u001b\[([\d;]*)m|([^\u001b]+)/g)) {
      if (text === undefined) {
        restyle(style, numbers);
        continue;
      }
      const many = [...text].length;
      const [ink, ground] = style.reversed ? [style.ground, style.ink] : [style.ink, style.ground];
      const [x, y] = [EDGE + column * WIDE, EDGE + row * HIGH];
      const width = many * WIDE;
      if (ground !== GROUND) shapes.push(`<rect x="${x.toFixed(1)}" y="${y}" width="${width.toFixed(1)}" height="${HIGH}" fill="${ground}"/>`);
      if (text.trim() !== "") {
        const more = [style.bold ? ' font-weight="700"' : "", style.italic ? ' font-style="italic"' : "",
          style.dim ? ' opacity="0.6"' : "", style.underlined ? ' text-decoration="underline"' : ""].join("");
        shapes.push(`<text x="${x.toFixed(1)}" y="${y + 14}" textLength="${width.toFixed(1)}" fill="${ink}"${more} xml:space="preserve">${escaped(text)}</text>`);
      }
      column += many;
    }
  });
  const [width, height] = [Math.ceil(COLUMNS * WIDE + 2 * EDGE), lines.length * HIGH + 2 * EDGE];
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="tenure top: names, who holds them and who waits">`,
    "<style>text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; white-space: pre }</style>",
    `<rect width="${width}" height="${height}" rx="8" fill="${GROUND}"/>`,
    ...shapes,
    "</svg>\n",
  ].join("\n");
}

// --- the scene ---

const session = `tenure-top-${process.pid}`;
const tmux = (...args) => execFileSync("tmux", ["-L", session, ...args], { env, encoding: "utf8" });
try {
  running.push(spawn("redis-server", ["--port", String(PORT), "--bind", "127.0.0.1", "--dir", folder], { stdio: "ignore" }));
  await pause(1000);
  run("backup", "web-3:4121", "--reason", "nightly dump");
  for (let unit = 1; unit <= 3; unit += 1) run("api:partner", `web-${unit}:97`, "--slots", "5");
  run("catalog", "web-1:77", "--shared");
  run("catalog", "web-2:12", "--shared");
  start("elect", "scheduler", "--owner", "cron-1:88", "--", "sleep", "600");
  await pause(1000);
  start("elect", "scheduler", "--owner", "cron-2:91", "--", "sleep", "600");
  run("backup", "web-5:912");
  await pause(1000);
  run("backup", "web-1:77");
  await pause(40_000);
  // Nobody renews this one.
  execFileSync(TENURE, ["acquire", "wallet:0x9f3a", "--owner", "relay-7:1", "--ttl", "30s", "--reason", "transfer 5120"], { env });
  for (const relay of [2, 5, 3]) run("wallet:0x9f3a", `relay-${relay}:1`);
  await pause(21_000);
  tmux("-f", "/dev/null", "new-session", "-d", "-x", String(COLUMNS), "-y", String(LINES), `'${TENURE}' top`);
  tmux("set", "-g", "status", "off");
  await pause(3500);
  writeFileSync(file, drawn(tmux("capture-pane", "-e", "-p")));
} finally {
  try {
    tmux("kill-server");
  } catch {
    // It ended together with its only program.
  }
  for (const one of running.reverse()) one.kill("SIGTERM");
  await pause(1000);
  rmSync(folder, { recursive: true, force: true });
}
