// Writes tenure.cjs and index.d.cts, the CommonJS forms of tenure.mjs and index.d.ts. They are kept in the repository, so
// that nobody who uses the package needs a build; a test compares them.

import { readFileSync, writeFileSync } from "node:fs";

const at = (name) => new URL(name, import.meta.url);

/** The CommonJS form of the module: its imports and its one export are the only lines that differ. */
export function commonjs(source) {
    const text = source
        .replace(/^import (\{[^}]*\}|\w+) from "([^"]+)";$/gm, 'const $1 = require("$2");')
        .replace(/^export \{([^}]*)\};$/m, "module.exports = {$1};");
    if (/^(import|export)\b/m.test(text)) throw new Error("an import or export that this cannot turn into CommonJS");
    return `// Made from tenure.mjs by make-commonjs.mjs: do not edit.\n"use strict";\n\n${text}`;
}

/** What the two files must contain. */
export function made() {
    return {
        "tenure.cjs": commonjs(readFileSync(at("tenure.mjs"), "utf8")),
        "index.d.cts": readFileSync(at("index.d.ts"), "utf8"),
    };
}

if (process.argv[1] === at("make-commonjs.mjs").pathname) {
    for (const [name, text] of Object.entries(made())) writeFileSync(at(name), text);
}
